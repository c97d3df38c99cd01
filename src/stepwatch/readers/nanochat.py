"""nanochat: base_train, mid_train and chat_sft.

The time of a step is taken between two waits for the card and holds all of its micro-steps, the optimizer and the
loading of the next batch; evaluations, samples and checkpoints lie outside and no line tells what they took.
"""

from __future__ import annotations

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.columns import Template
from stepwatch.readers.lines import LOSS, NUMBER, LineFormat, Told
from stepwatch.readers.reader import NOTHING
from stepwatch.run import Timing

FORMAT = LineFormat(
    name="nanochat",
    timing=Timing.SPANS_STEP,
    holds=NOTHING,
    about=Message(
        "One step, with the loading of the next batch; the card is waited for. Evaluations and checkpoints are "
        "outside, and no line tells what they took."
    ),
    example="""\
Step 00250 | Validation bpb: 1.046491
step 00250/05742 (4.35%) | loss: 3.912004 | lrm: 1.00 | dt: 1177.31ms | tok/sec: 55,690 \
| bf16_mfu: 84.70 | epoch: 1 | total time: 4.71m
step 00251/05742 (4.37%) | loss: 3.910220 | lrm: 1.00 | dt: 1176.92ms | tok/sec: 55,708 \
| bf16_mfu: 84.73 | epoch: 1 | total time: 4.73m""",
    mark=b"| dt: ",
    iteration=Pattern(
        rf"step (?P<number>\d+)(?:/(?P<last>\d+))? \([\d.]+%\) \| loss: (?P<loss>{LOSS}) \|"
        rf"(?: grad norm: \S+ \|)? lrm: \S+ \| dt: (?P<time_ms>{NUMBER})ms \| tok/sec: (?P<tokens_per_s>[\d,]+)"
        rf" \| (?:bf16_)?mfu: (?P<mfu_pct>{NUMBER})"
    ),
    templates=(
        Template(
            "step {number}/{last} ({_pct}%) | loss: {loss} | lrm: {*} | dt: {time_ms}ms | tok/sec: {tokens_per_s,}"
            " | bf16_mfu: {mfu_pct} | epoch: {*} | total time: {*}"
        ),
        Template(
            "step {number}/{last} ({_pct}%) | loss: {loss} | lrm: {*} | dt: {time_ms}ms | tok/sec: {tokens_per_s,}"
            " | mfu: {mfu_pct} | total time: {*}"
        ),
    ),
    evaluations=(
        Pattern(rf"Step (?P<at>\d+) \| Validation bpb: (?P<val_loss>{LOSS})"),
        Pattern(rf"Step (?P<at>\d+) \| Validation loss: (?P<val_loss>{LOSS})"),
    ),
    checkpoints=(Pattern(r"Saved model (?:parameters |file )?to:? \S*?model_(?P<at>\d+)\.pt"),),
    facts=(
        Told(Pattern(rf"GPU: (?P<gpu_text>[^|]+) \| Peak FLOPS \(BF16\): (?P<mfu_peak_flops>{NUMBER})")),
        Told(Pattern(rf"Estimated FLOPs per token: (?P<flops_per_token>{NUMBER})")),
        Told(Pattern(r"Total batch size (?P<tokens_per_iter>[\d,]+) => gradient accumulation steps"), header=True),
        Told(Pattern(r"Number of parameters: (?P<n_params>[\d,]+)")),
        Told(Pattern(r"^total\s*: (?P<n_params>[\d,]+)$")),
        Told(Pattern(r"Distributed world size: (?P<world_size>\d+)")),
    ),
    words=(
        b"Validation",
        b"Saved model",
        b"GPU: ",
        b"FLOPs per token",
        b"Total batch size",
        b"Number of param",
        b"total",
        b"world size",
    ),
    last_offset=-1,
)
READER = FORMAT.reader()
