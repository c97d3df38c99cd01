"""A plan on a terminal, in one screen of 25 lines, and as a note; with `why` also how the figures come about.

Nothing here loads numpy, nor what explains a log: an estimate is to be answered at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from stepwatch.advice import advice_on_plan
from stepwatch.estimator.plan import Plan
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters import advice_sentences, plan_outline
from stepwatch.presenters import plan_sentences as sentences
from stepwatch.presenters.lines import (
    GAP,
    SCREEN_LINES,
    Cell,
    Line,
    Table,
    labelled,
    printable,
    shown,
    width_of_output,
    wrapped,
)

_NARROWEST_NAME = 12

_WARNING, _NOTICE = ("!", "bold red"), ("•", "yellow")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTerminal:
    why: bool = False
    colour: bool | None = None
    """None: as standard output can take it. False for an answer that goes into a file."""
    name: str = "terminal"
    suffix: str = ".txt"

    def render(self, plan: Plan, remarks: tuple[Message, ...], language: str) -> str:
        width = width_of_output()
        page = _Page(plan, remarks, language, width)
        lines = list(page.everything()) if self.why else page.screen()
        return shown(lines, width, self.colour)


class _Block(NamedTuple):
    """Finished lines; where the screen is short of room, those of the highest rank go first."""

    rank: int
    lines: list[Line]


class _Parts(Table):
    """Where the width is short, the names are wrapped before the figures are."""

    def _widths(self, rows: list[list[Cell]], width: int) -> list[int]:
        widths = [max(len(row[i].text) for row in rows) for i in range(len(self.sides))]
        widths[0] = min(widths[0], width - sum(widths[1:]) - len(GAP) * (len(widths) - 1))
        return widths if widths[0] >= _NARROWEST_NAME else super()._widths(rows, width)


@dataclass(frozen=True, slots=True)
class _Page:
    plan: Plan
    remarks: tuple[Message, ...]
    language: str
    width: int

    # --- the first screen -----------------------------------------------------------------------------------

    def screen(self) -> list[Line]:
        """All that there is room for, in order."""
        blocks = list(self.blocks())
        while sum(len(block.lines) for block in blocks) > SCREEN_LINES:
            last = max(range(len(blocks)), key=lambda index: (blocks[index].rank, index))
            if blocks[last].rank == 0:
                break
            del blocks[last]
        return _without_double_gaps(line for block in blocks for line in block.lines)

    def blocks(self) -> Iterator[_Block]:
        """Ranks: what must stay, speed and memory, warnings, remarks, assumptions, gaps, what is good to know."""
        plan, gap = self.plan, [Line()]
        yield from (_Block(0, self.answer()), _Block(5, gap), _Block(0, self.parts()), _Block(5, gap))
        yield from (_Block(rank, lines) for rank, lines in zip((1, 1, 4), self.facts(), strict=False))
        yield _Block(6, gap)
        yield from (_Block(2, self.marked(_WARNING, text)) for text in sentences.warnings(plan))
        yield from (_Block(3, self.marked(_NOTICE, text)) for text in self.remarks)
        yield from (_Block(7, self.marked(_NOTICE, text)) for text in sentences.notices(plan))
        yield from (_Block(6, gap), _Block(2, self.change()), _Block(6, gap), _Block(0, self.next(why=False)))

    def answer(self) -> list[Line]:
        """The verdict on a claim before all else."""
        verdict = " ".join(self.say(message) for message in sentences.verdict(self.plan))
        told = [Line(line, style="bold") for line in wrapped(verdict, self.width)] if verdict else []
        return [*told, *self.paragraph(sentences.headline(self.plan), style="" if told else "bold")]

    def parts(self) -> list[Line]:
        table = _Parts(
            (self.say(Message("Part")), "left"), (self.say(Message("Each")), "right"),
            (self.say(Message("Count")), "right"), (self.say(Message("Total")), "right"),
        )  # fmt: skip
        for row in sentences.part_rows(self.plan):
            cells = ("" if cell is None else self.say(cell) for cell in row)
            table.add(*cells, style="bold" if row.each is None else "")
        return table.lines(self.width)

    def facts(self) -> list[list[Line]]:
        """Speed, memory and what was assumed, if anything was."""
        return self.labelled_rows([
            (Message("Speed"), sentences.speed(self.plan)),
            (Message("Memory"), sentences.memory(self.plan)),
            (Message("Assumed"), sentences.assumed(self.plan)),
        ])  # fmt: skip

    def change(self) -> list[Line]:
        """The first change that pays, in short."""
        found = advice_on_plan(self.plan)
        if not found.advice:
            return []
        told = (found.advice[0].what, advice_sentences.saves(found.advice[0], found.before.total_s))
        return self.labelled("→", " ".join(map(self.say, told)), 2, "bold")

    def changes(self) -> Iterator[Line]:
        found = advice_on_plan(self.plan)
        if not found.advice:
            return
        yield from self.heading(Message("What to change"))
        for advice in found.advice:
            said = (*advice_sentences.sentence(advice, found), advice_sentences.PRICE, advice.price)
            yield from self.labelled("·", " ".join(map(self.say, said)), 2, "dim")

    def next(self, *, why: bool) -> list[Line]:
        ask = sentences.next_option(self.plan, why=why)
        if ask is None:
            return []
        return [*self.paragraph(ask.why, style="dim"), Line("  " + ask.option, style="bold green")]

    # --- how the figures come about ---------------------------------------------------------------------------

    def everything(self) -> Iterator[Line]:
        yield from [*self.answer(), Line(), *self.parts(), Line()]
        yield from (line for block in self.facts() for line in block)
        notices = (*self.remarks, *sentences.notices(self.plan))
        told = [self.marked(_WARNING, text) for text in sentences.warnings(self.plan)]
        told += [self.marked(_NOTICE, text) for text in notices]
        yield from ([Line()] if told else [])
        yield from (line for block in told for line in block)
        yield from self.heading(Message("The sum behind one iteration"))
        yield from self.terms()
        yield Line()
        yield from (line for block in self.labelled_rows(sentences.reckoning(self.plan)) for line in block)
        yield from self.heading(Message("Settings"))
        yield from self.settings()
        yield from self.changes()
        end = self.next(why=True)
        yield from ([Line(), *end] if end else [])

    def terms(self) -> list[Line]:
        table = Table(
            (self.say(Message("Term")), "left"), (self.say(Message("Time")), "right"),
            (self.say(Message("Share")), "right"),
        )  # fmt: skip
        for row in sentences.term_rows(self.plan):
            table.add(*(self.say(cell) for cell in row))
        return table.lines(self.width)

    def settings(self) -> list[Line]:
        table = Table(("", "left"), ("", "left"), ("", "left"))
        for row in sentences.known_settings(self.plan):
            table.add(*(self.say(cell) for cell in row))
        return table.lines(self.width)

    # --- lines ------------------------------------------------------------------------------------------------

    def say(self, message: Message) -> str:
        return say(message, self.language)

    def paragraph(self, message: Message, *, style: str = "") -> list[Line]:
        return [Line(line, style=style) for line in wrapped(self.say(message), self.width)]

    def heading(self, message: Message) -> list[Line]:
        return [Line(), Line(self.say(message), style="bold underline")]

    def marked(self, mark: tuple[str, str], message: Message) -> list[Line]:
        return self.labelled(mark[0], self.say(message), 2, mark[1])

    def labelled_rows(self, rows: Iterable[tuple[Message, tuple[Message, ...]]]) -> list[list[Line]]:
        """One block for each label that has anything to say, all indented alike."""
        said = [(self.say(label), " ".join(map(self.say, texts))) for label, texts in rows if texts]
        indent = max((len(label) for label, _ in said), default=0) + 2
        return [self.labelled(label, text, indent, "bold") for label, text in said]

    def labelled(self, label: str, text: str, indent: int, style: str) -> list[Line]:
        return labelled(label, text, indent=indent, width=self.width, style=style)


def _without_double_gaps(lines: Iterable[Line]) -> list[Line]:
    kept: list[Line] = []
    for line in lines:
        if line.text or (kept and kept[-1].text):
            kept.append(line)
    return kept


# --- the note ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMarkdown:
    why: bool = False
    front_matter: bool = False
    name: str = "md"
    suffix: str = ".md"

    def render(self, plan: Plan, remarks: tuple[Message, ...], language: str) -> str:
        from stepwatch.presenters.markdown import Writer, front_matter  # loads numpy, which the terminal can do without

        writer = Writer(language)
        blocks = ["# " + writer.say(sentences.TITLE)]
        blocks += [f"**{writer.said(verdict)}**" for verdict in (sentences.verdict(plan),) if verdict]
        blocks.append(f"**{writer.say(sentences.headline(plan))}**")
        for section in plan_outline.sections(plan, remarks, why=self.why):
            blocks += writer.section(section, "##")
        start = front_matter(sentences.TITLE, language) if self.front_matter else ""
        return printable(start + "\n\n".join(blocks) + "\n")
