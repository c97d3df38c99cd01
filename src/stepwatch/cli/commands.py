"""What the commands share: options from the table, the user's language, and where an answer goes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from stepwatch.cli import Option
from stepwatch.cli.complaints import complain, drop_output, no_such_option
from stepwatch.errors import InputError, UnknownGpu, UnreadableInput, UsageError
from stepwatch.gpus import find_gpu
from stepwatch.i18n import language_from_environment, say
from stepwatch.messages import Message
from stepwatch.options import COMMAND_LINE, OPTIONS
from stepwatch.platforms import quoted
from stepwatch.presenters import Typed, View, render, text_of
from stepwatch.settings import KINDS

if TYPE_CHECKING:
    from stepwatch.presenters import Answer


def options_of(command: str, *forms: str, charts: tuple[str, ...] = ()) -> list[Option]:
    """The options of a command, from the table; if it has an answer, also --format with its short forms, and -o."""
    options = []
    for row in map(OPTIONS.__getitem__, COMMAND_LINE[command]):
        names = [row.flag or "--" + row.name.replace("_", "-"), row.name]
        text = row.help[command] if isinstance(row.help, Mapping) else row.help
        assert text is not None, f"{row.name} is no option of the command line"
        if row.kind is bool:
            options.append(Option(names, is_flag=True, help=text))
            continue
        kind: click.Choice[str] | click.IntRange | None = click.Choice(row.choices) if row.choices else None
        for_each_run = command == "compare" and row.for_each_run
        if row.kind is int and not for_each_run:
            kind = click.IntRange(1, row.most)
        option = Option(
            names,
            type=kind,
            metavar=row.metavar,
            multiple=row.repeated or for_each_run,
            default=row.default,
            show_default=False,
            callback=(lambda _, __, value: value or language_from_environment()) if row.name == "lang" else None,
            help=text,
        )
        options.append(option)
    if charts:
        text = Message("The chart that --format png draws (default: {name:word}).", {"name": charts[0]})
        options.append(Option(["--chart"], type=click.Choice(charts), help=text))
    if forms:
        text = Message("Form of the answer.")
        options.append(Option(["--format", "form"], type=click.Choice(forms), default=forms[0], help=text))
        for name in forms[1:]:
            text = Message("Short for --format {name:word}.", {"name": name})
            options.append(Option([f"--{name}", "form"], flag_value=name, help=text))
        text = Message("Write to a file instead of the screen.")
        options.append(
            Option(
                ["-o", "--output"],
                metavar="FILE",
                callback=lambda _, __, value: None if value == "-" else value,
                help=text,
            )
        )
    return options


@contextmanager
def with_store_prior(store: str) -> Iterator[None]:
    """Within this context, estimates learn from the runs of a store."""
    with needing_fleet():
        from stepwatch.fleet.store import learning_from_store
    with learning_from_store(store):
        yield


@contextmanager
def needing_torch(what: Message) -> Iterator[None]:
    """Says what to install if an import inside fails."""
    try:
        yield
    except ImportError as error:
        raise InputError(what, Message('pip install "stepwatch[train]"')) from error


@contextmanager
def needing_fleet() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise UsageError(
            Message("for many logs stepwatch needs fsspec, Dask, pyarrow and DuckDB"),
            Message('pip install "stepwatch[fleet]"'),
        ) from error


def typed(logs: Sequence[str]) -> Typed:
    """The logs and the options that lead to the same answer again, as they were typed."""
    context = click.get_current_context()
    options = []
    for name, value in context.params.items():
        row = OPTIONS.get(name)
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if row is not None and given and row.kind is not bool:
            flag = row.flag or "--" + name.replace("_", "-")
            options += [f"{flag} {quoted(str(each))}" for each in (value if row.repeated else (value,))]
    return Typed(tuple(logs), tuple(options))


def settings_among(arguments: Sequence[str]) -> list[str]:
    """Settings in train.py's form, --batch_size=8; raises an error for what is neither setting nor option."""
    found = [argument for argument in arguments if argument.startswith("-")]
    for argument in found:
        name, equals, _ = argument.partition("=")
        if name.lstrip("-") not in KINDS:
            raise no_such_option(name, click.get_current_context(), KINDS)
        if not equals:
            text = {"name": name}
            raise UsageError(Message("{name:word} needs a value", text), Message("as in {name:word}=8", text))
    return found


