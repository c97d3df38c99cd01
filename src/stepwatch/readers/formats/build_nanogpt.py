"""build-nanogpt, the trainer of the video lecture, and the versions that it had on the way.

The clock starts at the top of the loop: validation, HellaSwag, samples and the checkpoint are in the time of the step
whose line follows theirs, as in nanoGPT. Checkpoints are written without a word.
"""

from __future__ import annotations

from operator import itemgetter

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.columns import Block, Floats, Ints, Template
from stepwatch.readers.lines import LOSS, NUMBER, LineFormat, Told
from stepwatch.readers.reader import BOTH, Untimed
from stepwatch.readers.records import Records
from stepwatch.run import Fact, Timing

_TIME_AND_RATE = "dt: {time_ms}ms | tok/sec: {tokens_per_s}"

_SAMPLE = Template("rank {rank} sample {_count}: {**}")


class _BuildNanoGpt(LineFormat):
    def _read_by_column(
        self, text: bytes, block: Block, stamps: Floats | None, left: Ints, first_line: int, records: Records
    ) -> Ints:
        """Samples of the model, of which only the rank counts."""
        lines, found = _SAMPLE.match(block, left)
        ranks, first = np.unique(found["rank"], return_index=True)
        for rank, line in sorted(zip(ranks.tolist(), lines[first].tolist(), strict=True), key=itemgetter(1)):
            records.events.append(Fact(line=line + first_line, name="rank", value=rank))
        return block.without(left, lines)


FORMAT = _BuildNanoGpt(
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
        Template(f"step{{ }}{{number}} | loss: {{loss?}} | lr {{*}} | norm: {{_norm?}} | {_TIME_AND_RATE}"),
        Template(f"step{{ }}{{number}} | loss: {{loss?}} | norm: {{_norm?}} | {_TIME_AND_RATE}"),
        Template(f"step{{ }}{{number}} | loss: {{loss?}} | {_TIME_AND_RATE}"),
    ),
    evaluations=(Pattern(rf"validation loss: (?P<val_loss>{LOSS})\s*$"),),
    facts=(
        Told(Pattern(r"total desired batch size: (?P<tokens_per_iter>[\d,]+)"), header=True),
        Told(Pattern(r"calculated gradient accumulation steps: (?P<gradient_accumulation_steps>\d+)")),
        Told(Pattern(r"num decayed parameter tensors: \d+, with (?P<decayed>[\d,]+) parameters")),
        Told(Pattern(r"num non-decayed parameter tensors: \d+, with (?P<non_decayed>[\d,]+) parameters")),
        Told(Pattern(r"^rank (?P<rank>\d+) sample \d+: ")),
    ),
    words=(b"validation loss", b"desired batch", b"gradient accumulation", b"decayed parameter", b" sample "),
    opening=Pattern(rb"(?m)^total desired batch size: \d"),
    untimed=(
        Untimed(
            Pattern(rb"(?m)^\d+ (?:train|val|hella) \d+\.\d+$"),
            Message("hand in what the training printed on the screen: those lines have times"),
        ),
    ),
)


def _finish(first_line: int, records: Records) -> None:
    """The parameters are told in two parts, and the number of cards by who wrote samples."""
    FORMAT.finish(first_line, records)
    facts = [event for event in records.events if isinstance(event, Fact)]
    decayed = 0.0
    for fact in facts:
        if fact.name == "decayed":
            decayed = fact.value
        elif fact.name == "non_decayed" and decayed:
            records.events.append(Fact(line=fact.line, name="n_params", value=decayed + fact.value))
    ranks = [fact for fact in facts if fact.name == "rank"]
    if ranks:
        records.events = [event for event in records.events if not (isinstance(event, Fact) and event.name == "rank")]
        cards = 1 + max(fact.value for fact in ranks)
        records.events.append(Fact(line=ranks[0].line, name="world_size", value=cards))


READER = FORMAT.reader()._replace(finish=_finish)
