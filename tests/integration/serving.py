"""A real server for tests: `stepwatch serve` in a process of its own, on a free port."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

PATIENCE_S = 60  # for a machine that has much else to do
TO_US = MappingProxyType({"timeout": PATIENCE_S, "verify": False})  # no certificates, which take 17 ms to load


@dataclass(frozen=True, slots=True)
class Serving:
    address: str
    process: subprocess.Popen[str]

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE_S)


@contextmanager
def serving(
    *arguments: str,
    temporary: Path | None = None,
    descriptors: int | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Serving]:
    """`temporary`: where the server and its workers would put temporary files."""
    command = [sys.executable, "-m", "stepwatch", "serve", "--port", "0", "--lang", "en", *arguments]
    variables = os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"} | dict(environment)
    if temporary is not None:
        variables["TMPDIR"] = str(temporary)
    if descriptors is not None:
        command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # “The page is here”
        yield Serving(process.stdout.readline().strip().rstrip("/"), process)
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=PATIENCE_S)


def iteration_lines(count: int, time_ms: float = 100.0) -> str:
    return "".join(f"iter {number}: loss 4.2000, time {time_ms:.2f}ms, mfu 9.00%\n" for number in range(count))
