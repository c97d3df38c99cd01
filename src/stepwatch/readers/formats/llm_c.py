"""llm.c: the mixed-precision build, the fp32 build, the CPU program and their PyTorch twin.

The time of a step is taken around the loading of the data, forward, backward and update; validation, HellaSwag, samples
and checkpoints lie outside. `tok/s` of the mixed-precision build is a moving average, the time is not. A card that its
table does not know has an MFU of -100 %.
"""

from __future__ import annotations

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.columns import Template
from stepwatch.readers.lines import LOSS, NUMBER, LineFormat, Told
from stepwatch.readers.reader import NOTHING, Untimed
from stepwatch.readers.records import Records
from stepwatch.run import Fact, Timing


def _row(name: str, value: str) -> Pattern[str]:
    """A row of the table at the start."""
    return Pattern(rf"{name}\s+\| {value}\s*\|")


FORMAT = LineFormat(
    name="llm.c",
    timing=Timing.SPANS_STEP,
    holds=NOTHING,
    about=Message(
        "One step, with the loading of its data; the card is waited for. Evaluations and checkpoints are outside, and "
        "no line tells what they took."
    ),
    example="""\
val loss 4.102231
step  251/19560 | loss 4.094518 (-0.41z)| norm 0.4410 (+0.12z)| lr 2.15e-04 | 1204.61 ms | 51.2% bf16 MFU | 435201 tok/s
step  252/19560 | loss 4.081190 (-0.62z)| norm 0.4377 (-0.03z)| lr 2.16e-04 | 1205.07 ms | 51.2% bf16 MFU | 435193 tok/s
Writing checkpoint at step 5000""",
    mark=b" ms",
    iteration=Pattern(
        rf"step\s+(?P<number>\d+)(?:/(?P<last>\d+))?(?: \| (?:train )?loss|: train loss)\s+(?P<loss>{LOSS})"
        r"(?: \(acc [^)]{1,20}\))?(?: \((?:z )?[^)z]{1,12}z?\))?"
        r"(?: ?\|)?(?: norm\s+\S+(?: \([^)]{1,12}z\))?(?: ?\|)?)?(?: lr(?:_scale)? \S+(?: \|)?)?"
        rf" \(?(?:took )?(?P<time_ms>{NUMBER}) ms"
        rf"(?: \| (?P<mfu_pct>{NUMBER})% (?:bf16|A100 fp16) MFU)?"
        rf"(?:(?:,| \|) (?P<tokens_per_s>{NUMBER}) tok/s)?"
    ),
    templates=(
        Template(
            "step{ }{number}/{last} | loss{ }{loss?} {*} norm{ }{_norm?} {*} lr {*} | {time_ms} ms |"
            " {mfu_pct}% bf16 MFU | {tokens_per_s+} tok/s"
        ),
        Template("step{ }{number}/{last}: train loss {loss?} ({time_ms} ms, {tokens_per_s+} tok/s)"),
        # A twin of the speedruns of 2024, on AMD.
        Template("step{ }{number}/{last} | train loss {loss?} | lr_scale {*} | ({time_ms} ms | {tokens_per_s+} tok/s)"),
    ),
    evaluations=(Pattern(rf"val loss (?P<val_loss>{LOSS})\s*$"),),
    checkpoints=(Pattern(r"Writing checkpoint at step (?P<at>\d+)"),),
    facts=(
        Told(_row("(?:micro )?batch size B", r"(?P<batch_size>\d+)"), header=True),
        Told(_row(r"\| sequence length T", r"(?P<block_size>\d+)")),
        Told(_row("total batch size", r"(?P<tokens_per_iter>\d+)")),
        Told(_row("val_loss_every", r"(?P<eval_interval>\d+)")),
        Told(_row("resume", "1"), says=(("resume", True),)),
        Told(_row("device", r"(?P<gpu_text>\S.*\S)")),
        Told(_row("peak TFlops", r"(?P<mfu_peak_flops>\d[\d.]*)"), scale=1e12),
        Told(_row("precision", "BF16"), says=(("dtype", "bfloat16"),)),
        Told(_row("precision", "FP16"), says=(("dtype", "float16"),)),
        Told(_row("(?:precision|TF32)", r"(?:T?FP?32|enabled|disabled)"), says=(("dtype", "float32"),)),
        Told(_row("vocab_size V", r"(?P<vocab_size>\d+)")),
        Told(_row("num_layers L", r"(?P<n_layer>\d+)")),
        Told(_row("num_heads NH", r"(?P<n_head>\d+)")),
        Told(_row("channels C", r"(?P<n_embd>\d+)")),
        Told(_row("num_parameters", r"(?P<n_params>\d+)")),
        Told(_row("num_processes", r"(?P<world_size>\d+)")),
        Told(Pattern(r"=> setting grad_accum_steps=(?P<gradient_accumulation_steps>\d+)")),
        Told(Pattern(r"^(?:total average iteration time|final \d+ iters avg): ")),
    ),
    words=(b"val loss ", b"Writing checkpoint", b"  | ", b" B          | ", b"grad_accum_steps="),
    events_offset=-1,
    opening=Pattern(rb"(?m)^\| train_num_batches +\| \d+ +\|$"),
    untimed=(
        Untimed(
            Pattern(rb"(?m)^s:\d+ (?:trl|tel|eval):\S+.*"),
            Message("hand in what the training printed on the screen: those lines have times"),
        ),
    ),
)


def _finish(first_line: int, records: Records) -> None:
    FORMAT.finish(first_line, records)
    printed = records.columns["reported_mfu"]
    printed[:] = [np.where(part < 0, np.nan, part) for part in printed]  # no card of its table
    _tell_work(records)


def _tell_work(records: Records) -> None:
    """Its count of the work of a token: 6 N + 6 L C T, where nanoGPT has 12 for the attention."""
    known: dict[str, float] = {}
    for fact in [event for event in records.events if isinstance(event, Fact)]:
        if fact.name not in ("n_params", "n_layer", "n_embd", "block_size") or isinstance(fact.value, str):
            continue
        known[fact.name] = fact.value
        if fact.name == "n_params" and len(known) == 4:
            flops = 6 * known["n_params"] + 6 * known["n_layer"] * known["n_embd"] * known["block_size"]
            records.events.append(Fact(line=fact.line, name="flops_per_token", value=flops))


READER = FORMAT.reader()._replace(finish=_finish)
