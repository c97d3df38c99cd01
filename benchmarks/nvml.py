"""A stand-in for NVIDIA's driver that follows a written scenario, and the log of the training in that scenario.

What is modelled: steps that wait for data and then compute, evaluations and saves; a clock that the driver lowers if
heat or power requires it; heat that follows power with a delay; figures as NVML reports them: whole percent of its last
window, milliwatts, KB per second, reasons as bits.
"""

# ruff: noqa: N802, the functions bear NVIDIA's own names
from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

TICK_S = 0.1
WINDOW = 5  # ticks over which NVML takes its utilisation: between 1/6 s and 1 s, by the card
IDLE, POWER_CAP, SOFT_HEAT, HARD_HEAT = 0x01, 0x04, 0x20, 0x40  # nvmlClocksEventReason
TRAINING, NEIGHBOUR = 4711, 815


@dataclass(kw_only=True)
class Plan:
    """One card; a quiet one by default."""

    total_bytes: float = 24 * 2**30
    filled: float = 0.8
    max_mhz: float = 2520.0
    boost: float = 0.97
    """The share of the highest clock, if neither heat nor power limits it."""
    draw_w: float = 300.0
    """At full load and the highest clock."""
    limit_w: float = 350.0
    ambient_c: float = 30.0
    degrees_per_w: float = 0.13
    throttles_c: float = 88.0
    reason: int = SOFT_HEAT
    pcie_kb: float = 120_000.0
    wait: float = 0.02
    """The share of a step in which the card is idle."""
    far: bool = False
    """Whether its processors are on another node than the first processor, which runs the training."""
    others: Mapping[int, float] = field(default_factory=dict)
    works: bool = True


class _Card:
    def __init__(self, plan: Plan, chance: random.Random) -> None:
        self.plan, self.chance = plan, chance
        self.clock = plan.boost * plan.max_mhz
        self.degrees, self.watts, self.reasons = plan.ambient_c + 10.0, 20.0, IDLE
        self.window: deque[float] = deque([0.0], maxlen=WINDOW)
        self.heat_factor = 1.0

    def tick(self, work: float) -> None:
        plan, idle_w = self.plan, 25.0
        self.window.append(work)
        self.reasons = 0 if work else IDLE
        top = plan.boost * plan.max_mhz * self.heat_factor
        full_w = idle_w + (plan.draw_w - idle_w) * (top / plan.max_mhz) ** 2.4  # power also rises with voltage squared
        if full_w > plan.limit_w and work:
            top *= ((plan.limit_w - idle_w) / (full_w - idle_w)) ** (1 / 2.4)
            full_w, self.reasons = plan.limit_w, self.reasons | POWER_CAP
        self.clock = top
        self.watts += (idle_w + (full_w - idle_w) * work - self.watts) * 0.5
        target = plan.ambient_c + plan.degrees_per_w * self.watts
        self.degrees += (target - self.degrees) * TICK_S / 15.0  # seconds until a cooler has warmed up
        if self.degrees >= plan.throttles_c:
            self.heat_factor = max(self.heat_factor * 0.995, 0.3)
        elif self.degrees < plan.throttles_c - 2:
            self.heat_factor = min(self.heat_factor * 1.002, 1.0)
        if self.heat_factor < 0.995:
            self.reasons |= plan.reason


