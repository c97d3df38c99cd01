"""What is sampled about the machine during a run, and the names of the files that it is kept in."""

from __future__ import annotations

from collections.abc import Mapping

SCHEMA = "stepwatch.samples/1"
LOG_FILE, SAMPLES_FILE, ARRIVALS_FILE = "train.log", "samples.csv", "arrivals.csv"
PARQUET_FILE = "samples.parquet"
RUN_FILES = (LOG_FILE, SAMPLES_FILE, ARRIVALS_FILE, PARQUET_FILE)
"""The files in a directory made by `stepwatch run`."""
SAMPLES_SUFFIX = ".samples.csv"
"""The suffix of the samples of any other log: `run.samples.csv` for `run.jsonl`."""

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
"""The columns of the machine and of the training's processes; shares are 0 to 1, unknown values are empty."""

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
    """Whether heat and whether a power limit lowers a clock, from the bits of NVIDIA's nvmlClocksEventReason."""
    heat = 0x08 | 0x20 | 0x40  # slowdown by hardware, by software for heat, by hardware for heat
    power = 0x04 | 0x80  # power cap and power brake
    return bool(reasons & heat), bool(reasons & power)
