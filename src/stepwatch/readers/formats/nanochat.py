"""nanochat: base_train, mid_train and chat_sft, which often follow each other in one file.

The time of a step is measured between two waits for the card, and includes all of its micro-steps, the optimizer and
the loading of the next batch. Evaluations, samples and checkpoints are not included, and no line shows how long they
took. The first chat_sft printed no times at all.
"""

from __future__ import annotations

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.records import Records
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.run import Checkpoint, Evaluation, Fact, Levers, Timing, Traits

FORMAT = LineFormat(
    name="nanochat",
    timing=Timing.SPANS_STEP,
    traits=Traits(
        levers=Levers(
            evaluate_every="--eval-every",
            save_every="--save-every",
            batch="--device-batch-size",
            accumulates=True,
            length="--max-seq-len",
        )
    ),
    iterations=(
        Line(
            "step {number}[/{last}] ({decimal}%) | loss: {loss} |{any} dt: {time_ms}ms |"
            "{any} tok/sec: {tokens_per_s:count}[ |{any} [bf16_]mfu: {mfu_pct}[%]]< |{rest};{end}>"
        ),
    ),
    evaluations=(Line("Step {at} | Validation bpb: {val_loss}"),),
    checkpoints=(Line("Saved model [parameters ;file ]to[:] {any}model_{at}.pt"),),
    settings=(
        Line("{any}Distributed world size: {world_size}", header=True),
        Line("{any}GPU: {gpu_text} | Peak FLOPS (BF16): <{mfu_peak_flops};inf>"),
        Line("COMPUTE_DTYPE: torch.{dtype}"),
        Line("{any}Estimated FLOPs per token: {flops_per_token}"),
        Line(
            "{any}Total batch size {tokens_per_iter} => gradient accumulation steps: {gradient_accumulation_steps}",
            header=True,
            opening=True,
        ),
        Line("Tokens / micro-batch / rank: {batch_size} x {block_size}"),
        Line("{any}Number of parameters: {n_params}"),
        Line("total{pad}: {n_params}{end}"),
        Line("Vocab size: {vocab_size}"),
        Line("num_layers: {n_layer}"),
        Line("num_heads: {n_head}"),
        Line("model_dim: {n_embd}"),
        Line('n_layer": {n_layer}'),
        Line('n_head": {n_head}'),
        Line('n_embd": {n_embd}'),
        Line(
            r"{any}Building model with config: \{'sequence_len': {block_size}, 'vocab_size': {vocab_size},"
            " 'n_layer': {n_layer}, 'n_head': {n_head},{any} 'n_embd': {n_embd}"
        ),
        Line("Resuming optimization from step {resume}"),
        Line("Gradient checkpointing enabled", sets={"activation_checkpointing": True}),
    ),
    timeless=(Line("Step {int}/{int} | Training loss: "),),
    last_offset=-1,
    untimed=(
        (
            Pattern(rb"(?m)^Step \d+/\d+ \| (?:Training loss|Average reward): .*"),
            Message("this stage prints none; give the log of a stage that does, such as base_train"),
        ),
    ),
)


def _finish(first_line: int, records: Records) -> None:
    """Drops evaluations and checkpoints of a process after the last step: it is a stage that prints no times."""
    FORMAT.finish(first_line, records)
    last = int(records.iterations().line.max(initial=-1))
    starts = (fact.line for fact in records.events if isinstance(fact, Fact) and fact.header and fact.line > last)
    other = min(starts, default=None)
    if last >= 0 and other is not None:
        records.events = [
            event
            for event in records.sorted_events()
            if event.line < other or not isinstance(event, (Evaluation, Checkpoint))
        ]


READER = FORMAT.reader()._replace(finish=_finish)
