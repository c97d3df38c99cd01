"""build-nanogpt, the trainer of the video lecture.

The clock starts at the top of the loop: validation, HellaSwag, samples and the checkpoint are in the time of the step
whose line follows theirs, as in nanoGPT.
"""

from __future__ import annotations

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.columns import Template
from stepwatch.readers.lines import LOSS, NUMBER, LineFormat, Told
from stepwatch.readers.reader import BOTH
from stepwatch.run import Timing

FORMAT = LineFormat(
    name="build-nanogpt",
    timing=Timing.SPANS_ITERATION,
    holds=BOTH,
    about=Message(
        "One iteration, the card waited for, with the validation, HellaSwag, samples and checkpoint that come before "
        "its line."
    ),
    example="""\
validation loss: 6.1702
HellaSwag accuracy: 2497/10042=0.2487
step   250 | loss: 6.158106 | lr 2.1063e-04 | norm: 0.9477 | dt: 20357.14ms | tok/sec: 25754.51
step   251 | loss: 6.147204 | lr 2.1147e-04 | norm: 0.9013 | dt: 416.59ms | tok/sec: 1258512.30""",
    mark=b"dt: ",
    iteration=Pattern(
        rf"step\s+(?P<number>\d+)(?: \||,) loss: (?P<loss>{LOSS})(?: \||,)"
        r"(?: lr:? \S+(?: \||,))?(?: norm: ?\S+(?: \||,))?"
        rf" dt: (?P<time_ms>{NUMBER})ms(?: \||,) tok/sec: (?P<tokens_per_s>{NUMBER})"
    ),
    templates=(
        Template("step{ }{number} | loss: {loss} | lr {*} | norm: {*} | dt: {time_ms}ms | tok/sec: {tokens_per_s}"),
    ),
    evaluations=(Pattern(rf"validation loss: (?P<val_loss>{LOSS})"),),
    facts=(
        Told(Pattern(r"total desired batch size: (?P<tokens_per_iter>[\d,]+)"), header=True),
        Told(Pattern(r"calculated gradient accumulation steps: (?P<gradient_accumulation_steps>\d+)")),
        Told(Pattern(r"num decayed parameter tensors: \d+, with (?P<decayed>[\d,]+) parameters")),
        Told(Pattern(r"num non-decayed parameter tensors: \d+, with (?P<non_decayed>[\d,]+) parameters")),
    ),
    words=(b"validation loss", b"desired batch", b"gradient accumulation", b"decayed parameter"),
)
READER = FORMAT.reader()
