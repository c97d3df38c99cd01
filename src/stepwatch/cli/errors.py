"""How an error is told: one line for what is wrong, one for what to do, in the reader's language."""

from __future__ import annotations

import click

from stepwatch.errors import StepwatchError
from stepwatch.i18n import language_from_environment, say


def complain(error: StepwatchError, language: str | None) -> None:
    language = language or language_from_environment()
    click.echo("stepwatch: " + say(error.what, language), err=True)
    if error.remedy is not None:
        click.echo("  " + say(error.remedy, language), err=True)
