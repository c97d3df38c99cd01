"""A run while it goes on: line by line it gives what the whole log gives, and tells what happens when it happens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tests.builders import Record, Saves, Truth, a_log, a_run, random_truth

from stepwatch import analyse, from_text, read
from stepwatch.analysis import Analysis
from stepwatch.errors import NoIterations
from stepwatch.i18n import say
from stepwatch.presenters.look_answer import event_line, live_lines, monitor, progress_line, waiting
from stepwatch.presenters.screen import plain
from stepwatch.verdict import Status, Verdict
from stepwatch.watch import (
    CAUSE,
    CRASHED,
    DIVERGED,
    DONE,
    LINES_AGAIN,
    MOST_ROWS,
    RECOVERED,
    RESTART,
    RESTART_S,
    SILENCE,
    SLOWDOWN,
    STALL,
    STOPPED,
    Live,
    Look,
)


def no_time() -> float:
    """A stopwatch that stands still: every look may analyse."""
    return 0.0


def a_live() -> Live:
    return Live("train.log", analyse, stopwatch=no_time)


def test_a_pipe_is_not_said_to_be_missing() -> None:
    assert "does not exist" in waiting(a_live().look(0.0)).in_english()
    assert "does not exist" not in waiting(Live("-", analyse, stopwatch=no_time).look(0.0)).in_english()


def lines_of(text: str) -> list[bytes]:
    return text.encode().splitlines(keepends=True)


def fed(text: str, *, at_once: int = 1, every_look: int = 50) -> Live:
    live = a_live()
    lines = lines_of(text)
    for place in range(0, len(lines), at_once):
        live.feed(b"".join(lines[place : place + at_once]), float(place))
        if place // at_once % every_look == 0:
            live.look(float(place))
    return live


def analysis_of(live: Live, now_s: float = 1e9) -> Analysis:
    analysis = live.look(now_s, thoroughly=True).analysis
    assert analysis is not None
    return analysis


def whole(text: str) -> Analysis:
    return analyse(read(from_text(text))[-1])


# --- the same answer --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_lines_one_by_one_give_what_the_whole_log_gives(seed: int) -> None:
    """Exactly, as long as nothing was thinned: it is the same analysis of the same rows."""
    truth = random_truth(np.random.default_rng(seed))
    text = a_log(replace(truth, max_iters=min(truth.max_iters, truth.first_iter + 120 * truth.log_interval)))
    live, all_at_once = analysis_of(fed(text)), whole(text)
    assert live.run.left_out == 0
    assert live.run.evaluations == all_at_once.run.evaluations
    assert live.run.checkpoints == all_at_once.run.checkpoints
    assert live.costs == all_at_once.costs
    assert live.goodput == all_at_once.goodput
    assert live.forecast == all_at_once.forecast
    assert [finding.code for finding in live.findings] == [finding.code for finding in all_at_once.findings]


LONG = Truth(max_iters=30_000, log_interval=1, eval_interval=500, stall_share=0.001, drift=0.1, noise=0.03, header=True)


@pytest.mark.parametrize(
    "truth",
    [
        LONG,
        replace(LONG, saves=Saves.ALWAYS, stall_share=0.0, log_interval=2, max_iters=50_000),
        replace(LONG, with_step_lines=False, with_saving_lines=False, drift=0.0),
        replace(LONG, header=False, with_mfu=False),
    ],
    ids=["drift and stalls", "always saves", "silent evaluations", "no header"],
)
def test_a_thinned_run_costs_what_the_whole_one_costs(truth: Truth) -> None:
    """Slow rows are all there, so their costs are those of the whole up to the noise of the thinned steps between
    them. A sample of 4,000 and more rows at 3 % noise tells the level to 0.1 %; with a drift of 10 % the sample's
    unevenness (both ends are kept dense) adds 0.2 %. So 0.5 % for the step and the wall, and overlapping intervals."""
    text = a_log(truth)
    live, all_at_once = analysis_of(fed(text, at_once=3000, every_look=1)), whole(text)
    assert live.run.left_out > 0
    assert len(live.run.iterations) < MOST_ROWS
    assert live.run.logged == len(all_at_once.run.iterations)
    assert live.run.evaluations == all_at_once.run.evaluations
    assert live.costs.step_s.mid == pytest.approx(all_at_once.costs.step_s.mid, rel=0.005)
    assert live.goodput.wall_s == pytest.approx(all_at_once.goodput.wall_s, rel=0.005)
    assert live.goodput.parts_s["stall"] == pytest.approx(all_at_once.goodput.parts_s["stall"], rel=0.02)
    assert live.goodput.iterations == all_at_once.goodput.iterations
    assert live.phases.eval_interval == all_at_once.phases.eval_interval
    assert live.run.settings.count("log_interval") == all_at_once.run.settings.count("log_interval")
    for name in ("step_s", "eval_s", "checkpoint_s", "compile_s"):
        mine, other = (getattr(analysis.costs, name) for analysis in (live, all_at_once))
        assert (mine is None) == (other is None)
        if mine is not None and other is not None:
            assert mine.low <= other.high
            assert other.low <= mine.high
    assert [finding.code for finding in live.findings] == [finding.code for finding in all_at_once.findings]


def test_the_state_stays_bounded_however_long_and_odd_the_log() -> None:
    """Nothing but evaluations, chatter on every line, a fact repeated without end."""
    live = a_live()
    for begin in range(0, 18_000, 1000):
        lines = [
            f"step {n}: train loss 2, val loss 2\niter {n}: loss 2.0, time {1000 + n % 7}.00ms, mfu 5.00%\n"
            f"Gradient norm: {n}\nchatter {n}\n"
            for n in range(begin, begin + 1000)
        ]
        live.feed("".join(lines).encode(), float(begin))
        live.look(float(begin))
    run = analysis_of(live).run
    assert len(run.iterations) <= MOST_ROWS // 8 + 2_000
    assert len(run.evaluations) <= MOST_ROWS // 8 + 2_000
    assert len(live._reader._records.events) <= MOST_ROWS // 8 + 3_000
    assert run.unread_count >= 18_000
    assert run.logged == 18_000


# --- ETA --------------------------------------------------------------------------------------------------------

STEADY = Truth(max_iters=2000, log_interval=10, eval_interval=250, step_s=1.0, eval_s=60.0, noise=0.002, compile_s=90.0)


def played(record: Record, live: Live) -> Iterator[tuple[int, float, Look]]:
    """The state after each logged iteration, on the run's own clock."""
    ended = dict(zip(record.number.tolist(), np.cumsum(record.time_s).tolist(), strict=True))
    live.begin_watching(0.0)
    held = b""
    for line in lines_of(record.text):
        held += line
        if line.startswith(b"iter "):
            number = int(line[5 : line.index(b":")])
            live.feed(held, ended[number])
            held = b""
            yield number, ended[number], live.look(ended[number])


