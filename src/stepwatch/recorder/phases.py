"""A phase of the loop: a context manager and a decorator that adds up right when phases are nested.

The time of a step is its own: evaluations, checkpoints and compilations inside it have lines of their own and are taken
off. Data and waiting are parts of the step, wherever they stand. A phase inside one of its own kind is part of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from stepwatch.recorder import Recorder

F = TypeVar("F", bound=Callable[..., Any])

STEP, EVALUATION, CHECKPOINT, COMPILE, DATA, WAIT = "step", "eval", "checkpoint", "compile", "data", "wait"
NOTHING = "nothing"  # what a slip in a name stands for
PARTS_OF_STEP = (DATA, WAIT)


class Phase:
    """One stretch of time of a kind; `note` adds what is to be kept of it.

    What most phases never have is a default of the class: a phase is made in the training's time.
    """

    begun = others_s = data_s = wait_s = 0.0
    open = False
    event: Any = None
    _again: tuple[Phase, ...] = ()

    def __init__(self, recorder: Recorder, kind: str, number: int | None, notes: dict[str, Any] | None) -> None:
        self.recorder = recorder
        self.kind = kind
        self.number = number
        self.notes = notes

    def note(self, *wrong: Any, **notes: Any) -> None:
        """Keeps figures with the phase, for example loss=3.2. A tensor is not asked for its value: that would wait."""
        if wrong:
            self.recorder.complain("note", "note() takes names and values: note(loss=3.2)")
        if self.notes is None:
            self.notes = notes
        else:
            self.notes.update(notes)

    def __enter__(self) -> Phase:
        if self.open:  # the same object once more, as when it is kept in a variable
            return self._enter_again()
        self.open = True
        recorder = self.recorder
        if get_ident() == recorder.thread:
            recorder.stack.append(self)
            if recorder.asks_device and self.kind is STEP:
                recorder.begin_on_device(self)
        self.begun = perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None = None, error: object = None, trace: object = None) -> None:
        ended = perf_counter()
        if self._again:
            *again, inner = self._again
            self._again = tuple(again)
            inner.__exit__(kind)
            return
        try:
            self.recorder.leave(self, ended, kind is None or kind is GeneratorExit)
        except Exception as error:
            self.recorder.complain("leave", f"a {self.kind} was not recorded: {error}")

    def __call__(self, function: F) -> F:
        """As a decorator: every call is such a phase."""

        @functools.wraps(function)
        def timed(*args: Any, **named: Any) -> Any:
            with Phase(self.recorder, self.kind, None, dict(self.notes) if self.notes else None):
                return function(*args, **named)

        return timed  # type: ignore[return-value]

    def _enter_again(self) -> Phase:
        inner = Phase(self.recorder, self.kind, self.number, None)
        self._again = (*self._again, inner)
        return inner.__enter__()
