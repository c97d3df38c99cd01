"""nanochat: base_train, mid_train and chat_sft, which often stand in one file, one after the other.

The time of a step is taken between two waits for the card and holds all of its micro-steps, the optimizer and the
loading of the next batch; evaluations, samples and checkpoints lie outside and no line tells what they took. The first
chat_sft printed no times at all.
"""

from __future__ import annotations

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.columns import Template
from stepwatch.readers.lines import LOSS, NUMBER, LineFormat, Told
from stepwatch.readers.reader import NOTHING, Untimed
from stepwatch.readers.records import Records
from stepwatch.run import Checkpoint, Evaluation, Fact, Timing

_MORE = r"(?:[^|\n]{1,80}\|){0,6}?"  # what a fork or another version prints between
_LOSS_TO_RATE = "loss: {loss?} | lrm: {_lrm} | dt: {time_ms}ms | tok/sec: {tokens_per_s,} |"

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
        rf"step (?P<number>\d+)(?:/(?P<last>\d+))? \([\d.]+%\) \| loss: (?P<loss>{LOSS}) \|{_MORE}"
        rf" dt: (?P<time_ms>{NUMBER})ms \|{_MORE} tok/sec: (?P<tokens_per_s>[\d,]+)"
        rf"(?: \|{_MORE} (?:bf16_)?mfu: (?P<mfu_pct>{NUMBER})%?)?(?: \||\s*$)"
    ),
    templates=(
        Template(f"step {{number}}/{{last}} ({{_pct}}%) | {_LOSS_TO_RATE} bf16_mfu: {{mfu_pct}} |{{**}}"),
        Template(f"step {{number}}/{{last}} ({{_pct}}%) | {_LOSS_TO_RATE} mfu: {{mfu_pct}} |{{**}}"),
        Template(f"step {{number}} ({{_pct}}%) | {_LOSS_TO_RATE} mfu: {{mfu_pct}} |{{**}}"),
        Template(f"step {{number}} ({{_pct}}%) | {_LOSS_TO_RATE} mfu: {{mfu_pct}}% |{{**}}"),  # autoresearch
    ),
    evaluations=(Pattern(rf"Step (?P<at>\d+) \| Validation bpb: (?P<val_loss>{LOSS})"),),
    checkpoints=(Pattern(r"Saved model (?:parameters |file )?to:? \S*?model_(?P<at>\d+)\.pt"),),
    facts=(
        Told(Pattern(r"Distributed world size: (?P<world_size>\d+)"), header=True),
        Told(Pattern(rf"GPU: (?P<gpu_text>[^|]+) \| Peak FLOPS \(BF16\): (?:(?P<mfu_peak_flops>{NUMBER})|inf)")),
        Told(Pattern(r"^COMPUTE_DTYPE: torch\.(?P<dtype>\w+)")),
        Told(Pattern(rf"Estimated FLOPs per token: (?P<flops_per_token>{NUMBER})")),
        Told(
            Pattern(
                r"Total batch size (?P<tokens_per_iter>[\d,]+) => "
                r"gradient accumulation steps: (?P<gradient_accumulation_steps>\d+)"
            ),
            header=True,
        ),
        Told(Pattern(r"^Tokens / micro-batch / rank: (?P<batch_size>\d+) x (?P<block_size>\d+)")),
        Told(Pattern(r"Number of parameters: (?P<n_params>[\d,]+)")),
        Told(Pattern(r"^total\s*: (?P<n_params>[\d,]+)$")),
        Told(Pattern(r"^Vocab size: (?P<vocab_size>[\d,]+)")),
        Told(Pattern(r"^(?:num_layers: |n_layer\": )(?P<n_layer>\d+)")),
        Told(Pattern(r"^(?:num_heads: |n_head\": )(?P<n_head>\d+)")),
        Told(Pattern(r"^(?:model_dim: |n_embd\": )(?P<n_embd>\d+)")),
        Told(
            Pattern(
                r"Building model with config: \{'sequence_len': (?P<block_size>\d+), 'vocab_size': (?P<vocab_size>\d+),"
                r" 'n_layer': (?P<n_layer>\d+), 'n_head': (?P<n_head>\d+),.* 'n_embd': (?P<n_embd>\d+)"
            )
        ),
        Told(Pattern(r"^Resuming optimization from step (?P<resume>\d+)")),
        Told(Pattern(r"^Gradient checkpointing enabled"), says=(("activation_checkpointing", True),)),
    ),
    words=(
        b"Validation", b"Saved model", b"world size", b"GPU: ", b"COMPUTE_DTYPE", b"FLOPs per token",
        b"Total batch size", b"Tokens / micro", b"Number of param", b"total  ", b"Vocab size", b"num_layers",
        b"num_heads", b"model_dim", b'"n_', b"model with config", b"Resuming", b"Gradient checkp", b"| Training loss: ",
    ),
    last_offset=-1,
    opening=Pattern(rb"Total batch size [\d,]+ => gradient accumulation steps: \d"),
    untimed=(
        Untimed(
            Pattern(rb"(?m)^Step \d+/\d+ \| (?:Training loss|Average reward): .*"),
            Message("this stage prints none; hand in the log of a stage that does, such as base_train"),
        ),
    ),
)  # fmt: skip


def _finish(first_line: int, records: Records) -> None:
    """Without the events of a process after the last step: those of a stage that prints no times."""
    FORMAT.finish(first_line, records)
    last = int(records.iterations().line.max(initial=-1))
    starts = (fact.line for fact in records.events if isinstance(fact, Fact) and fact.header and fact.line > last)
    other = min(starts, default=None)
    if last >= 0 and other is not None:
        records.events = [
            event for event in records.events if event.line < other or not isinstance(event, (Evaluation, Checkpoint))
        ]


READER = FORMAT.reader()._replace(finish=_finish)
