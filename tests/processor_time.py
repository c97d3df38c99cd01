"""Pytest plugin (`-p tests.processor_time`, in one process): the files whose tests take most processor time.

Its own, and that of all processes below it. A browser's are often not waited for by the one that started them, so that
their time is in nobody's account. Where the system can do that (Linux), they become children of this process when
their parent ends, and stay in /proc with their time.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections import defaultdict
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

SHOWN = 40
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
by_file: dict[str, float] = defaultdict(float)
by_test: dict[str, float] = defaultdict(float)


def pytest_configure() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def below_s() -> float:
    """Of all processes below this one, with what those have waited for; 0 where there is no /proc."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (AttributeError, ChildProcessError):  # on Windows; without children there is no need to look
        return 0.0
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            process = int(stat.parent.name)
            parents[process], ticks[process] = int(fields[1]), sum(map(int, fields[11:15]))
    below = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in below} - below:
        below |= more
    return sum(ticks[process] for process in below - {os.getpid()}) / os.sysconf("SC_CLK_TCK")


def spent_s() -> float:
    return sum(os.times()[:4]) + below_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before = spent_s()
    done = yield
    spent = spent_s() - before
    by_file[item.location[0]] += spent
    by_test[item.nodeid] += spent
    return done


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for title, times in (("file", by_file), ("test", by_test)):
        terminalreporter.section(f"processor time by {title}")
        for name, seconds in sorted(times.items(), key=lambda row: -row[1])[:SHOWN]:
            terminalreporter.write_line(f"{seconds:7.2f} s  {name}")
    terminalreporter.write_line(f"{spent_s():7.2f} s  in all, with the start and the collection")
