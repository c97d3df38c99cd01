"""nanoGPT and its forks, llama2.c's train.py among them, which writes iterations as `10 | loss 9.1 | lr 5e-6 | 81.2ms`.

The printed time spans the whole turn of the loop: evaluation and checkpoint of iteration k are in the
time of the line `iter k`. It is taken before the device is waited for, and only of the logged iteration.

`stepwatch train` writes the same lines with the time of the step alone, and says so in its first line; evaluations,
checkpoints and compilation have lines and times of their own.
"""

from __future__ import annotations

import math
import re
from itertools import islice, repeat

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.columns import MANY_LINES, Block, Floats, Template, numbers_after
from stepwatch.readers.prefixes import behind_prefix
from stepwatch.readers.reader import BOTH, NOTHING, Reader
from stepwatch.readers.records import Records
from stepwatch.readers.stamps import stamp_of, strip_prefix
from stepwatch.run import Checkpoint, Evaluation, Fact, Fault, Timing, Traits, UnreadLines
from stepwatch.settings import KINDS, read_value

TEMPLATES = (
    Template("iter {number}: loss {loss?}, time {time_ms}ms, mfu {mfu}%"),
    Template("iter {number}: loss {loss?}, time {time_ms}ms"),
    Template("{number} | loss {loss?} | lr {*} | {time_ms}ms | mfu {mfu}%"),  # llama2.c
    Template("iter {number}: loss {loss?}, time {time_ms}ms, mfu {mfu}%{**}"),  # what a fork adds
)
_USUAL_EVALUATION = Template("step {at}: train loss {train_loss?}, val loss {val_loss?}")
_USUAL_SAVING = Template("saving checkpoint to {**}")

_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|nan|-?inf"
_ITERATION = Pattern(r"(?<![\w*])iter(?:ation)?\s+(?P<number>\d{1,12})\s*:(?P<body>.*)")
_TIME = Pattern(r"(?<!total )\btime:?\s*(?P<value>\d{1,12}(?:\.\d{1,12})?)\s*(?P<unit>ms|s|sec|seconds?)\b")
_AVERAGE = Pattern(r"(?<![\d.-])(?P<value>\d{1,12}(?:\.\d{1,12})?)\s*ms/iter\b")
_LOSS = Pattern(rf"\bloss:?\s*(?P<value>{_NUMBER})")
_MFU = Pattern(r"\bmfu:?\s*(?P<value>-?\d{1,12}(?:\.\d{1,12})?)\s*%")
_TOKENS_PER_S = Pattern(r"\b(?:tokens/s|tok/s|tokens/sec|tok/sec):?\s*(?P<value>\d[\d,]{0,20}(?:\.\d{1,12})?)")
_BARE_ITERATION = Pattern(  # of llama2.c, with no word before its number
    rf"(?P<number>\d{{1,12}}) \| loss (?P<loss>{_NUMBER}) \| lr \S{{1,20}}"
    r" \| (?P<time_ms>\d{1,12}(?:\.\d{1,12})?)ms \| mfu (?P<mfu>-?\d{1,12}(?:\.\d{1,12})?)%"
)
_EVALUATION = Pattern(r"(?:step|eval)\s+(?P<at>\d{1,12})\b(?P<more>[^:|]{0,80}):(?P<body>.*)")
_FORK_EVALUATION = Pattern(r"\[eval\]\s+iter\s+(?P<at>\d{1,12})\s*:(?P<body>.*)")
_SAVING = Pattern(r"sav(?:ing|ed)\s+(?:model\s+)?checkpoint\b(?P<body>.*)", re.IGNORECASE)
_SAVED_NUMBER = Pattern(r"(?:ckpt|checkpoint|iter|step)[_\-]?(?P<at>\d{1,12})\.(?:pt|pth|ckpt|safetensors)\b")
_TRAIN_LOSS = Pattern(rf"\btrain(?:\s+loss)?:?\s+(?P<value>{_NUMBER})")
_VAL_LOSS = Pattern(rf"\b(?:val|test|valid|validation)(?:\s+loss)?:?\s+(?P<value>{_NUMBER})")
_ASSIGNMENT = Pattern(r"(?P<name>[A-Za-z_]\w*)\s*=(?!=)\s*(?P<value>\S.*)")
# What a terminal copy leaves of a line that it breaks: a beginning, a time without all of its mfu, half an evaluation.
_BEGINNING = Pattern(r"(?<![\w*])(?:i|it|ite|iter(?:\s+\d{0,12})?|s|st|ste|step(?:\s+\d{0,12})?)\s*$")
_MFU_TO_COME = Pattern(r",?\s*(?:m|mf|mfu:?\s*-?[\d.]{0,12})?$")
_MFU_COMPLETE = Pattern(r",\s*mfu:?\s*-?\d{1,12}(?:\.\d{1,12})?\s*%")
_HALF_EVALUATION = Pattern(r"(?<![\w*])step\s+\d{1,12}:\s*(?:t|tr|tra|trai|train\b.{0,60})?$")
_WHOLE_EVALUATION = Pattern(
    rf"(?<![\w*])step\s+\d{{1,12}}:\s*train\s+loss\s+(?:{_NUMBER})[^,]{{0,12}},\s*(?:val|test)\s+loss\s+(?:{_NUMBER})"
)
_END_OF_WORD = Pattern(r"\b(?:iter|step|train|val|test|loss|time|mfu)$")
_MOST_WRAPS = 3
_LONGEST_LINE = 4000
_LONGEST_TIME_S = 1e9

