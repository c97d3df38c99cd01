"""The charts: that Vega-Lite takes them, that no spike is lost, and that their figures are the report's."""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
import vl_convert

from stepwatch import i18n
from stepwatch.advice import advice_on_plan
from stepwatch.analysis import Analysis, analyse
from stepwatch.analysis.phases import PHASE_NAMES, Phase
from stepwatch.errors import UsageError
from stepwatch.estimator.plan import Plan, plan
from stepwatch.gpus import find_gpu
from stepwatch.i18n import LANGUAGES, joined, say
from stepwatch.i18n.languages import TABLE
from stepwatch.presenters import CHARTS, PLAN_CHARTS, View, document_of, pictures, render, vega
from stepwatch.presenters import run_sentences as sentences
from stepwatch.presenters.pictures import png, titled
from stepwatch.presenters.run_charts import plot, times
from stepwatch.presenters.run_json import iterations_json
from stepwatch.presenters.thinning import MOST_POINTS, drawn_rows
from stepwatch.presenters.vega import Plot
from stepwatch.readers import read
from stepwatch.report import PlanReport, Report, RunReport
from stepwatch.settings import Origin, Settings
from stepwatch.sources import from_text
from stepwatch.verdict import judge

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.builders import Saves, Truth, a_log
from tests.recorded import a_record

PLAIN = Truth(max_iters=2000, eval_interval=500, log_interval=10)
CUT = replace(PLAIN, kept=0.5)
PAIRED = Truth(max_iters=1000, eval_interval=100, eval_s=4.0, checkpoint_s=6.0, saves=Saves.ALWAYS)
STALLING = replace(PLAIN, stall_share=0.05, seed=3)
LONG = Truth(max_iters=5 * MOST_POINTS, eval_interval=100, log_interval=1, stall_share=0.002, noise=0.02)
NO_HEADER = replace(CUT, header=False)
TRUTHS = {"plain": PLAIN, "cut": CUT, "paired": PAIRED, "stalling": STALLING, "no header": NO_HEADER}
TINY = [
    "iter 0: loss 4.1, time 12543.49ms, mfu -100.00%\n",
    "iter 7: loss 4.1, time 0.00ms\n",
    "iter 10: loss nan, time 10.00ms\niter 20: loss nan, time 0.00ms\n",
    "".join(f"step {k}: train loss 4.2, val loss 4.2\niter {k}: loss 4.1, time 900.00ms\n" for k in range(0, 50, 10)),
]


@cache
def an_analysis(text: str) -> Analysis:
    return analyse(read(from_text(text, "train.log"))[0], find_gpu("4070"), "user")


def a_plan(**settings: int) -> Plan:
    return plan(Settings.of(Origin.USER, dict(settings)), find_gpu("4070"))


def charts_of(a: Analysis, language: str) -> tuple[Plot, ...]:
    """All charts that the document of a run holds."""
    return plots(Report(runs=(RunReport(analysis=a, advice=None, verdict=judge(a)),)), language)


def plan_charts_of(found: Plan, language: str) -> tuple[Plot, ...]:
    return plots(PlanReport(plan=found, advice=advice_on_plan(found)), language)


def plots(answer: Report | PlanReport, language: str) -> tuple[Plot, ...]:
    drawn = (plot(chart, language) for chart in document_of(answer).charts().values())
    return tuple(plot for plot in drawn if plot is not None)


def by_name(charts: tuple[Plot, ...]) -> dict[str, Plot]:
    return {chart.name: chart for chart in charts}


@pytest.fixture(scope="module")
def long_run() -> Analysis:
    return an_analysis(a_log(LONG))


