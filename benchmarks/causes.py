"""Whether `stepwatch` names what held a training back: planted causes and quiet runs, recall and precision of each.

    python -m benchmarks.causes [--count 200] [--quiet 50] [--only hot_card,quiet] [--seed 1] [--results FILE]

Causes of the processors, the disk, the memory and signals are real: real processes on this machine, started with
`stepwatch run`. Causes of the cards, and those that this machine cannot have, follow a written scenario: a stand-in for
NVIDIA's driver (benchmarks/nvml.py), read by the same sampler on a clock that does not wait. Each result is appended to
FILE as it arrives; cases that are already there are not run again. If other programs used the processors during a real
run, it is not quiet: it is tried again, or else counted separately as disturbed. A real run takes some seven seconds,
so `--only real` of 200 and 50 takes a quarter of an hour on an idle machine. Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from benchmarks.nvml import HARD_HEAT, NEIGHBOUR, SOFT_HEAT, TRAINING, Plan, Scene

from stepwatch import explain
from stepwatch.sampler import Sampler
from stepwatch.sampler.cards import Cards
from stepwatch.samples import ARRIVALS_FILE, LOG_FILE, SAMPLES_FILE

ROOT = Path(__file__).resolve().parents[1]
GB, START_S = 1e9, 1_770_000_000.0
QUIET = "quiet"
KERNEL = 2  # the number of the process whose children are the kernel's threads


def claims(directory: Path) -> set[str]:
    """The causes that the report of a run names."""
    (run,) = explain(str(directory)).runs
    assert run.analysis.machine is not None
    return {cause.code for cause in run.analysis.machine.causes}


# --- written scenarios ------------------------------------------------------------------------------------------


class Host:
    """Replaces this machine: levels of a scenario, with some noise."""

    pids = frozenset({TRAINING})
    unseen = ()

    def __init__(self, chance: random.Random, levels: Mapping[str, float]) -> None:
        processors = chance.choice([8, 16, 32, 64])
        own = chance.uniform(0.1, 0.4) * processors
        usual = {
            "cpu": own / processors + chance.uniform(0.01, 0.15), "iowait": 0.01, "memory_used_bytes": 20 * GB,
            "memory_total_bytes": 128 * GB, "swap_used_bytes": 0, "swap_bytes_per_s": 0, "disk_read_bytes_per_s": 4e7,
            "disk_write_bytes_per_s": 2e6, "disk_busy": chance.uniform(0.0, 0.4), "network_bytes_per_s": 1e6,
            "network_busy": 0.01, "processors": processors, "processes": 5, "training_cpu": own,
            "busiest_cpu": min(own, 0.8), "training_memory_bytes": 12 * GB, "threads": 80, "read_bytes_per_s": 3.5e7,
            "write_bytes_per_s": 1e5, "major_faults_per_s": 0, "blocked": 0, "stopped": 0,
            "allowed_processors": processors,
        }  # fmt: skip
        fixed = {"processors": processors} | {
            name: value * processors if name in ("training_cpu", "allowed_processors") and value <= 1 else value
            for name, value in levels.items()
        }
        self._levels, self._chance = {**usual, **fixed}, chance

    def read(self) -> dict[str, float]:
        shares = ("cpu", "disk_busy", "network_busy", "blocked")
        found = {}
        for name, level in self._levels.items():
            noise = 1.0 if name in ("processors", "allowed_processors", "stopped") else self._chance.gauss(1.0, 0.05)
            found[name] = min(level * noise, 1.0) if name in shares else level * noise
        return found


Scenario = Callable[[random.Random], tuple[list[Plan], Mapping[str, float]]]


def _several(chance: random.Random, *, everywhere: bool = False, **one: Any) -> list[Plan]:
    """One to eight working cards, the first or all of them with the given settings; sometimes also an unused one."""
    count = chance.choice([1, 1, 2, 4, 8])
    cards = [Plan(**(one if number == 0 or everywhere else {})) for number in range(count)]
    return cards + ([Plan(works=False)] if chance.random() < 0.2 else [])


def _hot(chance: random.Random) -> tuple[list[Plan], Mapping[str, float]]:
    reason = chance.choice([SOFT_HEAT, HARD_HEAT, SOFT_HEAT | HARD_HEAT])
    hot = Plan(degrees_per_w=chance.uniform(0.29, 0.36), throttles_c=chance.choice([83.0, 88.0, 91.0]), reason=reason)
    return [hot, *(Plan() for _ in range(chance.choice([0, 0, 1])))], {}


def _waits(chance: random.Random, *, far: bool = False) -> list[Plan]:
    return [Plan(wait=chance.uniform(0.35, 0.8), far=far) for _ in range(chance.choice([1, 1, 2, 4]))]


def _quiet(chance: random.Random) -> tuple[list[Plan], Mapping[str, float]]:
    """Normal conditions that may look like a cause: full memory, traffic, warmth, the usual power limit, a desktop."""
    kind = {
        "filled": lambda: {"filled": chance.uniform(0.97, 0.995), "pcie_kb": chance.uniform(1e4, 8e5)},
        "traffic": lambda: {"filled": chance.uniform(0.5, 0.9), "pcie_kb": chance.uniform(4e6, 2e7)},
        "warm": lambda: {"degrees_per_w": 0.18, "throttles_c": 92.0},
        "limit": lambda: {"draw_w": 300.0, "limit_w": chance.uniform(265.0, 285.0)},
        "waits": lambda: {"wait": chance.uniform(0.0, 0.12)},
        "desktop": lambda: {"others": {NEIGHBOUR: chance.uniform(5e6, 1.5e8)}},
    }[chance.choice(["filled", "traffic", "warm", "limit", "waits", "desktop"])]()
    return _several(chance, everywhere=True, **kind), {"disk_busy": chance.uniform(0.0, 0.6)}


SCENARIOS: Mapping[str, Scenario] = {
    "hot_card": _hot,
    "power_cap": lambda chance: (_several(chance, limit_w=chance.uniform(110.0, 190.0)), {}),
    "spilled_memory": lambda chance: (
        _several(chance, filled=chance.uniform(0.975, 0.999), pcie_kb=chance.uniform(1e7, 3e7)), {}
    ),
    "shared_card": lambda chance: (_several(chance, others={NEIGHBOUR: chance.uniform(1 * GB, 12 * GB)}), {}),
    "waits_for_data": lambda chance: (
        _waits(chance),
        {"training_cpu": 0.03, "busiest_cpu": chance.uniform(0.05, 0.5)},
    ),
    "waits_for_workers": lambda chance: (
        _waits(chance),
        {"training_cpu": chance.uniform(0.88, 0.97), "cpu": 0.97},
    ),
    "waits_for_python": lambda chance: (
        _waits(chance),
        {"training_cpu": chance.uniform(1.0, 1.3), "busiest_cpu": 1.0, "cpu": 0.15},
    ),
    "few_processors": lambda chance: (
        _waits(chance),
        {"training_cpu": 1.96, "allowed_processors": 2.0, "busiest_cpu": 0.9, "cpu": 0.3},
    ),
    "swapping": lambda chance: (
        _several(chance),
        {"swap_bytes_per_s": chance.uniform(5e6, 2e8), "major_faults_per_s": chance.uniform(200, 5000)},
    ),
    "far_processors": lambda chance: (
        _waits(chance, far=True),
        {"training_cpu": 0.03, "busiest_cpu": chance.uniform(0.05, 0.5)},
    ),
    "busy_network": lambda chance: (
        _waits(chance),
        {"network_busy": chance.uniform(0.88, 0.98), "network_bytes_per_s": 1.1e9},
    ),
    "card_apart": lambda chance: ([Plan(boost=chance.uniform(0.5, 0.75)), *[Plan()] * chance.choice([3, 7])], {}),
    QUIET: _quiet,
}  # fmt: skip


def written(cause: str, chance: random.Random, directory: Path) -> set[str]:
    """Writes the directory that `stepwatch run` would have made in three to six minutes; returns the causes found."""
    plans, levels = SCENARIOS[cause](chance)
    scene = Scene(
        plans,
        seed=chance.getrandbits(32),
        step_s=chance.uniform(0.3, 2.5),
        evaluates_every=chance.choice([20, 40, 1000]),
    )
    sampler = Sampler(directory / SAMPLES_FILE, driver=scene, clock=lambda: START_S + scene.now_s)
    sampler._machine = Host(chance, levels)
    sampler._cards = Cards(scene, processors=64, processor_of=lambda pid: 0)
    for second in range(chance.randrange(180, 360)):
        scene.advance(second + 0.4)
        sampler.sample()
    sampler.close()
    size = 0
    with open(directory / LOG_FILE, "wb") as log, open(directory / ARRIVALS_FILE, "w") as arrivals:
        for at_s, line in scene.lines:
            size += log.write(line.encode() + b"\n")
            arrivals.write(f"{START_S + at_s:.3f},{size}\n")
    return claims(directory)


# --- real processes ---------------------------------------------------------------------------------------------

TRAIN = """
import mmap, os, random, sys, time
cause, seconds, amount = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
end = time.perf_counter() + seconds
kept, file, number = [], None, 0
if cause == "waits_for_disk":
    file = os.open("data.bin", os.O_RDONLY | os.O_DIRECT)
    room = mmap.mmap(-1, 1 << 20)
