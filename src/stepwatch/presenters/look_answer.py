"""What is said about a run while it is running: a screen that is redrawn repeatedly, or one line at a time."""

from __future__ import annotations

from collections.abc import Iterator
from time import localtime, strftime
from typing import Any

from stepwatch.gpus.driver import CardState
from stepwatch.i18n import clean, say, say_all
from stepwatch.messages import Message
from stepwatch.presenters.document import Block, Bullets, Document, Headline, Labelled, Priority, Progress, Text, word
from stepwatch.presenters.page_wording import on_page
from stepwatch.presenters.run_sentences import BADGES, forecast, slow_row, speed, verdict_headline
from stepwatch.presenters.screen import Line
from stepwatch.presenters.terminal import TerminalWriter
from stepwatch.units import MEGA, Interval
from stepwatch.verdict import Status
from stepwatch.watch import CAUSE, CRASHED, DIVERGED, SILENCE, STOPPED, Look, UpcomingEvent, WatchEvent

MOST_EVENTS = 5
_STATUS = {
    CRASHED: Status.CRASHED, CAUSE: Status.CRASHED, DIVERGED: Status.DIVERGED, STOPPED: Status.STOPPED,
    SILENCE: Status.STOPPED,
}  # fmt: skip
"""Events that are a verdict."""
STATES = {
    "waiting": Message("Waiting"),
    "running": Message("Running"),
    "slow": Message("Slow"),
    "done": Message("Finished"),
}


def live_lines(look: Look, language: str, *, width: int, height: int, card: CardState | None = None) -> list[Line]:
    """A run in progress, in at most `height` lines: the oldest events are left out first."""
    writer = TerminalWriter(language, width, width)
    for most in range(MOST_EVENTS, -1, -1):
        lines = writer.screen(look_document(look, card, most_events=most))
        if len(lines) <= height:
            break
    return lines[:height]


def look_document(look: Look, card: CardState | None = None, *, most_events: int = MOST_EVENTS) -> Document:
    """If the run crashed, diverged or stopped, that comes first, and no forecast is shown."""
    left, grave = _left(look), look.grave
    blocks: list[Block] = [verdict_headline(grave)] if grave is not None else []
    if look.last_iteration is not None:
        blocks.append(Progress(look.name, _where(look), _share(look)))
    elif grave is None:
        blocks.append(Headline(((_where(look),),)))
    if left is not None:
        blocks.append(Headline(((left,),)))
    events = look.events[len(look.events) - min(most_events, len(look.events)) :]
    happened = (
        Text((event.message,), "warning" if event.is_alarm else "news", word(_clock(event.at_s)), (), Priority.ALWAYS)
        for event in events
        if grave is None or event.message != grave.text
    )
    return Document(None, (*blocks, Labelled(tuple(_rows(look, card)), Priority.ALWAYS), Bullets(tuple(happened))))


def progress_line(look: Look, language: str) -> str:
    """Where the run is, as one line of text."""
    texts = [text for text in (_where(look), _left(look)) if text is not None]
    if look.ratio is not None and look.grave is None:
        texts.append(_speed(look))
    mark = f"{_badge(look.grave.status, language)} " if look.grave is not None else ""
    return f"{_clock(look.now_s)} {mark}{say_all(texts, language)}"


def monitor(look: Look, language: str) -> dict[str, Any]:
    """The same as data for the page, which shows times of day in the reader's time zone."""
    grave = look.grave
    left = look.remaining_s if not look.done and look.last_iteration is not None and grave is None else None
    state = (
        grave.status.value if grave is not None
        else "waiting" if look.last_iteration is None
        else "done" if look.done
        else "slow" if look.slow
        else "running"
    )  # fmt: skip
    left_text = _left(look)
    return {
        "name": clean(look.name),
        "state": state,
        "badge": say(BADGES[grave.status].word if grave is not None else STATES[state], language),
        "verdict": say(on_page(grave.text), language) if grave is not None else None,
        "remedy": say(on_page(grave.remedy), language) if grave is not None and grave.remedy is not None else None,
        "where": say(_where(look), language),
        "share": _share(look),
        "left": say(left_text, language) if left_text is not None else None,
        "ends_s": None if left is None else [look.now_s + end for end in (left.low, left.mid, left.high)],
        "figures": [
            {
                "label": say(row.label, language),
                "text": say_all(row.messages, language),
                "warning": row.kind == "warning",
            }
            for row in _rows(look, None)
            if row.label is not None
        ],
        "events": [
            {"at_s": event.at_s, "text": say(event.message, language), "alarm": event.is_alarm} for event in look.events
        ],
    }


def event_line(event: WatchEvent, language: str) -> str:
    mark = "!" if event.is_alarm else "·"
    if event.kind in _STATUS:
        mark = _badge(_STATUS[event.kind], language)
    return f"{_clock(event.at_s)} {mark} {say(event.message, language)}"


