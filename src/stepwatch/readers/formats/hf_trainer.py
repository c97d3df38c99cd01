"""Hugging Face Trainer: what it prints on the console, and the line files of LLaMA-Factory and ms-swift.

Its dictionaries have neither a number nor a time. Both come from the progress bar around them, whose clock runs since
the start of the training: evaluations and saves lie between two steps, and are taken out of the time of the next.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.columns import Block, Template, numbers_after
from stepwatch.readers.dictionaries import dictionaries
from stepwatch.readers.formats.running import WHOLE_SECONDS, at_lines, median
from stepwatch.readers.formats.trainer_rows import TrainerRows
from stepwatch.readers.lines import NUMBER, LineFormat, Told
from stepwatch.readers.reader import NOTHING
from stepwatch.readers.records import LARGEST_KEPT, Records
from stepwatch.readers.stamps import stamp_of, strip_prefix
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
_LOSS = Pattern(rb"""['"]loss['"]: """)
# Keys of dictionaries, and the columns of what they tell.
_TOKEN_COUNTS = {
    "num_input_tokens_seen": "seen", "num_tokens": "tokens", "total_tokens": "in_all", "tokens/total": "of_all_cards",
}  # fmt: skip
_KEYS = {
    "loss": "loss", "epoch": "epoch", "global_step/max_steps": "swift_step", "current_steps": "current_steps",
    "total_steps": "total_steps", "train_speed(s/it)": "speed", "train_speed(iter/s)": "per_s",
    "global_step": "global_step", **_TOKEN_COUNTS,
}  # fmt: skip
_OUTPUT = Pattern(r"TrainOutput\(global_step=(?P<step>\d{1,12}),")
_IN_DAYS = Pattern(rb"""(elapsed_time['"]: ?['"](\d{1,5}) days?, )""")
_SPEED = Pattern(rb"""['"]train_speed\((?:s/it|iter/s)\)['"]: ?(['"]?)\d{1,12}\.(\d{1,12})""")
_RATE = Pattern(rb"""['"]learning_rate['"]: ?['"]?([\d.eE+-]{1,30})""")
_JOINT = Pattern(rb"""\} (?=\{['"])""")
_HISTORY = b"log_history"
_MOST_SNIFFED = 60
_SOME_LINES = 40
_SOME_RATES = 8  # of a block
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

    def _read_by_column(
        self, text: bytes, block: Block, stamps: Floats | None, left: Ints, first_line: int, records: Records
    ) -> Ints:
        """Dictionaries with a loss: what they tell stands behind its keys, whatever else is in them."""
        flat = _flat(text, block, left)
        for line in flat.tolist():
            _read_flat(text[block.starts[line] : block.ends[line]], line + first_line, records)
        left = block.without(left, flat)
        if not len(left):
            return left
        parts = list(dictionaries(text, block, left, _LOSS, _field))
        others = block.without(left, np.concatenate([left[:0], *(lines for lines, _ in parts)]))
        parts += [(others[rows], found) for rows, found in _by_key(block.letters(text, others))]
        if not parts:
            return left
        lines, found = _joined(parts)
        epochs = found.get("epoch", np.full(len(lines), np.nan))
        records.keep("loss", lines + first_line, found["loss"], epochs, _stamps(text, block, stamps, lines))
        _keep_told(text, block, lines, lines + first_line, found, records)
        _keep_rates(text, block, lines, first_line, epochs, records)
        alone = ~np.isnan(epochs) & (block.octets[block.starts[lines]] == ord("{"))
        return block.without(left, lines[alone])

    def _add_columns(self, records: Records, lines: np.ndarray, found: dict[str, np.ndarray]) -> None:
        records.keep("bar", lines, found["number"], found["last"], found["elapsed"], found["rate"])

    def _add_row(self, groups: Mapping[str, str | None], prefix: str, number: int, records: Records) -> bool:
        slow, fast = _float(groups["s_per_it"]), _float(groups["it_per_s"])
        seconds = slow if math.isfinite(slow) else 1 / max(fast, 1e-9) if math.isfinite(fast) else math.nan
        position, last = (float(groups[name] or 0) for name in ("number", "last"))
        records.keep_row("bar", number, position, last, _clock(groups["elapsed"] or ""), seconds)
        return True

    def _read(self, line: str, number: int, records: Records) -> None:
        """A dictionary may stand behind a bar, on the same line."""
        brace = max(line.find("{'"), line.find('{"'))
        again = _HISTORY.decode() in line
        if brace >= 0 and not again and _read_dictionary(line[brace:], line[:brace], number, records):
            line = line[:brace]
        super()._read(line, number, records)

    def _read_event(self, rest: str, prefix: str, number: int, records: Records) -> bool:
        return super()._read_event(rest, prefix, number, records) or _OTHER_BAR.match(rest) is not None

    def finish(self, first_line: int, records: Records) -> None:
        TrainerRows(records).tell()


