"""Every promise of docs/security.md, and of systems in docs/reliability.md, names a test that is there."""

from __future__ import annotations

import re

import pytest
from tools import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([^|]+) \| `(tests/[\w/]+\.py)::(\w+)` \|$", re.M)
PROMISES = ROW.findall(PAGE)
SYSTEMS = ROW.findall((ROOT / "docs" / "reliability.md").read_text(encoding="utf-8"))


def test_every_promise_has_a_test() -> None:
    tables = PAGE.split("## A file is data")[1].split("## What is not promised")[0]
    rows = [line for line in tables.splitlines() if line.startswith("| ") and line != "| promise | test |"]
    assert len(rows) == len(PROMISES)
    assert len(rows) > 30


@pytest.mark.parametrize(("promise", "file", "name"), PROMISES + SYSTEMS)
def test_the_test_of_a_promise_is_there(promise: str, file: str, name: str) -> None:
    assert f"\ndef {name}(" in (ROOT / file).read_text(encoding="utf-8"), promise
