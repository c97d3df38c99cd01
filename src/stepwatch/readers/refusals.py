"""Why a log cannot be explained, worded so that the user sees what is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from stepwatch.errors import ConfigGiven, InputError, LooksLike, NoIterations, UsageError
from stepwatch.messages import Message
from stepwatch.readers.formats import FORMATS, all_readers
from stepwatch.readers.records import SHOWN_LETTERS
from stepwatch.readers.text.arguments import settings_from
from stepwatch.readers.text.faults import FAULT_LETTERS, fault_in
from stepwatch.readers.text.line import LONGEST_LINE, strip_prefix
from stepwatch.run import Fault, Run, most_telling
from stepwatch.settings import read_config
from stepwatch.sources import Source

SURELY_AN_ITERATION = 5  # as a sum of the weights below: word and number of an iteration, and two more
_MARKS = (
    (re.compile(rb"\b(?:iter|iteration|step)s?\b\W{0,8}\d"), 3),
    (re.compile(rb"\b(?:loss|mfu|lr|tok(?:ens)?/s)\b"), 1),
    (re.compile(rb"\d\s?(?:ms|s|sec|s/it|it/s)\b"), 1),
    (re.compile(rb"\b(?:iter|time|dt)"), 1),
)
_COUNTED = re.compile(rb"\b[1-9]\d{0,9}/\d{1,10} \[")  # a progress bar that has moved


def iteration_likeness(line: bytes) -> int:
    """How much a line looks like an iteration: the sum of the weights of its marks."""
    start = line[:400].lower()
    return sum(weight for pattern, weight in _MARKS if pattern.search(start))


def no_times(runs: Sequence[Run]) -> NoIterations:
    count = sum(len(run.iterations) for run in runs)
    return NoIterations(
        Message(
            "the log has {rows:n} logged step, but nothing in it shows its time",
            {"rows": count},
            "the log has {rows:n} logged steps, but nothing in it shows their time",
            count,
        ),
        Message("give the trainer's console output or its TensorBoard event file: these have timestamps"),
    )


def not_like(example: str) -> NoIterations:
    return NoIterations(
        Message("no line of the log is like “{line:word}”", {"line": example[:SHOWN_LETTERS]}),
        Message("copy a line of the log, with its number and its time"),
        about="like",
    )


def nothing_found(source: Source) -> NoIterations:
    """The first that applies: not text, a config, lines without times, a line for `--like`, an error, the nearest."""
    sample = source.head(1 << 16).decode("utf-8", "replace")
    if sample.count("\ufffd") > 0.1 * len(sample):
        return NoIterations(
            Message("“{name:word}” is not text", {"name": source.name}),
            Message("give the log that the training printed, for example train.log"),
        )
    config = config_given(source)
    if config is not None:
        return config
    text = source.head(2_000_000)
    for name, reader in all_readers().items():
        for pattern, remedy in reader.untimed:
            found = pattern.search(text)
            if found is not None:
                line = {"name": name, "line": _shown(found[0])}
                return NoIterations(
                    Message("the lines are those of {name:word} but have no time: “{line:word}”", line), remedy
                )
    example = example_in(source.holding(text))
    if example is not None:
        return LooksLike(source.name, example)
    remedy = Message(
        '`stepwatch explain --help` lists the formats; for another, show one of its lines: --like "it 12 | 0.34 s"',
        {"formats": ", ".join(FORMATS)},  # listed on the page
    )
    nearest = max(dict.fromkeys(text.split(b"\n")), key=iteration_likeness)  # each distinct line once
    fault = fault_of(source)
    if fault is not None and iteration_likeness(nearest) < SURELY_AN_ITERATION and not _COUNTED.search(text):
        facts = {"line": fault.line + 1, "quote": fault.text}
        return NoIterations(
            Message("no iteration found; line {line:n} says why the run ended: “{quote:quote}”", facts),
            Message("the lines above it in the log show where in the code it failed"),
        )
    if iteration_likeness(nearest) < 2:
        return NoIterations(Message("no iteration found in the log"), remedy)
    return NoIterations(
        Message("no iteration found; the nearest line is “{line:word}”", {"line": _shown(nearest)}), remedy
    )


def fault_of(source: Source) -> Fault | None:
    """Why a process that printed no iteration ended."""
    last, number = b"", 0
    for block in source.blocks():
        last += block
        begin = last.rfind(b"\n", 0, max(len(last) - (1 << 20), 0)) + 1  # the cause is within the last MiB
        number, last = number + last.count(b"\n", 0, begin), last[begin:]
    letters = [some for some in FAULT_LETTERS if some in last]
    lines = enumerate(last.split(b"\n"), start=number)
    telling = ((number, line) for number, line in lines if any(some in line for some in letters))
    parted = ((*strip_prefix(line[:LONGEST_LINE].decode("utf-8", "replace")), number) for number, line in telling)
    faults = [fault for rest, prefix, number in parted if (fault := fault_in(rest, prefix, number)) is not None]
    return most_telling(faults)


def _shown(line: bytes) -> str:
    return line.decode("utf-8", "replace").strip()[:SHOWN_LETTERS]


# --- an example line, so that `--like` reads an unknown format --------------------------------------------------


_LEAST_LINES = 5  # of one shape; fewer may be anything
_DIGITS = re.compile(rb"\d[\d.,]*(?:[eE][-+]?\d+)?")


def example_in(source: Source) -> str | None:
    """A line that is most likely an iteration: one of many of the same shape, which `--like` understands."""
    from stepwatch.readers.formats.like import reader_like
    from stepwatch.readers.reading import parse

    shapes: dict[bytes, list[bytes]] = {}
    for line in source.text.split(b"\n"):
        if 0 < len(line) <= LONGEST_LINE:
            shapes.setdefault(_DIGITS.sub(b"0", b" ".join(line.split())), []).append(line)
    near = [
        (iteration_likeness(lines[0]), len(lines), lines) for lines in shapes.values() if len(lines) >= _LEAST_LINES
    ]
    near = sorted((each for each in near if each[0] > 1), key=lambda each: each[:2], reverse=True)
    for _, _, lines in near[:5]:  # reading a log again takes time
        example = lines[len(lines) // 2].decode("utf-8", "replace").strip()
        try:
            runs = parse(source, reader_like(example))
        except (UsageError, NoIterations):
            continue
        understood = next((run.understood for run in runs if len(run.iterations) >= _LEAST_LINES), None)
        if understood is not None and not understood.doubtful and "\ufffd" not in example:
            return example
    return None


# --- a config where a log was expected --------------------------------------------------------------------------


LARGEST_BYTES = 1 << 18  # configs have a few kB
_SUFFIXES = (".yaml", ".yml", ".toml")  # nobody writes a log to these files
_NAMES = {
    "num_hidden_layers": "n_layer", "num_layers": "n_layer", "hidden_size": "n_embd", "num_attention_heads": "n_head",
    "max_position_embeddings": "block_size", "sequence_len": "block_size", "max_seq_length": "block_size",
}  # fmt: skip
_YAML_LINE = re.compile(
    r"""\s*(?:\#.*|---|(?:-\s+)*["']?(?P<key>[A-Za-z_][\w.-]*)["']?\s*:(?:\s+(?P<value>[^#]*?))?\s*(?:\s\#.*)?|-\s.*)?"""
)


