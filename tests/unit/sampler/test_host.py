"""Figures of this very machine and of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from stepwatch.sampler.host import Machine, quota_of

BUSY = "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass"


def test_the_work_of_a_process_and_its_children_is_seen() -> None:
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BUSY!r}])"
    with subprocess.Popen([sys.executable, "-c", parent]) as process:
        try:
            while not any(child.cpu_times().user for child in psutil.Process(process.pid).children()):
                time.sleep(0.05)
            machine = Machine(process.pid)
            machine.read()
            time.sleep(0.5)
            figures = machine.read()
        finally:
            for one in (*psutil.Process(process.pid).children(), process):  # a child without its parent is not found
                one.kill()
    assert figures["processes"] >= 2
    assert 0.05 < figures["busiest_cpu"] <= figures["training_cpu"] + 1e-9
    assert figures["training_cpu"] < figures["processors"] + 0.5
    assert 0 < figures["cpu"] <= 1
    assert figures["memory_used_bytes"] < figures["memory_total_bytes"]


def test_a_stopped_process_is_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY]) as process:
        try:
            process.send_signal(19)  # SIGSTOP
            time.sleep(0.2)
            assert Machine(process.pid).read()["stopped"] == 1
        finally:
            process.kill()


def test_a_process_that_is_gone_has_no_figures_of_its_own() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert Machine(process.pid).read()["processes"] == 0


def test_processes_that_may_not_be_looked_at_are_unknown_and_not_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: psutil.Process) -> str:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "status", refuse)
    machine = Machine(os.getppid())
    machine.read()
    figures = machine.read()
    assert not {"processes", "training_cpu", "training_memory_bytes"} & figures.keys()
    assert {"processes", "training_cpu", "blocked"} <= set(machine.unavailable_columns)
    assert figures["memory_total_bytes"] > 0


@pytest.mark.parametrize(
    ("group", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000"}, None),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "400000 100000", "cpu.max": "max 100000"}, 4.0),
        (
            "4:memory:/x\n3:cpu,cpuacct:/on/the/host\n",
            {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"},
            2.0,
        ),
        ("3:cpu,cpuacct:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("garbage", {"cpu.max": "1 1"}, None),
    ],
    ids=["container", "no limit", "above it", "version 1", "version 1 without", "unknown"],
)
def test_the_limit_of_a_container_counts(
    tmp_path: Path, group: str, files: dict[str, str], quota: float | None
) -> None:
    for name, text in {"proc/7/cgroup": group, **{f"cgroup/{name}": text for name, text in files.items()}}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert quota_of(7, str(tmp_path / "proc"), str(tmp_path / "cgroup")) == quota


def test_without_proc_of_others_the_machine_is_seen_and_the_rest_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container of another process namespace, or with hidepid: the process is there, for others."""

    def hidden(*_: object) -> psutil.Process:
        raise psutil.NoSuchProcess(4711)

    monkeypatch.setattr(psutil, "Process", hidden)
    machine = Machine(4711)
    machine.read()
    time.sleep(0.1)  # until the kernel has counted something
    figures = machine.read()
    assert 0 <= figures["cpu"] <= 1
    assert {"training_cpu", "busiest_cpu", "major_faults_per_s"} <= set(machine.unavailable_columns)


def test_without_proc_at_all_each_question_fails_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError("/proc/diskstats")

    for name in ("cpu_times", "disk_io_counters", "net_io_counters"):
        monkeypatch.setattr(psutil, name, refuse)
    machine = Machine(os.getpid())
    machine.read()
    figures = machine.read()
    assert figures["memory_total_bytes"] > 0
    assert {"cpu", "disk_busy", "network_bytes_per_s"} <= set(machine.unavailable_columns)


def test_nothing_is_called_missing_before_the_second_reading() -> None:
    """Rates need two readings: a command shorter than the interval has one."""
    machine = Machine(os.getpid())
    machine.read()
    assert machine.unavailable_columns == ()


def test_without_a_process_only_the_machine_is_read() -> None:
    machine = Machine()
    machine.read()
    figures = machine.read()
    assert "processes" not in figures
    assert machine.pids == frozenset()
    assert "training_cpu" not in machine.unavailable_columns
