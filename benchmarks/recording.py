"""What the recorder costs and whether its figures hold: overhead, planted sleeps, kills, a full disk, a slow rank.

    python -m benchmarks.recording [--kills 200] [--only-cost]

The overhead is that of a loop with the recorder against the same loop without it, alternating in one run; the rest are
real loops in separate processes.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from stepwatch.analysis import analyse
from stepwatch.readers import read
from stepwatch.recorder import Recorder
from stepwatch.sources import from_file
from stepwatch.units import Interval

WANTED_ERROR, WANTED_ERROR_S, WANTED_SUM = 0.02, 0.001, 0.01
KILLS, SEED = 200, 1
RANKS, SLOW_RANK, SLOWER = 8, 5, 1.6
_TURNS, _PHASES_A_TURN, _PAIRS = 5000, 20, 300  # short turns, so that few of them are interrupted by other programs
QUICK = (
    "What a phase adds is measured in 5,000 short turns: the quickest tenth of them, in which the machine did least "
    "else, with the median in brackets. An empty loop beside it varies by a factor of 1.6, too."
)
_TMPFS_BYTES = 64 * 1024
_WORK = bytes(20_000_000)
_STEP_S = 0.010


# --- overhead ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """Microseconds per phase, over many short turns."""

    quick_us: float
    """Of the quickest tenth: the turns in which the machine did least else."""
    median_us: float

    def __str__(self) -> str:
        return f"{self.quick_us:.1f} µs (median {self.median_us:.1f})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What a phase adds, and shares of a step of 10 ms."""

    step: Added
    data_and_step: Added
    five: Added
    write: Added
    share_of_step: float
    share_of_data_step_and_note: float
    share_of_write: float
    training: Training | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Of a real training step: how long it takes, and what the recorder takes before and after it."""

    step_ms: float
    step_us: float
    data_step_and_note_us: float


def overhead() -> Overhead:
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder) / "run.jsonl")
        descriptor = os.open(Path(folder) / "plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        turns = {
            lambda: _steps(recorder): 1, lambda: _data_and_steps(recorder): 2, lambda: _all_five(recorder): 5,
            lambda: _writes(descriptor): 1,
        }  # fmt: skip
        step, data_and_step, five, write = _added(turns)
        shares = _shares_of_a_step(
            lambda: _recorded_step(recorder), lambda: _all_recorded(recorder), lambda: _written_step(descriptor)
        )
        training = _training(recorder)
        recorder.close()
        os.close(descriptor)
    return Overhead(
        step=step, data_and_step=data_and_step, five=five, write=write, share_of_step=shares[0],
        share_of_data_step_and_note=shares[1], share_of_write=shares[2], training=training,
    )  # fmt: skip


def _added(turns: dict[Callable[[], None], int]) -> list[Added]:
    """Measures each turn next to an empty one, so that other load on the machine affects all of them.

    `turns` has the number of phases in each turn.
    """
    added: list[list[float]] = [[] for _ in turns]
    for _ in range(_TURNS):
        for found, (turn, phases) in zip(added, turns.items(), strict=True):
            empty, full = _seconds(_nothing), _seconds(turn)
            found.append(1e6 * (full - empty) / _PHASES_A_TURN / phases)
    return [Added(quick_us=statistics.quantiles(us, n=10)[0], median_us=statistics.median(us)) for us in added]


def _seconds(turn: Callable[[], None]) -> float:
    begun = time.perf_counter()
    turn()
    return time.perf_counter() - begun


def _nothing() -> None:
    for _ in range(_PHASES_A_TURN):
        pass


def _steps(recorder: Recorder) -> None:
    for _ in range(_PHASES_A_TURN):
        with recorder.step():
            pass


def _data_and_steps(recorder: Recorder) -> None:
    for _ in range(_PHASES_A_TURN):
        with recorder.data():
            pass
        with recorder.step():
            pass


def _all_five(recorder: Recorder) -> None:
    """Three of the five are lines, and one has a note."""
    for _ in range(_PHASES_A_TURN):
        with recorder.data():
            pass
        with recorder.step() as step:
            with recorder.wait():
                pass
            step.note(loss=3.2)
        with recorder.evaluation():
            pass
        with recorder.checkpoint():
            pass


def _writes(descriptor: int) -> None:
    for _ in range(_PHASES_A_TURN):
        os.write(descriptor, b'{"step":123456,"s":0.012345,"t":1763264000.123456}\n')


def _shares_of_a_step(*turns: Callable[[], None]) -> list[float]:
    """What each turn takes beyond the same work alone, about 10 ms: measured in pairs, with either one first.

    After 10 ms of other work nothing of the recorder is in the processor's caches: that is its real cost in a step.
    """
    ratios: list[list[float]] = [[] for _ in turns]
    for number in range(_PAIRS):
        for place, turn in enumerate(turns):
            order = (turn, _work) if number % 2 else (_work, turn)
            took = {act: _seconds(act) for act in order}
            ratios[place].append(took[turn] / took[_work] - 1)
    return [statistics.median(found) for found in ratios]


def _recorded_step(recorder: Recorder) -> None:
    with recorder.step():
        _work()


def _all_recorded(recorder: Recorder) -> None:
    with recorder.data():
        pass
    with recorder.step() as step:
        _work()
        step.note(loss=3.2)


def _written_step(descriptor: int) -> None:
    _work()
    os.write(descriptor, b'{"step":123456,"s":0.012345,"t":1763264000.123456}\n')


def _work() -> None:
    """10 ms outside of the interpreter, like a training step. It also leaves cold caches, like a step."""
    hashlib.sha256(_work_of_a_step()).digest()


@functools.cache
def _work_of_a_step() -> memoryview:
    """As many bytes as this machine hashes in 10 ms."""
    took = statistics.median(_seconds(lambda: hashlib.sha256(_WORK).digest()) for _ in range(20))
    return memoryview(_WORK)[: min(int(len(_WORK) * _STEP_S / took), len(_WORK))]


def _training(recorder: Recorder) -> Training | None:
    """A GPT that takes about 10 ms per step, on one thread; None without torch.

    Its steps vary by more than the recorder takes, so the recorder itself is timed: from the previous step to the work,
    and from the work to the next step.
    """
    train = _gpt()
    if train is None:
        return None
    works, steps, all_of_it = [], [], []
    for _ in range(_PAIRS):
        works.append(_seconds(train))
        begun = time.perf_counter()
        with recorder.step():
            before = time.perf_counter() - begun
            train()
            begun = time.perf_counter()
        steps.append(before + time.perf_counter() - begun)
        train()
        begun = time.perf_counter()
        with recorder.data():
            pass
        with recorder.step() as step:
            before = time.perf_counter() - begun
            train()
            begun = time.perf_counter()
            step.note(loss=3.2)
        all_of_it.append(before + time.perf_counter() - begun)
    step_ms, step_us, all_us = map(statistics.median, (works, steps, all_of_it))
    return Training(step_ms=1e3 * step_ms, step_us=1e6 * step_us, data_step_and_note_us=1e6 * all_us)


def _gpt() -> Callable[[], object] | None:
    try:
        import torch

        from stepwatch.trainer.model import GPT, GPTConfig
    except ImportError:
        return None
    torch.set_num_threads(1)
    model = GPT(GPTConfig(n_layer=2, n_head=4, n_embd=64, block_size=64, vocab_size=64))
    optimizer = torch.optim.AdamW(model.parameters())

    def train(tokens: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        _, loss = model(tokens, tokens)
        loss.backward()
        optimizer.step()
        loss.item()

    batches = (torch.randint(0, 64, (size, 64)) for size in count(1))
    turns = (functools.partial(train, tokens) for tokens in batches)
    return next(turn for turn in turns if statistics.median(_seconds(turn) for _ in range(20)) >= _STEP_S)


# --- planted sleeps ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """For each kind, the largest error against what the loop itself timed, in seconds and as a share; and the sum."""

    worst: dict[str, tuple[float, float]]
    sum_error: float

    @property
    def holds(self) -> bool:
        parts = all(seconds <= WANTED_ERROR_S or share <= WANTED_ERROR for seconds, share in self.worst.values())
        return parts and self.sum_error <= WANTED_SUM


def planted() -> Planted:
    """A real loop that sleeps. Its own clock around each sleep is the truth: a sleep may take longer than requested."""
    truth: dict[str, float] = {}

    def pause(kind: str, seconds: float) -> None:
        begun = time.perf_counter()
        time.sleep(seconds)
        truth[kind] = truth.get(kind, 0.0) + time.perf_counter() - begun

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        recorder = Recorder(path)
        begun = time.perf_counter()
        with recorder.compile():
            pause("compile", 0.3)
        for number in range(100):
            with recorder.data():
                pause("data", 0.003)
            with recorder.step():
                pause("step", 0.012)
                if number % 25 == 24:
                    with recorder.evaluation():
                        pause("eval", 0.08)
                        with recorder.checkpoint():
                            pause("checkpoint", 0.04)
        wall = time.perf_counter() - begun
        recorder.close()
        found = _sums(path)
    truth["step"] += truth["data"]  # data is part of the step
    worst = {kind: (abs(found[kind] - truth[kind]), abs(found[kind] / truth[kind] - 1)) for kind in truth}
    parts = sum(found[kind] for kind in ("compile", "step", "eval", "checkpoint"))
    return Planted(worst=worst, sum_error=abs(parts / wall - 1))


def _sums(path: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in _lines(path):
        for kind in ("compile", "step", "eval", "checkpoint"):
            if kind in line:
                found[kind] = found.get(kind, 0.0) + line["s"]
        found["data"] = found.get("data", 0.0) + line.get("data_s", 0.0)
    return found


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            yield json.loads(line)


# --- kills ------------------------------------------------------------------------------------------------------

# Before and after each step the child reports its progress through a pipe: the file must contain as much.
_CHILD = """
import os, sys
from stepwatch.recorder import Recorder
recorder = Recorder(sys.argv[1])
while True:
    with recorder.step() as step:
        step.note(loss=3.25)
    os.write(1, b".")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kills:
    kills: int
    unreadable: int
    most_lost: int
    steps: int