begin = time.perf_counter()
while time.perf_counter() < end:
    before, begin = begin, time.perf_counter()
    if cause == "waits_for_disk":
        while time.perf_counter() - begin < 0.1:
            os.preadv(file, [room], random.randrange(os.path.getsize("data.bin") >> 20) << 20)
    elif cause == "waits_for_data":
        time.sleep(amount)  # a loader that is throttled
    if cause == "memory_leak":
        kept.append(b"x" * int(amount * 1e6 * (begin - before)))
    turns = 400_000 if cause != "waits_for_disk" else 10_000
    sum(range(turns)); sum(range(turns)); sum(range(turns))
    took = time.perf_counter() - begin
    print(f"iter {number}: loss 4.0000, time {took * 1000:.2f}ms, mfu 1.00%", flush=True)
    number += 1
"""
HOG = "while True: pass"
WRITER = """
import mmap, os, sys
file, room = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_DIRECT), mmap.mmap(-1, 1 << 23)
while True:
    for place in range(16): os.pwrite(file, room, place << 23)
"""
STAND_IN = """
import os, sys, time
sys.path.insert(0, {root!r})
from benchmarks.nvml import Plan, Scene
began = time.monotonic()
def training():
    import psutil
    return psutil.Process().children(recursive=True)[-1].pid
