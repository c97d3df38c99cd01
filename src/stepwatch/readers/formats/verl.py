"""verl: one line for each step of reinforcement learning, with what each of its parts took.

`timing_s/step` is the whole step. Its parts add up to it: generation, reward, the probabilities, the updates. Saving is
one of them; testing is one in older versions and stands beside the step in newer ones, which the sum shows. Both are
taken out of the step.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import repeat

import numpy as np

from stepwatch import bounds
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.formats.running import at_lines, median
from stepwatch.readers.reader import MOST_SNIFFED, NOTHING
from stepwatch.readers.records import LARGEST_KEPT, LONGEST_TIME_S, Kinds, Records
from stepwatch.readers.text.block import UNDECODED, Block, Floats, Ints
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.readers.text.shape import ONE_DIGIT
from stepwatch.readers.text.stamps import clocks_of, strip_prefix
from stepwatch.run import Checkpoint, Evaluation, Fact, Levers, Run, Timing, Traits

_TIMED = b"timing_s/step:"
_STEP = Pattern(rb"(?<![\w/])step:(\d{1,12}) - ")
_VALUE = rb":(?:np\.\w{1,12}\()?([-+]?[\d.]{1,30}(?:[eE][-+]?\d{1,3})?)"
_PARTS = Pattern(rb"timing_s/(\w{1,60})" + _VALUE)
_ONE = Pattern(_VALUE)
_BESIDE = frozenset({b"start_profile", b"stop_profile"})
_TESTING, _SAVING = "testing", "save_checkpoint"
_PART, _CARDS = "part/", "cards"


class _Verl(LineFormat):
    def sniff(self, head: bytes) -> float:
        hits = begin = 0
        while hits < MOST_SNIFFED and (at := head.find(_TIMED, begin)) >= 0:
            begin = at + len(_TIMED)
            hits += _STEP.search(head[head.rfind(b"\n", 0, at) + 1 : at]) is not None
        return float(hits)

    def read_block(self, block: Block, left: Ints, numbers: np.ndarray, records: Records) -> None:
        """Lines of steps are longer than a pattern looks at, and their parts have any name."""
        lines = block.holding(left, (b"step:",))
        found = [_STEP.search(line) for line in block.lines(lines)]
        lines = lines[[each is not None for each in found]]
        steps = [each for each in found if each is not None]
        stamps = _stamps(block, lines, steps)
        read = map(_read_step, steps, numbers[lines].tolist(), stamps.tolist(), repeat(records))
        super().read_block(block, block.without(left, lines[list(read)]), numbers, records)

    def finish(self, first_line: int, records: Records) -> None:
        super().finish(first_line, records)
        cards = records.take_table(_CARDS, 2)
        if len(cards):  # throughput is that of one card
            records.events.append(Fact(line=int(cards[0, 0]), name="world_size", value=round(median(cards[:, 1])) or 1))


def _stamps(block: Block, lines: Ints, steps: list[re.Match[bytes]]) -> Floats:
    """The clocks in front of the steps: all at once of those that begin alike."""
    heads: dict[bytes, list[int]] = {}
    for place, step in enumerate(steps):
        heads.setdefault(step.string[: step.start()].translate(ONE_DIGIT), []).append(place)
    stamps = np.full(len(lines), np.nan)
    for head, places in heads.items():
        if b":" in head:
            prefix = strip_prefix(steps[places[0]].string[:200].decode("utf-8", UNDECODED))[1]
            stamps[places] = clocks_of(block, block.starts[lines[places]], prefix)
    return stamps


def _read_step(found: re.Match[bytes], number: int, stamp: float, records: Records) -> bool:
    line, at, begin = found.string, int(found[1]), found.end()
    if at > LARGEST_KEPT:
        return False
    parts = {
        name.decode(): took
        for name, text in _PARTS.compiled.findall(line, begin)
        if 0 <= (took := _float(text)) <= LONGEST_TIME_S and name not in _BESIDE
    }
    whole, testing = parts.pop("step", 0.0), parts.pop(_TESTING, None)
    saving, clock = parts.pop(_SAVING, None), None if math.isnan(stamp) else stamp
    if testing is not None or b" - val" in line or line.startswith(b"val", begin):
        records.events.append(Evaluation(line=number, at=at, took_s=testing, stamp_s=clock))
    if saving is not None:
        records.events.append(Checkpoint(line=number, at=at, took_s=saving, stamp_s=clock))
    if not whole:
        return testing is not None or at == 0
    step = whole - (saving or 0.0)
    inside = sum(parts.values())
    if testing is not None and abs(inside + testing - step) < abs(inside - step):
        step -= testing
    tokens, per_s, loss = (
        _value(line, name) for name in (b"perf/total_num_tokens", b"perf/throughput", b"actor/pg_loss")
    )
    records.add_row(
        line=number, number=at, time_s=max(step, 1e-6), loss=loss, reported_tokens_per_s=tokens / whole, stamp_s=stamp
    )
    for name, took in parts.items():
        records.keep_row(_PART + name, number, took)
    if per_s * whole > 0 and 0.5 <= tokens / (per_s * whole) <= bounds.SETTINGS["world_size"].high:
        records.keep_row(_CARDS, number, tokens / (per_s * whole))
    return True


def _value(line: bytes, name: bytes) -> float:
    at = line.find(name + b":")
    found = _ONE.match(line, at + len(name)) if at >= 0 else None
    return _float(found[1]) if found is not None else np.nan


def _float(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


def _complete(run: Run, told: Kinds, records: Records) -> Run:
    """The run with the parts of its steps."""
    names = [name for name in records.table_rows if name.startswith(_PART)]
    tables = {name.removeprefix(_PART): records.table(name, 2) for name in names}
    lines = run.iterations.line
    return replace(run, parts={name: at_lines(lines, *table.T) for name, table in tables.items()})


FORMAT = _Verl(
    name="verl",
    timing=Timing.SPANS_STEP,
    holds=NOTHING,
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
    about=Message(
        "One step of generation, reward and update, each of which is printed; testing and saving are printed too, and "
        "taken out of the step."
    ),
    example="""\
step:7 - actor/pg_loss:0.019 - timing_s/gen:4.1 - timing_s/reward:0.1 - timing_s/adv:0.1 - timing_s/update_actor:2.6 - \
timing_s/step:6.9 - perf/total_num_tokens:59428 - perf/throughput:1076.6
step:8 - actor/pg_loss:0.017 - timing_s/gen:4.3 - timing_s/reward:0.1 - timing_s/adv:0.1 - timing_s/update_actor:2.5 - \
timing_s/testing:6.3 - timing_s/save_checkpoint:9.1 - timing_s/step:22.4 - perf/total_num_tokens:58758""",
    iterations=(Line("{any}step:{number} - {any}timing_s/step:{time_s}"),),
    settings=(
        Line("{any}Total training steps: {max_iters}", header=True),
        Line(r"{any}Training Progress: {any} {int}/{max_iters:int} \["),
        Line("{any}Setting global step to {resume:int}"),
    ),
)
READER = FORMAT.reader()._replace(complete=_complete)
