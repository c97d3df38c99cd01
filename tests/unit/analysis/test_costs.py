"""The figures of planted logs, to the fifth digit: an estimator changes because that is meant, never by the way.

What was planted is checked elsewhere; here every weight, prior and doubt of the analysis has a log whose answer moves
with it. After a change that is meant: `python -m tests.unit.analysis.test_costs` writes the table anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.builders import Saves, Shape, Truth, a_log
from tests.recorded import Planted
from tests.recorded import Record as Recorded

from stepwatch.analysis import Analysis, analyse
from stepwatch.gpus import find_gpu
from stepwatch.readers import read
from stepwatch.run import Run
from stepwatch.settings import Origin, Settings, Value
from stepwatch.sources import from_text
from stepwatch.units import Interval

TABLE = Path(__file__).with_name("figures.json")


def a_run(text: str, **settings: Value) -> Run:
    run = read(from_text(text))[-1]
    return replace(run, settings=run.settings.beneath(Settings.of(Origin.USER, settings)))


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


@pytest.mark.parametrize("name", LOGS)
def test_the_figures_of_a_planted_log_stay(name: str) -> None:
    known = json.loads(TABLE.read_text(encoding="utf-8"))[name]
    found = figures(LOGS[name]())
    assert found.pop("how") == known.pop("how")
    assert found.pop("findings") == known.pop("findings")
    assert list(found) == list(known)
    for part, values in found.items():
        assert values == pytest.approx(known[part], rel=1e-5, abs=1e-8), part


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(figures(make()))}" for name, make in LOGS.items()]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
