"""Pytest plugin (`-p tests.no_skip`): counts skipped tests loudly; with STEPWATCH_NO_SKIP=1 any skip is a failure."""

from __future__ import annotations

import os
from typing import Any

import pytest


def skipped(config: pytest.Config) -> int:
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    return len(reporter.stats.get("skipped", [])) if reporter is not None else 0


def forbidden() -> bool:
    return os.environ.get("STEPWATCH_NO_SKIP", "") not in ("", "0")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if forbidden() and skipped(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """The last line of all, after pytest's own summary."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    count = skipped(config)
    if reporter is None or not reporter.stats:
        return
    if not count:
        reporter.write_line("No test was skipped.")
    elif forbidden():
        reporter.write_line(f"FAILED: {count} skipped, and STEPWATCH_NO_SKIP=1 allows none.", red=True)
    else:
        reporter.write_line(f"SKIPPED: {count}, for the reasons above.", yellow=True)
