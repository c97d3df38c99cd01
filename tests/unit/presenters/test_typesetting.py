"""The width of characters on a terminal, and where a line of Chinese or Japanese may end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from stepwatch.presenters.typesetting import cell_width, cut, longest_word, padded, wrapped, wrapped_words

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
    assert wrapped_words("评估和检查点", 8) == ["评估和检", "查点"]
    assert longest_word("a long name") == 4
