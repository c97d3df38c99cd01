"""The recorder in a loop of one's own, here of plain Python: `python examples/record_plain_loop.py`.

Writes run.jsonl and weights.json into the current directory; then: `stepwatch explain run.jsonl`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

STEPS, ROWS, WIDTH = 40, 16, 200
weights = [0.0] * WIDTH

Row = tuple[list[float], float]


def batches(count: int) -> Iterator[list[Row]]:
    """Rows of numbers, and their mean to be learnt."""
    chance = random.Random(1)
    for _ in range(count):
        rows = [[chance.random() for _ in range(WIDTH)] for _ in range(ROWS)]
        yield [(row, sum(row) / WIDTH) for row in rows]


def train_on(batch: list[Row], rate: float = 0.001) -> float:
    loss = 0.0
    for row, wanted in batch:
        error = sum(w * x for w, x in zip(weights, row, strict=True)) - wanted
        weights[:] = [w - rate * error * x for w, x in zip(weights, row, strict=True)]
        loss += error**2 / len(batch)
    return loss


def evaluate() -> float:
    return sum(train_on(batch, rate=0.0) for batch in batches(10)) / 10


def save(path: str) -> None:
    Path(path).write_text(json.dumps(weights), encoding="utf-8")


# shown in docs/record.md:
from stepwatch import Recorder  # noqa: E402

with Recorder("run.jsonl", settings={"batch_size": ROWS, "max_iters": STEPS}) as recorder:
    for number, batch in enumerate(recorder.steps(batches(STEPS))):
        recorder.note(loss=train_on(batch))
        if number % 10 == 9:
            with recorder.evaluation() as evaluation:
                evaluation.note(val_loss=evaluate())
            with recorder.checkpoint(path="weights.json"):
                save("weights.json")
# so far
