"""The command line: one module per command, imported only when called; errors become exit codes here."""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import io
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import click

from stepwatch.cli.help import (
    LANGUAGE,
    Command,
    Context,
    Option,
    described,
    language_among,
    language_of,
    option,
    placeholders,
)
from stepwatch.errors import NothingRead, Notice, StepwatchError, UsageError
from stepwatch.i18n import LANGUAGES, language_from_environment, say
from stepwatch.messages import Message
from stepwatch.platforms import quoted

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
DEBUG = "STEPWATCH_DEBUG"
"""Where it is set, what is not expected is raised as it is."""
_KEEP_THREADS = {"calibrate", "convert", "run", "sample", "train"}
"""Commands that compute with torch, or start a program that inherits our environment."""
_PRINT_ON_THE_WAY = {"monitor", "prepare", "run", "serve", "train", "watch"}
"""Commands whose work is worth doing though nobody can read what they print."""


def complain(problems: Iterable[Notice], language: str | None = None) -> None:
    """On standard error: one line for what is wrong, one for what to do."""
    language = language or language_from_environment()
    for problem in problems:
        click.echo("stepwatch: " + say(problem.what, language), err=True)
        if problem.remedy is not None:
            click.echo("  " + say(problem.remedy, language), err=True)


def nearest(name: str, known: Iterable[str]) -> list[str]:
    import difflib  # only a slip needs it

    return difflib.get_close_matches(name.lower(), known, n=3)


def no_such_option(name: str, command: click.Context, settings: Iterable[str] = ()) -> UsageError:
    """With the options whose names are near, or where to find them all."""
    flags = [flag for option in command.command.params for flag in option.opts if flag.startswith("--")]
    known = {flag.lstrip("-"): flag for flag in (*(f"--{setting}" for setting in settings), *flags)}
    near = [known[found] for found in nearest(name.lstrip("-"), known)]
    remedy = Message("all options: {command:list}", {"command": f"{command.command_path} --help"})
    if near:
        remedy = Message("did you mean {names:word}?", {"names": ", ".join(near)})
    return UsageError(Message("there is no option “{name:word}”", {"name": name}), remedy)


class _Context(Context):
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *where: Any) -> bool | None:
        """`stepwatch … | head` has all it wants; to click that is a failure."""
        done = super().__exit__(kind, error, *where)
        if isinstance(error, BrokenPipeError):
            drop_output()
            raise click.exceptions.Exit(0)
        return done


class _Commands(Command, click.Group):
    """Loads a command when it is named; `stepwatch train.log` means `stepwatch explain train.log`."""

    context_class = _Context

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
        # A word that is no file but nearly a command is a slip. What has a suffix or a directory was meant as a file.
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
        # Only these need threads of linear algebra, and starting them takes longer than most answers.
        if not _KEEP_THREADS & set(sys.argv[1:2]):
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        # Modules are most of what a short answer allocates, and none of them is garbage, not even at the end: cycles
        # are searched for after more new objects than a short answer makes, which are some megabytes.
        gc.set_threshold(100_000)
        atexit.register(gc.freeze)
        if sys.stdout is None or sys.stderr is None:
            _replace_closed_streams()
        debugging = bool(os.environ.get(DEBUG))
        asked = language_among(sys.argv[1:] if args is None else args)
        try:
            with warnings.catch_warnings():
                if not debugging:
                    warnings.simplefilter("ignore")  # a library's remarks to its programmers
                done = super().main(args, *more, **{**extra, "standalone_mode": False})
            sys.stdout.flush()  # what was not written is said here, and not by Python when it ends
            return done
        except StepwatchError as error:
            said = () if isinstance(error, NothingRead) else (Notice(error.what, error.remedy),)
            complain((*error.notices, *said), asked)
            sys.exit(error.exit_code)
        except click.exceptions.Exit as done:
            sys.exit(done.exit_code)
        except click.UsageError as error:
            complain((_wrong_usage(error, error.ctx or click.Context(self)),), asked)
            sys.exit(error.exit_code)
        except (KeyboardInterrupt, click.Abort):
            sys.exit(130)  # as a shell reports Ctrl-C
        except Exception as error:
            if debugging:
                raise
            if isinstance(error, OSError):
                drop_output()
            complain((_last_words(error),), asked)
            sys.exit(1)


def _wrong_usage(error: click.UsageError, context: click.Context) -> Notice:
    """What click finds wrong before an option of ours looks at its value."""
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
    """What could not be written is not tried again when the interpreter ends."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open until then


class _Closed(io.TextIOBase):
    """A standard output that was closed before the start: Python has None for it, and loses an answer silently."""

    def write(self, text: object) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def _replace_closed_streams() -> None:
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        if _PRINT_ON_THE_WAY & set(sys.argv[1:2]) and "--once" not in sys.argv:
            drop_output()
        else:
            sys.stdout = _Closed()


def _last_words(error: Exception) -> Notice:
    """Of what nothing else catches: a disk that is full, or a mistake of ours, with a file that shows where."""
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