def kills(count: int = KILLS, seed: int = SEED) -> Kills:
    rng = random.Random(seed)
    lost, unreadable, steps = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            path = Path(folder) / f"run{number}.jsonl"
            done = _killed(path, rng.uniform(0.0, 0.05))
            whole = path.read_bytes().split(b"\n")[:-1]
            try:
                kept = sum("step" in json.loads(line) for line in whole)
            except json.JSONDecodeError:
                unreadable += 1
                continue
            lost.append(done - kept)
            steps += kept
    return Kills(kills=count, unreadable=unreadable, most_lost=max(lost), steps=steps)


def _killed(path: Path, after_s: float) -> int:
    """How many steps the child had reported when it was killed; it was killed after it had begun."""
    with subprocess.Popen([sys.executable, "-c", _CHILD, str(path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        told = len(child.stdout.read(1))
        time.sleep(after_s)
        child.send_signal(signal.SIGKILL)
        return told + len(child.stdout.read())


# --- a full disk ------------------------------------------------------------------------------------------------


def full_disk() -> dict[str, int] | None:
    """A small real disk, completely filled by the record itself; None if it cannot be mounted."""
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={_TMPFS_BYTES}", "tmpfs", folder], capture_output=True, check=False
        ).returncode:
            return None
        try:
            return _filled(Path(folder))
        finally:
            subprocess.run(["umount", folder], check=False)


def _filled(folder: Path) -> dict[str, int]:
    code = (
        "import sys\nfrom stepwatch.recorder import Recorder\nrecorder = Recorder(sys.argv[1])\nsteps = 0\n"
        "for _ in range(5000):\n    with recorder.step():\n        steps += 1\nprint(steps)\n"
    )
    path = folder / "run.jsonl"
    told = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    warnings = told.stderr.count("RuntimeWarning")
    kept = sum("step" in line for line in _lines(path))
    return {"steps": int(told.stdout or 0), "warnings": warnings, "kept": kept, "exit code": told.returncode}


# --- ranks ------------------------------------------------------------------------------------------------------


def train_on_ranks(
    path: Path, *, ranks: int = RANKS, slow: int = SLOW_RANK, slower: float = SLOWER, steps: int = 60
) -> None:
    """Real processes that meet at the end of each step; one of them is slow."""
    context = multiprocessing.get_context("spawn")
    meeting = context.Barrier(ranks)
    workers = [
        context.Process(target=_rank, args=(str(path), rank, ranks, slower if rank == slow else 1.0, steps, meeting))
        for rank in range(ranks)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _rank(path: str, rank: int, ranks: int, factor: float, steps: int, meeting: Barrier) -> None:
    recorder = Recorder(path, rank=rank, world_size=ranks)
    for _ in range(steps):
        with recorder.step() as step:
            step.note(slept=_seconds(lambda: time.sleep(0.02 * factor)))
            with recorder.wait():
                meeting.wait()
    recorder.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRank:
    """Which rank the analysis names, by how much, and the truth: sleeps take longer than asked on a busy machine."""

    named: int | None
    skew: Interval | None
    truth: float


def slow_rank() -> SlowRank:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        train_on_ranks(path)
        (run,) = read(from_file(path))
        ranks = analyse(run).ranks
        slept = [_slept(path.with_name(f"run.rank{rank}.jsonl") if rank else path) for rank in range(RANKS)]
    others = statistics.median(slept[:SLOW_RANK] + slept[SLOW_RANK + 1 :])
    truth = slept[SLOW_RANK] / others - 1
    if ranks is None or not ranks.chronic:
        return SlowRank(named=None, skew=None, truth=truth)
    return SlowRank(named=ranks.slowest, skew=ranks.skew, truth=truth)


def _slept(path: Path) -> float:
    return statistics.median(line["slept"] for line in _lines(path) if "slept" in line)


def table(count: int = KILLS) -> str:
    rows = [
        *_rows_of_cost(overhead()),
        *_rows_of_sleeps(planted()),
        _row_of_kills(kills(count)),
        _row_of_disk(full_disk()),
        _row_of_rank(slow_rank()),
    ]
    return f"{QUICK}\n\n{_as_table(rows)}"


def _as_table(rows: Iterable[Row]) -> str:
    return "\n".join(["| what | wanted | found |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)])


Row = tuple[str, str, str]


def _rows_of_cost(cost: Overhead) -> Iterator[Row]:
    def times_write(added: Added) -> str:
        return f"{added}, {added.quick_us / cost.write.quick_us:.1f} times the bare write of a line"

    yield "a step adds", "≤ 5 µs", times_write(cost.step)
    yield "a phase adds, in a loop of data and step", "≤ 5 µs", str(cost.data_and_step)
    yield "a phase adds, in a loop of all five with a note", "≤ 2 µs", times_write(cost.five)
    bare = f"{100 * cost.share_of_write:.2f} % a bare write in its place"
    yield "share of a step of 10 ms", "≤ 1 %", f"{100 * cost.share_of_step:.2f} % ({bare})"
    yield "the same with data and a note", "≤ 1 %", f"{100 * cost.share_of_data_step_and_note:.2f} %"
    if cost.training is None:
        yield "share of a real training step", "≤ 1 %", "not measured: no torch here"
        return
    step_ms, *added = cost.training.step_ms, cost.training.step_us, cost.training.data_step_and_note_us
    shares = [f"{each / step_ms / 10:.2f} % ({each:.0f} µs of {step_ms:.1f} ms)" for each in added]
    yield "share of a real training step (a GPT in torch)", "≤ 1 %", shares[0]
    yield "the same with data and a note", "≤ 1 %", shares[1]


def _rows_of_sleeps(sleeps: Planted) -> Iterator[Row]:
    for kind, (seconds, share) in sleeps.worst.items():
        yield f"planted sleeps: {kind}", "≤ 2 % or 1 ms", f"{100 * share:.2f} %, {1000 * seconds:.2f} ms in all"
    yield "parts against the wall", "≤ 1 %", f"{100 * sleeps.sum_error:.2f} %"


def _row_of_kills(killed: Kills) -> Row:
    files = f"{killed.unreadable} unreadable files, {killed.steps} steps"
    return f"{killed.kills} kills, lines lost at most", "≤ 1", f"{killed.most_lost} ({files})"


def _row_of_disk(disk: dict[str, int] | None) -> Row:
    found = f"{disk['steps']} of 5000 steps, {disk['warnings']} warning" if disk else "not measured: no tmpfs here"
    return "a disk filled to the brim", "5000 steps, 1 warning", found


def _row_of_rank(slow: SlowRank) -> Row:
    wanted = f"rank {SLOW_RANK}, {100 * slow.truth:.0f} %"
    skew = slow.skew
    found = (
        f"rank {slow.named}, {100 * skew.mid:.0f} % ({100 * skew.low:.0f} to {100 * skew.high:.0f})" if skew else "none"
    )
    return f"of {RANKS} ranks, one slow: named, with its skew", wanted, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--only-cost", action="store_true", help="what a phase adds, in half a minute")
    asked = parser.parse_args()
    print(_as_table(_rows_of_cost(overhead())) if asked.only_cost else table(asked.kills))


if __name__ == "__main__":
    main()
