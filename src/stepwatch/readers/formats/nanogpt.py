"""nanoGPT and its forks, including llama2.c's train.py, which writes iterations as `10 | loss 9.1 | lr 5e-6 | 81.2ms`.

The printed time spans one whole pass of the loop: evaluation and checkpoint of iteration k are in the time of the line
`iter k`. It is taken before the device is waited for, and covers the logged iteration only.

`stepwatch train` writes the same lines with the time of the step alone, and says so in its first line; evaluations,
checkpoints and compilation have separate lines and times.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from stepwatch.readers.formats import BOTH, NOTHING, Reader
from stepwatch.readers.records import LARGEST_KEPT, LONGEST_TIME_S, Records
from stepwatch.readers.text.faults import CARD, fault_in, may_be_fault
from stepwatch.readers.text.line import (
    LONGEST_LINE,
    MOST_SNIFFED,
    ONE_DIGIT,
    Found,
    Line,
    clock_independent_of_digits,
    lines_with_marks,
    stamp_of,
    strip_prefix,
    value_of,
)
from stepwatch.run import Checkpoint, Evaluation, Event, Fact, Levers, Timing, Traits
from stepwatch.settings import KINDS, read_value

if TYPE_CHECKING:
    from stepwatch.readers.text.block import Block, Floats, Ints, Mask

_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|nan|-?inf"
_ITERATION = Line(  # forks print the pieces in any order
    "{any}iter[ation]  {number}{pad}:",
    "time[:]{pad}{time_ms}{pad}ms",
    "time[:]{pad}{time_s}{pad}s[ec[ond[s]]]",
    "{average_ms:decimal}{pad}ms/iter",
    "loss[:]{pad}{loss}",
    "mfu[:]{pad}{mfu}{pad}%",
    "<tokens;tok>/s[ec][:]{pad}{tokens_per_s}",
)
_BARE_ITERATION = Line("{number} | loss {loss} | lr {word} | {time_ms}ms | mfu {mfu}%")  # of llama2.c
_EVALUATION = re.compile(r"(?:step|eval)\s+(?P<at>\d{1,12})\b(?P<more>[^:|]{0,80}):(?P<body>.*)")
_PLAIN_EVALUATION = Line("step {at}: train loss {train_loss}[ {name}], <val;test> loss {val_loss}[ {name}]{end}")
_PLAIN_SAVE = Line("saving checkpoint to {word}{end}")
_FORK_EVALUATION = re.compile(r"\[eval\]\s+iter\s+(?P<at>\d{1,12})\s*:(?P<body>.*)")
_SAVING = re.compile(r"sav(?:ing|ed)\s+(?:model\s+)?checkpoint\b(?P<body>.*)", re.IGNORECASE)
_SAVED_NUMBER = re.compile(r"(?:ckpt|checkpoint|iter|step)[_\-]?(?P<at>\d{1,12})\.(?:pt|pth|ckpt|safetensors)\b")
_TRAIN_LOSS = re.compile(rf"\btrain(?:\s+loss)?:?\s+(?P<value>{_NUMBER})")
_VAL_LOSS = re.compile(rf"\b(?:val|test|valid|validation)(?:\s+loss)?:?\s+(?P<value>{_NUMBER})")
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*=(?!=)\s*(?P<value>\S.*)")
# What a terminal copy leaves of a line that it breaks: a beginning, a time with an incomplete mfu, half an evaluation.
_BEGINNING = re.compile(r"(?<![\w*])(?:i|it|ite|iter(?:\s+\d{0,12})?|s|st|ste|step(?:\s+\d{0,12})?)\s*$")
_MFU_TO_COME = re.compile(r"\s*(?:ms|s|sec|seconds?),?\s*(?:m|mf|mfu:?\s*-?[\d.]{0,12})?$")
_MFU_COMPLETE = re.compile(r"\s*(?:ms|s|sec|seconds?),\s*mfu:?\s*-?\d{1,12}(?:\.\d{1,12})?\s*%")
_HALF_EVALUATION = re.compile(r"(?<![\w*])step\s+\d{1,12}:\s*(?:t|tr|tra|trai|train\b.{0,60})?$")
_WHOLE_EVALUATION = re.compile(
    rf"(?<![\w*])step\s+\d{{1,12}}:\s*train\s+loss\s+(?:{_NUMBER})[^,]{{0,12}},\s*(?:val|test)\s+loss\s+(?:{_NUMBER})"
)
_END_OF_WORD = re.compile(r"\b(?:iter|step|train|val|test|loss|time|mfu)$")
_MOST_WRAPS = 3
_MANY_LINES = 30  # fewer are read one by one in less time than it takes to find their shape

# Header lines: the pattern, the name of the value, and whether they mark the start of a process.
_HEADER = (
    (re.compile(r"tokens per iteration will be:?\s*(?P<value>[\d,]+)"), "tokens_per_iter", True),
    (re.compile(r"\[train\]\s+tokens/iter\s*=\s*(?P<value>[\d,]+)"), "tokens_per_iter", True),
    (re.compile(r"number of parameters:?\s*(?P<value>[\d.,]+\s*[KMB]?)"), "n_params", True),
    (re.compile(r"num decayed parameter tensors:?.*with (?P<value>[\d,]+) parameters"), "decayed", False),
    (re.compile(r"num non-decayed parameter tensors:?.*with (?P<value>[\d,]+) parameters"), "non_decayed", False),
    (re.compile(r"found vocab_size = (?P<value>\d+)"), "vocab_size", False),
    (re.compile(r"defaulting to vocab_size of GPT-2 to (?P<value>\d+)"), "vocab_size", False),
)
_MARKS = (
    ("Overriding config with", "config", True),
    ("Initializing a new model from scratch", "scratch", True),
    ("Initializing from OpenAI GPT-2 weights", "pretrained", True),
    ("Resuming training from", "resume", True),
    ("using slow attention", "slow_attention", False),  # after a "WARNING: ", which is part of the prefix
    ("[train] compiling model", "compiling", False),
    ("compiling the model", "compiling", False),
)
_DISTRIBUTED = re.compile(
    r"torch[./]distributed[./]run|omp_num_threads environment variable for each process|\btorchrun\b|nproc_per_node"
    r"|\[rank[1-9]\d*\]|deepspeed"
)
# Lines of `stepwatch train` in addition to nanoGPT's.
_OWN_START = re.compile(
    r"stepwatch \S{1,40} trains; times are of the step alone(?P<mean>, the mean since the line before)?;"
)
_OWN_PEAK = re.compile(r"; mfu of its (?P<value>\d{1,6}(?:\.\d{1,6})?) TFLOPS")
_OWN_TIME = re.compile(
    r"(?:(?P<what>evaluation|checkpoint) at (?P<at>\d{1,12}): (?P<how>waited |written in )?|compilation: )"
    r"(?P<value>\d{1,12}(?:\.\d{1,12})?)ms$"
)
_OWN_REMARKS = re.compile(
    r"eta \S.{0,80} at iter \d{1,12}$|checkpoint at \d{1,12}: (?:not written|left out)|note: "
    r"|estimate (?:of|against) the run: |evaluation at \d{1,12}: \d{1,12} of \d{1,12} batches$|profile of iterations \d"
    r"|recipe=modern|next: stepwatch "
)
_OWN_SETTINGS = (
    "seed", "tensorboard_log", "eval_batch_size", "eval_splits", "checkpoint_interval", "keep", "on_nan", "sharding",
    "profile", "weights", "without",
)  # fmt: skip
_BUSY = "busy_when_logging"


_NUMBERED = re.compile(rb"iter(?:ation)?\s{1,4}\d{1,12}\s?:")
# Traces of a log whose lines a terminal copy has broken, before their time or even before their number.
_TRACES = (
    (0.6, re.compile(rb"tokens per iteration will be")),
    (0.6, re.compile(rb"step \d{1,12}: train loss")),
    (0.3, _NUMBERED),
    (0.1, re.compile(rb"mfu -?\d")),
    (0.1, re.compile(rb"time \d[\d.]{0,12}ms\b")),
)


def sniff(head: bytes) -> float:
    """How many iteration lines have nanoGPT's grammar; below 1 if there are only traces of it."""
    begins = [found.start() for found in islice(_NUMBERED.finditer(head), MOST_SNIFFED)]
    lines = [head[begin : begin + LONGEST_LINE].partition(b"\n")[0].decode("utf-8", "replace") for begin in begins]
    hits = sum((found := _ITERATION.find(line)) is not None and _seconds(found, line) is not None for line in lines)
    hits = hits or sum(_BARE_ITERATION.fits(line) for line in lines_with_marks(head, _BARE_ITERATION.marks))
    traces = (weight for weight, pattern in _TRACES if pattern.search(head))
    return float(hits) or next(traces, 0.0)


