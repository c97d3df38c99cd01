"""`stepwatch train` in processes of its own that have torch from the start: to load it takes longer than to train.

They are forked by a process that has loaded it and done nothing else (multiprocessing's “forkserver”).
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from types import MappingProxyType

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


def torchrun_stepwatch_train(*flags: str) -> None:
    """Its ranks are forked too. Flags of torchrun stand before `--`."""
    from torch.distributed.run import main as torchrun

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
        with self.out, self.err:
            said = self.out.read(), self.err.read()
        self.process.join()
        too_late.cancel()
        return self.process.exitcode, *said