# --- what Vega-Lite says ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "width", "language"),
    [*zip([*TINY, *map(a_log, TRUTHS.values())], cycle((280, 720)), cycle(("en", "de", "es")), strict=False)],
    ids=[*map(str, range(len(TINY))), *TRUTHS],
)
def test_vega_lite_takes_every_chart_of_a_run_and_each_axis_has_three_ticks(
    text: str, width: int, language: str
) -> None:
    for chart in charts_of(an_analysis(text), language):
        drawn = vl_convert.vegalite_to_svg({**chart.spec, "width": width})
        assert drawn.startswith("<svg"), chart.name
        assert "NaN" not in drawn, chart.name
        assert "undefined" not in drawn, chart.name
        for axis in range(drawn.count('role-axis-label"')):
            assert len(ticks_of(drawn, axis)) >= 3, (chart.name, axis)


@pytest.mark.parametrize("settings", [{}, {"n_layer": 48, "n_head": 25, "n_embd": 1600, "batch_size": 64}])
def test_vega_lite_takes_every_chart_of_a_plan(settings: dict[str, int]) -> None:
    charts = plan_charts_of(a_plan(**settings), "fr")
    assert tuple(chart.name for chart in charts) == PLAN_CHARTS
    for chart in charts:
        assert "NaN" not in vl_convert.vegalite_to_svg({**chart.spec, "width": 600})


def test_a_run_that_goes_on_fills_all_charts() -> None:
    assert tuple(chart.name for chart in charts_of(an_analysis(a_log(CUT)), "en")) == CHARTS[:-1]
    assert CHARTS[-1] == "machine"  # needs samples


def test_a_finished_run_has_no_forecast_and_a_run_without_slow_iterations_no_anatomy() -> None:
    assert "forecast" not in by_name(charts_of(an_analysis(a_log(PLAIN)), "en"))
    steps = "".join(f"iter {k}: loss 4.1, time 100.0{k % 3}ms\n" for k in range(100, 200))
    assert "anatomy" not in by_name(charts_of(an_analysis(steps), "en"))


@pytest.mark.parametrize("truth", TRUTHS.values(), ids=TRUTHS)
def test_the_data_hold_no_word_of_any_language(truth: Truth) -> None:
    a = an_analysis(a_log(truth))
    data = [[chart.spec["datasets"] for chart in charts_of(a, language)] for language in LANGUAGES]
    assert all(other == data[0] for other in data[1:])


def test_nothing_in_a_chart_is_fetched() -> None:
    for chart in (*charts_of(an_analysis(a_log(CUT)), "en"), *plan_charts_of(a_plan(), "en")):
        assert re.findall(r'"(?:url|href)"', json.dumps(chart.spec)) == []
        assert re.findall(r"https?://[^\"]*", json.dumps(chart.spec)) == [vega.SCHEMA]


# --- thinning ---------------------------------------------------------------------------------------------------


def test_a_short_run_is_drawn_whole() -> None:
    a = an_analysis(a_log(PLAIN))
    drawn = drawn_rows(a)
    assert drawn.rows.tolist() == list(range(len(a.run.iterations)))
    assert drawn.steps_left_out == drawn.slow_left_out == 0


def test_of_a_long_run_every_slow_iteration_is_drawn(long_run: Analysis) -> None:
    drawn = drawn_rows(long_run)
    slow = np.flatnonzero(~long_run.phases.of(Phase.STEP))
    assert len(drawn.rows) <= MOST_POINTS < len(long_run.run.iterations)
    assert set(slow.tolist()) <= set(drawn.rows.tolist())
    assert drawn.steps_left_out == len(long_run.run.iterations) - len(drawn.rows)


def test_of_too_many_slow_ones_the_slowest_of_each_kind_and_every_rare_one_stay(long_run: Analysis) -> None:
    times, phases = long_run.run.iterations.time_s, long_run.phases.phase
    drawn = drawn_rows(long_run, 120)
    kept = set(drawn.rows.tolist())
    assert len(kept) <= 120
    assert drawn.slow_left_out > 0
    for phase in np.unique(phases).tolist():
        rows = np.flatnonzero(phases == phase)
        assert int(rows[np.argmax(times[rows])]) in kept, PHASE_NAMES[phase]
    rare = np.flatnonzero(phases == Phase.FIRST)
    assert set(rare.tolist()) <= kept


