"""How lines were read that an example describes: said before the answer, with lines of the log."""

from __future__ import annotations

from collections.abc import Iterator

from stepwatch.messages import Message
from stepwatch.presenters import document as doc
from stepwatch.run import ReadLine, TimeMeaning, Understood

_SHOWN_LETTERS = 100
_TIMES = {
    TimeMeaning.STEP: Message("{time:time} for one iteration"),
    TimeMeaning.INTERVAL: Message("{time:time} for all iterations since the line before"),
    TimeMeaning.ELAPSED: Message("{time:time} since the start"),
    TimeMeaning.MEAN: Message("{time:time} per iteration, the mean since the start"),
    TimeMeaning.CLOCK: Message("its time by the timestamps of the lines"),
}
_OF_EPOCHS = {
    TimeMeaning.STEP: Message("{time:time} for one epoch"),
    TimeMeaning.INTERVAL: Message("{time:time} for all epochs since the line before"),
    TimeMeaning.MEAN: Message("{time:time} per epoch, the mean since the start"),
}


def understood_blocks(understood: Understood | None) -> tuple[doc.Block, ...]:
    """Nothing where no example was given."""
    if understood is None:
        return ()
    return tuple(doc.Text((message,), "aside", priority=doc.ALWAYS) for message in _sentences(understood))


def _sentences(understood: Understood) -> Iterator[Message]:
    for line in understood.lines:
        facts: dict[str, object] = {
            "line": line.line + 1,
            "quote": line.text if len(line.text) <= _SHOWN_LETTERS else line.text[: _SHOWN_LETTERS - 1] + "…",
        }
        number = Message("iteration {number:n}", {"number": line.number})
        if understood.counts_epochs:
            number = Message("epoch {number:n}", {"number": line.number})
        facts |= {"number": number, "time": _time(understood, line)}
        if line.loss is None:
            yield Message("Line {line:n}, “{quote:quote}”, is read as {number:word}, {time:word}.", facts)
        else:
            facts["loss"] = line.loss
            yield Message(
                "Line {line:n}, “{quote:quote}”, is read as {number:word}, loss {loss:figure}, {time:word}.", facts
            )
    if understood.unit and understood.word:
        names = {"word": understood.word, "unit": understood.unit}
        yield Message("The time is the figure behind “{word:word}”, in {unit:word}.", names)


def _time(understood: Understood, line: ReadLine) -> Message:
    of_epochs = _OF_EPOCHS if understood.counts_epochs else {}
    if line.time_s is None and understood.meaning is not TimeMeaning.CLOCK:
        return Message("no time")
    return of_epochs.get(understood.meaning, _TIMES[understood.meaning])._replace(params={"time": line.time_s})
