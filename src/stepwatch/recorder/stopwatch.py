"""What is open, how long it took, and the line of it.

Apart from the Recorder, whose answer to any name costs each look at one of its own: here these are the training's time.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Iterator
from threading import get_ident
from time import perf_counter
from typing import Any

from stepwatch.recorder.device import Device, cuda_in_use
from stepwatch.recorder.header import line_of
from stepwatch.recorder.lines import Lines, Trouble
from stepwatch.recorder.phase import CHECKPOINT, COMPILE, DATA, EVALUATION, NOTHING, PARTS_OF_STEP, STEP, Phase

_STEPS_TO_FIND_CUDA = 100
_LAST = ("t", "s", "step", "eval")  # names a note may not take
# Times since 1970 are written in two pieces: more than 15 digits make the formatting of a float slow.
_PIECE_S, _LONGEST_S = 100_000, 99_999.999999
_LINES = {kind: b'{"%b":%%d,"s":%%.6f,"t":%%b%%012.6f%%b' % kind.encode() for kind in (EVALUATION, CHECKPOINT, COMPILE)}


class Stopwatch:
    __slots__ = (
        "_forms", "_piece", "_piece_begun", "_tries", "asks_device", "data_s", "device", "epoch", "inner", "lines",
        "next", "parts_wait", "thread", "trouble", "wait_s",
    )  # fmt: skip

    def __init__(self, lines: Lines, trouble: Trouble, first_step: int) -> None:
        self.lines, self.trouble = lines, trouble
        self.inner: Phase | None = None
        """The innermost phase that is open."""
        self.thread = get_ident()
        self.epoch = time.time() - perf_counter()
        self._piece, self._piece_begun = b"", -math.inf
        """What all times begin with that are written now, and perf_counter's time from when on."""
        self.next = first_step
        self.data_s = self.wait_s = 0.0
        """Between the phases: parts of the step that follows."""
        self.parts_wait = False
        self._forms: dict[str, bytes] = {}
        """How notes are written that were written with care once."""
        self.device: Device | None = None
        self._tries, self.asks_device = _STEPS_TO_FIND_CUDA, True

    def leave(self, phase: Phase, ended: float, whole: bool) -> None:
        """Records a phase that is over, and tells the phase around it what is not its own."""
        kind, outer = phase.kind, phase.outer
        if self.inner is phase:
            self.inner = outer
        elif not self._taken_out(phase):
            return
        own = ended - phase.begun - phase.others_s
        if outer is not None and kind not in PARTS_OF_STEP:
            if any(around.kind is kind for around in outer.and_around()):
                self._join(phase, outer)
                whole = False
            else:
                outer.others_s += own + phase.others_s
        if phase.is_part:
            self._add_part(phase, own)
        elif whole:
            self.record(phase, own, ended, perf_counter())  # a callback may hear of the end only later
        phase.renew()

    def record(self, phase: Phase, own: float, ended: float, now: float) -> None:
        """Writes the line of a phase that is over; `now` may be later than its end."""
        append = self.lines.append  # by a name of its own: the call of an attribute takes longer
        notes = phase.notes
        rest = b"}\n" if notes is None else self._noted(notes)
        t = ended - self._piece_begun
        if not 0.0 <= t <= _LONGEST_S:
            t = self._begin_piece(ended)
        if phase.kind is not STEP:
            if phase.kind is not NOTHING:
                at = self.next if phase.outer is None else self._step_around(phase)
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

    def _begin_piece(self, ended: float) -> float:
        """The seconds of this piece; a last microsecond that would be rounded up into the next is left out."""
        pieces = max(int((self.epoch + ended) // _PIECE_S), 1)  # a machine without a clock is in 1970: no leading zero
        self._piece, self._piece_begun = b"%d" % pieces, pieces * _PIECE_S - self.epoch
        return min(max(ended - self._piece_begun, 0.0), _LONGEST_S)

    def checked(self, number: Any) -> int | None:
        try:
            return operator.index(number)
        except TypeError:
            self.complain("step", f"step() takes a number, not {number!r:.40}")
            return None

    def complain(self, kind: str, text: str) -> None:
        self.trouble.say(kind, text)

    def open_phases(self) -> Iterator[Phase]:
        return self.inner.and_around() if self.inner is not None else iter(())

    def _taken_out(self, phase: Phase) -> bool:
        """Phases that were entered later and never left, as after a caught exception, go with it."""
        was_open, phase.open = phase.open, False
        if get_ident() != self.thread:
            self._write_from_aside(phase, perf_counter() - phase.begun)
            return False
        if not was_open or phase not in self.open_phases():
            self.complain("order", f"a {phase.kind} was left that was not entered, or after the phase around it")
            return False
        self.complain("order", f"a phase inside a {phase.kind} did not end")
        self.inner = phase.outer
        return True

    def _join(self, inner: Phase, around: Phase) -> None:
        """A phase inside one of its kind is part of that, with its notes; only what lies between is taken off it."""
        outer = next(outer for outer in around.and_around() if outer.kind == inner.kind)
        if inner.notes:
            outer.note(**inner.notes)
        around.others_s += inner.others_s
        around.data_s += inner.data_s
        around.wait_s += inner.wait_s

    def _add_part(self, phase: Phase, own: float) -> None:
        """To the phase around it; between the phases, to the step that follows."""
        around: Phase | Stopwatch = self
        if phase.outer is not None:
            around = phase.outer
            phase.outer.others_s += phase.others_s
        else:
            self.parts_wait = True
        if phase.kind is DATA:
            around.data_s += own
        else:
            around.wait_s += own

    def _step_around(self, phase: Phase) -> int:
        inside = next((around.number for around in phase.and_around() if around.kind is STEP), None)
        return self.next if inside is None else inside

    def _noted(self, notes: dict[str, Any]) -> bytes:
        """The rest of a line. The usual notes are finite numbers and plain words, and need no encoder."""
        rest = b"}\n"
        for name, value in reversed(notes.items()):
            form, kind = self._forms.get(name), type(value)
            if form is None:
                return self._noted_with_care(notes)
            if kind is int or (kind is float and value - value == 0.0):
                rest = form % (value, rest)
            elif kind is str and value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
                rest = b',"%b":"%b"%b' % (name.encode(), value.encode(), rest)
            else:
                return self._noted_with_care(notes)
        return rest

    def _noted_with_care(self, notes: dict[str, Any]) -> bytes:
        """What is no plain value is left out: a tensor asked for its value would wait for the device."""
        figures = {name: value.item() if type(value).__module__ == "numpy" else value for name, value in notes.items()}
        plain = {
            name: value
            for name, value in figures.items()
            if name not in _LAST and isinstance(value, (bool, int, float, str))
        }
        left_out = [name for name in notes if name not in plain and notes[name] is not None]
        if left_out:
            self.complain(
                "value", f"{left_out[0]} is not a plain number and is not recorded: use .item() where it is due"
            )
        self._forms |= {name: b',"%b":%%a%%b' % name.encode() for name in plain if name.isidentifier()}
        return b"," + line_of(plain)[1:] if plain else b"}\n"

    def _write_from_aside(self, phase: Phase, elapsed: float) -> None:
        """A phase of another thread runs beside the loop, which does not wait for it."""
        if phase.kind is CHECKPOINT:
            path = (phase.notes or {}).get("path")
            self.write_save(self.next, waited_s=0.0, background_s=elapsed, path=path)
        elif phase.kind not in PARTS_OF_STEP:
            self.complain("thread", f"a {phase.kind} in another thread than the loop's is not recorded")

    # --- the device ---------------------------------------------------------------------------------------------

    def begins_loop(self, phase: Phase) -> bool:
        """Whether this is the first step: the loop may run in another thread than the one that made the recorder."""
        first = phase.kind is STEP and self._tries == _STEPS_TO_FIND_CUDA
        if first:
            self.thread = get_ident()
        return first

    def begin_on_device(self, step: Phase) -> None:
        """Looks for CUDA in the first steps, until the training has begun to use it."""
        if self.device is None:
            self._tries -= 1
            self.device = Device() if cuda_in_use() else None
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
        self.complain("device", f"the device's own times cannot be had: {error}")

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