def played_until(record: Record, live: Live, number: int) -> tuple[float, Look]:
    return next((now, look) for at, now, look in played(record, live) if at == number)


def test_the_eta_ignores_compilation_and_does_not_jump_at_evaluations() -> None:
    record = a_run(replace(STEADY, log_interval=25))
    ends = []
    for number, now, look in played(record, a_live()):
        if number >= 500 and look.remaining_s is not None:
            ends.append(now + look.remaining_s.mid)
    assert max(ends) - min(ends) < 0.02 * record.total_s  # one evaluation alone is 3 % of it
    assert ends[-1] == pytest.approx(record.total_s, rel=0.001)


def test_between_lines_the_eta_runs_down_and_then_waits_for_the_line() -> None:
    live = a_live()
    now, look = played_until(a_run(STEADY), live, 510)
    assert look.remaining_s is not None

    def left(later: float) -> float:
        remaining = live.look(now + later).remaining_s
        assert remaining is not None
        return remaining.mid

    assert left(4.0) == pytest.approx(look.remaining_s.mid - 4.0)
    assert left(1000.0) == pytest.approx(look.remaining_s.mid - 10.0, abs=0.5)  # ten steps until the next line


def test_the_next_evaluation_and_checkpoint_are_told() -> None:
    record = a_run(replace(STEADY, saves=Saves.ALWAYS))
    _, look = played_until(record, a_live(), 600)
    assert look.evaluation is not None
    assert look.checkpoint is not None
    assert (look.evaluation.at, look.checkpoint.at) == (750, 750)
    assert look.evaluation.in_s == pytest.approx(149, rel=0.02)
    assert look.checkpoint.in_s > look.evaluation.in_s + 50
    assert look.checkpoint.certain


