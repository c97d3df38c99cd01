"""nanoswe, a descendant of nanochat with its own lines, each with a clock.

The clock in front of every line shows what happens between two steps: checkpoints, evaluations, a cluster that waits.
"""

from __future__ import annotations

from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.run import Timing

FORMAT = LineFormat(
    name="nanoswe",
    timing=Timing.SPANS_STEP,
    iterations=(Line("step {number} | loss {loss} | lrm {word} | dt_ms {time_ms}"),),
    checkpoints=(Line("saved checkpoint model_{at}"),),
    settings=(
        Line("system info:", header=True, sets={"system_info": ""}),
        Line("world_size: {world_size}{end}"),
        Line("gpu_name: {gpu_text:rest}"),
    ),
)
READER = FORMAT.reader()
