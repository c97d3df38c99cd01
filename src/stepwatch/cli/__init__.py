"""The command line: one module per command, imported only when called; errors become exit codes here.

Help and usage errors are in the user's language: click's commands and options, with Messages for their texts.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

import click

from stepwatch.cli.complaints import (
    DEBUG,
    complain,
    drop_output,
    nearest,
    notice_for_crash,
    replace_closed_streams,
    wrong_usage,
)
from stepwatch.errors import NothingRead, Notice, StepwatchError, UsageError
from stepwatch.i18n import LANGUAGES, language_from_environment, say
from stepwatch.i18n.languages import TABLE
from stepwatch.messages import Message
from stepwatch.platforms import quoted
from stepwatch.presenters.screen import cell_width, padded, wrapped

COMMANDS = {
    "explain": Message("Why some iterations are slow, what each part costs, how fast the run is, when it ends."),
    "estimate": Message("How long a config will take on a card, before it runs; whether a claimed figure is possible."),
    "advise": Message("What to change, what it saves and what it costs; or a config for a card and a model."),
    "compare": Message("Two runs side by side: whether one is faster, by how much, and why; an exit code for CI."),
    "watch": Message("A run in progress: how far it is, how fast, stalls as they happen, when it ends."),
    "run": Message("Start a training run with its output unchanged, and see what the machine does meanwhile."),
    "monitor": Message("Sample this machine during a training run that is already going."),
    "prepare": Message("Turn a text into training data: characters, bytes or GPT-2 tokens."),
    "serve": Message("A local web page: paste a log, drop a file, watch one grow."),
    "train": Message("Train a GPT as nanoGPT does, with the time of every part on a separate line."),
    "sample": Message("Let a trained model continue a text, like nanoGPT's sample.py."),
    "convert": Message("Convert a checkpoint: to one file, or to a directory with the parts of several ranks."),
    "calibrate": Message("Measure this machine; other commands use the results with `--gpu this`."),
    "collect": Message("Read thousands of logs, from disks and buckets, into a store of Parquet files."),
    "fleet": Message("Query a store of runs: where the GPU hours went, what is slow, what failed."),
    "gpus": Message("List the known cards, or show one."),
}
DEFAULT = "explain"
_KEEP_THREADS = {"calibrate", "convert", "run", "sample", "train"}
"""Commands that compute with torch, or start a program that inherits our environment."""


# --- commands and options with Messages for their texts ---------------------------------------------------------


LANGUAGE = "stepwatch.language"
_PLACES = re.compile(r"[A-Z]+")
# Placeholders for values in usage and options. Words that are not listed are the same in every language.
_WORDS = {
    word.key: word
    for word in (
        *(Message("ARGS"), Message("BYTES"), Message("CMD"), Message("COLUMNS"), Message("COMMAND")),
        *(Message("CONFIG"), Message("DIR"), Message("FIGURE"), Message("FILE"), Message("HOST")),
        *(Message("KEY"), Message("LINE"), Message("LOG"), Message("NAME"), Message("OPTIONS")),
        *(Message("PERCENT"), Message("PORT"), Message("PRICE"), Message("SECONDS"), Message("SHARE")),
        *(Message("STORE"), Message("TEXT"), Message("TOKEN"), Message("VALUE"), Message("WHEN")),
        *(Message("WHERE"),),
    )
}


def language_among(arguments: Iterable[str]) -> str | None:
    """The language that --lang requests, wherever it is: help and errors may come before options are read."""
    before = takewhile(lambda argument: argument != "--", arguments)  # after it comes another program's command
    words = " ".join(before).replace("--lang=", "--lang ").split(" ")
    asked = words[words.index("--lang") + 1 :][:1] if "--lang" in words else []
    return asked[0] if asked and asked[0] in LANGUAGES else None


def language_of(context: click.Context) -> str:
    return context.meta.get(LANGUAGE) or language_from_environment()


def placeholders(text: str, language: str) -> str:
    """`--config FILE.py` with the user's word for FILE."""
    return _PLACES.sub(lambda found: say(_WORDS[found[0]], language) if found[0] in _WORDS else found[0], text)