def _seconds(found: Found, line: str) -> float | None:
    """The time that an iteration line shows; None if it shows no possible time, or only the time since the start."""
    values = found.values()
    name = next((name for name in _UNITS if name in values), None)
    if name is None or values["number"] > LARGEST_KEPT:
        return None
    seconds = values[name] / _UNITS[name]
    begin = next(begin for begin, _, field in found.spans if field.name == name)
    return seconds if 0 <= seconds <= LONGEST_TIME_S and not _TOTAL.search(line[:begin]) else None


_TOTAL = re.compile(r"\btotal time:?\s*$")
_TIMES = ("time_ms", "time_s")
_UNITS = {"time_ms": 1e3, "time_s": 1.0, "average_ms": 1e3}  # per second


def parse(text: bytes, first_line: int, records: Records, *, more_follows: bool = True) -> None:
    """Reads one block of whole lines into the records: many lines of one shape together, the others one by one."""
    if records.held:
        first_line -= records.held.count(b"\n")
        text, records.held = records.held + text, b""
    line_of: Callable[[int], bytes]
    if text.count(b"\n") < _MANY_LINES:
        lines = text.removesuffix(b"\n").split(b"\n")
        left, line_of, count = list(range(len(lines))), lines.__getitem__, len(lines)
    else:
        left, line_of, count = _read_together(text, first_line, records)
    joined_until = -1
    strange: dict[bytes, list[Event]] = {}  # lines of other programs, whatever their digits, and what they show
    for index in left:
        if index <= joined_until or not (letters := line_of(index)):
            continue
        line, kind = _text(letters), letters.translate(ONE_DIGIT)
        if kind in strange:
            records.add_unread(index + first_line, line)
            records.events += [fact._replace(line=index + first_line) for fact in strange[kind]]
            continue
        if _is_broken(line):
            following = [_text(line_of(i)) for i in range(index + 1, min(index + 1 + _MOST_WRAPS, count))]
            line, joined, certain = _rejoined(line, following)
            if more_follows and not certain:
                records.held = text.split(b"\n", index)[index]
                break
            joined_until = index + joined
        known = len(records.events)
        if line.strip() and not _parse_line(line, index + first_line, records):
            records.add_unread(index + first_line, line)
            stated = records.events[known:]
            lasting = all(isinstance(event, Fact) and event.name == _BUSY for event in stated)
            if joined_until < index and lasting and not may_be_fault(line) and clock_independent_of_digits(line):
                strange[kind] = stated


