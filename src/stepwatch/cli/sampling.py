"""What `run` and `monitor` share: how often to sample, and a sampler that reports its errors."""

from __future__ import annotations

import os

import click

from stepwatch.cli import option
from stepwatch.errors import UnreadableInput
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.sampler import INTERVAL_S, Sampler, parquet

interval_option = option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=INTERVAL_S,
    metavar="SECONDS",
    help=Message("How often to sample the machine."),
)


def cannot_write(path: str, error: OSError) -> UnreadableInput:
    facts = {"path": path, "why": error.strerror or type(error).__name__}
    return UnreadableInput(Message("{path:word} cannot be written: {why:word}", facts))


def keep_as_parquet(lines: str, path: str, language: str) -> bool:
    """Converts samples if pyarrow is installed; a failure is reported and loses nothing."""
    if not parquet.available() or not os.path.isfile(lines):
        return False
    try:
        parquet.convert(lines, path)
    except OSError as error:
        click.echo(f"stepwatch: {say(cannot_write(path, error).what, language)}", err=True)
        return False
    return True


def name_unseen(sampler: Sampler, language: str) -> None:
    """Prints which columns this machine does not provide."""
    if sampler.unavailable_columns:
        text = Message("not available here: {names:list}", {"names": ", ".join(sampler.unavailable_columns)})
        click.echo(f"stepwatch: {say(text, language)}", err=True)


def open_sampler(path: str, pid: int | None, interval_s: float, language: str) -> Sampler:
    """Raises UnreadableInput if the file cannot be written from the start; later errors are reported once."""

    def trouble(error: OSError) -> None:
        text = Message("samples can no longer be written: {why:word}", {"why": error.strerror or ""})
        click.echo(f"stepwatch: {say(text, language)}", err=True)

    try:
        return Sampler(path, pid=pid, interval_s=interval_s, trouble=trouble)
    except OSError as error:
        raise cannot_write(path, error) from error
