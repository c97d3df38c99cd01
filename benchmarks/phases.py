"""Which phase each logged iteration was in: stepwatch against the log's own `step` and `saving` lines.

The truth is read by the few regular expressions below, which know nothing of stepwatch.
    python -m benchmarks.phases
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.adapter import NoAnswer, corpus_or_exit, explain_json

PHASES = ("step", "eval", "eval+checkpoint", "checkpoint", "first")
EVALUATIONS = ("eval", "eval+checkpoint")
VISIBLE = 1.5  # without its lines, an evaluation counts if its iteration takes this many normal ones (from the issue)

ITER = re.compile(r"iter (\d+): loss (\S+?)(?: BPC)?,? (?:time )?([\d.]+) ?ms(/iter)?(?:, mfu (-?[\d.]+)%)?")
STEP = re.compile(r"step (\d+)(?:, tokens [\d,]+)?: train loss|\[eval\] iter (\d+): train")
SAVE = re.compile(r"saving checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One logged iteration and what the surrounding lines say about it."""

    number: int
    time_s: float
    truth: str  # a phase of PHASES, or "unknown" if the lines do not say
    line: int
    averaged: bool  # the time is a mean over the log interval (the `ms/iter` dialect)


@dataclass(slots=True, kw_only=True)
class LoggedRun:
    """One process: its rows, and the evaluations on iterations that were not logged (number, saved)."""

    rows: list[Row] = field(default_factory=list)
    hidden: list[tuple[int, bool]] = field(default_factory=list)
    starts: bool = False  # its first row is the process's first iteration

    def normal_s(self) -> float:
        """The median time of the rows that are plain steps (of all rows if there are none)."""
        return median([row.time_s for row in self.rows if row.truth == "step"] or [row.time_s for row in self.rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusLog:
    """A real log, named without its owner."""

    ident: str
    path: Path
    digest: str


@dataclass(slots=True)
class _Pending:
    """What has been read since the previous row: an evaluation's number, and whether a checkpoint was saved."""

    step: int | None = None
    saved: bool = False


def lines_of(path: Path) -> list[str]:
    """The log's lines unchanged; UTF-16 if it has a byte order mark, else UTF-8; any line ending."""
    raw = path.read_bytes()
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return re.split(r"\r\n|\n|\r", raw.decode(encoding, errors="replace"))


def _truth(number: int, first: bool, pending: _Pending) -> str:
    if first:
        return "first"
    if pending.step == number:
        return "eval+checkpoint" if pending.saved else "eval"
    return "step"


def parse(lines: Iterable[str]) -> list[LoggedRun]:
    """The runs in a log. A new one begins when the number goes back, or MFU is -100 % again after it was not."""
    runs: list[LoggedRun] = []
    pending, previous, fresh = _Pending(), -1, False
    for at, line in enumerate(lines):
        if step := STEP.search(line):
            pending = _bury(runs, pending)
            pending.step = int(step[1] or step[2])
        elif SAVE.search(line):
            pending.saved = pending.saved or pending.step is not None
        elif found := ITER.search(line):
            number, mark = int(found[1]), found[5] is not None and float(found[5]) <= -100
            new = not runs or number <= previous or (mark and not fresh)
            if new:
                runs.append(LoggedRun(starts=number == 0 or mark))
            if pending.step is not None and pending.step != number:
                runs[-1].hidden.append((pending.step, pending.saved))
            truth = _truth(number, new and runs[-1].starts, pending)
            if new and not runs[-1].starts and found[4]:
                truth = "unknown"  # a mean over the first interval, including the start: the lines do not name it
            time_s = float(found[3]) / 1000
            runs[-1].rows.append(Row(number=number, time_s=time_s, truth=truth, line=at, averaged=bool(found[4])))
            pending, previous, fresh = _Pending(), number, mark
    return runs


def _bury(runs: list[LoggedRun], pending: _Pending) -> _Pending:
    """An evaluation followed by another one without a row in between was on an iteration that was not logged."""
    if pending.step is not None and runs:
        runs[-1].hidden.append((pending.step, pending.saved))
    return _Pending()


def has_lines(lines: Iterable[str]) -> bool:
    """Whether the log names its evaluations; without these lines it cannot be scored."""
    return any(STEP.search(line) for line in lines)


def corpus_logs(place: Path) -> Iterator[CorpusLog]:
    """Every distinct log of nanogpt and nanogpt-wallclock, once; three are in both."""
    seen: set[str] = set()
    wallclock = wallclock_names(place)
    paths = sorted((place / "nanogpt").glob("*.log")) + sorted((place / "nanogpt-wallclock").glob("*.log"))
    for path in paths:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest in seen:
            continue
        seen.add(digest)
        ident = f"log {path.name[:3]}" if path.parent.name == "nanogpt" else f"run {wallclock.index(path.name) + 1}"
        yield CorpusLog(ident=ident, path=path, digest=digest)


def wallclock_names(place: Path) -> list[str]:
    """The logs of TRUTH.tsv in order: `run 1` is the first."""
    table = (place / "nanogpt-wallclock" / "TRUTH.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [Path(line.split("\t")[0]).name for line in table if line.strip()]


@dataclass(slots=True)
class Score:
    """Counts of one class."""

    tp: int = 0
    fp: int = 0
    fn: int = 0

    def __iadd__(self, other: Score) -> Score:
        self.tp, self.fp, self.fn = self.tp + other.tp, self.fp + other.fp, self.fn + other.fn
        return self

    @property
    def n(self) -> int:
        return self.tp + self.fn

    @property
    def precision(self) -> float | None:
        return self.tp / (self.tp + self.fp) if self.tp + self.fp else None

    @property
    def recall(self) -> float | None:
        return self.tp / self.n if self.n else None

    @property
    def f1(self) -> float | None:
        total = 2 * self.tp + self.fp + self.fn
        return 2 * self.tp / total if total else None


@dataclass(slots=True, kw_only=True)
class LogScore:
    """One log: a score per phase using the lines, and one for the visible evaluations without them."""

    ident: str
    scored: bool  # the log has step lines
    phases: dict[str, Score] = field(default_factory=lambda: {phase: Score() for phase in PHASES})
    blind: Score = field(default_factory=Score)
    confused: Counter[str] = field(default_factory=Counter)
    failure: str | None = None


def _claims(report: dict[str, Any]) -> dict[tuple[int, int], str]:
    """The claimed phase of each row, by its number and how often it occurred before: runs may be split anyhow."""
    seen: Counter[int] = Counter()
    claims: dict[tuple[int, int], str] = {}
    for row in (row for run in report["runs"] for row in run["iterations"]):
        claims[row["iter"], seen[row["iter"]]] = row["phase"]
        seen[row["iter"]] += 1
    return claims


def _keyed(runs: list[LoggedRun]) -> Iterator[tuple[tuple[int, int], LoggedRun, Row]]:
    seen: Counter[int] = Counter()
    for run in runs:
        for row in run.rows:
            yield (row.number, seen[row.number]), run, row
            seen[row.number] += 1


def compare(score: LogScore, runs: list[LoggedRun], claims: dict[tuple[int, int], str]) -> None:
    """Scores the claims against the lines. A claimed stall on a plain step is no error: the lines cannot tell."""
    left = dict(claims)
    for key, _, row in _keyed(runs):
        claimed = left.pop(key, "missing")
        score.confused["rows"] += 1
        score.confused["missing"] += claimed == "missing"
        score.confused["stalls"] += claimed == "stall"
        score.confused["stall claimed, lines say eval"] += claimed == "stall" and row.truth in EVALUATIONS
        score.confused["eval claimed, lines say step"] += claimed in EVALUATIONS and row.truth == "step"
        if row.truth == "unknown" or (claimed == "stall" and row.truth == "step"):
            continue
        _count(score.phases, row.truth, claimed)
    for claimed in left.values():  # rows that do not exist; a torn line read as a plain step does no harm
        score.confused["extra"] += 1
        if claimed in PHASES and claimed != "step":
            score.phases[claimed].fp += 1


def _count(phases: dict[str, Score], truth: str, claimed: str) -> None:
    if truth == claimed:
        phases[truth].tp += 1
        return
    phases[truth].fn += 1
    if claimed in phases:
        phases[claimed].fp += 1


def compare_blind(score: LogScore, runs: list[LoggedRun], claims: dict[tuple[int, int], str]) -> None:
    """Without the lines: visible evaluations found. A faint one, or a first iteration, is neither right nor wrong."""
    normal = {id(run): run.normal_s() for run in runs}
    for key, run, row in _keyed(runs):
        claimed = claims.get(key) in EVALUATIONS
        visible = row.time_s >= VISIBLE * normal[id(run)]
        if row.truth in EVALUATIONS and visible:
            score.blind.tp += claimed
            score.blind.fn += not claimed
        elif row.truth == "step":
            score.blind.fp += claimed


def without_lines(lines: list[str]) -> str:
    """The log with its step and saving lines deleted."""
    return "\n".join(line for line in lines if not STEP.search(line) and not SAVE.search(line))


def measure_log(log: CorpusLog) -> LogScore:
    """Both scores of one log."""
    lines = lines_of(log.path)
    runs = parse(lines)
    score = LogScore(ident=log.ident, scored=has_lines(lines))
    try:
        compare(score, runs, _claims(explain_json(log.path)))
        if score.scored:
            compare_blind(score, runs, _claims(explain_json(without_lines(lines))))
    except NoAnswer as error:
        score.failure = str(error)
        compare(score, runs, {})
        if score.scored:
            compare_blind(score, runs, {})
    return score


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """The whole corpus."""

    logs: list[LogScore]

    def scored(self) -> list[LogScore]:
        return [log for log in self.logs if log.scored]

    def total(self, phase: str) -> Score:
        whole = Score()
        for log in self.scored():
            whole += log.phases[phase]
        return whole

    def blind(self) -> Score:
        whole = Score()
        for log in self.scored():
            whole += log.blind
        return whole

    def confused(self, what: str) -> int:
        return sum(log.confused[what] for log in self.scored())


def measure(place: Path) -> Phases:
    """Every log of the corpus."""
    return Phases(logs=[measure_log(log) for log in corpus_logs(place)])


def shown(value: float | None) -> str:
    """A share with four decimals; a missing one is a dash."""
    return "-" if value is None else f"{value:.4f}"


def _row(name: str, score: Score, wanted: str) -> str:
    rates = " | ".join(shown(rate) for rate in (score.precision, score.recall, score.f1))
    return f"| {name} | {score.n} | {rates} | {wanted} |"


def table(result: Phases) -> str:
    """The result as Markdown."""
    out = ["| phase | n | precision | recall | F1 | wanted |", "|---|---|---|---|---|---|"]
    out += [_row(phase, result.total(phase), "F1 ≥ 0.99") for phase in PHASES]
    out.append(_row(f"evaluations ≥ {VISIBLE} x a step, lines deleted", result.blind(), "F1 ≥ 0.97"))
    names = ("rows", "missing", "extra", "stalls", "stall claimed, lines say eval", "eval claimed, lines say step")
    without = [log.ident for log in result.logs if not log.scored]
    out += [
        "",
        f"{len(result.scored())} logs that have `step` lines (micro-averaged, each different file once); "
        f"{len(without)} without them are read but not scored: {', '.join(without) or 'none'}.",
        "",
        "Counts: " + "; ".join(f"{name} {result.confused(name)}" for name in names) + ".",
        "",
        "Logs with any error: " + (worst(result) or "none") + ".",
    ]
    return "\n".join(out)


def worst(result: Phases, count: int = 12) -> str:
    """The logs with errors, worst first."""
    lost = []
    for log in result.scored():
        seen = sum(score.fn + score.fp for score in log.phases.values())
        blind = log.blind.fn + log.blind.fp
        if seen or blind:
            lost.append((seen + blind, f"{log.ident} ({seen} with lines, {blind} without)"))
    ordered = [text for _, text in sorted(lost, key=lambda pair: -pair[0])]
    return ", ".join(ordered[:count]) + (f" and {len(ordered) - count} more" if len(ordered) > count else "")


def per_log(result: Phases) -> str:
    """One line per log, for the terminal."""
    out = []
    for log in result.logs:
        rates = " ".join(f"{phase}={shown(log.phases[phase].f1)}({log.phases[phase].n})" for phase in PHASES)
        note = log.failure or ("" if log.scored else "no step lines: not scored")
        out.append(f"{log.ident:8} {rates} blind={shown(log.blind.f1)}({log.blind.n}) {note}")
    return "\n".join(out)


if __name__ == "__main__":
    measured = measure(corpus_or_exit())
    print(per_log(measured))
    print(table(measured))
