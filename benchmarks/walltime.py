"""Wall time of whole runs: stepwatch against clocks that did not read the log (TRUTH.tsv).

python -m benchmarks.walltime
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.adapter import NoAnswer, corpus_or_exit, explain_json
from benchmarks.phases import LoggedRun, lines_of, parse

SECOND_RUN_ONLY = "head8_dp4"  # this file contains two runs; its truth is the second's (README of the corpus)
SPIKE = 1.5  # plain arithmetic treats a time above this many medians as a spike


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """One row of TRUTH.tsv."""

    ident: str
    path: Path
    wall_s: float
    published_plain_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The claimed time of one run, with its interval, and the truth."""

    ident: str
    truth_s: float
    claimed_s: float
    low_s: float
    high_s: float
    failure: str | None = None

    @property
    def error(self) -> float:
        return self.claimed_s / self.truth_s - 1

    @property
    def covered(self) -> bool:
        return self.low_s <= self.truth_s <= self.high_s

    @property
    def width(self) -> float:
        return self.high_s / self.low_s if self.low_s > 0 else float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class WallTime(Claim):
    """The result for a whole run, next to plain arithmetic."""

    plain_s: float
    published_plain_s: float

    @property
    def plain_error(self) -> float:
        return self.plain_s / self.truth_s - 1


def truths(place: Path) -> list[Truth]:
    """The 21 measured runs."""
    folder = place / "nanogpt-wallclock"
    head, *rows = (line.split("\t") for line in (folder / "TRUTH.tsv").read_text(encoding="utf-8").splitlines())
    table = [dict(zip(head, row, strict=False)) for row in rows if len(row) > 1]
    return [
        Truth(
            ident=f"run {number}",
            path=(folder / row["log"]).resolve(),
            wall_s=float(row["true_total_s"]),
            published_plain_s=float(row["naive_est_s"]),
        )
        for number, row in enumerate(table, start=1)
    ]


def plain(run: LoggedRun) -> float:
    """The arithmetic anyone would do: log_interval x median of the normal rows for each row, plus the spikes."""
    numbers = [row.number for row in run.rows]
    interval = int(median([b - a for a, b in pairwise(numbers)])) if len(numbers) > 1 else 1
    normal = run.normal_s()
    steps = (len(numbers) - 1) * interval + 1
    return steps * normal + sum(row.time_s - normal for row in run.rows if row.time_s > SPIKE * normal)


def _claim(truth: Truth, report: dict[str, Any]) -> tuple[float, float, float]:
    """wall_s and its interval, summed over the file's runs (with the one exception named above)."""
    goodputs = [run["goodput"] for run in report["runs"]]
    if SECOND_RUN_ONLY in truth.path.name:
        goodputs = goodputs[1:2]
    intervals = [goodput["wall_interval_s"] for goodput in goodputs]
    wall = sum(goodput["wall_s"] for goodput in goodputs)
    return wall, sum(each["low"] for each in intervals), sum(each["high"] for each in intervals)


def measure_run(truth: Truth) -> WallTime:
    """One run."""
    failure = None
    try:
        claimed, low, high = _claim(truth, explain_json(truth.path, "--no-iterations"))
    except (NoAnswer, KeyError, TypeError) as error:
        claimed, low, high, failure = 0.0, 0.0, 0.0, f"{type(error).__name__}: {error}"
    runs = parse(lines_of(truth.path))
    counted = runs[1:2] if SECOND_RUN_ONLY in truth.path.name else runs
    return WallTime(
        ident=truth.ident,
        truth_s=truth.wall_s,
        claimed_s=claimed,
        low_s=low,
        high_s=high,
        plain_s=sum(plain(run) for run in counted),
        published_plain_s=truth.published_plain_s,
        failure=failure,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WallTimes:
    """All measured runs."""

    runs: list[WallTime]

    def within(self, share: float) -> int:
        return sum(abs(run.error) <= share for run in self.runs)

    def plain_within(self, share: float) -> int:
        return sum(abs(run.plain_error) <= share for run in self.runs)

    def published_within(self, share: float) -> int:
        return sum(abs(run.published_plain_s / run.truth_s - 1) <= share for run in self.runs)

    def covered(self) -> int:
        return sum(run.covered for run in self.runs)

    def width(self) -> float:
        return median(run.width for run in self.runs)


def measure(place: Path) -> WallTimes:
    """The 21 runs of TRUTH.tsv."""
    return WallTimes(runs=[measure_run(truth) for truth in truths(place)])


def _row(run: WallTime) -> str:
    note = "yes" if run.covered else "**no**"
    return (
        f"| {run.ident} | {run.truth_s:.1f} | {run.claimed_s:.1f} | {100 * run.error:+.1f} % "
        f"| {run.low_s:.1f} - {run.high_s:.1f} | {run.width:.3f} | {note} | {100 * run.plain_error:+.1f} % |"
    )


def table(result: WallTimes) -> str:
    """The result as Markdown."""
    n = len(result.runs)
    out = [
        "| run | measured s | stepwatch s | error | 90 % interval s | high/low | covered | plain arithmetic |",
        "|---|---|---|---|---|---|---|---|",
        *[_row(run) for run in result.runs],
        "",
        f"| n = {n} | stepwatch | wanted | plain, runs split | plain, as published |",
        "|---|---|---|---|---|",
    ]
    for share, wanted in ((0.02, 13), (0.05, 17)):
        plain_ones = f"{result.plain_within(share)} | {result.published_within(share)}"
        out.append(f"| within {100 * share:.0f} % | {result.within(share)} | ≥ {wanted} | {plain_ones} |")
    out.append(f"| interval covers | {result.covered()} | ≥ 17 | - | - |")
    out.append(f"| median high/low | {result.width():.3f} | ≤ 1.1 | - | - |")
    out += [f"\n{run.ident}: not answered" for run in result.runs if run.failure]  # its message may name the file
    return "\n".join(out)


if __name__ == "__main__":
    measured = measure(corpus_or_exit())
    print("".join(f"{run.ident}: {run.failure}\n" for run in measured.runs if run.failure) + table(measured))
