"""What the note and the page say of a run, section by section, still as Messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stepwatch.analysis import Analysis
from stepwatch.analysis.findings import WARNING, Finding
from stepwatch.messages import Message
from stepwatch.presenters import sentences
from stepwatch.presenters.blocks import Block, Bullets, Section, Table, Text, section
from stepwatch.report import Report

MOST_SLOW_ROWS = 12

_OWN_SECTION = frozenset({"first_iteration", "mfu_sentinel", "evaluation_spikes", "silent_evaluations", "several_runs"})
_ABOUT_RANKS = frozenset({"slow_rank", "rank_hiccup", "ranks_even", "rank_missing", "rank_ended"})
_ABOUT_SPEED = frozenset({"mfu_other_card", "mfu_smoothed", "impossible_figure", "unsynchronised", "busy_when_logging"})


def title(report: Report) -> Message:
    return sentences.title(report.analyses[sentences.longest(report)])


def sections(report: Report, a: Analysis) -> Iterator[Section]:
    """Those that have something to say."""
    for found in (
        section("normal", Message("What a training step takes"), _normal(a)),
        section("slow", Message("Which iterations are slow, and why"), _slow(a)),
        section("first", Message("Why the first one takes longer"), _about(a, {"first_iteration", "mfu_sentinel"})),
        section("speed", Message("How fast it really is"), _speed(a)),
        section("time", Message("Where the time went"), _time(a)),
        section("ranks", Message("The ranks beside each other"), _ranks(a)),
        section("forecast", Message("How long it will take"), _forecast(a)),
        section("noticed", Message("What else was noticed"), _noticed(report, a)),
        section("changes", Message("What to change"), _changes(report, a)),
    ):
        if found.blocks:
            yield found


def runs(report: Report) -> Table:
    if report.directory:
        rows = sentences.overview_rows(report)
        return Table(sentences.OVERVIEW, "rlllrrrrrl", tuple(tuple((cell,) for cell in row) for row in rows))
    head = (Message("Run"), Message("Iterations"), Message("Normal iteration"), Message("Time"), Message("State"))
    return Table(head, "rrrrl", tuple(tuple((cell,) for cell in row) for row in sentences.run_rows(report)))


def _normal(a: Analysis) -> Iterator[Block]:
    facts = {"step": a.costs.step_s, "normal": int(a.phases.normal.sum()), "rows": len(a.run.iterations)}
    if sentences.step_known(a) and len(a.run.iterations):
        said = Message(
            "Of {rows:n} logged iterations {normal:n} did nothing but a training step, in {step:range}.", facts
        )
        yield Text((said,))
    if len(a.regimes.regimes) > 1:
        yield Bullets(tuple(Text((said,)) for said in sentences.regime_sentences(a)))
    yield _costs(a)


def _costs(a: Analysis) -> Table:
    head = (Message("Part"), Message("Cost"), Message("Basis"), Message("Count"))
    rows = (
        (
            (row.name,), (row.cost,), (row.how,) if row.how else (),
            (Message("{count:n}", {"count": row.count}),) if row.count else (),
        )
        for row in sentences.part_rows(a)
    )  # fmt: skip
    return Table(head, "lrlr", tuple(rows))


def _slow(a: Analysis) -> Iterator[Block]:
    found, left_out = sentences.slow_rows(a, MOST_SLOW_ROWS)
    if not found:
        return
    yield from _about(a, {"evaluation_spikes", "silent_evaluations"})
    rows = (
        (
            (Message("{iteration:n}", {"iteration": row.iteration}),),
            (Message("{time:time}", {"time": row.time_s}),),
            row.holds,
        )
        for row in found
    )
    yield Table((Message("Iteration"), Message("Time"), Message("What it includes")), "rrl", tuple(rows))
    if left_out:
        yield Text((Message("… and {count:n} more.", {"count": left_out}),))


def _speed(a: Analysis) -> Iterator[Block]:
    yield Text(sentences.speed(a))
    yield from _about(a, _ABOUT_SPEED)


def _time(a: Analysis) -> Iterator[Block]:
    if not a.goodput.iterations:
        return
    yield Text((sentences.time_spent(a),))
    yield time_by_part(a)


def time_by_part(a: Analysis) -> Table:
    rows = (
        ((row.name,), (Message("{time:time}", {"time": row.seconds}),), (sentences.share_text(row.share),))
        for row in sentences.part_rows(a)
        if row.share == row.share  # what nothing tells of has no share
    )
    return Table((Message("Part"), Message("Time"), Message("Share")), "lrr", tuple(rows))


def _ranks(a: Analysis) -> Iterator[Block]:
    rows = tuple(tuple((cell,) for cell in row) for row in sentences.rank_cells(a))
    if rows:
        yield from _about(a, _ABOUT_RANKS)
        yield Table(sentences.RANKS, "rrrr", rows)


def _forecast(a: Analysis) -> Iterator[Block]:
    yield Text((sentences.forecast(a), *sentences.forecast_notes(a)))


def _noticed(report: Report, a: Analysis) -> Iterator[Block]:
    said = _OWN_SECTION | _ABOUT_SPEED | _ABOUT_RANKS
    found = (finding for finding in sentences.ranked(report, a) if finding.code not in said)
    yield Bullets(tuple(_told(finding) for finding in found))


def _changes(report: Report, a: Analysis) -> Iterator[Block]:
    yield Bullets(tuple(Text(change) for change in sentences.changes(report.advice_of(a))))


def _about(a: Analysis, codes: Iterable[str]) -> Iterator[Text]:
    chosen = frozenset(codes)
    yield from (_told(finding) for finding in a.findings if finding.code in chosen)


def _told(finding: Finding) -> Text:
    return Text((finding.message,), warning=finding.severity == WARNING)