_FAULTS = (
    (Pattern(r"\bKeyboardInterrupt\b|^stopped by (?:SIG|another rank)"), "interrupted"),
    (Pattern(r"CUDA out of memory|OutOfMemoryError"), "out of memory"),
    (Pattern(r"^(?:Killed|Terminated)\b|\bSIG(?:KILL|TERM)\b|DUE TO TIME LIMIT|oom-kill"), "killed"),
    (Pattern(r"^Traceback \(most recent call last\)"), "traceback"),
)

# Header lines: what they say, under which name, and whether they mark the start of a process.
_HEADER = (
    (Pattern(r"tokens per iteration will be:?\s*(?P<value>[\d,]+)"), "tokens_per_iter", True),
    (Pattern(r"\[train\]\s+tokens/iter\s*=\s*(?P<value>[\d,]+)"), "tokens_per_iter", True),
    (Pattern(r"number of parameters:?\s*(?P<value>[\d.,]+\s*[KMB]?)"), "n_params", True),
    (Pattern(r"num decayed parameter tensors:?.*with (?P<value>[\d,]+) parameters"), "decayed", False),
    (Pattern(r"num non-decayed parameter tensors:?.*with (?P<value>[\d,]+) parameters"), "non_decayed", False),
    (Pattern(r"found vocab_size = (?P<value>\d+)"), "vocab_size", False),
    (Pattern(r"defaulting to vocab_size of GPT-2 to (?P<value>\d+)"), "vocab_size", False),
)
_MARKS = (
    ("Overriding config with", "config", True),
    ("Initializing a new model from scratch", "scratch", True),
    ("Initializing from OpenAI GPT-2 weights", "pretrained", True),
    ("Resuming training from", "resume", True),
    ("using slow attention", "slow_attention", False),  # behind a "WARNING: ", which goes with the prefix
    ("[train] compiling model", "compiling", False),
    ("compiling the model", "compiling", False),
)
_DISTRIBUTED = Pattern(
    r"torch[./]distributed[./]run|OMP_NUM_THREADS environment variable for each process|\btorchrun\b|nproc_per_node"
    r"|\[rank[1-9]\d*\]|deepspeed",
    re.IGNORECASE,
)
_CARD = Pattern(r"\b(?:NVIDIA|GeForce|Tesla|Quadro|AMD Instinct|TITAN) [\w -]{0,30}\d")
# Lines of `stepwatch train` beside nanoGPT's.
_OWN_START = Pattern(
    r"stepwatch \S{1,40} trains; times are of the step alone(?P<mean>, the mean since the line before)?;"
)
_OWN_PEAK = Pattern(r"; mfu of its (?P<value>\d{1,6}(?:\.\d{1,6})?) TFLOPS")
_OWN_TIME = Pattern(
    r"(?:(?P<what>evaluation|checkpoint) at (?P<at>\d{1,12}): (?P<how>waited |written in )?|compilation: )"
    r"(?P<value>\d{1,12}(?:\.\d{1,12})?)ms$"
)
_OWN_REMARKS = Pattern(r"eta \S.{0,80} at iter \d{1,12}$|checkpoint at \d{1,12}: (?:not written|left out)|note: ")
_OWN_SETTINGS = frozenset({"seed", "eval_batch_size", "eval_splits", "checkpoint_interval", "on_nan"})
_SCALES = {"K": 1e3, "M": 1e6, "B": 1e9}


