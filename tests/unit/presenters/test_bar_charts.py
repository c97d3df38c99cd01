"""Bars of all the time, each part in words and by a hatch of its own, and those of two runs side by side."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.builders import Truth, a_log

from stepwatch.analysis import analyse
from stepwatch.analysis.comparison import Comparison, compare
from stepwatch.i18n import LANGUAGES, say
from stepwatch.messages import Message
from stepwatch.presenters.bar_charts import _HATCHES, compared_parts, compared_steps, stacked_bar
from stepwatch.presenters.document import time
from stepwatch.presenters.html import style
from stepwatch.presenters.run_sentences import PART_NAMES, PartRow, part_rows, share_text
from stepwatch.presenters.vega import DARK, PART_COLOURS
from stepwatch.readers import read
from stepwatch.sources import from_text

BEFORE = Truth(max_iters=2000, eval_interval=500, log_interval=10)
STALLING = replace(BEFORE, stall_share=0.05, seed=3)


def rows() -> tuple[PartRow, ...]:
    return part_rows(analyse(read(from_text(a_log(STALLING), "train.log"))[0]))


def part(code: str, share: float) -> PartRow:
    return PartRow(part=code, cost=Message("–"), how=None, count=1, seconds=1000 * share, share=share)


def widths(markup: str) -> list[float]:
    bar = ElementTree.fromstring(markup)[0]
    return [float(rect.attrib["width"].rstrip("%")) for rect in bar.findall("rect")]


def test_the_parts_fill_the_bar_by_their_shares() -> None:
    found = rows()
    drawn = widths(stacked_bar(found, "b", "en"))
    assert sum(drawn) == pytest.approx(100)
    assert drawn == pytest.approx([100 * row.share for row in found], abs=1)


def test_the_smallest_part_is_seen() -> None:
    assert min(widths(stacked_bar([part("step", 0.9999), part("eval", 0.0001)], "b", "en"))) >= 0.4


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_part_is_said_with_time_and_share(language: str) -> None:
    said = " ".join("".join(ElementTree.fromstring(stacked_bar(rows(), "b", language)).itertext()).split())
    for row in rows():
        texts = (say(text, language) for text in (PART_NAMES[row.part], time(row.seconds), share_text(row.share)))
        assert " ".join(" ".join(texts).split()) in said


def test_every_part_has_a_hatch_and_no_two_in_one_bar_are_alike() -> None:
    assert set(PART_NAMES) <= set(_HATCHES)
    alone = [code for code in _HATCHES if code != "warm-up"]  # instead of compilation, never beside it
    assert len({_HATCHES[code] for code in alone}) == len(alone)


def test_it_needs_no_style_attribute_and_no_script_and_its_names_are_its_own() -> None:
    markup = stacked_bar(rows(), "fr-bar", "fr")
    assert not re.search(r"<script|<style|style=|on\w+=|href=", markup)
    names = re.findall(r'(?:id="|url\(#)([^")]+)', markup)
    assert names
    assert all(name.startswith("fr-bar-") for name in names)


def test_its_colours_change_in_the_dark() -> None:
    sheet = style()
    for colour in PART_COLOURS.values():
        assert f'.report svg [fill="{colour}"] {{ fill: {DARK[colour]}; }}' in sheet


def test_nothing_is_drawn_of_nothing() -> None:
    assert stacked_bar([part("eval", float("nan"))], "b", "en") == ""


# --- two runs ------------------------------------------------------------------------------------------------------


def compared() -> Comparison:
    logs = (BEFORE, replace(BEFORE, step_s=0.2, seed=1))
    before, after = (analyse(read(from_text(a_log(truth)))[0]) for truth in logs)
    return compare(before, after, names=("before.log", "after.log"), limit=None, notes=())


def test_the_spread_of_a_step_is_that_of_the_iterations_not_of_their_mean() -> None:
    c = compared()
    data = compared_steps(c, "en").spec["datasets"]["step"]
    for row, a in zip(data, (c.before, c.after), strict=True):
        times = a.run.iterations.time_s[a.phases.normal]
        within = np.mean((times >= row["low"] * 0.99999) & (times <= row["high"] * 1.00001))
        assert 0.88 <= within <= 0.92
        assert row["high"] - row["low"] > a.costs.step_s.high - a.costs.step_s.low
    assert data[1]["mid"] == pytest.approx(2 * data[0]["mid"], rel=0.02)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_parts_of_a_run_are_all_of_its_time(language: str) -> None:
    c = compared()
    plot = compared_parts(c, language)
    for code, a in zip(("before", "after"), (c.before, c.after), strict=True):
        drawn = sum(row["s"] for row in plot.spec["datasets"]["parts"] if row["k"] == code)
        assert drawn == pytest.approx(a.goodput.wall_s, rel=1e-3)
    assert all(all(row) for row in plot.rows)
