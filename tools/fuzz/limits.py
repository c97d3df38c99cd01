"""Limits of time and memory of a process that answers damaged inputs."""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Iterator

SECONDS = 5.0  # of the processor: the machine may be busy
MEMORY_BYTES = 500_000_000


def limit_memory() -> None:
    """To so much beyond what is in use now."""
    with open("/proc/self/status") as status:
        used = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY_BYTES, resource.RLIM_INFINITY))


@contextlib.contextmanager
def without_limits() -> Iterator[None]:
    """For the engine of the charts, which reserves memory for good and takes seconds to begin."""
    timer = signal.setitimer(signal.ITIMER_PROF, 0)
    limited = resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        if limited:
            limit_memory()
        signal.setitimer(signal.ITIMER_PROF, *timer)
