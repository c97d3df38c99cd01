"""What a store answers about planted runs is what was planted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.builders import a_run, random_truth
from tests.fleets import a_scaling

from stepwatch.fleet.questions import FleetRequest, ask
from stepwatch.fleet.rows import LogTask, rows_of
from stepwatch.fleet.store import Store


def stored(logs: dict[str, str], top: Path, *, forecasts: bool = False) -> FleetRequest:
    store = Store(str(top / "store"), create=True)
    for name, text in logs.items():
        path = top / name
        path.write_text(text)
        store.replace([str(path)], rows_of(LogTask(str(path), (str(path),), gpu="h100", forecasts=forecasts)))
    return FleetRequest(store=str(top / "store"))


def test_a_card_among_many_is_compared_with_one_alone(tmp_path: Path) -> None:
    planted = a_scaling(4)
    found = ask(stored(planted.files, tmp_path)).scaling
    assert {scale.cards: scale.efficiency for scale in found} == pytest.approx(planted.efficiency, rel=0.03)
    assert sum(scale.runs for scale in found) == len(planted.files)


def test_forecasts_at_a_tenth_are_held_against_what_the_run_took(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    runs = [
        a_run(replace(random_truth(rng), first_iter=0, kept=1.0, max_iters=2000, log_interval=10)) for _ in range(4)
    ]
    logs = {f"{number}.log": f"Overriding: max_iters = 2000\n{run.text}" for number, run in enumerate(runs)}
    asked = stored(logs, tmp_path, forecasts=True)
    rows = Store(asked.store).table("runs", ("source", "early_true_s")).to_pylist()
    truths = {Path(row["source"]).stem: row["early_true_s"] for row in rows}
    assert truths == pytest.approx({str(number): run.total_s for number, run in enumerate(runs)}, rel=0.05)
    held = ask(asked).held
    assert held is not None
    assert (held.runs, held.inside) == (4, 1.0)
    assert held.error < 0.2
