"""Laws of what is laid out: no line is wider than the screen, nothing is lost, nothing is markup that was text."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.property.columns import seeds, step_times

from stepwatch.i18n import LANGUAGES
from stepwatch.messages import Message
from stepwatch.presenters.document import STEP, Points
from stepwatch.presenters.markdown import escaped, fenced
from stepwatch.presenters.screen import (
    NARROWEST,
    WIDEST,
    Row,
    TableColumn,
    fitted,
    held,
    plain,
    printable,
    shortened,
    shown,
    stacked,
    table_lines,
    table_widths,
    wrapped,
)
from stepwatch.presenters.text_chart import shared_out, text_chart
from stepwatch.presenters.thinning import stretches

widths = st.integers(NARROWEST, WIDEST)
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=60)
words = st.text("abcdef0123456789", min_size=1, max_size=12)


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    """The head and some rows, each cell of one to six words."""
    random, columns, rows = Random(draw(seeds)), draw(st.integers(2, 6)), draw(st.integers(2, 8))

    def sentence() -> str:
        sizes = [random.randint(1, 12) for _ in range(random.randint(1, 6))]
        return " ".join("".join(random.choices("abcdef0123456789", k=size)) for size in sizes)

    return [[sentence() for _ in range(columns)] for _ in range(rows)]


def laid_out(table: list[list[str]]) -> tuple[list[TableColumn], list[Row]]:
    head, *rows = table
    columns = [TableColumn(name, "right" if place % 2 else "left") for place, name in enumerate(head)]
    return columns, [Row(row) for row in rows]


@given(tables(), widths)
def test_a_table_is_no_wider_than_the_screen_and_keeps_its_words(table: list[list[str]], width: int) -> None:
    columns, rows = laid_out(table)
    found = table_widths(columns, rows, width)
    lines = stacked(columns, rows, width) if found is None else table_lines(columns, rows, found)
    assert max(len(plain(line).rstrip()) for line in lines) <= width
    said = " ".join(plain(line) for line in lines).split()
    assert {word for row in rows for cell in row.cells for word in cell.split()} <= {word.strip("·") for word in said}


@given(tables(), widths)
def test_of_a_table_that_is_too_wide_columns_are_named_that_are_left_out(table: list[list[str]], width: int) -> None:
    columns, rows = laid_out(table)
    last = len(columns) - 1
    lines, missing = fitted(columns, rows, width, left_out=range(1, last), name=0, state=last)
    assert lines
    assert {*missing} <= {column.head for column in columns[1:last]}


@given(st.lists(words, min_size=1, max_size=12), st.integers(1, 30))
def test_names_that_differ_still_do_when_they_are_shortened(names: list[str], most: int) -> None:
    found = shortened(names, most)
    assert len(found) == len(names)
    assert len({*found}) == len({*names})


@given(texts, st.integers(20, 100))
def test_a_text_is_wrapped_to_the_width_and_loses_nothing(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert max(map(len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert held(text).replace("\u00a0", " ") == text.replace("\u00a0", " ")
    for colour in (False, True):
        assert shown([[(line, "")] for line in lines], width, colour).encode()


@given(st.text(max_size=60))
def test_any_text_can_be_printed(text: str) -> None:
    assert len(printable(text).encode().decode()) == len(text)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_no_text_is_markup_in_markdown(text: str) -> None:
    fence = fenced(text, "").split("\n", 1)[0]
    assert set(fence) == {"`"}
    assert fence not in text
    plain = text.replace("`", "'")
    as_code = str.maketrans("", "", "\\`")  # which a setting's name becomes
    assert escaped(plain).translate(as_code) == plain.translate(as_code)


# --- pictures ---------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=9), st.integers(9, 200))
def test_a_bar_is_shared_out_to_its_last_column(shares: list[float], columns: int) -> None:
    lengths = shared_out(shares, columns)
    assert sum(lengths) == columns
    assert min(lengths) >= 1


@given(
    step_times(60), st.integers(0, 10**12), st.integers(1, 10**6), widths, st.integers(3, 12),
    st.sampled_from(LANGUAGES),
)  # fmt: skip
def test_a_chart_is_as_wide_and_as_high_as_its_place(
    times: np.ndarray, first: int, gap: int, width: int, height: int, language: str
) -> None:
    rows = np.arange(len(times))
    marks = {STEP: rows[rows % 3 != 1], "e": rows[rows % 3 == 1]}
    legend = {STEP: Message("step"), "e": Message("evaluation")}
    points = Points(number=first + gap * rows, time_s=times, marks=marks, legend=legend)
    lines = text_chart(points, language, width, height)
    assert max(len(plain(line)) for line in lines) <= width
    assert len(lines) <= height + 3  # the axis, and the two of the legend


@given(st.integers(0, 500), st.integers(1, 100))
def test_stretches_hold_every_row_once(count: int, most: int) -> None:
    found = stretches(np.arange(count), most)
    assert len(found) == min(count, most)
    assert [row for part in found for row in part.tolist()] == list(range(count))
