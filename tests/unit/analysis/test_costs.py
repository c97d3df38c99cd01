"""The figures of planted logs, to the fifth digit: an estimator changes because that is meant, never by the way.

What was planted is checked elsewhere; here every weight, prior and doubt of the analysis has a log whose answer moves
with it. After a change that is meant: `python -m tests.unit.analysis.test_costs` writes the table anew.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from tests.builders import Saves, Shape, Truth, a_log
from tests.recorded import Planted
from tests.recorded import Record as Recorded

from stepwatch.analysis import Analysis, analyse
from stepwatch.analysis.costs import MEASURED, _Cost, _divided, _log_density, _quantiles, _with_and_without
from stepwatch.analysis.throughput import combined
from stepwatch.estimator.ceilings import LogNormalPrior
from stepwatch.gpus import find_gpu
from stepwatch.readers import read
from stepwatch.run import Run
from stepwatch.settings import Origin, Settings, Value
from stepwatch.sources import from_text
from stepwatch.units import Z90, Interval

TABLE = Path(__file__).with_name("figures.json")


def a_run(text: str, **settings: Value) -> Run:
    run = read(from_text(text))[-1]
    return replace(run, settings=run.settings.overridden_by(Settings.of(Origin.USER, settings)))


def of(truth: Truth, **settings: Value) -> Analysis:
    return analyse(a_run(a_log(truth), **settings))


def begun(rows: int, *, header: bool = True, card: str | None = "4070", **truth: Any) -> Analysis:
    """The first lines of a run, up to that many iterations."""
    text, seen = "", 0
    for line in a_log(Truth(header=header, **truth)).splitlines(keepends=True):
        seen += line.startswith("iter ")
        if seen > rows:
            break
        text += line
    return analyse(a_run(text, max_iters=5000), find_gpu(card) if card else None)


def plain(*times_ms: float, first: int = 10, interval: int = 10) -> str:
    return "".join(f"iter {first + i * interval}: loss 3.0, time {t:.2f}ms\n" for i, t in enumerate(times_ms))


def noisy(count: int, noise: float, seed: int = 0, level: float = 100.0) -> list[float]:
    values: list[float] = (level * np.exp(np.random.default_rng(seed).normal(0, noise, count))).tolist()
    return values


def evaluations_alone(*, saving: bool) -> Analysis:
    save = "saving checkpoint to out\n" if saving else ""
    rows = [(250, 5000.0), (500, 5100.0), (750, 4900.0)]
    text = "".join(
        f"step {n}: train loss 3, val loss 3\n{save}iter {n}: loss 3, time {ms:.2f}ms, mfu 9.00%\n" for n, ms in rows
    )
    return analyse(a_run(text))


def llm_c(evals: int, saves: int) -> Analysis:
    """Steps of 1 s, evaluations of 7 s and saves of 3 s outside the printed times, by the clock of the lines."""
    text, at = [], 0.0
    for n in range(1, 301):
        at += 1.0
        stamp = f"2025-01-01 1{int(at) // 3600}:{int(at) // 60 % 60:02}:{at % 60:06.3f} "
        text.append(f"{stamp}step {n}/500 | loss 4.1 | norm 1.0 | lr 1e-4 | 1000.00 ms | 30.0% bf16 MFU | 9000 tok/s\n")
        if evals and n % evals == 0:
            at += 7.0 + 0.1 * (n % 3)
            text.append(f"{stamp}val loss 4.{n:03}\n")
        if saves and n % saves == 0:
            at += 3.0 + 0.1 * (n % 7)
            text.append(f"{stamp}Writing checkpoint at step {n}\n")
    return analyse(a_run("".join(text)))


def unsynchronised(**changes: Any) -> Analysis:
    truth = Truth(header=False, eval_interval=10_000, max_iters=1500, step_s=changes.pop("step_s", 0.1))
    return analyse(replace(a_run(a_log(truth)), **changes))


def recorded(**planted: Any) -> Analysis:
    return analyse(a_run(Recorded(Planted(**planted)).text))


ALWAYS, NEVER = Saves.ALWAYS, Saves.NEVER
LOGS: dict[str, Callable[[], Analysis]] = {
    "plain": lambda: of(Truth()),
    "to the end": lambda: of(Truth(max_iters=700), max_iters=4000),
    "two evaluations": lambda: of(Truth(max_iters=600)),
    "four evaluations": lambda: of(Truth(max_iters=1100, eval_noise=0.03)),
    "noisy evaluations": lambda: of(Truth(max_iters=4000, eval_noise=0.05, checkpoint_s=0.1)),
    "noisy, no header": lambda: of(Truth(max_iters=4000, eval_noise=0.05, checkpoint_s=0.1, header=False)),
    "mixed, small": lambda: of(Truth(max_iters=4000, eval_noise=0.02, checkpoint_s=0.05, seed=5)),
    "mixed, few": lambda: of(Truth(max_iters=2500, eval_noise=0.03, checkpoint_s=0.2, seed=6), max_iters=9000),
    "a stall on an evaluation": lambda: of(Truth(max_iters=1100, eval_noise=0.4, seed=3)),
    "never saves": lambda: of(Truth(saves=NEVER, max_iters=900)),
    "always saves": lambda: of(Truth(saves=ALWAYS, max_iters=1500), max_iters=4000),
    "always saves, accumulates": lambda: of(Truth(saves=ALWAYS, gradient_accumulation=8, eval_iters=20)),
    "always saves, first is short": lambda: of(Truth(saves=ALWAYS, compile_s=0.5, checkpoint_s=9.0, max_iters=1500)),
    "always saves, no header": lambda: of(Truth(saves=ALWAYS, header=False, max_iters=900)),
    "no header, first is short": lambda: of(
        Truth(saves=ALWAYS, header=False, max_iters=900, compile_s=3.0, eval_s=20.0, checkpoint_s=15.0)
    ),
    "no header, first is very short": lambda: of(
        Truth(saves=ALWAYS, header=False, max_iters=900, compile_s=0.1, eval_s=2.0, checkpoint_s=5.0)
    ),
    "no header, first is long": lambda: of(
        Truth(saves=ALWAYS, header=False, max_iters=900, compile_s=8.0, eval_s=60.0, checkpoint_s=30.0)
    ),
    "wide": lambda: of(Truth(saves=ALWAYS, max_iters=900, checkpoint_s=0.01, shape=Shape(n_layer=1, n_embd=64))),
    "no compilation": lambda: of(Truth(compile_s=0.0, compiled=False, max_iters=900)),
    "drift": lambda: of(Truth(drift=0.15, max_iters=3000, log_interval=1)),
    "drift in noise": lambda: of(Truth(drift=0.3, max_iters=2500, noise=0.05, tail_share=0.05)),
    "little drift": lambda: of(Truth(drift=0.05, max_iters=900, noise=0.001)),
    "stalls": lambda: of(Truth(stall_share=0.05, max_iters=2000), max_iters=5000),
    "resumed": lambda: of(Truth(first_iter=1000, max_iters=2200)),
    "clock": lambda: of(Truth(timestamps=True, max_iters=900), max_iters=4000),
    "cut": lambda: of(Truth(kept=0.4, max_iters=2500)),
    "off the log grid": lambda: of(Truth(log_interval=200, eval_interval=500, max_iters=6000, header=False)),
    "silent": lambda: of(Truth(with_step_lines=False, with_saving_lines=False, header=False)),
    "one row": lambda: begun(1, card=None),
    "one row, no header": lambda: begun(1, card=None, header=False),
    "one row, a card": lambda: begun(1),
    **{f"{rows} rows": lambda rows=rows: begun(rows) for rows in (2, 3, 4, 5, 6, 9, 15, 20, 21, 22)},
    "slow begin": lambda: begun(8, step_s=0.3),
    "six steps": lambda: analyse(a_run(plain(*noisy(6, 0.05)))),
    "one step": lambda: analyse(a_run(plain(100.0))),
    **{f"{n} steps": lambda n=n: analyse(a_run(plain(*noisy(n, 0.05, n)))) for n in (2, 4, 5, 15, 16, 23, 24, 40, 120)},
    "two levels": lambda: analyse(a_run(plain(*noisy(150, 0.01), *noisy(250, 0.01, 1, 118.0)), max_iters=9000)),
    **{
        f"first evaluates, {last} seen": lambda last=last: analyse(
            a_run("iter 0: loss 4, time 9000.00ms\n" + plain(*noisy(last // 10, 0.01)), max_iters=20_000)
        )
        for last in (100, 240, 260, 490, 510, 900, 1500, 2200, 4900, 6000)
    },
    "evaluations alone": lambda: evaluations_alone(saving=False),
    "saving evaluations alone": lambda: evaluations_alone(saving=True),
    "ranks": lambda: unsynchronised(distributed=True),
    "short steps": lambda: unsynchronised(step_s=0.014),
    "busy": lambda: unsynchronised(busy_when_logging=True),
    "not so short": lambda: unsynchronised(step_s=0.016),
    "outside, evaluations": lambda: llm_c(50, 0),
    "outside, once": lambda: llm_c(200, 0),
    "outside, both apart": lambda: llm_c(40, 30),
    "outside, both at once": lambda: llm_c(50, 50),
    "one of three evaluations stalls": lambda: stalled_evaluation(),
    "thirteen rows that drift": lambda: analyse(a_run(drifting(13))),
    "recorded": lambda: recorded(data_s=0.02, device_s=0.15),
    "recorded, behind": lambda: recorded(device_s=0.26, before_s=9.0),
}


def stalled_evaluation() -> Analysis:
    """One of three evaluations takes three times as long."""
    text = ""
    for number in range(11, 171):
        slow = 0 if number % 50 else 15000 if number == 100 else 5000
        text += f"step {number}: train loss 3.0, val loss 3.0\n" if slow else ""
        text += f"iter {number}: loss 3.0, time {100 + slow:.2f}ms\n"
    return analyse(a_run(text))


def drifting(rows: int) -> str:
    """The first iteration evaluates, and one more; the steps between become shorter."""
    times = [9000.0, *(200.0 * 0.93**row for row in range(rows)), 4000.0]
    text = "step 0: train loss 4.0, val loss 4.0\n"
    for number, time in enumerate(times):
        text += f"step {number}: train loss 3.0, val loss 3.0\n" if number == len(times) - 1 else ""
        text += f"iter {number}: loss 3.0, time {time:.2f}ms, mfu -100.00%\n"
    return text


def figures(a: Analysis) -> dict[str, Any]:
    intervals = {
        "step": a.costs.step_s,
        "data": a.costs.data_s,
        "eval": a.costs.eval_s,
        "checkpoint": a.costs.checkpoint_s,
        "compile": a.costs.compile_s,
        "pair": a.costs.pair_s,
        "wall": a.goodput.interval_s,
        "remaining": a.forecast.remaining_s,
        "per_thousand": a.forecast.per_thousand_s,
    }
    found: dict[str, Any] = {name: _digits(value) for name, value in intervals.items() if value is not None}
    found["how"] = dict(a.costs.how)
    found["parts"] = [float(f"{seconds:.7g}") for seconds in a.goodput.parts_s.values()]
    found["findings"] = [finding.code for finding in a.findings]
    return found


def _digits(interval: Interval) -> list[float]:
    return [float(f"{end:.7g}") for end in (interval.low, interval.mid, interval.high)]


def two_speeds(slow_rows: int, fast_rows: int, *, saves: tuple[int, ...], seed: int = 1) -> Analysis:
    """Steps of 9 s, then of 0.6 s; evaluations of 280 s, then of 32 s: not slowed alike. A save takes 3 s."""
    rng = np.random.default_rng(seed)
    text = []
    for row in range(1, slow_rows + fast_rows + 1):
        n, slow = 10 * row, row <= slow_rows
        step, evaluation = (9.0, 280.0) if slow else (0.6, 32.0)
        took = step * (1 + rng.normal(0, 0.003))
        if n % 250 == 0:
            text.append(f"step {n}: train loss 3.0, val loss 3.1\n")
            took += evaluation * (1 + rng.normal(0, 0.003))
            if n in saves:
                text.append("saving checkpoint to out\n")
                took += 3.0
        text.append(f"iter {n}: loss 3.0, time {1000 * took:.2f}ms, mfu 9.00%\n")
    return analyse(a_run("".join(text)))


@pytest.mark.parametrize("saves", [(), (250, 750, 1500), tuple(range(250, 2501, 250))])
def test_costs_of_a_run_at_two_speeds_are_of_the_present_one(saves: tuple[int, ...]) -> None:
    a = two_speeds(250, 1700, saves=saves)
    assert a.costs.step_s.low > 0.59
    assert a.costs.step_s.high < 0.61
    assert a.costs.eval_s is not None
    assert a.costs.eval_s.low < 32 < a.costs.eval_s.high
    assert (a.costs.eval_s.high - a.costs.eval_s.low) / 2 < 1
    truth = 10 * 280 + 68 * 32.0
    assert a.goodput.parts_s["eval"] + a.goodput.parts_s["unexplained"] == pytest.approx(truth, rel=0.02)
    assert a.goodput.parts_s["unexplained"] < 1
    if saves:
        assert a.costs.checkpoint_s is not None
        assert a.costs.checkpoint_s.low <= 3 <= a.costs.checkpoint_s.high
    assert a.forecast.per_thousand_s is not None
    assert a.forecast.per_thousand_s.mid == pytest.approx(600 + 4 * 32, rel=0.03)
    assert a.forecast.per_thousand_s.low > 650


@pytest.mark.parametrize("name", LOGS)
def test_the_figures_of_a_planted_log_stay(name: str) -> None:
    known = json.loads(TABLE.read_text(encoding="utf-8"))[name]
    found = figures(LOGS[name]())
    assert found.pop("how") == known.pop("how")
    assert found.pop("findings") == known.pop("findings")
    assert list(found) == list(known)
    for part, values in found.items():
        assert values == pytest.approx(known[part], rel=1e-5, abs=1e-8), part


# --- what a single weight or doubt does ----------------------------------------------------------------------------


def evaluating(count: int, stalled: int | None = None) -> Analysis:
    """Evaluations of 5 s, all alike, every 50 iterations; one of them may take three times as long."""
    text = ""
    for number in range(11, 50 * count + 41):
        slow = 0 if number % 50 else 15000 if number == stalled else 5000
        text += f"step {number}: train loss 3.0, val loss 3.0\n" if slow else ""
        text += f"iter {number}: loss 3.0, time {100 + slow:.2f}ms\n"
    return analyse(a_run(text))


def doubt(interval: Interval | None) -> float:
    assert interval is not None
    return interval.high / interval.mid - 1


@pytest.mark.parametrize(("count", "within"), [(1, 0.050), (2, 0.0187), (3, 0.0132), (4, 0.0066), (5, 0.0047)])
def test_one_evaluation_is_known_within_a_twentieth_and_each_more_narrows_it(count: int, within: float) -> None:
    """Those of a run differ by a twentieth at most."""
    assert doubt(evaluating(count).costs.eval_s) == pytest.approx(within, rel=0.02)


@pytest.mark.parametrize(("count", "within"), [(5, 0.0663), (6, 0.0036)])
def test_a_stall_on_an_evaluation_counts_until_there_are_six(count: int, within: float) -> None:
    cost = evaluating(count, stalled=100).costs.eval_s
    assert cost is not None
    assert cost.mid == pytest.approx(5.0)
    assert doubt(cost) == pytest.approx(within, rel=0.02)


@pytest.mark.parametrize(
    ("times_ms", "within_ms"), [((100,), 2.526), ((99, 101, 99, 101), 1.359), ((99, 101, 99, 101, 100), 0.914)]
)
def test_a_step_of_few_rows_is_known_by_students_quantile_and_of_five_by_their_spread(
    times_ms: tuple[float, ...], within_ms: float
) -> None:
    step = analyse(a_run(plain(*times_ms))).costs.step_s
    printed_ms = 0.005
    assert 1000 * (step.high - step.mid) == pytest.approx(within_ms + printed_ms, rel=0.005)


def test_nine_of_ten_lie_between_the_ends_of_a_density() -> None:
    grid = np.linspace(0.1, 9.9, 2000)
    found = _quantiles(grid, -0.5 * (grid - 5) ** 2)
    assert _digits(found) == pytest.approx([5 - Z90, 5, 5 + Z90], abs=0.01)


EXACT = 1000.0  # degrees of freedom


@pytest.mark.parametrize(("longest", "evaluation"), [(30.0, (22.0, 29.0, 34.5)), (2.0, (0.4, 1.2, 2.3))])
def test_an_evaluation_is_the_first_iteration_without_its_warm_up(
    longest: float, evaluation: tuple[float, ...]
) -> None:
    """Of 1 s, of 8 s at most and never nearly all of it; a first evaluation may be 15 % faster than later ones."""
    found, saved = _divided(_Cost(Interval.exactly(100.0), MEASURED, 0.0, EXACT), None, None, longest)
    assert (found.how, saved.how) == ("combined", "combined")
    assert _digits(found.seconds) == pytest.approx(evaluation)
    assert _digits(saved.seconds) == pytest.approx([100 - end for end in reversed(evaluation)])


def test_where_nothing_divides_an_evaluation_from_its_save_the_save_is_the_smaller_part() -> None:
    found, saved = _divided(_Cost(Interval.exactly(100.0), MEASURED, 0.0, EXACT), None, None, None)
    assert _digits(found.seconds) == pytest.approx([0, 85, 100])
    assert _digits(saved.seconds) == pytest.approx([0, 15, 100])


def test_where_no_step_was_seen_a_row_may_be_anything_in_it() -> None:
    saving, first = evaluations_alone(saving=True), begun(1, card=None)
    parts = saving.costs.step_s, saving.costs.eval_s, saving.costs.checkpoint_s, saving.costs.pair_s
    assert [part.mid for part in parts if part] == pytest.approx([4.9 / 3, 5 / 2, 5 / 8, 5 / 2 + 5 / 8])
    assert first.costs.compile_s is not None
    assert first.costs.compile_s.mid == pytest.approx(float(first.run.iterations.time_s[0]) / 3)


@pytest.mark.parametrize(("beyond_s", "how"), [(0.55, "combined"), (0.61, "measured")])
def test_a_save_is_measured_where_it_is_two_and_a_half_times_its_doubt(beyond_s: float, how: str) -> None:
    """Of 0.23 s: two errors of 0.1 s."""
    alone, saving = (_Cost(Interval.exactly(5.0 + more), MEASURED, 0.1, EXACT) for more in (0.0, beyond_s))
    assert _with_and_without(alone, saving, LogNormalPrior(1.0, 0.75)).how == how


def test_one_row_weighs_as_much_as_an_estimate_within_a_tenth() -> None:
    expected = Interval(*(1.2 * math.exp(z * 0.1 * Z90) for z in (-1, 0, 1)))
    assert combined(Interval.exactly(1.0), 1, expected).mid == pytest.approx(math.sqrt(1.2), rel=0.002)


@pytest.mark.parametrize(("seen", "interval"), [(240, 250), (480, 500), (960, 1000), (1920, 2000), (4800, 5000)])
def test_where_only_the_first_evaluates_the_next_comes_at_the_next_usual_interval(seen: int, interval: int) -> None:
    rows = "iter 0: loss 4, time 9000.00ms\n" + plain(*[100.0] * (seen // 10))
    a = analyse(a_run(rows, max_iters=20_000))
    assert a.phases.first_evaluates
    assert a.costs.eval_s is not None
    assert a.forecast.remaining_s is not None
    evaluations = (a.forecast.remaining_s.mid - 0.1 * (20_000 - seen)) / a.costs.eval_s.mid
    assert evaluations == pytest.approx(20_000 // interval, rel=0.01)


@pytest.mark.parametrize("saves", [False, True])
def test_a_run_that_jumps_to_a_slower_level_has_a_speed_at_its_start(saves: bool) -> None:
    lines = []
    for number in range(40):
        evaluates = number % 20 == 0
        lines += [f"step {number}: train loss 4.0, val loss 4.0"] if evaluates else []
        lines += ["saving checkpoint to out"] if evaluates and number and saves else []
        time_s = (0.05 if number < 9 else 1.0 + 0.002 * (number % 5)) + (5.0 if evaluates else 0.0)
        lines.append(f"iter {number}: loss 4.0, time {1e3 * time_s:.2f}ms, mfu 9.00%")
    costs = analyse(read(from_text("\n".join(lines)))[0]).costs
    assert costs.eval_s is not None
    assert costs.eval_s.low >= 0


def test_a_belief_is_log_normal() -> None:
    belief, normal = LogNormalPrior(2.0, 0.5), NormalDist(math.log(2.0), 0.5)
    densities = _log_density(belief, np.array([0.5, 3.0, 2.0]))
    for seconds, found in zip((0.5, 3.0), densities, strict=False):
        there, middle = normal.pdf(math.log(seconds)) / seconds, normal.pdf(math.log(2.0)) / 2.0
        assert found - densities[2] == pytest.approx(math.log(there / middle))


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(figures(make()))}" for name, make in LOGS.items()]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
