"""Everything that stepwatch raises on purpose.

    StepwatchError            one line for what is wrong, one for what to do
    ├── InputError            the input cannot be answered (exit code 1)
    │   ├── UnreadableInput   missing, a directory, no permission, binary
    │   │   └── TooLarge      larger than the limit
    │   ├── NoIterations      read, but no iteration found
    │   │   ├── ConfigGiven   a config, not a log
    │   │   ├── LooksLike     no known format, but lines that may be iterations
    │   │   └── NothingRead   none of several logs could be read
    │   └── UnknownGpu        no such card in the catalogue, or no usable calibration of this machine
    └── UsageError            wrong usage (exit code 2)
        └── NoSuchRun         the log holds fewer runs

Each carries its sentences as Messages, so that the command line can say them in any language.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from stepwatch.messages import Message
from stepwatch.platforms import quoted, quoted_path


class Notice(NamedTuple):
    """A remark that comes with an answer: one of several logs cannot be read, some files are not logs."""

    what: Message
    remedy: Message | None = None
    is_failure: bool = False


class StepwatchError(Exception):
    """Base of all errors: what is wrong, and what to do about it."""

    exit_code = 1
    about: str | None = None
    """The option or input that is wrong, by its name in `stepwatch.options`, so that a form can point at it."""

    def __init__(self, what: Message, remedy: Message | None = None, *, about: str | None = None) -> None:
        super().__init__(what.in_english())
        self.about = about or self.about
        self.what = what
        self.remedy = remedy
        self.notices: tuple[Notice, ...] = ()  # shown before the error


class InputError(StepwatchError):
    """There is no answer for this input."""


class UnreadableInput(InputError):
    """A file that is missing, a directory, forbidden or binary."""

    about = "log"


class TooLarge(UnreadableInput):
    """Larger than the limit, before or after expansion."""


class NoIterations(InputError):
    """The text contains no timed iteration."""

    about = "log"


class ConfigGiven(NoIterations):
    """The input is a config, not a log; the remedy is a command to paste."""

    def __init__(self, name: str, settings: Mapping[str, object]) -> None:
        self.settings = settings
        super().__init__(Message("“{name:word}” is a config, not a log", {"name": name}), self.estimate())

    def estimate(self, *options: str, path: str | None = None) -> Message:
        """The command that estimates it: with its file if `estimate` can read that, else with its settings."""
        given = [f"--{name}={quoted(str(value))}" for name, value in self.settings.items()]
        if path is not None and path.lower().endswith(".py"):
            given = [quoted_path(path)]
        elif not given:
            example = {"command": "stepwatch estimate --n_layer=12 --n_head=12 --n_embd=768 --batch_size=8"}
            return Message("estimate takes its settings by nanoGPT's names, for example: {command:list}", example)
        command = {"command": " ".join(("stepwatch estimate", *given, *options))}
        return Message("to estimate it: {command:list}", command)


class LooksLike(NoIterations):
    """The format is unknown, but a line of the log can serve as the example; the remedy is a command to paste."""

    def __init__(self, name: str, example: str) -> None:
        self.example = example
        what = Message("no known format; the nearest line is “{line:word}”", {"line": example})
        super().__init__(what, about="like")
        self.remedy = self.command(name)

    def command(self, path: str) -> Message:
        facts = {
            "command": f"stepwatch explain {quoted_path(path)} --like {quoted(self.example)}",
            "example": self.example,
        }
        return Message("if such lines are its iterations: {command:list}", facts)


class NothingRead(NoIterations):
    """None of several logs could be read: the notices say why, and nothing else is shown."""


class UnknownGpu(InputError):
    """No card of that name in the catalogue."""

    about = "gpu"


class UsageError(StepwatchError):
    """Wrong usage of a command, an option or a setting."""

    exit_code = 2


class NoSuchRun(UsageError):
    def __init__(self, number: int, count: int) -> None:
        self.count = count
        super().__init__(
            Message(
                "there is no run {number:n}: the log holds {count:n} run",
                {"number": number, "count": count},
                "there is no run {number:n}: the log holds {count:n} runs",
                count,
            ),
            Message("runs are numbered from 1"),
            about="run",
        )
