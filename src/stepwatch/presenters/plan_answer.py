"""The answer to `estimate`: a run before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepwatch.messages import Message
from stepwatch.presenters import advice_answer
from stepwatch.presenters import document as doc
from stepwatch.presenters import plan_sentences as sentences
from stepwatch.presenters.document import sections, texts, time

if TYPE_CHECKING:
    from stepwatch.estimator.plan import Plan
    from stepwatch.report import PlanReport


def plan_document(report: PlanReport, *, why: bool = False) -> doc.Document:
    """`why` adds how the figures are computed."""
    plan = report.plan
    rows = tuple(sentences.part_rows(plan))
    head = (Message("Part"), Message("Each"), Message("Count"), Message("Total"))
    parts = doc.Table(head, "lrrr", tuple(rows), doc.Priority.ALWAYS, strong=len(rows) - 1)
    guesses = tuple(sentences.assumed(plan))
    noticed = (
        *texts(sentences.warnings(plan), "warning", doc.Priority.PRESSING),
        *texts(report.remarks, "notice", doc.Priority.REMARK),
        *texts(sentences.notices(plan), "notice", doc.Priority.EXTRA),
    )
    ask = sentences.next_option(plan, why=why)
    speed = doc.Text(sentences.speed(plan), label=Message("Speed"), priority=doc.Priority.MAIN)
    memory = doc.Text(sentences.memory(plan), label=Message("Memory"), priority=doc.Priority.MAIN)
    assumed = doc.Text((), label=Message("Assumed"), brief=guesses, priority=doc.Priority.ASSUMED)
    time_chart = doc.Chart(name="parts", of=plan)
    memory_chart = doc.Chart(name="memory", of=plan)
    terms_head = (Message("Term"), Message("Time"), Message("Share"))
    terms = doc.Table(terms_head, "lrr", tuple(sentences.term_rows(plan)))
    rests_on = doc.Labelled(tuple(doc.Text(said, label=label) for label, said in sentences.reckoning(plan)))
    settings_head = (Message("Setting"), Message("Value"), Message("Origin"))
    settings = doc.Table(settings_head, "lld", tuple(sentences.known_settings(plan)))
    changes = tuple(advice_answer.changes(report.advice, pressing=True))
    answers = (tuple(sentences.verdict(plan)), (sentences.headline(plan),))
    badge = sentences.BADGES[sentences.status(plan)] if plan.claim is None else None  # the sentence says it
    return doc.Document(
        Message("How long this run will take"),
        (
            doc.Headline(tuple(filter(None, answers)), badge=badge),
            doc.Labelled(tuple(doc.Text((value,), label=label) for label, value in _figures(plan)), figures=True),
        ),
        sections(
            doc.Section("parts", Message("What it takes"), (parts, doc.Text((sentences.RANGES,)), time_chart)),
            doc.Section("speed", Message("How fast it is"), (speed,)),
            doc.Section("memory", Message("Whether it fits"), (memory, memory_chart)),
            doc.Section("assumed", Message("What was assumed"), (assumed, doc.Bullets(texts(guesses)))),
            doc.Section("noticed", Message("What else to know"), (doc.Bullets(noticed),)),
            doc.Section("sum", Message("How one iteration adds up"), (terms, rests_on) if why else ()),
            doc.Section("settings", Message("Settings"), (settings,) if why else ()),
            doc.Section("changes", Message("What to change"), (), changes),
            doc.Section("next", Message("What to ask next"), (ask,) if ask is not None else ()),
        ),
    )


def _figures(plan: Plan) -> Iterator[tuple[Message, Message]]:
    need = plan.estimate.vram_bytes
    yield Message("Whole run"), time(plan.total_s)
    yield Message("Training step"), time(plan.estimate.step_s)
    yield Message("Speed"), Message("{rate:rate}", {"rate": plan.tokens_per_s.mid})
    yield Message("Memory"), Message("{low:size} – {high:size}", {"low": need.low, "high": need.high})
