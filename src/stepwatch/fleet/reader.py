"""A process that reads logs one after the other: a log that needs too much time or memory does not affect the others.

The owner of the process kills it when a log takes too long. This works the same on this machine and in a Dask worker,
whose own process must outlive any log.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO

from stepwatch.fleet.rows import LogTask, Rows, failed, rows_of
from stepwatch.messages import Message
from stepwatch.platforms import limit_memory

ATTEMPTS = 3
"""A process may die for reasons other than its log; Dask tries as often."""
ATTEMPTS_KILLED = 20
"""As its memory is limited, a process ended by SIGKILL was not ended because of its log."""


class ReaderProcess:
    """Holds one process, which is started when it is first needed."""

    def __init__(self, *, time_s: float, memory_bytes: int) -> None:
        self._time_s, self._memory_bytes = time_s, memory_bytes
        self._process: subprocess.Popen[bytes] | None = None

    def rows_of(self, asked: LogTask) -> Rows:
        deaths = killed = 0
        while deaths - killed < ATTEMPTS and killed < ATTEMPTS_KILLED:
            process = self._ready()
            late = threading.Event()
            timer = threading.Timer(self._time_s, lambda late=late, process=process: (late.set(), process.kill()))
            timer.start()
            try:
                _send(process.stdin, asked)
                assert process.stdout is not None
                rows: Rows = pickle.load(process.stdout)  # written by our own process
                return rows
            except (OSError, EOFError, pickle.UnpicklingError):
                if late.is_set():
                    self.close()
                    text = Message("reading it takes longer than {time:time}", {"time": self._time_s})
                    return failed(asked.name, "time", text)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                deaths, killed = deaths + 1, killed + (process.returncode == -9)  # SIGKILL
                self.close()
            finally:
                timer.cancel()
        text = Message("the process that reads it has died {count:n} times", {"count": deaths})
        return failed(asked.name, "died", text)

    def _ready(self) -> subprocess.Popen[bytes]:
        """A process that is fully loaded; one that dies earlier does not count against the log."""
        failures = 0
        for _ in range(200):  # all killed at their start: something on this machine does not want them
            if self._process is not None and self._process.poll() is None:
                return self._process
            self.close()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stepwatch.fleet.reader", str(self._memory_bytes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            with suppress(EOFError, pickle.UnpicklingError):
                assert self._process.stdout is not None
                pickle.load(self._process.stdout)
                return self._process
            if self._process.wait() >= 0 and (failures := failures + 1) == ATTEMPTS:  # not killed: it cannot start
                break
        raise RuntimeError("processes that read logs cannot be started")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with suppress(OSError):  # what was not sent is lost with the process
                        stream.close()
            self._process.wait()
            self._process = None


def _send(stream: IO[bytes] | None, value: object) -> None:
    assert stream is not None
    stream.write(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
    stream.flush()


def main() -> None:
    limit_memory(int(sys.argv[1]))
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that no library can write between the replies
    gc.freeze()  # what is loaded stays
    gc.set_threshold(50_000)  # a log leaves few reference cycles; looking for them often takes 7 % of the time
    _send(replies, "ready")
    while True:
        try:
            asked = pickle.load(sys.stdin.buffer)
        except (EOFError, KeyboardInterrupt):
            return
        assert isinstance(asked, LogTask)
        rows = rows_of(asked)
        _send(replies, rows)
        if any(row["cause"] == "memory" for row in rows.get("failures", ())):
            return  # the remaining memory is fragmented: the next log gets a new process


if __name__ == "__main__":
    main()