def test_the_fastest_and_the_slowest_normal_iteration_stay(long_run: Analysis) -> None:
    normal = np.flatnonzero(long_run.phases.of(Phase.STEP))
    times = long_run.run.iterations.time_s[normal]
    kept = set(drawn_rows(long_run, 200).rows.tolist())
    assert {int(normal[times.argmin()]), int(normal[times.argmax()])} <= kept


def test_rows_are_drawn_once_and_in_order(long_run: Analysis) -> None:
    rows = drawn_rows(long_run, 300).rows
    assert (np.diff(rows) > 0).all()


def said_of_times(a: Analysis, most: int) -> str:
    drawn = times(a, "en", most)
    assert drawn is not None
    return drawn.description


def test_what_is_left_out_is_said(long_run: Analysis) -> None:
    whole, thin, thinnest = (said_of_times(long_run, most) for most in (10**6, 3000, 100))
    assert "every slow one" in thin
    assert "every slow one" not in whole
    assert "for each kind" in thinnest


# --- the figures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("truth", [PLAIN, STALLING, PAIRED], ids=["plain", "stalling", "paired"])
def test_each_point_is_the_iteration_of_the_report(truth: Truth) -> None:
    a = an_analysis(a_log(truth))
    told = {row["iter"]: row for rows in iterations_json(a) for row in rows}
    for point in by_name(charts_of(a, "en"))["times"].spec["datasets"]["times"]:
        row = told[point["i"]]
        assert point["t"] == pytest.approx(row["time_s"], rel=1e-5)
        assert point["p"] == row["phase"]
        parts = [value for name, value in point.items() if name not in ("i", "t", "p")]
        if parts:
            assert sum(parts) == pytest.approx(row["time_s"], rel=5 * sentences.SMALLEST_SHOWN)


def test_the_bars_are_where_the_time_went() -> None:
    a = an_analysis(a_log(STALLING))
    drawn = {row["k"]: row["s"] for row in by_name(charts_of(a, "en"))["parts"].spec["datasets"]["parts"]}
    assert drawn == {row.part: pytest.approx(row.seconds, rel=1e-5) for row in sentences.part_rows(a)}
    assert sum(drawn.values()) == pytest.approx(a.goodput.wall_s, rel=2e-3)


def test_the_forecast_begins_with_the_wall_time_and_ends_with_the_total() -> None:
    a = an_analysis(a_log(CUT))
    data = by_name(charts_of(a, "en"))["forecast"].spec["datasets"]
    assert a.forecast.remaining_s is not None
    assert data["elapsed"][-1] == {"i": a.forecast.last_iteration, "s": pytest.approx(a.goodput.wall_s, rel=1e-5)}
    assert data["ahead"][-1]["i"] == a.forecast.max_iters
    assert data["ahead"][-1]["mid"] == pytest.approx(a.goodput.wall_s + a.forecast.remaining_s.mid, rel=1e-4)
    assert data["ahead"][-1]["low"] < data["ahead"][-1]["mid"] < data["ahead"][-1]["high"]


def test_the_speed_is_the_reports() -> None:
    a = an_analysis(a_log(PLAIN))
    rates = [row["mid"] for row in by_name(charts_of(a, "en"))["throughput"].spec["datasets"]["rates"]]
    assert np.median(rates) == pytest.approx(a.throughput.tokens_per_s, rel=0.01)


def test_without_tokens_the_speed_is_in_iterations() -> None:
    a = an_analysis(a_log(replace(NO_HEADER, with_mfu=False)))
    chart = by_name(charts_of(a, "en"))["throughput"]
    rates = [row["mid"] for row in chart.spec["datasets"]["rates"]]
    assert np.median(rates) == pytest.approx(1 / a.costs.step_s.mid, rel=0.01)
    assert "iterations/s" in chart.head


