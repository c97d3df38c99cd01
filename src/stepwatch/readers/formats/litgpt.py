"""litgpt: pretraining and finetuning, including the older lines of lit-gpt and TinyLlama.

A line is one micro-batch, timed after its data was fetched. If the optimizer steps, the time includes waiting for all
work queued before. Validation is not included, and its time is printed; saving is not included, and its time is
unknown.
"""

from __future__ import annotations

from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.run import Levers, Timing, Traits

FORMAT = LineFormat(
    name="litgpt",
    timing=Timing.SPANS_STEP,
    traits=Traits(
        may_evaluate=True,
        levers=Levers(
            evaluate_every="eval.interval",
            evaluation_batches="eval.max_iters",
            save_every="train.save_interval",
            other_units=True,
            batch="train.micro_batch_size",
            accumulates=True,
            log_every="train.log_interval",
            precision="precision: bf16-true",
            length="train.max_seq_length",
        ),
    ),
    iterations=(
        Line(  # a TPU prints no loss
            "[<Epoch;Ep> {int} | ]iter {number}[ |] <step;stEp> {int}< |;:> "
            "[loss[ train][ (curr)][:] {loss}<, val{bar}|; |;,> ]iter time: {time_ms}[ ]ms{rest}"
        ),
    ),
    evaluations=(Line("<iter;step> {at}: val loss[:] {val_loss}, val time: {took_ms}[ ]ms"),),
    checkpoints=(Line("Saving <checkpoint;LoRA weights;adapter weights;weights> to "),),
    settings=(
        Line("{any}Number of trainable parameters: {trainable_params}", header=True),
        Line("{any}Total parameters: {n_params}", header=True),
        Line("{any}micro_batch_size={batch_size}"),
        Line("{any}devices={world_size}"),
        Line("{any}block_size={block_size}"),
    ),
    events_first=False,
)
READER = FORMAT.reader()
