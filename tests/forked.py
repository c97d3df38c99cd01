"""`stepwatch train` in processes of its own that have torch from the start: to load it takes longer than to train.

They are forked by a process that has loaded it and done nothing else (multiprocessing's “forkserver”).
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from glob import glob
from multiprocessing.connection import Connection
from types import MappingProxyType
from typing import NoReturn

import stepwatch.__main__
from stepwatch.cli import main

PATIENCE_S = 120
FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(
    ["torch._dynamo", "torch.distributed.fsdp", "torch.distributed.run", "torch.distributed.tensor",
     "stepwatch.cli.train", "stepwatch.trainer.loop", "stepwatch.trainer.sharded"]
)  # fmt: skip


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def stepwatch_train(*flags: str) -> None:
    main(["train", *flags])


def stepwatch_train_in_detail(*flags: str) -> None:
    """Evaluations say at once how far they are."""
    import stepwatch.trainer.log

    stepwatch.trainer.log._OFTEN_S = 0.0
    stepwatch_train(*flags)


def before_each_step(do: Callable[[int], None]) -> None:
    from stepwatch.trainer.loop import TrainingLoop

    step = TrainingLoop.step

    def after_it(loop: TrainingLoop, number: int) -> float | None:
        do(number)
        return step(loop, number)

    TrainingLoop.step = after_it  # type: ignore[method-assign]


def stepwatch_train_slowly(*flags: str) -> None:
    """Little is computed while a test looks at what is beside it."""
    before_each_step(lambda number: time.sleep(0.2))
    stepwatch_train(*flags)


def stepwatch_train_printing_to(place: str, *flags: str) -> NoReturn:
    """A file, "-" for the pipe, or nowhere; until Python itself ends, which may fail to write the rest."""
    sys.argv[1:] = ["train", *flags]
    if place != "-":
        os.close(1)
        sys.stdout = open(os.open(place, os.O_WRONLY), "w") if place else None  # type: ignore[assignment]  # noqa: SIM115
    try:
        code = stepwatch_train(*flags)
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]
    ctypes.pythonapi.Py_Exit(code or 0)
    raise AssertionError("it has not ended")


def torchrun_stepwatch_train(checkpoints: str, *flags: str) -> None:
    """Its ranks are forked too; the second is killed once, as soon as there is a checkpoint.

    Flags of torchrun stand before `--`.
    """
    from torch.distributed.run import main as torchrun

    def kill_the_second(number: int) -> None:
        if (os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"], number) == ("1", "0", 6):
            while not glob(checkpoints):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)

    before_each_step(kill_the_second)
    ours = flags.index("--")
    program = [stepwatch.__main__.__file__, "train", *flags[ours + 1 :]]
    torchrun([*flags[:ours], "--run-path", "--start-method=fork", *program])


def _begin(
    program: Callable[..., None], flags: tuple[str, ...], environment: Mapping[str, str], *streams: Connection
) -> None:
    os.environ.update(environment)
    for number, stream in enumerate(streams, 1):
        os.dup2(stream.fileno(), number)
    program(*flags)


class Running:
    """A process, and what it says."""

    def __init__(
        self,
        program: Callable[..., None],
        *flags: str,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        (here, there), (here_too, there_too) = FORKING.Pipe(duplex=False), FORKING.Pipe(duplex=False)
        given = (program, flags, dict(environment), there, there_too)
        self.process = FORKING.Process(target=_begin, args=given)
        self.process.start()
        there.close()
        there_too.close()
        self.out, self.err = (os.fdopen(os.dup(stream.fileno()), encoding="utf-8") for stream in (here, here_too))

    def send_signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def ended(self) -> tuple[int | None, str, str]:
        """Its exit code, and the rest of what it said."""
        too_late = threading.Timer(PATIENCE_S, self.process.kill)
        too_late.start()
        with self.err:
            said = "" if self.out.closed else self.out.read(), self.err.read()
        self.out.close()
        self.process.join()
        too_late.cancel()
        return self.process.exitcode, *said