def config_given(source: Source) -> ConfigGiven | None:
    """The error for Python, JSON, TOML or YAML that sets a known name, or is named as a config; None for other text."""
    data = source.head(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        return None
    text = data.decode("utf-8", "replace")
    import tomllib  # not needed for a log

    by_line = (tomllib.loads, lambda text: read_config(text)[0], _yaml)
    # Python's parsers take quadratic time for a line of dots or equals signs; only that for JSON does not.
    is_short = max(map(len, text.splitlines()), default=0) <= 1000
    for assigned in (json.loads, *(by_line if is_short else ())):
        try:
            flat = {_NAMES.get(name, name): value for name, value in _flat(assigned(text))}
        except (ValueError, RecursionError, InputError):
            continue
        settings = settings_from(flat)
        if settings or source.name.lower().endswith(_SUFFIXES):
            return ConfigGiven(source.name, settings)
    return None


def _yaml(text: str) -> dict[str, object]:
    """Keys with plain values, at any depth; raises ValueError for a line that is not usual YAML."""
    found: dict[str, object] = {}
    for line in text.splitlines():
        match = _YAML_LINE.fullmatch(line)
        if match is None:
            raise ValueError(line)
        value = (match["value"] or "").strip("\"'")
        if match["key"] and value:
            found[match["key"]] = {"true": True, "false": False}.get(value.lower(), value)
    return found


def _flat(found: object) -> Iterator[tuple[str, object]]:
    for name, value in found.items() if isinstance(found, dict) else ():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            yield str(name), value
