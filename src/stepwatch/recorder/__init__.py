"""A stopwatch for any training loop: every part is timed, nothing is deduced.

    from stepwatch import Recorder

    with Recorder("run.jsonl", tokens_per_step=batch_size * block_size) as recorder:
        for batch in recorder.steps(loader):
            loss = train_on(batch)

It never raises into the loop and never waits for the device. `stepwatch explain run.jsonl` reads what it wrote.
"""

from __future__ import annotations

import atexit
import contextlib
import difflib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from stepwatch.recorder.header import VERSION, line_of, machine, plain_settings, rank_of_process
from stepwatch.recorder.lines import Lines, WarnOnce
from stepwatch.recorder.phase import CHECKPOINT, COMPILE, DATA, EVALUATION, NOTHING, PARTS_OF_STEP, STEP, WAIT, Phase
from stepwatch.recorder.stopwatch import Stopwatch
from stepwatch.samples import SAMPLES_SUFFIX

__all__ = ["Phase", "Recorder"]

T = TypeVar("T")
_PHASES = ("step", "evaluation", "checkpoint", "data", "wait", "compile", "steps", "note", "describe", "close")


_open: dict[str, Recorder] = {}
"""The open recorders of this process, by the path of their file."""


class Recorder:
    """Times the phases of a training loop and writes them to a file, line by line.

    Each rank writes its own file: `run.jsonl`, `run.rank1.jsonl`, …; rank and number of ranks are those of torchrun.
    """

    def __init__(
        self, path: str | os.PathLike[str], settings: Any = None, *, tokens_per_step: int | None = None,
        flops_per_step: float | None = None, first_step: int = 0, rank: int | None = None,
        world_size: int | None = None, rotate_bytes: int | None = None, samples: bool = False,
        started: float | None = None,
    ) -> None:  # fmt: skip
        """`started` is time.time() when the program began, so that the record includes its start-up."""
        self._process = os.getpid()
        self._closed = False
        own_rank, ranks = rank_of_process()
        self.rank = own_rank if rank is None else rank
        self.world_size = ranks if world_size is None else world_size
        self._settings = plain_settings(settings)
        for name, value in (("tokens_per_iter", tokens_per_step), ("flops_per_iter", flops_per_step)):
            if value is not None:
                self._settings[name] = value
        self._machine = machine()  # asking the driver takes a while, which is not time of the training
        self._started, self._first = time.time() if started is None else started, first_step
        stem, suffix = os.path.splitext(os.fspath(path))
        self.path = f"{stem}.rank{self.rank}{suffix}" if self.rank else os.fspath(path)
        trouble = WarnOnce()
        older = _open.pop(os.path.abspath(self.path), None)
        if older is not None:  # for example when a cell of a notebook is run again
            older.close()
        lines = Lines(self.path, trouble, self._header, rotate_bytes=rotate_bytes)
        self.path = lines.path
        _open[os.path.abspath(self.path)] = self
        self.stopwatch = Stopwatch(lines, trouble, first_step)
        self._step, self._data, self._wait = (Phase(self.stopwatch, kind, None, None) for kind in (STEP, DATA, WAIT))
        """Reused for each phase of the kind, unless the previous one is still open."""
        self._sampler = self._start_sampler() if samples and not self.rank else None
        atexit.register(self.close)

    # --- phases -------------------------------------------------------------------------------------------------

    def step(self, number: Any = None, **notes: Any) -> Phase:
        """One turn of the loop. Give `tokens` and `flops` if they differ from step to step."""
        if number is not None and type(number) is not int:
            number = self.stopwatch.checked(number)
        step = self._step
        if step.open is not None:
            step = self._step = Phase(self.stopwatch, STEP, None, None)
        step.number, step.open = number, False
        step.notes = step.given = notes or None
        return step

    def evaluation(self, **notes: Any) -> Phase:
        return Phase(self.stopwatch, EVALUATION, None, notes or None)

    def checkpoint(self, path: object = None, **notes: Any) -> Phase:
        if path is not None:
            notes = {"path": str(path), **notes}
        return Phase(self.stopwatch, CHECKPOINT, None, notes or None)

    def data(self) -> Phase:
        """Waiting for the next batch; part of the step that uses it."""
        part = self._data
        if part.open is not None:
            part = self._data = Phase(self.stopwatch, DATA, None, None)
        part.open = False
        return part

    def wait(self) -> Phase:
        """Waiting for other ranks, in a collective or at a barrier; part of the step."""
        part = self._wait
        if part.open is not None:
            part = self._wait = Phase(self.stopwatch, WAIT, None, None)
        part.open = False
        return part

    def compile(self, **notes: Any) -> Phase:
        return Phase(self.stopwatch, COMPILE, None, notes or None)

    def steps(self, loader: Iterable[T]) -> Iterator[T]:
        """The batches of a loader: getting a batch is data, what the loop does with it is the step."""
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
        """Keeps figures with the innermost open phase: loss=3.2 within a step."""
        inner = next((phase for phase in self.stopwatch.open_phases() if phase.kind not in PARTS_OF_STEP), None)
        if inner is None:
            self.stopwatch.trouble.say("note", "note() outside of a phase is not recorded")
        else:
            inner.note(*wrong, **notes)

    def describe(self, **settings: Any) -> None:
        """Settings that became known after the start, for example n_params=124e6."""
        known = plain_settings(settings)
        self._settings.update(known)
        if known:
            self.stopwatch.write({"settings": known, "t": self.stopwatch.now()})

    def wrote_checkpoint(
        self, at: int, *, waited_s: float, background_s: float | None = None, path: str | None = None
    ) -> None:
        """Records a save that was timed elsewhere, for example by a background writer."""
        self.stopwatch.write_save(at, waited_s=waited_s, background_s=background_s, path=path)

    def close(self) -> None:
        """Ends the record; also called when the program ends."""
        if self._closed or os.getpid() != self._process:  # a forked worker is not the loop
            return
        watch = self.stopwatch
        watch.write_device_times()
        watch.write({"end": watch.next - self._first, "t": watch.now()})
        self._closed = True
        if self._sampler is not None:
            self._sampler.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._sampler.wait(5.0)  # then the program may end
        watch.lines.close()
        if _open.get(os.path.abspath(self.path)) is self:
            del _open[os.path.abspath(self.path)]
        atexit.unregister(self.close)

    def _start_sampler(self) -> subprocess.Popen[bytes] | None:
        """Runs in a separate process, which takes no time from the training and does not get its Ctrl-C."""
        # The ranks of a machine are children of the same launcher; work of another rank is not that of another program.
        pid = self._process if self.world_size == 1 else os.getppid()
        samples = os.path.splitext(self.path)[0] + SAMPLES_SUFFIX
        command = [sys.executable, "-m", "stepwatch.sampler", samples, str(pid), str(self._process)]
        try:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self.stopwatch.trouble.say(
                "samples", f"the machine is not sampled ({error.strerror}): the training goes on"
            )
            return None

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A typo in a name is no reason to end a training of days."""
        if name.startswith("_"):
            raise AttributeError(name)
        near = difflib.get_close_matches(name, _PHASES, 1)
        self.stopwatch.trouble.say(name, f"the recorder has no {name}()" + (f"; {near[0]}() is meant?" if near else ""))
        return lambda *_, **__: Phase(self.stopwatch, NOTHING, None, None)

    def _header(self, continued: bool) -> bytes:
        entries = {
            "stepwatch": VERSION, "started": round(self._started, 6), "rank": self.rank,
            "world_size": self.world_size, "pid": self._process, **self._machine, "settings": self._settings,
        }  # fmt: skip
        return line_of(entries | ({"continued": True} if continued else {}))