def finish(first_line: int, records: Records) -> None:
    """Reads what was held back because the next lines were missing; `first_line` is the total number of lines."""
    if records.held:
        parse(b"", first_line - (not records.held.endswith(b"\n")), records, more_follows=False)


def _read_together(text: bytes, first_line: int, records: Records) -> tuple[list[int], Callable[[int], bytes], int]:
    """Reads the lines that share a shape with many others, as columns.

    Returns the lines that are left, a function that returns any line by its index, and the number of lines.
    """
    from stepwatch.readers.text.block import Block  # not needed for short logs
    from stepwatch.readers.text.shape import alike

    block = Block.of(text)
    left = block.filled
    for _, lines, found in alike(block, left, (_ITERATION, _BARE_ITERATION)):
        time = next((found[name] / unit for name, unit in _UNITS.items() if name in found), None)
        if time is None:
            continue
        fits = (time >= 0) & (time <= LONGEST_TIME_S) & (found["number"] <= LARGEST_KEPT) & _is_whole(block, lines)
        lines, found, time = lines[fits], {name: column[fits] for name, column in found.items()}, time[fits]
        if len(lines):
            _add_rows(records, lines + first_line, time, found)
            left = block.without(left, lines)
    for statement, lines, found in alike(block, left, (_PLAIN_EVALUATION, _PLAIN_SAVE)):
        plain = _plain(block, lines, found)
        lines, columns = lines[plain], {name: column[plain] for name, column in found.items()}
        if "at" in columns:
            columns["at"] = columns["at"].astype(np.int64)
        records.add_events(Checkpoint if statement is _PLAIN_SAVE else Evaluation, lines + first_line, **columns)
        left = block.without(left, lines)
    return left.tolist(), block.line, len(block.starts)