_TIMED = Pattern(rb"[^\n]{0,4000}?(?:\btime:?\s?\d|ms/iter)")
# Patterns that begin with plain letters: only these are searched for at the speed of a text search.
_NUMBERED = Pattern(rb"iter(?:ation)?\s{1,4}\d{1,12}\s?:")
_BARE = Pattern(rb" \| loss [\w.+-]{1,20} \| lr [\w.+-]{1,20} \| [\d.]{1,25}ms \| mfu ")
_OWN_WORDS = tuple(Pattern(words) for words in (rb"tokens per iteration will be", rb"step \d{1,12}: train loss"))
_TRACES = tuple(Pattern(words) for words in (rb"mfu -?\d", rb"time \d[\d.]{0,12}ms\b"))
_RATE_PLACE = Pattern(rb"tok(?:ens)?/s(?:ec)?:?\s{0,4}(?=\d)")
_COMMA_IN_RATE = Pattern(rb"tok(?:ens)?/s(?:ec)?:?\s{0,4}\d{1,20},\d")
_OWN_EVENTS = (b"evaluation at ", b"checkpoint at ")
_MOST_SNIFFED = 60
_LONGEST_MFU = 30


def sniff(head: bytes) -> float:
    """How many iteration lines with nanoGPT's grammar; below 1 where there are only traces of it."""
    numbered = list(islice(_NUMBERED.finditer(head), _MOST_SNIFFED))
    timed = sum(_TIMED.match(head, found.end()) is not None for found in numbered)
    if timed:
        return float(timed)
    bare = sum(map(_is_bare, repeat(head), islice(_BARE.finditer(head), _MOST_SNIFFED)))
    if bare:
        return float(bare)
    if any(words.search(head) for words in _OWN_WORDS):
        return 0.6
    # A terminal copy may have broken every line, before its time or even before its number.
    return 0.3 if numbered else 0.1 if any(words.search(head) for words in _TRACES) else 0.0


def _is_bare(head: bytes, found: re.Match[bytes]) -> bool:
    """Whether nothing but a launcher's prefix and the number stand before what was found."""
    begin = head.rfind(b"\n", max(0, found.start() - _LONGEST_LINE), found.start()) + 1
    line = head[begin : found.end() + _LONGEST_MFU].decode("utf-8", "replace")
    return _BARE_ITERATION.match(strip_prefix(line)[0]) is not None


def parse(text: bytes, first_line: int, records: Records) -> None:
    """Reads one block of whole lines into the records; the lines that fit a template go by columns."""
    if records.held:
        first_line -= records.held.count(b"\n")
        text, records.held = records.held + text, b""
    _parse_block(text, first_line, records, more_follows=True)


def finish(first_line: int, records: Records) -> None:
    """Reads what was held back for want of the lines that follow; `first_line` is the number of lines in all."""
    if records.held:
        first_line -= len(records.held.splitlines())
        text, records.held = records.held, b""
        _parse_block(text, first_line, records, more_follows=False)


