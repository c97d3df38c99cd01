"""Patterns are compiled late, and not tried on texts that cannot match."""

from __future__ import annotations

from stepwatch.patterns import Pattern


def test_a_text_without_the_letters_of_a_pattern_is_not_searched() -> None:
    pattern = Pattern(rb"\d+/s", holds=(b"loss",))  # letters that its matches do not have show what is asked first

    assert pattern.search(b"12/s") is None
    assert list(pattern.finditer(b"12/s")) == []
    assert pattern.search(b"loss 12/s") is not None
    assert [found[0] for found in pattern.finditer(b"loss 12/s 13/s")] == [b"12/s", b"13/s"]


def test_a_search_from_a_later_place_does_not_ask_for_the_letters_again() -> None:
    assert Pattern(rb"\d+/s", holds=(b"loss",)).search(b"loss 12/s", 5) is not None
