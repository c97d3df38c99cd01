"""The log: nanoGPT's lines, for programs that read its logs, but with the time of the step alone.

Evaluations, checkpoints and compilation have their own lines and times. Only the first rank writes. On a terminal there
is a progress bar below the lines.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from stepwatch.trainer.eta import said

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from stepwatch.trainer.config import TrainConfig
    from stepwatch.trainer.hardware import Device


_OFTEN_S = 30.0  # seconds between lines that only show progress


class Log:
    """Writes lines to standard output, and keeps the bar on standard error."""

    def __init__(self, speaks: bool = True) -> None:
        self._speaks = speaks
        self._lost = False
        self._bar: tuple[Progress, TaskID] | None = None
        self._last_eta = self._last_progress = time.monotonic()

    def say(self, line: str) -> None:
        """Writes a line; a closed pipe or a full disk does not end the training."""
        if not self._speaks:
            return
        try:
            print(line, flush=True)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open until the end
            if not self._lost:
                self._lost = True
                self.hint(f"note: the log cannot be written ({error.strerror}); the training goes on")

    def hint(self, line: str) -> None:
        """Writes to standard error; not part of the log."""
        if self._speaks:
            with suppress(OSError):
                print(line, file=sys.stderr, flush=True)

    # --- the beginning ------------------------------------------------------------------------------------------

    def begin(self, device: Device, config: TrainConfig) -> None:
        mean = "" if config.log_interval == 1 else ", the mean since the line before"
        try:
            own = version("stepwatch")
        except PackageNotFoundError:  # run from its source tree
            own = "(source)"
        self.say(f"stepwatch {own} trains; times are of the step alone{mean}; {device.said()}")
        for name, value in config.plain().items():
            self.say(f"{name} = {value!r}")
        for remark in device.remarks:
            self.say(f"note: {remark}")

    # --- the loop -----------------------------------------------------------------------------------------------

    def eta_is_due(self) -> bool:
        return time.monotonic() - self._last_eta >= _OFTEN_S

    def eta(self, number: int, interval: tuple[float, float, float]) -> None:
        self._last_eta = time.monotonic()
        middle, low, high = (said(seconds) for seconds in interval)
        self.say(f"eta {middle} ({low} to {high}) at iter {number}")

    def evaluating(self, number: int, done: int, total: int) -> None:
        """Shows the progress in the bar, or now and then as a line: an evaluation may take minutes."""
        if self._bar is not None:
            bar, task = self._bar
            bar.update(task, description=f"evaluating {done}/{total}")
        elif done == 1:
            self._last_progress = time.monotonic()
        elif time.monotonic() - self._last_progress >= _OFTEN_S:
            self._last_progress = time.monotonic()
            self.say(f"evaluation at {number}: {done} of {total} batches")

    # --- the bar ------------------------------------------------------------------------------------------------

    def open_bar(self, first: int, last: int) -> None:
        if not self._speaks or sys.stderr is None or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        # Lines of the log stay on standard output: only if that is the same screen, the bar must make room.
        bar = Progress(*columns, console=Console(stderr=True), redirect_stdout=sys.stdout.isatty(), transient=True)
        self._bar = bar, bar.add_task("training", total=last, completed=first)
        bar.start()

    def advance(self, done: int, loss: float | None) -> None:
        if self._bar is not None:
            bar, task = self._bar
            bar.update(task, completed=done, description=None if loss is None else f"loss {loss:.4f}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None
        if self._lost:
            try:
                sys.stdout.flush()
            except OSError:  # losing the rest of the log is no reason to end with an error
                sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open until the end