def _text(line: bytes) -> str:
    """A line as text; of one too long for a log, only both ends: endless noise may precede an iteration."""
    half = LONGEST_LINE // 2
    return (line if len(line) <= LONGEST_LINE else line[:half] + b"\n" + line[-half:]).decode("utf-8", "replace")


def _is_whole(block: Block, lines: Ints) -> np.ndarray:
    """Whether the rest of these lines, which have one shape, cannot be on the next line."""
    first = block.line(int(lines[0])).decode("utf-8", "replace")
    found = _ITERATION.find(first)
    if found is not None and _seconds(found, first) is None:
        return np.zeros(len(lines), bool)
    if not _is_broken(first):
        return np.ones(len(lines), bool)
    following = np.minimum(lines + 1, len(block.starts) - 1)
    goes_on = (following == lines) | (block.octets[block.starts[following]] == ord(","))
    return ~goes_on if first.rstrip().endswith("s") else np.zeros(len(lines), bool)


def _plain(block: Block, lines: Ints, found: dict[str, Floats]) -> Mask:
    """Which of the lines are whole, because another line of nanoGPT's follows, and name no file with a number."""
    from stepwatch.readers.text.clocks import Prefix

    following = np.minimum(lines + 1, len(block.starts) - 1)
    before = strip_prefix(block.line(int(lines[0])).decode("utf-8", "replace"))[1]
    own, begins, _ = Prefix(before).skip(block, following)
    own = own[np.isin(block.words[begins] & np.uint64(0xFFFFFFFFFF), _OWN_WORDS)]
    numbers = np.array([column for name, column in found.items() if name != "stamp_s"] or [np.zeros(len(lines))])
    possible = (np.abs(numbers) <= LARGEST_KEPT).all(axis=0)
    files = np.isin(lines, block.holding(lines, (b".pt", b".ckpt", b".safe")))
    return np.asarray(np.isin(following, own) & (following > lines) & possible & ~files)


_OWN_WORDS = np.array([int.from_bytes(word, "little") for word in (b"iter ", b"step ", b"savin")], np.uint64)


def _add_rows(records: Records, lines: Ints, time: Floats, found: dict[str, Floats]) -> None:
    more = {"reported_mfu": found["mfu"] / 100} if "mfu" in found else {}
    names = {"tokens_per_s": "reported_tokens_per_s", "stamp_s": "stamp_s", "loss": "loss"}
    more |= {column: found[name] for name, column in names.items() if name in found}
    records.add_rows(number=found["number"].astype(np.int64), time_s=time, line=lines, **more)
    if "average_ms" in found:
        records.events.append(Fact(line=int(lines[0]), name="averaged", value=True))