def _parse_block(text: bytes, first_line: int, records: Records, *, more_follows: bool) -> None:
    block = Block.of(text)
    left = np.flatnonzero(block.ends > block.starts)
    plain, stamps = behind_prefix(text, block, left)
    for template in TEMPLATES:
        lines, found = template.match(plain, left)
        if stamps is not None:
            found["stamp_s"] = stamps[lines]
        fits = _sensible(block, lines, found)
        if template is TEMPLATES[-1] and len(lines):
            fits &= _rates_told(text, block, lines, found)
        if not fits.all():
            lines, found = lines[fits], {name: column[fits] for name, column in found.items()}
        if len(lines):
            _add_columns(records, lines + first_line, found)
            left = block.without(left, lines)
    left = _read_usual_events(text, plain, stamps, left, first_line, records)
    _parse_lines(text, block, left, first_line, records, more_follows)
    records.flush_rows()


def _sensible(block: Block, lines: np.ndarray, found: dict[str, np.ndarray]) -> np.ndarray:
    """Whole numbers and true times; without mfu, only where the next line cannot be the rest of this one."""
    fits = (found["number"] % 1 == 0) & ~np.signbit(found["number"]) & ~np.signbit(found["time_ms"])
    if "mfu" not in found and len(lines):
        following = np.minimum(lines + 1, len(block.starts) - 1)
        fits &= (following > lines) & (block.octets[block.starts[following]] != ord(","))
    return np.asarray(fits)


def _rates_told(text: bytes, block: Block, lines: np.ndarray, found: dict[str, np.ndarray]) -> np.ndarray:
    """Adds the tokens per second that a fork prints; true for the lines of which all is told then."""
    fits = block.ends[lines] - block.starts[lines] <= _LONGEST_LINE
    letters = block.letters(text, lines)
    rate = _RATE_PLACE.search(letters)
    if b"tok" in letters:
        rows, rates = numbers_after(Block.of(letters), letters, rate[0] if rate else b"tok")
        if letters.count(b"tok") != len(lines) or len(rows) != len(lines) or _COMMA_IN_RATE.search(letters):
            return np.zeros(len(lines), bool)
        found["reported_tokens_per_s"] = rates
        fits &= rates > 0
    return np.asarray(fits)


def _read_usual_events(
    text: bytes, block: Block, stamps: Floats | None, left: np.ndarray, first_line: int, records: Records
) -> np.ndarray:
    """Evaluations and saves before a line that cannot be the rest of theirs; the others are left."""
    if len(left) < MANY_LINES or any(words in text for words in _OWN_EVENTS):  # a time is put to the event above it
        return left
    saves, _ = _USUAL_SAVING.match(block, left)
    evaluations, found = _USUAL_EVALUATION.match(block, left)
    whole = np.ones(len(block.starts) + 1, bool)
    whole[left], whole[-1] = False, False
    whole[saves] = whole[evaluations] = True
    plain = whole[saves + 1] & (block.ends[saves] - block.starts[saves] <= _LONGEST_LINE)
    saves = saves[plain]
    plain = whole[evaluations + 1] & (found["at"] % 1 == 0) & ~np.signbit(found["at"])
    plain &= np.isfinite(found["train_loss"]) & np.isfinite(found["val_loss"])
    evaluations = evaluations[plain]
    columns = (found["at"].astype(np.int64), found["train_loss"], found["val_loss"])
    told = zip(evaluations.tolist(), *(column[plain].tolist() for column in columns), strict=True)
    when = (
        [None] * len(block.starts)
        if stamps is None
        else [None if stamp != stamp else stamp for stamp in stamps.tolist()]
    )
    records.events += [
        Evaluation(line=line + first_line, at=at, train_loss=train, val_loss=val, stamp_s=when[line])
        for line, at, train, val in told
    ]
    for line in saves.tolist():
        rest = text[block.starts[line] : block.ends[line]].decode("utf-8", "replace")
        named = _SAVED_NUMBER.search(rest)
        at = int(named["at"]) if named else None
        records.events.append(Checkpoint(line=line + first_line, at=at, stamp_s=when[line]))
    return block.without(block.without(left, saves), evaluations)


def _add_columns(records: Records, lines: np.ndarray, found: dict[str, np.ndarray]) -> None:
    more = {"reported_mfu": found["mfu"] / 100} if "mfu" in found else {}
    more |= {name: found[name] for name in ("stamp_s", "reported_tokens_per_s") if name in found}
    number, time_s = found["number"].astype(np.int64), found["time_ms"] / 1e3
    records.add_rows(number=number, time_s=time_s, loss=found["loss"], line=lines, **more)


