"""What the machine did during a run: figures on one clock, as columns, and where they are kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from stepwatch.run import Floats, Ints

SCHEMA = "stepwatch.samples/1"
LOG_FILE, SAMPLES_FILE, ARRIVALS_FILE = "train.log", "samples.csv", "arrivals.csv"
PARQUET_FILE = "samples.parquet"
RUN_FILES = (LOG_FILE, SAMPLES_FILE, ARRIVALS_FILE, PARQUET_FILE)
"""In a directory that `stepwatch run` has made."""


def beside(log: str) -> str:
    """Where the samples of a log are looked for, and kept by the recorder: `run.samples.csv` of `run.jsonl`."""
    return os.path.splitext(log)[0] + ".samples.csv"


def is_run_directory(path: str) -> bool:
    """Whether `stepwatch run` has made it."""
    return os.path.isfile(os.path.join(path, LOG_FILE)) and samples_in(path) is not None


def log_in(path: str) -> str:
    """The log of a directory that `stepwatch run` has made, else the path itself."""
    return os.path.join(path, LOG_FILE) if is_run_directory(path) else path


def samples_in(path: str) -> str | None:
    """Of the directory of a run; its lines where both are there, since those are written up to the end."""
    files = (os.path.join(path, name) for name in (SAMPLES_FILE, PARQUET_FILE))
    return next(filter(os.path.isfile, files), None)


def samples_of_log(path: str) -> str | None:
    """Where the samples are that belong to a log, or to the directory of a run."""
    if os.path.isdir(path):
        return path if is_run_directory(path) else None
    if os.path.basename(path) == LOG_FILE and is_run_directory(os.path.dirname(path) or "."):
        return os.path.dirname(path) or "."
    return found if os.path.isfile(path) and os.path.isfile(found := beside(path)) else None


def files_of_samples(found: str) -> list[str]:
    """All that is read with them, there or not."""
    return [os.path.join(found, name) for name in RUN_FILES] if os.path.isdir(found) else [found]


MACHINE: Mapping[str, str] = {
    "cpu": "share of all processors that are busy",
    "iowait": "share of all processors that wait for a disk",
    "load": "processes running or waiting to run, mean of one minute",
    "memory_used_bytes": "memory in use, without what can be dropped at once",
    "memory_total_bytes": "memory of the machine",
    "swap_used_bytes": "memory swapped to disk",
    "swap_bytes_per_s": "memory swapped to disk and back",
    "disk_read_bytes_per_s": "read from all disks",
    "disk_write_bytes_per_s": "written to all disks",
    "disk_busy": "share of the time in which the busiest disk was busy",
    "network_bytes_per_s": "sent and received, without the loopback",
    "network_busy": "share of its speed that the busiest network link uses, in one direction",
    "processors": "processors of the machine",
    "processes": "processes of the training",
    "training_cpu": "processors that the training keeps busy",
    "busiest_cpu": "processors that the busiest of its processes keeps busy",
    "training_memory_bytes": "memory of the training, shared pages counted in each process",
    "threads": "threads of the training",
    "read_bytes_per_s": "read from disk by the training",
    "write_bytes_per_s": "written to disk by the training",
    "major_faults_per_s": "pages of the training that had to come from disk",
    "blocked": "share of its processes that wait for a disk and cannot be interrupted",
    "stopped": "share of its processes that were stopped by a signal",
    "allowed_processors": "processors that the training may use, by its affinity and the limit of its container",
}
"""The columns of the machine and of the training's processes; shares are 0 to 1, unknown is empty."""

CARD: Mapping[str, str] = {
    "utilisation": "share of the time in which a kernel ran",
    "memory_used_bytes": "memory in use",
    "memory_total_bytes": "memory of the card",
    "sm_clock_hz": "clock of its processors",
    "max_sm_clock_hz": "highest possible clock",
    "power_w": "power drawn",
    "power_limit_w": "power allowed",
    "temperature_c": "temperature",
    "hot": "1 if the driver lowers the clock because of heat",
    "capped": "1 if the driver lowers the clock because of the power limit",
    "pcie_bytes_per_s": "sent to and received from the host",
    "other_memory_bytes": "memory in use by processes that are not of the training",
    "other_processes": "processes on the card that are not of the training",
    "far": "share of the training's processes on the card that ran on processors of another NUMA node",
}
"""The columns of one card."""


def slowed_by(reasons: int) -> tuple[bool, bool]:
    """Whether heat and whether power lowers a clock, from the bits of NVIDIA's nvmlClocksEventReason."""
    heat = 0x08 | 0x20 | 0x40  # slowdown by hardware, by software for heat, by hardware for heat
    power = 0x04 | 0x80  # power cap and power brake
    return bool(reasons & heat), bool(reasons & power)


class Card(NamedTuple):
    """One graphics card, a value for each sample; unknown is nan, a column that was never seen is absent."""

    number: int
    name: str
    columns: Mapping[str, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Figures of the machine at rising times."""

    at_s: Floats
    """Seconds since 1970; since the first sample where the file has no clock."""
    machine: Mapping[str, Floats] = field(default_factory=dict)
    cards: tuple[Card, ...] = ()
    has_clock: bool = True
    arrivals: tuple[Floats, Ints] | None = None
    """When lines of the log came, and how many there were by then; only of a run that we started."""
    source: str = ""
    outside: tuple[str, ...] = ()
    """Columns of the values that no machine can have: these are unknown."""

    def __len__(self) -> int:
        return len(self.at_s)
