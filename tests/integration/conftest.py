"""One real server for all tests of the page, since it takes seconds to start, and a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright
from tests.integration.browsing import CHROMIUM, FLAGS
from tests.integration.serving import Serving, serving


@pytest.fixture(scope="session")
def served_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory whose logs the server may read."""
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="session")
def served_temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server would put temporary files."""
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="session")
def server(served_directory: Path, served_temporary: Path) -> Iterator[Serving]:
    with serving("--allow", str(served_directory), temporary=served_temporary) as server:
        yield server


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """While it is open, a test that runs an event loop needs another thread for it."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()
