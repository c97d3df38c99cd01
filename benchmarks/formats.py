"""Every trainer's log: what is read from it, which format is detected, and how fast it is read.

The iterations of each format are counted by a separate simple pattern here, which shares nothing with the readers; in
files that are not made of lines, by a few lines of code.
    python -m benchmarks.formats [accuracy|speed [format …]]
"""

from __future__ import annotations

import csv
import json
import re
import sqlite3
import struct
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np
from benchmarks.adapter import SOURCE, corpus_or_exit
from benchmarks.mixed_lines import with_events, with_noise, with_stamps
from tools.formats_page import example_of

if str(SOURCE) not in sys.path:
    sys.path.append(str(SOURCE))

from stepwatch.errors import InputError
from stepwatch.readers import detect, read
from stepwatch.readers.formats import FORMATS, Reader, all_readers, reader_of
from stepwatch.readers.records import Records
from stepwatch.run import Checkpoint, Evaluation, Run
from stepwatch.sources import Source, from_file, from_text

CUT_LINES, MOST_CUTS = 200, 40
GENERATED_BYTES = 3_000_000  # less than a block of 4 MB, the limit for reading a notebook's table
REPEATS = 3
WANTED_SHARE, WANTED_DIFFERENCE = 0.995, 0.01
WANTED_BYTES_PER_S = 20e6
WANTED_EVENTS = 200_000.0
LARGEST_FILE = 30_000_000
LEAST_TICKS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How to count a format without stepwatch. Of several patterns for iterations the first that is found counts."""

    name: str
    files: tuple[str, ...]
    """As globs in the corpus."""
    iterations: tuple[str, ...] = ()
    evaluations: str | None = None
    checkpoints: str | None = None
    redrawn: bool = False
    """A line with the same groups as the last one that matched is the same iteration, shown again."""
    running: bool = False
    """The first group is the number, and the time is a clock since the start: see _without_beginning."""
    counted: Callable[[bytes], list[int] | None] | None = None
    """Instead of patterns, for files that are not lines of text: the iterations, or None for another kind of file."""
    by_number: bool = False
    """Counts the numbers of iterations instead of their lines."""
    clocked: bool = True
    """False if step times are taken from the clock, so that the clock cannot check them."""


# --- files that are not logs of lines ---------------------------------------------------------------------------


def _object(data: bytes) -> dict[str, object]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _in_state(data: bytes) -> list[int] | None:
    """Steps with a loss in a trainer_state.json; only one that states the runtime has times."""
    history = _object(data).get("log_history")
    if not isinstance(history, list):
        return None
    timed = any("train_runtime" in row for row in history)
    return [row["step"] for row in history if "loss" in row] if timed else []


def _in_summary(data: bytes) -> list[int] | None:
    """The only step in a summary of W&B."""
    summary = _object(data)
    if "_runtime" not in summary:
        return None
    steps = [value for key, value in summary.items() if key == "iter" or key.endswith("global_step")]
    return [int(step) for step in steps[:1] if isinstance(step, (int, float))]


def _in_csv(data: bytes) -> list[int] | None:
    """Lines with a training loss in a metrics.csv; only one with a time column has times."""
    head, *rows = csv.reader(data.decode("utf-8", "replace").split("\n"))
    if "step" not in head or "epoch" not in head:
        return None
    if not any("time" in name for name in head):
        return []
    losses = [i for i, name in enumerate(head) if "train" in name and "loss" in name and "epoch" not in name]
    return [line for line, row in enumerate(rows, start=1) if any(i < len(row) and row[i] for i in losses)]


def _in_events(data: bytes) -> list[int] | None:
    """Steps with a training loss in an event file, or else the step with the runtime of the whole run."""
    if b"brain.Event" not in data[:100]:
        return None
    found: dict[bytes, list[int]] = {b"train/loss": [], b"train/train_runtime": []}
    place = 0
    while place + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        message = data[place + 12 : place + 12 + length]
        place += 16 + length
        for tag, steps in found.items():
            if b"\x0a" + bytes([len(tag)]) + tag + b"\x15" in message:
                digits = re.match(rb"(?s)\x09.{8}\x10([\x80-\xff]*[\x00-\x7f])", message)
                steps.append(sum((b & 0x7F) << 7 * k for k, b in enumerate(digits[1])) if digits else 0)
    return next((steps for steps in found.values() if steps), [])


def _in_results(data: bytes) -> list[int] | None:
    """Epochs of a results.csv; only one with the time column has times."""
    head, *rows = data.decode("utf-8", "replace").splitlines()
    if "epoch" not in head:
        return None
    return [int(row.split(",")[0]) for row in rows if row.strip()] if "time" in head else []


def _holding(*words: bytes) -> Callable[[bytes], list[int] | None]:
    """For files whose iterations cannot be counted by a line pattern: only whether the file is of this kind."""
    return lambda data: [] if any(word in data for word in words) else None


# The first row whose glob matches a file, and that finds iterations in it, determines its kind.
_BAR = r" *\d+%\|[^|]*\| ([1-9]\d*)/(\d+) \["
_EVALUATED = r"""\{.*['"]eval_(?:\w+_)?(?:loss|runtime)['"]: """
KINDS = (
    Kind(
        name="nanogpt", files=("nanogpt/*.log", "nanogpt-wallclock/*.log", "wandb/*.log"),
        iterations=(r"\biter(?:ation)? ?\d+ ?:.*\btime:? *[\d.]+ ?m?s", r"\biter \d+:.* ms/iter"),
    ),
    Kind(
        name="nanoswe", files=("nanochat/*",), iterations=(r"^\[.*\] step \d+ .*\| dt_ms [\d.]+",),
        checkpoints=r"\bsaved checkpoint model_",
    ),
    Kind(
        name="nanochat", files=("nanochat/*",), iterations=(r"^step \d+(?:/\d+)? \([\d.]+%\) .*\| dt: [\d.]+ms",),
        evaluations=r"^Step \d+ \| Validation bpb",  # `Validation loss` is from chat_sft, which prints no times
    ),
    Kind(
        name="modded-nanogpt", files=("modded-nanogpt/*", "unseen/mod_*"), redrawn=True, running=True,
        iterations=(r"^step: *([1-9]\d*)/\d+ .*train_time:[\d.]+m?s",),
        evaluations=r"^step: *\d+/\d+ (?:\| )?val_loss:",
    ),
    Kind(
        name="build-nanogpt", files=("build-nanogpt/*",), iterations=(r"^step\s+\d+(?: \||,) loss: .*dt: [\d.]+ms",),
        evaluations=r"^validation loss: ",
    ),
    Kind(
        name="llm.c", files=("llm.c/*",), iterations=(r"^step\s+\d+/\d+ ?[|:].*loss.*[\d.]+ ms",),
        evaluations=r"^val loss ", checkpoints=r"^Writing checkpoint at step",
    ),
    Kind(name="mingpt", files=("mingpt/*",), iterations=(r"^iter_dt (?!0\.00)[\d.]+ms; iter \d+: ",)),
    Kind(
        name="megatron", files=("megatron/*",), iterations=(r"iteration +\d+/ *\d+ \|.*elapsed time per iteration",),
        evaluations=r"^\S* ?validation (?:loss at|results on)", checkpoints=r"saving checkpoint at iteration",
    ),
    Kind(
        name="torchtitan", files=("torchtitan/*", "unseen/tt_*"), iterations=(r"INFO - step: *\d+ +loss:.*[tw]ps:",),
        evaluations=r"INFO - validate step:", checkpoints=r"INFO - Saving the checkpoint",
    ),
    Kind(
        name="deepspeed", files=("deepspeed/*",),
        iterations=(r"\|E2E latency=", r"steps: \d+ loss: .*iter time", r"CurrSamplesPerSec=", r"^Model Par.*Latency:"),
        evaluations=r"^\*+ Evaluating ", checkpoints=r"^(?:saving (?:the final )?model \.\.\.)",
    ),
    Kind(
        name="hf-state", files=("hf-trainer/*.json",), counted=_in_state, by_number=True,
        evaluations=r'^\s*"eval_loss":',
    ),
    Kind(
        name="hf-trainer", files=("hf-trainer/*.log", "hf-trainer/*.jsonl", "wandb/*.log"), redrawn=True,
        iterations=(rf"^(?:Train:)?{_BAR}", r"""^\{['"]loss['"]: .*global_step/max_steps['"]: ['"](\d+)"""),
        evaluations=_EVALUATED, checkpoints=r"Saving model checkpoint to ",
    ),
    Kind(
        name="axolotl", files=("axolotl/*",), redrawn=True, iterations=(rf"^{_BAR}",), evaluations=_EVALUATED,
        checkpoints=r"Saving model checkpoint to |Training completed! Saving trained model",
    ),
    Kind(name="lightning", files=("lightning/*.log",), redrawn=True, iterations=(rf"^Epoch (\d+):{_BAR}",)),
    Kind(name="lightning", files=("lightning/*.csv",), counted=_in_csv),
    Kind(
        name="litgpt", files=("litgpt/*",), iterations=(r"\biter \d+ .*iter time: [\d.]+ ?ms",),
        evaluations=r"^(?:iter|step) \d+: val loss", checkpoints=r"^Saving (?:checkpoint|\w+ weights|weights) to ",
    ),
    Kind(
        name="composer", files=("composer/*",),
        iterations=(r"^\[(?:\w+=\d+\]\[)?batch=\d+", r"Train loss/train/total: "),
        evaluations=r"^\[Eval batch=(\d+)/\1\]",
    ),
    Kind(
        name="mlx-lm", files=("mlx-lm/*",), iterations=(r"\bIter \d+: Train loss .*It/sec [\d.]+",),
        evaluations=r"\bIter \d+: Val loss", checkpoints=r"\bIter \d+: Saved ",
    ),
    Kind(
        name="keras", files=("keras/*",), iterations=(r"^ *(\d+)/\1 .*\d+m?s/step.* loss: ",),
        evaluations=r"^ *(\d+)/\1 .* val_loss: ", checkpoints=r"^Epoch \d+: .*saving model to ",
    ),
    # The first step of a later epoch is part of the row after it.
    Kind(
        name="metric-logger", files=("metriclogger/*",), evaluations=r"^Test:.*Total time: ",
        iterations=(r"Epoch: \[(?:0\] +\[|\d+\] +\[ *[1-9]).*  time: [\d.]+",),
    ),
    Kind(name="timm", files=("timm/*",), iterations=(r"^Train: (?:0 \[|\d+ \[ *[1-9]).*  Time: [\d.]+s",)),
    Kind(name="minimind", files=("minimind/*", "unseen/mm_*"), iterations=(r"^Epoch:\[\d+/\d+\]\(\d.*epoch_[Tt]ime",)),
    Kind(
        name="verl", files=("rl/*",), redrawn=True, iterations=(r"\bstep:(\d+) - .*timing_s/step:",),
        evaluations=r"timing_s/testing:", checkpoints=r"timing_s/save_checkpoint:",
    ),
    Kind(
        name="olmo", files=("unseen/olmo_*",), iterations=(r"\[step=\d+/\d+",), clocked=False,
        checkpoints=r"Saving \w+ checkpoint",
    ),
    Kind(
        name="fairseq", files=("unseen/fs_*",), iterations=(r'train_inner.*num_updates',), clocked=False,
        evaluations=r'"valid_num_updates"', checkpoints=r"Saved checkpoint ",
    ),
    Kind(
        name="parameter-golf", files=("parameter-golf/*", "unseen/pg_*"), clocked=False,
        iterations=(r"^(?:step: *)?([1-9]\d*)/\d+ train_loss:.*train_time: *[\d.]+m",),
        evaluations=r"^(?:step: *)?\d+/\d+ val_loss: *[\d.]+ val_bpb",
    ),
    Kind(
        name="detectron2", files=("detectron2/*.txt",), iterations=(r"\beta: .* iter: \d+ .* time: [\d.]+",),
        checkpoints=r"Saving checkpoint to ",
    ),
    Kind(
        name="detectron2-json", files=("detectron2/*.json", "unseen/d2_*"), clocked=False,
        iterations=(r'^\{.*"iteration": \d+.*"time": [\d.]+',),
    ),
    # The two mmengine formats contain their log twice.
    Kind(name="mmengine", files=("mm/*.log",), counted=_holding(b"mmengine", b"mmdet"), by_number=True),
    Kind(name="mmengine-json", files=("mm/*.json",), counted=_holding(b'"data_time"'), by_number=True),
    Kind(name="ultralytics-csv", files=("yolo/*.csv",), counted=_in_results, by_number=True),
    Kind(name="ultralytics", files=("yolo/*.log",), counted=_holding(b"mAP50", b"mAP@.5"), by_number=True),
    Kind(name="tqdm-loop", files=("tqdm-loop/*", "unseen/wb_*"), counted=_holding(b"it/s", b"s/it"), by_number=True),
    Kind(
        name="hf-notebook", files=("hf-notebook/*.ipynb", "unseen/nb_satish*"), counted=_holding(b"<progress"),
        by_number=True,
    ),
    Kind(
        name="hf-trainer", files=("hf-notebook/*.log", "rl/*.log", "unseen/hf_c*", "unseen/lf_*"), by_number=True,
        counted=_holding(b"train_runtime", b"elapsed_time"),
    ),
    Kind(name="verl", files=("rl/02*",), counted=_holding(b"timing_s/step"), by_number=True),
    Kind(name="hf-state", files=("unseen/state_*",), counted=_in_state, by_number=True),
    Kind(name="wandb-file", files=("wandb-binary/*",), counted=_holding(b":W&B"), by_number=True),
    Kind(name="tensorboard", files=("unseen/tb_*",), counted=_holding(b"brain.Event"), by_number=True, clocked=False),
    Kind(name="tensorboard", files=("tensorboard/*",), counted=_in_events, by_number=True, clocked=False),
    Kind(name="wandb", files=("wandb/*.json",), counted=_in_summary, by_number=True),
)  # fmt: skip
NO_FORMAT = ""
OWN_NOTES = (".tsv", ".md")  # the corpus's own files, which quote lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One file of the corpus, and what the patterns here find in it."""

    path: Path
    kind: Kind
    source: Source
    iterations: tuple[int, ...]
    """Their lines, or their numbers if the kind counts those."""
    evaluations: int
    checkpoints: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The result of reading one file."""

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
    """Other readers that accept some of its lines."""
    difference: float | None
    """Between the step time and the clock, as a share; None without a clock."""
    unexpected: int = 0
    """Iterations read from a file that contains none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The result of reading a generated log of one format."""

    name: str
    bytes_per_s: float = 0.0
    rates: tuple[float, ...] = ()
    """Bytes per second: of iterations, with events between them, with a stamp before every line, with other lines."""
    rows: int = 0
    entries_per_s: float | None = None
    wanted_per_s: float | None = None
    reason: str = ""
    """Why there is no rate."""


# --- the corpus -------------------------------------------------------------------------------------------------


def samples(place: Path, names: Collection[str] = FORMATS.keys()) -> Iterator[Sample]:
    """The files that contain iterations by their pattern, or are of a format that is not a log."""
    taken: set[Path] = set()
    for kind in (kind for kind in KINDS if kind.name in names):
        for path in sorted({path for glob in kind.files for path in place.glob(glob)} - taken):
            if path.stat().st_size <= LARGEST_FILE:
                sample = _sample(path, kind)
                if sample is not None:
                    taken.add(path)
                    yield sample


def _sample(path: Path, kind: Kind) -> Sample | None:
    source = from_file(path)
    lines = _lines(source)
    found = kind.counted(path.read_bytes()) if kind.counted else _iterations(lines, kind) or None
    if found is None:
        return None
    return Sample(
        path=path, kind=kind, source=source, iterations=tuple(found),
        evaluations=len(_matching(lines, kind.evaluations)), checkpoints=len(_matching(lines, kind.checkpoints)),
    )  # fmt: skip


def _iterations(lines: Sequence[str], kind: Kind) -> list[int]:
    for pattern in map(re.compile, kind.iterations):
        fits = [(number, found.groups()) for number, line in enumerate(lines) if (found := pattern.search(line[:2000]))]
        if kind.redrawn:
            fits = [fit for i, fit in enumerate(fits) if i == 0 or fit[1] != fits[i - 1][1]]
        if kind.running:
            fits = _without_beginning(fits)
        if fits:
            return [number for number, _ in fits]
    return []


def _without_beginning(fits: list[tuple[int, tuple[str, ...]]]) -> list[tuple[int, tuple[str, ...]]]:
    """Without the first line of a cut log: with a clock since the start, only a difference is a time."""
    numbers = [int(groups[0]) for _, groups in fits]
    return fits[1:] if len(fits) > 1 and numbers[0] > numbers[1] - numbers[0] else fits


def _lines(source: Source) -> list[str]:
    return source.text.decode("utf-8", "replace").split("\n")


def _matching(lines: Sequence[str], pattern: str | None) -> list[int]:
    wanted = re.compile(pattern) if pattern else None
    return [number for number, line in enumerate(lines) if wanted is not None and wanted.search(line[:2000])]


# --- accuracy ---------------------------------------------------------------------------------------------------


def measure(place: Path) -> list[Score]:
    """Every file of the corpus: those of a format, and all others, from which nothing may be read."""
    known = list(samples(place))
    rest = {path for path in place.glob("*/*") if path.suffix not in OWN_NOTES} - {sample.path for sample in known}
    return [score_of(sample) for sample in known] + [_score_of_other(path) for path in sorted(rest)]


def _score_of_other(path: Path) -> Score:
    source = from_file(path)
    name = detect(source)
    try:
        rows = sum(int(np.isfinite(run.iterations.time_s).sum()) for run in read(source))
    except InputError:
        rows = 0
    return Score(
        kind=NO_FORMAT, name=f"{path.parent.name}/{path.name.split('_')[0]}", lines=0, read=0, evaluations=(0, 0),
        checkpoints=(0, 0), taken_for=name, cuts=0, cuts_right=0, wrong_cuts=(), mistaken=(), difference=None,
        unexpected=rows,
    )  # fmt: skip


def score_of(sample: Sample) -> Score:
    """One file, read by its own reader and compared with all others."""
    reader = reader_of(sample.kind.name)
    records = Records()
    reader.parse(sample.source.text, 0, records)
    with suppress(InputError):  # it may say that the log is empty
        reader.finish(sample.source.text.count(b"\n") + 1, records)
    found = records.iterations()
    column = found.number if sample.kind.by_number else found.line
    rows = set(column[np.isfinite(found.time_s)].tolist())
    cuts = [(begin, detect(cut)) for begin, cut in _cuts(sample)]
    others = [other for other in all_readers().values() if other.name != reader.name and not other.claims_any_bar]
    return Score(
        kind=reader.name, name=sample.path.name.split("_")[0], lines=len(sample.iterations),
        read=sum(iteration in rows for iteration in sample.iterations),
        evaluations=(_distinct(records, Evaluation), sample.evaluations) if sample.kind.evaluations else (0, 0),
        checkpoints=(_distinct(records, Checkpoint), sample.checkpoints) if sample.kind.checkpoints else (0, 0),
        taken_for=detect(sample.source), cuts=len(cuts), cuts_right=sum(name == reader.name for _, name in cuts),
        wrong_cuts=tuple(f"{begin}: {name}" for begin, name in cuts if name != reader.name),
        mistaken=tuple(other.name for other in others if other.sniff(sample.source.text) > 0),
        difference=_difference(sample),
    )  # fmt: skip


def _distinct(records: Records, event: type) -> int:
    return len({each.line for each in records.events if isinstance(each, event)})


def _cuts(sample: Sample) -> Iterator[tuple[int, Source]]:
    """Excerpts of 200 lines, taken from all over the log, that contain iterations."""
    if sample.kind.by_number:
        return
    lines = _lines(sample.source)
    wanted = np.array(sample.iterations)
    begins = sorted({int(begin) for begin in np.linspace(0, max(len(lines) - CUT_LINES, 0), MOST_CUTS)})
    for begin in begins:
        if bool(((wanted >= begin) & (wanted < begin + CUT_LINES)).any()):
            yield begin, from_text("\n".join(lines[begin : begin + CUT_LINES]))


def _difference(sample: Sample) -> float | None:
    """The median over the spans between two rows without an event, or over all spans if the clock only has seconds."""
    if not sample.kind.clocked:
        return None
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
    """The table by format, followed by what went wrong."""
    out = [
        "| format | logs | iteration lines | read | evaluations | checkpoints | format found | cut to 200 lines "
        "| other readers | step time against the clock |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    out += [_row(name, [score for score in scores if score.kind == name]) for name in FORMATS]
    wanted = (
        "Against the clock: torchtitan's times are taken from its clock, so that its 0.00% shows nothing, and "
        "DeepSpeed's are if no line shows the batch.\n\n"
        f"Wanted: {WANTED_SHARE:.1%} of the lines, every format found, no other reader that accepts a line, and a "
        f"median difference of at most {WANTED_DIFFERENCE:.0%} from the clock. Evaluations and checkpoints are those "
        "found, of those that a pattern counts; a dash stands for formats that have no pattern for them here, and "
        "where there is nothing to count: a state of the Trainer without its runtime has no times, and a file that is "
        "no log of lines is not cut. Of all other files in the corpus no iteration may be read."
    )
    return "\n".join([*out, "", wanted, *_faults(scores)])


def _row(name: str, scores: Sequence[Score]) -> str:
    if not scores:
        return f"| {name} | 0 | | | | | | | | |"
    lines, done = sum(s.lines for s in scores), sum(s.read for s in scores)
    kind = next(kind for kind in KINDS if kind.name == name)
    clocks = [s.difference for s in scores if s.difference is not None]
    cuts = sum(s.cuts for s in scores)
    cells = [
        name, str(len(scores)), f"{lines:,}", f"{done / lines:.2%}" if lines else "–",
        _pair([s.evaluations for s in scores]) if kind.evaluations else "–",
        _pair([s.checkpoints for s in scores]) if kind.checkpoints else "–",
        f"{sum(s.taken_for == name for s in scores)} of {len(scores)}",
        f"{sum(s.cuts_right for s in scores)} of {cuts}" if cuts else "–",
        "none" if not any(s.mistaken for s in scores) else str(sum(bool(s.mistaken) for s in scores)),
        f"{median(clocks):.2%} ({len(clocks)} logs)" if clocks else "no clock",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _pair(pairs: Sequence[tuple[int, int]]) -> str:
    return f"{sum(found for found, _ in pairs)} of {sum(there for _, there in pairs)}"


def _faults(scores: Sequence[Score]) -> list[str]:
    out = []
    for score in scores:
        if score.kind == NO_FORMAT:
            if score.unexpected:
                out.append(f"- {score.name}: {score.unexpected} iterations read as {score.taken_for}, and none counted")
            continue
        name = f"{score.kind}/{score.name}"
        if score.read < WANTED_SHARE * score.lines:
            out.append(f"- {name}: {score.read} of {score.lines} lines read")
        for what, (found, there) in (("evaluations", score.evaluations), ("checkpoints", score.checkpoints)):
            kind = next(kind for kind in KINDS if kind.name == score.kind)
            if getattr(kind, what) and found != there:
                out.append(f"- {name}: {found} {what} found, {there} counted")
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
_BEGIN, _SECONDS_A_ROW = datetime(2025, 1, 1, tzinfo=UTC), 10
_NANOGPT_LINES = "iter 100: loss 4.2731, time 168.63ms, mfu 3.27%\niter 200: loss 4.2012, time 168.59ms, mfu 3.27%"
_LEAST_READ = 0.995
_EVENTS, _TAGS = 200_000, ("train/loss", "train/grad_norm", "train/learning_rate", "train/epoch")
_ENTRIES = 100_000


class NotGenerated(Exception):
    """The example of a format does not produce a log that is read."""


def generated(reader: Reader, size: int = GENERATED_BYTES) -> tuple[Source, int]:
    """A log in the lines of the format's example, with rising numbers and clocks; and its number of iterations."""
    return _written(_WRITERS.get(reader.name, _renumbered)(reader), size)


def mixed(reader: Reader, size: int = GENERATED_BYTES) -> tuple[Source, int]:
    """The same with evaluations, saves and other lines between the iterations, as often as in real logs."""
    return _written(with_events(reader.name, _WRITERS.get(reader.name, _renumbered)(reader)), size)


def noisy(reader: Reader, size: int = GENERATED_BYTES) -> tuple[Source, int]:
    """The mixed log with as many lines of other programs as its own."""
    return _written(with_noise(with_events(reader.name, _WRITERS.get(reader.name, _renumbered)(reader))), size)


def stamped(reader: Reader, size: int = GENERATED_BYTES) -> tuple[Source, int]:
    """The mixed log as a logger writes it, with a clock and a level in front of every line."""
    return _written(with_stamps(with_events(reader.name, _WRITERS.get(reader.name, _renumbered)(reader))), size)


def _written(lines: Written, size: int) -> tuple[Source, int]:
    text, length, rows = [], 0, 0
    for part, iterations in lines:
        text.append(part)
        length, rows = length + len(part.encode()) + 1, rows + iterations
        if length >= size:
            break
    return from_text("\n".join(text) + "\n"), rows


Written = Iterator[tuple[str, int]]
"""Pieces of an endless log, and the number of iterations in each."""


def _renumbered(reader: Reader) -> Written:
    """For formats whose iterations are single lines with a time of their own."""
    example = example_of(reader.name) if reader.name != "nanogpt" else _NANOGPT_LINES
    records = Records()
    reader.parse(example.encode(), 0, records)
    reader.finish(example.count("\n") + 1, records)
    rows = records.iterations()
    lines = example.split("\n")
    numbered = zip(rows.line.tolist(), rows.number.tolist(), strict=True)
    shapes = [shape for line, number in numbered if (shape := around_number(lines[line], number))]
    if not shapes:
        raise NotGenerated("its example has no line with a number to count on")
    yield "\n".join(line for number, line in enumerate(lines) if number not in set(rows.line.tolist())), 0
    for number in count(1):
        before, width, after = shapes[number % len(shapes)]
        line = f"{before}{str(number).zfill(width)}{after}"
        moment = _BEGIN + timedelta(seconds=_SECONDS_A_ROW * number)
        yield _CLOCK.sub(moment.strftime("%Y-%m-%d %H:%M:%S"), line), 1


def _running(reader: Reader) -> Written:
    """With a clock since the start, in milliseconds; the first line of the example is a validation."""
    validation, step, *_ = example_of(reader.name).split("\n")
    for number in count():
        line = validation if number % 250 == 0 else step
        line = re.sub(r"step:\d+/\d+", f"step:{number}/1000000", line)
        yield re.sub(r"train_time:\d+", f"train_time:{33 * number}", line), int(number > 0)


def _with_bars(reader: Reader) -> Written:
    """A tqdm bar and a dictionary for each step."""
    dictionary = next(line for line in example_of(reader.name).split("\n") if line.startswith("{'loss'"))
    total, step_s = 200_000, 1.2
    yield _bar("", 0, total, step_s), 0
    for number in count(1):
        epoch = re.sub(r"('epoch': '?)[\d.]+", rf"\g<1>{number / 1000:.4g}", dictionary)
        yield f"{_bar('', number, total, step_s)}\n{epoch}", 1


def _by_epoch(reader: Reader) -> Written:
    """A bar for each batch, and one for the validation at the end of each epoch."""
    more = re.search(r", v_num=.*?\]", example_of(reader.name))
    validation = next(line for line in example_of(reader.name).split("\n") if line.startswith("Validation"))
    for epoch in count():
        for batch in range(1, 1001):
            yield _bar(f"Epoch {epoch}: ", batch, 1000, 0.2, more[0] if more else "]"), 1
        yield validation, 0


def _bar(title: str, done: int, total: int, step_s: float, more: str = "]") -> str:
    full = 10 * done // total
    rate = "?it/s" if not done else f"{step_s:5.2f}s/it" if step_s > 1 else f"{1 / step_s:5.2f}it/s"
    left = _interval(step_s * (total - done)) if done else "?"
    bar = "█" * full + " " * (10 - full)
    return f"{title}{100 * done // total:3d}%|{bar}| {done}/{total} [{_interval(step_s * done)}<{left}, {rate}{more}"


def _interval(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def _records_of_lines(reader: Reader) -> Written:
    """Composer's records, every 20 batches, with its clock in hours."""
    for number in count(20, 20):
        hours = f"{number / 0.2503 / 3600:.4f}"
        record = re.sub(r"\[batch=\d+/\d+\]", f"[batch={number}/2000000]", example_of(reader.name))
        yield re.sub(r"(time/(?:train|total): )[\d.]+", rf"\g<1>{hours}", record), 1


def _by_header(reader: Reader) -> Written:
    """Keras: an epoch is its header and its last line."""
    last_line = example_of(reader.name).split("\n")[-1]
    for epoch in count(1):
        yield f"Epoch {epoch}/1000000\n{last_line}", 1


def _recorded(reader: Reader) -> Written:
    """The recorder's: a header, then each step with everything it may contain, followed by its device time."""
    yield example_of(reader.name).split("\n")[0], 0
    for number in count():
        end = 1_763_264_000.12 + 0.1718 * number
        inside = f'"data_s":0.001210,"wait_s":0.000{number % 1000:03d},"loss":{3 + 1 / (number + 1):.4f}'
        yield f'{{"step":{number},"s":0.171{number % 1000:03d},"t":{end:.6f},{inside}}}', 1
        yield f'{{"device":{number},"s":0.170{number % 1000:03d}}}', 0


def _by_steps_of_epochs(reader: Reader) -> Written:
    """The first line of the example with its steps in the epoch renumbered; and the evaluation at the end of each."""
    lines = example_of(reader.name).split("\n")
    tests = "\n".join(line for line in lines if line.startswith("Test"))
    for epoch in count():
        line = re.sub(r"^(Epoch: \[|Train: |Epoch:\[)\d+", rf"\g<1>{epoch + 1}", lines[0])
        for step in range(20, 8001, 20):
            yield re.sub(r"\d+/\d{3,}", f"{step}/8001", line), 1
        yield tests, 0


def _behind(word: str, step: int = 1) -> Callable[[Reader], Written]:
    """The lines of the example with a number after this word; it rises by `step` from each to the next."""

    def written(reader: Reader) -> Written:
        lines = example_of(reader.name).split("\n")
        numbered = [line for line in lines if re.search(word + r"\d", line)]
        yield _CLOCK.sub(f"{_BEGIN:%Y-%m-%d %H:%M:%S}", lines[0]) if lines[0] not in numbered else "", 0
        for number in count(1):
            moment = _BEGIN + timedelta(seconds=_SECONDS_A_ROW * number)
            line = re.sub(rf"({word})\d+", rf"\g<1>{step * number}", numbered[number % len(numbered)])
            line = re.sub(r"^\[\d\d/\d\d [\d:]+", f"[{moment:%m/%d %H:%M:%S}", line)  # of detectron2
            yield _CLOCK.sub(f"{moment:%Y-%m-%d %H:%M:%S}", line), 1

    return written


def _in_loops(reader: Reader) -> Written:
    """A bar for each epoch, drawn twice a second, and one for its validation; a row covers about half a minute."""
    for epoch in count(1):
        for batch in range(0, 1001, 2):
            more = f", loss={2 + 1 / (1000 * epoch + batch):.3f}]"
            yield _bar(f"Epoch {epoch}/2000: ", batch, 1000, 0.2, more), int(batch in (200, 400, 600, 800, 1000))
        yield _bar("Validation: ", 100, 100, 0.05), 0


def _in_table(reader: Reader) -> Written:
    """One bar of a notebook, and a row of its table for each step."""
    yield "[ 900001/1000000 250:00:00 < 27:46:40, 1.00 it/s, Epoch 0.90/1]\nStep\tTraining Loss\tValidation Loss", 0
    for number in count(1):
        yield f"{number}\t{2 + 1 / number:.6f}\t{2.1 + 1 / number:.6f}", 1


def _in_cells(reader: Reader) -> Written:
    """YOLO's results.csv: one epoch after the other, with a running clock."""
    header, row, *_ = example_of(reader.name).split("\n")
    yield header, 0
    for epoch in count(1):
        yield re.sub(r"^\d+,[\d.]+", f"{epoch},{31.97 * epoch:.2f}", row), 1


def _by_moments(reader: Reader) -> Written:
    """MLflow's file of one metric."""
    for number in count(1):
        yield f"{1_745_377_456_120 + 321 * number} {2 + 1 / number:.6f} {number}", 1


def _by_clock(reader: Reader) -> Written:
    """OLMo's blocks, each with its clock."""
    block = "\n".join(example_of(reader.name).split("\n")[:4])
    for number in count(1):
        moment = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=4 * number)
        text = re.sub(r"^[\d-]+ [\d:]+", f"{moment:%Y-%m-%d %H:%M:%S}", block)
        yield re.sub(r"step=\d+/\d+", f"step={number}/9000000", text), 1


def _by_losses(reader: Reader) -> Written:
    """MindSpore: an epoch is its loss and the line with its time."""
    *_, loss, time_line = example_of(reader.name).split("\n")
    for epoch in count(1):
        yield re.sub(r"^epoch: \d+", f"epoch: {epoch}", loss) + f"\n{time_line}", 1


def _by_costs(reader: Reader) -> Written:
    """Time-Series-Library: two pairs of lines in each epoch, and the lines at its end, which are a row of their own."""
    place, speed, *end = example_of(reader.name).split("\n")[:5]
    for epoch in count(1):
        for done in (100, 200):
            yield re.sub(r"iters: \d+, epoch: \d+", f"iters: {done}, epoch: {epoch}", place) + f"\n{speed}", 1
        yield "\n".join(re.sub(r"^Epoch: \d+", f"Epoch: {epoch}", line) for line in end), 1


_WRITERS: dict[str, Callable[[Reader], Written]] = {
    "modded-nanogpt": _running, "hf-trainer": _with_bars, "axolotl": _with_bars, "lightning": _by_epoch,
    "composer": _records_of_lines, "keras": _by_header, "stepwatch": _recorded,
    "parameter-golf": _running, "metric-logger": _by_steps_of_epochs, "timm": _by_steps_of_epochs,
    "minimind": _by_steps_of_epochs, "olmo": _by_clock, "verl": _behind("step:"), "detectron2": _behind(" iter: ", 20),
    "detectron2-json": _behind('"eta_seconds": [0-9.]+, "iteration": ', 20), "fairseq": _behind("num_updates=", 200),
    "tqdm-loop": _in_loops, "hf-notebook": _in_table, "mlflow": _by_moments,
    "ultralytics-csv": _in_cells, "mindspore": _by_losses, "time-series-library": _by_costs,
}  # fmt: skip


def around_number(line: str, number: int) -> tuple[str, int, str] | None:
    found = re.search(rf"(?<![\d.:-])(0*){number}(?![\d.:]\d)", _CLOCK.sub(lambda clock: "x" * len(clock[0]), line))
    if found is None:
        return None
    return line[: found.start()], len(found[0]) if found[1] else 0, line[found.end() :]


def speeds(names: Collection[str] = ()) -> list[Rate]:
    """The best of a few rates of each reader, or of the named ones."""
    rates = []
    for name, reader in all_readers().items():
        if names and name not in names:
            continue
        try:
            rates.append(_SPECIAL[name]() if name in _SPECIAL else _of_lines(reader))
        except (NotGenerated, InputError) as reason:
            rates.append(Rate(name=name, reason=str(reason)))
        except Exception as failure:  # whatever is wrong with one format, the others are measured
            rates.append(Rate(name=name, reason=f"{type(failure).__name__}: {failure}"))
    return rates


def _of_lines(reader: Reader) -> Rate:
    logs = (generated,) if reader.name in _ALONE else (generated, mixed, stamped, noisy)
    measured = [_measured(reader, *log(reader)) for log in logs]
    rates = tuple(rate for rate, _ in measured)
    return Rate(name=reader.name, bytes_per_s=rates[0], rates=rates, rows=measured[0][1])


def _measured(reader: Reader, source: Source, wanted: int) -> tuple[float, int]:
    """The best rate, and the iterations that were read."""
    best, rows = max(speed_of(source, reader.name) for _ in range(REPEATS))
    if rows < _LEAST_READ * wanted:
        raise NotGenerated(f"of the {wanted:,} iterations that were written, {rows:,} are read")
    return best, rows


def speed_of(source: Source, name: str) -> tuple[float, int]:
    begin = time.process_time()  # CPU time: other programs may be running
    runs = read(source, name)
    seconds = time.process_time() - begin
    return len(source.text) / seconds, sum(len(run.iterations) for run in runs)


def _rate_of_events() -> Rate:
    """TensorBoard: four numbers per step, as Hugging Face logs them."""
    from tests import event_files

    begin, steps = 1_700_000_000.0, _EVENTS // len(_TAGS)
    numbers = (
        event_files.scalar(begin + 0.8 * step + 1e-4 * place, step, tag, 2.0 + 1 / step)
        for step in range(1, steps + 1)
        for place, tag in enumerate(_TAGS)
    )
    data = event_files.start(begin) + b"".join(numbers)
    return _counted_rate("tensorboard", data, steps, _EVENTS, WANTED_EVENTS)


def _rate_of_state() -> Rate:
    rows = [{"epoch": step / 1000, "learning_rate": 4e-05, "loss": 2.1, "step": step} for step in range(1, _ENTRIES)]
    end = {"epoch": _ENTRIES / 1000, "train_loss": 2.2, "train_runtime": 1.2 * _ENTRIES, "step": _ENTRIES}
    state = {"global_step": _ENTRIES, "log_history": [*rows, end], "max_steps": _ENTRIES}
    return _counted_rate("hf-state", json.dumps(state, indent=2).encode(), _ENTRIES - 1, _ENTRIES)


def _rate_of_wandb() -> Rate:
    """A run-….wandb: four numbers per step."""
    from tests import wandb_files

    rows = [
        wandb_files.history(
            train__loss=2 + 1 / step, train__grad_norm=0.61, train__learning_rate=4e-05, train__global_step=step,
            _step=step, _timestamp=wandb_files.BEGIN_S + 0.8 * step,
        )
        for step in range(1, _ENTRIES // 2)
    ]  # fmt: skip
    return _counted_rate("wandb-file", wandb_files.framed(wandb_files.started({}), *rows), len(rows) - 1, len(rows))


def _rate_of_summary() -> Rate:
    """A wandb-summary.json with very many metrics, all at one step."""
    metrics = {f"layer/{place}/grad_norm": 0.61 + place / 1e6 for place in range(_ENTRIES)}
    summary = {"_step": 5000, "_runtime": 610.4, "_timestamp": 1.7e9, "train/global_step": 5000, "train/loss": 3.1}
    return _counted_rate("wandb", json.dumps(summary | metrics).encode(), 1, _ENTRIES)


def _rate_of_database() -> Rate:
    """trackio: one row per step."""
    with sqlite3.connect(":memory:") as database:
        columns = "id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT"
        database.execute(f"CREATE TABLE metrics ({columns})")
        database.executemany(
            "INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, 'one', ?, ?)",
            (
                (
                    (_BEGIN + timedelta(seconds=step)).isoformat(),
                    step,
                    json.dumps({"train/loss": 2 + 1 / step, "lr": 4e-5}),
                )
                for step in range(1, _ENTRIES // 2)
            ),
        )
        database.commit()
        return _counted_rate("trackio", database.serialize(), _ENTRIES // 2 - 2, _ENTRIES // 2)


def _counted_rate(name: str, data: bytes, wanted: int, counted: int, wanted_per_s: float | None = None) -> Rate:
    """The rate of a file that is not a log of lines: its entries per second."""
    source = Source(name, data)
    best, rows = max(speed_of(source, name) for _ in range(REPEATS))
    if rows < _LEAST_READ * wanted:
        raise NotGenerated(f"of the {wanted:,} iterations that were written, {rows:,} are read")
    return Rate(
        name=name, bytes_per_s=best, rows=rows, entries_per_s=counted * best / len(data), wanted_per_s=wanted_per_s
    )


# The reference itself, and files that no logger writes.
_ALONE = ("nanogpt", "stepwatch", "detectron2-json", "mmengine-json", "ultralytics-csv", "hf-notebook", "mlflow")
_SPECIAL: dict[str, Callable[[], Rate]] = {
    "tensorboard": _rate_of_events, "hf-state": _rate_of_state, "wandb": _rate_of_summary,
    "wandb-file": _rate_of_wandb, "trackio": _rate_of_database,
}  # fmt: skip


def speed_table(rates: Sequence[Rate]) -> str:
    """Rates as Markdown; formats that are not logs of lines, and what could not be measured, come below."""
    out = [
        f"Logs of {GENERATED_BYTES / 1e6:.0f} MB of each format's own example lines, renumbered; with evaluations, "
        "saves and other lines between them; these with a logger's stamp in front of every line; and with as many "
        "lines of other programs, warnings, tables and progress. MB per second of CPU time; at least "
        f"{WANTED_BYTES_PER_S / 1e6:.0f} are wanted. The last column is the slowest of them over nanoGPT's rate in the "
        "same run.", "",
        "| format | iterations, MB/s | with events | with stamps | with other lines | rows | over nanoGPT's |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    measure = next((rate.bytes_per_s for rate in rates if rate.name == "nanogpt" and rate.rates), float("nan"))
    out += [
        f"| {rate.name} | {_in_megabytes(rate.rates)} | {rate.rows:,} | {min(rate.rates) / measure:.2f} |"
        for rate in rates
        if rate.rates
    ]
    below = []
    for rate in rates:
        if rate.entries_per_s is not None:
            wanted = f" (wanted ≥ {rate.wanted_per_s:,.0f})" if rate.wanted_per_s else ""
            figure = f"**{rate.entries_per_s:,.0f}** entries a second{wanted}, {rate.bytes_per_s / 1e6:.0f} MB/s"
            below.append(f"- {rate.name}: {figure}, {rate.rows:,} iterations")
        elif rate.reason:
            below.append(f"- {rate.name}: not measured, {rate.reason}")
    return "\n".join(
        [*out, "", "Formats that are no log of lines, and what was not measured:", "", *below] if below else out
    )


def _in_megabytes(rates: Sequence[float]) -> str:
    return " | ".join([*(f"{rate / 1e6:.0f}" for rate in rates), *3 * "–"][:4])


def main() -> None:
    """Measures what the command line names, else everything."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    if wanted != "speed":
        print(table(measure(corpus_or_exit())))
    if wanted != "accuracy":
        print(speed_table(speeds(sys.argv[2:])))


if __name__ == "__main__":
    main()
