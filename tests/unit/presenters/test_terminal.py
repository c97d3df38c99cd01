"""Tables on terminals of any width, in every language: no line is too wide, and no word is broken."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from rich.cells import cell_len

from stepwatch.answers import cards
from stepwatch.answers.from_logs import ExplainRequest, compare, explain
from stepwatch.answers.from_plans import AdviseRequest, EstimateRequest, advise, estimate
from stepwatch.i18n import LANGUAGES, say
from stepwatch.messages import Message
from stepwatch.presenters import View, document_of
from stepwatch.presenters import document as doc
from stepwatch.presenters.screen import cell_width, plain
from stepwatch.presenters.terminal import TerminalWriter

EXAMPLES = Path(__file__).parents[3] / "examples"
NAME_WRAPPED = ["Part                Cost", "a rather long     12.5 s", "name of a part"]
LOGS = ("short", "resumed", "laptop-sleep", "gpt2-124m-4070")
WIDTHS = (40, 60, 80, 120)


@cache
def documents() -> dict[str, doc.Document]:
    logs = {name: str(EXAMPLES / f"{name}.log") for name in LOGS}
    config = str(EXAMPLES / "train_gpt2_small.py")
    asked = {name: ExplainRequest(logs=(log,), gpu="4070") for name, log in logs.items()}
    answers = {name: explain(request) for name, request in asked.items()}
    others = {
        "directory": explain(ExplainRequest(logs=(str(EXAMPLES),))),
        "plan": estimate(EstimateRequest(config=config, gpu="4070")),
        "advice": advise(AdviseRequest(config=config, gpu="4070", settings=("compile=False",))),
        "comparison": compare(asked["short"], asked["gpt2-124m-4070"]),
        "cards": cards(),
        "card": cards("4070")[0],
    }
    full = View(full=True, why=True)
    return {name: document_of(answer, full) for name, answer in {**answers, **others}.items()}


def tables(document: doc.Document) -> list[doc.Table]:
    return [block for block in doc.all_blocks(document) if isinstance(block, doc.Table)]


def words_in(table: doc.Table, language: str) -> set[str]:
    cells = [cell for row in table.rows for cell in row]
    badges = [cell for cell in cells if isinstance(cell, doc.Badge)]
    messages = [*table.head, *(badge.word for badge in badges)]
    messages += [cell for cell in cells if isinstance(cell, doc.Message)]
    signs = {badge.sign for badge in badges}
    return signs | {word for message in messages for word in say(message, language).split()}


# Each document in two languages, each language with three documents and more.
@pytest.mark.parametrize(
    ("name", "language"),
    [
        (name, language)
        for i, name in enumerate(
            (
                "short",
                "resumed",
                "laptop-sleep",
                "gpt2-124m-4070",
                "directory",
                "plan",
                "advice",
                "comparison",
                "cards",
                "card",
            )
        )
        for j, language in enumerate(LANGUAGES)
        if (i + j) % 3 == 0
    ],
)
def test_tables_keep_to_the_width_and_break_no_word(name: str, language: str) -> None:
    remark = say(Message("Left out for lack of space: {columns:word}.", {"columns": ""}), language)
    found = tables(documents()[name])
    assert found
    for table in found:
        known = words_in(table, language) | {"+", "·", *table.marks, *remark.split()}
        text = remark + " ".join(known)
        for width in WIDTHS:
            lines = [plain(line).rstrip() for line in TerminalWriter(language, width, width)._table(table)]
            assert max(map(cell_width, lines)) <= width
            printed = {word for line in lines for word in line.split() if "…" not in word}  # which stands in a cut name
            odd = {word for word in printed if not {word, word.rstrip(",.")} & known}
            if cell_width(remark) == len(remark):
                assert not odd
            # Where a script has no spaces, a line ends anywhere but before some marks and inside a word of katakana.
            assert all(piece in text for word in odd for piece in re.split("[、。：]", word))
            assert not any(word[0] in "。，、：；）」ーァッョ" for word in odd)


def test_figures_stay_on_one_line_as_long_as_names_can_be_wrapped() -> None:
    cells = ((doc.word("a rather long name of a part"), doc.word("12.5 s")),)
    lines = TerminalWriter("en", 24, 24)._table(doc.Table((doc.word("Part"), doc.word("Cost")), "lr", cells))
    assert [plain(line).rstrip() for line in lines] == NAME_WRAPPED


def test_what_is_less_important_is_left_out_before_rows_are_taken_apart() -> None:
    head = (doc.word("Part"), doc.word("Cost"), doc.word("Basis"))
    table = doc.Table(head, "lrd", ((doc.word("Evaluation"), doc.word("12.5"), doc.word("measured")),))
    narrow, narrower = (
        [plain(line).rstrip() for line in TerminalWriter("en", width, width)._table(table)] for width in (20, 12)
    )
    assert narrow[:2] == ["Part        Cost", "Evaluation  12.5"]
    assert " ".join(narrow[2:]) == "Left out for lack of space: Basis."
    assert narrower[0] == "Evaluation"
    assert "12.5" in narrower[1]


@pytest.mark.parametrize("language", ["en", "zh", "ja"])
@pytest.mark.parametrize("name", documents())
def test_no_line_of_a_screen_is_wider_than_the_terminal(name: str, language: str) -> None:
    writer = TerminalWriter(language, 80, 80)
    for lines in (writer.screen(documents()[name]), writer.whole(documents()[name])):
        assert [text for text in map(plain, lines) if cell_len(text) > 80 and "--" not in text] == []  # a command


@pytest.mark.parametrize("language", ["zh", "ja"])
def test_columns_of_wide_characters_are_aligned(language: str) -> None:
    [table] = [table for table in tables(documents()["short"]) if len(table.head) == 5]
    lines = TerminalWriter(language, 80, 80)._table(table)
    assert len({cell_len(plain(line)) for line in lines}) == 1
    ends = {cell_len(plain(line)[: plain(line).rindex("%") + 1]) for line in lines if "%" in plain(line)}
    assert len(ends) == 1
