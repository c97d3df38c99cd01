"""Commands of the user's that are run when something happens to the run that is watched.

The command is what the user typed, divided as a shell would divide it, and never given to one. Facts are in its
environment; nothing that stands in a log is part of its arguments.
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
    """The command of an option; a UsageError where its quotes do not match or nothing is in it."""
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
    """One command: started, never waited for, one at a time; that it fails is said once."""

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
        """A moment for the last one, so that its failure is not lost; one that takes longer goes on without us."""
        if self._running is not None:
            try:
                self._running.wait(2.0)  # seconds for the last call to end
            except subprocess.TimeoutExpired:
                self._running.returncode = 0  # it is nobody's child to wait for any more
                return
        self.check()

    def check(self) -> bool:
        """Whether it still runs; a failure since then is said."""
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
