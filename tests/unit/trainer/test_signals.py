"""Asking to stop: heard at once, and as often as it is asked, whatever the main thread does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from stepwatch.trainer.signals import Stop

# One call that does not come back to Python for minutes, as a long backward pass.
BUSY = """
import hashlib, sys
from stepwatch.trainer.signals import Stop
with Stop(under_torchrun=False, on_asked=lambda name: print("asked by", name, flush=True)):
    print("busy", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""


def test_two_requests_while_python_is_not_running_are_two() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "asked by SIGINT\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 128 + signal.SIGINT


def test_one_request_is_heard_and_what_was_before_comes_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Stop(under_torchrun=False) as stop:
        assert stop.asked is None
        os.kill(os.getpid(), signal.SIGTERM)
        until = time.monotonic() + 20
        while stop.asked is None and time.monotonic() < until:
            time.sleep(0.01)
        assert stop.asked == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) == before
    assert signal.set_wakeup_fd(-1) == -1


def test_torchrun_sends_a_request_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    with Stop(under_torchrun=True) as stop:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
        assert stop.asked == "SIGINT"
    assert ended == []
