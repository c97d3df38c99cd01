"""Patterns are compiled late, and once."""

from __future__ import annotations

import re

import pytest

from stepwatch.patterns import Pattern


def test_a_pattern_finds_what_the_compiled_one_finds() -> None:
    pattern, text = Pattern(r"(?P<n>\d+)/S", re.IGNORECASE), "12/s 13/s"
    assert [found["n"] for found in pattern.finditer(text)] == ["12", "13"]
    assert pattern.match(text, 5) is not None
    assert pattern.fullmatch(text) is None
    assert pattern.sub("", text) == " "


def test_a_pattern_is_compiled_when_it_is_first_used(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    monkeypatch.setattr(re, "compile", lambda *given, compile=re.compile: compiled.append(given) or compile(*given))
    pattern = Pattern(rb"\d+/s")
    assert not compiled
    assert pattern.search(b"12/s")
    assert pattern.search(b"13/s")
    assert compiled == [(rb"\d+/s", 0)]
