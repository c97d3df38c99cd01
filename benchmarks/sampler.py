"""What the sampler costs: its share of one processor, its memory, and what it adds to the time of a training.

    python -m benchmarks.sampler [--seconds 60] [--pairs 100]

The sampler runs as the recorder starts it, once a second, next to a training with some workers. Then a training that
keeps every processor busy repeats the same piece of work; during every other piece the sampler is stopped by a signal,
in the order with, without, without, with. Wall times are compared. Other programs must be quiet during this; the report
states how much of the processors they used. With 100 pairs it takes about five minutes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

WORKERS = """
import subprocess, sys, time
for _ in range(4): subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
time.sleep(600)
"""


def sampler(path: Path, pid: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "stepwatch.sampler", str(path), str(pid), str(os.getpid())])


def cost(seconds: float, place: Path) -> tuple[float, float]:
    """The share of one processor, without the start-up, and the peak memory in MB."""
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


def piece(turns: int) -> None:
    sum(number * number for number in range(turns))


def others_s() -> float:
    """Processor time of all other programs: the whole machine's, without that of our running processes."""
    times = psutil.cpu_times()
    family = (psutil.Process(), *psutil.Process().children(recursive=True))
    own = sum(sum(process.cpu_times()[:2]) for process in family)
    return sum(times[:8]) - times.idle - times.iowait - own


def added(pairs: int, place: Path) -> tuple[float, float, float, float]:
    """How much longer work takes next to a sampler, median over pairs and its 90 % interval; the share of others."""
    count = os.cpu_count() or 1
    with multiprocessing.Pool(count) as training, sampler(place / "beside.csv", os.getpid()) as beside:

        def timed(turns: int) -> float:
            began = time.perf_counter()
            training.map(piece, [turns] * count, chunksize=1)
            return time.perf_counter() - began

        timed(1_000_000)
        turns = int(1_000_000 / min(timed(1_000_000) for _ in range(5)))  # about a second
        began, foreign = time.monotonic(), others_s()
        ratios = []
        for number in range(pairs):
            took = {}
            for sampled in (number % 2 == 0, number % 2 == 1):
                beside.send_signal(signal.SIGCONT if sampled else signal.SIGSTOP)
                took[sampled] = timed(turns)
            ratios.append(took[True] / took[False] - 1)
        share = (others_s() - foreign) / (time.monotonic() - began) / count
        beside.kill()
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=pairs)) for _ in range(2000))
    return statistics.median(ratios), medians[100], medians[1899], share


def measure(seconds: float = 60.0, pairs: int = 100) -> str:
    with tempfile.TemporaryDirectory() as place:
        share, megabytes = cost(seconds, Path(place))
        longer, low, high, others = added(pairs, Path(place))
    return (
        f"| of one processor | memory | added to the wall time of a training, {pairs} pairs |\n|---|---|---|\n"
        f"| {share:.2%} (wanted: ≤ 1 %) | {megabytes:.0f} MB (≤ 30 MB) "
        f"| {longer:+.2%}, 90 %: {low:+.2%} to {high:+.2%} (< 0.5 %) |\n\n"
        f"Other programs used {others:.1%} of the processors meanwhile.\n"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pairs", type=int, default=100)
    print(measure(**vars(parser.parse_args())), end="")
