"""nanoGPT and its forks.

The printed time spans the whole turn of the loop: evaluation and checkpoint of iteration k are in the
time of the line `iter k`. It is taken before the device is waited for, and only of the logged iteration.
"""

from __future__ import annotations

import math
import re

import numpy as np

from stepwatch.readers.columns import Block, Template
from stepwatch.readers.records import Records
from stepwatch.readers.stamps import stamp_of, strip_prefix
from stepwatch.run import Checkpoint, Evaluation, Fact, Fault, Timing
from stepwatch.settings import KINDS, read_value

NAME = "nanogpt"
TIMING = Timing.SPANS_ITERATION

TEMPLATES = (
    Template("iter {number}: loss {loss}, time {time_ms}ms, mfu {mfu}%"),
    Template("iter {number}: loss {loss}, time {time_ms}ms"),
)

_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|nan|-?inf"
_ITERATION = re.compile(r"(?<![\w*])iter(?:ation)?\s+(?P<number>\d{1,12})\s*:(?P<body>.*)")
_TIME = re.compile(r"(?<!total )\btime:?\s*(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|sec|seconds?)\b")
_AVERAGE = re.compile(r"(?P<value>\d+(?:\.\d+)?)\s*ms/iter\b")
_LOSS = re.compile(rf"\bloss:?\s*(?P<value>{_NUMBER})")
_MFU = re.compile(r"\bmfu:?\s*(?P<value>-?\d+(?:\.\d+)?)\s*%")
_TOKENS_PER_S = re.compile(r"\b(?:tokens/s|tok/s|tokens/sec|tok/sec):?\s*(?P<value>\d[\d.,]*)")
_EVALUATION = re.compile(r"(?:step|eval)\s+(?P<at>\d{1,12})\b(?P<more>[^:|]*):(?P<body>.*)")
_FORK_EVALUATION = re.compile(r"\[eval\]\s+iter\s+(?P<at>\d{1,12})\s*:(?P<body>.*)")
_SAVING = re.compile(r"sav(?:ing|ed)\s+(?:model\s+)?checkpoint\b(?P<body>.*)", re.IGNORECASE)
_SAVED_NUMBER = re.compile(r"(?:ckpt|checkpoint|iter|step)[_\-]?0*(?P<at>\d+)\.(?:pt|pth|ckpt|safetensors)\b")
_TRAIN_LOSS = re.compile(rf"\btrain(?:\s+loss)?:?\s+(?P<value>{_NUMBER})")
_VAL_LOSS = re.compile(rf"\b(?:val|test|valid|validation)(?:\s+loss)?:?\s+(?P<value>{_NUMBER})")
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*=(?!=)\s*(?P<value>\S.*)")
# An iteration line that stops before its time, or in the middle of its mfu.
_CUT = re.compile(r"(?<![\w*])iter\s+\d{1,12}\s*:\s(?:(?!\btime:?\s*\d[\d.]*\s*m?s\b|ms/iter).)*$|\btime:?\s*\d[\d.]*\s*ms,?\s*(?:m|mf|mfu:?\s*-?[\d.]*)$")
_MOST_WRAPS = 3

_FAULTS = (
    (re.compile(r"\bKeyboardInterrupt\b"), "interrupted"),
    (re.compile(r"CUDA out of memory|OutOfMemoryError"), "out of memory"),
    (re.compile(r"^(?:Killed|Terminated)\b|\bSIG(?:KILL|TERM)\b|DUE TO TIME LIMIT|oom-kill"), "killed"),
    (re.compile(r"^Traceback \(most recent call last\)"), "traceback"),
)

# Header lines: what they say, under which name, and whether they mark the start of a process.
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
    ("WARNING: using slow attention", "slow_attention", False),
    ("[train] compiling model", "compiling", False),
    ("compiling the model", "compiling", False),
)
_DISTRIBUTED = re.compile(
    r"torch[./]distributed[./]run|OMP_NUM_THREADS environment variable for each process|\btorchrun\b|nproc_per_node|\[rank[1-9]\d*\]|deepspeed", re.IGNORECASE
)
_CARD = re.compile(r"\b(?:NVIDIA|GeForce|Tesla|Quadro|AMD Instinct|TITAN) [\w -]{0,30}\d")
_SCALES = {"K": 1e3, "M": 1e6, "B": 1e9}


