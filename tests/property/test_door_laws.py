"""Laws of everything that the door lets through: analysis, advice, verdict, comparison, estimate and presenters."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.property.columns import all_inside, inside, one_inside, one_whole, seeds, times_of, whole
from tests.recorded import several_ranks
from tests.unit.analysis.test_machine import START_S, a_log
from tools.fuzz.roads import check, check_json

from stepwatch import bounds
from stepwatch.advice import AdviceList, advice_on_log
from stepwatch.advice.engine import advise, case_of_log
from stepwatch.advice.log_rules import fill_card
from stepwatch.analysis import Analysis, analyse
from stepwatch.analysis.bill import Tariff, find_bill
from stepwatch.analysis.comparison import compare
from stepwatch.analysis.findings import held_up_by
from stepwatch.answers.from_logs import UserContext
from stepwatch.answers.from_plans import EstimateRequest, estimate
from stepwatch.errors import StepwatchError, UsageError
from stepwatch.gpus import gpus
from stepwatch.i18n import LANGUAGES
from stepwatch.presenters import document_of, page_body, page_fragment, render
from stepwatch.presenters.bar_charts import compared_parts, compared_steps
from stepwatch.presenters.look_answer import event_line, live_lines, monitor, progress_line
from stepwatch.presenters.pictures import has_no_font, png, svg, titled
from stepwatch.presenters.run_charts import plot
from stepwatch.presenters.screen import plain
from stepwatch.readers import read
from stepwatch.readers.assemble import assemble
from stepwatch.readers.formats import all_readers, reader_of
from stepwatch.readers.records import Records
from stepwatch.report import Report, RunReport
from stepwatch.run import Checkpoint, Evaluation, Fact, Run
from stepwatch.samples import CARD, MACHINE
from stepwatch.samples.columns import Card, Samples
from stepwatch.sources import from_text
from stepwatch.units import Interval
from stepwatch.verdict import judge
from stepwatch.watch import Live

SPOKEN = st.sampled_from(LANGUAGES)
FORMS = st.sampled_from(("terminal", "overview", "md", "page"))
FORMATS = tuple(name for name, reader in all_readers().items() if reader.complete is None)


def a_run(seed: int) -> Run:
    """Of any format: rows and events from all that may be."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 31))
    times = times_of(rng, one_inside(rng, bounds.STEP_S), rng.choice((0.0, 0.1, 0.3, 1.0)), count)
    first, gap = one_whole(rng, bounds.ITERATION), int(rng.choice((1, 10, 1000)))
    numbers = np.minimum(first // 2 + gap * np.arange(count), int(bounds.ITERATION.high))
    if rng.random() < 0.5:
        numbers = all_inside(rng, bounds.ITERATION, count).astype(np.int64)
    stamps = np.sort(all_inside(rng, bounds.CLOCK_S, count)) if rng.random() < 0.5 else np.full(count, np.nan)
    mfu = np.where(rng.random(count) < 0.5, all_inside(rng, bounds.MFU, count), rng.choice((-1.0, np.nan), count))
    loss = rng.choice((2.5, math.inf, math.nan, -3e38, 3e38), count)
    rate = one_inside(rng, bounds.TOKENS_PER_S) if rng.random() < 0.5 else np.nan
    records = Records()
    records.add_rows(
        number=numbers, time_s=times, stamp_s=stamps, reported_mfu=mfu, loss=loss, line=np.arange(count) * 2,
        reported_tokens_per_s=np.full(count, rate),
    )  # fmt: skip
    for line in rng.integers(0, count + 1, rng.integers(0, 5)).tolist():
        kind = Evaluation if rng.random() < 0.5 else Checkpoint
        at = int(rng.choice(numbers) if rng.random() < 0.5 else one_whole(rng, bounds.ITERATION))
        took_s = one_inside(rng, bounds.EVENT_S) if rng.random() < 0.5 else None
        records.events.append(kind(line=2 * line + 1, at=at, took_s=took_s))
    for name in rng.choice(sorted(bounds.SETTINGS), rng.integers(0, 6), replace=False).tolist():
        records.events.append(Fact(0, name, one_whole(rng, bounds.SETTINGS[name])))
    return assemble(records, reader_of(rng.choice(FORMATS)), "a.log")[-1]


runs = seeds.map(a_run)
CARDS = st.none() | st.sampled_from(gpus())


def explained(analysis: Analysis, language: str, form: str) -> AdviceList | None:
    """And the advice in it."""
    advice = advice_on_log(analysis)
    report = Report(runs=(RunReport(analysis=analysis, advice=advice, verdict=judge(analysis, advice)),))
    check(report)
    check_json(json.loads(render(report, "json", language)))
    if form == "page":
        page_body(report, language)
    else:
        render(replace(report, directory=form == "overview"), "md" if form == "md" else "terminal", language)
    return advice


@given(runs, CARDS, SPOKEN, FORMS)
@example(a_run(2189), next(gpu for gpu in gpus() if gpu.name == "GeForce GTX 1080"), "en", "terminal")
def test_a_run_is_explained_within_its_laws(run: Run, card: object, language: str, form: str) -> None:
    analysis = analyse(run, card)  # type: ignore[arg-type]
    advice = explained(analysis, language, form)
    assert advise(analysis) == (advice.advice if advice is not None else ())
    case = case_of_log(analysis)
    for proposal in fill_card(case) if case is not None else ():
        assert proposal.effect is not None
        assert 0 <= proposal.effect.step.low <= proposal.effect.step.high <= 1


@given(runs, seeds, st.sampled_from((0.0, 0.5, 1.0)))
def test_rows_are_held_up_only_by_what_was_timed(run: Run, seed: int, share: float) -> None:
    analysis, rng, count = analyse(run), np.random.default_rng(seed), len(run.iterations)
    rows = np.flatnonzero(analysis.phases.excess_s(run, np.arange(count)) > 0)
    timed = np.where(rng.random(count) < share, all_inside(rng, bounds.EVENT_S, count), np.nan)
    held = held_up_by(analysis, rows, timed)
    assert held.shape == rows.shape
    assert not held[np.isnan(timed[rows])].any()


@given(runs, CARDS, SPOKEN, st.integers(0, 19))
@example(a_run(5), None, "en", 7)
@example(a_run(6), None, "ja", 7)
def test_any_run_becomes_a_page(run: Run, card: object, language: str, which: int) -> None:
    analysis = analyse(run, card)  # type: ignore[arg-type]
    report = Report(runs=(RunReport(analysis=analysis, advice=None, verdict=judge(analysis)),))
    assert str(render(report, "html", language)).startswith("<!DOCTYPE html>")
    if which in (7, 13):  # with all pictures drawn: an eighth of a second; the ends come far more often
        assert "<article" in page_fragment(report, language)


@given(runs, CARDS, SPOKEN, st.integers(0, 9), st.booleans())
def test_any_chart_becomes_a_picture(run: Run, card: object, language: str, which: int, as_png: bool) -> None:
    analysis = analyse(run, card)  # type: ignore[arg-type]
    report = Report(runs=(RunReport(analysis=analysis, advice=None, verdict=judge(analysis)),))
    drawn = (plot(chart, language) for chart in document_of(report).charts().values())
    pictures = [picture for picture in drawn if picture is not None]
    if not pictures:
        return
    picture = pictures[which % len(pictures)]
    if not as_png:
        assert "NaN" not in str(svg(picture))
    elif has_no_font(picture.title[0]):
        with pytest.raises(UsageError, match="no font"):
            png(picture, "what is said of it")
    else:
        assert png(picture, "what is said of it").startswith(b"\x89PNG")


@given(runs, runs, SPOKEN)
def test_two_runs_are_compared_within_their_laws(one: Run, other: Run, language: str) -> None:
    with suppress(StepwatchError):
        found = compare(analyse(one), analyse(other), names=("a", "b"), limit=None, notes=())
        check(found)
        check_json(json.loads(render(found, "json", language)))
        render(found, "terminal", language)
        for chart in (compared_steps(found, language), compared_parts(found, language)):
            json.dumps(titled(chart, "what is said of it", "a.log"), allow_nan=False)
            assert all(len(row) == len(chart.head) for row in chart.rows)
        assert all(name == chart.name for name, chart in document_of(found).charts().items())


@given(st.data(), st.sampled_from(gpus()), SPOKEN)
def test_a_plan_is_estimated_within_its_laws(data: st.DataObject, card: object, language: str) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(bounds.SETTINGS)), max_size=6, unique=True))
    given_ = tuple(f"{name}={data.draw(whole(bounds.SETTINGS[name]))}" for name in names)
    with suppress(StepwatchError):
        found = estimate(EstimateRequest(settings=given_, gpu=card.name))  # type: ignore[attr-defined]
        check(found)
        check_json(json.loads(render(found, "json", language)))
        render(found, "terminal", language)


