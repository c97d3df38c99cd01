"""What the note and the page say of advice, section by section, still as Messages. Nothing here loads numpy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stepwatch.advice import Advice, AdviceList
from stepwatch.advice.recommended import Recommended
from stepwatch.messages import Message
from stepwatch.presenters import advice_sentences as sentences
from stepwatch.presenters import plan_sentences
from stepwatch.presenters.blocks import Block, Bullets, Code, Section, Table, Text, section
from stepwatch.report import AdviceReport

BEFORE_AFTER = (Message("Part"), Message("Before"), Message("After"))


def command_of(answer: AdviceReport) -> list[str]:
    """What to type to start the run with the changes, or with the recommended settings."""
    if answer.recommended is not None:
        return sentences.command(answer.recommended.settings, None, answer.recommended.plan.n_gpus)
    if answer.advice is None:
        return []
    new = {name: value for name, (_, value) in answer.advice.change.items()}
    work = answer.advice.case.workload
    cards = int(new.get("world_size") or (work.world_size if work is not None else 1))
    return sentences.command(new, answer.config, cards)


def title(answer: AdviceReport) -> Message:
    return sentences.TITLE if answer.recommended is None else sentences.TITLE_RECOMMENDED


def headline(answer: AdviceReport) -> Message:
    if answer.recommended is not None:
        return sentences.recommended_headline(answer.recommended)
    return sentences.headline(answer.advice)


def sections(answer: AdviceReport) -> Iterator[Section]:
    found = _of_settings(answer, answer.recommended) if answer.recommended is not None else _of_changes(answer)
    yield from (part for part in found if part.blocks)


def _of_changes(answer: AdviceReport) -> Iterator[Section]:
    advised = answer.advice
    said = (*sentences.nothing(advised), *answer.remarks)
    if advised is None:
        yield section("noticed", Message("What else to know"), [_bullets(said)])
        return
    for position, advice in enumerate(advised.advice):
        part = section(f"change-{position + 1}", advice.what, _advice(advised, position, advice))
        yield part._replace(number=position + 1)
    if any(advised.chosen):
        yield section("compared", Message("Before and after"), [_compared(advised)])
        yield section("config", Message("In the config"), [Code("\n".join(sentences.diff(advised.change)), "diff")])
        yield section("command", Message("On the command line"), [Code(" ".join(command_of(answer)), "sh")])
    notes = sentences.joined((*said, sentences.span(advised), *advised.missing))
    yield section("noticed", Message("What else to know"), [_bullets(notes)])


def _advice(advised: AdviceList, position: int, advice: Advice) -> Iterator[Block]:
    told = sentences.joined((sentences.saves(advice, advised.before.total_s), sentences.together(advised, position)))
    yield Text((*told, advice.because))
    yield Text((sentences.PRICE, advice.price))
    if advice.patch is not None and advice.where is not None:
        yield Text((advice.where,))
        yield Code(advice.patch, "python" if advice.remedy else "sh")


def _compared(advised: AdviceList) -> Table:
    return Table(BEFORE_AFTER, "lrr", tuple(tuple((cell,) for cell in row) for row in sentences.rows(advised)))


def _of_settings(answer: AdviceReport, found: Recommended) -> Iterator[Section]:
    yield section("config", Message("In the config"), [Code("\n".join(sentences.config_lines(found)), "python")])
    reasons = sentences.joined((*sentences.reasons(found), sentences.against_defaults(found)))
    speed = Text(plan_sentences.speed(found.plan))
    yield section("reasons", Message("Why these"), [Bullets((*map(_text, (*reasons, *answer.remarks)), speed))])
    yield section("command", Message("On the command line"), [Code(" ".join(command_of(answer)), "sh")])


def _bullets(messages: Iterable[Message]) -> Bullets:
    return Bullets(tuple(map(_text, messages)))


def _text(message: Message) -> Text:
    return Text((message,))
