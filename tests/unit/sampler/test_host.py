"""Figures of this very machine and of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from stepwatch.sampler.host import Machine

BUSY = "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass"


def test_the_work_of_a_process_and_its_children_is_seen() -> None:
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BUSY!r}])"
    with subprocess.Popen([sys.executable, "-c", parent]) as process:
        try:
            time.sleep(1.0)  # until the child works
            machine = Machine(process.pid)
            machine.read()
            time.sleep(1.0)
            figures = machine.read()
        finally:
            process.kill()
            subprocess.run(["pkill", "-P", str(process.pid)], check=False)
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
    assert {"processes", "training_cpu", "blocked"} <= set(machine.unseen)
    assert figures["memory_total_bytes"] > 0


def test_without_a_process_only_the_machine_is_read() -> None:
    machine = Machine()
    machine.read()
    figures = machine.read()
    assert "processes" not in figures
    assert machine.pids == frozenset()
    assert "training_cpu" not in machine.unseen