def test_a_change_of_speed_is_drawn_as_levels() -> None:
    slow = "".join(f"iter {k}: loss 4.1, time {150 if k >= 500 else 100}.{k % 7}0ms\n" for k in range(100, 1000))
    a = an_analysis(slow)
    chart = by_name(charts_of(a, "en"))["throughput"]
    levels = chart.spec["datasets"]["levels"]
    assert [level["rate"] for level in levels] == [
        pytest.approx(1 / regime.step_s, rel=1e-5) for regime in a.regimes.regimes
    ]
    assert len(levels) == 2
    assert "dashed" in chart.description


def test_the_anatomy_shows_one_iteration_of_each_slow_phase_and_a_normal_one() -> None:
    a = an_analysis(a_log(STALLING))
    drawn = by_name(charts_of(a, "en"))["anatomy"].spec["datasets"]["anatomy"]
    assert {row["k"] for row in drawn} == {PHASE_NAMES[phase] for phase in np.unique(a.phases.phase).tolist()}


@pytest.mark.parametrize("truth", [PLAIN, STALLING, PAIRED], ids=["plain", "stalling", "paired"])
def test_the_anatomy_has_one_true_scale(truth: Truth) -> None:
    """The bars as Vega draws them: as long as their times, the parts of each end to end from 0."""
    a = an_analysis(a_log(truth))
    chart = by_name(charts_of(a, "en"))["anatomy"]
    data = chart.spec["datasets"]["anatomy"]
    drawn = vl_convert.vegalite_to_svg({**chart.spec, "width": 1000})
    bars = [
        tuple(map(float, found))
        for found in re.findall(r'aria-roledescription="bar" d="M([\d.]+),[\d.]+h([\d.]+)', drawn)
    ]
    assert len(bars) == len(data)
    per_second = 1000 / max(piece["to"] for piece in data)
    for (begin, length), piece in zip(bars, data, strict=True):
        assert begin == pytest.approx(piece["from"] * per_second, abs=5)  # half a pixel, and the padding
        assert length == pytest.approx(piece["s"] * per_second, rel=0.02, abs=1)
    (normal,) = [piece for piece in data if piece["k"] == "step"]
    assert normal["s"] == pytest.approx(a.costs.step_s.mid, rel=1e-5)
    for code in {piece["k"] for piece in data}:
        pieces = [piece for piece in data if piece["k"] == code]
        assert [piece["from"] for piece in pieces] == [0.0, *(piece["to"] for piece in pieces[:-1])]


@pytest.mark.parametrize(("language", "width"), [*zip(LANGUAGES, (1200, 320) * 3, strict=True)])
def test_the_anatomy_says_the_time_of_every_part(language: str, width: int) -> None:
    a = an_analysis(a_log(STALLING))
    chart = by_name(charts_of(a, language))["anatomy"]
    drawn = html.unescape(vl_convert.vegalite_to_svg({**chart.spec, "width": width}))
    for piece in chart.spec["datasets"]["anatomy"]:
        assert i18n.duration(piece["s"], language) in drawn


def test_the_anatomy_shows_the_wait_for_data_where_a_recorder_timed_it() -> None:
    slow = a_record(steps=200, step_s=lambda number: 1.0 if number == 150 else 0.2, data_s=0.05, noise=0.0)
    a = analyse(read(from_text(slow.text, "run.jsonl"))[0])
    drawn = by_name(charts_of(a, "en"))["anatomy"].spec["datasets"]["anatomy"]
    normal = {piece["part"]: piece["s"] for piece in drawn if piece["k"] == "step"}
    assert normal["data"] == pytest.approx(0.05, rel=0.01)
    assert sum(normal.values()) == pytest.approx(a.costs.step_s.mid, rel=1e-5)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_chart_has_words_and_a_table(language: str) -> None:
    a = an_analysis(a_log(replace(STALLING, kept=0.6)))
    for chart in (*charts_of(a, language), *plan_charts_of(a_plan(), language)):
        assert chart.title
        assert chart.description
        assert 1 <= len(chart.rows) <= 12, chart.name
        assert all(len(row) == len(chart.head) for row in chart.rows)
        assert chart.spec["description"] == joined((chart.title + TABLE[language].colon, chart.description))


