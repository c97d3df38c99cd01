"""Every trainer: the figures of whole logs against the corpus's own, and forecasts of logs cut at 10, 20 and 30 %.

The truth of a total is what the log's own clock shows, or the sum of its printed times, found by separate patterns
here (`CLOCKS`); if a format has neither, it is what stepwatch says of the whole log, and the table counts these. If the
log is an excerpt, or does not say how long the run will be, its length is passed on as `max_iters`.
    python -m benchmarks.cut_logs [part of a path]…
"""

from __future__ import annotations

import csv
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import inf, isclose
from pathlib import Path
from statistics import median

from benchmarks.adapter import SOURCE, corpus_or_exit

if str(SOURCE) not in sys.path:
    sys.path.append(str(SOURCE))

from stepwatch import explain, from_file
from stepwatch.analysis import Analysis
from stepwatch.errors import StepwatchError

SHARES = (0.1, 0.2, 0.3)
FEWEST_ROWS = 10
CLOSE = 0.02
WANTED_COVERED, WANTED_ERROR = 0.85, 0.03
MANIFESTS = ("MANIFEST2.tsv", "unseen/MANIFEST.tsv")  # those with true figures
OWN_NOTES = (".tsv", ".yaml", "README.md")
BLOCK = 64  # bytes; files without lines are cut in such blocks
NO_LOGS = ("gpu-samples", "kineto", "nanogpt", "nanogpt-wallclock")  # nanoGPT's have their own table: cut_runs
WHOLE_ONLY = ("hf-notebook", "hf-state", "wandb")  # written, or given their times, only at the end


# --- the truth ----------------------------------------------------------------------------------------------------


Clock = Callable[[Sequence[str]], float | None]


def _seconds(text: str) -> float:
    """Seconds in 1:02:03, 17m 3s or a plain number."""
    if ":" in text:
        return sum(float(part) * 60**place for place, part in enumerate(reversed(text.split(":"))))
    if re.search("[dhms]", text):
        units = {"d": 86400, "h": 3600, "m": 60, "s": 1}
        return sum(float(value) * units[unit] for value, unit in re.findall(r"([\d.]+) ?([dhms])", text))
    return float(text.replace(",", ""))


def _elapsed(pattern: str, scale: float = 1.0) -> Clock:
    """For a pattern with number and clock: the last clock, without the time before the beginning of the log.

    A clock that falls was reset to zero: modded-nanogpt does this after ten steps.
    """

    def truth(lines: Sequence[str]) -> float | None:
        rows: list[tuple[int, float]] = []
        shown = base = 0.0
        for fit in filter(None, (re.search(pattern, line) for line in lines)):
            number, clock = int(fit["n"]), scale * _seconds(fit["t"])
            if not rows or number > rows[-1][0]:
                base, shown = base + (shown if clock < shown else 0.0), clock
                rows.append((number, base + clock))
        if len(rows) < 2:
            return None
        (first, begin), (second, _), (last, end) = rows[0], rows[1], rows[-1]
        if first <= max(second - first, 5):
            return end
        return (end - begin) * (last - first + second - first) / (last - first)

    return truth


def _sum(pattern: str, scale: float = 1.0, *, each: bool = False) -> Clock:
    """For a pattern with number and time; `each` if a line is for one step, else for all since the previous line."""

    def truth(lines: Sequence[str]) -> float | None:
        rows = {int(fit["n"]): scale * _seconds(fit["t"]) for line in lines if (fit := re.search(pattern, line))}
        if len(rows) < 2:
            return None
        ordered = sorted(rows)
        gaps = [b - a for a, b in pairwise(ordered)]
        start = 1 if each or ordered[0] < 2 else gaps[0]
        return sum(rows[n] * (1 if each else gap) for n, gap in zip(ordered, [start, *gaps], strict=True))

    return truth


def _each(pattern: str, scale: float = 1.0) -> Clock:
    """For lines with a time but no number."""
    return lambda lines: scale * sum(float(fit["t"]) for line in lines if (fit := re.search(pattern, line))) or None


_STAMP = re.compile(r"(?:(\d{4})[-/])?(\d\d)[-/](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?")


def _stamp(line: str) -> float | None:
    found = _STAMP.search(line[:100])
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part or 2001) for part in found.groups()[:6])
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return moment + float(f"0.{found[7] or 0}")


