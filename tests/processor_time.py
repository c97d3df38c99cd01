"""Pytest plugin (`-p tests.processor_time`, in one process): the files whose tests take most processor time."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator

import pytest

SHOWN = 20
by_file: dict[str, float] = defaultdict(float)


def spent_s() -> float:
    """By this process and by those that it has started and waited for."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before = spent_s()
    done = yield
    by_file[item.location[0]] += spent_s() - before
    return done


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("processor time")
    for name, seconds in sorted(by_file.items(), key=lambda row: -row[1])[:SHOWN]:
        terminalreporter.write_line(f"{seconds:7.2f} s  {name}")
    terminalreporter.write_line(f"{spent_s():7.2f} s  in all, with the start and the collection")
