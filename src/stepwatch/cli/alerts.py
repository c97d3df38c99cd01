"""The user's commands that are run when something happens to the watched run.

The command is split as a shell would split it, but never passed to a shell. Facts are in its environment; nothing
from a log becomes part of its arguments.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Mapping

from stepwatch.errors import UsageError
from stepwatch.messages import Message
from stepwatch.units import MINUTE_S


def arguments_of(text: str | None, option: str) -> tuple[str, ...]:
    """The command of an option; raises UsageError if its quotes do not match or it is empty."""
    if text is None:
        return ()
    try:
        parts = tuple(shlex.split(text, posix=os.name != "nt"))
    except ValueError:
        parts = ()
    if not parts:
        raise UsageError(
            Message("{option:word} “{text:word}” is not a command", {"option": option, "text": text}),
            Message("give a program and its arguments, for example: --on-stall 'notify-send stepwatch'"),
        )
    return parts


class Alert:
    """One command: started without waiting for it, one at a time; its failure is reported once."""

    def __init__(self, arguments: tuple[str, ...], option: str, warn: Callable[[Message], None]) -> None:
        self._arguments, self._option, self._warn = arguments, option, warn
        self._running: subprocess.Popen[bytes] | None = None
        self._last: dict[str, float] = {}
        self._warned = False

    def call(self, kind: str, facts: Mapping[str, object], now_s: float) -> None:
        again = now_s - self._last.get(kind, -MINUTE_S) < MINUTE_S
        if not self._arguments or self.check() or again:
            return
        self._last[kind] = now_s
        variables = {f"STEPWATCH_{name}": str(value) for name, value in facts.items() if value is not None}
        try:
            self._running = subprocess.Popen(
                self._arguments,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._failed(getattr(error, "strerror", None) or type(error).__name__)

    def close(self) -> None:
        """Waits briefly for the last command, so that a failure is reported; a slower one keeps running on its own."""
        if self._running is not None:
            try:
                self._running.wait(2.0)  # seconds for the last call to end
            except subprocess.TimeoutExpired:
                self._running.returncode = 0  # nobody waits for it any more
                return
        self.check()

    def check(self) -> bool:
        """Whether the command is still running; reports a failure."""
        if self._running is None:
            return False
        code = self._running.poll()
        if code is None:
            return True
        self._running = None
        if code:
            self._failed(str(code))
        return False

    def _failed(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            facts = {"option": self._option, "reason": reason}
            self._warn(Message("the command of {option:word} failed: {reason:word}", facts))