def _stamps(pattern: str, start: str | None = None) -> Clock:
    """From the line that says that training starts, or one usual step before the first, to the last line of a step."""

    def truth(lines: Sequence[str]) -> float | None:
        rows: list[float] = []
        begin = None
        for line in lines:
            stamp = _stamp(line)
            if stamp is None:
                continue
            if re.search(pattern, line):
                rows.append(stamp)
            elif start is not None and not rows and re.search(start, line):
                begin = stamp
        if len(rows) < 2:
            return None
        if begin is None:
            begin = rows[0] - median(b - a for a, b in pairwise(rows))
        return rows[-1] - begin if rows[-1] > begin else None

    return truth


def _last(pattern: str, scale: float = 1.0) -> Clock:
    """What the log says about the whole run at its end."""

    def truth(lines: Sequence[str]) -> float | None:
        if any(re.search(r"\b(?:Train: +|^)[2-9]\d%\|", line) for line in lines[:20]):  # it begins in mid-run
            return None
        found = [fit["t"] for line in lines if (fit := re.search(pattern, line))]
        return scale * _seconds(found[-1]) if found else None

    return truth


def _epochs(lines: Sequence[str]) -> float | None:
    """Keras: the whole seconds of finished epochs; useless if these are short."""
    found = [float(fit[1]) for line in lines if (fit := re.search(r"(?:^|\s)(\d+)s \d+m?s/(?:step|epoch)", line))]
    finished = [float(fit[2]) for line in lines if (fit := re.search(r"\b(\d+)/\1 .* (\d+)s ", line))]
    total = sum(finished or found)
    return total if total > 50 * len(finished or found) ** 0.5 else None


_BAR = r"\| *(?P<n>[1-9]\d*)/\d+ \[(?P<t>[\d:]+)<"
CLOCKS: dict[str, tuple[Clock, ...]] = {
    "build-nanogpt": (_sum(r"^step\s+(?P<n>\d+) \|.*dt: (?P<t>[\d.]+)ms", 1e-3),),
    "deepspeed": (
        _each(r"\|E2E latency=(?P<t>[\d.]+)s"),
        _stamps(r"\[Rank 0\] step=[1-9]"),
    ),
    "detectron2": (_stamps(r"\beta: .* iter: ", start="Starting training from"),),
    "detectron2-json": (_sum(r'"iteration": (?P<n>\d+),.* "time": (?P<t>[\d.e-]+)'),),
    "hf-trainer": (
        _last(r"train_runtime'?\"?: '?(?P<t>[\d.]+)"),
        _elapsed(r"max_steps\": \"(?P<n>\d+)/.*\"elapsed_time\": \"(?P<t>[^\"]+)\""),
        _elapsed(r"current_steps\": (?P<n>\d+), .*\"elapsed_time\": \"(?P<t>[\d:]+)\""),
        _elapsed(rf"(?:^|Train: *|\r) *\d+%\|[^|]*{_BAR}"),
    ),
    "keras": (_epochs,),
    "llm.c": (_sum(r"^step\s+(?P<n>\d+)/\d+ .*\| (?P<t>[\d.]+) ms", 1e-3),),
    "litgpt": (_sum(r"\biter (?P<n>\d+) .*iter time: (?P<t>[\d.]+) ms", 1e-3),),
    "megatron": (
        _stamps(r"^(?:\d+: *)?\[\d{4}.*iteration +\d+/"),
        _sum(r"iteration +(?P<n>\d+)/.*elapsed time per iteration \(ms\): (?P<t>[\d.]+)", 1e-3),
    ),
    "metric-logger": (_last(r"^Training time (?P<t>[\d:]+)"),),
    "mmengine": (_stamps(r"\bEpoch(?:\(train\))? *\[\d+\] *\[", start="Checkpoints will be saved"),),
    "mmengine-json": (_sum(r'"time": (?P<t>[\d.]+).*"memory".*"step": (?P<n>\d+)'),),
    "modded-nanogpt": (
        _elapsed(r"^step: *(?P<n>[1-9]\d*)/\d+ .*train_time: *(?P<t>[\d.]+)ms", 1e-3),
        _elapsed(r"^step: *(?P<n>[1-9]\d*)/\d+ .*train_time: *(?P<t>[\d.]+)s"),
    ),
    "parameter-golf": (_last(r"^(?:stopping_early: .*|step:.*)train_time: *(?P<t>[\d.]+)ms", 1e-3),),
    "nanochat": (_sum(r"^step (?P<n>\d+)(?:/\d+)? .*\| dt: (?P<t>[\d.]+)ms", 1e-3, each=True),),
    "nanoswe": (_stamps(r"\bstep \d+ \|.*dt_ms"),),
    "verl": (_sum(r"\bstep:(?P<n>\d+) - .*timing_s/step:(?P<t>[\d.]+)"),),
    "torchtitan": (_stamps(r"\bstep: *\d+ .*loss:", start="Training starts at"),),
    "olmo": (_stamps(r"\[step=\d+/\d+"),),
    "fairseq": (_stamps(r"train_inner.*num_updates", start="Start iterating over"),),
    "tqdm-loop": (_last(r"^Epoch: +100%.*\[(?P<t>[\d:]+)<"),),
    "ultralytics": (_last(r"epochs completed in (?P<t>[\d.]+) hours", 3600.0),),
    "ultralytics-csv": (_last(r"^ *\d+, *(?P<t>[\d.]+), *"),),
}


