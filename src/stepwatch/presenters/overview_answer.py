"""What is said of several runs before each of them: a table, of a directory or of one log."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from stepwatch.messages import Message
from stepwatch.presenters import document as doc
from stepwatch.presenters import run_sentences as sentences
from stepwatch.presenters.document import cells, count, time, word

if TYPE_CHECKING:
    from stepwatch.report import Report

MOST_RUNS = 8

UNKNOWN = sentences.UNKNOWN


def of_directory(report: Report) -> tuple[doc.Block, ...]:
    """All runs in one table, and what concerns more than one of them."""
    rows: list[tuple[Message, ...]] = []
    for number, a in enumerate(report.analyses, start=1):
        t, rate, step = a.throughput, a.throughput.tokens_per_s, sentences.step_time(a)
        known = rate is not None and math.isfinite(rate)
        steps = {"share": sentences.share_of(a, "step")}
        rows.append(
            (
                *(count(number), word(a.run.source), word(a.run.format)),
                word(t.gpu.name) if t.gpu is not None else UNKNOWN,
                count(a.goodput.iterations),
                step or UNKNOWN,
                Message("{rate:n}", {"rate": float(f"{rate:.3g}")}) if known else UNKNOWN,
                Message("{share:pct}", {"share": t.mfu}) if t.mfu is not None and t.possible else UNKNOWN,
                Message("{share:pct}", steps) if step is not None else UNKNOWN,
                sentences.run_state(a),
            )
        )
    for number, run in enumerate(report.unstarted, start=len(rows) + 1):
        state = Message("no iteration yet")
        rows.append((count(number), word(run.source), word(run.format), *[UNKNOWN] * 6, state))
    found = Message("One run was found.", {"count": report.count}, "{count:n} runs were found.", report.count)
    head = (
        *(Message("Run"), Message("Log"), Message("Format"), Message("Card"), Message("Iterations"), Message("Step")),
        *(Message("tokens/s"), Message("MFU"), Message("Steps’ share"), Message("State")),
    )
    fit = doc.Fit(left_out=(7, 3, 2, 4, 6, 8), name=1, state=9)
    remarks = [finding for finding in report.remarks if finding.code not in {"several_runs", "unstarted"}]
    return (
        doc.Headline(((found,),)),
        doc.Table(head, "rlllrrrrrl", cells(rows), doc.ALWAYS, fit=fit),
        *(doc.Text((), finding.severity, brief=(finding.message,), priority=doc.ALWAYS) for finding in remarks),
    )


def of_log(report: Report, chosen: int) -> tuple[doc.Block, ...]:
    """The runs of one log, of which the longest is explained on the first screen."""
    rows = []
    for number, a in enumerate(report.analyses, start=1):
        first = a.run.iterations.number[:1].tolist()
        reached = {"first": first[0] if first else 0, "last": a.forecast.last_iteration}
        rows.append(
            (
                count(number),
                Message("{first:n}–{last:n}", reached) if first else UNKNOWN,
                sentences.step_time(a) or Message("unknown"),
                time(a.goodput.wall_s),
                sentences.run_state(a),
            )
        )
    for number in range(len(rows) + 1, report.count + 1):
        rows.append((count(number), UNKNOWN, UNKNOWN, UNKNOWN, Message("no iteration yet")))
    shown = tuple(range(len(rows)))
    if len(rows) > MOST_RUNS:
        shown = (*shown[: MOST_RUNS - 1], max(chosen, MOST_RUNS - 1))
    below = {"number": chosen + 1}
    head = (Message("Run"), Message("Iterations"), Message("Normal iteration"), Message("Time"), Message("State"))
    return (
        doc.Text((Message("The input holds {count:n} runs.", {"count": report.count}),), "lead", priority=doc.ALWAYS),
        doc.Table(head, "rrrrl", cells(rows), doc.ALWAYS, strong=chosen, shown=shown),
        doc.Text((), "aside", brief=(Message("Below: run {number:n}, the longest.", below),), priority=doc.ALWAYS),
    )
