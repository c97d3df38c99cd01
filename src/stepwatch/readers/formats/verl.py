"""verl: one line for each step of reinforcement learning, with the time of each of its parts.

`timing_s/step` is the whole step, and its parts add up to it: generation, reward, the probabilities, the updates.
Saving is one of them. Testing is one in older versions, and separate from the step in newer ones; the sum shows which.
Both are subtracted from the step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stepwatch import bounds
from stepwatch.patterns import Pattern
from stepwatch.readers.formats.running import at_lines, median
from stepwatch.readers.records import LARGEST_KEPT, LONGEST_TIME_S, Kinds, Records
from stepwatch.readers.text.block import UNDECODED, Block, Floats, Ints, read_number
from stepwatch.readers.text.clocks import clocks_of
from stepwatch.readers.text.line import MOST_SNIFFED, ONE_DIGIT, Line, strip_prefix
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.readers.text.shape import Literal, Until
from stepwatch.run import Checkpoint, Evaluation, Fact, Levers, Run, Timing, Traits

_TIMED = b"timing_s/step:"
_STEP = Pattern(rb"step:(?<![\w/]step:)(\d{1,12}) - ")
_WANTED = np.array([int.from_bytes(name, "little") for name in (b"timing_s", b"perf/tot", b"perf/thr", b"actor/pg")])
_PART_OF_STEP = Pattern(r"timing_s/\w{1,60}")  # not the parts of a part, whose names have two components
_TIMING, _BESIDE = "timing_s/", ("timing_s/start_profile", "timing_s/stop_profile")
_PART, _CARDS = "part/", "cards"


class _Verl(LineFormat):
    def sniff(self, head: bytes) -> float:
        hits = begin = 0
        while hits < MOST_SNIFFED and (at := head.find(_TIMED, begin)) >= 0:
            begin = at + len(_TIMED)
            hits += _STEP.search(head[head.rfind(b"\n", 0, at) + 1 : at]) is not None
        return float(hits)

    def read_block(self, block: Block, left: Ints, numbers: np.ndarray, records: Records) -> None:
        """Reads the lines of steps, which are too long for a pattern, and whose parts may have any name."""
        steps = [step for step in _STEP.finditer(block.text) if int(step[1]) <= LARGEST_KEPT]
        begins = np.array([step.start() for step in steps], np.int64)
        rows, first = np.unique(np.searchsorted(block.starts, begins, side="right") - 1, return_index=True)
        begins, at = begins[first], np.array([int(step[1]) for step in steps], np.int64)[first]
        figures = _figures(block, begins, block.ends[rows])
        unknown = np.full(len(rows), np.nan)
        whole, testing, saving, tokens, per_s, loss = (
            figures.pop(name, unknown)
            for name in (
                *("timing_s/step", "timing_s/testing", "timing_s/save_checkpoint"),
                *("perf/total_num_tokens", "perf/throughput", "actor/pg_loss"),
            )
        )
        parts = {
            name.removeprefix(_TIMING): took
            for name, took in figures.items()
            if _PART_OF_STEP.fullmatch(name) and name not in _BESIDE
        }
        lines, stamp_s, tested, timed = numbers[rows], _stamps(block, rows, begins), ~np.isnan(testing), whole > 0
        validated = np.zeros(len(rows), bool)
        if b" - val" in block.text:
            validated[:] = [b" - val" in line for line in block.lines(rows)]
        for kind, known, took_s in (
            (Evaluation, tested | validated, testing),
            (Checkpoint, ~np.isnan(saving), saving),
        ):
            records.add_events(kind, lines[known], at=at[known], took_s=took_s[known], stamp_s=stamp_s[known])
        step = whole - np.nan_to_num(saving)
        inside = np.nansum([unknown, *parts.values()], axis=0)
        step -= np.where(np.abs(inside + testing - step) < np.abs(inside - step), testing, 0.0)
        columns = {
            "number": at, "time_s": np.maximum(step, 1e-6), "loss": loss, "reported_tokens_per_s": tokens / whole,
            "stamp_s": stamp_s, "line": lines,
        }  # fmt: skip
        records.add_rows(**{name: column[timed] for name, column in columns.items()})
        for name, took in parts.items():
            known = timed & ~np.isnan(took)
            records.keep(_PART + name, lines[known], took[known])
        cards = tokens / (per_s * whole)
        known = timed & (per_s > 0) & (cards >= 0.5) & (cards <= bounds.SETTINGS["world_size"].high)
        records.keep(_CARDS, lines[known], cards[known])
        super().read_block(block, block.without(left, rows[timed | tested | (at == 0)]), numbers, records)

    def finish(self, first_line: int, records: Records) -> None:
        super().finish(first_line, records)
        cards = records.take_table(_CARDS, 2)
        if len(cards):  # throughput is per card
            records.events.append(Fact(line=int(cards[0, 0]), name="world_size", value=round(median(cards[:, 1])) or 1))


def _figures(block: Block, begins: Ints, ends: Ints) -> dict[str, Floats]:
    """The wanted figures of the lines that begin and end here, by name; nan if a line has none."""
    colons, gaps = (np.flatnonzero(block.octets == ord(mark)) for mark in ": ")
    rows = np.searchsorted(begins, colons, side="right") - 1
    inside = (rows >= 0) & (colons < np.append(ends, 0)[rows])
    rows, colons = rows[inside], colons[inside]
    starts = gaps[np.searchsorted(gaps, colons) - 1] + 1 if len(gaps) else colons
    wanted = np.isin(block.words[starts], _WANTED) & (starts >= begins[rows])  # not on the previous line
    rows, colons, starts = rows[wanted], colons[wanted], starts[wanted]
    wrapped, _, _ = Literal(b"np.").apply(block, colons + 1, colons)  # np.float64(1.5)
    places = colons + 1
    places[wrapped] = Until(ord("(")).apply(block, places[wrapped], ends[rows[wrapped]])[1] + 1
    fits, _, values = read_number(block, places)
    text = block.text
    keys = [text[start:end] for start, end in zip(starts.tolist(), colons.tolist(), strict=True)]
    names = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    name = np.array([*map(names.__getitem__, keys)], np.int64)
    figures = {}
    for key, number in names.items():
        own = fits & (name == number)
        if key.startswith(b"timing_s/"):
            own &= (values >= 0) & (values <= LONGEST_TIME_S)
        figures[key.decode("utf-8", UNDECODED)] = column = np.full(len(begins), np.nan)
        column[rows[own]] = values[own]
    return figures


def _stamps(block: Block, rows: Ints, begins: Ints) -> Floats:
    """The clocks in front of the steps; those that begin alike are read together."""
    heads: dict[bytes, list[int]] = {}
    starts, text = block.starts[rows], block.text
    dressed = np.flatnonzero(begins > starts)
    for place, start, begin in zip(dressed.tolist(), starts[dressed].tolist(), begins[dressed].tolist(), strict=True):
        heads.setdefault(text[start:begin].translate(ONE_DIGIT), []).append(place)
    stamps = np.full(len(rows), np.nan)
    for head, places in heads.items():
        if b":" in head:
            prefix = strip_prefix(block.line(rows[places[0]])[:200].decode("utf-8", UNDECODED))[1]
            stamps[places] = clocks_of(block, block.starts[rows[places]], prefix)
    return stamps


def _complete(run: Run, kinds: Kinds, records: Records) -> Run:
    """Adds the parts of the steps to the run."""
    tables = {name.removeprefix(_PART): records.table(name, 2) for name in [*records.tables] if name.startswith(_PART)}
    lines = run.iterations.line
    return replace(run, parts={name: at_lines(lines, *table.T) for name, table in tables.items()})


FORMAT = _Verl(
    name="verl",
    timing=Timing.SPANS_STEP,
    traits=Traits(
        levers=Levers(
            evaluate_every="trainer.test_freq",
            save_every="trainer.save_freq",
            batch="actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
            accumulates=True,
            workers="data.dataloader_num_workers",
            recompute="actor_rollout_ref.model.enable_gradient_checkpointing=True",
        )
    ),
    iterations=(Line("{any}step:{number} - {any}timing_s/step:{time_s}"),),
    settings=(
        Line("{any}Total training steps: {max_iters}", header=True),
        Line(r"{any}Training Progress: {any} {int}/{max_iters:int} \["),
        Line("{any}Setting global step to {resume:int}"),
    ),
)
READER = FORMAT.reader()._replace(complete=_complete)
