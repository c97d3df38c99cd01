"""A phase of the loop: a context manager and a decorator that adds up correctly when phases are nested.

A step only counts its own time: evaluations, checkpoints and compilations inside it have their own lines and are taken
off. Data and waiting are parts of the step, wherever they are. A phase inside one of its own kind is part of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from stepwatch.recorder.stopwatch import Stopwatch

F = TypeVar("F", bound=Callable[..., Any])

STEP, EVALUATION, CHECKPOINT, COMPILE, DATA, WAIT = "step", "eval", "checkpoint", "compile", "data", "wait"
NOTHING = "nothing"  # for a misspelt name
PARTS_OF_STEP = (DATA, WAIT)


class Phase:
    """One stretch of time of a kind; `note` adds figures to keep with it.

    It is entered and left in the training's time, once every few milliseconds: then none of it is in the processor's
    caches, and having few objects and calls matters more than having few instructions.
    """

    __slots__ = (
        "_again", "begun", "data_s", "event", "given", "is_part", "kind", "notes", "number", "open", "others_s",
        "outer", "wait_s", "watch",
    )  # fmt: skip

    def __init__(self, watch: Stopwatch, kind: str, number: int | None, notes: dict[str, Any] | None) -> None:
        self.watch = watch
        self.kind = kind
        self.is_part = kind in PARTS_OF_STEP
        self.number = number
        self.notes = self.given = notes
        self.begun = self.others_s = self.data_s = self.wait_s = 0.0
        self.open: bool | None = False  # None once it is left and may be reused
        self.event: Any = None
        self.outer: Phase | None = None
        self._again: tuple[Phase, ...] | None = None

    def note(self, *wrong: Any, **notes: Any) -> None:
        """Keeps figures with the phase, for example loss=3.2. A tensor's value is not read: that would wait."""
        if wrong:
            self.watch.trouble.say("note", "note() takes names and values: note(loss=3.2)")
        self.notes = notes if self.notes is None else {**self.notes, **notes}

    def __enter__(self) -> Phase:
        if self.open:  # the same object again, for example because it is kept in a variable
            inner = Phase(self.watch, self.kind, self.number, None)
            self._again = (*(self._again or ()), inner)
            return inner.__enter__()
        self.open = True
        watch = self.watch
        if get_ident() == watch.thread or watch.begins_loop(self):
            self.outer = watch.inner
            watch.inner = self
            if watch.asks_device and self.kind is STEP:
                watch.begin_on_device(self)
        self.begun = perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        ended = perf_counter()
        watch = self.watch
        try:
            outer = self.outer
            # The usual case: a single phase, or a part of the phase around it.
            if kind is None and watch.inner is self and self._again is None and (outer is None or self.is_part):
                watch.inner = outer
                own = ended - self.begun - self.others_s
                if not self.is_part:
                    watch.record(self, own, ended, ended)
                    self.data_s = self.wait_s = 0.0  # as renew() does, with one call less
                    self.notes, self.event = self.given, None
                else:
                    around: Phase | Stopwatch = watch if outer is None else outer
                    if self.kind is DATA:
                        around.data_s += own
                    else:
                        around.wait_s += own
                    if outer is None:
                        watch.parts_wait = True
                    else:
                        outer.others_s += self.others_s
                        self.outer = None
                self.others_s = 0.0
                self.open = None
            elif self._again is not None:
                *again, inner = self._again
                self._again = tuple(again) or None
                inner.__exit__(kind, None, None)
            else:
                watch.leave(self, ended, kind is None or kind is GeneratorExit)
        except Exception as error:
            watch.trouble.say("leave", f"a {self.kind} was not recorded: {error}")

    def renew(self) -> None:
        """Resets the phase, so that it can be entered again."""
        self.others_s = self.data_s = self.wait_s = 0.0
        self.notes = self.given
        self.event = self.outer = self.open = None

    def and_around(self) -> Iterator[Phase]:
        """This phase and those around it."""
        phase: Phase | None = self
        while phase is not None:
            yield phase
            phase = phase.outer

    def __call__(self, function: F) -> F:
        """As a decorator: every call is a phase."""

        @functools.wraps(function)
        def timed(*args: Any, **named: Any) -> Any:
            with Phase(self.watch, self.kind, None, dict(self.notes) if self.notes else None):
                return function(*args, **named)

        return timed  # type: ignore[return-value]