def _field(key: str, value: str) -> str | None:
    if key == "elapsed_time":
        return "{elapsed_time:}" if ":" in value else "{elapsed_time;}"
    name = _KEYS.get(key)
    if name is None:
        return None
    return f"{{{name}+}}/{{last+}}" if name == "swift_step" else f"{{{name}{'+?' if name == 'loss' else '+'}}}"


def _flat(text: bytes, block: Block, lines: Ints) -> Ints:
    """Lines that hold several dictionaries: a log whose line ends became spaces."""
    closed = np.flatnonzero(block.octets[: len(text)] == ord("}"))  # faster than a search for the three letters
    if not ((block.octets[closed + 1] == ord(" ")) & (block.octets[closed + 2] == ord("{"))).any():
        return lines[:0]
    places = np.array([found.start() for found in _JOINT.finditer(text)], np.int64)
    return np.intersect1d(np.searchsorted(block.starts, places, side="right") - 1, lines)


def _read_flat(line: bytes, number: int, records: Records) -> None:
    """Each dictionary of a line as one of its own, which lies a part of a line behind the one before."""
    text = _JOINT.sub(b"}\n", line)
    block = Block.of(text)
    places = number + np.arange(len(block.starts)) / len(block.starts)
    lines = np.zeros(0, np.int64)
    parts = list(_by_key(text))
    if parts:
        lines, found = _joined(parts)
        unknown = np.full(len(lines), np.nan)
        records.keep("loss", places[lines], found["loss"], found.get("epoch", unknown), unknown)
        _keep_told(text, block, lines, places[lines], found, records)
    for other in block.without(np.arange(len(places)), lines).tolist():
        rest = text[block.starts[other] : block.ends[other]].decode("utf-8", "replace")
        _read_dictionary(rest, "", float(places[other]), records)


def _by_key(text: bytes) -> Iterator[tuple[Ints, dict[str, Floats]]]:
    """Lines with a loss, whatever stands in front of it and around it: what they tell stands behind its keys."""
    block = Block.of(text)
    for quote in (b"'", b'"'):
        lines, losses = numbers_after(block, text, _quoted("loss", quote))
        lines, losses = lines[~np.isnan(losses)], losses[~np.isnan(losses)]
        if _HISTORY in text:  # ms-swift ends with all of them once more
            rows = [text.find(_HISTORY, block.starts[line], block.ends[line]) < 0 for line in lines.tolist()]
            lines, losses = lines[rows], losses[rows]
        if not len(lines):
            continue
        found = {"loss": losses}
        for key, name in (*_KEYS.items(), ("elapsed_time", "elapsed_time")):
            if name != "loss" and _quoted(key, quote) in text:
                clock = key == "elapsed_time"
                found[name] = at_lines(lines, *numbers_after(block, text, _quoted(key, quote), clock=clock))
        if "swift_step" in found:
            found["last"] = np.full(len(lines), _last(text, _quoted("global_step/max_steps", quote)))
        yield lines, found


def _quoted(key: str, quote: bytes) -> bytes:
    return quote + key.encode() + quote + b": "


def _joined(parts: list[tuple[Ints, dict[str, Floats]]]) -> tuple[Ints, dict[str, Floats]]:
    """Parts of a block as one, by line; nan where one does not have a column."""
    lines = np.concatenate([lines for lines, _ in parts])
    order = np.argsort(lines, kind="stable")
    columns = {}
    for name in {name for _, found in parts for name in found}:
        whole = np.concatenate([found.get(name, np.full(len(lines), np.nan)) for lines, found in parts])[order]
        columns[name] = whole if name == "loss" else np.where(np.abs(whole) <= LARGEST_KEPT, whole, np.nan)
    return lines[order], columns