def _parse_lines(
    text: bytes, block: Block, left: np.ndarray, first_line: int, records: Records, more_follows: bool
) -> None:
    def line_at(index: int) -> str:
        return _shortened(text[block.starts[index] : block.ends[index]]).decode("utf-8", "replace")

    joined_until = -1
    for index in left.tolist():
        if index <= joined_until:
            continue
        line = line_at(index)
        if _is_broken(line):
            last = min(index + _MOST_WRAPS, len(block.starts) - 1)
            following = [line_at(i) for i in range(index + 1, last + 1)]
            line, joined, certain = _rejoined(line, following)
            if more_follows and not certain:
                records.held = text[block.starts[index] :]
                return
            joined_until = index + joined
        if line.strip():
            _parse_line(line, index + first_line, records)


def _shortened(line: bytes) -> bytes:
    """Both ends of a line that is too long to be a log's own: noise without an end may stand before an iteration."""
    half = _LONGEST_LINE // 2
    return line if len(line) <= _LONGEST_LINE else line[:half] + b"\n" + line[-half:]


def _is_broken(line: str) -> bool:
    """Whether the rest of this line may stand on the next."""
    found = _ITERATION.search(line)
    if found:
        time = _TIME.search(found["body"])
        if time:
            return bool(_MFU_TO_COME.match(found["body"], time.end()))
        return not _AVERAGE.search(found["body"])
    return bool(_BEGINNING.search(line[-24:]) or _HALF_EVALUATION.search(line[-100:]))


def _rejoined(line: str, following: list[str]) -> tuple[str, int, bool]:
    """A terminal copy breaks long lines: the whole line, how many were joined to it, and whether that is certain."""
    best, whole = (line, 0), line
    for joined, more in enumerate(following, start=1):
        if not more.strip() or more.startswith("```") or _begins_anew(more):
            return *best, True
        whole += " " + more if _END_OF_WORD.search(whole[-8:]) else more
        if _is_complete(whole):
            best = (whole, joined)
            if not _is_broken(whole):
                return *best, True
        elif best[1] or _TIME.search(line):
            return *best, True
    return *best, len(following) == _MOST_WRAPS


def _begins_anew(line: str) -> bool:
    return bool(_ITERATION.search(line) or _SAVING.search(line) or _EVALUATION.search(line) or _OWN_TIME.match(line))


def _is_complete(line: str) -> bool:
    """Whether a joined line is one that nanoGPT prints: an iteration with its time, or an evaluation."""
    found = _ITERATION.search(line)
    if not found:
        return bool(_WHOLE_EVALUATION.search(line[-200:]))
    body = found["body"]
    time = _TIME.search(body)
    return bool(time and (_MFU_TO_COME.match(body, time.end()) or _MFU_COMPLETE.match(body, time.end())))


def _parse_line(line: str, number: int, records: Records) -> None:
    if _read_iteration(line, number, records):
        return
    rest, prefix = strip_prefix(line)
    if _read_bare_iteration(rest, prefix, number, records):
        return
    if _read_evaluation(rest, prefix, number, records) or _read_saving(rest, prefix, number, records):
        return
    if _read_header(rest, number, records) or _read_own(rest, number, records) or _read_fault(rest, number, records):
        return
    if _read_assignment(rest, number, records):
        return
    _read_surroundings(line, rest, number, records)
    if rest and rest.strip(".…` ") and not rest.startswith("#"):
        records.add_unread(number, line)


def _read_iteration(line: str, number: int, records: Records) -> bool:
    found = _ITERATION.search(line)
    if not found:
        return False
    body = found["body"]
    time = _TIME.search(body)
    average = None if time else _AVERAGE.search(body)
    if time:
        seconds = float(time["value"]) / (1e3 if time["unit"] == "ms" else 1.0)
    elif average:
        seconds = float(average["value"]) / 1e3
        records.events.append(Fact(line=number, name="averaged", value=True))
    else:
        return False
    if seconds > _LONGEST_TIME_S:
        return False
    values = {"number": float(found["number"]), "time_s": seconds, "line": float(number)}
    _add_number(values, "loss", _LOSS.search(body))
    _add_number(values, "reported_mfu", _MFU.search(body), 100)
    _add_number(values, "reported_tokens_per_s", _TOKENS_PER_S.search(body))
    _add_row(values, line[: found.start()], records)
    return True


