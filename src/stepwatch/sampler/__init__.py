"""Samples of the machine during a training, one line of figures per second.

It only observes: nothing is loaded into the training. What is not available here (no card, no rights, another system)
is left empty and named by `unavailable_columns`. Each line is one write to the system, so that a killed sampler loses
only its last line.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from stepwatch.gpus.driver import DriverLibrary
from stepwatch.sampler.cards import Cards
from stepwatch.sampler.host import Machine
from stepwatch.samples import CARD, MACHINE, SCHEMA

INTERVAL_S = 1.0


class Sampler:
    """Samples of this machine and of one process with its children, appended to a file."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        pid: int | None = None,
        interval_s: float = INTERVAL_S,
        append: bool = False,
        driver: DriverLibrary | None = None,
        clock: Callable[[], float] = time.time,
        trouble: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        self._machine, self._cards = Machine(pid), Cards(driver)
        self._interval_s, self._clock, self._trouble = interval_s, clock, trouble
        self._failing = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | (os.O_APPEND if append else os.O_TRUNC)
        self._file = os.open(path, flags, 0o644)
        of_cards = (f"gpu{card}_{name}" for card in range(len(self._cards.names)) for name in CARD)
        columns = ",".join(("time_s", *MACHINE, *of_cards))
        self._write("\t".join((f"# {SCHEMA}", *self._cards.names)) + f"\n{columns}\n")

    @property
    def unavailable_columns(self) -> tuple[str, ...]:
        """Figures that this system does not provide, known after the second sample; `cards` if there is no card."""
        return (*(() if self._cards.names else ("cards",)), *self._machine.unavailable_columns)

    def sample(self) -> None:
        """Writes one line now. Never raises: a full disk is reported once, and the next line is tried again."""
        at_s, figures = self._clock(), self._machine.read()
        cells = [f"{at_s:.3f}", *_cells(figures, MACHINE)]
        for card in self._cards.read(self._machine.pids):
            cells += _cells(card, CARD)
        self._write(",".join(cells) + "\n")

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Samples at each tick of a monotonic clock, until closed."""
        due = time.monotonic()
        while not self._ended.is_set() and not until():
            self.sample()
            due = max(due + self._interval_s, time.monotonic())
            self._ended.wait(due - time.monotonic())

    def start(self) -> None:
        """Runs in a separate thread."""
        self._thread = threading.Thread(target=self.run, name="stepwatch-sampler", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)
        self._cards.close()
        os.close(self._file)

    def _write(self, line: str) -> None:
        try:
            os.write(self._file, line.encode())
            self._failing = False
        except OSError as error:
            if not self._failing:
                self._failing = True
                self._trouble(error)


def _cells(figures: Mapping[str, float], columns: Mapping[str, str]) -> Iterator[str]:
    return (f"{figures[name]:.6g}" if name in figures else "" for name in columns)
