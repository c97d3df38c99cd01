"""minGPT, and projects that kept its trainer.

The line of an iteration shows the time of the previous one, including everything that ran between the two: an
evaluation or a save after iteration 500 is in the time of 501, which is mostly not printed. The time does not wait for
the card.
"""

from __future__ import annotations

from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.run import Levers, Timing, Traits

FORMAT = LineFormat(
    name="mingpt",
    timing=Timing.SPANS_STEP,
    traits=Traits(levers=Levers(batch="trainer.batch_size", workers="trainer.num_workers")),
    iterations=(Line("iter_dt {time_ms}ms; iter {number}: [train ]loss {loss}"),),
    evaluations=(Line("test [final ]<score;loss>[:] [{int}/{int} = ]{val_loss:decimal}"),),
    checkpoints=(Line("saving model"),),
    settings=(Line("number of parameters: {n_params:amount}", header=True), Line("running on device {device:name}")),
    events_first=False,
)
READER = FORMAT.reader()
