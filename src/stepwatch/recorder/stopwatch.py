"""Which phases are open, how long they took, and their lines.

This is not in the Recorder, whose __getattr__ slows down each access to its own attributes: the time spent here is
the training's.
"""

from __future__ import annotations

import math
import operator
import sys
import time
from collections import deque
from collections.abc import Iterator
from threading import get_ident
from time import perf_counter
from typing import Any

from stepwatch.recorder.header import line_of
from stepwatch.recorder.lines import Lines, WarnOnce
from stepwatch.recorder.phase import CHECKPOINT, COMPILE, DATA, EVALUATION, NOTHING, STEP, Phase

_STEPS_TO_FIND_CUDA = 100
_LAST = ("t", "s", "step", "eval")  # names a note may not take
# Times since 1970 are written in two pieces: formatting a float with more than 15 digits is slow.
_PIECE_S, _LONGEST_S = 100_000, 99_999.999999
_LINES = {kind: b'{"%b":%%d,"s":%%.6f,"t":%%b%%012.6f%%b' % kind.encode() for kind in (EVALUATION, CHECKPOINT, COMPILE)}


class StepEvents:
    """Pairs of CUDA events around the steps, read once the device has passed them, so that nothing waits for them."""

    def __init__(self) -> None:
        self._idle: list[Any] = []
        self._pending: deque[tuple[int, Any, Any]] = deque()

    def mark(self) -> Any:
        """An event at this place of the stream."""
        event = self._idle.pop() if self._idle else self.new_event()
        event.record()
        return event

    def new_event(self) -> Any:
        return sys.modules["torch"].cuda.Event(enable_timing=True)

    def passed(self, step: int, begin: Any, end: Any) -> None:
        self._pending.append((step, begin, end))
        if len(self._pending) > 64:  # events that the card has not reached yet
            self._idle.extend(self._pending.popleft()[1:])

    def finished(self) -> list[tuple[int, float]]:
        """Step and seconds of the steps that the device has finished."""
        done = []
        while self._pending and self._pending[0][2].query():
            step, begin, end = self._pending.popleft()
            done.append((step, begin.elapsed_time(end) * 1e-3))  # from milliseconds
            self._idle += [begin, end]
        return done