def _keep_told(
    text: bytes, block: Block, lines: Ints, places: Ints | Floats, found: dict[str, Floats], records: Records
) -> None:
    """Steps and clocks that LLaMA-Factory and ms-swift add, and counts of tokens."""
    if not found.keys() - {"loss", "epoch"}:
        return
    unknown = np.full(len(lines), np.nan)
    step = next((found[name] for name in ("swift_step", "current_steps", "global_step") if name in found), unknown)
    last = found.get("last" if "swift_step" in found else "total_steps", unknown)
    tokens = next((found[name] for name in _TOKEN_COUNTS.values() if name in found), unknown)
    elapsed, error = found.get("elapsed_time", unknown), np.full(len(lines), WHOLE_SECONDS)
    if "elapsed_time" in found:
        elapsed = _with_days(text, block, lines, elapsed)
    if "speed" in found or "per_s" in found or "swift_step" in found:
        first = text[block.starts[lines[0]] : block.ends[lines[0]]]
        elapsed, error = _swift_clock(text, first, elapsed, found, step)
    records.keep("told", places, step, last, elapsed, error, tokens)


def _keep_rates(text: bytes, block: Block, lines: Ints, first_line: int, epochs: Floats, records: Records) -> None:
    """Some of the learning rates: where they fall in a line, it leads to the end that was planned."""
    for row in np.unique(np.linspace(0, len(lines) - 1, _SOME_RATES).astype(np.int64)).tolist():
        line = int(lines[row])
        found = _RATE.search(text[block.starts[line] : block.ends[line]])
        if found is not None:
            records.keep_row("rate", line + first_line, float(epochs[row]), _float(found[1].decode()))


def _last(text: bytes, key: bytes) -> float:
    """The number behind the slash of `12/500`; it is the same in all lines."""
    found = re.search(re.escape(key) + rb".\d{1,12}/(\d{1,12})", text)
    return float(found[1]) if found else math.nan


def _swift_clock(
    text: bytes, line: bytes, whole: Floats, found: dict[str, Floats], step: Floats
) -> tuple[Floats, Floats]:
    """ms-swift's mean speed by the steps of this process, where it has more digits than its clock."""
    speed, error = _speed(found, _last_digit(line), step)
    fine = not bool((error >= WHOLE_SECONDS / 10).any())
    if not fine and b"%|" in text:  # the bars tell more than its whole seconds
        return np.full(len(whole), np.nan), error
    if fine:
        some = np.linspace(0, len(whole) - 1, _SOME_LINES).astype(np.int64)
        exact = speed * (step - _steps_before(step[some], whole[some], speed[some]))
        apart = np.abs(exact[some] - whole[some])
        if not (apart > 1.5).any():
            return exact, error
    return whole, np.full(len(whole), WHOLE_SECONDS)


def _speed(found: dict[str, Floats], digit: float, step: Floats) -> tuple[Floats, Floats]:
    """Seconds of a step, and what the last digit of it makes of the clock; older versions tell steps of a second."""
    if "speed" in found or "per_s" not in found:
        return found.get("speed", np.full(len(step), np.nan)), digit * step
    with np.errstate(divide="ignore", invalid="ignore"):
        return 1 / found["per_s"], digit * step / found["per_s"] ** 2


def _steps_before(step: Floats, elapsed: Floats, speed: Floats) -> float:
    """Steps that were done before this process: it counts its own for the mean."""
    with np.errstate(divide="ignore", invalid="ignore"):
        before = step - elapsed / speed
    known = before[np.isfinite(before) & (elapsed > 20 / WHOLE_SECONDS)]
    start = float(np.round(median(known))) if len(known) else 0.0
    return 0.0 if abs(start) < 2 + 0.02 * float(np.nanmax(step, initial=0.0)) else start


def _with_days(text: bytes, block: Block, lines: Ints, elapsed: Floats) -> Floats:
    """Clocks with days in front, `1 day, 2:03:04`: those of one day together, as a long run has most lines in them."""
    unread = np.flatnonzero(np.isnan(elapsed))
    letters = block.letters(text, lines[unread])
    for form, days in set(_IN_DAYS.compiled.findall(letters)):
        rows, seconds = numbers_after(Block.of(letters), letters, form, clock=True)
        elapsed[unread[rows]] = 86400.0 * int(days) + seconds
    return elapsed


def _last_digit(line: bytes) -> float:
    """Half of the last digit of the speed in a line; quoted ones are cut to four digits."""
    found = _SPEED.search(line)
    return math.inf if found is None or found[1] else 0.5 * 10.0 ** -len(found[2])


