"""Lines of evaluations, saves and facts in each trainer's form, in our own words, to put between iterations."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple


class Event(NamedTuple):
    """A line after every so many iterations; `n` is the number of the last one, `t` a clock since the start in ms."""

    every: int
    line: str

    def written(self, number: int) -> str:
        clock = _BEGIN + timedelta(seconds=10 * number)
        return self.line.format(n=number, t=33 * number, epoch=number / 1000, clock=clock.strftime("%Y-%m-%d %H:%M:%S"))


_BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
_TITAN = "[rank0]:[titan] {clock},119 - root - INFO - "
_DEEPSPEED = "[{clock},120] [INFO] [logging.py:96:log_dist] [Rank 0] "
_TRAINER = (
    Event(10, "{{'eval_loss': 2.380711793899536, 'eval_runtime': 9.412, 'eval_samples_per_second': 53.1, "
              "'eval_steps_per_second': 6.7, 'epoch': {epoch:.4g}}}"),
    Event(50, "Saving model checkpoint to out/checkpoint-{n}"),
)  # fmt: skip
_FAIRSEQ = "[{clock},640][fairseq_cli.train][INFO] - "
# Other lines of real logs, of which some have many: progress of an evaluation, warnings, tables, samples.
_NOISE = (
    Event(1, "evaluating HellaSwag: {n}/10042"),
    Event(2, "/usr/lib/python3.11/site-packages/torch/utils/data/_utils.py:{n}: UserWarning: a worker is slow"),
    Event(5, "| module.block.{n}.weight | 768 x 768 | {t} |"),
    Event(10, "  tensor([[-0.{n}, 0.{t}, -1.25], [0.{t}, 0.0{n}, 0.5]], device='cuda:0')"),
    Event(20, ""),
)
EVENTS: dict[str, tuple[Event, ...]] = {
    "fairseq": (
        Event(10, _FAIRSEQ + 'begin validation on "valid" subset'),
        Event(10, '[{clock},641][valid][INFO] - {{"epoch": 1, "valid_loss": "4.1", "valid_num_updates": "{n}"}}'),
        Event(50, _FAIRSEQ + "Saved checkpoint a.pt (epoch 1 @ {n} updates, score 4.1) (writing took 2.5 seconds)"),
        Event(50, _FAIRSEQ + "Start iterating over samples"),
    ),
    "parameter-golf": (Event(10, "step:{n}/20000 val_loss:4.4817 val_bpb:2.6117 train_time:{t}ms step_avg:32.48ms"),),
    "nanoswe": (Event(50, "[{clock}] saved checkpoint model_{n:06d} -> checkpoints/pt"),),
    "nanochat": (
        Event(10, "Step {n:05d} | Validation bpb: 1.046491"),
        Event(50, "Saved model parameters to: out/base/model_{n:06d}.pt"),
    ),
    "modded-nanogpt": (Event(10, "step:{n}/1000000 val_loss:4.4817 train_time:{t}ms step_avg:32.48ms"),),
    "build-nanogpt": (
        Event(10, "validation loss: 6.1702"), Event(10, "HellaSwag accuracy: 2497/10042=0.2487"),
        Event(50, "rank 3 sample 1: Once upon a time there was a log of {n} lines, and nobody read it."),
    ),
    "llm.c": (Event(10, "val loss 4.102231"), Event(50, "Writing checkpoint at step {n}")),
    "mingpt": (Event(10, "test loss: 3.1177"), Event(50, "saving model")),
    "megatron": (
        Event(10, " validation loss at iteration {n} | lm loss value: 2.790112E+00 | lm loss PPL: 1.628284E+01 |"),
        Event(50, "  saving checkpoint at iteration {n:7d} to out in torch_dist format"),
        Event(50, "  successfully saved checkpoint from iteration {n:7d} to out"),
        Event(50, "    save-checkpoint ................................: (3120.50, 3120.71)"),
    ),
    "torchtitan": (
        Event(10, _TITAN + "validate step: {n}  loss:  3.41177  memory: 41.20GiB(51.50%)  tps: 24,310"),
        Event(50, _TITAN + "Saving the checkpoint (or staging if async is enabled)."),
        Event(50, _TITAN + "Finished saving the checkpoint (or staging if async is enabled) in 4.52 seconds."),
    ),
    "deepspeed": (
        Event(10, "***** Evaluating perplexity, Epoch 1/4 *****"), Event(10, "ppl: 2.345117"),
        Event(50, _DEEPSPEED + "[Torch] Checkpoint global_step{n} is about to be saved!"),
    ),
    "hf-trainer": _TRAINER,
    "axolotl": _TRAINER,
    "lightning": (
        Event(50, "Epoch 0, global step {n}: 'val_loss' reached 2.31000 (best 2.31000), saving model to 'a.ckpt'"),
    ),
    "litgpt": (
        Event(10, "iter {n}: val loss 4.2406, val time: 3155.20 ms"),
        Event(50, "Saving checkpoint to 'out/pretrain/step-{n:08d}/lit_model.pth'"),
    ),
    "composer": (
        Event(10, "[Eval batch=20/20] Eval on eval data:"),
        Event(10, "\t Eval metrics/eval/LanguageCrossEntropy: 2.9012"),
    ),
    "mlx-lm": (
        Event(10, "Iter {n}: Val loss 1.274, Val took 18.306s"),
        Event(50, "Iter {n}: Saved adapter weights to out/adapters.safetensors and out/{n:07d}_adapters.safetensors."),
    ),
    "keras": (Event(10, "Epoch {n}: val_loss improved from 4.10000 to 4.05530, saving model to best.keras"),),
}  # fmt: skip


def with_events(name: str, pieces: Iterator[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """The pieces of a log, each with its count of iterations, and between them the events of its format."""
    number = 0
    for piece, count in pieces:
        yield piece, count
        number += count
        for event in EVENTS.get(name, ()) if count else ():
            if number % event.every == 0:
                yield event.written(number), 0


def with_noise(pieces: Iterator[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """The pieces of a log with lines between them that are not the trainer's."""
    number = 0
    for piece, count in pieces:
        yield piece, count
        number += count
        for event in _NOISE if count else ():
            if number % event.every == 0:
                yield event.written(number), 0


def with_stamps(pieces: Iterator[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """The pieces of a log with what a logger puts in front of every line."""
    for number, (piece, count) in enumerate(pieces):
        stamp = (_BEGIN + timedelta(seconds=number)).strftime("%Y-%m-%d %H:%M:%S,678 - INFO - ")
        yield "\n".join(stamp + line for line in piece.split("\n")), count
