"""How well a calibrated estimate holds on this machine: real runs of nanoGPT's model against `--gpu this`.

    python -m benchmarks.calibration --nanogpt DIR [--clock cpu] [--rounds N] [--shapes other]

DIR is a checkout of nanoGPT, of which model.py is used. Calibrations and runs alternate, so that a disturbance of the
machine affects both alike, and the medians over all rounds are compared. On a machine that others use too, `--clock
cpu` counts the time of this process alone, on one thread. The noise floor is how far two runs of the same shape differ.
The eight held-out shapes are on no grid of the calibration, and the model of the step is unchanged since before they
were first run; the `seen` and `other` shapes were looked at while it was made. After runs of the held-out shapes the
interval of checkpoints was widened and more saves were measured: for checkpoints they are no longer held out.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from stepwatch.estimator.estimation import Estimate, estimate
from stepwatch.estimator.workload import Workload
from stepwatch.gpus.calibration import Calibration, Curve, Measurement, save_calibration
from stepwatch.gpus.this_machine import as_card
from stepwatch.trainer import measuring
from stepwatch.trainer.measuring import Clock, calibrate
from stepwatch.units import Interval

PARTS = ("step", "evaluation", "checkpoint")
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}
ROUNDS = 4
VISIT_S, FEWEST, MOST = 1.0, 3, 30


class Shape(NamedTuple):
    n_layer: int
    n_head: int
    n_embd: int
    block_size: int
    batch_size: int
    vocab_size: int

    def workload(self) -> Workload:
        return Workload(**self._asdict(), grad_accum=1, dtype="float32", compile=False, eval_iters=1)

    def __str__(self) -> str:
        return " / ".join(map(str, self))


SHAPES = {
    "held-out": (
        Shape(3, 2, 80, 128, 10, 65), Shape(5, 4, 224, 320, 3, 90), Shape(8, 6, 288, 96, 4, 300),
        Shape(2, 8, 448, 192, 2, 10000), Shape(6, 3, 144, 448, 4, 2500), Shape(3, 3, 96, 160, 5, 50304),
        Shape(4, 8, 512, 224, 1, 30000), Shape(7, 4, 112, 64, 16, 500),
    ),
    "seen": (
        Shape(4, 4, 128, 64, 12, 65), Shape(6, 6, 384, 256, 4, 65), Shape(2, 2, 96, 512, 4, 300),
        Shape(8, 4, 192, 128, 8, 1000), Shape(3, 8, 512, 64, 4, 5000), Shape(4, 4, 160, 384, 2, 50304),
        Shape(5, 5, 320, 192, 1, 20000), Shape(2, 4, 64, 96, 3, 50304),
    ),
    "other": (
        Shape(3, 3, 96, 96, 6, 65), Shape(4, 6, 192, 192, 5, 1000), Shape(2, 5, 320, 320, 2, 5000),
        Shape(6, 5, 160, 128, 12, 65), Shape(5, 7, 448, 384, 2, 65), Shape(7, 2, 72, 80, 9, 200),
        Shape(8, 8, 384, 80, 1, 5000), Shape(3, 4, 256, 112, 2, 50257), Shape(5, 3, 192, 448, 3, 5000),
        Shape(4, 2, 96, 48, 5, 12000),
    ),
}  # fmt: skip


class Visit(NamedTuple):
    """Medians of one run, in seconds."""

    step: float
    evaluation: float
    checkpoint: float


def main() -> None:
    options = _options()
    print(measure(options.nanogpt, **{name: value for name, value in vars(options).items() if name != "nanogpt"}))


def measure(
    nanogpt: str, *, clock: str = "wall", rounds: int = ROUNDS, shapes: str = "held-out", directory: str = ".",
    keep: str | None = None,
) -> str:  # fmt: skip
    sys.path.insert(0, nanogpt)
    if clock == "cpu":
        torch.set_num_threads(1)
    measuring.ROUNDS = 1  # the rounds are repeated here, with runs in between
    calibrations: list[Calibration] = []
    visits: list[list[Visit]] = [[] for _ in SHAPES[shapes]]
    with tempfile.TemporaryDirectory(dir=directory) as place:
        for turn in range(rounds):
            calibrations.append(calibrate("cpu", place, compiles=False, clock=CLOCKS[clock]))
            for runs, shape in zip(visits, SHAPES[shapes], strict=True):
                runs.append(visit(shape, CLOCKS[clock], place))
            if keep:
                save_calibration(pooled(calibrations), os.path.join(keep, f"{shapes}.json"))
                Path(keep, f"{shapes}-runs.json").write_text(json.dumps(visits), encoding="utf-8")
            print(f"round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
    return table(SHAPES[shapes], pooled(calibrations), visits)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", required=True, metavar="DIR")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--shapes", choices=SHAPES, default="held-out")
    parser.add_argument("--directory", default=".", help="where checkpoints are written")
    parser.add_argument("--keep", metavar="DIR", help="where the calibration and the times of the runs are kept")
    return parser.parse_args()


def pooled(found: Sequence[Calibration]) -> Calibration:
    """The median of each figure over all calibrations."""
    names = [name for name in found[0].figures if name != "waiting"]  # the load here comes from the runs themselves
    figures = {name: _median([one.figures[name] for one in found]) for name in names}
    curves = {
        name: _median_curve([one.curves[name] for one in found]) for name in found[0].curves if "matmul" not in name
    }
    return replace(found[0], figures=figures, curves=curves)


def _median(figures: Sequence[Measurement]) -> Measurement:
    value, low, high = (statistics.median(getattr(one, end) for one in figures) for end in ("value", "low", "high"))
    return Measurement(value, min(low, value), max(high, value), figures[0].unit)


def _median_curve(curves: Sequence[Curve]) -> Curve:
    return Curve(curves[0].axes, tuple(map(_median, zip(*(curve.figures for curve in curves), strict=True))))


# --- runs -------------------------------------------------------------------------------------------------------


def visit(shape: Shape, clock: Clock, directory: str) -> Visit:
    """Steps, forward passes and checkpoints of nanoGPT's model, as its train.py does them on a CPU."""
    model, optimizer = _model(shape)
    batch = torch.randint(shape.vocab_size, (shape.batch_size, shape.block_size))

    def step() -> None:
        loss = model(batch, batch)[1]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()

    @torch.no_grad()
    def evaluate() -> None:
        model(batch, batch)[1].item()

    def save() -> None:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": 1}
        torch.save(state, os.path.join(directory, "ckpt.pt"))

    return Visit(*(_median_s(act, clock) for act in (step, evaluate, save)))