def _stamps(text: bytes, block: Block, stamps: Floats | None, lines: Ints) -> Floats:
    """The clocks in front of dictionaries; most have nothing in front."""
    found = np.full(len(lines), np.nan) if stamps is None else stamps[lines]
    starts = block.starts[lines]
    for i in np.flatnonzero((block.octets[starts] != ord("{")) & np.isnan(found)).tolist():
        stamp = stamp_of(strip_prefix(text[starts[i] : starts[i] + 200].decode("utf-8", "replace"))[1])
        found[i] = np.nan if stamp is None else stamp
    return found


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


def _read_dictionary(rest: str, prefix: str, number: float, records: Records) -> bool:
    pairs = {found["key"]: found["text"] or found["plain"] or "" for found in _PAIRS.finditer(rest)}
    if "epoch" not in pairs and "current_steps" not in pairs:
        return "loss" not in pairs
    step, last = _position(pairs)
    elapsed = _duration(pairs.get("elapsed_time", ""))
    epoch = _float(pairs.get("epoch"))
    took = sum(_float(value) for key, value in pairs.items() if _EVALUATED.fullmatch(key)) or math.nan
    losses = (_float(value) for key, value in pairs.items() if key.startswith("eval_") and key.endswith("loss"))
    loss = next((value for value in losses if math.isfinite(value)), math.nan)
    if math.isfinite(took) or math.isfinite(loss):
        stamp = stamp_of(prefix)
        records.keep_row("eval", number, epoch, step, loss, took, elapsed, math.nan if stamp is None else stamp)
        return True
    if "train_runtime" in pairs:
        runtime, rate = _float(pairs["train_runtime"]), _float(pairs.get("train_steps_per_second"))
        output = _OUTPUT.search(prefix)
        records.keep_row("summary", number, runtime, rate, epoch, last, float(output["step"]) if output else step)
        return True
    if "current_steps" in pairs:
        records.keep_row("told", number, step, last, elapsed, WHOLE_SECONDS, math.nan)
        if pairs.get("loss", "null") == "null":  # the last line of LLaMA-Factory has no loss any more
            records.keep_row("ended", number)
    return True


def _position(pairs: Mapping[str, str]) -> tuple[float, float]:
    """Iteration and last one, where the trainer tells them."""
    step, _, last = pairs.get("global_step/max_steps", "").partition("/")
    if last:
        return _float(step), _float(last)
    told = (pairs[name] for name in ("current_steps", "step", "global_step") if name in pairs)
    return _float(next(told, None)), _float(pairs.get("total_steps"))


FORMAT = TrainerFormat(
    name="hf-trainer",
    timing=Timing.SPANS_ITERATION,
    holds=NOTHING,
    about=Message(
        "From the progress bar: the time between two of its positions, with the smoothing of its rate undone. "
        "Evaluations are taken out by the cost that the Trainer prints, saves by what a step is longer than usual."
    ),
    example="""\
 68%|██████▊   | 680/1000 [13:36<06:24,  1.20s/it]
{'loss': 2.4113, 'grad_norm': 1.07, 'learning_rate': 1.6e-05, 'epoch': 2.04}
 68%|██████▊   | 681/1000 [13:37<06:23,  1.20s/it]
{'eval_loss': 2.3807, 'eval_runtime': 9.412, 'eval_samples_per_second': 53.1, 'eval_steps_per_second': 6.7, \
'epoch': 2.04}""",
    mark=b"%|",
    iteration=Pattern(_BAR),
    templates=(
        Template("{%}|{|}{number}/{last} [{elapsed:}<{*}{ }{rate/}]{ }"),
        Template("Train:{%}|{|}{number}/{last} [{elapsed:}<{*}{ }{rate/}]{ }"),
    ),
    checkpoints=(  # DeepSpeed tells it too, with a colon
        Pattern(
            r"(?:\[[^\[\]]{1,60}\] ?){0,3}Saving model checkpoint(?: to|:) \S{0,300}?checkpoint-(?P<at>\d{1,12})\b"
        ),
    ),
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
        b"eval_", b"train_runtime", b"current_steps", b"Saving model checkpoint", b"Running training", b"Num Epochs",
        b"batch size", b"train_batch_size",
        b"Accumulation steps", b"optimization steps", b"trainable param", b"model_parameter_info", b"local_rank",
        b"torch_dtype=",
    ),
)  # fmt: skip
READER = FORMAT.reader()._replace(claims_any_bar=True)
