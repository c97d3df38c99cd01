"""build-nanogpt, the trainer of the video lecture, in its final and earlier versions.

The clock starts at the top of the loop, as in nanoGPT: the time of a step includes the validation, HellaSwag, samples
and checkpoint whose lines come before its own. Checkpoints are written without a message.
"""

from __future__ import annotations

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.formats import BOTH
from stepwatch.readers.records import Records
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.run import Fact, Levers, Timing, Traits

FORMAT = LineFormat(
    name="build-nanogpt",
    timing=Timing.SPANS_ITERATION,
    traits=Traits(
        may_evaluate=True, levers=Levers(batch="B", accumulates=True, compile="use_compile = True", length="T")
    ),
    holds=BOTH,
    iterations=(
        Line(
            "step  {number}< |;,> loss: {loss}< |;,>[ lr[:] {decimal}< |;,>][ norm:[ ]{float}< |;,>]"
            " dt: {time_ms}ms< |;,> tok/sec: {tokens_per_s}"
        ),
    ),
    evaluations=(Line("validation loss: {val_loss}{end}"),),
    settings=(
        Line("total desired batch size: {tokens_per_iter}", header=True, opening=True),
        Line("{any}calculated gradient accumulation steps: {gradient_accumulation_steps}"),
        Line("{any}num decayed parameter tensors: {int}, with {decayed} parameters"),
        Line("{any}num non-decayed parameter tensors: {int}, with {non_decayed} parameters"),
        Line("rank {rank:int} sample {int}: "),
    ),
    untimed=(
        (
            Pattern(rb"(?m)^\d+ (?:train|val|hella) \d+\.\d+$"),
            Message("give the console output of the training: its lines have times"),
        ),
    ),
)


def _finish(first_line: int, records: Records) -> None:
    """Adds the parameters, printed in two parts, and the number of cards, from the ranks that wrote samples."""
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
