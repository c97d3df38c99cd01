"""nanoswe, a descendant of nanochat with lines of its own, each with a clock.

The clock in front of every line shows what lies between two steps: checkpoints, evaluations, a cluster that waits.
"""

from __future__ import annotations

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.columns import Template
from stepwatch.readers.lines import LOSS, NUMBER, LineFormat, Told
from stepwatch.readers.reader import NOTHING
from stepwatch.run import Timing

FORMAT = LineFormat(
    name="nanoswe",
    timing=Timing.SPANS_STEP,
    holds=NOTHING,
    about=Message("One step. Evaluations and checkpoints are outside; the clock of the lines shows what they took."),
    example="""\
[2026-01-10 08:00:07] step 000100 | loss 3.204117 | lrm 1.0000 | dt_ms 7011.8
[2026-01-10 08:00:14] step 000101 | loss 3.198260 | lrm 1.0000 | dt_ms 7009.3
[2026-01-10 08:00:31] saved checkpoint model_000101 -> checkpoints/pt""",
    mark=b"| dt_ms ",
    iteration=Pattern(
        rf"step (?P<number>\d+) \| loss (?P<loss>{LOSS}) \| lrm \S+ \| dt_ms (?P<time_ms>{NUMBER})(?:\s|$)"
    ),
    templates=(Template("step {number} | loss {loss?} | lrm {_lrm} | dt_ms {time_ms}", anywhere=True),),
    checkpoints=(Pattern(r"saved checkpoint model_(?P<at>\d+)\b"),),
    facts=(
        Told(Pattern(r"^system info:(?P<system_info>)"), header=True),
        Told(Pattern(r"^world_size: (?P<world_size>\d+)$")),
        Told(Pattern(r"^gpu_name: (?P<gpu_text>.+)")),
    ),
    words=(b"saved checkpoint", b"system info", b"world_size: ", b"gpu_name: "),
)
READER = FORMAT.reader()