def _is_broken(line: str) -> bool:
    """Whether the rest of this line may be on the next."""
    found = _ITERATION.find(line)
    if found is None:
        return bool(_BEGINNING.search(line[-24:]) or _HALF_EVALUATION.search(line[-100:]))
    units = [end for _, end, field in found.spans if field.name in _TIMES]
    return bool(_MFU_TO_COME.match(line, units[0])) if units else "average_ms" not in found.texts


def _rejoined(line: str, following: list[str]) -> tuple[str, int, bool]:
    """Rejoins a line that a terminal copy broke: the line, how many were joined to it, and whether that is certain."""
    best, whole = (line, 0), line
    begun = _ITERATION.find(line)
    timed = begun is not None and any(name in begun.texts for name in _TIMES)
    for joined, more in enumerate(following, start=1):
        if not more.strip() or more.startswith("```") or _ITERATION.find(more) is not None:
            return *best, True
        if _OWN_TIME.match(more) or _SAVING.search(more) or _EVALUATION.search(more):
            return *best, True
        whole += " " + more if _END_OF_WORD.search(whole[-8:]) else more
        # A line is complete if nanoGPT prints it like this: an iteration with its time, or an evaluation.
        found = _ITERATION.find(whole)
        if found is None:
            complete = bool(_WHOLE_EVALUATION.search(whole[-200:]))
        else:
            units = [end for _, end, field in found.spans if field.name in _TIMES][:1]
            complete = any(mfu.match(whole, end) for end in units for mfu in (_MFU_TO_COME, _MFU_COMPLETE))
        if complete:
            best = (whole, joined)
            if not _is_broken(whole):
                return *best, True
        elif best[1] or timed:
            return *best, True
    return *best, len(following) == _MOST_WRAPS


def _parse_line(line: str, number: int, records: Records) -> bool:
    """Reads one line; False if nothing about it is known."""
    rest, prefix = strip_prefix(line)
    for statement in (_ITERATION, _BARE_ITERATION):
        found = statement.find(rest)
        seconds = _seconds(found, rest) if found is not None else None
        if found is None or seconds is None:
            continue
        values = found.values()
        if "loss" in values and not math.isfinite(values["loss"]):
            values["loss"] = math.inf  # nan means not printed
        ahead = rest[: found.begin]
        if (prefix or ahead) and (stamp := stamp_of(prefix, ahead)) is not None:
            values["stamp_s"] = stamp
        columns = {name: np.array([value]) for name, value in values.items()}
        _add_rows(records, np.array([number]), np.array([seconds]), columns)
        return True
    if _read_event(rest, prefix, number, records) or _read_header(rest, number, records):
        return True
    if _read_own(rest, number, records):
        return True
    fault = fault_in(rest, prefix, number)
    if fault is not None:
        records.events.append(fault)
        return True
    if _read_assignment(rest, number, records) or rest.startswith("#"):
        return True
    # Facts in the lines of other programs: the launcher, the card, work done only when logging.
    if _DISTRIBUTED.search(line[:500].lower()):
        records.events.append(Fact(line=number, name="distributed", value=True))
    if CARD.search(line[:300]):
        records.events.append(Fact(line=number, name="gpu_text", value=rest[:200]))
    if rest.startswith("Gradient norm"):
        records.events.append(Fact(line=number, name=_BUSY, value=True))
    return not rest.strip(".…` ")


def _read_event(rest: str, prefix: str, number: int, records: Records) -> bool:
    """Reads an evaluation or a checkpoint."""
    stamp_s = stamp_of(prefix) if prefix else None
    saving = _SAVING.match(rest)
    if saving:
        named = _SAVED_NUMBER.search(saving["body"])
        at = int(named["at"]) if named else None
        records.events.append(Checkpoint(line=number, at=at, stamp_s=stamp_s))
        return True
    found = _EVALUATION.match(rest)
    if found and not any(loss in found["body"] for loss in ("train loss", "val loss", "test loss")):
        return False
    found = found or _FORK_EVALUATION.match(rest)
    if not found:
        return False
    train, val = _TRAIN_LOSS.search(found["body"]), _VAL_LOSS.search(found["body"])
    evaluation = Evaluation(
        line=number, at=int(found["at"]), stamp_s=stamp_s, train_loss=float(train["value"]) if train else None,
        val_loss=float(val["value"]) if val else None,
    )  # fmt: skip
    records.events.append(evaluation)
    return True