def check_count(gpus: int | None) -> None:
    """Raises UsageError for `--gpus 4070`, which means the card, not the number of cards."""
    try:
        card = find_gpu(str(gpus)) if gpus is not None else None
    except UnknownGpu:
        return
    if card is not None:
        facts = {"number": str(gpus), "name": card.name}
        raise UsageError(
            Message("--gpus is the number of cards, and {number:word} is the name of one: {name:word}", facts),
            Message("did you mean {names:word}?", {"names": f"--gpu {gpus}"}),
        )


def ask_for_paste(language: str) -> None:
    """Tells a user who named no log, at a terminal, that one is expected."""
    if sys.stdin is not None and sys.stdin.isatty():
        end = "Ctrl-Z" if sys.platform == "win32" else "Ctrl-D"
        click.echo(say(Message("Paste the log, then {key:word}.", {"key": end}), language), err=True)


def checked_output(
    files: Sequence[str], form: str, output: str | None, chart: str | None = None
) -> tuple[tuple[str, ...], str | None]:
    """The inputs, and the file that the answer goes to.

    `train.log --html run.html` means `-o run.html`: next to a log, a name that ends in the requested form is no input.
    A page or a picture is for a file or a pipe: a terminal would show thousands of lines, or beep.
    """
    named = [name for name in files if name.lower().endswith(f".{form}")]
    if output is None and len(named) == 1 and len(files) > 1 and not (form == "json" and os.path.lexists(named[0])):
        output = named[0]
        files = [name for name in files if name != output]
    if chart is not None and form != "png":
        raise UsageError(Message("--chart goes with --format png"), Message("add --format png -o chart.png"))
    if form in ("html", "png") and output is None and sys.stdout is not None and sys.stdout.isatty():
        raise UsageError(
            Message("{form:word} cannot be shown in a terminal", {"form": form}),
            Message("name a file with -o, for example: -o answer.{form:word}", {"form": form}),
        )
    return tuple(files), output


def deliver(answer: Answer, language: str, form: str, output: str | None, **shown: Any) -> None:
    """Writes the answer in its form, after any notices."""
    if notices := getattr(answer, "notices", ()):
        complain(notices, language)
    view = View(colour=None if output is None else False, **shown)
    if form == "png":
        write([render(answer, form, language, view)], output, language)
    elif form == "html":  # a page says itself that it is UTF-8
        write((text.encode("utf-8") for text in text_of(answer, form, language, view)), output, language)
    else:
        write(text_of(answer, form, language, view), output, language)


def write(answer: Iterable[str | bytes], output: str | None, language: str) -> None:
    """Writes to the given file, and then names it, or to standard output, which gets only the answer."""
    if output is None:
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # a console may not know every character
        try:
            for part in answer:
                known = part if isinstance(part, bytes) else part.encode(encoding, "replace").decode(encoding)
                click.echo(known, nl=False)
        except BrokenPipeError:  # `stepwatch … | head` has all it wants; the exit code is that of the whole answer
            drop_output()
        return
    try:
        with open(output, "wb") as stream:
            for part in answer:
                stream.write(part if isinstance(part, bytes) else part.replace("\n", os.linesep).encode("utf-8"))
    except OSError as error:
        reason = {"name": os.path.basename(output), "reason": error.strerror or type(error).__name__}
        raise UnreadableInput(
            Message("“{name:word}” cannot be written: {reason:word}", reason), Message("choose another file with -o")
        ) from error
    if os.path.isfile(output):  # not a device
        click.echo(say(Message("written to {file:list}", {"file": output}), language), err=True)
