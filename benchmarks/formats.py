"""Every trainer's log: what is read of it, which format it is taken for, and how fast.

The iterations of each format are counted by a simple pattern of its own here, which shares nothing with the readers.
    python -m benchmarks.formats [accuracy|speed]
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import numpy as np
from benchmarks.adapter import SOURCE, corpus_or_exit

if str(SOURCE) not in sys.path:
    sys.path.append(str(SOURCE))

from stepwatch.errors import InputError
from stepwatch.readers import READERS, detect, read
from stepwatch.readers.reader import Reader
from stepwatch.readers.records import Records
from stepwatch.run import Checkpoint, Evaluation, Run
from stepwatch.sources import Source, from_file, from_text

CUT_LINES, MOST_CUTS = 200, 40
GENERATED_BYTES = 20_000_000
REPEATS = 7
WANTED_SHARE, WANTED_DIFFERENCE, WANTED_RATIO = 0.995, 0.01, 0.5
LARGEST_FILE = 30_000_000
LEAST_TICKS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How to count a format without stepwatch. Of several patterns for iterations the first that is found counts."""

    name: str
    files: tuple[str, ...]
    """As globs in the corpus."""
    iterations: tuple[str, ...]
    evaluations: str | None = None
    checkpoints: str | None = None


# The first row whose glob fits a file tells what it is.
KINDS = (
    Kind(
        name="nanogpt", files=("nanogpt/*.log", "nanogpt-wallclock/*.log", "wandb/01_*.log"),
        iterations=(r"\biter(?:ation)? ?\d+ ?:.*\btime:? *[\d.]+ ?m?s", r"\biter \d+:.* ms/iter"),
    ),
    Kind(name="nanoswe", files=("nanochat/04_*",), iterations=(r"^\[.*\] step \d+ .*\| dt_ms [\d.]+",)),
    Kind(
        name="nanochat", files=("nanochat/*",), iterations=(r"^step \d+(?:/\d+)? \([\d.]+%\) .*\| dt: [\d.]+ms",),
        evaluations=r"^Step \d+ \| Validation (?:bpb|loss)",
    ),
    Kind(
        name="modded-nanogpt", files=("modded-nanogpt/*",),
        iterations=(r"^step:\s*\d+/\d+ (?!val_loss).*train_time:[\d.]+m?s", r"^step:\s*\d+/\d+ .*train_time:[\d.]+m?s"),
        evaluations=r"^step:\s*\d+/\d+ val_loss:",
    ),
    Kind(
        name="build-nanogpt", files=("build-nanogpt/*",), iterations=(r"^step\s+\d+(?: \||,) loss: .*dt: [\d.]+ms",),
        evaluations=r"^validation loss: ",
    ),
    Kind(
        name="llm.c", files=("llm.c/*",), iterations=(r"^step\s+\d+/\d+ ?[|:].*loss.*[\d.]+ ms",),
        evaluations=r"^val loss ",
    ),
    Kind(
        name="megatron", files=("megatron/*",), iterations=(r"iteration +\d+/ *\d+ \|.*elapsed time per iteration",),
        evaluations=r"^\S* ?validation (?:loss at|results on)", checkpoints=r"saving checkpoint at iteration",
    ),
    Kind(
        name="torchtitan", files=("torchtitan/*",), iterations=(r"INFO - step: *\d+ +loss:.*[tw]ps:",),
        evaluations=r"INFO - validate step:", checkpoints=r"INFO - Saving the checkpoint",
    ),
    Kind(
        name="deepspeed", files=("deepspeed/*",),
        iterations=(r"\|E2E latency=", r"steps: \d+ loss: .*iter time", r"CurrSamplesPerSec=", r"^Model Par.*Latency:"),
        evaluations=r"^\*+ Evaluating ", checkpoints=r"^(?:saving (?:the final )?model \.\.\.)",
    ),
    Kind(name="hf-state", files=("hf-trainer/*.json",), iterations=(r'^\s*"loss":',), evaluations=r'^\s*"eval_loss":'),
    Kind(
        name="hf-trainer", files=("hf-trainer/*.log", "hf-trainer/*.jsonl"),
        iterations=(r"\{'loss': ", r'"global_step/max_steps": "\d', r"\d+/\d+ \[\d+:\d\d"),
    ),
    Kind(name="axolotl", files=("axolotl/*",), iterations=(r"'loss': ", r"\d+/\d+ \[\d+:\d\d")),
    Kind(name="litgpt", files=("litgpt/*",), iterations=(r"\biter \d+ .*iter time: [\d.]+ ?ms",)),
    Kind(name="composer", files=("composer/*",), iterations=(r"^\[batch=\d+/\d+\]|\bbatch +\d+/\d+",)),
    Kind(
        name="mlx-lm", files=("mlx-lm/*",), iterations=(r"\bIter \d+: Train loss .*It/sec [\d.]+",),
        evaluations=r"\bIter \d+: Val loss",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One file of the corpus, and what the patterns here find in it."""

    path: Path
    kind: Kind
    source: Source
    iterations: tuple[int, ...]
    """Their lines."""
    evaluations: int
    checkpoints: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One file, read."""

    kind: str
    name: str
    lines: int
    read: int
    evaluations: tuple[int, int]
    checkpoints: tuple[int, int]
    taken_for: str | None
    cuts: int
    cuts_right: int
    wrong_cuts: tuple[str, ...]
    mistaken: tuple[str, ...]
    """Other readers that accept lines of it."""
    difference: float | None
    """Between the step time and the clock, as a share; None without a clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A generated log of one format, read."""

    name: str
    bytes_per_s: float
    ratio: float
    rows: int


# --- what is there ----------------------------------------------------------------------------------------------


def samples(place: Path) -> Iterator[Sample]:
    """The files that hold iterations by their pattern, of the formats that have a reader."""
    taken: set[Path] = set()
    for kind in KINDS:
        for path in sorted({path for glob in kind.files for path in place.glob(glob)} - taken):
            taken.add(path)
            if kind.name in READERS and path.stat().st_size <= LARGEST_FILE:
                sample = _sample(path, kind)
                if sample.iterations:
                    yield sample


def _sample(path: Path, kind: Kind) -> Sample:
    source = from_file(path)
    lines = _lines(source)
    found: list[int] = []
    for pattern in kind.iterations:
        found = _matching(lines, pattern)
        if found:
            break
    return Sample(
        path=path, kind=kind, source=source, iterations=tuple(found),
        evaluations=len(_matching(lines, kind.evaluations)), checkpoints=len(_matching(lines, kind.checkpoints)),
    )  # fmt: skip


def _lines(source: Source) -> list[str]:
    return source.text.decode("utf-8", "replace").split("\n")


def _matching(lines: Sequence[str], pattern: str | None) -> list[int]:
    wanted = re.compile(pattern) if pattern else None
    return [number for number, line in enumerate(lines) if wanted is not None and wanted.search(line[:2000])]


# --- accuracy ---------------------------------------------------------------------------------------------------


def measure(place: Path) -> list[Score]:
    """Every file of the corpus that has a reader."""
    return [score_of(sample) for sample in samples(place)]


def score_of(sample: Sample) -> Score:
    """One file, read by its own reader and held against all others."""
    reader = READERS[sample.kind.name]
    records = Records()
    reader.parse(sample.source.text, 0, records)
    reader.finish(sample.source.text.count(b"\n") + 1, records)
    rows = set(records.iterations().line.tolist())
    cuts = [(begin, detect(cut)) for begin, cut in _cuts(sample)]
    others = [other for other in READERS.values() if other.name != reader.name]
    return Score(
        kind=reader.name, name=sample.path.name.split("_")[0], lines=len(sample.iterations),
        read=len(rows & set(sample.iterations)),
        evaluations=(_distinct(records, Evaluation), sample.evaluations),
        checkpoints=(_distinct(records, Checkpoint), sample.checkpoints),
        taken_for=detect(sample.source), cuts=len(cuts), cuts_right=sum(name == reader.name for _, name in cuts),
        wrong_cuts=tuple(f"{begin}: {name}" for begin, name in cuts if name != reader.name),
        mistaken=tuple(other.name for other in others if other.sniff(sample.source.text) > 0),
        difference=_difference(sample),
    )  # fmt: skip


def _distinct(records: Records, event: type) -> int:
    return len({each.line for each in records.events if isinstance(each, event)})


def _cuts(sample: Sample) -> Iterator[tuple[int, Source]]:
    """200 lines from the middle of the log, begun at places all over it, that hold iterations."""
    lines = _lines(sample.source)
    wanted = np.array(sample.iterations)
    begins = sorted({int(begin) for begin in np.linspace(0, max(len(lines) - CUT_LINES, 0), MOST_CUTS)})
    for begin in begins:
        if bool(((wanted >= begin) & (wanted < begin + CUT_LINES)).any()):
            yield begin, from_text("\n".join(lines[begin : begin + CUT_LINES]))


def _difference(sample: Sample) -> float | None:
    """Median over the spans between two rows without an event, or over all where the clock has only seconds."""
    try:
        runs = read(sample.source, sample.kind.name)
    except InputError:
        return None
    shares = [share for run in runs for share in _against_clock(run)]
    return median(shares) if shares else None


def _against_clock(run: Run) -> list[float]:
    rows = run.iterations
    if len(rows) < 3 or run.reordered or np.isnan(rows.stamp_s).all():
        return []
    steps, seconds = np.diff(rows.number), np.diff(rows.stamp_s)
    single = run.timing in ("iteration", "step")
    between = np.where(steps > 1, (rows.time_s[1:] + rows.time_s[:-1]) / 2, rows.time_s[1:])
    printed = steps * (between if single else rows.time_s[1:])
    free = np.isfinite(seconds) & (seconds > 0) & (printed > 0)
    for line in [event.line for event in run.evaluations] + [event.line for event in run.checkpoints]:
        free &= ~((rows.line[:-1] < line) & (line < rows.line[1:]))
    if not free.any():
        return []
    if bool((rows.stamp_s % 1 == 0).all()):
        total = float(seconds[free].sum())
        return [abs(float(printed[free].sum()) / total - 1)] if total > LEAST_TICKS else []
    fine = free & (seconds > LEAST_TICKS * 1e-3)
    return [float(share) for share in np.abs(printed[fine] / seconds[fine] - 1)]


def table(scores: Sequence[Score]) -> str:
    """By format, with what went wrong named below."""
    out = [
        "| format | logs | iteration lines | read | evaluations | checkpoints | format found | cut to 200 lines "
        "| other readers | step time against the clock |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    out += [_row(name, [score for score in scores if score.kind == name]) for name in READERS]
    wanted = (
        f"Wanted: {WANTED_SHARE:.1%} of the lines, every format found, no other reader that accepts a line, and a "
        f"median difference of at most {WANTED_DIFFERENCE:.0%} from the clock. Evaluations and checkpoints are those "
        "found, of those that a pattern counts; a dash stands for formats that have no pattern for them here."
    )
    return "\n".join([*out, "", wanted, *_faults(scores)])


def _row(name: str, scores: Sequence[Score]) -> str:
    if not scores:
        return f"| {name} | 0 | | | | | | | | |"
    lines, done = sum(s.lines for s in scores), sum(s.read for s in scores)
    kind = next(kind for kind in KINDS if kind.name == name)
    clocks = [s.difference for s in scores if s.difference is not None]
    cells = [
        name, str(len(scores)), f"{lines:,}", f"{done / lines:.2%}",
        _pair([s.evaluations for s in scores]) if kind.evaluations else "–",
        _pair([s.checkpoints for s in scores]) if kind.checkpoints else "–",
        f"{sum(s.taken_for == name for s in scores)} of {len(scores)}",
        f"{sum(s.cuts_right for s in scores)} of {sum(s.cuts for s in scores)}",
        "none" if not any(s.mistaken for s in scores) else str(sum(bool(s.mistaken) for s in scores)),
        f"{median(clocks):.2%} ({len(clocks)} logs)" if clocks else "no clock",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _pair(pairs: Sequence[tuple[int, int]]) -> str:
    return f"{sum(found for found, _ in pairs)} of {sum(there for _, there in pairs)}"


def _faults(scores: Sequence[Score]) -> list[str]:
    out = []
    for score in scores:
        name = f"{score.kind}/{score.name}"
        if score.read < WANTED_SHARE * score.lines:
            out.append(f"- {name}: {score.read} of {score.lines} lines read")
        if score.taken_for != score.kind:
            out.append(f"- {name}: taken for {score.taken_for}")
        if score.wrong_cuts:
            out.append(f"- {name}: wrong when cut at line {', '.join(score.wrong_cuts[:5])}")
        if score.mistaken:
            out.append(f"- {name}: lines accepted by {', '.join(score.mistaken)} too")
        if score.difference is not None and score.difference > WANTED_DIFFERENCE:
            out.append(f"- {name}: {score.difference:.1%} from the clock")
    return ["", "What falls short:", "", *out] if out else []


# --- speed ------------------------------------------------------------------------------------------------------

_CLOCK = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
_SECONDS_A_ROW = 10
_NANOGPT_LINES = "iter 100: loss 4.2731, time 168.63ms, mfu 3.27%\niter 200: loss 4.2012, time 168.59ms, mfu 3.27%"


def generated(reader: Reader, size: int = GENERATED_BYTES) -> Source | None:
    """The example's iteration lines again and again, with rising numbers and clocks; None where it has none."""
    example = reader.example if reader.name != "nanogpt" else _NANOGPT_LINES
    records = Records()
    reader.parse(example.encode(), 0, records)
    reader.finish(example.count("\n") + 1, records)
    rows = records.iterations()
    lines = example.split("\n")
    shapes = [shape for row in range(len(rows)) if (shape := _shape(lines[rows.line[row]], int(rows.number[row])))]
    if not shapes:
        return None
    others = [line for number, line in enumerate(lines) if number not in set(rows.line.tolist())]
    begin = datetime(2025, 1, 1, tzinfo=UTC)
    text, length, number = ["\n".join(others)], 0, 1
    while length < size:
        before, width, after = shapes[number % len(shapes)]
        line = f"{before}{str(number).zfill(width)}{after}"
        moment = begin + timedelta(seconds=_SECONDS_A_ROW * number)
        text.append(_CLOCK.sub(moment.strftime("%Y-%m-%d %H:%M:%S"), line))
        length, number = length + len(text[-1]) + 1, number + 1
    return from_text("\n".join(text) + "\n")


def _shape(line: str, number: int) -> tuple[str, int, str] | None:
    found = re.search(rf"(?<![\d.:-])(0*){number}(?![\d.:]\d)", _CLOCK.sub(lambda clock: "x" * len(clock[0]), line))
    if found is None:
        return None
    return line[: found.start()], len(found[0]) if found[1] else 0, line[found.end() :]


def speeds() -> list[Rate]:
    """Each reader and the nanoGPT reader in turn, so that a busy machine slows both; the median of the ratios."""
    base = generated(READERS["nanogpt"])
    assert base is not None
    rates = []
    for name, reader in READERS.items():
        source = generated(reader)
        if source is None:
            continue
        pairs = [(_rate(base, "nanogpt"), _rate(source, name)) for _ in range(REPEATS)]
        ratio = median(own / usual for (usual, _), (own, _) in pairs)
        rates.append(Rate(name=name, bytes_per_s=max(own for _, (own, _) in pairs), ratio=ratio, rows=pairs[0][1][1]))
    return rates


def _rate(source: Source, name: str) -> tuple[float, int]:
    begin = time.perf_counter()
    runs = read(source, name)
    seconds = time.perf_counter() - begin
    return len(source.text) / seconds, sum(len(run.iterations) for run in runs)


def speed_table(rates: Sequence[Rate]) -> str:
    """Rates as markdown."""
    out = [
        f"Logs of {GENERATED_BYTES / 1e6:.0f} MB of each format's own example lines, renumbered.", "",
        f"| format | MB/s | of the nanoGPT reader's (wanted ≥ {WANTED_RATIO}) | iterations |", "|---|---|---|---|",
    ]  # fmt: skip
    out += [f"| {rate.name} | {rate.bytes_per_s / 1e6:.0f} | **{rate.ratio:.2f}** | {rate.rows:,} |" for rate in rates]
    return "\n".join(out)


def main() -> None:
    """What the command line asks for, else everything."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    if wanted != "speed":
        print(table(measure(corpus_or_exit())))
    if wanted != "accuracy":
        print(speed_table(speeds()))


if __name__ == "__main__":
    main()