scene = Scene([Plan(wait={wait})], step_s=0.1, training=training)
def answer(name):
    def ask(*words):
        scene.advance(time.monotonic() - began)
        return getattr(scene, name)(*words)
    return ask
def __getattr__(name):
    if not name.startswith("nvml"): raise AttributeError(name)
    return answer(name)
"""
REAL = (
    "waits_for_data",
    "waits_for_disk",
    "busy_disk",
    "busy_processors",
    "memory_leak",
    "stopped_process",
    "waits_for_python",
    QUIET,
)


@contextmanager
def beside(*words: str) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", *words]) as process:
        try:
            yield
        finally:
            process.kill()


def real(cause: str, chance: random.Random, directory: Path) -> set[str]:
    """A training of some seconds, with its cause next to it or in it."""
    seconds = chance.uniform(4.0, 6.0)  # twenty samples and more: as many as in a minute at one per second
    amount = {"waits_for_data": chance.uniform(0.2, 0.4), "memory_leak": chance.uniform(90.0, 180.0)}.get(cause, 0.0)
    work, environment = directory.parent, dict(os.environ)
    paths = [str(ROOT / "src"), environment.get("PYTHONPATH", "")]
    if cause == "waits_for_python":
        (work / "driver").mkdir(exist_ok=True)
        text = STAND_IN.format(root=str(ROOT), wait=chance.uniform(0.4, 0.7))
        (work / "driver" / "pynvml.py").write_text(text)
        paths.insert(0, str(work / "driver"))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if cause == "waits_for_disk" and not (work / "data.bin").exists():
        (work / "data.bin").write_bytes(os.urandom(1 << 28))
        os.sync()
    with ExitStack() as stack:
        processors = os.cpu_count() or 1
        for number in range(chance.choice([processors, 2 * processors]) if cause == "busy_processors" else 0):
            stack.enter_context(beside(HOG, str(number)))
        for number in range(chance.choice([2, 4]) if cause == "busy_disk" else 0):
            stack.enter_context(beside(WRITER, str(work / f"written{number}.bin")))
        train = [sys.executable, "-c", TRAIN, cause, str(seconds), str(amount)]
        words = [sys.executable, "-m", "stepwatch", "run", "--quiet", "--interval", "0.2", "-o", str(directory)]
        process = stack.enter_context(
            subprocess.Popen([*words, "--", *train], cwd=work, env=environment, stdout=subprocess.DEVNULL)
        )
        if cause == "stopped_process":
            log, latest = directory / LOG_FILE, time.monotonic() + 60.0
            while not (log.exists() and log.stat().st_size) and time.monotonic() < latest:
                time.sleep(0.05)
            time.sleep(0.4 * seconds)
            family = psutil.Process(process.pid).children(recursive=True)
            training = next(one for one in family if one.cmdline()[1:3] == ["-c", TRAIN])
            training.suspend()
            time.sleep(chance.uniform(1.0, 2.0))
            training.resume()
        process.wait(120)
    return claims(directory)


def used() -> tuple[float, float]:
    """Processor time of all programs, and of ours that have ended plus the kernel's, which writes for them."""
    times, mine = psutil.cpu_times(), os.times()
    kernel = 0.0
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.ppid() == KERNEL:
                kernel += sum(process.cpu_times()[:2])
    busy = sum(times[:8]) - times.idle - times.iowait
    return busy, mine.user + mine.system + mine.children_user + mine.children_system + kernel


