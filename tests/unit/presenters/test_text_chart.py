"""Pictures made of characters: an evaluation is never in the row of a step, and every part of the time is seen."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from tests.builders import Saves, Truth, a_log

from stepwatch.analysis import Analysis, analyse
from stepwatch.i18n import LANGUAGES, say
from stepwatch.messages import Message
from stepwatch.presenters.document import STEP, Points
from stepwatch.presenters.run_answer import LEGEND
from stepwatch.presenters.run_sentences import MARKS, PART_NAMES, PartRow, part_rows
from stepwatch.presenters.screen import plain
from stepwatch.presenters.text_chart import PART_MARKS, stacked_bar, text_chart
from stepwatch.readers import read
from stepwatch.sources import from_text

PLAIN = Truth(max_iters=3000, eval_interval=500, log_interval=10, step_s=0.2, eval_s=6.0, saves=Saves.NEVER)
STALLING = replace(PLAIN, stall_share=0.05, seed=3)
WIDTHS = (40, 60, 100)


def an_analysis(text: str) -> Analysis:
    return analyse(read(from_text(text, "train.log"))[0])


def points_of(a: Analysis) -> Points:
    marks = {mark: np.flatnonzero(a.phases.of(*phases)) for mark, phases in MARKS.items()}
    return Points(number=a.run.iterations.number, time_s=a.run.iterations.time_s, marks=marks, legend=LEGEND)


def rows_of(points: Points, width: int, height: int, language: str = "en") -> list[tuple[str, str]]:
    """The label and the marks of each line, the slowest first."""
    lines = [plain(line) for line in text_chart(points, language, width, height)]
    assert max(map(len, lines)) <= width, lines
    found = (re.fullmatch(r" *(?P<label>.*?) │(?P<marks>.*)", line) for line in lines)
    return [(match["label"], match["marks"]) for match in found if match is not None]


def planted(*slow: tuple[int, float, str]) -> Points:
    """400 steps of 200 ms, and slower iterations of a number, a time and a mark."""
    times = np.full(400, 0.2)
    for number, seconds, _ in slow:
        times[number] = seconds
    marked = {mark: np.array([number for number, _, kind in slow if kind == mark], np.int64) for mark in "!ec0"}
    steps = np.setdiff1d(np.arange(400), np.concatenate(list(marked.values())))
    return Points(number=np.arange(400), time_s=times, marks={STEP: steps, **marked}, legend=LEGEND)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("height", [3, 5, 7])
@pytest.mark.parametrize(
    "others",
    [
        (),
        ((0, 12.5, "0"),),
        ((0, 60.0, "0"), (250, 8 * 3600.0, "!")),
        tuple((30 + 2 * place, 0.2 * 1.5**place, "!") for place in range(30)),  # stalls of every length, up to 7 h
    ],
    ids=["alone", "first", "sleep", "stalls of every length"],
)
def test_no_row_holds_a_step_and_an_evaluation_of_thirty_steps(
    others: tuple[tuple[int, float, str], ...], height: int, width: int
) -> None:
    rows = rows_of(planted((100, 6.0, "e"), (200, 6.2, "e"), (300, 5.9, "e"), *others), width, height)
    assert len(rows) <= height
    with_steps = [marks for _, marks in rows if set(marks) & set(".·˙")]
    assert with_steps == [rows[-1][1]]
    assert any("e" in marks for _, marks in rows)
    assert not set(rows[-1][1]) & set("e0")


def test_each_row_says_the_time_of_what_is_in_it() -> None:
    rows = rows_of(planted((0, 60.0, "0"), (100, 6.0, "e"), (250, 8 * 3600.0, "!")), 60, 5)
    assert [(label, marks.strip()[:1]) for label, marks in rows] == [
        ("8 h", "!"),
        ("1 min", "0"),
        ("6.00 s", "e"),
        ("200.0 ms", "."),
    ]


def test_a_run_that_slows_down_rises() -> None:
    times = np.repeat([0.1, 0.2, 0.4, 0.8], 100)
    points = Points(number=np.arange(400), time_s=times, marks={STEP: np.arange(400)}, legend=LEGEND)
    rows = rows_of(points, 60, 3)
    first = [next(place for place, mark in enumerate(marks) if mark != " ") for _, marks in rows]
    assert first == sorted(first, reverse=True)
    assert len(set(first)) == 3


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_legend_names_every_mark_and_is_never_cut(language: str, width: int) -> None:
    points = planted((0, 60.0, "0"), (100, 6.0, "e"), (150, 7.0, "c"), (250, 90.0, "!"))
    text = " ".join(" ".join(plain(line) for line in text_chart(points, language, width, 5)).split())
    for mark, meaning in LEGEND.items():
        assert f"{mark} {say(meaning, language)}" in text


# --- where the time went ----------------------------------------------------------------------------------------


def part(code: str, seconds: float, share: float) -> PartRow:
    return PartRow(part=code, cost=Message("–"), how=None, count=1, seconds=seconds, share=share)


def test_the_bar_is_as_wide_as_the_screen_and_divided_like_the_time() -> None:
    bar = stacked_bar([part("step", 60.0, 0.6), part("eval", 30.0, 0.3), part("stall", 10.0, 0.1)], 50)
    assert plain(bar) == "█" * 30 + "e" * 15 + "!" * 5


@pytest.mark.parametrize("width", WIDTHS)
def test_the_smallest_part_is_seen(width: int) -> None:
    parts = [part("step", 9990.0, 0.999), part("compile", 9.0, 0.0009), part("eval", 1.0, 0.0001)]
    bar = plain(stacked_bar(parts, width))
    assert len(bar) == width
    assert bar.endswith("0e")


@pytest.mark.parametrize("width", WIDTHS)
def test_each_part_of_a_run_is_in_the_bar(width: int) -> None:
    rows = part_rows(an_analysis(a_log(STALLING)))
    assert {"step", "eval", "stall"} <= {row.part for row in rows}
    bar = plain(stacked_bar(rows, width))
    assert len(bar) == width
    assert {PART_MARKS[row.part] for row in rows} == set(bar)


def test_every_part_that_has_a_name_has_a_character() -> None:
    assert set(PART_NAMES) <= set(PART_MARKS)


def test_a_share_that_is_not_known_is_none_of_the_bar() -> None:
    assert plain(stacked_bar([part("step", 1.0, 1.0), part("eval", 0.0, float("nan"))], 40)) == "█" * 40
    assert plain(stacked_bar([], 40)) == ""


@pytest.mark.parametrize("truth", [PLAIN, STALLING], ids=["plain", "stalling"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_planted_run_is_drawn_with_its_evaluations_above_its_steps(truth: Truth, width: int) -> None:
    rows = rows_of(points_of(an_analysis(a_log(truth))), width, 3)
    assert "e" not in rows[-1][1]
    assert any("e" in marks for _, marks in rows[:-1])
