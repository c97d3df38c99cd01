"""`stepwatch collect`: gathers many logs in a store."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from stepwatch.cli import described, option
from stepwatch.cli.commands import needing_fleet, options_of
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.units import MEGA


@described(
    texts=(
        Message("Read every log below WHERE into STORE."),
        Message(
            "WHERE is a directory, a glob, an address such as s3://bucket/runs, or an archive; runs of "
            "`stepwatch run`, the recorder, W&B, MLflow, TensorBoard and trackio count too. Logs are read "
            "again only if they have changed. Unreadable ones are listed in the table `failures` and do "
            "not affect the others. Then run: stepwatch fleet STORE"
        ),
    ),
    options=options_of("collect"),
)
@click.argument("places", nargs=-1, required=True, metavar="WHERE...")
@option(
    "--into", required=True, metavar="STORE", help=Message("A directory or a bucket; created if it does not exist.")
)
@option("--scheduler", metavar="tcp://…", help=Message("Let a Dask cluster read the logs instead of this machine."))
@option(
    "--workers", type=click.IntRange(1), metavar="N", help=Message("Number of processes (default: one per processor).")
)
@option("--gpu", metavar="NAME", help=Message("The card that all these runs used."))
@option("--iterations", is_flag=True, help=Message("Also keep every iteration, in a separate table."))
@option("--forecasts", is_flag=True, help=Message("Also check how accurate the forecasts at 10 % of each run were."))
@option(
    "--time-limit", type=click.FloatRange(1), metavar="SECONDS", default=60.0, help=Message("Time limit for one log.")
)
@option(
    "--memory-limit",
    type=click.IntRange(200),
    metavar="N",
    default=800,
    help=Message("Memory limit for one log, in MB."),
)
def command(lang: str, memory_limit: int, **asked: Any) -> None:
    with needing_fleet():
        from stepwatch.fleet.collect import CollectProgress, CollectRequest, collect
    last_s = time.monotonic()

    def tell(progress: CollectProgress) -> None:
        nonlocal last_s
        now_s, shown = time.monotonic(), sys.stderr is not None and sys.stderr.isatty()
        if now_s - last_s < (0.5 if shown else 10.0) or progress.done == progress.total:
            return
        last_s = now_s
        facts = {
            "done": progress.done,
            "total": progress.total,
            "rate": round(progress.rate),
            "left": (progress.total - progress.done) / progress.rate,
        }
        text = Message("{done:n} of {total:n} logs, {rate:n} per second, {left:time} left", facts)
        click.echo(f"\r\x1b[K{say(text, lang)}" if shown else say(text, lang), err=True, nl=not shown)

    done = collect(CollectRequest(memory_limit=memory_limit * int(MEGA), **asked), tell)
    if sys.stderr is not None and sys.stderr.isatty():
        click.echo("\r\x1b[K", err=True, nl=False)
    facts = {**done._asdict(), "failed": sum(done.failures.values())}
    lines = [
        Message("Logs found: {found:n}; read now: {read:n}; unchanged since the last time: {unchanged:n}.", facts),
        Message("Runs: {runs:n}; files that are not logs: {not_logs:n}; failures: {failed:n}.", facts),
    ]
    if done.failures:
        causes = ", ".join(f"{cause} {count}" for cause, count in sorted(done.failures.items()))
        lines.append(Message("Failures by cause: {causes:list}", {"causes": causes}))
    lines.append(
        Message("Took {elapsed_s:time}. Next: {command:list}", {**facts, "command": f"stepwatch fleet {asked['into']}"})
    )
    click.echo("\n".join(say(line, lang) for line in lines))
    if done.read and not done.runs and done.failures:
        sys.exit(1)
