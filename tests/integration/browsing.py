"""The browser of the machine, for the tests that drive one."""

from __future__ import annotations

import shutil

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="NO BROWSER: pages are not tested; on Debian: apt-get install chromium"
)
