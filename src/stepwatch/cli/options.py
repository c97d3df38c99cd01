"""Options that several commands share, and the way they are read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from stepwatch.errors import StepwatchError, UnreadableInput, UsageError
from stepwatch.i18n import LANGUAGES, language_from_environment
from stepwatch.messages import Message

if TYPE_CHECKING:
    pass

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def language_option() -> Decorator:
    return click.option(
        "--lang", type=click.Choice(LANGUAGES), help="Language of the answer (default: from the environment)."
    )


def format_options(*names: str) -> Decorator:
    """--format with its short forms --json, --md, --html, and -o."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        function = click.option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write to a file instead of the screen.",
        )(function)
        for short in reversed([name for name in names if name not in ("terminal", "png")]):
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


def chart_option(*names: str) -> Decorator:
    return click.option(
        "--chart", type=click.Choice(names), help=f"The chart that --format png draws (default: {names[0]})."
    )


def check_output(form: str, output: str | None, chart: str | None) -> None:
    """A page or a picture is for a file or a pipe: a terminal would show thousands of lines, or beep."""
    if chart is not None and form != "png":
        raise UsageError(Message("--chart goes with --format png"), Message("add --format png -o chart.png"))
    if form in ("html", "png") and output is None and sys.stdout is not None and sys.stdout.isatty():
        raise UsageError(
            Message("{form:word} is nothing for a terminal", {"form": form}),
            Message("name a file with -o, for example: -o answer.{form:word}", {"form": form}),
        )


def write(answer: str | bytes, output: str | None, form: str = "terminal") -> None:
    """To the file that was asked for, or to standard output, which carries the answer alone."""
    if form == "html" and isinstance(answer, str):
        answer = answer.encode("utf-8")  # a page says itself that it is UTF-8
    if output is None:
        _print(answer)
        return
    try:
        with open(output, "wb") as stream:
            stream.write(answer if isinstance(answer, bytes) else answer.replace("\n", os.linesep).encode("utf-8"))
    except OSError as error:
        reason = {"name": os.path.basename(output), "reason": error.strerror or type(error).__name__}
        raise UnreadableInput(
            Message("“{name:word}” cannot be written: {reason:word}", reason), Message("choose another file with -o")
        ) from error


def _print(answer: str | bytes) -> None:
    if isinstance(answer, str):
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # a Windows console may not know every character
        answer = answer.encode(encoding, "replace").decode(encoding)
    click.echo(answer, nl=False)