class Scene:
    """A training on some cards: `advance` moves its time, the nvml functions report the state of the cards."""

    def __init__(
        self, plans: list[Plan], *, seed: int = 0, step_s: float = 1.2, evaluates_every: int = 40,
        training: Callable[[], int] = lambda: TRAINING,
    ) -> None:  # fmt: skip
        self._chance = random.Random(seed)
        self.cards = [_Card(plan, self._chance) for plan in plans]
        self._training, self._step_s, self._every = training, step_s, evaluates_every
        self.now_s, self._iteration, self._begun_s = 0.0, 0, 0.0
        self._left = self._new_step()
        self.lines: list[tuple[float, str]] = []

    def _new_step(self) -> list[tuple[str, float]]:
        plan = max((card.plan for card in self.cards), key=lambda plan: plan.wait * plan.works)
        whole = self._step_s * self._chance.gauss(1.0, 0.01)
        parts = [("wait", whole * plan.wait / (1 - plan.wait)), ("work", whole)]
        if self._iteration and self._iteration % self._every == 0:
            parts = [("eval", 6.0), ("save", 2.0), *parts]
        return parts

    def advance(self, until_s: float) -> None:
        while self.now_s < until_s:
            self.now_s += TICK_S
            part, left = self._left[0]
            slowest = min(card.clock / (card.plan.boost * card.plan.max_mhz) for card in self.cards if card.plan.works)
            left -= TICK_S * (slowest if part in ("work", "eval") else 1.0)
            for card in self.cards:
                waits = part == "save" or (part == "wait" and card.plan.wait >= 0.02)
                card.tick(0.0 if waits or not card.plan.works else self._chance.uniform(0.93, 1.0))
            self._left[0] = part, left
            if left <= 0:
                self._left.pop(0)
                if part == "eval":
                    self.lines.append((self.now_s, f"step {self._iteration}: train loss 3.9000, val loss 4.0000"))
                elif part == "save":
                    self.lines.append((self.now_s, "saving checkpoint to out"))
                elif part == "work":
                    took_s, self._begun_s = self.now_s - self._begun_s, self.now_s
                    text = f"iter {self._iteration}: loss 4.0000, time {took_s * 1000:.2f}ms, mfu 30.00%"
                    self.lines.append((self.now_s, text))
                    self._iteration += 1
                    self._left = self._new_step()

    # --- what NVML answers --------------------------------------------------------------------------------------

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.65.06"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> _Card:
        return self.cards[index]

    def nvmlDeviceGetName(self, handle: _Card, /) -> str:
        return "NVIDIA GeForce RTX 4090"

    def nvmlDeviceGetMemoryInfo(self, handle: _Card, /) -> Any:
        used = int(handle.plan.total_bytes * handle.plan.filled * handle.plan.works)
        return SimpleNamespace(total=int(handle.plan.total_bytes), used=used, free=int(handle.plan.total_bytes) - used)

    def nvmlDeviceGetUtilizationRates(self, handle: _Card, /) -> Any:
        return SimpleNamespace(gpu=int(100 * sum(handle.window) / len(handle.window)), memory=50)

    def nvmlDeviceGetClockInfo(self, handle: _Card, kind: int, /) -> int:
        return int(handle.clock) // 15 * 15 if handle.window[-1] else 210

    def nvmlDeviceGetMaxClockInfo(self, handle: _Card, kind: int, /) -> int:
        return int(handle.plan.max_mhz)

    def nvmlDeviceGetPowerUsage(self, handle: _Card, /) -> int:
        return int(handle.watts * handle.chance.gauss(1.0, 0.02) * 1000)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: _Card, /) -> int:
        return int(handle.plan.limit_w * 1000)

    def nvmlDeviceGetTemperature(self, handle: _Card, sensor: int, /) -> int:
        return int(handle.degrees)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: _Card, /) -> int:
        return handle.reasons

    def nvmlDeviceGetPcieThroughput(self, handle: _Card, counter: int, /) -> int:
        return int(handle.plan.pcie_kb * handle.chance.uniform(0.3, 0.7) * (handle.window[-1] > 0))

    def nvmlDeviceGetComputeRunningProcesses(self, handle: _Card, /) -> list[Any]:
        own = {self._training(): handle.plan.total_bytes * handle.plan.filled} if handle.plan.works else {}
        both = {**own, **handle.plan.others}
        return [SimpleNamespace(pid=pid, usedGpuMemory=int(size)) for pid, size in both.items()]

    def nvmlDeviceGetCpuAffinity(self, handle: _Card, words: int, /) -> list[int]:
        return [0xFFFFFFFF00000000 if handle.plan.far else 0xFFFFFFFF][:words]  # for two nodes with 32 each

    def __getattr__(self, name: str) -> Any:
        """A function that this driver lacks raises a separate error, as in NVML."""
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def missing(*_: Any) -> Any:
            raise OSError("Not Supported")

        return missing
