"""Hugging Face Trainer: what it prints on the console, and the line files of LLaMA-Factory and ms-swift.

Its dictionaries have neither a number nor a time. Both come from the progress bar around them, whose clock runs since
the start of the training: evaluations and saves lie between two steps, and are taken out of the time of the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.columns import Block, Template, numbers_after
from stepwatch.readers.lines import NUMBER, LineFormat, Told
from stepwatch.readers.reader import NOTHING
from stepwatch.readers.records import Records
from stepwatch.readers.running import WHOLE_SECONDS
from stepwatch.readers.stamps import stamp_of, strip_prefix
from stepwatch.readers.trainer_rows import TrainerRows, at_lines
from stepwatch.run import Floats, Ints, Timing

_BAR = (
    r"(?:Train:)?\s*\d{1,3}%(?:\|[^|\n]{0,400}\|)? ?(?P<number>\d{1,12})/(?P<last>\d{1,12}) "
    rf"\[(?P<elapsed>[\d:]{{4,12}})<[\d:?]{{1,12}}, *(?:(?P<s_per_it>{NUMBER})s/it|(?P<it_per_s>{NUMBER}|\?)it/s)"
)
# A dictionary of the Trainer's: a loss, an evaluation or the summary, always with its epoch.
_DICTIONARY = Pattern(
    rb"""\{[^{}\n]{0,2000}?['"](?:loss|eval_loss|eval_runtime|train_runtime|current_steps)['"]: ?[^{}\n]{0,2000}?"""
    rb"""['"]epoch['"]: ?['"]?\d"""
)
_AXOLOTL = Pattern(
    rb"""\[axolotl\.|['"]tokens/(?:train_per_sec|trainable|total)|['"]memory/(?:max_active|max_mem_active|max_alloc"""
    rb"""|max_mem_alloc|device_reserved|device_mem_reserved)|['"]tokens_per_second_per_gpu"""
)
_BARS = Pattern(rb"(?m)^(?:Train:)? *\d{1,3}%\|[^|\n]{0,400}\| \d{1,12}/\d{1,12} \[[\d:]{4,12}<[\d:]{4,12}, ")
_OTHER_BAR = Pattern(r"[^{]{0,200}?\d{1,3}%(?:\||\s+\d+/\d+ \[)")
_PAIRS = Pattern(
    r"""['"](?P<key>[^'"\n]{1,60})['"]: ?(?:['"](?P<text>[^'"\n]{0,60})['"]|(?P<plain>[^\s,}{\[\]]{1,40}))"""
)
_EVALUATED = Pattern(r"eval_(?:\w{1,60}_)?runtime")
_PARTS_OF_TIME = Pattern(r"(?P<value>\d{1,9}) ?(?P<unit>d|h|m|s)")
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DAYS = Pattern(r"(?:(?P<days>\d{1,5}) days?, )?(?P<clock>\d{1,5}:\d\d:\d\d)")
_TOKEN_COUNTS = ("num_input_tokens_seen", "num_tokens", "total_tokens", "tokens/total")
_MOST_SNIFFED = 60
_BARS_ALONE = 0.01  # a bar could be of any program; many of them are a weak claim


@dataclass(frozen=True, kw_only=True)
class TrainerFormat(LineFormat):
    """Bars and dictionaries are kept until all is read: only then is it known which bar is the training's."""

    axolotl: bool = False

    def sniff(self, head: bytes) -> float:
        """How many of its dictionaries; a bar alone could be of any program."""
        if bool(_AXOLOTL.search(head)) is not self.axolotl:
            return 0.0
        hits = sum(1 for _, _ in zip(range(_MOST_SNIFFED), _DICTIONARY.finditer(head), strict=False))
        if hits:
            return float(hits)
        bars = sum(1 for _, _ in zip(range(_MOST_SNIFFED), _BARS.finditer(head), strict=False))
        return _BARS_ALONE * bars

    def parse(self, text: bytes, first_line: int, records: Records) -> None:
        block = Block.of(text)
        for quote in (b"'", b'"'):
            lines, losses = numbers_after(block, text, b"%sloss%s: " % (quote, quote))
            if len(lines):
                known, epochs = numbers_after(block, text, b"%sepoch%s: " % (quote, quote))
                lines, losses = lines[~np.isnan(losses)], losses[~np.isnan(losses)]
                epochs, stamps = at_lines(lines, known, epochs), _stamps(text, block, lines)
                records.keep("loss", lines + first_line, losses, epochs, stamps)
        super().parse(text, first_line, records)

    def _add_columns(self, records: Records, lines: np.ndarray, found: dict[str, np.ndarray]) -> None:
        seconds = found["s_per_it"] if "s_per_it" in found else 1 / np.maximum(found["it_per_s"], 1e-9)
        records.keep("bar", lines, found["number"], found["last"], found["elapsed"], seconds)

    def _add_row(self, groups: Mapping[str, str | None], prefix: str, number: int, records: Records) -> bool:
        slow, fast = _float(groups["s_per_it"]), _float(groups["it_per_s"])
        seconds = slow if math.isfinite(slow) else 1 / max(fast, 1e-9) if math.isfinite(fast) else math.nan
        position, last = (float(groups[name] or 0) for name in ("number", "last"))
        records.keep("bar", number, position, last, _clock(groups["elapsed"] or ""), seconds)
        return True

    def _read(self, line: str, number: int, records: Records) -> None:
        """A dictionary may stand behind a bar, on the same line."""
        brace = max(line.find("{'"), line.find('{"'))
        if brace >= 0 and _read_dictionary(line[brace:], line[:brace], number, records):
            line = line[:brace]
        super()._read(line, number, records)

    def _read_event(self, rest: str, prefix: str, number: int, records: Records) -> bool:
        return super()._read_event(rest, prefix, number, records) or _OTHER_BAR.match(rest) is not None

    def finish(self, first_line: int, records: Records) -> None:
        TrainerRows(records).tell()


def _stamps(text: bytes, block: Block, lines: Ints) -> Floats:
    """The clocks in front of dictionaries; most have nothing in front."""
    stamps = np.full(len(lines), np.nan)
    starts = block.starts[lines]
    for i in np.flatnonzero(block.octets[starts] != ord("{")).tolist():
        stamp = stamp_of(strip_prefix(text[starts[i] : starts[i] + 200].decode("utf-8", "replace"))[1])
        stamps[i] = np.nan if stamp is None else stamp
    return stamps


def _clock(text: str) -> float:
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60 + float(part or 0)
    return seconds


def _duration(text: str) -> float:
    """`1:02:03`, `1 day, 2:03:04`, `1h 2m 3s` in seconds; nan where it is none of them."""
    found = _DAYS.match(text)
    if found:
        return 86400.0 * int(found["days"] or 0) + _clock(found["clock"])
    parts = list(_PARTS_OF_TIME.finditer(text))
    return float(sum(int(part["value"]) * _UNITS[part["unit"]] for part in parts)) if parts else math.nan


def _float(text: str | None) -> float:
    try:
        return float(text) if text is not None else math.nan
    except ValueError:
        return math.nan


# --- dictionaries -----------------------------------------------------------------------------------------------


def _read_dictionary(rest: str, prefix: str, number: int, records: Records) -> bool:
    pairs = {found["key"]: found["text"] or found["plain"] or "" for found in _PAIRS.finditer(rest)}
    if "epoch" not in pairs and "current_steps" not in pairs:
        return "loss" not in pairs
    step, last = _position(pairs)
    elapsed, error = _elapsed(pairs, step)
    epoch = _float(pairs.get("epoch"))
    took = sum(_float(value) for key, value in pairs.items() if _EVALUATED.fullmatch(key)) or math.nan
    losses = (_float(value) for key, value in pairs.items() if key.startswith("eval_") and key.endswith("loss"))
    loss = next((value for value in losses if math.isfinite(value)), math.nan)
    if math.isfinite(took) or math.isfinite(loss):
        stamp = stamp_of(prefix)
        records.keep("eval", number, epoch, step, loss, took, elapsed, math.nan if stamp is None else stamp)
        return True
    if "train_runtime" in pairs:
        runtime, rate = _float(pairs["train_runtime"]), _float(pairs.get("train_steps_per_second"))
        records.keep("summary", number, runtime, rate, epoch, last)
        return True
    tokens = next((_float(pairs[name]) for name in _TOKEN_COUNTS if name in pairs), math.nan)
    records.keep("told", number, step, last, elapsed, error, tokens)
    return True


def _position(pairs: Mapping[str, str]) -> tuple[float, float]:
    """Iteration and last one, where the trainer tells them."""
    step, _, last = pairs.get("global_step/max_steps", "").partition("/")
    if last:
        return _float(step), _float(last)
    return _float(pairs.get("current_steps", pairs.get("step"))), _float(pairs.get("total_steps"))


def _elapsed(pairs: Mapping[str, str], step: float) -> tuple[float, float]:
    """Seconds since the start and how far off they may be; ms-swift's mean speed has more digits than its clock."""
    whole = _duration(pairs["elapsed_time"]) if "elapsed_time" in pairs else math.nan
    speed = pairs.get("train_speed(s/it)", "")
    digits = len(speed.partition(".")[2])
    fine = _float(speed) * step
    if math.isfinite(fine) and abs(fine - whole) <= 1.5 and 0.5 * 10.0**-digits * step < WHOLE_SECONDS / 10:
        return fine, 0.5 * 10.0**-digits * step
    return whole, WHOLE_SECONDS


FORMAT = TrainerFormat(
    name="hf-trainer",
    timing=Timing.SPANS_ITERATION,
    holds=NOTHING,
    about=Message(
        "From the progress bar: the time between two of its positions, taken apart from its rate. Evaluations are "
        "taken out by the cost that the Trainer prints, saves by what a step is longer than usual."
    ),
    example="""\
  2%|▏         | 20/1000 [00:24<19:36,  1.20s/it]
{'loss': 2.4113, 'grad_norm': 1.07, 'learning_rate': 4.9e-05, 'epoch': 0.06}
  2%|▏         | 21/1000 [00:25<19:35,  1.20s/it]
{'eval_loss': 2.3807, 'eval_runtime': 9.412, 'eval_samples_per_second': 53.1, 'eval_steps_per_second': 6.7, \
'epoch': 0.06}""",
    mark=b"%|",
    iteration=Pattern(_BAR),
    templates=tuple(
        Template("{ }" + title + "{ }{_pct}%|{|}{number}/{last} [{elapsed:}<{_left:},{ }{" + rate + "]{ }")
        for title in ("", "Train:") for rate in ("s_per_it}s/it", "it_per_s}it/s")
    ),
    checkpoints=(Pattern(r"Saving model checkpoint to \S{0,300}?checkpoint-(?P<at>\d{1,12})\b"),),
    facts=(
        Told(Pattern(r"\*{3,} Running training (?P<training>\*)"), header=True),
        Told(Pattern(r"Num Epochs = (?P<epochs>[\d,]+)")),
        Told(Pattern(r"Instantaneous batch size per device = (?P<batch_size>[\d,]+)")),
        Told(Pattern(r"^per_device_train_batch_size=(?P<batch_size>\d+)")),
        Told(Pattern(r"Total train batch size \(w\. parallel.{0,40}\) = (?P<whole_batch>[\d,]+)")),
        Told(Pattern(r"Gradient Accumulation steps = (?P<micro_steps>[\d,]+)")),
        Told(Pattern(r"Total optimization steps = (?P<max_iters>[\d,]+)")),
        Told(Pattern(r"Number of trainable parameters = (?P<trainable_params>[\d,]+)")),
        Told(Pattern(r"trainable params: [\d,]+ \|\| all params: (?P<n_params>[\d,]+)")),
        Told(Pattern(r"model_parameter_info: .{0,100}?(?P<n_params>[\d.]+M) Params")),
        Told(Pattern(r"rank: \d+, local_rank: \d+, world_size: (?P<world_size>\d+)")),
        Told(Pattern(r"^torch_dtype=torch\.(?P<dtype>\w+)")),
    ),
    words=(
        b"eval_", b"train_runtime", b"elapsed_time", b"num_tokens", b"tokens/total", b"num_input_tokens",
        b"Saving model checkpoint", b"Running training", b"Num Epochs", b"batch size", b"train_batch_size",
        b"Accumulation steps", b"optimization steps", b"trainable param", b"model_parameter_info", b"local_rank",
        b"torch_dtype=",
    ),
)  # fmt: skip
READER = FORMAT.reader()