# --- more than rows: ranks, what was timed inside, the machine, prices, a run that goes on ----------------------


@given(
    st.lists(inside(bounds.Range(1e-6, 60.0, "")), min_size=1, max_size=4), st.integers(3, 60), st.floats(0.0, 0.5),
    st.booleans(), SPOKEN, FORMS,
)  # fmt: skip
def test_records_of_several_ranks_are_explained_within_their_laws(
    own_s: list[float], steps: int, noise: float, closed: bool, language: str, form: str
) -> None:
    records = several_ranks(own_s, steps=steps, noise=noise, closed=closed)
    (run,) = read(from_text("".join(record.text for record in records)))
    explained(analyse(run), language, form)


def columns(draw: st.DrawFn, names: Collection[str], count: int) -> dict[str, np.ndarray]:
    """Each may be missing, unknown at times, or anything that a machine can have."""
    chosen = draw(st.lists(st.sampled_from(sorted(names)), max_size=8, unique=True))
    rng = np.random.default_rng(draw(seeds))
    rows = {name: all_inside(rng, bounds.of_sample(name), count) for name in chosen}
    return {name: np.where(rng.random(count) < 0.2, np.nan, row) for name, row in rows.items()}


@st.composite
def sampled(draw: st.DrawFn) -> Samples:
    count = draw(st.integers(1, 20))
    apart = np.random.default_rng(draw(seeds)).uniform(0.1, 100.0, count)
    start_s = draw(st.sampled_from((0.0, START_S, START_S - 1e6)))
    cards = [Card(number, "Card A", columns(draw, CARD, count)) for number in range(draw(st.integers(0, 2)))]
    return Samples(
        at_s=start_s + np.cumsum(apart), machine=columns(draw, MACHINE, count), cards=tuple(cards),
        has_clock=draw(st.booleans()),
    )  # fmt: skip


