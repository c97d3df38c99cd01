"""What the sampler costs: its share of one processor, its memory, and what it adds to the time of a training.

    python -m benchmarks.sampler [--seconds 60] [--pairs 20]

The sampler runs as the recorder starts it, once a second, beside a training with some workers. Then the same work is
done again and again with and without it, in turn; what is compared is processor time of the training itself, which
other programs change far less than its wall time.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

WORK = "sum(i * i for i in range(12_000_000))"  # about a second
WORKERS = """
import subprocess, sys, time
for _ in range(4): subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
time.sleep(600)
"""


def sampler(path: Path, pid: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "stepwatch.sampler", str(path), str(pid), str(os.getpid())])


def cost(seconds: float, place: Path) -> tuple[float, float]:
    """The share of one processor, without the start, and the memory at its highest, in MB."""
    with subprocess.Popen([sys.executable, "-c", WORKERS], start_new_session=True) as training:
        with sampler(place / "samples.csv", training.pid) as process:
            time.sleep(5.0)  # its start
            watched = psutil.Process(process.pid)
            begin, began = watched.cpu_times(), time.monotonic()
            time.sleep(seconds)
            end, took_s = watched.cpu_times(), time.monotonic() - began
            highest = watched.memory_info().rss
            process.terminate()
        os.killpg(training.pid, 9)
    return (end.user + end.system - begin.user - begin.system) / took_s, highest / 1e6


def once() -> float:
    """Processor seconds of the work."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", WORK], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def added(pairs: int, place: Path) -> tuple[float, float]:
    """The median over pairs of what the work takes longer beside a sampler, and half the width of its 90 % interval."""
    once()
    ratios = []
    for number in range(pairs):
        took = {}
        for sampled in (number % 2 == 0, number % 2 == 1):
            beside = sampler(place / "beside.csv", os.getpid()) if sampled else None
            if beside is not None:
                time.sleep(1.0)  # its start is not the training's time
            took[sampled] = once()
            if beside is not None:
                beside.terminate()
                # Not waited for by rusage of the next: it is reaped here, between two measurements.
                beside.wait()
        ratios.append(took[True] / took[False] - 1)
    spread = statistics.stdev(ratios) if len(ratios) > 1 else float("nan")
    return statistics.median(ratios), 1.645 * 1.253 * spread / len(ratios) ** 0.5  # 1.253: of a median


def measure(seconds: float = 60.0, pairs: int = 20) -> str:
    with tempfile.TemporaryDirectory() as place:
        share, megabytes = cost(seconds, Path(place))
        longer, doubt = added(pairs, Path(place))
    return (
        f"| of one processor | memory | added to the processor time of a training, {pairs} pairs |\n|---|---|---|\n"
        f"| {share:.2%} (wanted: ≤ 1 %) | {megabytes:.0f} MB (≤ 30 MB) | {longer:+.2%} ± {doubt:.2%} (< 0.5 %) |\n"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pairs", type=int, default=20)
    print(measure(**vars(parser.parse_args())), end="")
