"""Phases of a loop that belongs to a framework: only its events are heard, and some things begin without one.

What begins unheard began where the thing before it ended: that is the mark.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, TypeVar

from stepwatch.recorder import Phase, Recorder
from stepwatch.recorder.lines import Trouble

F = TypeVar("F", bound=Callable[..., Any])


class Events:
    """A recorder, the phases of it that are open, and the mark."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.mark = perf_counter()
        self.loose_s = 0.0
        """Time before the mark that no phase has taken; the next step will."""
        self.step: Phase | None = None
        self.evaluation: Phase | None = None

    def begin(self, phase: Phase) -> Phase:
        """Enters a phase that began at the mark."""
        phase.__enter__()
        phase.begun = self.mark
        return phase

    def begin_step(self, phase: Phase) -> None:
        self.step = self.begin(phase)
        phase.begun -= self.loose_s
        self.loose_s = 0.0

    def end(self, phase: Phase, ended: float | None = None) -> None:
        self.mark = perf_counter() if ended is None else ended
        self.recorder.stopwatch.leave(phase, self.mark, True)

    def end_step(self, ended: float | None = None) -> None:
        step, self.step = self.step, None
        if step is not None:
            self.end(step, ended)

    def begin_evaluation(self) -> Phase:
        """The evaluation that is going on, or one that began at the mark."""
        if self.evaluation is None:
            self.evaluation = self.begin(self.recorder.evaluation())
        return self.evaluation

    def end_evaluation(self, ended: float | None = None) -> None:
        evaluation, self.evaluation = self.evaluation, None
        if evaluation is not None:
            self.end(evaluation, ended)

    @contextmanager
    def checkpoint(self, path: object) -> Iterator[None]:
        """A save of which begin and end are heard; an error of it is the training's own."""
        if self.recorder.stopwatch.inner is None:
            self.loose_s += perf_counter() - self.mark
        try:
            with self.recorder.checkpoint(path=path):
                yield
        finally:
            self.mark = perf_counter()


def unfailing(event: F) -> F:
    """An event of the framework that is heard without ever failing the training: trouble is said once."""

    @functools.wraps(event)
    def heard(self: Any, *args: Any, **named: Any) -> None:
        try:
            event(self, *args, **named)
        except Exception as error:
            trouble: Trouble = self.trouble
            trouble.say(event.__name__, f"{event.__name__} was not recorded: {type(error).__name__}: {error}")

    return heard  # type: ignore[return-value]
