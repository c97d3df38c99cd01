"""llm.c: the mixed-precision build, the fp32 build, the CPU program and their PyTorch twin.

The time of a step covers data loading, forward, backward and update, but no validation, HellaSwag, samples or
checkpoints. `tok/s` of the mixed-precision build is a moving average, the time is not. A card that is not in its table
has an MFU of -100 %.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.records import Records
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.run import Fact, Levers, Timing, Traits


def _row(name: str, value: str, **becomes: Any) -> Line:
    """A row of the table at the start."""
    return Line(f"{{any}}{name}  | {value}{{pad}}|", **becomes)


FORMAT = LineFormat(
    name="llm.c",
    timing=Timing.SPANS_STEP,
    traits=Traits(
        levers=Levers(
            evaluate_every="-v",
            evaluation_batches="-m",
            save_every="-n",
            batch="-b",
            accumulates=True,
            recompute="-r 2",
            length="-t",
        )
    ),
    iterations=(
        Line(
            "step  {number}[/{last}]< | [train ]loss;: train loss>  {loss}{any} [(][took ]{time_ms} ms"
            "[ | {mfu_pct}% <bf16;A100 fp16> MFU][<,; |> {tokens_per_s} tok/s]"
        ),
    ),
    evaluations=(Line("val loss {val_loss}{end}"),),
    checkpoints=(Line("Writing checkpoint at step {at}"),),
    settings=(
        _row("batch size B", "{batch_size}", header=True),
        _row("sequence length T", "{block_size}"),
        _row("total batch size", "{tokens_per_iter}"),
        _row("val_loss_every", "{eval_interval}"),
        _row("resume", "1", sets={"resume": True}),
        _row("device", "{gpu_text}"),
        _row("peak TFlops", "{mfu_peak_flops}", scale=1e12),
        _row("precision", "BF16", sets={"dtype": "bfloat16"}),
        _row("precision", "FP16", sets={"dtype": "float16"}),
        _row("<precision;TF32>", "<TF32;FP32;enabled;disabled>", sets={"dtype": "float32"}),
        _row("vocab_size V", "{vocab_size}"),
        _row("num_layers L", "{n_layer}"),
        _row("num_heads NH", "{n_head}"),
        _row("channels C", "{n_embd}"),
        _row("num_parameters", "{n_params}"),
        _row("num_processes", "{world_size}"),
        Line("{any}train_num_batches  | {int}{pad}|", opening=True),
        Line("{any}=> setting grad_accum_steps={gradient_accumulation_steps}"),
        Line("<total average iteration time;final {int} iters avg>: "),
    ),
    events_offset=-1,
    untimed=(
        (
            Pattern(rb"(?m)^s:\d+ (?:trl|tel|eval):\S+.*"),
            Message("give the console output of the training: its lines have times"),
        ),
    ),
)


def _finish(first_line: int, records: Records) -> None:
    FORMAT.finish(first_line, records)
    printed = records.columns["reported_mfu"]
    printed[:] = [np.where(part < 0, np.nan, part) for part in printed]  # the card is not in its table
    # It counts 6 N + 6 L C T FLOPs per token, where nanoGPT has 12 for the attention.
    known: dict[str, float] = {}
    for fact in [event for event in records.events if isinstance(event, Fact)]:
        if fact.name not in ("n_params", "n_layer", "n_embd", "block_size") or isinstance(fact.value, str):
            continue
        known[fact.name] = fact.value
        if fact.name == "n_params" and len(known) == 4:
            flops = 6 * known["n_params"] + 6 * known["n_layer"] * known["n_embd"] * known["block_size"]
            records.events.append(Fact(line=fact.line, name="flops_per_token", value=flops))


READER = FORMAT.reader()._replace(finish=_finish)