def sniff(head: bytes) -> float:
    """How surely this is nanoGPT: iteration lines with its grammar, or its header."""
    if re.search(rb"(?<![\w*])iter \d+:[^\n]*\btime:? ?\d", head):
        return 1.0
    if re.search(rb"iter \d+:[^\n]*ms/iter", head):
        return 0.9
    if re.search(rb"tokens per iteration will be|^step \d+: train loss", head, re.MULTILINE):
        return 0.6
    return 0.0


def parse(text: bytes, first_line: int, records: Records) -> None:
    """Reads one block of whole lines into the records; the lines that fit a template go by columns."""
    block = Block.of(text)
    left = np.arange(len(block.starts))
    for template in TEMPLATES:
        lines, found = template.match(block, left)
        if len(lines):
            _add_columns(records, lines + first_line, found)
            left = np.setdiff1d(left, lines, assume_unique=True)
    _parse_lines(text, block, left, first_line, records)
    records.flush_rows()


def _add_columns(records: Records, lines: np.ndarray, found: dict[str, np.ndarray]) -> None:
    mfu = {"reported_mfu": found["mfu"] / 100} if "mfu" in found else {}
    records.add_rows(number=found["number"].astype(np.int64), time_s=found["time_ms"] / 1e3, loss=found["loss"], line=lines, **mfu)


def _parse_lines(text: bytes, block: Block, left: np.ndarray, first_line: int, records: Records) -> None:
    def line_at(index: int) -> str:
        return text[block.starts[index] : block.ends[index]].decode("utf-8", "replace")

    joined_until = -1
    for index in left.tolist():
        if index <= joined_until:
            continue
        line = line_at(index)
        if _CUT.search(line):
            following = [line_at(i) for i in range(index + 1, min(index + _MOST_WRAPS, len(block.starts)))]
            line, joined = _rejoined(line, following)
            joined_until = index + joined
        if line.strip():
            _parse_line(line, index + first_line, records)


def _rejoined(line: str, following: list[str]) -> tuple[str, int]:
    """A terminal copy breaks long lines: the rest of an iteration stands on the next one or two."""
    whole = line
    for joined, more in enumerate(following, start=1):
        if _ITERATION.search(more) or _SAVING.search(more) or _EVALUATION.search(more):
            break
        whole += more
        if _TIME.search(whole) and not _CUT.search(whole):
            return whole, joined
    return line, 0


def _parse_line(line: str, number: int, records: Records) -> None:
    if _read_iteration(line, number, records):
        return
    rest, prefix = strip_prefix(line)
    if _read_evaluation(rest, prefix, number, records) or _read_saving(rest, prefix, number, records):
        return
    if _read_header(rest, number, records) or _read_fault(rest, number, records) or _read_assignment(rest, number, records):
        return
    _read_surroundings(line, rest, number, records)
    if rest and rest.strip(".…` ") and not rest.startswith("#"):
        records.add_unread(number, line)


def _read_iteration(line: str, number: int, records: Records) -> bool:
    found = _ITERATION.search(line[:4000])
    if not found:
        return False
    body = found["body"]
    time = _TIME.search(body)
    average = None if time else _AVERAGE.search(body)
    if time:
        seconds = float(time["value"]) * (1e-3 if time["unit"] == "ms" else 1.0)
    elif average:
        seconds = float(average["value"]) * 1e-3
        records.events.append(Fact(line=number, name="averaged", value=True))
    else:
        return False
    values = {"number": float(found["number"]), "time_s": seconds, "line": float(number)}
    _add_number(values, "loss", _LOSS.search(body))
    _add_number(values, "reported_mfu", _MFU.search(body), 0.01)
    _add_number(values, "reported_tokens_per_s", _TOKENS_PER_S.search(body))
    if found.start():
        stamp = stamp_of(line[: found.start()])
        if stamp is not None:
            values["stamp_s"] = stamp
    records.add_row(**values)
    return True


