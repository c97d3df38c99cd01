"""What is said first: planted logs of every status, from many trainers, whole and cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.builders import Saves, Truth, a_log
from tests.planted import CRASHES, HARMLESS, INTERRUPTIONS, OOM_2, TRAINERS, on_an_h100, traceback
from tests.recorded import Planted, Record

from stepwatch import verdict as module
from stepwatch.advice import advice_on_log
from stepwatch.analysis import analyse
from stepwatch.answers.from_logs import UserContext
from stepwatch.errors import NoIterations
from stepwatch.i18n import say
from stepwatch.readers import read
from stepwatch.settings import Origin, Settings
from stepwatch.sources import from_text
from stepwatch.units import DAY_S, HOUR_S
from stepwatch.verdict import Status, Verdict, judge

ROWS = 400
LATER = 2e9  # 2033


def verdicts(
    text: str, gpu: str | None = None, *, now_s: float | None = None, written_s: float | None = None
) -> list[Verdict]:
    """Of each run in a log."""
    runs = [replace(run, written_s=written_s) for run in read(from_text(text))]
    found = []
    for place, run in enumerate(runs, start=1):
        analysis = UserContext(gpu=gpu).analyse(run)
        found.append(judge(analysis, advice_on_log(analysis), now_s=now_s, followed=place < len(runs)))
    return found


def text_of(lines: list[str]) -> str:
    return "".join(line + "\n" for line in lines)


# --- planted logs -----------------------------------------------------------------------------------------------


def steady(rows: int = ROWS, step_s: float = 2.0) -> np.ndarray:
    return np.random.default_rng(0).normal(step_s, 0.005 * step_s, rows)


def asleep() -> np.ndarray:
    times = steady()
    times[[120, 320]] = 8 * HOUR_S
    return times


def stalling() -> np.ndarray:
    times = steady()
    times[np.random.default_rng(5).choice(np.arange(10, ROWS), 32, replace=False)] *= 15
    return times


def slowing() -> np.ndarray:
    times = steady()
    times[120:] *= 1.5
    times[320:] *= 1.5
    return times


def drifting() -> np.ndarray:
    return steady() * (1 + 0.3 * np.arange(ROWS) / ROWS)


def uneven() -> np.ndarray:
    return 2 * np.exp(0.3 * np.random.default_rng(1).standard_normal(ROWS))


CUTS: dict[str, Callable[[list[str], list[str]], list[str]]] = {
    "whole": lambda header, rows: header + rows,
    "without its header": lambda _, rows: rows,
    "first 60 %": lambda header, rows: header + rows[: 6 * len(rows) // 10],
    "last 40 %": lambda _, rows: rows[6 * len(rows) // 10 :],
}


class Log(NamedTuple):
    name: str
    text: str
    status: Status
    gpu: str | None = None


def cut_logs() -> Iterator[Log]:
    """Every shape of every trainer, each in two of the cuts; the bars of Lightning even out what is told of a step."""
    shapes = {
        Status.HEALTHY: steady, Status.ASLEEP: asleep, Status.STALLING: stalling, Status.SLOWING: slowing,
        Status.UNSTEADY: uneven, Status.DIVERGED: steady,
    }  # fmt: skip
    for row, (status, times) in enumerate(shapes.items()):
        for column, (name, trainer) in enumerate(TRAINERS.items()):
            if name == "lightning" and status in (Status.UNSTEADY, Status.STALLING):
                continue
            lost_from = 220 if status is Status.DIVERGED else None
            rows = trainer.lines(times(), lost_from=lost_from, header=False)
            header = trainer.header.replace("{end}", str(trainer.every * ROWS)).splitlines()
            for cut, kept in [*CUTS.items()][(row + column) % 2 :: 2]:
                yield Log(f"{status}: {name}, {cut}", text_of(kept(header, rows)), status)
    for name in ("nanogpt", "nanochat", "torchtitan", "megatron", "litgpt"):
        yield Log(f"slowing little by little: {name}", text_of(TRAINERS[name].lines(drifting())), Status.SLOWING)


def evaluating() -> str:
    """build-nanogpt, whose times include the evaluations."""
    times = np.where(np.arange(1, ROWS + 1) % 50 == 0, 40.0, steady())
    lines = TRAINERS["build-nanogpt"].lines(times)
    return text_of([("validation loss: 3.4012\n" if " dt: 40000" in line else "") + line for line in lines])


def other_logs() -> Iterator[Log]:
    for name in ("torchtitan", "nanochat", "llm.c"):
        lines = on_an_h100(name, steady(step_s=2.0))
        yield Log(f"slow: {name}", text_of(lines), Status.SLOW)
        yield Log(f"slow: {name}, first 60 %", text_of(lines[: 6 * len(lines) // 10]), Status.SLOW)
        yield Log(f"not slow: {name}", text_of(on_an_h100(name, steady(step_s=0.35))), Status.HEALTHY)
    yield Log("slow: nanogpt", a_log(Truth(step_s=0.2)), Status.SLOW, "4070")
    yield Log("slow: nanogpt, first 60 %", a_log(Truth(step_s=0.2, kept=0.6)), Status.SLOW, "4070")
    long = {"eval_interval": 1000, "eval_s": 2.0, "compile_s": 5.0}
    overheads = {
        "evaluations": a_log(Truth()),
        "evaluations, first 60 %": a_log(Truth(kept=0.6)),
        "evaluations, without its header": a_log(Truth(header=False)),
        "evaluations, build-nanogpt": evaluating(),
        "checkpoints": a_log(Truth(eval_s=0.5, eval_iters=10, checkpoint_s=10, saves=Saves.ALWAYS)),
        "compilation": a_log(Truth(**{**long, "compile_s": 100.0})),  # type: ignore[arg-type]
        "data": Record(Planted(data_s=0.08)).text,
    }
    for name, text in overheads.items():
        yield Log(f"overhead: {name}", text, Status.OVERHEAD)
    yield Log("healthy: nanogpt with evaluations", a_log(Truth(**long)), Status.HEALTHY)  # type: ignore[arg-type]
    yield Log("healthy: nanogpt on its card", a_log(Truth(**long, step_s=0.05)), Status.HEALTHY, "4070")  # type: ignore[arg-type]
    begun = a_log(Truth())
    yield Log("begun: a header", begun.partition("step 0")[0], Status.BEGUN, "4070")
    yield Log("begun: iteration 0", begun.partition("iter 10:")[0], Status.BEGUN, "4070")
    yield Log("begun: iteration 0, no card", begun.partition("iter 10:")[0], Status.BEGUN)
    for name in ("nanochat", "llm.c", "litgpt", "hf-trainer"):
        yield Log(f"begun: {name}", text_of(TRAINERS[name].lines(steady(1), end=900)), Status.BEGUN)
    yield Log("unknown: one line", "iter 510: loss 3.1, time 168.91ms, mfu 10.79%\n", Status.UNKNOWN)
    far = "iter 0: time 12543ms\niter 500: time 5985ms\niter 1000: time 5726ms\n"
    yield Log("unknown: lines far apart", far, Status.UNKNOWN)
    only = "".join(f"step {n}: train loss 3, val loss 3\niter {n}: loss 3, time 5985.00ms\n" for n in (500, 1000, 1500))
    yield Log("unknown: evaluations alone", only, Status.UNKNOWN)
    fast = on_an_h100("llm.c", steady(step_s=0.05))
    yield Log("unknown: another card", text_of(fast), Status.UNKNOWN)
    yield Log(
        "unknown: another card, by name",
        a_log(Truth(**{**long, "eval_s": 0.02, "compile_s": 0.5}, step_s=0.002, checkpoint_s=0.01, max_iters=20000)),
        Status.UNKNOWN,
        "3060",
    )  # type: ignore[arg-type]


LOGS = (*cut_logs(), *other_logs())


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_a_planted_log_gets_its_status(log: Log) -> None:
    (found,) = verdicts(log.text, log.gpu)
    assert found.status is log.status, say(found.text, "en")


def test_five_logs_and_more_are_planted_of_each_status() -> None:
    counts = {status: sum(log.status is status for log in LOGS) for status in Status}
    assert {status for status in Status if counts[status] < 5} == {Status.CRASHED, Status.STOPPED}  # below


# --- it crashed -------------------------------------------------------------------------------------------------


# Each crash behind a third of the trainers' logs, each trainer with a third of the crashes.
@pytest.mark.parametrize(
    ("crash", "trainer"),
    [
        (crash, trainer)
        for i, crash in enumerate(CRASHES)
        for j, trainer in enumerate(TRAINERS)
        if (i // 3 + j) % 3 == 0
    ],
)
def test_a_crash_is_never_anything_else_and_its_line_is_quoted(crash: str, trainer: str) -> None:
    ending, writer = CRASHES[crash], TRAINERS[trainer]
    lines = writer.lines(steady(60), end=5000)
    cut = (lines, writer.lines(steady(60), end=5000, header=False), lines[-24:])
    text = text_of(cut[list(CRASHES).index(crash) % 3]) + ending.text
    (found,) = verdicts(text, now_s=LATER)
    assert found.status is Status.CRASHED, say(found.text, "en")
    assert ending.quoted[:80] in say(found.text, "en")
    assert found.line is not None
    assert ending.quoted in text.splitlines()[found.line - 1]
    assert found.remedy is not None


@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_before_the_first_iteration_is_one_too(crash: str) -> None:
    begun = ("nanogpt", "nanochat", "llm.c", "torchtitan", "megatron", "build-nanogpt", "hf-trainer")
    trainer = begun[list(CRASHES).index(crash) % len(begun)]
    header = TRAINERS[trainer].lines((), end=5000)
    (found,) = verdicts(text_of(header) + CRASHES[crash].text, "4070")
    assert found.status is Status.CRASHED
    assert CRASHES[crash].quoted[:80] in say(found.text, "en")
    assert "before" in say(found.text, "en")


@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_of_a_trainer_that_printed_nothing_of_its_own_is_quoted_in_the_refusal(crash: str) -> None:
    head = "trainable params: 4,194,304 || all params: 6,742,609,920\n  0%|          | 0/500 [00:00<?, ?it/s]\n"
    with pytest.raises(NoIterations) as refused:
        read(from_text(head + CRASHES[crash].text))
    assert CRASHES[crash].quoted[:80] in say(refused.value.what, "en")


def test_a_bar_that_moved_is_the_nearest_line_whatever_came_after() -> None:
    with pytest.raises(NoIterations) as refused:
        read(from_text("apples eaten, 12/500 [slowly]\n" + CRASHES["killed"].text))
    assert "says why" not in say(refused.value.what, "en")


@pytest.mark.parametrize(
    ("harmless", "trainer"),
    [(line, name) for i, line in enumerate(HARMLESS) for j, name in enumerate(TRAINERS) if (i + j) % 3 == 0],
)
def test_warnings_and_code_are_no_crash(harmless: str, trainer: str) -> None:
    lines = TRAINERS[trainer].lines(steady(60), end=5000)
    (found,) = verdicts(text_of(lines) + HARMLESS[harmless])
    assert found.status is Status.HEALTHY, say(found.text, "en")


def test_code_in_the_header_is_no_crash() -> None:
    header = a_log(Truth()).partition("tokens per iteration")
    text = header[0] + HARMLESS["a comment of a config"] + "".join(header[1:]).partition("step 0")[0]
    assert [found.status for found in verdicts(text, "4070")] == [Status.BEGUN]


@pytest.mark.parametrize("trainer", TRAINERS)
def test_an_error_that_the_run_survived_is_no_crash(trainer: str) -> None:
    lines = TRAINERS[trainer].lines(steady(60), end=5000)
    (found,) = verdicts(text_of(lines[:30]) + traceback(OOM_2) + text_of(lines[30:]))
    assert found.status is Status.HEALTHY


@pytest.mark.parametrize("crash", ["killed", "NCCL error", "time limit"])
def test_ranks_that_are_lost_when_all_is_done_are_no_crash(crash: str) -> None:
    lines = TRAINERS["llm.c"].lines(steady(60))
    assert verdicts(text_of(lines) + CRASHES[crash].text)[0].status is Status.HEALTHY
    assert verdicts(text_of(lines[:-1]) + CRASHES[crash].text)[0].status is Status.CRASHED


def test_a_crash_and_the_restart_after_it_are_judged_by_themselves() -> None:
    first = a_log(Truth(max_iters=2000, kept=0.5))
    again = a_log(Truth(first_iter=1000, max_iters=2000, eval_interval=1000, eval_s=2.0, compile_s=5.0))
    crashed, resumed = verdicts(first + traceback(OOM_2) + again)
    assert (crashed.status, resumed.status) == (Status.CRASHED, Status.HEALTHY)


def test_a_crash_counts_before_a_lost_loss() -> None:
    lines = TRAINERS["nanogpt"].lines(steady(60), end=5000, lost_from=30)
    (found,) = verdicts(text_of(lines) + CRASHES["an error"].text)
    assert found.status is Status.CRASHED
    assert found.because == ("loss_nan", "ended_early")


# --- it stopped -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "trainer"),
    [(how, name) for i, how in enumerate(INTERRUPTIONS) for j, name in enumerate(TRAINERS) if (i + j) % 2 == 0],
)
def test_a_run_that_somebody_ended_is_stopped(how: str, trainer: str) -> None:
    lines = TRAINERS[trainer].lines(steady(60), end=5000)
    (found,) = verdicts(text_of(lines) + INTERRUPTIONS[how])
    assert found.status is Status.STOPPED
    assert "by hand" in say(found.text, "en")
    assert found.line is not None
    assert found.line > len(lines)


def test_an_interruption_before_the_first_iteration_is_said_so() -> None:
    (found,) = verdicts(text_of(TRAINERS["nanogpt"].lines((), end=5000)) + INTERRUPTIONS["by hand"])
    assert say(found.text, "en") == "The run was interrupted by hand before its first iteration."


@pytest.mark.parametrize("trainer", [name for name, writer in TRAINERS.items() if writer.tells_end])
def test_a_file_that_ends_in_mid_run_and_does_not_grow_is_stopped(trainer: str) -> None:
    writer = TRAINERS[trainer]
    text = text_of(writer.lines(steady(60), end=5000))
    line_s = 2.0 * writer.every
    limit_s = max(20 * line_s, HOUR_S)
    for silent_s, status in ((0.9 * limit_s, Status.HEALTHY), (1.1 * limit_s, Status.STOPPED)):
        (found,) = verdicts(text, now_s=1.5e9 + silent_s, written_s=1.5e9)
        assert found.status is status
    whole = text_of(writer.lines(steady(60)))
    assert verdicts(whole, now_s=LATER, written_s=1.5e9)[0].status is Status.HEALTHY


def test_a_run_with_slow_lines_is_given_more_time() -> None:
    text = text_of(TRAINERS["llm.c"].lines(steady(60, step_s=600.0), end=5000))
    assert verdicts(text, now_s=1.5e9 + 19 * 600, written_s=1.5e9)[0].status is Status.HEALTHY
    assert verdicts(text, now_s=1.5e9 + 21 * 600, written_s=1.5e9)[0].status is Status.STOPPED


@pytest.mark.parametrize("trainer", ["torchtitan", "megatron"])
def test_the_clock_of_the_lines_shows_it_where_there_is_no_file(trainer: str) -> None:
    lines = TRAINERS[trainer].lines(steady(60), end=5000)
    last_s = 1748779200.0 + 10 + float(steady(60).sum()) * 10
    assert verdicts(text_of(lines), now_s=last_s + 0.9 * DAY_S)[0].status is Status.HEALTHY  # of another time zone
    assert verdicts(text_of(lines), now_s=last_s + 1.1 * DAY_S)[0].status is Status.STOPPED


@pytest.mark.parametrize("year", [2025, 2027, 2028])
def test_a_clock_without_a_year_shows_another_day_but_not_how_long_ago(year: int) -> None:
    text = a_log(Truth(eval_interval=1000, eval_s=2.0, compile_s=5.0, kept=0.5))
    stamped = "".join(f"05/04 09:{n // 60 % 60:02d}:{n % 60:02d} {line}\n" for n, line in enumerate(text.splitlines()))
    that_day_s = datetime(year, 5, 4, 10, tzinfo=UTC).timestamp()
    assert verdicts(stamped, now_s=that_day_s)[0].status is not Status.STOPPED
    assert verdicts(stamped, now_s=that_day_s - DAY_S)[0].status is not Status.STOPPED  # of another time zone
    for copied in (None, that_day_s + 30 * DAY_S - 2 * HOUR_S):
        (found,) = verdicts(stamped, now_s=that_day_s + 30 * DAY_S, written_s=copied)
        assert found.status is Status.STOPPED
        assert "silent" not in found.text.params
    bare = "".join(f"09:{n // 60 % 60:02d}:{n % 60:02d} {line}\n" for n, line in enumerate(text.splitlines()))
    assert verdicts(bare, now_s=that_day_s)[0].status is not Status.STOPPED


@pytest.mark.parametrize("trainer", ["nanogpt", "nanochat", "llm.c", "megatron", "torchtitan"])
def test_a_run_before_another_one_is_stopped_unless_it_was_at_its_end(trainer: str) -> None:
    writer = TRAINERS[trainer]
    end = 60 * writer.every
    other = text_of(writer.lines(steady(80, step_s=1.0), end=80 * writer.every))
    for rows, expected in ((40, Status.STOPPED), (60, Status.HEALTHY)):
        first, last = verdicts(text_of(writer.lines(steady(rows), end=end)) + other)
        assert (first.status, last.status) == (expected, Status.HEALTHY)


@pytest.mark.parametrize(("end", "status"), [(609, Status.HEALTHY), (610, Status.STOPPED)])
def test_the_last_line_may_stand_less_than_an_interval_before_the_end(end: int, status: Status) -> None:
    text = text_of(TRAINERS["nanogpt"].lines(steady(60), end=end))
    assert verdicts(text, now_s=LATER, written_s=1.5e9)[0].status is status


@pytest.mark.parametrize(("end", "status"), [(61, Status.HEALTHY), (62, Status.STOPPED)])
def test_the_last_number_may_be_one_less_than_the_count(end: int, status: Status) -> None:
    text = text_of(TRAINERS["llm.c"].lines(steady(60), end=end))
    assert verdicts(text, now_s=LATER, written_s=1.5e9)[0].status is status


@pytest.mark.parametrize(
    ("said", "status"), [("", Status.STOPPED), ("stopping_early: wallclock_cap step:60/500\n", Status.HEALTHY)]
)
def test_a_trainer_that_stops_at_a_limit_of_time_is_not_stopped(said: str, status: Status) -> None:
    rows = "".join(f"step:{n}/500 train_time:{50 * n}ms step_avg:50.00ms\n" for n in range(1, 61))
    assert verdicts(rows + said, now_s=LATER, written_s=1.5e9)[0].status is status


def test_an_end_that_the_reader_gives_is_no_plan() -> None:
    (run,) = read(from_text(text_of(TRAINERS["nanogpt"].lines(steady(60), header=False))))
    settings = run.settings.overridden_by(Settings.of(Origin.USER, {"max_iters": 9000}))
    found = judge(analyse(replace(run, settings=settings, written_s=1.5e9)), now_s=LATER)
    assert found.status is Status.HEALTHY


def test_an_end_that_is_only_a_default_is_no_plan() -> None:
    text = text_of(TRAINERS["nanogpt"].lines(steady(60), header=False))
    assert verdicts(text, now_s=LATER, written_s=1.5e9)[0].status is Status.HEALTHY


# --- what to do -------------------------------------------------------------------------------------------------


def test_a_run_that_saved_is_resumed_from_its_last_checkpoint() -> None:
    lines = TRAINERS["llm.c"].lines(steady(60), end=5000, saves=(20, 40), lost_from=45)
    (lost,) = verdicts(text_of(lines))
    assert lost.status is Status.DIVERGED
    assert lost.remedy is not None
    assert "of iteration 41" in say(lost.remedy, "en")
    stopped = verdicts(text_of(lines).replace("nan", "3.1") + INTERRUPTIONS["by hand"])[0].remedy
    assert stopped is not None
    assert "of iteration 41" in say(stopped, "en")
    early = verdicts(text_of(TRAINERS["llm.c"].lines(steady(60), end=5000, saves=(40,), lost_from=5)))[0].remedy
    assert early is not None
    assert "Start again" in say(early, "en")  # what was saved is lost too


def test_a_diverged_run_names_the_line_of_its_first_lost_loss() -> None:
    lines = TRAINERS["nanogpt"].lines(steady(60), end=5000, lost_from=30)
    (found,) = verdicts(text_of(lines))
    assert found.line is not None
    assert "loss nan" in lines[found.line - 1]
    assert "loss nan" not in lines[found.line - 2]


def test_checkpoints_that_nothing_separates_from_evaluations_are_named_with_them() -> None:
    (found,) = verdicts(a_log(Truth(eval_s=0.1, checkpoint_s=30, saves=Saves.ALWAYS)))
    assert "evaluations and checkpoints take" in say(found.text, "en")


def test_a_line_alone_behind_the_first_is_not_called_several() -> None:
    (said,) = verdicts("iter 0: loss 10.9, time 12543.00ms, mfu -100.00%\niter 100: loss 9.1, time 168.00ms, mfu 9%\n")
    assert said.status is Status.UNKNOWN
    assert say(said.text, "en").startswith("Only iteration 100 of this log can be a normal one.")


def test_a_first_iteration_that_may_be_compilation_is_no_evaluation() -> None:
    """Nothing in an excerpt of two lines tells the evaluation of iteration 0 from its warm-up."""
    lines = ["iter 0: loss 10.9, time 5000.00ms, mfu -100.00%", "iter 10: loss 9.1, time 100.00ms, mfu 20.00%"]
    (found,) = verdicts(text_of(lines))
    assert found.status is Status.HEALTHY
    assert "Only the first one is slow" in say(found.text, "en")


# --- the edges --------------------------------------------------------------------------------------------------


CUT = """\
iter 1000: loss 6.2, time 5700.00ms, mfu 9.10%
iter 1100: loss 6.1, time 168.00ms, mfu 9.32%
iter 1200: loss 6.0, time 169.00ms, mfu 9.59%
iter 1300: loss 5.9, time 168.00ms, mfu 9.76%
iter 1400: loss 5.8, time 170.00ms, mfu 9.98%
step 1500: train loss 5.7, val loss 5.6
saving checkpoint to out
iter 1500: loss 5.7, time 5800.00ms, mfu 9.02%
"""
"""As people paste it: the line of the first evaluation was left out."""


def of_excerpt(begin: int, end: int, *settings: str) -> Verdict:
    (run,) = read(from_text("".join(CUT.splitlines(keepends=True)[begin:end])))
    return judge(UserContext(settings=settings).analyse(run))


def test_lines_around_one_evaluation_do_not_show_how_often_there_is_one() -> None:
    said = of_excerpt(4, 8)
    assert said.status is Status.HEALTHY
    assert "Iteration 1,500 took 5.80 s: this includes an evaluation and a checkpoint" in say(said.text, "en")


@pytest.mark.parametrize(("interval", "status"), [(500, Status.HEALTHY), (250, Status.OVERHEAD)])
def test_a_stated_interval_does(interval: int, status: Status) -> None:
    """An evaluation takes as long as 34 iterations."""
    assert of_excerpt(4, 8, f"eval_interval={interval}").status is status


def test_an_excerpt_that_begins_at_an_evaluation_has_no_stall() -> None:
    """And two evaluations at its ends are one for each interval."""
    assert of_excerpt(0, 8).status is Status.HEALTHY
    said = of_excerpt(0, 5)
    assert said.status is Status.HEALTHY
    assert "Iteration 1,000 took 5.70 s: it looks like an evaluation" in say(said.text, "en")
    assert of_excerpt(0, 5, "eval_interval=300").status is Status.STALLING  # then it is none


@pytest.mark.parametrize("length", [4, 12, 50, 60])
@pytest.mark.parametrize("begin", range(-2, 4))
def test_no_excerpt_of_a_healthy_run_raises_an_alarm(begin: int, length: int) -> None:
    """Cut out around an evaluation; evaluations take 6 % of the time."""
    lines = a_log(Truth(step_s=0.1, eval_interval=500, eval_s=3.0, compile_s=5.0, noise=0.005)).splitlines(True)
    begin += next(place for place, line in enumerate(lines) if line.startswith("step 500"))
    (said,) = verdicts("".join(lines[begin : begin + length]))
    assert said.status in (Status.HEALTHY, Status.UNKNOWN), say(said.text, "en")


def test_the_end_of_an_epoch_shows_how_often_there_is_an_evaluation() -> None:
    bar = "Epoch 49: 100%|██████████| 12/12 [00:0{elapsed}<00:00,  {rate}it/s, v_num=0, val_loss=0.7]\n"
    text = "9.8 M     Total params\n" + "".join(bar.format(elapsed=n, rate=12 / n) for n in (2, 3))
    assert verdicts(text)[0].status is Status.OVERHEAD


def with_lost_share(share: float) -> str:
    """Two stalls that take this share of the time."""
    times = np.full(400, 1.0)
    times[[150, 277]] += 200 * share / (1 - share)
    return text_of(TRAINERS["litgpt"].lines(times))


@pytest.mark.parametrize(("share", "status"), [(0.028, Status.HEALTHY), (0.032, Status.STALLING)])
def test_stalls_count_from_three_hundredths_of_the_time_on(share: float, status: Status) -> None:
    assert module.LOST_SHARE == 0.03
    assert verdicts(with_lost_share(share))[0].status is status


@pytest.mark.parametrize(("rise", "status"), [(0.058, Status.HEALTHY), (0.068, Status.SLOWING)])
def test_a_drift_counts_from_a_twentieth_on(rise: float, status: Status) -> None:
    """From the middle of the first fifth to that of the last it is 0.8 of the whole rise."""
    assert module.LEAST_DRIFT == 0.05
    times = steady(400) * (1 + rise * np.arange(400) / 400)
    assert verdicts(text_of(TRAINERS["nanochat"].lines(times)))[0].status is status


@pytest.mark.parametrize(("share", "status"), [(0.09, Status.HEALTHY), (0.11, Status.OVERHEAD)])
def test_overhead_counts_from_a_tenth_on(share: float, status: Status) -> None:
    assert module.OVERHEAD_SHARE == 0.10
    steps = {"step_s": 0.1, "noise": 0.001, "eval_noise": 0.001, "saves": Saves.NEVER, "max_iters": 5000}
    evaluation_s = 250 * 0.1 * share / (1 - share)
    text = a_log(Truth(**steps, eval_interval=250, eval_s=evaluation_s, compile_s=1.0))  # type: ignore[arg-type]
    assert verdicts(text)[0].status is status
    compile_s = 5000 * 0.1 * share / (1 - share)
    text = a_log(Truth(**steps, eval_interval=2500, eval_s=0.5, compile_s=compile_s))  # type: ignore[arg-type]
    assert verdicts(text)[0].status is status


def test_a_run_that_has_begun_is_not_judged_by_one_evaluation_more_than_intervals() -> None:
    """At 0 and 500 in 520 iterations; in the long run they take 7 % of the time."""
    truth = Truth(step_s=0.1, eval_interval=500, eval_s=4.0, compile_s=1.0, saves=Saves.NEVER, max_iters=5000)
    begun = a_log(truth).partition("iter 520:")[0]
    (run,) = read(from_text(begun))
    assert UserContext().analyse(run).goodput.parts_s["eval"] > 0.12 * UserContext().analyse(run).goodput.wall_s
    assert verdicts(begun)[0].status is Status.HEALTHY


@pytest.mark.parametrize(
    ("saves", "named"),
    [
        ({"saves": Saves.NEVER}, ("eval",)),
        ({"saves": Saves.ALWAYS, "checkpoint_s": 0.5}, ("eval",)),
        ({"saves": Saves.ALWAYS, "checkpoint_s": 10.0, "eval_s": 0.5, "eval_iters": 10}, ("checkpoint",)),
    ],
)
def test_the_share_is_that_of_the_table(saves: dict[str, Any], named: tuple[str, ...]) -> None:
    """A long start, or time that nothing explains, is part of the whole there."""
    analysis = analyse(read(from_text(a_log(Truth(compile_s=100.0, **saves))))[0])
    parts = analysis.goodput.parts_s
    said = judge(analysis, advice_on_log(analysis))
    assert said.status is Status.OVERHEAD
    assert said.text.params["share"] == pytest.approx(sum(parts[name] for name in named) / sum(parts.values()))


@pytest.mark.parametrize(("change", "code"), [(1.09, "drift"), (1.12, "regime_change")])
def test_a_level_counts_from_a_tenth_on(change: float, code: str) -> None:
    times = np.full(400, 2.0)
    times[200:] *= change
    (found,) = verdicts(text_of(TRAINERS["nanochat"].lines(times)))
    assert (found.status, found.because) == (Status.SLOWING, (code,))


def test_a_new_level_within_the_spread_of_the_steps_is_not_slowing() -> None:
    times = 2 * np.exp(0.2 * np.random.default_rng(3).standard_normal(2000))
    times[1000:] *= 1.3
    assert verdicts(text_of(TRAINERS["nanochat"].lines(times)))[0].status is Status.UNSTEADY
    times[1000:] *= 2
    assert verdicts(text_of(TRAINERS["nanochat"].lines(times)))[0].status is Status.SLOWING


@pytest.mark.parametrize(("slow", "status"), [(30, Status.STALLING), (60, Status.HEALTHY)])
def test_what_ends_a_run_is_no_stall(slow: int, status: Status) -> None:
    """A Trainer saves behind its last step, and its bar shows that as part of it."""
    text, elapsed = "", 0.0
    for n in range(1, 61):
        elapsed += 8.0 + 40.0 * (n == slow)
        text += f"{100 * n // 60}%|##  | {n}/60 [{int(elapsed) // 60:02d}:{int(elapsed) % 60:02d}<00:10,  8.00s/it]\n"
        text += f"{{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': {n / 60:.2f}}}\n"
    [verdict] = verdicts(text)
    assert verdict.status is status


@pytest.mark.parametrize(
    ("rows", "ratio", "status"),
    [(16, 0.88, Status.HEALTHY), (40, 0.88, Status.SLOWING), (16, 0.5, Status.SLOWING)],
)
def test_a_short_start_that_was_a_little_faster_is_no_slowing_down(rows: int, ratio: float, status: Status) -> None:
    times = steady()
    times[:rows] *= ratio
    (verdict,) = verdicts(text_of(TRAINERS["nanogpt"].lines(times)))
    assert verdict.status is status
