"""The table of a directory's runs: as wide as the terminal, no column lost without a word, no two names alike.

The width of characters on a terminal, and where a line of Chinese or Japanese may end.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from stepwatch.presenters.screen import (
    Row,
    TableColumn,
    cell_width,
    cut,
    fitted,
    longest_word,
    padded,
    shortened,
    shown,
    wrapped,
)

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
    columns = [TableColumn(head, "right" if head in FIGURES else "left") for head in HEADS]
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


CHINESE = "正常迭代用时 3\u00a0分\u00a04\u00a0秒，“before.log”中有 100 次迭代（见“日志”）。慢的包含评估；这不是故障。"
JAPANESE = "1イテレーションは3分4秒でした。コンパイルと（2時間5分）評価ですが、「train.log」からは分けられません。"
NO_BEGINNING, NO_END = "。，、：；）」”ーァィョ", "（「“"
letters = st.characters(codec="utf-8", categories=("Lu", "Ll", "Lo", "Nd"), max_codepoint=0xFFDC)
mixed = st.text(st.sampled_from("ab 12 。，、（）「」“”正常迭代イテレーションのは\u00a0"), max_size=80)


@given(st.text(letters))
def test_the_width_of_letters_is_that_of_a_terminal(text: str) -> None:
    known = [letter for letter in text if not "\u1160" <= letter <= "\u11ff"]  # parts of Korean syllables
    assert cell_width("".join(known)) == cell_len("".join(known))


@pytest.mark.parametrize("text", [CHINESE, JAPANESE])
@pytest.mark.parametrize("width", range(20, 60))
def test_no_line_begins_or_ends_with_the_wrong_mark(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert max(map(cell_width, lines)) <= width
    assert "".join(lines).replace(" ", "") == text.replace("\u00a0", "").replace(" ", "")
    assert not [line for line in lines if line[0] in NO_BEGINNING or line[-1] in NO_END]
    pieces = "\n".join(lines)
    for whole in ("3 分 4 秒", "イテレーション", "コンパイル", "2時間", "before.log", "train.log"):
        assert (whole in pieces) == (whole in text.replace("\u00a0", " "))


@given(mixed, st.integers(20, 60))
def test_wrapping_loses_nothing_and_keeps_to_the_width(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert max(map(cell_width, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(mixed, st.integers(0, 60))
def test_cut_and_padded_texts_have_their_width(text: str, width: int) -> None:
    assert width - 1 <= cell_width(padded(cut(text, width), width)) <= width
    assert text.startswith(cut(text, width))


def test_a_word_in_a_column_does_not_stand_letter_by_letter() -> None:
    assert longest_word("信頼度") == 6
    assert longest_word("评估和检查点") == 8
    assert wrapped("评估和检查点", 8, cut_words=False) == ["评估和检", "查点"]
    assert longest_word("a long name") == 4