def _add_number(values: dict[str, float], name: str, found: re.Match[str] | None, scale: float = 1.0) -> None:
    if found:
        values[name] = float(found["value"].replace(",", "").rstrip(".")) * scale


def _read_evaluation(rest: str, prefix: str, number: int, records: Records) -> bool:
    found = _EVALUATION.match(rest)
    if found:
        body = found["body"]
        if not ("train loss" in body or "val loss" in body or "test loss" in body):
            return False
    else:
        found = _FORK_EVALUATION.match(rest)
        if not found:
            return False
        body = found["body"]
    records.events.append(
        Evaluation(
            line=number, at=int(found["at"]), stamp_s=stamp_of(prefix) if prefix else None,
            train_loss=_loss(_TRAIN_LOSS.search(body)), val_loss=_loss(_VAL_LOSS.search(body)),
        )  # fmt: skip
    )
    return True


def _loss(found: re.Match[str] | None) -> float | None:
    return float(found["value"]) if found else None


def _read_saving(rest: str, prefix: str, number: int, records: Records) -> bool:
    found = _SAVING.match(rest)
    if not found:
        return False
    named = _SAVED_NUMBER.search(found["body"])
    records.events.append(
        Checkpoint(line=number, at=int(named["at"]) if named else None, stamp_s=stamp_of(prefix) if prefix else None)
    )
    return True


def _read_header(rest: str, number: int, records: Records) -> bool:
    for text, name, header in _MARKS:
        if rest.startswith(text):
            records.events.append(Fact(line=number, name=name, value=True, header=header))
            return True
    for pattern, name, header in _HEADER:
        found = pattern.match(rest)
        if found:
            value = _scaled(found["value"])
            if value:
                records.events.append(Fact(line=number, name=name, value=value, header=header))
            return True
    if rest.startswith("using fused AdamW:"):
        records.events.append(Fact(line=number, name="fused", value="True" in rest))
        return True
    return False


def _scaled(text: str) -> float | None:
    text = text.replace(",", "").strip()
    scale = _SCALES.get(text[-1:].upper(), 1.0)
    try:
        value = float(text.rstrip("KMBkmb ")) * scale
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 < value < 1e15 else None


def _read_fault(rest: str, number: int, records: Records) -> bool:
    for pattern, kind in _FAULTS:
        if pattern.search(rest[:500]):
            records.events.append(Fault(line=number, kind=kind))
            return True
    return False


def _read_assignment(rest: str, number: int, records: Records) -> bool:
    """`eval_interval = 500  # why`, as the config dump and `Overriding:` lines have it."""
    override = rest.startswith("Overriding: ")
    found = _ASSIGNMENT.match(rest[12:] if override else rest)
    if not found or len(rest) > 500:
        return False
    name = found["name"]
    if name not in KINDS:
        return override
    value = read_value(name, _without_comment(found["value"]))
    if value is not None:
        records.events.append(Fact(line=number, name=name, value=value))
    return True


def _without_comment(text: str) -> str:
    if text.startswith(("'", '"')):
        closing = text.find(text[0], 1)
        return text[: closing + 1] if closing > 0 else text
    return text.partition("#")[0].strip()


def _read_surroundings(line: str, rest: str, number: int, records: Records) -> None:
    """Facts that stand in other programs' lines: the launcher, the card, work done only when logging."""
    if rest.startswith("#"):
        return
    if _DISTRIBUTED.search(line[:500]):
        records.events.append(Fact(line=number, name="distributed", value=True))
    if _CARD.search(line[:300]):
        records.events.append(Fact(line=number, name="gpu_text", value=rest[:200]))
    if rest.startswith("Gradient norm"):
        records.events.append(Fact(line=number, name="busy_when_logging", value=True))