# --- events -----------------------------------------------------------------------------------------------------


def header() -> str:
    return "tokens per iteration will be: 16,384\nmax_iters = 1000\nlog_interval = 1\neval_interval = 5000\n"


def row(number: int, seconds: float = 1.0) -> bytes:
    return f"iter {number}: loss 2.0000, time {1000 * seconds + number % 3:.2f}ms, mfu 20.00%\n".encode()


def kinds(live: Live) -> list[str]:
    return [event.kind for event in live.events]


def a_watched_run(rows: int) -> Live:
    live = a_live()
    live.feed(header().encode() + b"".join(map(row, range(rows))), 0.0)
    live.begin_watching(0.0)
    return live


def then(live: Live, numbers: range, seconds: float = 1.0) -> None:
    for number in numbers:
        live.feed(row(number, seconds), float(number))
        live.look(float(number))


def test_a_stall_is_told_once_with_its_iteration() -> None:
    live = a_watched_run(100)
    then(live, range(100, 110))
    then(live, range(110, 111), seconds=9.0)
    then(live, range(111, 130))
    (event,) = live.events
    assert (event.kind, event.iteration, event.is_alarm) == (STALL, 110, True)
    assert event.ratio == pytest.approx(9, rel=0.02)
    assert live.news() == [event]
    assert live.news() == []


def test_history_is_no_news() -> None:
    live = a_live()
    live.feed(header().encode() + b"".join(row(n, 9.0 if n == 50 else 1.0) for n in range(100)), 0.0)
    live.begin_watching(0.0)
    live.look(0.0)
    assert live.events == []


def test_a_run_that_becomes_slower_and_recovers_is_told_as_such() -> None:
    live = a_watched_run(200)
    then(live, range(200, 230), seconds=1.3)
    assert kinds(live) == [SLOWDOWN]
    assert live.look(230.0).slow
    then(live, range(230, 260))
    assert kinds(live) == [SLOWDOWN, RECOVERED]


def test_a_stretch_of_stalls_is_one_event_and_then_a_slow_down() -> None:
    live = a_watched_run(200)
    then(live, range(200, 240), seconds=3.0)
    assert kinds(live) == [STALL, SLOWDOWN]


def test_silence_is_told_by_the_clock_alone_and_ends_with_a_line() -> None:
    live = a_watched_run(100)
    assert not live.look(5.0).late
    assert live.look(60.0).late
    live.look(90.0)
    then(live, range(100, 101))
    assert kinds(live) == [SILENCE, LINES_AGAIN]
    assert live.events[0].time_s == 60.0


def test_an_evaluation_that_is_due_is_no_silence() -> None:
    live = a_live()
    now, _ = played_until(a_run(STEADY), live, 740)  # the next line comes after ten steps and an evaluation of 60 s
    live.look(now + 70)
    assert kinds(live) == []


def test_a_new_run_in_the_same_log_begins_anew_and_its_compilation_is_no_silence() -> None:
    live = a_watched_run(100)
    live.feed(header().encode() + b"number of parameters: 10.65M\n", 101.0)
    assert live.look(5000.0).starting
    assert kinds(live) == []
    live.feed(b"iter 0: loss 4.0, time 90000.00ms, mfu -100.00%\n", 5001.0)
    look = live.look(5001.0)
    assert kinds(live) == [RESTART]
    assert look.last_iteration == 0
    assert [len(run.iterations) for run in live.runs()] == [100, 1]


