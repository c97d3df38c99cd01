"""What is said of a run before it starts: the answer to `estimate`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from stepwatch.advice import AdviceList
from stepwatch.estimator.plan import Plan
from stepwatch.messages import Message
from stepwatch.presenters import advice_answer, bar_charts
from stepwatch.presenters.document import (
    ALWAYS,
    ASSUMED,
    EXTRA,
    MAIN,
    PRESSING,
    REMARK,
    Block,
    Bullets,
    Chart,
    Document,
    Figures,
    Headline,
    Labelled,
    Section,
    Table,
    Text,
    bullets,
    cells,
    sections,
    time_range,
)
from stepwatch.presenters.plan_sentences import (
    RANGES,
    assumed,
    headline,
    known_settings,
    memory,
    next_option,
    notices,
    part_rows,
    reckoning,
    speed,
    term_rows,
    verdict,
    warnings,
)
from stepwatch.report import PlanReport


def plan_document(report: PlanReport, *, why: bool = False) -> Document:
    """With `why` also how the figures come about."""
    plan = report.plan
    rows = tuple(part_rows(plan))
    head = (Message("Part"), Message("Each"), Message("Count"), Message("Total"))
    parts = Table(head, "lrrr", cells(rows), ALWAYS, strong=len(rows) - 1)
    guesses = tuple(assumed(plan))
    told = (
        *(Text((message,), "warning", priority=PRESSING) for message in warnings(plan)),
        *(Text((message,), "notice", priority=REMARK) for message in report.remarks),
        *(Text((message,), "notice", priority=EXTRA) for message in notices(plan)),
    )
    ask = next_option(plan, why=why)
    return Document(
        Message("How long this run will take"),
        (
            Headline(tuple(said for said in (verdict(plan), (headline(plan),)) if said)),
            Figures(tuple(_figures(plan))),
        ),
        sections(
            Section(
                "parts",
                Message("What it takes"),
                (parts, Text((RANGES,)), Chart(name="parts", draw=partial(bar_charts.plan_parts, plan))),
            ),
            Section(
                "speed",
                Message("How fast it is"),
                (Text(speed(plan), label=Message("Speed"), priority=MAIN),),
            ),
            Section(
                "memory",
                Message("Whether it fits"),
                (
                    Text(memory(plan), label=Message("Memory"), priority=MAIN),
                    Chart(name="memory", draw=partial(bar_charts.plan_memory, plan)),
                ),
            ),
            Section(
                "assumed",
                Message("What was assumed"),
                (Text((), label=Message("Assumed"), brief=guesses, priority=ASSUMED), bullets(guesses)),
            ),
            Section("noticed", Message("What else to know"), (Bullets(told),)),
            Section("sum", Message("The sum behind one iteration"), tuple(_sum(plan)) if why else ()),
            Section("settings", Message("Settings"), (_settings(plan),) if why else ()),
            Section("changes", Message("What to change"), (Bullets(tuple(_changes(report.advice))),)),
            Section("next", Message("What to ask next"), (replace(ask, priority=ALWAYS),) if ask is not None else ()),
        ),
    )


def _figures(plan: Plan) -> Iterator[tuple[Message, Message]]:
    need = plan.estimate.vram_bytes
    yield Message("Whole run"), time_range(plan.total_s)
    yield Message("Training step"), time_range(plan.estimate.step_s)
    yield Message("Speed"), Message("{rate:rate}", {"rate": plan.tokens_per_s.mid})
    yield Message("Memory"), Message("{low:size} – {high:size}", {"low": need.low, "high": need.high})


def _sum(plan: Plan) -> Iterator[Block]:
    yield Table((Message("Term"), Message("Time"), Message("Share")), "lrr", cells(term_rows(plan)))
    yield Labelled(tuple((label, said, False) for label, said in reckoning(plan)))


def _settings(plan: Plan) -> Table:
    return Table((Message("Setting"), Message("Value"), Message("Origin")), "lld", cells(known_settings(plan)))


def _changes(advised: AdviceList) -> Iterator[Text]:
    for place, text in enumerate(advice_answer.changes(advised)):
        yield text if place else replace(text, priority=PRESSING)
