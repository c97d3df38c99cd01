"""What is said on standard error about wrong usage and uncaught errors, and what happens to the output."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterable

import click

from stepwatch.errors import Notice, UsageError
from stepwatch.i18n import language_from_environment, say
from stepwatch.messages import Message

DEBUG = "STEPWATCH_DEBUG"
"""If it is set, unexpected errors are raised unchanged."""
_PRINT_ON_THE_WAY = {"monitor", "prepare", "run", "serve", "train", "watch"}
"""Commands that are worth running even if nobody can read their output."""


def complain(problems: Iterable[Notice], language: str | None = None) -> None:
    """Prints to standard error: one line for what is wrong, one for what to do."""
    language = language or language_from_environment()
    for problem in problems:
        click.echo("stepwatch: " + say(problem.what, language), err=True)
        if problem.remedy is not None:
            click.echo("  " + say(problem.remedy, language), err=True)


def nearest(name: str, known: Iterable[str]) -> list[str]:
    import difflib  # only a typo needs it

    return difflib.get_close_matches(name.lower(), known, n=3)


def no_such_option(name: str, command: click.Context, settings: Iterable[str] = ()) -> UsageError:
    """An error that names similar options, or where to find all of them."""
    flags = [flag for option in command.command.params for flag in option.opts if flag.startswith("--")]
    known = {flag.lstrip("-"): flag for flag in (*(f"--{setting}" for setting in settings), *flags)}
    near = [known[found] for found in nearest(name.lstrip("-"), known)]
    remedy = Message("all options: {command:list}", {"command": f"{command.command_path} --help"})
    if near:
        remedy = Message("did you mean {names:word}?", {"names": ", ".join(near)})
    return UsageError(Message("there is no option “{name:word}”", {"name": name}), remedy)


def wrong_usage(error: click.UsageError, context: click.Context) -> Notice:
    """A usage error that click finds before our own options check their values."""
    from stepwatch.cli import Option, language_of, placeholders

    if isinstance(error, click.NoSuchOption):
        slip = no_such_option(error.option_name, context)
        return Notice(slip.what, slip.remedy)
    remedy = Message("all options: {command:list}", {"command": f"{context.command_path} --help"})
    if isinstance(error, click.MissingParameter) and error.param is not None:
        missing = error.param.opts[0] if isinstance(error.param, Option) else error.param.make_metavar(context)
        return Notice(Message("missing: {name:list}", {"name": placeholders(missing, language_of(context))}), remedy)
    if isinstance(error, click.BadOptionUsage):
        flags = {name for option in context.command.params if getattr(option, "is_flag", False) for name in option.opts}
        if error.option_name in flags:
            return Notice(Message("{name:word} takes no value", {"name": error.option_name}), remedy)
        return Notice(Message("{name:word} needs a value", {"name": error.option_name}), remedy)
    return Notice(Message("{text:list}", {"text": error.format_message()}), remedy)


def drop_output() -> None:
    """Drops output that could not be written, so that the interpreter does not try again at exit."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open until then


class _Closed(io.TextIOBase):
    """Replaces a standard output that was closed before the start: with Python's None an answer is lost silently."""

    def write(self, text: object) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def replace_closed_streams() -> None:
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        if _PRINT_ON_THE_WAY & set(sys.argv[1:2]) and "--once" not in sys.argv:
            drop_output()
        else:
            sys.stdout = _Closed()


def notice_for_crash(error: Exception) -> Notice:
    """The notice for an uncaught error: a full disk, or a bug of ours, with a file that contains the traceback."""
    if isinstance(error, OSError) and error.filename is None:
        reason = {"reason": error.strerror or type(error).__name__}
        return Notice(
            Message("the answer cannot be written: {reason:word}", reason), Message("choose another file with -o")
        )
    import tempfile
    import traceback
    from importlib.metadata import version

    what = Message("a bug in stepwatch: {kind:word}: {text:word}", {"kind": type(error).__name__, "text": str(error)})
    lines = (f"stepwatch {version('stepwatch')}, Python {sys.version}\n", *traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="stepwatch-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.writelines(lines)
    except OSError:
        return Notice(what, Message("please report it with what {name:word}=1 shows", {"name": DEBUG}))
    return Notice(what, Message("please report it with this file, which shows where: {file:list}", {"file": file.name}))