def _read_header(rest: str, number: int, records: Records) -> bool:
    for text, name, header in _MARKS:
        if rest.startswith(text):
            records.events.append(Fact(line=number, name=name, value=True, header=header))
            return True
    for pattern, name, header in _HEADER:
        found = pattern.match(rest)
        if found:
            value = value_of(found["value"], "amount")
            if 0 < value < 1e15:
                records.events.append(Fact(line=number, name=name, value=value, header=header))
            return True
    if rest.startswith("using fused AdamW:"):
        records.events.append(Fact(line=number, name="fused", value="True" in rest))
        return True
    return False


def _read_own(rest: str, number: int, records: Records) -> bool:
    """Reads what `stepwatch train` prints in addition to nanoGPT's lines."""
    found = _OWN_TIME.match(rest)
    if found:
        seconds = float(found["value"]) / 1e3
        if found["what"] is None:
            records.events.append(Fact(line=number, name="compile_s", value=seconds))
        elif found["how"] != "written in ":  # nobody waits for a write in the background
            kind, at = (Evaluation if found["what"] == "evaluation" else Checkpoint), int(found["at"])
            # The event just above that the line is about.
            for place in range(len(records.events) - 1, max(len(records.events) - 6, -1), -1):
                event = records.events[place]
                if isinstance(event, kind) and event.at in (None, at):
                    records.events[place] = event._replace(at=at, took_s=seconds)
                    break
        return True
    started = _OWN_START.match(rest)
    if not started:
        return bool(_OWN_REMARKS.match(rest))
    records.events.append(Fact(line=number, name="step_alone", value=True, header=True))
    records.events.append(Fact(line=number, name="holds", value=NOTHING))
    if started["mean"]:
        records.events.append(Fact(line=number, name="averaged", value=True))
    peak = _OWN_PEAK.search(rest)
    if peak:
        records.events.append(Fact(line=number, name="mfu_peak_flops", value=float(peak["value"]) * 1e12))
    if CARD.search(rest):
        records.events.append(Fact(line=number, name="gpu_text", value=rest[:200]))
    return True


def _read_assignment(rest: str, number: int, records: Records) -> bool:
    """Reads `eval_interval = 500  # why`, as in the config dump and in `Overriding:` lines."""
    override = rest.startswith("Overriding: ")
    found = _ASSIGNMENT.match(rest[12:] if override else rest)
    if not found or len(rest) > 500:
        return False
    name = found["name"]
    if name not in KINDS:
        return override or name in _OWN_SETTINGS
    text = found["value"]
    if text.startswith(("'", '"')):
        closing = text.find(text[0], 1)
        text = text[: closing + 1] if closing > 0 else text
    else:
        text = text.partition("#")[0].strip()
    value = read_value(name, text)
    if value is not None:
        records.events.append(Fact(line=number, name=name, value=value))
    return True


READER = Reader(
    name="nanogpt", timing=Timing.SPANS_ITERATION, holds=BOTH,
    sniff=sniff, parse=parse, finish=finish,
    traits=Traits(
        levers=Levers(
            evaluate_every="eval_interval", evaluation_batches="eval_iters", batch="batch_size",
            accumulation="gradient_accumulation_steps", log_every="log_interval", precision="dtype='bfloat16'",
            compile="compile=True", length="block_size",
        ),
        has_nanogpt_settings=True, states_model=True, announces_compile=True, mfu_of_a100=True, mfu_marks_start=True,
        evaluates_at_zero=True, saves_with_evaluations=True, shows_events=True, prints_means=True,
        unread_lines="all",
    ),
)  # fmt: skip
