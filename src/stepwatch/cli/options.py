"""Options that several commands share, and the way they are read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from stepwatch.errors import StepwatchError, UnreadableInput
from stepwatch.i18n import LANGUAGES, language_from_environment
from stepwatch.messages import Message

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def language_option() -> Decorator:
    return click.option(
        "--lang", type=click.Choice(LANGUAGES), help="Language of the answer (default: from the environment)."
    )


def format_options(*names: str) -> Decorator:
    """--format with its short forms --json, --md, and -o."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        function = click.option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write to a file instead of the screen.",
        )(function)
        for short in reversed([name for name in names if name != "terminal"]):
            function = click.option(f"--{short}", "form", flag_value=short, help=f"Short for --format {short}.")(
                function
            )
        return click.option(
            "--format",
            "form",
            type=click.Choice(names),
            default="terminal",
            show_default=True,
            help="Form of the answer.",
        )(function)

    return decorate


@contextmanager
def speaking(language: str | None) -> Iterator[str]:
    """The language for the answer; errors raised inside are told in it too."""
    chosen = language or language_from_environment()
    try:
        yield chosen
    except StepwatchError as error:
        error.language = chosen
        raise


def write(text: str, output: str | None) -> None:
    """To the file that was asked for, or to standard output, which carries the answer alone."""
    if output is None:
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # a Windows console may not know every character
        click.echo(text.encode(encoding, "replace").decode(encoding), nl=False)
        return
    try:
        with open(output, "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        reason = {"name": os.path.basename(output), "reason": error.strerror or type(error).__name__}
        raise UnreadableInput(
            Message("“{name:word}” cannot be written: {reason:word}", reason), Message("choose another file with -o")
        ) from error
