"""Hugging Face Trainer: its console output, and the line files of LLaMA-Factory and ms-swift.

Its dictionaries have neither a number nor a time. Both come from the progress bar around them, whose clock runs since
the start of the training. Evaluations and saves happen between two steps, and are subtracted from the time of the next.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.formats.running import WHOLE_SECONDS, median
from stepwatch.readers.formats.trainer_rows import TrainerRows
from stepwatch.readers.levers import HUGGING_FACE
from stepwatch.readers.records import LARGEST_KEPT, OTHER_PROGRAM, Records
from stepwatch.readers.text.block import Block
from stepwatch.readers.text.line import MOST_SNIFFED, Line, lines_with_marks, stamp_of, strip_prefix, value_of
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.run import Fact, Floats, Ints, Timing, Traits
from stepwatch.units import DAY_S, HOUR_S, MINUTE_S


def _pair(key: str, value: str, quotes: str = "[';\"]") -> str:
    """A key of a dictionary and its value, which may be in quotes."""
    return f"<';\">{key}<';\">:[ ]{quotes}{value}"


_BAR = Line(
    r"[Train:]{pad}{int}%|{bar}|[ ]{number}/{last} \[{elapsed:clock}\<{word}  "
    "<{s_per_it:decimal}s/it;{it_per_s:decimal}it/s;?it/s>"
)
_BARE = Line(  # of a tqdm that does not know the width of the screen
    r"{pad}{int}% {number}/{last} \[{elapsed:clock}\<{word}  <{s_per_it:decimal}s/it;{it_per_s:decimal}it/s;?it/s>"
)
_TOKEN_COUNTS = {
    "num_input_tokens_seen": "seen", "num_tokens": "tokens", "total_tokens": "in_all", "tokens/total": "of_all_cards",
}  # fmt: skip
_DICTIONARY = Line(
    r"{any}\{",
    _pair("loss", "{loss}"),
    _pair("epoch", "{epoch:decimal}"),
    _pair("learning_rate", "{learning_rate:decimal}"),
    _pair("global_step/max_steps", "{swift_step:int}/{last}"),
    _pair("current_steps", "{current_steps:int}"),
    _pair("total_steps", "{total_steps:int}"),
    _pair("global_step", "{global_step:int}"),
    _pair("elapsed_time", "<[{days:int} day[s], ]{clock_s:clock};{parts_s:duration}>"),
    _pair("train_speed(s/it)", "{speed:decimal}", quotes=""),
    _pair("train_speed(iter/s)", "{speed_per_s:decimal}", quotes=""),
    _pair("train_speed(s/it)", "{short_speed:decimal}", quotes="<';\">"),
    _pair("train_speed(iter/s)", "{short_per_s:decimal}", quotes="<';\">"),
    *(_pair(key, f"{{{name}:decimal}}") for key, name in _TOKEN_COUNTS.items()),
    needs=("loss",),
)
# A dictionary of the Trainer's: a loss, an evaluation or the summary, with its epoch.
_ANY_DICTIONARY = Pattern(
    rb"""\{(?:[^{}\n]{0,2000}?['"](?:loss|eval_loss|eval_runtime|train_runtime|current_steps)['"]: ?[^{}\n]{0,2000}?"""
    rb"""['"]epoch['"]: ?['"]?\d"""
    rb"""|['"]loss['"]: [^{}\n]{1,40}(?:['"]grad_norm['"]: [^{}\n]{1,40})?['"]learning_rate['"]: )""",  # cut after it
)
_AXOLOTL = (
    *(b"[axolotl.", b"tokens/train_per_sec", b"tokens/trainable", b"tokens/total", b"tokens_per_second_per_gpu"),
    *(b"memory/max_active", b"memory/max_mem_active", b"memory/max_alloc", b"memory/max_mem_alloc"),
    *(b"memory/device_reserved", b"memory/device_mem_reserved"),
)
_SIGNS = (  # the last three are warnings of a starting Trainer
    *(b"*** Running training ***", b"Total optimization steps = ", b"Total steps = ", b"Saving model checkpoint"),
    *(b"in the `trainer_state.json`", b"tokenizer has new PAD/BOS/EOS tokens", b"max_steps is given, it will override"),
)
_WRITTEN = Pattern(  # in place of a dictionary, a bar is erased and drawn again
    rb"\| (\d{1,12}/\d{1,12}) \[[^\n]{1,80}\n {20,400}\n{1,3} *\d{1,3}%\|[^|\n]{0,400}\| \1 \["
)
_TRAINS = Pattern(rb"(?i)\b(?:train(?:er|ing)?|fine-?tun(?:e|ing)|sft|dpo|grpo|ppo|lora)\b")
_ALL_LASTS = Pattern(rb"\| *\d{1,12}/(\d{1,12}) \[")
_OTHER_BAR = Line(r"{any}{int}%<|;  {int}/{int} \[>")
_PAIRS = Pattern(
    r"""['"]([^'"\n]{1,60})['"]: ?(?:['"]([^'"\n]{0,60})['"]|([^\s,}{\[\]]{1,40}))"""  # key and value
)
_PARTS_OF_TIME = Pattern(r"(?P<value>\d{1,9}) ?(?P<unit>d|h|m|s)")
_UNITS = {"d": DAY_S, "h": HOUR_S, "m": MINUTE_S, "s": 1.0}
_DAYS = Pattern(r"(?:(?P<days>\d{1,5}) days?, )?(?P<clock>\d{1,5}:\d\d:\d\d)")
_OUTPUT = Pattern(r"TrainOutput\(global_step=(?P<step>\d{1,12}),")
# Each begins with a letter, because that is found ten times as fast.
_BEHIND_A_BAR = Pattern(rb"""(\](?:(?<=it/s\])|(?<=s/it\])|(?<=\}\])) *)(?=\{['"])""")
_BEHIND_ANOTHER = Pattern(rb"""(\} )(?=\{['"])""")
_HISTORY = "log_history"  # ms-swift prints all of them once more at the end


@dataclass(frozen=True, kw_only=True)
class TrainerFormat(LineFormat):
    """Keeps bars and dictionaries until everything is read: only then is it known which bar is the training's."""

    axolotl: bool = False

    def sniff(self, head: bytes) -> float:
        """How many of its dictionaries there are; a bar alone may be of any program, even one that trains nothing."""
        if any(sign in head for sign in _AXOLOTL) is not self.axolotl:
            return 0.0
        hits = sum(1 for _ in islice(_ANY_DICTIONARY.finditer(head), MOST_SNIFFED))
        if hits or not any(map(head.__contains__, _BAR.marks)):
            return float(hits)
        if not any(sign in head for sign in _SIGNS) and not _is_all_bars(head):
            # The bars may be those of a Trainer whose other output is buffered, and comes later in whole pages.
            written = sum(1 for _ in islice(_WRITTEN.finditer(head), 2))
            if written < 2 or not _TRAINS.search(head):
                return 0.0
        bars = sum(map(_BAR.fits, lines_with_marks(head, _BAR.marks, prefixes=False)))
        return 1e-3 + 0.9 * min(bars / MOST_SNIFFED, 1.0) if bars else 0.0  # slightly more than any other loop

    @cached_property
    def marks_of_time(self) -> tuple[str, ...]:
        """Without the marks of a bar that is not drawn: any text may have a percentage."""
        return tuple(mark.decode() for line in (_BAR, _DICTIONARY) for mark in line.marks_of_time)

    def parse(self, text: bytes, first_line: int, records: Records) -> None:
        """Reads a dictionary after a bar or another dictionary as a separate line, with a fractional line number."""
        if _HISTORY.encode() in text:
            text = re.sub(rb"log_history[^\n]*", _HISTORY.encode(), text)
        parts = _BEHIND_ANOTHER.sub(rb"\1\0", _BEHIND_A_BAR.sub(rb"\1\0", text))
        block = Block.of(parts.replace(b"\0", b"\n"))
        numbers = np.arange(len(block.starts)) + first_line
        if len(parts) > len(text):
            begins = np.frombuffer(b"\n" + parts, np.uint8)[block.starts]
            lines = np.cumsum(begins != 0) - 1
            place = np.arange(len(lines)) - np.flatnonzero(begins != 0)[lines]
            numbers = lines + place / np.bincount(lines)[lines] + first_line
        self.read_block(block, block.filled, numbers, records)

    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        unknown = np.full(len(lines), np.nan)
        if "number" in found:
            per_s = found.get("it_per_s", unknown)
            seconds = found.get("s_per_it", 1 / np.maximum(per_s, 1e-9))
            records.keep("bar", lines, found["number"], found["last"], found["elapsed"], seconds)
            return
        epochs = found.get("epoch", unknown)
        records.keep("loss", lines, found["loss"], epochs, found.get("stamp_s", unknown))
        if "learning_rate" in found:  # where the rates fall linearly, the line leads to the planned end
            some = np.unique(np.linspace(0, len(lines) - 1, 8).astype(np.int64))  # a few per block
            records.keep("rate", lines[some], epochs[some], found["learning_rate"][some])
        if not found.keys() - {"loss", "epoch", "learning_rate", "stamp_s"}:
            return
        # Steps and clocks that LLaMA-Factory and ms-swift add, and token counts.
        found = {name: np.where(np.abs(column) <= LARGEST_KEPT, column, np.nan) for name, column in found.items()}
        step = next((found[name] for name in ("swift_step", "current_steps", "global_step") if name in found), unknown)
        last = found.get("last" if "swift_step" in found else "total_steps", unknown)
        tokens = next((found[name] for name in _TOKEN_COUNTS.values() if name in found), unknown)
        elapsed = found.get("clock_s", found.get("parts_s", unknown)) + DAY_S * found.get("days", 0.0 * lines)
        error = np.full(len(lines), WHOLE_SECONDS)
        if "speed" in found or "speed_per_s" in found:
            elapsed, error = _swift_clock(elapsed, found, step)
        records.keep("told", lines, step, last, elapsed, error, tokens)

    def read_line(self, line: str, number: int, records: Records) -> dict[str, float] | None:
        brace = max(line.find("{'"), line.find('{"')) if _HISTORY not in line else -1
        if brace >= 0 and not _DICTIONARY.fits(line) and _read_dictionary(line[brace:], line[:brace], number, records):
            line = line[:brace]
            if not strip_prefix(line)[0]:
                return None
        return super().read_line(line, number, records)

    def read_event(self, rest: str, prefix: str, number: int, records: Records) -> bool:
        return super().read_event(rest, prefix, number, records) or _OTHER_BAR.fits(rest)

    def finish(self, first_line: int, records: Records) -> None:
        TrainerRows(records).add()


def _is_all_bars(head: bytes) -> bool:
    """Whether there is nothing but one bar: a user who gives us that considers it a training."""
    lines = (line.decode("utf-8", "replace") for line in head.split(b"\n") if line.strip())
    if not all(_BAR.fits(line) for line in islice(lines, MOST_SNIFFED)):
        return False
    return len({_float(last) for last in _ALL_LASTS.findall(head)}) == 1


def _swift_clock(whole: Floats, found: dict[str, Floats], step: Floats) -> tuple[Floats, Floats]:
    """ms-swift's mean speed times the steps of this process, if more precise than its clock; and the error."""
    printed = found["speed"] if "speed" in found else found["speed_per_s"]
    digits = next((n for n in range(12) if np.array_equal(np.round(printed[:1], n), printed[:1])), 12)
    speed, error = printed, 0.5 * 10.0**-digits * step
    if "speed" not in found:  # older versions print steps per second
        with np.errstate(divide="ignore", invalid="ignore"):
            speed, error = 1 / printed, error / printed**2
    if not bool((error >= WHOLE_SECONDS / 10).any()):
        some = np.linspace(0, len(whole) - 1, 40).astype(np.int64)
        with np.errstate(divide="ignore", invalid="ignore"):
            before = step[some] - whole[some] / speed[some]
        # Steps done before this process, whose mean covers only its own steps.
        known = before[np.isfinite(before) & (whole[some] > 20 / WHOLE_SECONDS)]
        start = float(np.round(median(known))) if len(known) else 0.0
        start = 0.0 if abs(start) < 2 + 0.02 * float(np.nanmax(step[some], initial=0.0)) else start
        exact = speed * (step - start)
        if not (np.abs(exact[some] - whole[some]) > 1.5).any():
            return exact, error
    return whole, np.full(len(whole), WHOLE_SECONDS)


def _duration(text: str) -> float:
    """`1:02:03`, `1 day, 2:03:04`, `1h 2m 3s` in seconds; nan for any other text."""
    found = _DAYS.match(text)
    if found:
        return DAY_S * int(found["days"] or 0) + value_of(found["clock"], "clock")
    parts = list(_PARTS_OF_TIME.finditer(text))
    return float(sum(int(part["value"]) * _UNITS[part["unit"]] for part in parts)) if parts else math.nan


def _float(text: str | None) -> float:
    """The number; nan if it is not one, or is larger than any count."""
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return math.nan
    return value if abs(value) <= LARGEST_KEPT else math.nan


# --- dictionaries -----------------------------------------------------------------------------------------------


def _read_dictionary(rest: str, prefix: str, number: float, records: Records) -> bool:
    pairs = {key: text or plain for key, text, plain in _PAIRS.findall(rest)}
    if "epoch" not in pairs and "current_steps" not in pairs:
        return "loss" not in pairs
    text, _, end = pairs.get("global_step/max_steps", "").partition("/")
    if not end:
        text = next((pairs[name] for name in ("current_steps", "step", "global_step") if name in pairs), "")
        end = pairs.get("total_steps", "")
    step, last = _float(text), _float(end)
    elapsed = _duration(pairs.get("elapsed_time", ""))
    epoch = _float(pairs.get("epoch"))
    evaluated = {key: _float(value) for key, value in pairs.items() if key.startswith("eval_")}
    took = sum(value for key, value in evaluated.items() if key.endswith("_runtime")) or math.nan
    losses = (value for key, value in evaluated.items() if key.endswith("loss"))
    loss = next(filter(math.isfinite, losses), math.nan)
    if math.isfinite(took) or math.isfinite(loss):
        stamp = stamp_of(prefix)
        records.keep_row("eval", number, epoch, step, loss, took, elapsed, math.nan if stamp is None else stamp)
        return True
    if "train_runtime" in pairs:
        runtime, rate = _float(pairs["train_runtime"]), _float(pairs.get("train_steps_per_second"))
        output = _OUTPUT.search(prefix)
        records.keep_row("summary", number, runtime, rate, epoch, last, float(output["step"]) if output else step)
        records.events.append(Fact(line=int(number), name=OTHER_PROGRAM, value=True))
        return True
    if "current_steps" in pairs:
        records.keep_row("told", number, step, last, elapsed, WHOLE_SECONDS, math.nan)
        if pairs.get("loss", "null") == "null":  # the last line of LLaMA-Factory has no loss
            records.keep_row("ended", number)
    return True


UNSLOTH = (  # its banner; older versions have some of the figures on other lines
    Line(
        "{any}Num examples = {count} | Num Epochs = {epochs}[ | Total steps = {max_iters}]",
        header=True,
        sets={"training": "*"},
    ),
    Line("{any}Batch size per device = {batch_size} | Gradient <a;A>ccumulation steps = {micro_steps}"),
    Line(r"{any}Total batch size[ ({word} x {word} x {word})] = {whole_batch}[ | Total steps = {max_iters}]"),
    Line("{any}Trainable parameters = {trainable_params} of {n_params}"),
)

FORMAT = TrainerFormat(
    name="hf-trainer",
    timing=Timing.SPANS_ITERATION,
    traits=Traits(may_evaluate=True, levers=HUGGING_FACE),
    iterations=(_BAR, _BARE, _DICTIONARY),
    checkpoints=(  # DeepSpeed prints it too, with a colon
        Line("{any}Saving model checkpoint< to;:> {any}checkpoint-{at}"),
    ),
    settings=(
        Line("{any}*** Running training ***", header=True, sets={"training": "*"}),
        Line("{any}Num examples = {examples}"),
        Line("{any}Num Epochs = {epochs}"),
        Line("{any}Instantaneous batch size per device = {batch_size}"),
        Line("per_device_train_batch_size={batch_size}"),
        Line("{any}Total train batch size (w. parallel{any}) = {whole_batch}"),
        Line("{any}Gradient Accumulation steps = {micro_steps}"),
        Line("{any}Total optimization steps = {max_iters}"),
        Line("{any}Number of trainable parameters = {trainable_params}"),
        Line("{any}trainable params: {count} || all params: {n_params}"),
        Line("{any}model_parameter_info: {any}{n_params:amount} Params"),
        Line("{any}rank: {int}, local_rank: {int}, world_size: {world_size}"),
        Line("torch_dtype=torch.{dtype}"),
        Line("{any}Training completed.", sets={"ended": "by plan", OTHER_PROGRAM: "*"}),
        *UNSLOTH,
    ),
    own=(Line("{any}eval_"), Line("{any}train_runtime"), Line("{any}current_steps")),
)
READER = FORMAT.reader()._replace(claims_any_bar=True)
