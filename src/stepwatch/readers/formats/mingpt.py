"""minGPT, and projects that kept its trainer.

The line of an iteration tells the time of the one before it, with all that ran between the two: an evaluation or a
save after iteration 500 is in the time of 501, which is mostly not printed. The card is not waited for.
"""

from __future__ import annotations

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.columns import Template
from stepwatch.readers.lines import LOSS, NUMBER, LineFormat, Told
from stepwatch.readers.reader import NOTHING
from stepwatch.run import Timing

FORMAT = LineFormat(
    name="mingpt",
    timing=Timing.SPANS_STEP,
    holds=NOTHING,
    about=Message(
        "The step before the one of the line, with its loading of data; the card is not waited for. Evaluations and "
        "checkpoints are outside, and no line tells what they took."
    ),
    example="""\
iter_dt 0.00ms; iter 0: train loss 4.18342
iter_dt 84.11ms; iter 10: train loss 3.20195
iter_dt 83.97ms; iter 20: train loss 2.87361""",
    mark=b"iter_dt ",
    iteration=Pattern(rf"iter_dt (?P<time_ms>{NUMBER})ms; iter (?P<number>\d+): (?:train )?loss (?P<loss>{LOSS})"),
    templates=(Template("iter_dt {time_ms}ms; iter {number}: train loss {loss?}"),),
    evaluations=(Pattern(rf"test (?:final )?(?:score|loss):? (?:\d+/\d+ = )?(?P<val_loss>{NUMBER})"),),
    checkpoints=(Pattern(r"saving model\b"),),
    facts=(
        Told(Pattern(r"^number of parameters: (?P<n_params>[\d.,]+[KMB]?)"), header=True),
        Told(Pattern(r"^running on device (?P<device>\w+)")),
    ),
    words=(b"test ", b"saving model", b"number of param", b"running on"),
    events_first=False,
)
READER = FORMAT.reader()
