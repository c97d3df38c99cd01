"""litgpt: pretraining and finetuning, with the older lines of lit-gpt and TinyLlama.

A line is one micro-batch, after its data was fetched; where the optimizer steps, its time waits for all that was queued
before. Validation is outside and its time is printed; saving is outside, and nothing tells what it took.
"""

from __future__ import annotations

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.columns import Template
from stepwatch.readers.lines import LOSS, NUMBER, LineFormat, Told
from stepwatch.readers.reader import NOTHING
from stepwatch.run import Timing

_LINE = "iter {number} step {_step} | loss train: {loss?}, val: {*} | iter time: {time_ms}"
FORMAT = LineFormat(
    name="litgpt",
    timing=Timing.SPANS_STEP,
    holds=NOTHING,
    about=Message(
        "One micro-batch without the fetching of its data; the one at which the optimizer steps waits for the others. "
        "Validation is outside, and its time is printed; saving is outside, and no line tells what it took."
    ),
    example="""\
Epoch 1 | iter 400 step 100 | loss train: 4.213, val: 4.377 | iter time: 96.41 ms (step) remaining time: 0:12:09
Validating ...
iter 400: val loss 4.2406, val time: 3155.20 ms
Saving checkpoint to 'out/pretrain/gpt/step-00000100/lit_model.pth'
Epoch 1 | iter 404 step 101 | loss train: 4.208, val: 4.241 | iter time: 96.77 ms (step) remaining time: 0:12:08""",
    mark=b"iter time: ",
    iteration=Pattern(
        r"(?:Ep(?:och)? \d+ \| )?iter (?P<number>\d{1,12})(?: \|)? st[Ee]p \d+(?: \||:) "
        rf"(?:loss(?: train)?(?: \(curr\))?:? (?P<loss>{LOSS})(?:, val[^|]{{0,40}})?(?: \||,) )?"  # a TPU tells none
        rf"iter time: (?P<time_ms>{NUMBER}) ?ms"
    ),
    templates=(
        Template("Epoch {_epoch} | " + _LINE + " ms{**}"),
        Template(_LINE + " ms{**}"),
        Template("iter {number} step {_step}: loss {loss?}, iter time: {time_ms}ms{**}"),
    ),
    evaluations=(
        Pattern(
            rf"(?:iter|step) (?P<at>\d{{1,12}}): val loss:? (?P<val_loss>{LOSS}), val time: (?P<took_ms>{NUMBER}) ?ms"
        ),
    ),
    checkpoints=(Pattern(r"Saving (?:checkpoint|LoRA weights|adapter weights|weights) to "),),
    facts=(
        Told(Pattern(r"Number of trainable parameters: (?P<trainable_params>[\d,]+)"), header=True),
        Told(Pattern(r"Total parameters: (?P<n_params>[\d,]+)"), header=True),
        Told(Pattern(r"\bmicro_batch_size=(?P<batch_size>\d+)")),
        Told(Pattern(r"\bdevices=(?P<world_size>\d+)")),
        Told(Pattern(r"\bblock_size=(?P<block_size>\d+)")),
    ),
    words=(b"val loss", b"Saving ", b"parameters: ", b"micro_batch_size=", b"devices=", b"block_size="),
    events_first=False,
)
READER = FORMAT.reader()
