"""Everything that stepwatch raises on purpose.

    StepwatchError            one line for what is wrong, one for what to do
    ├── InputError            the input cannot be answered (exit code 1)
    │   ├── UnreadableInput   missing, a directory, no permission, binary
    │   │   └── TooLarge      larger than the limit
    │   ├── NoIterations      read, but no iteration found
    │   └── UnknownGpu        no such card in the catalogue, or no usable calibration of this machine
    └── UsageError            wrong usage (exit code 2)

Each carries its sentences as Messages, so that the command line can say them in any language.
"""

from __future__ import annotations

from stepwatch.messages import Message


class StepwatchError(Exception):
    exit_code = 1

    def __init__(self, what: Message, remedy: Message | None = None) -> None:
        super().__init__(what.in_english())
        self.what = what
        self.remedy = remedy
        self.language: str | None = None  # the reader's, where the command knows it


class InputError(StepwatchError):
    """The input cannot be answered."""


class UnreadableInput(InputError):
    """A file that is missing, a directory, forbidden or binary."""


class TooLarge(UnreadableInput):
    """Larger than the limit, before or after expansion."""


class NoIterations(InputError):
    """Text was read, yet nothing in it is a timed iteration."""


class UnknownGpu(InputError):
    """No card of that name in the catalogue."""


class UsageError(StepwatchError):
    """The command was called wrongly."""

    exit_code = 2
