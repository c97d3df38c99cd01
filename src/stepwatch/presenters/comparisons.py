"""Two runs side by side: on a terminal, as a note and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from stepwatch.comparison import Comparison, comparison_json
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
        "more": abs(c.ratio.mid - 1), "low": abs(c.ratio.low - 1), "high": abs(c.ratio.high - 1), "after": _name(c, 1),
        "before": _name(c, 0),
    }  # fmt: skip
    if c.verdict == "same":
        return Message(
            "No difference beyond noise: a step of “{after:word}” takes between {low:pct} less and {high:pct} more "
            "than one of “{before:word}”.",
            facts,
        )
    if c.per_token and c.verdict == "slower":
        return Message("“{after:word}” is slower: {more:pct} more time per token than “{before:word}”.", facts)
    if c.per_token:
        return Message("“{after:word}” is faster: {more:pct} less time per token than “{before:word}”.", facts)
    if c.verdict == "slower":
        return Message("“{after:word}” is slower: {more:pct} more time per step than “{before:word}”.", facts)
    return Message("“{after:word}” is faster: {more:pct} less time per step than “{before:word}”.", facts)


def _name(c: Comparison, which: int) -> str:
    return (c.before, c.after)[which].run.source or "-"


def certainty(c: Comparison) -> Message:
    facts = {"low": c.ratio.low, "high": c.ratio.high, "limit": c.limit}
    if c.failed:
        return Message(
            "That is more than the {limit:pct} allowed; nine of ten times the ratio is {low:x} to {high:x}.", facts
        )
    return Message("Nine of ten times the ratio lies between {low:x} and {high:x}.", facts)


class Row(NamedTuple):
    name: Message
    before: Message | None
    after: Message | None
    ratio: Message | None


def rows(c: Comparison) -> Iterator[Row]:
    for part in c.parts:
        ratio = None if part.ratio is None else Message("{ratio:x}", {"ratio": part.ratio.mid})
        yield Row(PART_NAMES[part.name], _cost(part.before), _cost(part.after), ratio)
    one, other = c.before.throughput, c.after.throughput
    yield from _pair(Message("Speed"), "{rate:rate}", "rate", one.tokens_per_s, other.tokens_per_s)
    if one.mfu is not None and other.mfu is not None:
        yield from _pair(Message("MFU"), "{share:pct}", "share", one.mfu, other.mfu)
    walls = [a.goodput for a in (c.before, c.after)]
    shares = [wall.parts_s["step"] / wall.wall_s if wall.wall_s > 0 else None for wall in walls]
    yield from _pair(Message("Share of training steps"), "{share:pct}", "share", *shares)


def _pair(name: Message, template: str, key: str, one: float | None, other: float | None) -> Iterator[Row]:
    if one is None and other is None:
        return
    ratio = Message("{ratio:x}", {"ratio": other / one}) if one and other else None
    before, after = (None if value is None else _figure(template, {key: value}) for value in (one, other))
    yield Row(name, before, after, ratio)


def _figure(template: str, facts: dict[str, float]) -> Message:
    return Message("{rate:rate}", facts) if template == "{rate:rate}" else Message("{share:pct}", facts)


def _cost(cost: Interval | None) -> Message | None:
    return None if cost is None else Message("{cost:range}", {"cost": cost})


def settings_rows(c: Comparison) -> list[tuple[str, str, str]]:
    return [(changed.name, _plain(changed.before), _plain(changed.after)) for changed in c.changed]


def _plain(value: object) -> str:
    return f"{value:.9g}" if isinstance(value, float) else clean(value)


HEAD = (Message("Part"), Message("Before"), Message("After"), Message("Ratio"))
SETTINGS_HEAD = (Message("Setting"), Message("Before"), Message("After"))


# --- forms ------------------------------------------------------------------------------------------------------


def on_terminal(c: Comparison, language: str, *, colour: bool | None) -> str:
    width = width_of_output()
    return shown(list(_lines(c, Screen(language, width))), width, colour)


def _lines(c: Comparison, screen: Screen) -> Iterator[Line]:
    yield from screen.paragraph(headline(c), style="bold red" if c.failed else "bold")
    yield from screen.paragraph(certainty(c))
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
    if c.reasons:
        yield Line()
        yield from (line for reason in c.reasons for line in screen.bullet(reason))


def sections(c: Comparison) -> Iterator[Section]:
    cells = tuple(tuple(() if cell is None else (cell,) for cell in row) for row in rows(c))
    yield section("parts", Message("What differs"), [Text((certainty(c),)), Table(HEAD, "lrrr", cells)])
    told = tuple(tuple((Message("{value:word}", {"value": cell}),) for cell in row) for row in settings_rows(c))
    yield section("settings", Message("Settings"), [Table(SETTINGS_HEAD, "lll", told)])
    yield section("reasons", Message("Why, as far as the logs tell"), [Bullets(tuple(Text((r,)) for r in c.reasons))])


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
        "language": language, "text": say(headline(c), language), "reasons": [say(r, language) for r in c.reasons],
    }  # fmt: skip
    return json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"