def test_the_end_is_told_once() -> None:
    live = a_watched_run(995)
    then(live, range(995, 1001))
    assert kinds(live) == [DONE]
    assert live.look(2000.0).done
    assert kinds(live) == [DONE]


# --- how it ended -----------------------------------------------------------------------------------------------

TRACEBACK = b'Traceback (most recent call last):\n  File "train.py", line 300, in <module>\n    loss.backward()\n'
OUT_OF_MEMORY = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
NAN = b"iter 100: loss nan, time 1000.00ms, mfu 20.00%\n"


def come(live: Live, text: bytes, at_s: float) -> Look:
    live.feed(text, at_s)
    return live.look(at_s)


def verdict_of(look: Look) -> Verdict:
    assert look.verdict is not None
    return look.verdict


def shown(look: Look) -> str:
    return "\n".join(plain(line) for line in live_lines(look, "en", width=80, height=24))


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (
            TRACEBACK + OUT_OF_MEMORY,
            CRASHED,
            "“torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.”",
        ),
        (b"slurmstepd: error: *** JOB 1 CANCELLED AT 2026-01-01 DUE TO TIME LIMIT ***\n", CRASHED, "DUE TO TIME LIMIT"),
        (TRACEBACK + b"ValueError: bad batch\n", CRASHED, "“ValueError: bad batch”"),
        (NAN, DIVERGED, "not a number from iteration 100 on"),
        (TRACEBACK + b"KeyboardInterrupt\n", STOPPED, "interrupted by hand"),
    ],
)
def test_an_end_is_told_once_at_the_look_in_which_its_line_comes(text: bytes, kind: str, words: str) -> None:
    live = a_watched_run(100)
    assert verdict_of(live.look(1.0)).status is Status.HEALTHY
    look = come(live, text, 1.0)
    (event,) = live.events
    assert (event.kind, event.is_alarm) == (kind, True)
    assert verdict_of(look).status == kind
    assert verdict_of(look).line == event.line
    assert words in event_line(event, "en")
    assert words in " ".join(shown(look).split())
    live.look(2.0)
    assert kinds(live) == [kind]


@pytest.mark.parametrize("text", [TRACEBACK + OUT_OF_MEMORY, NAN, b""], ids=["crashed", "diverged", "silent"])
def test_below_a_grave_verdict_stands_the_last_iteration_and_no_forecast(text: bytes) -> None:
    live = a_watched_run(100)
    come(live, text, 0.0)
    look = live.look(60.0)
    lines = shown(look).splitlines()
    assert lines[0] in ("✖ Crashed", "✖ Diverged", "■ Stopped")
    for said in (shown(look), progress_line(look, "en")):
        assert "of 1,000" in said
        assert " left" not in said
        assert "normal" not in said
    assert "1 min ago" in shown(look)
    at_once = a_watched_run(100)
    assert "ago" not in shown(come(at_once, text, 0.0)).partition("Last line")[2]
    data = monitor(look, "en")
    assert data["state"] == verdict_of(look).status
    assert data["verdict"] == say(verdict_of(look).text, "en")
    assert (data["left"], data["ends_s"]) == (None, None)


def test_after_a_crash_there_is_one_alarm_and_no_time_left() -> None:
    live = a_watched_run(100)
    assert come(live, OUT_OF_MEMORY, 1.0).remaining_s is None
    look = live.look(5000.0)
    assert kinds(live) == [CRASHED]
    assert not look.late
    assert look.evaluation is None


def test_a_more_telling_line_that_comes_later_is_told_but_is_no_second_crash() -> None:
    live = a_watched_run(100)
    assert "traceback begins in line 105" in verdict_of(come(live, TRACEBACK, 100.0)).text.in_english()
    look = come(live, OUT_OF_MEMORY, 101.0)
    assert kinds(live) == [CRASHED, CAUSE]
    assert "out of GPU memory" in verdict_of(look).text.in_english()


