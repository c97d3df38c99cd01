"""The answer to `fleet`: a store of runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stepwatch.fleet_report import FleetReport, Group, Job, Suspect
from stepwatch.messages import Message
from stepwatch.presenters import document as doc
from stepwatch.presenters.document import UNKNOWN, count, sections, word
from stepwatch.presenters.run_sentences import BADGES, PART_NAMES, share_text
from stepwatch.units import HOUR_S
from stepwatch.verdict import Status

MOST_ROWS = 20
FLEET_PART_NAMES = {
    **PART_NAMES,
    "redone": Message("Work done again after restarts"),
    "restart": Message("Down between restarts"),
}
_SUSPECTS = {
    "node": Message(
        "Node {name:word} is slow: the steps of its {runs:n} runs take {slower:pct} longer than the same work elsewhere."
    ),
    "card": Message(
        "Card {name:word} is slow, whoever uses it: the steps of its {runs:n} runs take {slower:pct} longer than the same work elsewhere."
    ),
    "day": Message(
        "Since {name:word} steps take {slower:pct} longer than before: {runs:n} runs of work that was done before too."
    ),
    "run": Message(
        "{name:word} is slow: its steps take {slower:pct} longer than those of {like:n} runs of the same work."
    ),
}
_HEALTHY = Message("No node, card, day or run stands out as slow among runs of the same work.")


def fleet_document(report: FleetReport) -> doc.Document:
    groups = _groups(tuple(map(word, report.by)), report.groups, doc.Priority.ALWAYS)
    weeks = _groups((Message("Week"),), report.weeks, doc.Priority.MORE + 6)
    return doc.Document(
        Message("Where the GPU hours of all runs went"),
        (doc.Headline(tuple(_paragraphs(report)), alarm=bool(report.suspects)),),
        sections(
            doc.Section("hours", Message("Where the GPU hours went"), (_hours(report),)),
            doc.Section("changes", Message("What saves most"), (_changes(report),)),
            doc.Section("slow", Message("Slow against their like"), tuple(_suspects(report))),
            doc.Section("groups", Message("By group"), (groups,)),
            doc.Section("weeks", Message("By week"), (weeks,)),
            doc.Section("jobs", Message("Jobs with restarts"), (_jobs(report),)),
            doc.Section("status", Message("Status of the runs"), (_statuses(report),)),
            doc.Section("failed", Message("What failed"), (_causes(report),)),
            doc.Section("speed", Message("Speed of the cards"), (_speeds(report),)),
            doc.Section("scaling", Message("Scaling"), (_scaling(report),)),
            doc.Section("held", Message("Forecasts against the truth"), tuple(_held(report))),
        ),
    )


def hours(value: float) -> Message:
    return Message("{hours:figure} h", {"hours": round(value, 2)})


def _rough(value: float) -> float:
    """Rounded to two digits: the savings of a change are not known more precisely."""
    return float(f"{value:.2g}")


def share(value: float | None) -> Message:
    return UNKNOWN if value is None else share_text(value)


def headline(report: FleetReport) -> tuple[Message, ...]:
    """The first paragraph."""
    facts = {"runs": report.runs, "jobs": report.job_count, "hours": round(report.hours, 2), "useful": report.useful}
    whole = Message("{runs:n} runs in {jobs:n} jobs took {hours:figure} GPU hours.", facts)
    if report.useful is None:
        return (whole,)
    return whole, Message("{useful:pct} of that time went into training steps that count.", facts)


def _paragraphs(report: FleetReport) -> Iterator[tuple[Message, ...]]:
    yield headline(report)
    if report.suspects:
        yield tuple(suspect_text(report.suspects[0]))
    if report.changes:
        best = report.changes[0]
        facts = {"hours": _rough(best.hours.mid), "runs": best.runs}
        total = Message(
            "Over all runs this saves about {hours:figure} GPU hours ({runs:n} run).",
            facts,
            "Over all runs this saves about {hours:figure} GPU hours ({runs:n} runs).",
            best.runs,
        )
        yield best.text, total


def suspect_text(suspect: Suspect) -> Iterator[Message]:
    facts = {"name": suspect.name, "slower": suspect.slower, "runs": suspect.runs, "like": suspect.like}
    yield _SUSPECTS[suspect.kind]._replace(params=facts)
    if suspect.changed:
        said = "; ".join(f"{column}: {before} → {after}" for column, before, after in suspect.changed[:4])
        yield Message("What else is different: {changes:list}.", {"changes": said})


def _hours(report: FleetReport) -> doc.Table:
    head = (Message("Part"), Message("GPU hours"), Message("Share"))
    rows = ((FLEET_PART_NAMES[part.part], hours(part.hours), share(part.share)) for part in report.shares)
    return doc.Table(head, "lrr", tuple(rows), doc.Priority.ALWAYS)


def _changes(report: FleetReport) -> doc.Table:
    head = (Message("Change"), Message("Runs"), Message("Saves, GPU hours"))
    rows = []
    for change in report.changes:
        ends = {"low": _rough(change.hours.low), "high": _rough(change.hours.high)}
        rows.append((change.text, count(change.runs), Message("{low:figure}–{high:figure} h", ends)))
    return doc.Table(head, "lrr", tuple(rows), doc.Priority.MAIN)


def _suspects(report: FleetReport) -> Iterator[doc.Block]:
    if not report.suspects:
        yield doc.Text((_HEALTHY,), priority=doc.Priority.MORE)
    items = tuple(
        doc.Text(tuple(suspect_text(suspect)), "warning", priority=doc.Priority.PRESSING) for suspect in report.suspects
    )
    yield doc.Bullets(items)


def _groups(names: tuple[Message, ...], groups: Sequence[Group], priority: int) -> doc.Table:
    head = (
        *names,
        *(Message("Runs"), Message("With a problem"), Message("GPU hours"), Message("Steps’ share"), Message("MFU")),
    )
    rows = (
        (
            *(word(name or "–") for name in group.names),
            *(count(group.runs), count(group.troubled), hours(group.hours), share(group.useful), share(group.mfu)),
        )
        for group in groups[:MOST_ROWS]
    )
    return doc.Table(head, "l" * len(names) + "rrrrr", tuple(rows), priority)


def _jobs(report: FleetReport) -> doc.Table:
    head = (
        *(Message("First log"), Message("Starts"), Message("Iterations done again"), Message("Lost to restarts")),
        *(Message("From first start to last"), Message("Steps that count")),
    )
    rows = (
        (word(job.name), count(job.starts), count(job.redone), _lost(job), doc.time(job.wall_s), share(job.goodput))
        for job in report.jobs[:MOST_ROWS]
    )
    return doc.Table(head, "lrrrrr", tuple(rows), doc.Priority.MORE, left_out=(4,))


def _lost(job: Job) -> Message:
    return hours((job.redone_s + (job.gap_s or 0.0)) * job.cards / HOUR_S)


def _statuses(report: FleetReport) -> doc.Table:
    rows = ((BADGES[Status(status)], count(number)) for status, number in report.statuses.items())
    return doc.Table((Message("Status"), Message("Runs")), "lr", tuple(rows), doc.Priority.MORE + 1, judged=0)


def _causes(report: FleetReport) -> doc.Table:
    head = (Message("Cause"), Message("Number"), Message("GPU hours"), Message("For example"))
    rows = (
        (word(cause.cause), count(cause.number), hours(cause.hours) if cause.of_run else UNKNOWN, word(cause.example))
        for cause in report.causes[:MOST_ROWS]
    )
    return doc.Table(head, "lrrl", tuple(rows), doc.Priority.MORE + 2, left_out=(2,), name=3)


def _speeds(report: FleetReport) -> doc.Table:
    head = (Message("Card"), Message("Runs"), Message("GPU hours"), Message("MFU"), Message("Expected MFU"))
    rows = (
        (word(speed.gpu), count(speed.runs), hours(speed.hours), share(speed.mfu), share(speed.expected_mfu))
        for speed in report.speeds[:MOST_ROWS]
    )
    return doc.Table(head, "lrrrr", tuple(rows), doc.Priority.MORE + 3)


def _scaling(report: FleetReport) -> doc.Table:
    head = (
        *(Message("Work"), Message("Card"), Message("Cards"), Message("Runs"), Message("tokens/s per card")),
        Message("Efficiency"),
    )
    rows = (
        (
            *(word(scale.work), word(scale.gpu) if scale.gpu else UNKNOWN, count(scale.cards), count(scale.runs)),
            *(Message("{rate:n}", {"rate": float(f"{scale.tokens_per_s_per_card:.3g}")}), share(scale.efficiency)),
        )
        for scale in report.scaling[:MOST_ROWS]
    )
    return doc.Table(head, "llrrrr", tuple(rows), doc.Priority.MORE + 4, left_out=(3,))


def _held(report: FleetReport) -> Iterator[doc.Block]:
    if report.held is not None:
        facts = {"runs": report.held.runs, "inside": report.held.inside, "error": report.held.error}
        text = Message(
            "Of {runs:n} runs that are over, {inside:pct} ended within the interval that was forecast at 10 % of their iterations; 90 % is what it claims. The middle was off by {error:pct} in the median.",
            facts,
        )
        yield doc.Text((text,), priority=doc.Priority.MORE + 5)
