"""Files of the recorder from planted times: what is written is true, so that the analysis must find it again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

STARTED = 1_763_264_000.25


@dataclass(frozen=True, kw_only=True)
class Planted:
    """The times of one process, in the order in which its phases ran."""

    steps: int = 60
    first_step: int = 0
    step_s: float | Callable[[int], float] = 0.2
    data_s: float | Callable[[int], float] | None = None
    wait_s: float | Callable[[int], float] | None = None
    device_s: float | None = None
    eval_interval: int | None = 20
    eval_s: float = 1.5
    checkpoint_s: float = 0.4
    compile_s: float | None = 7.5
    before_s: float = 3.0
    """From the start of the process to its first phase."""
    between_s: float = 0.01
    """Between two phases, in nobody's time."""
    rank: int = 0
    world_size: int = 1
    settings: dict[str, Any] = field(default_factory=lambda: {"batch_size": 12, "max_iters": 60})
    noise: float = 0.01
    seed: int = 1
    closed: bool = True
    started: float = STARTED


class Record:
    """The lines, and what is true of them."""

    def __init__(self, planted: Planted) -> None:
        self.planted = planted
        self.lines: list[str] = []
        self.clock = planted.started
        self.parts = dict.fromkeys(("step", "eval", "checkpoint", "compile"), 0.0)
        self._random = np.random.default_rng(planted.seed)
        self._play()

    @property
    def text(self) -> str:
        return "".join(line + "\n" for line in self.lines)

    @property
    def wall_s(self) -> float:
        return self.clock - self.planted.started

    def _play(self) -> None:
        p = self.planted
        self.lines.append(header(p))
        self.clock += p.before_s
        if p.compile_s is not None:
            self._phase("compile", 0, p.compile_s)
        for number in range(p.first_step, p.first_step + p.steps):
            if p.eval_interval and number % p.eval_interval == 0:
                self._phase("eval", number, p.eval_s, ',"train_loss":3.1000,"val_loss":3.2000')
                if number > p.first_step:
                    self._phase("checkpoint", number, p.checkpoint_s, ',"path":"ckpt.pt"')
            self._step(number)
        if p.closed:
            self.lines.append(f'{{"end":{p.steps},"t":{self.clock:.6f}}}')

    def _phase(self, kind: str, number: int, seconds: float, more: str = "") -> None:
        self.clock += self.planted.between_s + seconds
        self.parts[kind] += seconds
        self.lines.append(f'{{"{kind}":{number},"s":{seconds:.6f},"t":{self.clock:.6f}{more}}}')

    def _step(self, number: int) -> None:
        p = self.planted
        seconds = _at(p.step_s, number) * float(1 + p.noise * self._random.standard_normal())
        wait = None if p.wait_s is None else _at(p.wait_s, number)
        seconds += wait or 0.0
        inside = "" if p.data_s is None else f',"data_s":{_at(p.data_s, number):.6f}'
        inside += "" if wait is None else f',"wait_s":{wait:.6f}'
        self._phase("step", number, seconds, f'{inside},"loss":{3 + 1 / (number + 1):.4f}')
        if p.device_s is not None:
            self.lines.append(f'{{"device":{number},"s":{p.device_s:.6f}}}')


def header(p: Planted, *, continued: bool = False) -> str:
    told = {
        "stepwatch": 1, "started": p.started, "rank": p.rank, "world_size": p.world_size, "pid": 7,
        "gpu": "NVIDIA GeForce RTX 4070", "driver": "550.54", "clocks_mhz": {"sm": 2475, "memory": 10501},
        "torch": "2.13.0", "python": "3.11.7", "settings": p.settings, **({"continued": True} if continued else {}),
    }  # fmt: skip
    return json.dumps(told, separators=(",", ":"))


def a_record(**planted: Any) -> Record:
    return Record(Planted(**planted))


def several_ranks(
    own_s: Sequence[float | Callable[[int], float]], *, offset_s: float = 3.0, **planted: Any
) -> list[Record]:
    """One record per rank: each step waits for the slowest, and the clocks of the machines differ."""
    steps = Planted(**planted).steps
    slowest = [max(_at(own, number) for own in own_s) for number in range(steps)]
    return [
        Record(Planted(**{
            "world_size": len(own_s), **planted, "rank": rank, "step_s": own, "seed": rank,
            "wait_s": lambda number, own=own: slowest[number] - _at(own, number), "started": STARTED + offset_s * rank,
        }))
        for rank, own in enumerate(own_s)
    ]  # fmt: skip


def _at(value: float | Callable[[int], float], number: int) -> float:
    return value(number) if callable(value) else value
