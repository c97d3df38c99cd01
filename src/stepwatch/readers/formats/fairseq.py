"""fairseq: a line of averages every `log_interval` updates, as text or as JSON, with the seconds since the start.

`ups` has two digits and `train_wall` is whole seconds of the steps alone. The clock in front of the line, or `wall`,
shows the whole time of an update, including data and logging. Validation and saving are in between; their lines are
used to subtract them.
"""

from __future__ import annotations

import math

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.formats.clocked import ROWS, STARTS, add_clocked
from stepwatch.readers.formats.running import WHOLE_SECONDS
from stepwatch.readers.records import LARGEST_KEPT, Records
from stepwatch.readers.text.block import Floats, Ints
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import Kept, LineFormat
from stepwatch.run import Evaluation, Levers, Timing, Traits

_JSON = Line(
    '{any}"epoch": {int}, "update": {decimal},',
    '"loss": "{loss}"', '"num_updates": "{number}"', '"wall": "{elapsed:decimal}"', needs=("elapsed",),
)  # fmt: skip
_TEXT = Line(
    "{any}epoch {int}:{pad}{int} / {int} ",
    "loss={loss},", "num_updates={number},", " wall={elapsed:decimal}", needs=("elapsed",),
)  # fmt: skip
_START = Line("{any}Start iterating over samples")
_VALIDATING = Line("{any}begin validation on ")
_VALIDATED = (Line('{any}"valid_num_updates": "{at}"'), Line("{any}valid on '{quoted}' subset | {any}num_updates {at}"))
_PLANNED = Pattern(rb"(?:'max_update': |max_update=)(\d{1,12})\b")
_TICKS, _VALIDATIONS = "ticks", "validations"


class _Fairseq(LineFormat):
    def parse(self, text: bytes, first_line: int, records: Records) -> None:
        """The arguments are one line, which is too long for a pattern."""
        super().parse(text, first_line, records)
        for found in _PLANNED.finditer(text):
            self.add_last(records, first_line + text.count(b"\n", 0, found.start()), float(found[1]))

    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        if "number" in found:
            columns = (found.get(name, np.nan) for name in ("number", "elapsed", "loss", "stamp_s"))
            records.keep(_TICKS, lines, *columns)

    def finish(self, first_line: int, records: Records) -> None:
        line, number, wall, loss, stamps = records.take_table(_TICKS, 5).T
        if not len(line):
            return
        begun: tuple[float, float] = (-1.0, math.nan)
        for at_line, clock, at in records.take_table(_VALIDATIONS, 3).tolist():
            if math.isnan(at):
                begun = (at_line, clock)
            elif at <= LARGEST_KEPT:
                took = clock - begun[1] if begun[0] >= 0 else math.nan
                records.events.append(Evaluation(int(at_line), int(at), took_s=took if took >= 0 else None))
                begun = (-1.0, math.nan)
        stamped = bool(np.isfinite(stamps).all())
        starts = records.take_table(STARTS, 2)
        # Each epoch logs that it starts iterating; the first of these is the start of the process.
        new = np.concatenate(([True], np.diff(number) < 0))
        first = [int(np.searchsorted(starts[:, 0], edge)) for edge in np.concatenate(([-1.0], line[:-1]))[new]]
        kept = starts[[place for place in first if place < len(starts)]] if stamped else np.zeros((0, 2))
        records.keep(STARTS, kept[:, 0], kept[:, 1])
        records.keep(ROWS, line, number, stamps if stamped else wall, loss)
        add_clocked(records, 0.0005 if stamped and (stamps % 1 > 0).any() else WHOLE_SECONDS)


FORMAT = _Fairseq(
    name="fairseq",
    timing=Timing.SPANS_LOG_INTERVAL,
    traits=Traits(may_evaluate=True, shows_events=True, levers=Levers(
        evaluate_every="--validate-interval / --validate-interval-updates",
        save_every="--save-interval / --save-interval-updates", other_units=True, batch="--max-tokens",
        accumulation="--update-freq", workers="--num-workers", prefetch="--data-buffer-size",
        log_every="--log-interval", precision="--fp16",
    )),
    iterations=(_JSON, _TEXT),
    settings=(
        Line("{any}num. [shared ]model params: {n_params}"),
        Line("{any}training on {world_size} devices"),
        Line("{any}done training in {decimal} seconds", sets={"ended": "by plan"}),
    ),
    checkpoints=(Line("{any}Saved checkpoint {any} @ {at} updates{any}(writing took {took_s} seconds)"),),
    tables=(
        Kept(STARTS, (_START,), ("stamp_s",)),
        Kept(_VALIDATIONS, (_VALIDATING, *_VALIDATED), ("stamp_s", "at")),
    ),
)  # fmt: skip
READER = FORMAT.reader()
