"""A run while it goes on: a screen that is drawn again and again, or one line at a time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from stepwatch.analysis import Analysis
from stepwatch.gpus.driver import Reading
from stepwatch.i18n import clean, say
from stepwatch.messages import Message
from stepwatch.presenters import sentences
from stepwatch.presenters.lines import Line, labelled, wrapped
from stepwatch.units import MEGA, Interval
from stepwatch.watch import Ahead, Look, Occurrence

_DONE, _AHEAD = "━", "─"
_ALARM, _NEWS = ("!", "bold red"), ("·", "green")
_MOST_EVENTS = 5
_LATE_STYLE = "bold red"
_SLOW_RATIO = 1.03


def screen(look: Look, language: str, *, width: int, height: int, card: Reading | None = None) -> list[Line]:
    """What is known now, in at most so many lines."""
    lines = [*_progress(look, language, width), Line()]
    rows = [(say(label, language), text, style) for label, text, style in _rows(look, card, language)]
    indent = max((len(label) for label, _, _ in rows), default=0) + 2
    for label, text, style in rows:
        lines += labelled(label, text, indent=indent, width=width, style=style)
    room = height - len(lines) - 1
    blocks = [_event(event, language, width) for event in look.events[-_MOST_EVENTS:]]
    while blocks and sum(map(len, blocks)) > room:
        blocks.pop(0)
    if blocks:
        lines += [Line(), *(line for block in blocks for line in block)]
    return lines[:height]


def progress_line(look: Look, language: str) -> str:
    """Where the run is, as one line of text."""
    texts = [_where(look)]
    left = _left(look)
    if left is not None:
        texts.append(left)
    if look.ratio is not None and len(texts) < 3:
        texts.append(_speed(look))
    return f"{_clock(look.now_s)} {' '.join(say(text, language) for text in texts)}"


def event_line(event: Occurrence, language: str) -> str:
    return f"{_clock(event.at_s)} {_mark(event)[0]} {say(event.message, language)}"


def waiting(look: Look) -> Message:
    """Why there is nothing to show yet."""
    if look.missing:
        return Message("Waiting for “{name:word}”, which is not there yet.", {"name": look.name})
    return Message("No iteration is done yet.")


# --- parts ------------------------------------------------------------------------------------------------------


def _progress(look: Look, language: str, width: int) -> Iterator[Line]:
    where = say(_where(look), language)
    if look.last_iteration is None:
        yield from (Line(line, "bold") for line in wrapped(where, width))
    else:
        room = width - len(where) - 2
        name = look.name if len(look.name) <= room else look.name[: max(room - 1, 0)] + "…"
        yield Line(name.ljust(width - len(where)), "bold").append(where)
    share = _share(look)
    if share is not None:
        done = min(round(share * width), width)
        yield Line(_DONE * done, "green").append(_AHEAD * (width - done), "dim")
    left = _left(look)
    if left is not None:
        yield from (Line(line, "bold") for line in wrapped(say(left, language), width))


def _where(look: Look) -> Message:
    if look.last_iteration is None:
        return waiting(look)
    share = _share(look)
    facts = {"last": look.last_iteration, "share": share}
    if share is None or look.analysis is None:
        return Message("Iteration {last:n}.", facts)
    return Message("Iteration {last:n} of {end:n}, {share:pct}.", {**facts, "end": look.analysis.forecast.max_iters})


def _share(look: Look) -> float | None:
    """Of the iterations; one that was resumed begins where it was left."""
    end = look.analysis.forecast.max_iters if look.analysis is not None else None
    if not end or look.last_iteration is None:
        return None
    return min(look.last_iteration / end, 1.0)


def _left(look: Look) -> Message | None:
    a = look.analysis
    if a is None:
        return None
    if look.done or not len(a.run.iterations):
        return sentences.forecast(a)
    if look.remaining_s is None:
        return sentences.forecast(a) if sentences.step_known(a) else None
    if not sentences.step_known(a) and a.forecast.basis == "log":
        return Message("The log shows too little to tell how long the run will take.")
    return Message(
        "{left:time} left, {range:range} in nine of ten cases.",
        {"left": look.remaining_s.mid, "range": _rounded(look.remaining_s)},
    )


def _rounded(interval: Interval) -> Interval:
    """Ends to two or three digits, so that they do not change with every breath."""
    return Interval(*sorted(float(f"{end:.3g}") for end in (interval.low, interval.mid, interval.high)))


def _rows(look: Look, card: Reading | None, language: str) -> Iterator[tuple[Message, str, str]]:
    """Label, text and the label's style."""
    a = look.analysis
    if look.late:
        yield Message("Silence"), say(_silence(look), language), _LATE_STYLE
    if look.ratio is not None:
        yield Message("Now"), say(_speed(look), language), _LATE_STYLE if look.slow else "bold"
    if a is not None and len(a.run.iterations) and sentences.step_known(a):
        yield Message("Speed"), _said(sentences.speed(a, short=True), language), "bold"
    if look.evaluation is not None:
        yield Message("Evaluation"), say(_ahead(look.evaluation), language), "bold"
    if look.checkpoint is not None:
        yield Message("Checkpoint"), say(_ahead(look.checkpoint), language), "bold"
    if a is not None and look.slow_row is not None and sentences.step_known(a):
        yield Message("Last slow"), _slow(a, look.slow_row, language), "bold"
    if card is not None:
        state = ", ".join(say(figure, language) for figure in _state(card))
        yield Message("Card"), f"{clean(card.name)} · {state}" if state else clean(card.name), "bold"