# --- all of them ------------------------------------------------------------------------------------------------


def cases(count: int, quiet: int, seed: int) -> Iterator[tuple[str, str, int]]:
    """Kind, cause and seed of each run: half of them real, the causes of each kind in turn."""
    causes = {
        kind: [cause for cause in known if cause != QUIET] for kind, known in (("written", SCENARIOS), ("real", REAL))
    }
    for number in range(count):
        kind, place = ("written", "real")[number % 2], number // 2
        yield kind, causes[kind][place % len(causes[kind])], seed * 10_000 + number
    for number in range(quiet):
        yield ("written", "real")[number % 2], QUIET, seed * 10_000 + count + number


def one(kind: str, cause: str, seed: int, place: Path) -> dict[str, object]:
    directory = place / f"{kind}-{cause}-{seed}"
    for _ in range(3 if kind == "real" else 1):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        chance, times, (busy, own) = random.Random(seed), sum(psutil.cpu_times()[:8]), used()
        found = (real if kind == "real" else written)(cause, chance, directory)
        now_busy, now_own = used()
        others = ((now_busy - busy) - (now_own - own)) / max(sum(psutil.cpu_times()[:8]) - times, 1e-9)
        disturbed = kind == "real" and others > 0.1
        if not disturbed:
            break
    return {
        "kind": kind,
        "cause": cause,
        "seed": seed,
        "found": sorted(found),
        "disturbed": disturbed,
        "others": round(others, 3),
    }


def table(results: list[dict[str, object]]) -> str:
    """Recall and precision of each cause, over the undisturbed runs."""
    planted, named, right = Counter[str](), Counter[str](), Counter[str]()
    quiet_claims = 0
    counted = [result for result in results if not result["disturbed"]]
    for result in counted:
        cause, found = str(result["cause"]), set(result["found"])  # type: ignore[call-overload]
        planted[cause] += cause != QUIET
        right[cause] += cause in found
        named.update(found)
        quiet_claims += cause == QUIET and bool(found)
    rows = ["| cause | runs | named | recall | precision |", "|---|---|---|---|---|"]
    for cause in sorted(+planted):
        precision = f"{right[cause] / named[cause]:.3f}" if named[cause] else "–"
        rows.append(
            f"| `{cause}` | {planted[cause]} | {right[cause]} | {right[cause] / planted[cause]:.3f} | {precision} |"
        )
    total, hits, claimed = planted.total(), right.total(), named.total()
    rows.append(f"| all | {total} | {hits} | {hits / max(total, 1):.3f} | {hits / max(claimed, 1):.3f} |")
    quiet = sum(result["cause"] == QUIET for result in counted)
    rows.append(
        f"\n{quiet_claims} of {quiet} quiet runs have a cause named; {len(results) - len(counted)} runs were disturbed."
    )
    return "\n".join(rows)


RESULTS = Path(tempfile.gettempdir()) / "stepwatch-causes.jsonl"


def measure(count: int = 200, quiet: int = 50, only: str | None = None, seed: int = 1, results: Path = RESULTS) -> str:
    wanted = set(only.split(",")) if only else None
    chosen = [case for case in cases(count, quiet, seed) if not wanted or wanted & set(case[:2])]
    known = {}
    if results.exists():
        for line in results.read_text().splitlines():
            result = json.loads(line)
            known[result["kind"], result["cause"], result["seed"]] = result
    with tempfile.TemporaryDirectory() as place:
        left = [case for case in chosen if case not in known or known[case]["disturbed"]]
        for number, case in enumerate(left):
            if number % 10 == 0:
                print(f"{number} of {len(left)}", file=sys.stderr, flush=True)
            known[case] = result = one(*case, Path(place))
            if {str(result["cause"])} - {QUIET} != set(result["found"]):  # type: ignore[call-overload]
                print(json.dumps(result), file=sys.stderr, flush=True)
            with results.open("a") as file:
                file.write(json.dumps(result) + "\n")
    return table([known[case] for case in chosen])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=200, help="runs with a cause")
    parser.add_argument("--quiet", type=int, default=50, help="runs without one")
    parser.add_argument("--only", help="causes, or `written`, or `real`; separated by commas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    print(measure(**vars(parser.parse_args())))
