"""Advice and recommended settings on a terminal, as a note and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from stepwatch.advice import Advice, AdviceList
from stepwatch.estimator.plan import Plan, plan_json
from stepwatch.estimator.simulate import Simulated
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters import advice_outline, plan_sentences
from stepwatch.presenters import advice_sentences as sentences
from stepwatch.presenters.advice_outline import BEFORE_AFTER, command_of
from stepwatch.presenters.lines import Line, Table, printable, shown, width_of_output
from stepwatch.presenters.writing import Screen
from stepwatch.report import AdviceReport
from stepwatch.units import Interval, interval_json

SCHEMA = "stepwatch.advice/1"


# --- the terminal -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceTerminal:
    colour: bool | None = None

    def render(self, answer: AdviceReport, language: str) -> str:
        width = width_of_output()
        page = _Page(answer, Screen(language, width))
        lines = list(page.settings() if answer.recommended is not None else page.changes())
        return shown(lines, width, self.colour)


class _Page(NamedTuple):
    answer: AdviceReport
    screen: Screen

    def changes(self) -> Iterator[Line]:
        advised, screen = self.answer.advice, self.screen
        yield from screen.paragraph(sentences.headline(advised), style="bold")
        yield from (line for message in sentences.nothing(advised) for line in screen.paragraph(message))
        yield from self.remarks()
        if advised is None:
            return
        for position, advice in enumerate(advised.advice):
            yield Line()
            yield from self.advice(advised, position, advice)
        if any(advised.chosen):
            yield Line()
            yield from self.table(advised)
            yield from self.typed(advised)
        notes = sentences.joined((sentences.span(advised), *advised.missing))
        yield from ([Line()] if notes else [])
        yield from (line for note in notes for line in screen.bullet(note))

    def advice(self, advised: AdviceList, position: int, advice: Advice) -> Iterator[Line]:
        screen = self.screen
        number = str(position + 1)
        yield from screen.labelled(number, screen.say(advice.what), 3)
        told = sentences.joined(
            (sentences.saves(advice, advised.before.total_s), sentences.together(advised, position))
        )
        for text in (screen.say(*told), screen.say(advice.because), screen.say(sentences.PRICE, advice.price)):
            yield from screen.labelled("", text, 3)
        if advice.patch is not None and advice.where is not None:
            yield from screen.labelled("", screen.say(advice.where), 3)
            yield from (Line("     " + line, style="green") for line in advice.patch.splitlines())

    def table(self, advised: AdviceList) -> list[Line]:
        name, before, after = (self.screen.say(head) for head in BEFORE_AFTER)
        table = Table((name, "left"), (before, "right"), (after, "right"))
        for row in sentences.rows(advised):
            table.add(*(self.screen.say(cell) for cell in row))
        return table.lines(self.screen.width)

    def typed(self, advised: AdviceList) -> Iterator[Line]:
        screen = self.screen
        lines = sentences.diff(advised.change)
        if lines:
            yield from screen.heading(Message("In the config"))
            yield from (Line("  " + line, style="red" if line.startswith("-") else "green") for line in lines)
        if command_of(self.answer):
            yield from screen.heading(Message("On the command line"))
            yield from screen.command(command_of(self.answer))

    def remarks(self) -> Iterator[Line]:
        for remark in self.answer.remarks:
            yield from self.screen.labelled("•", self.screen.say(remark), 2, "yellow")

    def settings(self) -> Iterator[Line]:
        found, screen = self.answer.recommended, self.screen
        assert found is not None
        yield from screen.paragraph(sentences.recommended_headline(found), style="bold")
        yield from self.remarks()
        yield Line()
        yield from (Line("  " + line, style="green") for line in sentences.config_lines(found))
        yield Line()
        for reason in sentences.joined((*sentences.reasons(found), sentences.against_defaults(found))):
            yield from screen.bullet(reason)
        yield from screen.labelled("·", screen.say(*plan_sentences.speed(found.plan)), 2, "dim")
        yield from screen.heading(Message("On the command line"))
        yield from screen.command(command_of(self.answer))


# --- the note ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceMarkdown:
    def render(self, answer: AdviceReport, language: str) -> str:
        from stepwatch.presenters.markdown import Writer  # loads numpy, which the terminal can do without

        writer = Writer(language)
        blocks = [
            "# " + writer.say(advice_outline.title(answer)),
            f"**{writer.say(advice_outline.headline(answer))}**",
        ]
        blocks += [block for part in advice_outline.sections(answer) for block in writer.section(part, "##")]
        return printable("\n\n".join(blocks) + "\n")


# --- JSON -------------------------------------------------------------------------------------------------------


def advice_json(answer: AdviceReport, language: str) -> str:
    found, advised = answer.recommended, answer.advice
    document: dict[str, Any] = {
        "schema": SCHEMA, "language": language, "advice": sentences.list_json(advised, language), "before": None,
        "after": None, "saves_s": None, "recommended": None, "plan": None,
        "command": " ".join(command_of(answer)) or None, "diff": [], "missing": [],
        "remarks": [say(remark, language) for remark in answer.remarks],
    }  # fmt: skip
    if advised is not None:
        document |= {
            "before": _run_json(advised.before, advised.vram_before),
            "after": _run_json(advised.after, advised.vram_after), "saves_s": interval_json(advised.saves_s),
            "diff": sentences.diff(advised.change), "missing": [say(message, language) for message in advised.missing],
        }  # fmt: skip
    if found is not None:
        document |= {
            "recommended": found.settings, "plan": plan_json(found.plan), "before": _plan_json(found.usual),
            "after": _plan_json(found.plan),
        }  # fmt: skip
    return json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"


def _run_json(run: Simulated, vram: Interval | None) -> dict[str, Any]:
    parts = {
        "step": run.step_s, "eval": run.eval_s, "checkpoint": run.checkpoint_s, "compile": run.start_s,
        "stall": run.lost_s,
    }  # fmt: skip
    return {
        "total_s": interval_json(run.total_s), "parts_s": {name: interval_json(part) for name, part in parts.items()},
        "vram_bytes": interval_json(vram),
    }  # fmt: skip


def _plan_json(plan: Plan) -> dict[str, Any]:
    return {
        "total_s": interval_json(plan.total_s), "step_s": interval_json(plan.estimate.step_s),
        "vram_bytes": interval_json(plan.estimate.vram_bytes), "fits": plan.fits,
    }  # fmt: skip
