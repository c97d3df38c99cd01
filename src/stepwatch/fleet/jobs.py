"""Jobs, not processes: starts of the same training in the same directory, chained by their iterations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepwatch.fleet_report import Job

Run = Mapping[str, Any]

COLUMNS = (
    *("source", "run_index", "directory", "work", "max_iters", "first_iteration", "last_iteration", "log_interval"),
    *("iterations", "done", "resumed", "started_at", "first_step_at", "ended_at", "times_from", "wall_s"),
    *("parts_step_s", "step_s_mid", "world_size", "fault"),
)
"""The columns that a run must have."""


@dataclass(slots=True)
class _Chain:
    runs: list[Run] = field(default_factory=list)
    reached: int = -1
    redone: int = 0
    redone_s: float = 0.0
    gap_s: float | None = 0.0

    def takes(self, run: Run) -> bool:
        """Whether the run can continue this chain: the chain is unfinished, and start time and first iteration fit."""
        last = self.runs[-1]
        if last["done"] or run["first_iteration"] is None:
            return False
        by_clock = last["times_from"] == run["times_from"] == "log"
        if by_clock and run["started_at"] < last["ended_at"]:
            return False
        begin, step = run["first_iteration"], max(run["log_interval"] or 1, 1)
        if begin > self.reached + step:
            return False
        # From the beginning: another job of a sweep, unless it is in the same log or the previous run crashed.
        return begin > step or run["source"] == last["source"] or (by_clock and last["fault"] is not None)

    def add(self, run: Run) -> None:
        if self.runs:
            last = self.runs[-1]
            again = max(self.reached - run["first_iteration"] + 1, 0)
            self.redone += again
            mean_s = run["parts_step_s"] and run["iterations"] and run["parts_step_s"] / run["iterations"]
            self.redone_s += again * float(mean_s or run["step_s_mid"] or 0.0)  # sums need the mean
            by_clock = last["times_from"] == run["times_from"] == "log" and run["first_step_at"] is not None
            if not by_clock:
                self.gap_s = None
            elif self.gap_s is not None:
                self.gap_s += max(run["first_step_at"] - last["ended_at"], 0.0)
        self.runs.append(run)
        self.reached = max(self.reached, run["last_iteration"] if run["last_iteration"] is not None else -1)

    def job(self) -> Job:
        first, last = self.runs[0], self.runs[-1]
        walls = sum(run["wall_s"] or 0.0 for run in self.runs)
        if all(run["times_from"] == "log" for run in self.runs):
            walls = max(last["ended_at"] - first["started_at"], walls)
        useful = sum(run["parts_step_s"] or 0.0 for run in self.runs) - self.redone_s
        return Job(
            name=first["source"],
            starts=len(self.runs),
            iterations=self.reached,
            redone=self.redone,
            redone_s=self.redone_s,
            gap_s=self.gap_s,
            wall_s=walls,
            goodput=max(useful, 0.0) / walls if walls > 0 else 0.0,
            cards=last["world_size"] or 1,
            done=bool(last["done"]),
        )


def find_jobs(runs: Iterable[Run]) -> list[Job]:
    """The jobs in runs with these COLUMNS; times are seconds since 1970."""
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault((run["directory"], run["work"], run["max_iters"]), []).append(run)
    jobs = []
    for group in groups.values():
        clocked = all(run["times_from"] == "log" for run in group)
        chains: list[_Chain] = []
        for run in sorted(
            group, key=lambda run: (run["started_at"] if clocked else 0.0, run["source"], run["run_index"])
        ):
            taken = [chain for chain in chains if chain.takes(run)]
            # The chain with the same log, else the one with the most runs.
            nearest = max(
                taken, key=lambda chain: (chain.runs[-1]["source"] == run["source"], len(chain.runs)), default=None
            )
            if nearest is None:
                nearest = _Chain()
                chains.append(nearest)
            nearest.add(run)
        jobs += [chain.job() for chain in chains]
    return jobs