def _read_bare_iteration(rest: str, prefix: str, number: int, records: Records) -> bool:
    found = _BARE_ITERATION.match(rest)
    if not found or float(found["time_ms"]) > 1e3 * _LONGEST_TIME_S:
        return False
    values = {"number": float(found["number"]), "loss": float(found["loss"]), "line": float(number)}
    values |= {"time_s": float(found["time_ms"]) / 1e3, "reported_mfu": float(found["mfu"]) / 100}
    _add_row(values, prefix, records)
    return True


def _add_row(values: dict[str, float], prefix: str, records: Records) -> None:
    if "loss" in values and not math.isfinite(values["loss"]):
        values["loss"] = math.inf  # nan is what was not printed
    stamp = stamp_of(prefix)
    if stamp is not None:
        values["stamp_s"] = stamp
    records.add_row(**values)


def _add_number(values: dict[str, float], name: str, found: re.Match[str] | None, divisor: float = 1.0) -> None:
    if found:
        values[name] = float(found["value"].replace(",", "")) / divisor


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
    evaluation = Evaluation(
        line=number, at=int(found["at"]), stamp_s=stamp_of(prefix),
        train_loss=_loss(_TRAIN_LOSS.search(body)), val_loss=_loss(_VAL_LOSS.search(body)),
    )  # fmt: skip
    records.events.append(evaluation)
    return True


def _loss(found: re.Match[str] | None) -> float | None:
    return float(found["value"]) if found else None


def _read_saving(rest: str, prefix: str, number: int, records: Records) -> bool:
    found = _SAVING.match(rest)
    if not found:
        return False
    named = _SAVED_NUMBER.search(found["body"])
    records.events.append(Checkpoint(line=number, at=int(named["at"]) if named else None, stamp_s=stamp_of(prefix)))
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


def _read_own(rest: str, number: int, records: Records) -> bool:
    """What `stepwatch train` says beside nanoGPT's lines."""
    found = _OWN_TIME.match(rest)
    if found:
        _add_own_time(found, number, records)
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
    if _CARD.search(rest):
        records.events.append(Fact(line=number, name="gpu_text", value=rest[:200]))
    return True


def _add_own_time(found: re.Match[str], number: int, records: Records) -> None:
    """The time goes to the event just above that its line is about; nobody waits for a write in the background."""
    seconds = float(found["value"]) / 1e3
    if found["what"] is None:
        records.events.append(Fact(line=number, name="compile_s", value=seconds))
        return
    if found["how"] == "written in ":
        return
    kind, at = (Evaluation if found["what"] == "evaluation" else Checkpoint), int(found["at"])
    for place in range(len(records.events) - 1, max(len(records.events) - 6, -1), -1):
        event = records.events[place]
        if isinstance(event, kind) and event.at in (None, at):
            records.events[place] = event._replace(at=at, took_s=seconds)
            return


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
        return override or name in _OWN_SETTINGS
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


READER = Reader(
    name="nanogpt", timing=Timing.SPANS_ITERATION, holds=BOTH,
    about=Message(
        "One iteration, with the evaluation and the checkpoint of the same number in it; taken before the card is "
        "waited for."
    ),
    example="""\
step 500: train loss 3.9162, val loss 3.9403
saving checkpoint to out
iter 500: loss 3.9011, time 5772.18ms, mfu 10.73%
iter 510: loss 3.8874, time 168.91ms, mfu 10.79%""",
    sniff=sniff, parse=parse, finish=finish,
    traits=Traits(
        has_nanogpt_settings=True, states_model=True, announces_compile=True, mfu_of_a100=True, mfu_marks_start=True,
        evaluates_at_zero=True, saves_with_evaluations=True, prints_means=True, unread_lines=UnreadLines.ALL,
    ),
)  # fmt: skip