@pytest.mark.parametrize("text", [OUT_OF_MEMORY, NAN])
def test_a_crash_is_told_before_the_next_analysis_is_due(text: bytes) -> None:
    ticking = iter(np.arange(0, 1e6, 0.5).tolist())  # every analysis takes half a second
    live = Live("x", analyse, stopwatch=lambda: next(ticking))
    come(live, header().encode() + b"".join(map(row, range(99))), 0.0)
    assert come(live, row(99), 1.0).last_iteration == 98
    assert come(live, text, 2.0).failed


def test_a_restart_clears_the_crash_with_its_header_and_says_so_once() -> None:
    live = a_watched_run(100)
    assert come(live, OUT_OF_MEMORY, 100.0).failed
    look = come(live, header().encode(), 130.0)
    assert verdict_of(look).status is Status.BEGUN
    assert kinds(live) == [CRASHED, RESTART]
    for number in range(20):
        look = come(live, row(number, 1.1), 200.0 + number)
    assert kinds(live) == [CRASHED, RESTART]
    assert not look.failed
    assert look.remaining_s is not None
    come(live, OUT_OF_MEMORY, 221.0)
    assert kinds(live) == [CRASHED, RESTART, CRASHED]


def test_a_crash_and_a_restart_between_two_looks_are_both_told() -> None:
    live = a_watched_run(100)
    come(live, OUT_OF_MEMORY + header().encode() + row(0, 1.1), 100.0)
    assert kinds(live) == [CRASHED, RESTART]
    assert live.events[0].iteration == 99


def test_ranks_that_print_their_headers_as_they_exit_are_no_restart() -> None:
    live = a_live()
    ranks = b"tokens per iteration will be: 16,384\n" * 2 + b"max_iters = 1000\n"
    come(live, ranks + b"".join(map(row, range(100))), 0.0)
    live.begin_watching(0.0)
    assert come(live, OUT_OF_MEMORY + b"tokens per iteration will be: 16,384\n", 1.0).failed
    assert not live.look(1.0 + RESTART_S).over  # it may be a restart after all
    come(live, b"iter 0: loss 4.0, time 1000.00ms, mfu -100.00%\n", 2000.0)
    assert kinds(live) == [CRASHED, RESTART]


@pytest.mark.parametrize(("line", "words"), [(OUT_OF_MEMORY, "continues at iteration 101"), (NAN, "a number again")])
def test_a_run_that_goes_on_takes_the_alarm_back(line: bytes, words: str) -> None:
    live = a_watched_run(100)
    come(live, line, 100.0)
    look = come(live, row(101), 101.0)
    assert kinds(live)[1:] == [RECOVERED]
    assert words in event_line(live.events[-1], "en")
    assert not look.failed


def test_a_crash_before_the_first_iteration_and_even_before_the_header_is_told() -> None:
    with_header, without = a_watched_run(0), a_live()
    without.begin_watching(0.0)
    for live in (with_header, without):
        look = come(live, TRACEBACK + OUT_OF_MEMORY, 1.0)
        assert kinds(live) == [CRASHED]
        assert "before its first iteration" in verdict_of(look).text.in_english()
        assert "No iteration" not in shown(look)
        look = come(live, header().encode() + row(0), 60.0)
        assert not look.failed


@pytest.mark.parametrize(
    ("end", "age_s", "kind", "over"),
    [
        (TRACEBACK + OUT_OF_MEMORY, 0.0, CRASHED, True),
        (TRACEBACK + b"KeyboardInterrupt\n", 0.0, STOPPED, True),
        (NAN, 0.0, DIVERGED, False),
        (NAN, 60.0, DIVERGED, True),
        (b"", 60.0, SILENCE, False),
        (b"", 3700.0, STOPPED, True),
        (OUT_OF_MEMORY + header().encode(), 60.0, None, False),
    ],
    ids=["crashed", "interrupted", "diverging", "diverged", "silent", "stopped", "restarted"],
)
def test_a_log_that_had_ended_before_is_told_and_over(end: bytes, age_s: float, kind: str | None, over: bool) -> None:
    live = a_live()
    live.feed(header().encode() + b"".join(map(row, range(100))) + end, 1e9 - age_s)
    live.begin_watching(1e9)
    look = live.look(1e9)
    assert kinds(live)[:1] == ([kind] if kind else [])
    assert look.over is over