class Stopwatch:
    __slots__ = (
        "_forms", "_piece", "_piece_begun", "_tries", "asks_device", "data_s", "device", "epoch", "inner", "lines",
        "next", "parts_wait", "thread", "trouble", "wait_s",
    )  # fmt: skip

    def __init__(self, lines: Lines, trouble: WarnOnce, first_step: int) -> None:
        self.lines, self.trouble = lines, trouble
        self.inner: Phase | None = None
        """The innermost phase that is open."""
        self.thread = get_ident()
        self.epoch = time.time() - perf_counter()
        self._piece, self._piece_begun = b"", -math.inf
        """The leading digits of all times that are written now, and perf_counter's time at which they begin."""
        self.next = first_step
        self.data_s = self.wait_s = 0.0
        """Time between the phases: part of the step that follows."""
        self.parts_wait = False
        self._forms: dict[str, bytes] = {}
        """How to write notes that were checked and written once before."""
        self.device: StepEvents | None = None
        self._tries, self.asks_device = _STEPS_TO_FIND_CUDA, True

    def leave(self, phase: Phase, ended: float, whole: bool) -> None:
        """Records a phase that is over, and takes its time off the phase around it."""
        kind, outer = phase.kind, phase.outer
        if self.inner is phase:
            self.inner = outer
        elif not self._close_out_of_order(phase):
            return
        own = ended - phase.begun - phase.others_s
        if phase.is_part:  # a part of the phase around it; between phases, of the step that follows
            around: Phase | Stopwatch = self if outer is None else outer
            if kind is DATA:
                around.data_s += own
            else:
                around.wait_s += own
            if outer is None:
                self.parts_wait = True
            else:
                outer.others_s += phase.others_s
        elif outer is not None and (same := next((one for one in outer.and_around() if one.kind is kind), None)):
            # Inside a phase of its kind it is part of that one, with its notes.
            if phase.notes:
                same.note(**phase.notes)
            outer.others_s += phase.others_s
            outer.data_s += phase.data_s
            outer.wait_s += phase.wait_s
        else:
            if outer is not None:
                outer.others_s += own + phase.others_s
            if whole:
                self.record(phase, own, ended, perf_counter())  # a callback may hear of the end only later
        phase.renew()

    def record(self, phase: Phase, own: float, ended: float, now: float) -> None:
        """Writes the line of a phase that is over; `now` may be later than its end."""
        append = self.lines.append  # as a local name: looking up an attribute takes longer
        notes = phase.notes
        rest = b"}\n" if notes is None else self._noted(notes)
        t = ended - self._piece_begun
        if not 0.0 <= t <= _LONGEST_S:
            # A new piece. Without a clock it is 1970: no leading zero. A last microsecond that would be rounded up into
            # the next piece is left out.
            pieces = max(int((self.epoch + ended) // _PIECE_S), 1)
            self._piece, self._piece_begun = b"%d" % pieces, pieces * _PIECE_S - self.epoch
            t = min(max(ended - self._piece_begun, 0.0), _LONGEST_S)
        if phase.kind is not STEP:
            if phase.kind is not NOTHING:
                at = self.next
                if phase.outer is not None:  # within a step: the number of the step, if it has one
                    numbers = (around.number for around in phase.and_around() if around.kind is STEP)
                    at = number if (number := next(numbers, None)) is not None else at
                append(_LINES[phase.kind] % (at, own, self._piece, t, rest), now)
            return
        number = self.next if phase.number is None else phase.number
        self.next = number + 1
        data_s, wait_s = phase.data_s, phase.wait_s
        if self.parts_wait:
            own += self.data_s + self.wait_s
            data_s, wait_s = data_s + self.data_s, wait_s + self.wait_s
            self.data_s = self.wait_s = 0.0
            self.parts_wait = False
        if wait_s:
            rest = b',"wait_s":%.6f%b' % (wait_s, rest)
        if data_s:
            line = b'{"step":%d,"s":%.6f,"t":%b%012.6f,"data_s":%.6f%b' % (number, own, self._piece, t, data_s, rest)
        else:
            line = b'{"step":%d,"s":%.6f,"t":%b%012.6f%b' % (number, own, self._piece, t, rest)
        append(line, now)
        if phase.event is not None:
            event = self._mark()
            if self.device is not None and event is not None:
                self.device.passed(number, phase.event, event)
                self.write_device_times()

    def checked(self, number: Any) -> int | None:
        try:
            return operator.index(number)
        except TypeError:
            self.trouble.say("step", f"step() takes a number, not {number!r:.40}")
            return None

    def open_phases(self) -> Iterator[Phase]:
        return self.inner.and_around() if self.inner is not None else iter(())

    def _close_out_of_order(self, phase: Phase) -> bool:
        """Whether a phase that is not the innermost is recorded.

        Phases that were entered later and never left, e.g. after a caught exception, are ended with it. A phase in
        another thread runs in parallel to the loop, which does not wait for it.
        """
        was_open, phase.open = phase.open, False
        if get_ident() != self.thread:
            if phase.kind is CHECKPOINT:
                path, elapsed = (phase.notes or {}).get("path"), perf_counter() - phase.begun
                self.write_save(self.next, waited_s=0.0, background_s=elapsed, path=path)
            elif not phase.is_part:
                self.trouble.say("thread", f"a {phase.kind} in another thread than the loop's is not recorded")
            return False
        if not was_open or phase not in self.open_phases():
            self.trouble.say("order", f"phase “{phase.kind}” was left without being entered, or after its outer phase")
            return False
        self.trouble.say("order", f"a phase inside a {phase.kind} did not end")
        self.inner = phase.outer
        return True

    def _noted(self, notes: dict[str, Any]) -> bytes:
        """The rest of a line. The usual notes are finite numbers and plain words, and need no encoder."""
        rest = b"}\n"
        for name, value in reversed(notes.items()):
            form, kind = self._forms.get(name), type(value)
            if form is None:
                return self._encode_notes_safely(notes)
            if kind is int or (kind is float and value - value == 0.0):
                rest = form % (value, rest)
            elif kind is str and value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
                rest = b',"%b":"%b"%b' % (name.encode(), value.encode(), rest)
            else:
                return self._encode_notes_safely(notes)
        return rest

    def _encode_notes_safely(self, notes: dict[str, Any]) -> bytes:
        """Leaves out anything but plain values: reading the value of a tensor would wait for the device."""
        figures = {name: value.item() if type(value).__module__ == "numpy" else value for name, value in notes.items()}
        plain = {
            name: value
            for name, value in figures.items()
            if name not in _LAST and isinstance(value, (bool, int, float, str))
        }
        left_out = [name for name in notes if name not in plain and notes[name] is not None]
        if left_out:
            self.trouble.say(
                "value", f"{left_out[0]} is not a plain number and is not recorded: use .item() where it is due"
            )
        self._forms |= {name: b',"%b":%%a%%b' % name.encode() for name in plain if name.isidentifier()}
        return b"," + line_of(plain)[1:] if plain else b"}\n"

    # --- the device ---------------------------------------------------------------------------------------------

    def begins_loop(self, phase: Phase) -> bool:
        """Whether this is the first step; the loop may run in another thread than the one that created the recorder."""
        first = phase.kind is STEP and self._tries == _STEPS_TO_FIND_CUDA
        if first:
            self.thread = get_ident()
        return first

    def begin_on_device(self, step: Phase) -> None:
        """Looks for CUDA in the first steps, until the training has started to use it."""
        if self.device is None:
            self._tries -= 1
            torch = sys.modules.get("torch")  # asking never initialises CUDA
            try:
                self.device = StepEvents() if torch is not None and torch.cuda.is_initialized() else None
            except Exception:
                self.device = None
            self.asks_device = self.device is not None or self._tries > 0
        step.event = self._mark()

    def _mark(self) -> Any:
        try:
            return self.device.mark() if self.device is not None else None
        except Exception as error:
            self._no_device(error)
            return None

    def write_device_times(self) -> None:
        try:
            for number, seconds in self.device.finished() if self.device is not None else ():
                self.lines.append(b'{"device":%d,"s":%.6f}\n' % (number, seconds), perf_counter())
        except Exception as error:
            self._no_device(error)

    def _no_device(self, error: Exception) -> None:
        self.device, self.asks_device = None, False
        self.trouble.say("device", f"the device's own times cannot be had: {error}")

    # --- lines --------------------------------------------------------------------------------------------------

    def write_save(
        self, at: int, *, waited_s: float, background_s: float | None = None, path: str | None = None
    ) -> None:
        entry: dict[str, Any] = {CHECKPOINT: at, "s": round(waited_s, 6), "t": self.now()}
        entry |= {"path": path} if path is not None else {}
        entry |= {"background_s": round(background_s, 6)} if background_s is not None else {}
        self.write(entry)

    def write(self, entry: dict[str, Any]) -> None:
        self.lines.append(line_of(entry), perf_counter())

    def now(self) -> float:
        return round(self.epoch + perf_counter(), 6)
