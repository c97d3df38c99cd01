"""A stopwatch inside anyone's loop: with it nothing is deduced, every part is seen.

    from stepwatch import Recorder

    with Recorder("run.jsonl", tokens_per_step=batch_size * block_size) as recorder:
        for batch in recorder.steps(loader):
            loss = train_on(batch)

It never raises into the loop and never waits for the device. `stepwatch explain run.jsonl` reads what it wrote.
"""

from __future__ import annotations

import atexit
import difflib
import operator
import os
import time
from collections.abc import Callable, Iterable, Iterator
from threading import get_ident
from time import perf_counter
from typing import Any, TypeVar

from stepwatch.recorder.device import Device, cuda_in_use
from stepwatch.recorder.header import VERSION, line_of, machine, plain_settings, rank_of_process
from stepwatch.recorder.lines import Lines, Trouble
from stepwatch.recorder.phases import (
    CHECKPOINT,
    COMPILE,
    DATA,
    EVALUATION,
    NOTHING,
    PARTS_OF_STEP,
    STEP,
    WAIT,
    Phase,
)

__all__ = ["Phase", "Recorder"]

T = TypeVar("T")
_STEPS_TO_FIND_CUDA = 100
_PHASES = ("step", "evaluation", "checkpoint", "data", "wait", "compile", "steps", "note", "describe", "close")
_LAST = ("t", "s", "step", "eval")  # names a note may not take


