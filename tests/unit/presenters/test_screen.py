"""The table of a directory's runs: as wide as the terminal, no column lost without a word, no two names alike."""

from __future__ import annotations

import pytest

from stepwatch.presenters.screen import Column, Row, fitted, shortened, shown

HEADS = ["Run", "Log", "Format", "Card", "Iterations", "Step", "tokens/s", "MFU", "Steps’ share", "State"]
FIGURES = {"Run", "Iterations", "Step", "tokens/s", "MFU", "Steps’ share"}
FIRST = [
    "1",
    "sweep/llama-3-8b-lr-3e-4/train.log",
    "nanogpt",
    "A100",
    "2,000",
    "170.2 ms",
    "96,300",
    "38.8 %",
    "93.6 %",
]
SECOND = ["2", "sweep/llama-3-8b-lr-1e-4/train.log", "llm.c", "–", "1,000", "1.03 s", "–", "–", "–"]
ROWS = [[*FIRST, "length unknown"], [*SECOND, "ended before its first iteration"]]


def overview(rows: list[list[str]], width: int) -> tuple[str, tuple[str, ...]]:
    """The text of the table, and the heads of the columns without room."""
    columns = [Column(head, "right" if head in FIGURES else "left") for head in HEADS]
    found = fitted(columns, list(map(Row, rows)), width, left_out=(7, 3, 2, 4, 6, 8), name=1, state=9)
    return shown(found[0], width, False), found[1]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, overview(ROWS, width)[0].splitlines())) <= width


def test_a_wide_terminal_shows_all_on_one_line_each() -> None:
    text, left_out = overview(ROWS, 160)
    assert left_out == ()
    assert all(" ".join(row) in " ".join(text.split()) for row in ROWS)


def test_columns_without_room_are_named_those_that_tell_nothing_first() -> None:
    rows = [[*row[:3], "–", *row[4:]] for row in ROWS]
    assert overview(rows, 96)[1] == ("Card",)
    assert overview(rows, 80)[1] == ("Format", "Card", "MFU")


def test_names_lose_their_middle_and_stay_distinct() -> None:
    names = ["sweep/llama-3-8b-lr-3e-4/train.log", "sweep/llama-3-8b-lr-1e-4/train.log", "short.log"]
    found = shortened(names, 20)
    assert len(set(found)) == 3
    assert all(len(name) <= 20 for name in found)
    assert found[2] == "short.log"


def test_only_names_that_are_alike_are_cut_elsewhere() -> None:
    names = ["deep/place/one/train.log", "deep/place/two/train.log", "elsewhere/altogether.log"]
    one, two, other = shortened(names, 16)
    assert one != two
    assert other == "elsew…gether.log"


def test_names_that_cannot_be_told_apart_shorter_stay_whole() -> None:
    names = [f"{'a' * 40}{n}{'b' * 40}" for n in range(3)]
    assert shortened(names, 16) == names
