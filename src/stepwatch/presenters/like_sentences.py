"""How lines like the example were read: shown before the answer, with lines of the log."""

from __future__ import annotations

from stepwatch.messages import Message
from stepwatch.presenters import document as doc
from stepwatch.run import ReadLine, TimeMeaning, Understood

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
    said = []
    for line in understood.lines:
        quote = line.text if len(line.text) <= 100 else line.text[:99] + "…"  # about a line of a terminal
        facts: dict[str, object] = {"line": line.line + 1, "quote": quote}
        number = Message("iteration {number:n}", {"number": line.number})
        if understood.counts_epochs:
            number = Message("epoch {number:n}", {"number": line.number})
        facts |= {"number": number, "time": _time(understood, line)}
        if line.loss is None:
            said.append(Message("Line {line:n}, “{quote:quote}”, is read as {number:word}, {time:word}.", facts))
        else:
            facts["loss"] = line.loss
            said.append(Message("Line {line:n}, “{quote:quote}”, is read as {number:word}, loss {loss:figure}, {time:word}.", facts))
    if understood.unit and understood.word:
        names = {"word": understood.word, "unit": understood.unit}
        said.append(Message("The time is the figure behind “{word:word}”, in {unit:word}.", names))
    return tuple(doc.Text((message,), "aside", priority=doc.ALWAYS) for message in said)


def _time(understood: Understood, line: ReadLine) -> Message:
    of_epochs = _OF_EPOCHS if understood.counts_epochs else {}
    if line.time_s is None and understood.meaning is not TimeMeaning.CLOCK:
        return Message("no time")
    return of_epochs.get(understood.meaning, _TIMES[understood.meaning])._replace(params={"time": line.time_s})
