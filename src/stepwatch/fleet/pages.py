"""What `stepwatch serve --store` shows: all runs of a store, and the report of one of them.

    python -m stepwatch.fleet.pages STORE LANGUAGE QUERY

A separate process, like every answer of the page: QUERY is the query of the address as JSON, the HTML goes to
standard output, errors go to standard error.
"""

from __future__ import annotations

import json
import sys
from urllib.parse import urlencode

from stepwatch.answers.from_logs import ExplainRequest, explain
from stepwatch.errors import InputError, StepwatchError
from stepwatch.fleet.copies import Unreachable, fetched_locally
from stepwatch.fleet.logs import find_logs
from stepwatch.fleet.questions import FleetRequest, ask, restricted
from stepwatch.fleet.store import Store
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters import document as doc
from stepwatch.presenters import page_body
from stepwatch.presenters.document import UNKNOWN, count, word
from stepwatch.presenters.fleet_answer import fleet_document, hours, share
from stepwatch.presenters.html import body_of
from stepwatch.presenters.run_sentences import BADGES
from stepwatch.sources import LARGEST_EXPANSION_BYTES
from stepwatch.verdict import Status

MOST_RUNS = 1000
"""The newest runs are shown; a condition finds the others."""


def page(store: str, language: str, query: dict[str, str]) -> str:
    """Raises StepwatchError."""
    if "source" in query:
        return _run(store, language, query["source"], int(query.get("run_index", "0")))
    asked = FleetRequest(
        store=store,
        where=query.get("where") or None,
        since=query.get("since") or None,
        by=tuple(name.strip() for name in query.get("by", "").split(",") if name.strip()),
    )
    document = fleet_document(ask(asked))
    runs = doc.Section("runs", Message("All runs"), (_table(asked),))
    return body_of(document._replace(sections=(runs, *document.sections)), language).html


def _table(asked: FleetRequest) -> doc.Table:
    with restricted(asked) as database:
        rows = database.sql(
            "select source, run_index, verdict, project, node, gpu, world_size, strftime(started_at, '%Y-%m-%d'),"
            " step_s_mid, mfu, wall_s * coalesce(world_size, 1) / 3600, parts_step_s / nullif(wall_s, 0) from runs"
            f" order by started_at desc nulls last, source, run_index limit {MOST_RUNS}"
        ).fetchall()
    head = (
        *(Message("Log"), Message("Status"), Message("Started"), Message("Project"), Message("Node"), Message("Card")),
        *(Message("Cards"), Message("Step"), Message("MFU"), Message("GPU hours"), Message("Steps’ share")),
    )
    shown: list[tuple[Message | doc.Badge, ...]] = []
    for source, _, verdict, project, node, gpu, cards, day, step_s, mfu, spent, steps in rows:
        words = (word(value) if value else UNKNOWN for value in (day, project, node, gpu))
        step = doc.time(step_s) if step_s else UNKNOWN
        figures = (count(cards or 1), step, share(mfu), hours(spent) if spent is not None else UNKNOWN, share(steps))
        shown.append((word(source), BADGES[Status(verdict)], *words, *figures))
    links = tuple(f"?{urlencode({'source': row[0], 'run_index': row[1]})}" for row in rows)
    return doc.Table(head, "llllllrrrrr", tuple(shown), doc.Priority.ALWAYS, links=links, judged=1)


def _run(store: str, language: str, source: str, index: int) -> str:
    """The report of one run; only reads what the store names."""
    names = Store(store).table("runs", ("source", "log")).to_pylist()
    log = next((row["log"] for row in names if row["source"] == source), None)
    if log is None:
        raise InputError(Message("no run in the store fits"))
    if log != source and source.startswith(f"{log}/") and not log.endswith("/"):
        raise InputError(Message("“{name:word}” is in an archive: unpack it to see its report", {"name": source}))
    (found, *_) = find_logs([source])
    try:
        with fetched_locally(found, limit=LARGEST_EXPANSION_BYTES) as paths:
            report = explain(ExplainRequest(logs=paths))
            if report.count > 1:
                report = explain(ExplainRequest(logs=paths, run=min(index + 1, report.count)))
            return page_body(report, language).html
    except Unreachable as error:
        raise InputError(Message("it could not be fetched: {reason:word}", {"reason": str(error)})) from error


def main() -> None:
    store, language, query = sys.argv[1:]
    try:
        sys.stdout.buffer.write(page(store, language, json.loads(query)).encode("utf-8", "replace"))
    except StepwatchError as error:
        sys.stderr.buffer.write(say(error.what, language).encode("utf-8", "replace"))
        sys.exit(1)


if __name__ == "__main__":
    main()