class Formatter(click.HelpFormatter):
    """Measures in terminal columns: click counts characters, but Chinese and Japanese ones take two columns."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        begin = f"{prefix}{prog} "
        lines = wrapped(args, self.width - cell_width(begin))
        self.write(begin + f"\n{' ' * cell_width(begin)}".join(lines) + "\n")

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':{self.current_indent}}{heading}\n")

    def write_text(self, text: str) -> None:
        for line in wrapped(text, self.width - self.current_indent):
            self.write(f"{'':{self.current_indent}}{line}\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        rows = list(rows)
        first = min(max(cell_width(term) for term, _ in rows), col_max) + col_spacing
        begin = " " * self.current_indent
        for term, text in rows:
            lines = wrapped(text, self.width - first - self.current_indent)
            if cell_width(term) > col_max:
                lines.insert(0, "")
            self.write(f"{begin}{padded(term, first)}{lines[0]}".rstrip() + "\n")
            for line in lines[1:]:
                self.write(f"{begin}{'':{first}}{line}\n")


class Context(click.Context):
    formatter_class = Formatter


class Option(click.Option):
    """An option whose help is a Message."""

    def __init__(self, *declared: Any, help: Message, **attributes: Any) -> None:
        shown = attributes.get("default") is not None
        super().__init__(*declared, **{"show_default": shown, **attributes, "help": help.key})
        self.meaning = help

    def make_metavar(self, ctx: click.Context) -> str:
        return placeholders(super().make_metavar(ctx), language_of(ctx))

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None:
            return None
        language, extra = language_of(ctx), self.get_help_extra(ctx)
        notes = []
        if "default" in extra:
            notes.append(say(Message("default: {value:word}", {"value": extra["default"]}), language))
        if "range" in extra:
            notes.append(extra["range"])
        if "required" in extra:
            notes.append(say(Message("required"), language))
        text = say(self.meaning, language)
        return record[0], f"{text}  [{TABLE[language].semicolon.join(notes)}]" if notes else text

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().type_cast_value(ctx, value)
        except click.BadParameter as error:
            raise self._refused(ctx, value) from error

    def _refused(self, ctx: click.Context, value: Any) -> UsageError:
        """An error with the first wrong value and what would be right."""
        for each in value if self.multiple else (value,):
            try:
                self.type(each, self, ctx)
            except click.BadParameter:
                wrong = {"value": str(each), "name": self.opts[0]}
                return UsageError(
                    Message("“{value:word}” is not a value for {name:word}", wrong), _demand(self.opts[0], self.type)
                )
        raise AssertionError(f"{value!r} was refused, and none of it is wrong")


def _demand(name: str, kind: click.ParamType[Any]) -> Message:
    facts: dict[str, Any] = {"name": name}
    if isinstance(kind, click.Choice):
        return Message("{name:word} is one of {words:word}", facts | {"words": " | ".join(kind.choices)})
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        facts["range"] = kind._describe_range()
        if isinstance(kind, click.IntRange):
            return Message("{name:word} is a whole number: {range:word}", facts)
        return Message("{name:word} is a number: {range:word}", facts)
    if isinstance(kind, click.Path):
        return Message("{name:word} is a directory that exists", facts)
    return Message("{name:word} is a number", facts)


class Command(click.Command):
    """A command whose help consists of Messages, one per paragraph."""

    context_class = Context
    allow_extra_args = True  # `parse_args` refuses them with a message of ours

    def __init__(
        self, *declared: Any, texts: tuple[Message, ...], options: Sequence[Option] = (), **attributes: Any
    ) -> None:
        super().__init__(*declared, **attributes | {"help": texts[0].key, "add_help_option": False})
        self.texts = texts
        self.params += options
        click.help_option("-h", "--help", cls=Option, help=Message("Show this message and exit."))(self)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta.setdefault(LANGUAGE, language_among(args))
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click's parser does not set it
            raise
        if rest and not isinstance(self, click.Group):
            raise UsageError(
                Message("too many arguments: {words:list}", {"words": " ".join(rest)}),
                Message("all options: {command:list}", {"command": f"{ctx.command_path} --help"}),
            )
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        language = language_of(ctx)
        return [placeholders(piece, language) for piece in super().collect_usage_pieces(ctx)]

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        pieces = " ".join(self.collect_usage_pieces(ctx))
        formatter.write_usage(ctx.command_path, pieces, prefix=say(Message("Usage: "), language_of(ctx)))

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for text in self.texts:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(say(text, language_of(ctx)))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = (param for param in self.get_params(ctx) if isinstance(param, click.Option))
        rows = [record for option in options if (record := option.get_help_record(ctx)) is not None]
        with formatter.section(say(Message("Options:"), language_of(ctx))):
            formatter.write_dl(rows)


option = partial(click.option, cls=Option)
described = partial(click.command, cls=Command)


# --- the main command -------------------------------------------------------------------------------------------


class _Commands(Command, click.Group):
    """Loads a command when it is named; `stepwatch train.log` means `stepwatch explain train.log`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"stepwatch.cli.{cmd_name}").command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[LANGUAGE] = language_among(args)
        first = 2 if args[:1] == ["--lang"] else 1 if args and args[0].startswith("--lang=") else 0
        args = [*args[first : first + 1], *args[:first], *args[first + 1 :]]  # `--lang de gpus` is `gpus --lang de`
        if args[:1] == ["help"] and not os.path.lexists("help"):
            args = [word for word in args[1:2] if word in COMMANDS or nearest(word, COMMANDS)] + ["--help"]
        word = args[0] if args else "-"
        if word in COMMANDS or word in ("--help", "-h", "--version"):
            return super().parse_args(ctx, args)
        # A word that is no file but close to a command is a typo. One with a suffix or a directory is meant as a file.
        may_be_file = word.startswith("-") or set(word) & {".", "/", os.sep} or os.path.lexists(word)
        for command in () if may_be_file else nearest(word, COMMANDS)[:1]:
            meant = {"command": " ".join(map(quoted, ("stepwatch", command, *args[1:])))}
            raise UsageError(
                Message("there is no command or file “{name:word}”", {"name": word}),
                Message("did you mean: {command:list}", meant),
            )
        return super().parse_args(ctx, [DEFAULT, *args])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        # The summaries are kept here so that --help imports no command.
        language = language_of(ctx)
        with formatter.section(say(Message("Commands:"), language)):
            formatter.write_dl([(name, say(summary, language)) for name, summary in COMMANDS.items()])

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> Any:
        # Only these commands need threads for linear algebra; starting them takes longer than most answers.
        if not _KEEP_THREADS & set(sys.argv[1:2]):
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        # Most objects of a short answer belong to modules and are never garbage, not even at the end: the collector
        # only looks for cycles after more new objects than a short answer makes (some megabytes).
        gc.set_threshold(100_000)
        atexit.register(gc.freeze)
        if sys.stdout is None or sys.stderr is None:
            replace_closed_streams()
        debugging = bool(os.environ.get(DEBUG))
        asked = language_among(sys.argv[1:] if args is None else args)
        try:
            with warnings.catch_warnings():
                if not debugging:
                    warnings.simplefilter("ignore")  # libraries' warnings for programmers
                done = super().main(args, *more, **{**extra, "standalone_mode": False})
            sys.stdout.flush()  # a failed write is reported here, not by Python at exit
            return done
        except StepwatchError as error:
            said = () if isinstance(error, NothingRead) else (Notice(error.what, error.remedy),)
            complain((*error.notices, *said), asked)
            sys.exit(error.exit_code)
        except click.exceptions.Exit as done:
            sys.exit(done.exit_code)
        except click.UsageError as error:
            complain((wrong_usage(error, error.ctx or click.Context(self)),), asked)
            sys.exit(error.exit_code)
        except SystemExit:
            # `stepwatch … | head` has all it wants; click, which wraps the output then, takes that for a failure.
            if not hasattr(sys.stdout, "wrapped"):
                raise
            drop_output()
            sys.exit(0)
        except (KeyboardInterrupt, click.Abort):
            sys.exit(130)  # as a shell reports Ctrl-C
        except Exception as error:
            if debugging:
                raise
            if isinstance(error, OSError):
                drop_output()
            complain((notice_for_crash(error),), asked)
            sys.exit(1)


@described(
    texts=(
        Message("A stopwatch for training steps."),
        Message(
            "Reads the log of a training run and explains why some iterations are slow, what evaluations and "
            "checkpoints cost, how fast the run really is on your card, where the time went and when it will end."
        ),
        Message("`stepwatch LOG` is short for `stepwatch explain LOG`; `-` or a pipe reads standard input."),
    ),
    cls=_Commands,
)
@click.version_option(
    package_name="stepwatch",
    prog_name="stepwatch",
    message="%(prog)s %(version)s",
    cls=Option,
    help=Message("Show the version and exit."),
)
@option(
    "--lang",
    type=click.Choice(LANGUAGES),
    expose_value=False,
    help=Message("Language of the answer (default: from the environment)."),
)
def main() -> None:
    pass
