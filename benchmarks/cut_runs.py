"""Forecasts: runs cut after a tenth of their lines and given their length, against how long they really took.

The truth is the measured wall time if TRUTH.tsv has it, else `arithmetic` over the WHOLE log, below.
    python -m benchmarks.cut_runs
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.adapter import NoAnswer, corpus_or_exit, explain_json
from benchmarks.phases import EVALUATIONS, ITER, STEP, CorpusLog, LoggedRun, Row, corpus_logs, lines_of, parse
from benchmarks.walltime import Claim, truths

SHARE = 0.1
FEWEST_ROWS = 30
SLEEP = 0.2  # a plain row longer than this share of the total is a sleeping machine, which nobody can forecast
WINDOW = 25  # rows on either side for a local median
DRAIN_EVERY = 100  # PyTorch's DDP waits for the queue every 100 iterations: shown there, but not lost (LOGS.md §3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A log that can be cut, and its truth."""

    ident: str
    lines: list[str]
    first: int  # the first step or iter line
    last: int
    max_iters: int
    truth_s: float
    measured: bool
    rows: int
    seen: int  # evaluations after the first iteration that the cut log still contains
    cut: int  # the index of the first line cut away

    def text(self, header: bool) -> str:
        return "\n".join(self.lines[0 if header else self.first : self.cut]) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast(Claim):
    """The forecast of a cut run."""

    rows: int
    seen: int
    measured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecasts:
    """All cases of one variant."""

    name: str
    cases: list[Forecast]

    def error(self) -> float:
        return median(abs(case.error) for case in self.cases)

    def covered(self) -> float:
        return sum(case.covered for case in self.cases) / len(self.cases)

    def width(self) -> float:
        return median(case.width for case in self.cases)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRuns:
    """Both variants, and what was left out for which reason."""

    with_header: Forecasts
    without_header: Forecasts
    left_out: list[tuple[str, str]]


def drained(run: LoggedRun) -> bool:
    """Whether nearly all plain rows at multiples of 100 are slow and nearly no others: DDP's sampling, no time lost.

    Only if some iterations are unlogged: if all are logged, the times add up, whichever row they are charged to.
    """
    normal = run.normal_s()
    rows = [row for row in run.rows if row.truth == "step"]
    if run.rows[-1].number - run.rows[0].number < 2 * len(run.rows):
        return False
    at = [row.time_s > 1.5 * normal for row in rows if row.number % DRAIN_EVERY == 0]
    others = [row.time_s > 1.5 * normal for row in rows if row.number % DRAIN_EVERY]
    return len(at) >= 5 and bool(others) and sum(at) >= 0.8 * len(at) and sum(others) <= 0.05 * len(others)


def local_medians(rows: list[Row]) -> list[float]:
    """For each row the median of the plain rows around it."""
    plain = [(index, row.time_s) for index, row in enumerate(rows) if row.truth == "step"]
    out, near = [], 0
    for index in range(len(rows)):
        while near < len(plain) - 1 and plain[near][0] < index:
            near += 1
        window = [time_s for _, time_s in plain[max(0, near - WINDOW) : near + WINDOW + 1]]
        out.append(median(window) if window else rows[index].time_s)
    return out


def _excess(run: LoggedRun, normal: list[float], phase: str) -> float | None:
    seen = [row.time_s - base for row, base in zip(run.rows, normal, strict=True) if row.truth == phase]
    return median(seen) if seen else None


def hidden_s(run: LoggedRun, normal: list[float]) -> float:
    """The time of evaluations on unlogged iterations, at the median excess of the logged ones."""
    costs = {phase: _excess(run, normal, phase) for phase in EVALUATIONS}
    known = [cost for cost in costs.values() if cost is not None]
    total = 0.0
    for _, saved in run.hidden:
        cost = costs["eval+checkpoint" if saved else "eval"]
        total += cost if cost is not None else (known[0] if known else 0.0)
    return total


def arithmetic(run: LoggedRun) -> float:
    """The logged times + the unlogged iterations at their local median + the unlogged evaluations."""
    rows = run.rows
    gaps = [1] + [b.number - a.number for a, b in pairwise(rows)]
    if rows[0].averaged:  # a mean over the interval includes everything in it, also for the first row
        gaps[0] = rows[0].number
        return sum(row.time_s * gap for row, gap in zip(rows, gaps, strict=True))
    normal, quiet = local_medians(rows), drained(run)
    total = hidden_s(run, normal)
    for row, gap, base in zip(rows, gaps, normal, strict=True):
        free = quiet and row.truth == "step" and row.number % DRAIN_EVERY == 0
        total += (base if free else row.time_s) + (gap - 1) * base
    return total


def _total_or_refusal(runs: list[LoggedRun]) -> float | str:
    """The arithmetic of the only run, or why the log cannot be cut, according to the written rules."""
    if len(runs) != 1:
        return f"{len(runs)} runs in one file"
    run = runs[0]
    if len(run.rows) < FEWEST_ROWS:
        return f"only {len(run.rows)} iteration rows"
    if not run.starts and not run.rows[0].averaged:
        return "starts in mid-run: its total is not defined by the log"
    longest = max((row.time_s for row in run.rows if row.truth == "step"), default=0.0)
    total = arithmetic(run)
    if longest > SLEEP * total:
        return f"a sleeping machine: one line is {100 * longest / total:.0f} % of the total"
    return total