def test_after_a_crash_a_restart_is_waited_for_and_then_it_is_over() -> None:
    live = a_watched_run(100)
    assert not come(live, OUT_OF_MEMORY, 100.0).over
    assert not live.look(100.0 + 599.0).over
    assert live.look(100.0 + 600.0).over


def test_a_pipe_that_ends_in_mid_run_has_stopped_and_one_of_unknown_length_has_not() -> None:
    for head, stopped in ((header(), [STOPPED]), (header().replace("max_iters = 1000\n", ""), [])):
        live = a_live()
        come(live, head.encode() + b"".join(map(row, range(100))), 0.0)
        live.begin_watching(0.0)
        live.end()
        live.look(1.0)
        assert kinds(live) == stopped


def test_a_cheap_look_does_not_analyse_more_often_than_its_share_of_time() -> None:
    calls = []
    ticking = iter(np.arange(0, 1e6, 0.5).tolist())  # every analysis takes half a second
    live = Live("x", lambda run: calls.append(1) or analyse(run), stopwatch=lambda: next(ticking))  # type: ignore[func-returns-value]
    live.feed(header().encode() + b"".join(map(row, range(20))), 0.0)
    for number in range(20, 120):
        live.feed(row(number), float(number))
        live.look(float(number))
    assert len(calls) == 2


# --- what is shown ----------------------------------------------------------------------------------------------


def test_the_screen_never_overflows() -> None:
    live = a_watched_run(200)
    then(live, range(200, 201), seconds=9.0)
    then(live, range(201, 240), seconds=1.4)
    look = replace(live.look(400.0), name="a-very-long-name-of-a-log-file-" * 4 + ".log")
    crashed = come(a_watched_run(100), TRACEBACK + OUT_OF_MEMORY, 100.0)
    looks = (look, crashed, a_live().look(0.0), a_watched_run(0).look(1.0), a_watched_run(1).look(1.0))
    for at, width, height in product(looks, (40, 60, 80, 100), (8, 23)):
        drawn = live_lines(at, "en", width=width, height=height)
        assert len(drawn) <= height
        assert max(len(plain(line)) for line in drawn) <= width


def test_plain_lines_tell_progress_and_events() -> None:
    live = a_watched_run(500)
    line = progress_line(live.look(0.0), "en")
    assert "Iteration 499 of 1,000, 49.9 %." in line
    assert "left" in line
    live.look(60.0)
    assert "No line for 1 min" in event_line(live.events[0], "en")


# --- nothing stops it -------------------------------------------------------------------------------------------


def test_the_twelfth_restart_is_reported_as_the_first_was() -> None:
    live = a_live()
    live.begin_watching(0.0)
    for process in range(12):
        text = a_log(Truth(seed=process, max_iters=60, log_interval=1, eval_interval=30))
        live.feed(text.encode(), float(process))
        live.look(float(process), thoroughly=True)
    assert [event.kind for event in live.news()].count(RESTART) == 11


def test_a_log_without_times_is_refused_at_its_end_and_not_before() -> None:
    live = a_live()
    line = b"{'loss': 2.1, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': %d}\n"
    live.feed(b"".join(line % epoch for epoch in range(9)), 0.0)
    live.begin_watching(0.0)
    assert live.look(1.0, thoroughly=True).analysis is None
    with pytest.raises(NoIterations, match="nothing in it shows their time"):
        live.runs()


def test_chatter_is_looked_through_but_once() -> None:
    """What came before was looked at when it came: as much again takes as long again, not longer each time."""
    spent = []
    live = a_live()
    for place in range(40):
        began = time.process_time()
        live.feed(b"downloading shard 17 of 300\n" * 400, float(place))
        live.look(float(place))
        spent.append(time.process_time() - began)
    assert sum(spent[-10:]) < 5 * max(sum(spent[5:15]), 0.05)
