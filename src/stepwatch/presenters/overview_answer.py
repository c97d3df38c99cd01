"""The overview of several runs: how many have a problem, and a table, the worst first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from stepwatch.messages import Message
from stepwatch.presenters import document as doc
from stepwatch.presenters import run_sentences as sentences
from stepwatch.presenters.document import UNKNOWN, count, time, word
from stepwatch.presenters.run_sentences import BADGES
from stepwatch.verdict import Status

if TYPE_CHECKING:
    from stepwatch.report import Report, RunReport

MOST_RUNS = 8
"""The most runs of one log in the table on the first screen: the longest run is explained below it."""

_UNSTARTED = doc.Badge("○", Message("No iteration yet"), "open")


def of_directory(report: Report) -> tuple[doc.Block, ...]:
    """All runs in one table, and the findings about more than one of them."""
    rows: list[tuple[Message | doc.Badge, ...]] = []
    for row in report.worst_first:
        a = report.runs[row].analysis
        t, rate, step = a.throughput, a.throughput.tokens_per_s, sentences.step_time(a)
        known = rate is not None and math.isfinite(rate)
        steps = {"share": sentences.share_of(a, "step")}
        rows.append(
            (
                *(count(row + 1), word(a.run.source), _badge(report.runs[row]), word(a.run.format)),
                word(t.gpu.name) if t.gpu is not None else UNKNOWN,
                count(a.goodput.iterations),
                step or UNKNOWN,
                Message("{rate:n}", {"rate": float(f"{rate:.3g}")}) if known else UNKNOWN,
                Message("{share:pct}", {"share": t.mfu}) if t.mfu is not None and t.possible else UNKNOWN,
                Message("{share:pct}", steps) if step is not None and a.shows_parts else UNKNOWN,
            )
        )
    for number, run in enumerate(report.unstarted, start=len(rows) + 1):
        rows.append((count(number), word(run.source), _UNSTARTED, word(run.format), *[UNKNOWN] * 6))
    head = (
        *(Message("Run"), Message("Log"), Message("Status"), Message("Format"), Message("Card")),
        *(Message("Iterations"), Message("Step"), Message("tokens/s"), Message("MFU"), Message("Steps’ share")),
    )
    kept = [column for column in range(len(head)) if any(row[column] is not UNKNOWN for row in rows)]
    left_out = tuple(kept.index(column) for column in (8, 4, 3, 5, 7, 9) if column in kept)
    table = doc.Table(
        tuple(head[column] for column in kept),
        "".join("rllllrrrrr"[column] for column in kept),
        tuple(tuple(row[column] for column in kept) for row in rows),
        doc.Priority.ALWAYS,
        left_out=left_out,
        name=1,
        state=2,
        links=_links(report),
        judged=2,
    )
    remarks = [finding for finding in report.remarks if finding.code not in {"several_runs", "unstarted"}]
    noticed = (
        doc.Text((), finding.severity, brief=(finding.message,), priority=doc.Priority.ALWAYS) for finding in remarks
    )
    return (_headline(report), table, *noticed)


def of_log(report: Report, chosen: int) -> tuple[doc.Block, ...]:
    """The runs of one log, of which the longest is explained on the first screen."""
    rows: list[tuple[Message | doc.Badge, ...]] = []
    for row in report.worst_first:
        a = report.runs[row].analysis
        first = a.run.iterations.number[:1].tolist()
        reached = {"first": first[0] if first else 0, "last": a.forecast.last_iteration}
        rows.append(
            (
                count(row + 1),
                _badge(report.runs[row]),
                Message("{first:n}–{last:n}", reached) if first else UNKNOWN,
                sentences.step_time(a) or UNKNOWN,
                time(a.goodput.wall_s),
            )
        )
    for number in range(len(rows) + 1, report.count + 1):
        rows.append((count(number), _UNSTARTED, UNKNOWN, UNKNOWN, UNKNOWN))
    strong = report.worst_first.index(chosen)
    shown = tuple(range(len(rows)))
    more: tuple[Message, ...] = ()
    if len(rows) > MOST_RUNS:
        shown = (*shown[: MOST_RUNS - 1], max(strong, MOST_RUNS - 1))
        more = (Message("… and {count:n} more.", {"count": len(rows) - MOST_RUNS}),)
    below = Message("Below: run {number:n}, the longest.", {"number": chosen + 1})
    head = (Message("Run"), Message("Status"), Message("Iterations"), Message("Normal iteration"), Message("Time"))
    return (
        _headline(report),
        doc.Table(
            head, "rlrrr", tuple(rows), doc.Priority.ALWAYS, strong=strong, shown=shown, links=_links(report), judged=1
        ),
        doc.Text((), "aside", brief=(*more, below), priority=doc.Priority.ALWAYS),
    )


def anchor(row: int) -> str:
    """The anchor of a run's section."""
    return f"run-{row + 1}"


def _links(report: Report) -> tuple[str, ...]:
    return (*map(anchor, report.worst_first), *[""] * len(report.unstarted))


def _badge(run: RunReport) -> doc.Badge:
    badge = BADGES[run.verdict.status]
    if run.verdict.status is Status.HEALTHY and run.analysis.forecast.done:
        return doc.Badge(badge.sign, Message("Healthy, done"), badge.tone)
    return badge


def _headline(report: Report) -> doc.Headline:
    """How many runs there are, how many have a problem, and the worst of them in its own words."""
    facts = {"count": report.count, "bad": report.troubled}
    found = Message(
        "One run was found, without a problem.", facts, "{count:n} runs were found, none with a problem.", report.count
    )
    if report.count == 1 and report.troubled:
        found = Message("One run was found, and it has a problem.")
    elif report.troubled:
        found = Message(
            "{count:n} runs were found, {bad:n} with a problem.",
            facts,
            "{count:n} runs were found, {bad:n} with problems.",
            report.troubled,
        )
    if not report.troubled:
        return doc.Headline(((found,),))
    row = report.worst_first[0]
    worst = report.runs[row]
    named = {"number": row + 1, "source": worst.analysis.run.source}
    name = Message("The worst is run {number:n}:", named)
    if report.directory:
        name = Message("The worst is run {number:n}, {source:word}:", named)
    alarm = BADGES[worst.verdict.status].tone == "bad"
    return doc.Headline(((found,), (name, worst.verdict.text)), alarm=alarm)