@given(sampled(), st.integers(3, 60), st.booleans(), st.floats(0.0, 1e6), st.floats(0.0, 1e6), SPOKEN, FORMS)
def test_any_machine_beside_a_run_is_explained_within_its_laws(
    samples: Samples, count: int, stamped: bool, per_hour: float, per_kwh: float, language: str, form: str
) -> None:
    (run,) = read(from_text(a_log(count, stamped=stamped)))
    analysis = analyse(run, samples=samples)
    check(find_bill(analysis, Tariff(per_hour=per_hour, per_kwh=per_kwh)))
    explained(analysis, language, form)


@given(st.data(), st.sampled_from(gpus()), SPOKEN, FORMS)
def test_a_run_that_has_only_begun_is_explained_or_refused(
    data: st.DataObject, card: object, language: str, form: str
) -> None:
    records = Records()
    names = ("n_layer", "n_head", "n_embd", "block_size", "batch_size", "gradient_accumulation_steps", "max_iters")
    for name in data.draw(st.lists(st.sampled_from(names), unique=True)):
        records.events.append(Fact(0, name, data.draw(whole(bounds.SETTINGS[name])), header=True))
    for run in assemble(records, reader_of("nanogpt"), "a.log"):
        with suppress(StepwatchError):
            explained(analyse(run, card), language, form)  # type: ignore[arg-type]


@given(runs, SPOKEN, st.integers(40, 120), st.integers(4, 50), st.floats(0.0, 1e6))
def test_a_look_at_any_run_is_shown_on_any_screen(
    run: Run, language: str, width: int, height: int, late_s: float
) -> None:
    lines = "".join(
        f"iter {number}: loss 2.0, time {1e3 * time_s:.6f}ms, mfu 9.00%\n"
        for number, time_s in zip(run.iterations.number.tolist(), run.iterations.time_s.tolist(), strict=True)
    )
    live = Live("a.log", UserContext().analyse, stopwatch=lambda: 0.0)
    live.feed(lines.encode(), START_S)
    look = live.look(START_S + late_s, thoroughly=True)
    check(look)
    shown = live_lines(look, language, width=width, height=height, card=None)
    assert max((len(plain(line)) for line in shown), default=0) <= width
    json.dumps(monitor(look, language), allow_nan=False)
    if look.last_iteration is not None:
        assert progress_line(look, language)
    for event in live.news():
        assert event_line(event, language)


POSITIVE = st.floats(0.0, 1e30)


@given(*(st.lists(POSITIVE, min_size=3, max_size=3).map(sorted),) * 2, st.floats(0.0, 1e6))
def test_sums_and_wider_intervals_of_times_are_times(one: list[float], other: list[float], slack: float) -> None:
    first, second = Interval(*one), Interval(*other)
    for found in (first + second, first.widened(down=slack, up=slack), first.scaled(slack)):
        assert 0 <= found.low <= found.mid <= found.high
