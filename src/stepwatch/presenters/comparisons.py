"""Two runs side by side: on a terminal, as a note and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from stepwatch.analysis.comparison import Comparison, comparison_json
from stepwatch.i18n import clean, say
from stepwatch.messages import Message
from stepwatch.presenters.blocks import Bullets, Section, Table, Text, section
from stepwatch.presenters.lines import Line, printable, shown, width_of_output
from stepwatch.presenters.lines import Table as Columns
from stepwatch.presenters.sentences import PART_NAMES
from stepwatch.presenters.writing import Screen
from stepwatch.units import Interval

TITLE = Message("Two runs side by side")


def headline(c: Comparison) -> Message:
    facts = {
        "more": abs(c.ratio.mid - 1), "low": abs(c.ratio.low - 1), "high": abs(c.ratio.high - 1), "after": c.names[1],
        "before": c.names[0],
    }  # fmt: skip
    if c.verdict == "unknown":
        return _UNTOLD[c.ratio.mid >= 1, c.per_token]._replace(params=facts)
    return _TOLD[c.verdict, c.per_token]._replace(params=facts)


# By the verdict, and whether the time is that of a token.
_TOLD = {
    ("same", False): Message(
        "No difference beyond noise: a step of “{after:word}” takes between {low:pct} less and {high:pct} more "
        "than one of “{before:word}”."
    ),
    ("same", True): Message(
        "No difference beyond noise: a token of “{after:word}” takes between {low:pct} less and {high:pct} more "
        "than one of “{before:word}”."
    ),
    ("slower", False): Message("“{after:word}” is slower: {more:pct} more time per step than “{before:word}”."),
    ("slower", True): Message("“{after:word}” is slower: {more:pct} more time per token than “{before:word}”."),
    ("faster", False): Message("“{after:word}” is faster: {more:pct} less time per step than “{before:word}”."),
    ("faster", True): Message("“{after:word}” is faster: {more:pct} less time per token than “{before:word}”."),
}
# By whether it is more time, and whether that of a token.
_UNTOLD = {
    (True, False): Message(
        "Undecided: “{after:word}” shows {more:pct} more time per step than “{before:word}”, which need not mean "
        "that it is slower."
    ),
    (True, True): Message(
        "Undecided: “{after:word}” shows {more:pct} more time per token than “{before:word}”, which need not mean "
        "that it is slower."
    ),
    (False, False): Message(
        "Undecided: “{after:word}” shows {more:pct} less time per step than “{before:word}”, which need not mean "
        "that it is faster."
    ),
    (False, True): Message(
        "Undecided: “{after:word}” shows {more:pct} less time per token than “{before:word}”, which need not mean "
        "that it is faster."
    ),
}


def certainty(c: Comparison) -> tuple[Message, ...]:
    """How sure that is, and what becomes of the limit."""
    facts = {"low": c.ratio.low, "high": c.ratio.high, "limit": c.limit}
    if c.verdict == "unknown":
        untested = Message("Whether that is over the {limit:pct} allowed is not judged: the exit code is 0.", facts)
        return () if c.limit is None else (untested,)
    interval = Message("Nine of ten times the ratio lies between {low:ratio} and {high:ratio}.", facts)
    if c.limit is None or c.verdict == "faster":
        return (interval,)
    if c.failed:
        return Message("That is more than the {limit:pct} allowed.", facts), interval
    if c.verdict == "same" and c.ratio.high > 1 + c.limit:
        hidden = Message("It may be over the {limit:pct} allowed, but the noise hides that: the exit code is 0.", facts)
        return interval, hidden
    return Message("That is within the {limit:pct} allowed.", facts), interval


class Row(NamedTuple):
    name: Message
    before: Message | None
    after: Message | None
    ratio: Message | None


def rows(c: Comparison) -> Iterator[Row]:
    one, other = c.before.throughput, c.after.throughput
    yield from _words(Message("Format"), c.before.run.format, c.after.run.format)
    yield from _words(Message("Card"), *(t.gpu.name if t.gpu is not None else None for t in (one, other)))
    for part in c.parts:
        ratio = None if part.ratio is None else Message("{ratio:ratio}", {"ratio": part.ratio.mid})
        yield Row(PART_NAMES[part.name], _cost(part.before), _cost(part.after), ratio)
    yield from _pair(Message("Speed"), Message("{value:rate}"), one.tokens_per_s, other.tokens_per_s)
    yield from _pair(Message("MFU"), Message("{value:pct}"), *(t.mfu if t.possible else None for t in (one, other)))
    walls = [a.goodput for a in (c.before, c.after)]
    shares = [wall.parts_s["step"] / wall.wall_s if wall.wall_s > 0 else None for wall in walls]
    yield from _pair(Message("Share of training steps"), Message("{value:pct}"), *shares)


def _words(name: Message, *words: str | None) -> Iterator[Row]:
    if any(words):
        before, after = (None if word is None else Message("{name:word}", {"name": word}) for word in words)
        yield Row(name, before, after, None)


def _pair(name: Message, value: Message, one: float | None, other: float | None) -> Iterator[Row]:
    if one is None and other is None:
        return
    ratio = Message("{ratio:ratio}", {"ratio": other / one}) if one and other else None
    before, after = (None if figure is None else value._replace(params={"value": figure}) for figure in (one, other))
    yield Row(name, before, after, ratio)


def _cost(cost: Interval | None) -> Message | None:
    return None if cost is None else Message("{cost:range}", {"cost": cost})


def settings_rows(c: Comparison) -> list[tuple[str, str, str]]:
    return [(changed.name, _plain(changed.before), _plain(changed.after)) for changed in c.changed]


def _plain(value: object) -> str:
    if not isinstance(value, float):
        return clean(value)
    return f"{value:.0f}" if value.is_integer() else f"{value:.9g}"  # parameters are counted, and beyond nine digits


HEAD = (Message("Part"), Message("Before"), Message("After"), Message("Ratio"))
SETTINGS_HEAD = (Message("Setting"), Message("Before"), Message("After"))


# --- forms ------------------------------------------------------------------------------------------------------


def on_terminal(c: Comparison, language: str, *, colour: bool | None) -> str:
    width = width_of_output()
    return shown(list(_lines(c, Screen(language, width))), width, colour)


def _lines(c: Comparison, screen: Screen) -> Iterator[Line]:
    yield from screen.paragraph(headline(c), style="bold red" if c.failed else "bold")
    yield from (line for doubt in c.doubts for line in screen.bullet(doubt))
    if certainty(c):
        yield from screen.paragraph(*certainty(c))
    yield Line()
    table = Columns((screen.say(HEAD[0]), "left"), *((screen.say(head), "right") for head in HEAD[1:]))
    for row in rows(c):
        table.add(*("" if cell is None else screen.say(cell) for cell in row))
    yield from table.lines(screen.width)
    if c.changed:
        yield Line()
        settings = Columns(*((screen.say(head), "left") for head in SETTINGS_HEAD))
        for cells in settings_rows(c):
            settings.add(*cells)
        yield from settings.lines(screen.width)
    for bullets in (c.reasons, c.notes):
        if bullets:
            yield Line()
        yield from (line for bullet in bullets for line in screen.bullet(bullet))


def sections(c: Comparison) -> Iterator[Section]:
    cells = tuple(tuple(() if cell is None else (cell,) for cell in row) for row in rows(c))
    yield section(
        "parts", Message("What differs"), [_bullets(c.doubts), Text(certainty(c)), Table(HEAD, "lrrr", cells)]
    )
    told = tuple(tuple((Message("{value:word}", {"value": cell}),) for cell in row) for row in settings_rows(c))
    yield section("settings", Message("Settings"), [Table(SETTINGS_HEAD, "lll", told)])
    yield section("reasons", Message("Why, as far as the logs tell"), [_bullets(c.reasons)])
    yield section("noticed", Message("What else was noticed"), [_bullets(c.notes)])


def _bullets(messages: tuple[Message, ...]) -> Bullets:
    return Bullets(tuple(Text((message,)) for message in messages))


def as_note(c: Comparison, language: str) -> str:
    from stepwatch.presenters.markdown import Writer

    writer = Writer(language)
    blocks = ["# " + writer.say(TITLE), f"**{writer.say(headline(c))}**"]
    for part in sections(c):
        if part.blocks:
            blocks += writer.section(part, "##")
    return printable("\n\n".join(blocks) + "\n")


def as_json(c: Comparison, language: str) -> str:
    document = comparison_json(c)
    document |= {
        "language": language, "text": say(headline(c), language),
        **{
            name: [say(message, language) for message in messages]
            for name, messages in (("doubts", c.doubts), ("reasons", c.reasons), ("notes", c.notes))
        },
    }  # fmt: skip
    return json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"
