"""`stepwatch fleet`: what a store of runs shows."""

from __future__ import annotations

import atexit
import gc

import click

from stepwatch.cli import described, option
from stepwatch.cli.commands import checked_output, deliver, needing_fleet, options_of
from stepwatch.messages import Message


@described(
    texts=(
        Message("Query all runs in a STORE made by `stepwatch collect`."),
        Message(
            "Where the GPU hours went, and the work repeated after restarts; the changes that save most; "
            "nodes, cards, days and runs that are slower than comparable ones; jobs with their restarts; "
            "failures; the speed of the cards, scaling, and the accuracy of forecasts."
        ),
    ),
    options=options_of("fleet", "terminal", "md", "json", "html"),
)
@click.argument("store")
@option("--where", metavar="SQL", help=Message("Only these runs: \"gpu like '%4090%' and world_size = 8\"."))
@option("--since", metavar="WHEN", help=Message("Only runs that started since: 30d, 12h, 2w or 2026-11-01."))
@option(
    "--by",
    metavar="COLUMNS",
    default="",
    show_default=False,
    help=Message("A table grouped by columns of the runs: card,project,node."),
)
def command(
    store: str,
    where: str | None,
    since: str | None,
    by: str,
    full: bool,
    lang: str,
    form: str,
    output: str | None,
) -> None:
    _, output = checked_output((store,), form, output)
    with needing_fleet():
        from stepwatch.fleet.questions import FleetRequest, ask
    atexit.unregister(gc.freeze)  # at exit, DuckDB complains about objects not collected by then
    columns = tuple(name.strip() for name in by.split(",") if name.strip())
    report = ask(FleetRequest(store=store, where=where, since=since, by=columns))
    deliver(report, lang, form, output, full=full)
