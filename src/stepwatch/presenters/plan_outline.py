"""What the note and the page say of a plan, section by section, still as Messages. Nothing here loads numpy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stepwatch.advice import advice_on_plan
from stepwatch.estimator.plan import Plan
from stepwatch.messages import Message
from stepwatch.presenters import advice_sentences
from stepwatch.presenters import plan_sentences as sentences
from stepwatch.presenters.blocks import Block, Bullets, Labelled, Section, Table, Text, Typed, section


def sections(plan: Plan, remarks: tuple[Message, ...], *, why: bool) -> Iterator[Section]:
    """Those that have something to say; with `why` also how the figures come about."""
    for found in (
        section("parts", Message("What it takes"), [_parts(plan), Text((sentences.RANGES,))]),
        section("speed", Message("How fast it is"), [Text(sentences.speed(plan))]),
        section("memory", Message("Whether it fits"), [Text(sentences.memory(plan))]),
        section("assumed", Message("What was assumed"), [_bullets(sentences.assumed(plan))]),
        section("noticed", Message("What else to know"), [_told(plan, remarks)]),
        section("sum", Message("The sum behind one iteration"), _sum(plan) if why else ()),
        section("settings", Message("Settings"), [_settings(plan)] if why else ()),
        section("changes", Message("What to change"), [_changes(plan)]),
        section("next", Message("What to ask next"), _next(plan, why=why)),
    ):
        if found.blocks:
            yield found


def _parts(plan: Plan) -> Table:
    head = (Message("Part"), Message("Each"), Message("Count"), Message("Total"))
    return _table(head, "lrrr", sentences.part_rows(plan))


def _told(plan: Plan, remarks: tuple[Message, ...]) -> Bullets:
    warnings = (Text((message,), warning=True) for message in sentences.warnings(plan))
    return Bullets((*warnings, *(Text((message,)) for message in (*remarks, *sentences.notices(plan)))))


def _sum(plan: Plan) -> Iterator[Block]:
    yield _table((Message("Term"), Message("Time"), Message("Share")), "lrr", sentences.term_rows(plan))
    yield Labelled(tuple(sentences.reckoning(plan)))


def _settings(plan: Plan) -> Table:
    return _table((Message("Setting"), Message("Value"), Message("Origin")), "lll", sentences.known_settings(plan))


def _changes(plan: Plan) -> Bullets:
    found = advice_on_plan(plan)
    said = (
        (*advice_sentences.sentence(advice, found), advice_sentences.PRICE, advice.price) for advice in found.advice
    )
    return Bullets(tuple(map(Text, said)))


def _next(plan: Plan, *, why: bool) -> Iterator[Block]:
    ask = sentences.next_option(plan, why=why)
    if ask is not None:
        yield Typed(ask.why, ask.option)


def _bullets(messages: Iterable[Message]) -> Bullets:
    return Bullets(tuple(Text((message,)) for message in messages))


def _table(head: tuple[Message, ...], align: str, rows: Iterable[tuple[Message | None, ...]]) -> Table:
    return Table(head, align, tuple(tuple(() if cell is None else (cell,) for cell in row) for row in rows))
