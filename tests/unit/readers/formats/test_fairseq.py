"""fairseq: averages since the line before, by the clock."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import numpy as np
import pytest

from stepwatch.readers import read
from stepwatch.run import Run
from stepwatch.sources import from_text

_BEGIN = datetime(2024, 3, 8, 18, 40)


class _Log:
    def __init__(self, form: str) -> None:
        self.form, self.now, self.lines = form, 0.0, list[str]()

    def say(self, name: str, text: str) -> None:
        moment = _BEGIN + timedelta(seconds=self.now)
        if self.form == "json":
            self.lines.append(f"[{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}][{name}][INFO] - {text}")
        elif self.form == "text":
            self.lines.append(f"{moment:%Y-%m-%d %H:%M:%S} | INFO | {name} | {text}")
        else:
            self.lines.append(f"| {text}")

    def update(self, epoch: int, number: int) -> None:
        wall = round(self.now)
        if self.form == "json":
            figures = {"loss": "4.720", "ups": "0.5", "num_updates": str(number), "train_wall": "99", "wall": str(wall)}
            self.say("train_inner", json.dumps({"epoch": epoch, "update": 0.416, **figures}))
        else:
            text = f"loss=4.720, ppl=26.3, ups=0.5, num_updates={number}, lr=3e-06, train_wall=99, wall={wall}"
            self.say("train_inner", f"epoch {epoch:03d}:    {number % 100:3d} / 282 {text}")

    def validate(self, epoch: int, number: int) -> None:
        self.say("fairseq_cli.train", 'begin validation on "valid" subset')
        self.now += 40.0
        if self.form == "json":
            figures = {"epoch": epoch, "valid_loss": "4.5", "valid_num_updates": str(number)}
            self.say("valid", json.dumps(figures))
        else:
            self.say("valid", f"epoch {epoch:03d} | valid on 'valid' subset | loss 4.5 | wps 99 | num_updates {number}")
        self.now += 3.0
        where = f"(epoch {epoch} @ {number} updates, score 4.5)"
        self.say("fairseq.checkpoint_utils", f"Saved checkpoint out/best.pt {where} (writing took 3.0 seconds)")

    def run(self) -> Run:
        (run,) = read(from_text("\n".join(self.lines) + "\n"))
        assert run.format == "fairseq"
        return run


@pytest.mark.parametrize("form", ["json", "text"])
def test_validation_and_saves_are_taken_out(form: str) -> None:
    log = _Log(form)
    log.say("fairseq_cli.train", "{'_name': None, 'optimization': {'max_update': 40000, 'lr': [0.0005]}}")
    log.say("fairseq_cli.train", "num. shared model params: 95,044,608 (num. trained: 95,044,608)")
    log.say("fairseq_cli.train", "training on 8 devices (GPUs/TPUs)")
    for epoch in range(1, 5):
        log.say("fairseq_cli.train", "Start iterating over samples")
        for tick in range(1, 6):
            log.now += 200.0
            if tick < 5:
                log.update(epoch, 500 * (epoch - 1) + 100 * tick)
        log.validate(epoch, 500 * epoch)
    log.say("fairseq_cli.train", "done training in 4172.0 seconds")
    run = log.run()
    assert np.allclose(run.iterations.time_s, 2.0, rtol=0.02)
    assert [each.at for each in run.evaluations] == [500, 1000, 1500, 2000]
    assert all(each.took_s == pytest.approx(40.0, abs=1.0) for each in run.evaluations)
    assert [(each.at, each.took_s) for each in run.checkpoints] == [(500 * epoch, 3.0) for epoch in range(1, 5)]
    assert run.settings.count("max_iters") == 40000
    assert run.settings.count("world_size") == 8
    assert run.settings.number("n_params") == 95044608
    assert run.ended_by_plan


def test_without_a_clock_wall_tells() -> None:
    log = _Log("older")
    for number in range(100, 2001, 100):
        log.now += 200.0
        log.update(1, number)
    run = log.run()
    assert np.allclose(run.iterations.time_s, 2.0, rtol=0.02)