def _badge(status: Status, language: str) -> str:
    return f"{BADGES[status].sign} {say(BADGES[status].word, language)}."


def waiting(look: Look) -> Message:
    """Why there is nothing to show yet."""
    if look.missing and look.name != "-":  # a pipe exists before its first line
        return Message("Waiting for “{name:word}”, which does not exist yet.", {"name": look.name})
    return Message("No iteration has finished yet.")


def _where(look: Look) -> Message:
    if look.last_iteration is None:
        return waiting(look)
    share = _share(look)
    facts = {"last": look.last_iteration, "share": share}
    if share is None or look.analysis is None:
        return Message("Iteration {last:n}.", facts)
    return Message("Iteration {last:n} of {end:n}, {share:pct}.", {**facts, "end": look.analysis.forecast.max_iters})


def _share(look: Look) -> float | None:
    """The share of iterations done; a resumed run starts at the share where it was left."""
    end = look.analysis.forecast.max_iters if look.analysis is not None else None
    if not end or look.last_iteration is None:
        return None
    return min(look.last_iteration / end, 1.0)


def _left(look: Look) -> Message | None:
    a = look.analysis
    if a is None or (look.grave is not None and not look.done):
        return None
    if look.done or not len(a.run.iterations):
        return forecast(a)
    if look.remaining_s is None:
        return forecast(a) if a.costs.step_known else None
    if not a.costs.step_known and a.forecast.basis == "log":
        return Message("The log shows too little to say how long the run will take.")
    left = look.remaining_s
    # Rounded to three digits, so that the figures do not change on every update.
    steady = Interval(*sorted(float(f"{end:.3g}") for end in (left.low, left.mid, left.high)))
    return Message("{left:time} left, {range:range} in nine of ten cases.", {"left": left.mid, "range": steady})


def _rows(look: Look, card: CardState | None) -> Iterator[Text]:
    a, goes_on = look.analysis, look.grave is None
    if not goes_on:
        clock = _clock(look.now_s - look.silence_s)
        text = Message("at {clock:word}, {silence:time} ago", {"clock": clock, "silence": look.silence_s})
        if look.silence_s < 1:
            text = word(clock)
        yield Text((text,), "warning" if look.late else "", Message("Last line"))
    if look.ratio is not None and goes_on:
        yield Text((_speed(look),), "warning" if look.slow else "", Message("Now"))
    known = a is not None and a.costs.step_known
    if a is not None and known and len(a.run.iterations):
        yield Text(speed(a, short=True), label=Message("Speed"))
    if look.evaluation is not None and goes_on:
        yield Text((_ahead(look.evaluation),), label=Message("Evaluation"))
    if look.checkpoint is not None and goes_on:
        yield Text((_ahead(look.checkpoint),), label=Message("Checkpoint"))
    if a is not None and known and look.slow_row is not None:
        iterations, (*_, holds) = a.run.iterations, slow_row(a, look.slow_row)
        facts = {"at": int(iterations.number[look.slow_row]), "time": float(iterations.time_s[look.slow_row])}
        took = Message("Iteration {at:n} took {time:time}:", facts)
        yield Text((took, holds), label=Message("Last slow"))
    if card is not None:
        state = tuple(part for figure in _state(card) for part in (word("·"), figure))
        yield Text((word(clean(card.name)), *state), label=Message("Card"))


def _speed(look: Look) -> Message:
    assert look.analysis is not None
    facts = {"now": look.recent_step_s, "normal": look.analysis.costs.step_s.mid, "ratio": look.ratio}
    if look.ratio is not None and not 1 / 1.03 <= look.ratio <= 1.03:
        return Message("{now:time} per iteration, {ratio:x} times the normal {normal:time}.", facts)
    return Message("{now:time} per iteration, which is normal.", facts)


def _ahead(ahead: UpcomingEvent) -> Message:
    facts = {"time": float(f"{ahead.in_s:.2g}"), "at": ahead.at}
    if ahead.certain:
        return Message("in about {time:time}, at iteration {at:n}", facts)
    return Message("in about {time:time} at the earliest, at iteration {at:n}", facts)


def _state(card: CardState) -> Iterator[Message]:
    if card.sm_clock_hz is not None:
        yield Message("{clock:n} MHz", {"clock": card.sm_clock_hz / MEGA})
    if card.temperature_c is not None:
        yield Message("{heat:n} °C", {"heat": card.temperature_c})
    if card.power_w is not None:
        yield Message("{power:n} W", {"power": card.power_w})
    if card.used_vram_bytes is not None and card.vram_bytes is not None:
        yield Message("{used:size} of {all:size}", {"used": card.used_vram_bytes, "all": card.vram_bytes})


def _clock(seconds: float) -> str:
    return strftime("%H:%M:%S", localtime(seconds))