def case_of(log: CorpusLog, measured: dict[Path, float]) -> Case | str:
    """The case of a log, or why there is none."""
    lines = lines_of(log.path)
    runs = parse(lines)
    total = _total_or_refusal(runs)
    if isinstance(total, str):
        return total
    marks = [at for at, line in enumerate(lines) if STEP.search(line) or ITER.search(line)]
    cut = marks[0] + max(1, round(SHARE * (marks[-1] + 1 - marks[0])))
    kept = parse(lines[:cut])
    if not kept:
        return "a tenth of its lines holds no iteration"
    wall = measured.get(log.path.resolve())
    return Case(
        ident=log.ident,
        lines=lines,
        first=marks[0],
        last=marks[-1],
        max_iters=runs[0].rows[-1].number,
        truth_s=total if wall is None else wall,
        measured=wall is not None,
        rows=len(runs[0].rows),
        seen=sum(row.truth in EVALUATIONS for row in kept[0].rows) + len(kept[0].hidden),
        cut=cut,
    )


def _same_file(place: Path) -> dict[Path, float]:
    """Measured seconds by file; a log in both folders is listed under both paths."""
    walls = {truth.path: truth.wall_s for truth in truths(place)}
    by_text = {path.read_bytes(): wall for path, wall in walls.items()}
    for log in corpus_logs(place):
        if (wall := by_text.get(log.path.read_bytes())) is not None:
            walls[log.path.resolve()] = wall
    return walls


def cases(place: Path) -> Iterator[tuple[str, Case | str]]:
    """Every log of the corpus: a case, or the reason why not."""
    measured = _same_file(place)
    for log in corpus_logs(place):
        yield log.ident, case_of(log, measured)


def _total(report: dict[str, Any]) -> dict[str, float]:
    """forecast.total_s of the report's longest run."""
    run = max(report["runs"], key=lambda each: (each["forecast"] is not None, each["goodput"]["wall_s"]))
    total: dict[str, float] = run["forecast"]["total_s"]
    return total


def forecast(case: Case, header: bool) -> Forecast:
    """Cuts the run, passes on its length, and asks."""
    failure, total = None, {"low": 0.0, "mid": 0.0, "high": 0.0}
    try:
        total = _total(explain_json(case.text(header), "--no-iterations", "--set", f"max_iters={case.max_iters}"))
    except (NoAnswer, KeyError, TypeError, ValueError) as error:
        failure = f"{type(error).__name__}: {error}"
    return Forecast(
        ident=case.ident,
        rows=case.rows,
        seen=case.seen,
        measured=case.measured,
        truth_s=case.truth_s,
        claimed_s=total["mid"],
        low_s=total["low"],
        high_s=total["high"],
        failure=failure,
    )


def measure(place: Path) -> CutRuns:
    """Both variants over the corpus."""
    found = list(cases(place))
    good = [case for _, case in found if isinstance(case, Case)]
    return CutRuns(
        with_header=Forecasts(name="header kept", cases=[forecast(case, True) for case in good]),
        without_header=Forecasts(name="header and config missing", cases=[forecast(case, False) for case in good]),
        left_out=[(ident, case) for ident, case in found if isinstance(case, str)],
    )


def _summary(variant: Forecasts) -> str:
    return (
        f"| {variant.name} | {len(variant.cases)} | {100 * variant.error():.1f} % "
        f"| {100 * variant.covered():.0f} % | {variant.width():.3f} |"
    )


def _worst(variant: Forecasts, count: int = 8) -> list[str]:
    ordered = sorted(variant.cases, key=lambda case: -abs(case.error))[:count]
    return [
        f"| {case.ident} | {case.rows} | {case.seen} | {'measured' if case.measured else 'arithmetic'} "
        f"| {case.truth_s:.1f} | {case.claimed_s:.1f} | {100 * case.error:+.1f} % "
        f"| {'yes' if case.covered else '**no**'} | {case.width:.2f} |"
        for case in ordered
    ]


def table(result: CutRuns) -> str:
    """The result as Markdown."""
    out = [
        "| variant | n | median error | covered | median high/low |",
        "|---|---|---|---|---|",
        "| wanted | | ≤ 3 % | ≥ 80 % | ≤ 1.25 |",
        _summary(result.with_header),
        _summary(result.without_header),
    ]
    head = "| log | rows | evaluations in the cut | truth from | truth s | forecast s | error | covered | high/low |"
    for variant in (result.with_header, result.without_header):
        out += ["", f"Worst, {variant.name}:", "", head, "|---|---|---|---|---|---|---|---|---|", *_worst(variant)]
    measured = sum(case.measured for case in result.with_header.cases)
    unseen = sum(case.seen == 0 for case in result.with_header.cases)
    out += [
        "",
        f"{measured} of the {len(result.with_header.cases)} truths were measured, the others are arithmetic over the "
        f"whole log. In {unseen} the cut shows no evaluation after the first iteration. Left out: "
        + "; ".join(f"{ident} ({reason})" for ident, reason in result.left_out)
        + ".",
    ]
    return "\n".join(out)


if __name__ == "__main__":
    measured_runs = measure(corpus_or_exit())
    for one in measured_runs.with_header.cases + measured_runs.without_header.cases:
        if one.failure:
            print(one.ident, one.failure)
    print(table(measured_runs))