def _said(messages: Iterable[Message], language: str) -> str:
    return " ".join(say(message, language) for message in messages)


def _silence(look: Look) -> Message:
    return Message("No line for {silence:time}.", {"silence": look.silence_s})


def _speed(look: Look) -> Message:
    assert look.analysis is not None
    facts = {"now": look.recent_step_s, "normal": look.analysis.costs.step_s.mid, "ratio": look.ratio}
    if look.ratio is not None and (look.ratio > _SLOW_RATIO or look.ratio < 1 / _SLOW_RATIO):
        return Message("{now:time} per iteration, {ratio:x} times the normal {normal:time}.", facts)
    return Message("{now:time} per iteration, which is normal.", facts)


def _ahead(ahead: Ahead) -> Message:
    facts = {"time": float(f"{ahead.in_s:.2g}"), "at": ahead.at}
    if ahead.certain:
        return Message("in about {time:time}, at iteration {at:n}", facts)
    return Message("in about {time:time} at the earliest, at iteration {at:n}", facts)


def _slow(a: Analysis, at: int, language: str) -> str:
    row = sentences.slow_row(a, at)
    took = Message("Iteration {at:n} took {time:time}:", {"at": row.iteration, "time": row.time_s})
    return f"{say(took, language)} {' + '.join(say(part, language) for part in row.holds)}"


def _state(card: Reading) -> Iterator[Message]:
    if card.sm_clock_hz is not None:
        yield Message("{clock:n} MHz", {"clock": card.sm_clock_hz / MEGA})
    if card.temperature_c is not None:
        yield Message("{heat:n} °C", {"heat": card.temperature_c})
    if card.power_w is not None:
        yield Message("{power:n} W", {"power": card.power_w})
    if card.used_vram_bytes is not None and card.vram_bytes is not None:
        yield Message("{used:size} of {all:size}", {"used": card.used_vram_bytes, "all": card.vram_bytes})


def _mark(event: Occurrence) -> tuple[str, str]:
    return _ALARM if event.is_alarm else _NEWS


def _event(event: Occurrence, language: str, width: int) -> list[Line]:
    mark, style = _mark(event)
    return labelled(f"{mark} {_clock(event.at_s)}", say(event.message, language), indent=11, width=width, style=style)


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))