def _model(shape: Shape) -> tuple[Any, Any]:
    import model as nanogpt

    with contextlib.redirect_stdout(io.StringIO()):
        model = nanogpt.GPT(nanogpt.GPTConfig(**_without_batch(shape), bias=False, dropout=0.0))
        return model, model.configure_optimizers(0.1, 1e-4, (0.9, 0.95), "cpu")


def _without_batch(shape: Shape) -> dict[str, int]:
    return {name: size for name, size in shape._asdict().items() if name != "batch_size"}


def _median_s(act: Callable[[], None], clock: Clock) -> float:
    act()
    act()
    taken: list[float] = []
    while len(taken) < FEWEST or (sum(taken) < VISIT_S and len(taken) < MOST):
        start = clock()
        act()
        taken.append(clock() - start)
    return statistics.median(taken)


# --- the table --------------------------------------------------------------------------------------------------


def table(shapes: Sequence[Shape], known: Calibration, visits: Sequence[Sequence[Visit]]) -> str:
    card = as_card(known)
    found = [estimate(shape.workload(), card) for shape in shapes]
    lines = ["| layers / heads / width / block / batch / vocabulary | step | evaluation pass | checkpoint |"]
    lines += ["|---|---:|---:|---:|"]
    errors: dict[str, list[float]] = {part: [] for part in PARTS}
    inside: dict[str, list[bool]] = {part: [] for part in PARTS}
    for shape, answer, runs in zip(shapes, found, visits, strict=True):
        assert answer is not None
        cells = []
        for part in PARTS:
            truth, claimed = statistics.median(getattr(run, part) for run in runs), _claimed(answer, part)
            errors[part].append(claimed.mid / truth - 1)
            inside[part].append(claimed.holds(truth))
            cells.append(f"{truth * 1e3:.1f} ms, {errors[part][-1]:+.1%}")
        lines.append(f"| {shape} | " + " | ".join(cells) + " |")
    for part in PARTS:
        lines.append(
            f"\n{part}: median error {statistics.median(map(abs, errors[part])):.1%}, in the interval "
            f"{sum(inside[part])} of {len(shapes)}, noise floor {_noise_floor(visits, part):.1%}"
        )
    return "\n".join([*lines, f"\nspread within the calibration: {known.noise:.1%}"])


def _claimed(answer: Estimate, part: str) -> Interval:
    """The claim for one part; for an evaluation, one forward pass: the workload has two."""
    return {"step": answer.step_s, "evaluation": answer.eval_s.scaled(0.5), "checkpoint": answer.checkpoint_s}[part]


def _noise_floor(visits: Sequence[Sequence[Visit]], part: str) -> float:
    """The median difference between two runs of the same shape."""
    pairs = [(getattr(a, part), getattr(b, part)) for runs in visits for a, b in itertools.pairwise(runs)]
    return statistics.median(abs(a / b - 1) for a, b in pairs) if pairs else 0.0


if __name__ == "__main__":
    main()
