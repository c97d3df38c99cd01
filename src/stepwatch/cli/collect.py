"""`stepwatch collect`: many logs into a store."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from stepwatch.cli.commands import options_of, speaking, without_fleet
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.units import MEGA


@click.command(name="collect")
@click.argument("places", nargs=-1, required=True, metavar="WHERE...")
@click.option("--into", required=True, metavar="STORE", help="A directory or a bucket; made where it is not there.")
@click.option("--scheduler", metavar="tcp://…", help="Let a cluster of Dask read the logs, not this machine.")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Processes (default: one for each processor).")
@click.option("--gpu", metavar="NAME", help="The card that all these runs used.")
@click.option("--iterations", is_flag=True, help="Keep every iteration too, in a table of its own.")
@click.option("--forecasts", is_flag=True, help="Check, too, how the forecasts at 10 % of each run held.")
@click.option("--time-limit", type=click.FloatRange(1), default=60.0, show_default=True, help="Seconds for one log.")
@click.option("--memory-limit", type=click.IntRange(200), default=800, show_default=True, help="MB for one log.")
@options_of("collect")
def command(lang: str | None, memory_limit: int, **asked: Any) -> None:
    """Read every log below WHERE into STORE.

    WHERE is a directory, a glob, an address such as s3://bucket/runs, or an archive; runs of `stepwatch run`, the
    recorder, W&B, MLflow, TensorBoard and trackio count too. What was read before is read again only if it has changed.
    What cannot be read is named in the table `failures` and costs nothing else. Then ask: stepwatch fleet STORE
    """
    with speaking(lang) as language:
        try:
            from stepwatch.fleet.collect import CollectRequest, Progress, collect
        except ImportError as error:
            raise without_fleet() from error
        last_s = time.monotonic()

        def tell(progress: Progress) -> None:
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
            click.echo(f"\r\x1b[K{say(text, language)}" if shown else say(text, language), err=True, nl=not shown)

        done = collect(CollectRequest(memory_limit=memory_limit * int(MEGA), **asked), tell)
        if sys.stderr is not None and sys.stderr.isatty():
            click.echo("\r\x1b[K", err=True, nl=False)
        facts = {**done._asdict(), "failed": sum(done.failures.values())}
        lines = [
            Message("Logs found: {found:n}; read now: {read:n}; unchanged since the last time: {unchanged:n}.", facts),
            Message("Runs: {runs:n}; files that are no logs: {not_logs:n}; failures: {failed:n}.", facts),
        ]
        if done.failures:
            causes = ", ".join(f"{cause} {count}" for cause, count in sorted(done.failures.items()))
            lines.append(Message("Failures by cause: {causes:list}", {"causes": causes}))
        lines.append(
            Message(
                "Took {elapsed_s:time}. Next: {command:list}", {**facts, "command": f"stepwatch fleet {asked['into']}"}
            )
        )
        click.echo("\n".join(say(line, language) for line in lines))
    if done.read and not done.runs and done.failures:
        sys.exit(1)