def test_the_plan_bars_are_the_plans() -> None:
    found = a_plan()
    parts, memory = plan_charts_of(found, "en")
    drawn = {row["k"]: row for row in parts.spec["datasets"]["parts"]}
    assert drawn["step"]["mid"] == pytest.approx(found.step_part_s.mid, rel=1e-5)
    need = memory.spec["datasets"]["memory"][0]
    assert (need["low"], need["high"]) == (
        pytest.approx(found.estimate.vram_bytes.low, rel=1e-5),
        pytest.approx(found.estimate.vram_bytes.high, rel=1e-5),
    )


# --- how it is said ---------------------------------------------------------------------------------------------

DURATIONS = [0.00123, 0.0168, 0.0987, 0.09999, 0.1685, 0.98, 0.9996, 1.0, 5.31, 9.996, 12.62, 59.4, 61, 195,
             3540, 3600, 3725, 22_260, 86_400, 90_000, 1_000_000, 9_000_000, 123_456_789]  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_tooltip_says_durations_and_numbers_as_everywhere(language: str) -> None:
    """The expressions are run by Vega itself: as the text of marks."""
    rows = [{"n": place, "s": value} for place, value in enumerate(DURATIONS)]
    said = f"{vega.duration('datum.s', language)} + '|' + {vega.integer('round(datum.s)', language)}"
    spec = vega.spec_of(
        language, {"rows": rows}, mark="text",
        encoding={"x": {"field": "n", "type": "quantitative", "axis": None}, "text": {"value": {"expr": said}}},
    )  # fmt: skip
    drawn = re.findall(r">([^<]+\|[^<]+)<", vl_convert.vegalite_to_svg({**spec, "width": 600}))
    assert drawn == [f"{i18n.duration(value, language)}|{i18n.decimal(value, language)}" for value in DURATIONS]


def ticks_of(drawn: str, axis: int) -> list[str]:
    """The labels of an axis that are seen, the axes counted as Vega draws them."""
    axes = drawn.split('role-axis-label"')[1:]
    labels = re.findall(r"<text [^>]*?(opacity=\"0\")?[^>]*>([^<]*)</text>", axes[axis].split("</g>")[0])
    return [html.unescape(text) for hidden, text in labels if not hidden and text]


def time_ticks(low: float, high: float, language: str, *, log: bool) -> list[str]:
    signals, axis = vega.time_axis("y", language, log=log)
    scale = {"type": "log" if log else "linear", "domain": [low, high], "nice": False}
    y = {"field": "t", "type": "quantitative", "scale": scale, "axis": axis}
    spec = vega.spec_of(language, {"x": [{"t": high}]}, height=320, params=signals, mark="point", encoding={"y": y})
    return ticks_of(vl_convert.vegalite_to_svg({**spec, "width": 600}), 0)


NARROW = [(0.1684, 0.1687), (0.002, 0.003), (0.9, 1.1), (50, 51), (59, 62), (61.2, 61.5), (3500, 3700), (7200, 7260)]
WIDE = [(0.1, 12.0), (0.15, 25_000), (1e-4, 1e7), (1.01, 10), (0.19, 1.0), (86_000, 1e6)]


def in_turn(values: Iterable[object]) -> list[tuple[object, str]]:
    """Each value in two languages, each language with a third of the values."""
    return [(value, LANGUAGES[(2 * i + j) % len(LANGUAGES)]) for i, value in enumerate(values) for j in (0, 1)]


@pytest.mark.parametrize(("ends", "language"), in_turn([*NARROW, *WIDE]))
def test_a_logarithmic_scale_of_times_has_three_ticks_or_more(ends: tuple[float, float], language: str) -> None:
    ticks = time_ticks(*ends, language, log=True)
    assert 3 <= len(ticks) <= 15
    assert len(set(ticks)) == len(ticks)