class Recorder:
    """Times the phases of a training loop and writes them to a file, line by line.

    Ranks write a file each: `run.jsonl`, `run.rank1.jsonl`, …; rank and number of ranks are those of torchrun.
    """

    def __init__(
        self, path: str | os.PathLike[str], settings: Any = None, *, tokens_per_step: int | None = None,
        flops_per_step: float | None = None, first_step: int = 0, rank: int | None = None,
        world_size: int | None = None, rotate_bytes: int | None = None,
    ) -> None:  # fmt: skip
        self._trouble = Trouble()
        self.inner: Phase | None = None
        """The innermost phase that is open."""
        self.thread, self._process = get_ident(), os.getpid()
        self._epoch = time.time() - perf_counter()
        self._next = self._first = first_step
        self.data_s = self.wait_s = 0.0
        """Between the phases: parts of the step that follows."""
        self._parts_wait = False
        self._step, self._data = Phase(self, STEP, None, None), Phase(self, DATA, None, None)
        """Used again for each step, where the one before has ended."""
        self._names: set[str] = set()  # of notes that were written with care once
        self._device: Device | None = None
        self._tries, self.asks_device = _STEPS_TO_FIND_CUDA, True
        self._closed = False
        own_rank, ranks = rank_of_process()
        self.rank = own_rank if rank is None else rank
        self.world_size = ranks if world_size is None else world_size
        self._settings = plain_settings(settings)
        for name, value in (("tokens_per_iter", tokens_per_step), ("flops_per_iter", flops_per_step)):
            if value is not None:
                self._settings[name] = value
        self._machine = machine()  # asking the driver takes a while, which is not the training's
        self._started = time.time()
        self.path = _path_of_rank(os.fspath(path), self.rank)
        self._lines = Lines(self.path, self._trouble, self._header, rotate_bytes=rotate_bytes)
        atexit.register(self.close)

    # --- phases -------------------------------------------------------------------------------------------------

    def step(self, number: Any = None, **notes: Any) -> Phase:
        """One turn of the loop. `tokens` and `flops` where they differ from step to step."""
        if number is not None and type(number) is not int:
            number = self._checked(number)
        step = self._step
        if step.open is None:
            step.number, step.open = number, False
            step.notes = step.given = notes or None
            return step
        self._step = step = Phase(self, STEP, number, notes or None)
        return step

    def evaluation(self, **notes: Any) -> Phase:
        return Phase(self, EVALUATION, None, notes or None)

    def checkpoint(self, path: object = None, **notes: Any) -> Phase:
        return Phase(self, CHECKPOINT, None, {"path": str(path), **notes} if path is not None else notes or None)

    def data(self) -> Phase:
        """Waiting for the next batch; part of the step that uses it."""
        part = self._data
        if part.open is None and get_ident() == self.thread:
            part.open = False
            return part
        self._data = part = Phase(self, DATA, None, None)
        return part

    def wait(self) -> Phase:
        """Waiting for other ranks, in a collective or at a barrier; part of the step."""
        return Phase(self, WAIT, None, None)

    def compile(self, **notes: Any) -> Phase:
        return Phase(self, COMPILE, None, notes or None)

    def steps(self, loader: Iterable[T]) -> Iterator[T]:
        """The batches of a loader: getting one is data, what the loop does with it is the step."""
        batches = iter(loader)
        while True:
            with self.data():
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            with self.step():
                yield batch

    def note(self, *wrong: Any, **notes: Any) -> None:
        """Keeps figures with the innermost phase that is open: loss=3.2 within a step."""
        inner = next((phase for phase in self._open_phases() if phase.kind not in PARTS_OF_STEP), None)
        if inner is None:
            self.complain("note", "note() outside of a phase is not recorded")
        else:
            inner.note(*wrong, **notes)

    def describe(self, **settings: Any) -> None:
        """Settings that became known after the start, for example n_params=124e6."""
        known = plain_settings(settings)
        self._settings.update(known)
        if known:
            self._append({"settings": known, "t": self._now()})

    def wrote_checkpoint(
        self, at: int, *, waited_s: float, background_s: float | None = None, path: str | None = None
    ) -> None:
        """A save that was timed elsewhere, for example by a writer in the background."""
        entry: dict[str, Any] = {CHECKPOINT: at, "s": round(waited_s, 6), "t": self._now()}
        entry |= {"path": path} if path is not None else {}
        entry |= {"background_s": round(background_s, 6)} if background_s is not None else {}
        self._append(entry)

    def close(self) -> None:
        """Ends the record; also done when the program ends."""
        if self._closed or os.getpid() != self._process:  # a forked worker is not the loop
            return
        self._write_device_times()
        self._append({"end": self._next - self._first, "t": self._now()})
        self._closed = True
        self._lines.close()
        atexit.unregister(self.close)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A slip in a name is no reason to end a training of days."""
        if name.startswith("_"):
            raise AttributeError(name)
        near = difflib.get_close_matches(name, _PHASES, 1)
        self.complain(name, f"the recorder has no {name}()" + (f"; {near[0]}() is meant?" if near else ""))
        return lambda *_, **__: Phase(self, NOTHING, None, None)

    # --- the stopwatch ------------------------------------------------------------------------------------------

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
        if whole or kind in PARTS_OF_STEP:
            self.record(phase, own, ended)
        phase.renew()

    def record(self, phase: Phase, own: float, ended: float) -> None:
        """Writes the line of a phase that is over, or adds it to that of its step."""
        if phase.kind is not STEP:
            self._record_other(phase, own, ended)
            return
        number = self._next if phase.number is None else phase.number
        self._next = number + 1
        rest = self._noted(phase.notes) if phase.notes else b"}\n"
        data_s, wait_s = phase.data_s, phase.wait_s
        if self._parts_wait:
            own += self.data_s + self.wait_s
            data_s, wait_s = data_s + self.data_s, wait_s + self.wait_s
            self.data_s = self.wait_s = 0.0
            self._parts_wait = False
        if wait_s:
            rest = b',"wait_s":%.6f%b' % (wait_s, rest)
        if data_s:
            rest = b',"data_s":%.6f%b' % (data_s, rest)
        line = b'{"step":%d,"s":%.6f,"t":%.6f%b' % (number, own, self._epoch + ended, rest)
        self._lines.append(line, perf_counter())
        if phase.event is not None:
            self._end_on_device(number, phase.event)

    def _checked(self, number: Any) -> int | None:
        try:
            return operator.index(number)
        except TypeError:
            self.complain("step", f"step() takes a number, not {number!r:.40}")
            return None

    def complain(self, kind: str, text: str) -> None:
        self._trouble.say(kind, text)

    def _open_phases(self) -> Iterator[Phase]:
        return self.inner.and_around() if self.inner is not None else iter(())

    def _taken_out(self, phase: Phase) -> bool:
        """Phases that were entered later and never left, as after a caught exception, go with it."""
        was_open, phase.open = phase.open, False
        if get_ident() != self.thread:
            self._write_from_aside(phase, perf_counter() - phase.begun)
            return False
        if not was_open or phase not in self._open_phases():
            self.complain("order", f"a {phase.kind} was left that was not entered, or after the phase around it")
            return False
        self.complain("order", f"a phase inside a {phase.kind} did not end")
        self.inner = phase.outer
        return True

    def _add_part(self, part: Phase, own: float) -> None:
        """Of the phase around it; between the phases, of the step that follows."""
        around: Phase | Recorder = self
        if part.outer is not None:
            around = part.outer
            part.outer.others_s += part.others_s
        else:
            self._parts_wait = True
        if part.kind is DATA:
            around.data_s += own
        else:
            around.wait_s += own

    def _join(self, inner: Phase, around: Phase) -> None:
        """A phase inside one of its kind is part of that, with its notes; only what lies between is taken off it."""
        outer = next(outer for outer in around.and_around() if outer.kind == inner.kind)
        if inner.notes:
            outer.note(**inner.notes)
        around.others_s += inner.others_s
        around.data_s += inner.data_s
        around.wait_s += inner.wait_s

    def _record_other(self, phase: Phase, own: float, ended: float) -> None:
        if phase.kind in PARTS_OF_STEP:
            self._add_part(phase, own)
            return
        if phase.kind is NOTHING:
            return
        inside = next((around.number for around in phase.and_around() if around.kind is STEP), None)
        entry = b'{"%b":%d,"s":%.6f,"t":%.6f' % (
            phase.kind.encode(), self._next if inside is None else inside, own, self._epoch + ended
        )  # fmt: skip
        line = entry + (self._noted(phase.notes) if phase.notes else b"}\n")
        self._lines.append(line, perf_counter())  # a callback may hear of the end only later

    def _noted(self, notes: dict[str, Any]) -> bytes:
        """The rest of a line. The usual notes are finite numbers, and need no encoder."""
        text = ""
        for name, value in notes.items():
            plain = type(value) is int or (type(value) is float and value - value == 0)
            if not plain or name not in self._names:
                return self._noted_with_care(notes)
            text += f',"{name}":{value!r}'
        return text.encode() + b"}\n"

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
        self._names.update(filter(str.isidentifier, plain))
        return b"," + line_of(plain)[1:] if plain else b"}\n"

    def _write_from_aside(self, phase: Phase, elapsed: float) -> None:
        """A phase of another thread runs beside the loop, which does not wait for it."""
        if phase.kind is CHECKPOINT:
            path = (phase.notes or {}).get("path")
            self.wrote_checkpoint(self._next, waited_s=0.0, background_s=elapsed, path=path)
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
        if self._device is None:
            self._tries -= 1
            self._device = Device() if cuda_in_use() else None
            self.asks_device = self._device is not None or self._tries > 0
        step.event = self._mark()

    def _end_on_device(self, number: int, begun: Any) -> None:
        ended = self._mark()
        if self._device is not None and ended is not None:
            self._device.passed(number, begun, ended)
            self._write_device_times()

    def _mark(self) -> Any:
        try:
            return self._device.mark() if self._device is not None else None
        except Exception as error:
            self._no_device(error)
            return None

    def _write_device_times(self) -> None:
        try:
            for number, seconds in self._device.finished() if self._device is not None else ():
                self._lines.append(b'{"device":%d,"s":%.6f}\n' % (number, seconds), perf_counter())
        except Exception as error:
            self._no_device(error)

    def _no_device(self, error: Exception) -> None:
        self._device, self.asks_device = None, False
        self.complain("device", f"the device's own times cannot be had: {error}")

    # --- lines --------------------------------------------------------------------------------------------------

    def _header(self, continued: bool) -> bytes:
        entries = {
            "stepwatch": VERSION, "started": round(self._started, 6), "rank": self.rank,
            "world_size": self.world_size, "pid": self._process, **self._machine, "settings": self._settings,
        }  # fmt: skip
        return line_of(entries | ({"continued": True} if continued else {}))

    def _append(self, entry: dict[str, Any]) -> None:
        self._lines.append(line_of(entry), perf_counter())

    def _now(self) -> float:
        return round(self._epoch + perf_counter(), 6)


def _path_of_rank(path: str, rank: int) -> str:
    stem, suffix = os.path.splitext(path)
    return path if not rank else f"{stem}.rank{rank}{suffix}"