# --- the cases ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run in a log: what is cut, and its truth."""

    ident: str
    trainer: str
    suffix: str
    parts: Sequence[bytes]
    """Lines with their ends, or blocks of a file without lines, up to the run's last row."""
    first: int
    """The index of the part with the first row."""
    last_iteration: int
    settings: dict[str, int]
    truth_s: float
    own_clock: bool
    """False if the truth is what stepwatch says of the whole log."""

    def cut(self, share: float) -> bytes:
        return b"".join(self.parts[: self.first + max(1, round(share * (len(self.parts) - self.first)))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was claimed for one cut."""

    case: Case
    share: float
    low_s: float
    claimed_s: float
    high_s: float
    analysis: Analysis
    """The analysis of the cut log."""

    @property
    def error(self) -> float:
        return self.claimed_s / self.case.truth_s - 1

    @property
    def covered(self) -> bool:
        # A time limit is stated exactly, and the clock that shows its end has whole milliseconds.
        return self.low_s * 0.999 <= self.case.truth_s <= self.high_s * 1.001

    @property
    def width(self) -> float:
        return self.high_s / self.low_s if self.low_s > 0 else inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Whether the figures of one whole log are right; None if the corpus does not have them."""

    trainer: str
    iterations: bool | None
    step: bool | None
    total: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    figures: list[Figures]
    outcomes: list[Outcome]
    unanswered: list[str]
    left_out: list[tuple[str, str]]
    corpus: str
    """The date of the corpus."""


def logs(place: Path) -> Iterator[tuple[str, Path]]:
    """Every file that may be a log, with its number."""
    paths = [
        path
        for path in sorted(place.glob("*/*"))
        if path.parent.name not in NO_LOGS and not path.name.endswith(OWN_NOTES)
    ]
    yield from ((f"{path.parent.name} {number:03d}", path) for number, path in enumerate(paths, 1))


def cases(ident: str, path: Path, runs: Sequence[Analysis]) -> Iterator[Case | tuple[str, str]]:
    """Every run of a log, or why it is left out."""
    data, text = path.read_bytes(), from_file(path).text.splitlines(keepends=True)
    is_text = b"\0" not in data
    ends = [int(each.run.iterations.line[-1]) if len(each.run.iterations) else 0 for each in runs]
    begins = [0, *(end + 1 for end in ends)]
    for number, (analysis, begin, end) in enumerate(zip(runs, begins[:-1], ends, strict=True), 1):
        run, name = analysis.run, ident if len(runs) == 1 else f"{ident}, run {number}"
        reason = _reason(analysis, is_text, len(runs))
        if reason:
            yield name, reason
            continue
        behind = text[begin:] if number == len(runs) else text[begin : int(runs[number].run.iterations.line[:1].sum())]
        shown = [line.decode("utf-8", "replace") for line in behind]
        found = [truth for clock in CLOCKS.get(run.format, ()) if is_text and (truth := clock(shown))]
        last = int(run.iterations.number[-1])
        case = Case(
            ident=name, trainer=run.format, suffix=path.suffix,
            parts=text[begin : end + 1] if is_text else [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)],
            first=int(run.iterations.line[0]) - begin if is_text else 0,
            last_iteration=last,
            settings={} if analysis.forecast.done or run.ended_by_plan else {"max_iters": last},
            truth_s=found[0] if found else analysis.goodput.wall_s, own_clock=bool(found),
        )  # fmt: skip
        alone = _asked(b"".join(case.parts), case.suffix, case.settings) if len(runs) > 1 else analysis
        if alone is None or not isclose(alone.goodput.wall_s, analysis.goodput.wall_s, rel_tol=CLOSE):
            yield name, "not the same run when it is cut out of its file"
        else:
            yield case


def _reason(analysis: Analysis, is_text: bool, runs: int) -> str:
    """Why a run is left out, according to the written rules."""
    if len(analysis.run.iterations) < FEWEST_ROWS:
        return f"only {len(analysis.run.iterations)} iteration rows"
    if analysis.run.format in WHOLE_ONLY:
        return "written at the end of the run"
    return "several runs in a file without lines" if not is_text and runs > 1 else ""


def _asked(data: bytes, suffix: str, settings: dict[str, int]) -> Analysis | None:
    """The analysis of a log; None if stepwatch refuses it."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"train{suffix}"
        path.write_bytes(data)
        try:
            report = explain(path, settings=settings)
        except StepwatchError:
            return None
    return max((run.analysis for run in report.runs), key=lambda each: each.goodput.wall_s)


def forecast(case: Case, share: float) -> Outcome | None:
    """Cuts and asks; None without an answer. If the cut log does not show the length of the run, it is passed on."""
    data = case.cut(share)
    found = _asked(data, case.suffix, case.settings)
    if found is not None and found.forecast.total_s is None:
        found = _asked(data, case.suffix, {"max_iters": case.last_iteration})
    if found is None or found.forecast.done or (total := found.forecast.total_s) is None:
        return None
    return Outcome(
        case=case, share=share, low_s=total.low, claimed_s=total.mid, high_s=total.high, analysis=found
    )  # fmt: skip


# --- the figures --------------------------------------------------------------------------------------------------


def true_figures(place: Path) -> dict[str, tuple[float | None, float | None, float | None]]:
    """Iterations, step and total of whole logs by file, if a manifest has a single number for them."""
    found = {}
    for manifest in MANIFESTS:
        with (place / manifest).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        for row in rows:
            if row.get("cut", "whole") != "whole":
                continue
            at = (Path(manifest).parent / row["file"]).as_posix()
            found[at] = (
                _number(row.get("iterations") or row.get("true_iterations")),
                _number(row.get("median_step_seconds") or row.get("true_step_s")),
                _number(row.get("total_seconds") or row.get("true_total_s")),
            )
    return found


def _number(text: str | None) -> float | None:
    found = re.fullmatch(r"(?:\d+ x \d+ = )?([\d.,]+)( ms| epochs| per epoch)?", text or "")
    if found is None:
        product = re.fullmatch(r"(\d+) x (\d+)", text or "")
        return float(product[1]) * float(product[2]) if product else None
    return float(found[1].replace(",", "")) * (1e-3 if found[2] == " ms" else 1)


def figures(runs: Sequence[Analysis], truth: tuple[float | None, float | None, float | None]) -> Figures:
    """Compares with the runs in the file. The corpus notes a step as printed, or including everything in between."""

    def right(true: float | None, claimed: list[float], within: float = CLOSE) -> bool | None:
        return None if true is None else any(isclose(true, value, rel_tol=within) for value in claimed)

    iterations, step_s, total_s = truth
    counted = [each.goodput.iterations for each in runs]
    walls = [each.goodput.wall_s for each in runs]
    means = [wall / max(count, 1) for wall, count in zip(walls, counted, strict=True)]
    return Figures(
        trainer=max(runs, key=lambda each: each.goodput.wall_s).run.format,
        iterations=right(iterations, [*counted, sum(counted)], within=0.001),
        step=right(step_s, [*(each.costs.step_s.mid for each in runs), *means]),
        total=right(total_s, walls),
    )


def measure(place: Path, wanted: Sequence[str] = ()) -> Result:
    true, manifests = true_figures(place), [place / name for name in MANIFESTS]
    newest = max(path.stat().st_mtime for path in manifests)
    result = Result(
        figures=[], outcomes=[], unanswered=[], left_out=[], corpus=f"{datetime.fromtimestamp(newest, UTC):%Y-%m-%d}"
    )
    for ident, path in logs(place):
        if wanted and not any(part in str(path) for part in wanted):
            continue
        try:
            runs = [run.analysis for run in explain(path).runs]
        except StepwatchError:
            continue
        result.figures.append(figures(runs, true.get(path.relative_to(place).as_posix(), (None, None, None))))
        for case in cases(ident, path, runs):
            if isinstance(case, tuple):
                result.left_out.append(case)
                continue
            for share in SHARES:
                outcome = forecast(case, share)
                if outcome is None:
                    result.unanswered.append(f"{case.ident} at {share:.0%}")
                else:
                    result.outcomes.append(outcome)
    return result


# --- the tables ---------------------------------------------------------------------------------------------------


def table(result: Result) -> str:
    """The result as Markdown."""
    out = [
        f"Corpus of {result.corpus}. The figures of whole logs are right where one of the runs in the file has those "
        f"that the corpus notes: iterations, a step within {CLOSE:.0%} (or the mean of an iteration with all that lies "
        f"between: some notes are that), a total within {CLOSE:.0%}. Forecasts are of logs cut at 10, 20 and "
        f"30 % of their lines; wanted are {WANTED_COVERED:.0%} covered by the 90 % interval and a median error of at "
        f"most {WANTED_ERROR:.0%}.", "",
        "| trainer | logs | iterations right | step right | total right | forecasts | covered at 10 % | 20 % | 30 % "
        "| covered | median error | median high/low |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for trainer in sorted({each.trainer for each in result.figures}):
        figures_of = [each for each in result.figures if each.trainer == trainer]
        out.append(_row(trainer, figures_of, [each for each in result.outcomes if each.case.trainer == trainer]))
    out.append(_row("**all**", result.figures, result.outcomes))
    samples = [each for each in result.outcomes if each.case.ident.startswith("unseen")]
    out.append(_row("of these, logs of the folder `unseen`", [], samples))
    own = len({each.case.ident for each in result.outcomes if each.case.own_clock})
    runs = len({each.case.ident for each in result.outcomes})
    missed = sorted((each for each in result.outcomes if not each.covered), key=lambda each: -abs(each.error))
    misses = ", ".join(f"{each.case.ident} at {each.share:.0%} ({each.error:+.0%})" for each in missed)
    out += [
        "",
        f"The truth of {own} of the {runs} runs is the log's own clock or the sum of its printed times, found here by "
        "patterns that share nothing with stepwatch; of the others it is what stepwatch says of the whole log. These "
        "figures are in sample: what the forecasts allow for was set with these logs in view, and with those of "
        "nanoGPT above. The next section leaves each trainer out in turn.",
        "",
        f"Not covered: {misses or 'none'}.",
        "",
        "Without an answer: " + (", ".join(result.unanswered) or "none") + ".",
        "",
        "Left out: " + "; ".join(f"{ident} ({reason})" for ident, reason in result.left_out) + ".",
    ]
    return "\n".join(out)


def _row(name: str, whole: Sequence[Figures], outcomes: Sequence[Outcome]) -> str:
    def right(of: Sequence[bool | None]) -> str:
        known = [each for each in of if each is not None]
        return f"{sum(known)} of {len(known)}" if known else "–"

    def covered(of: Sequence[Outcome]) -> str:
        return f"{sum(each.covered for each in of)} of {len(of)}" if of else "–"

    cells = [
        name, str(len(whole) or "–"), right([each.iterations for each in whole]), right([each.step for each in whole]),
        right([each.total for each in whole]), str(len(outcomes) or "–"),
        *(covered([each for each in outcomes if each.share == share]) for share in SHARES),
        f"{sum(each.covered for each in outcomes) / len(outcomes):.0%}" if outcomes else "–",
        f"{100 * median(abs(each.error) for each in outcomes):.1f} %" if outcomes else "–",
        f"{median(each.width for each in outcomes):.3f}" if outcomes else "–",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(table(measure(corpus_or_exit(), sys.argv[1:])))