def test_any_logarithmic_scale_of_times_has_three_ticks() -> None:
    rng = np.random.default_rng(17)
    for _ in range(30):
        low = 10 ** rng.uniform(-4, 5)
        ticks = time_ticks(low, low * 10 ** rng.uniform(0.002, 3), "en", log=True)
        assert 3 <= len(ticks) <= 15, (low, ticks)
        assert len(set(ticks)) == len(ticks), (low, ticks)


@pytest.mark.parametrize(("high", "language"), in_turn([1e-3, 0.7, 59, 61, 4000, 90_000, 1e7, 1e9, 6e17]))
def test_a_linear_scale_of_times_has_three_ticks_from_nothing(high: float, language: str) -> None:
    ticks = time_ticks(0, high, language, log=False)
    assert 3 <= len(ticks) <= 9
    assert "0" in ticks
    assert len(set(ticks)) == len(ticks)


@pytest.mark.parametrize("language", LANGUAGES)
def test_ticks_are_written_as_the_language_does(language: str) -> None:
    ticks = time_ticks(1.15, 1.45, language, log=True)
    assert i18n.decimal(1.3, language, 1, "s") in ticks
    assert i18n.duration(5400, language) in time_ticks(0, 7200, language, log=False)


@pytest.mark.parametrize("high", [0.7, 1.05, 14, 95_000, 2_700_000])
def test_a_scale_of_counts_has_three_ticks(high: float) -> None:
    y = {
        "field": "n",
        "type": "quantitative",
        "scale": {"domain": [0, high], "nice": False},
        "axis": vega.count_axis(high),
    }
    spec = vega.spec_of("de", {"x": [{"n": high}]}, height=220, mark="point", encoding={"y": y})
    ticks = ticks_of(vl_convert.vegalite_to_svg({**spec, "width": 600}), 0)
    assert len(ticks) >= 3
    assert len(set(ticks)) == len(ticks)


def contrast(colour: str, ground: str) -> float:
    """As WCAG measures it."""

    def luminance(text: str) -> float:
        channels = [int(text[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dim = sorted((luminance(colour), luminance(ground)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_colours_stand_out_in_light_and_dark() -> None:
    words, marks = (vega.INK, vega.MUTED), set(vega.PART_COLOURS.values()) | {vega.PURPLE}
    for colours, least in ((words, 4.5), (marks, 3.0)):
        for colour in colours:
            assert contrast(colour, "#ffffff") >= least, colour
            assert contrast(vega.DARK[colour], "#12161b") >= least, vega.DARK[colour]


# --- pictures ---------------------------------------------------------------------------------------------------


def test_a_picture_is_a_png_of_a_readable_size() -> None:
    chart = charts_of(an_analysis(a_log(PLAIN)), "en")[0]
    picture = png(chart, "A normal iteration takes 100 ms.")
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(picture[16:20]) >= 1200
    assert len(picture) < 400_000


@pytest.mark.parametrize("name", ["times", "anatomy", "throughput", "forecast"])
def test_a_picture_is_titled_by_the_verdict_and_names_the_log(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[Plot, str, str]] = []
    monkeypatch.setattr(pictures, "png", lambda *given: told.append(given) or b"")
    a = an_analysis(a_log(CUT))
    render(Report(runs=(RunReport(analysis=a, advice=None, verdict=judge(a)),)), "png", "en", View(chart=name))
    ((chart, headline, source),) = told
    assert headline == say(judge(a).text, "en")
    assert source == "train.log"
    drawn = vl_convert.vegalite_to_svg(titled(chart, headline, source))
    words = html.unescape(" ".join(re.findall(r">([^<>]+)<", drawn)))
    assert headline in words
    assert f"{chart.title} · train.log" in words


def test_a_picture_without_vl_convert_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(UsageError) as told:
        png(charts_of(an_analysis(a_log(PLAIN)), "en")[0], "A normal iteration takes 100 ms.")
    assert told.value.remedy is not None
    assert say(told.value.remedy, "en") == 'pip install "stepwatch[pictures]"'
