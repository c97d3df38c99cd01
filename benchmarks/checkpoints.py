"""Checkpoints: nanoGPT's in both directions, SIGKILL at random moments, how long training waits, a full disk.

    python -m benchmarks.checkpoints [--nanogpt DIR] [--kills 200] [--megabytes 130]

Needs torch. Without a checkout of nanoGPT the exchange with it is left out, with a note; the full disk needs root.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

KILLS, MEGABYTES = 200, 130
LONGEST_S = 60.0  # for a process to save once and be killed
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
ROOT = Path(__file__).resolve().parents[1]
SHAPE = {"n_layer": 2, "n_head": 2, "n_embd": 32, "block_size": 32, "bias": False}
TEXT = "It is not the hand that shakes the cup, but the cup that shakes the hand.\n" * 60
# Processes are forked from one that has loaded torch, which takes seconds. It must not have a second thread, such as
# the one that OpenBLAS starts with numpy: a fork inherits a lock that such a thread holds, and waits for it for ever.
FORKING = multiprocessing.get_context("forkserver")
LONGEST_PAUSE_S = 0.1  # of some saves


class Killings(NamedTuple):
    """How often a process was killed while saving, and what was lost beyond one interval."""

    times: int
    lost: list[str]
    saves: int


def killings(directory: Path, *, times: int, seed: int) -> Killings:
    """Starts a process, kills it at a random moment of its saving, loads what is there, starts again from that."""
    moments = random.Random(seed)
    lost: list[str] = []
    begin = 1
    for number in range(times):
        told = _killed(directory, begin, moments.uniform(0, LONGEST_PAUSE_S))
        problem, found = _state(directory / "ckpt.pt", told)
        if problem:
            lost.append(f"kill {number + 1}: {problem}")
        begin = found + 1
    return Killings(times, lost, begin - 1)


def _save_for_ever(directory: Path, begin: int, told: Connection) -> None:
    """Saves as fast as it can, and reports each number once its save has been handed over."""
    import torch

    from stepwatch.trainer.keeper import CheckpointWriter

    torch.set_num_threads(1)
    keeper = CheckpointWriter(directory)
    args = {"n_layer": 1, "n_head": 1, "n_embd": 1, "block_size": 1, "bias": False, "vocab_size": 1}
    weights = {str(number): torch.zeros(50_000) for number in range(4)}
    for at in itertools.count(begin):
        for weight in weights.values():
            weight.fill_(at)
        checkpoint = {"model": weights, "optimizer": {}, "model_args": args, "iter_num": at, "best_val_loss": 1.0}
        keeper.save({**checkpoint, "config": {}}, at)
        told.send_bytes(b"%d" % at)  # in one piece: killed in between, half of it would be left


def _killed(directory: Path, begin: int, after_s: float) -> int:
    """The last save that a process reported before it was killed, some time after its first."""
    here, there = FORKING.Pipe(duplex=False)
    process = FORKING.Process(target=_save_for_ever, args=(directory, begin, there))
    process.start()
    there.close()
    saves = here.poll(LONGEST_S)
    time.sleep(after_s)
    process.kill()
    process.join(LONGEST_S)  # the disk may hold it up for a while
    if not saves or process.exitcode != -signal.SIGKILL:
        raise TimeoutError(f"no save, or no end, within {LONGEST_S} s: exit code {process.exitcode}")
    told = 0
    with here, suppress(EOFError):
        while True:
            told = int(here.recv_bytes())
    return told


def _state(path: Path, told: int) -> tuple[str | None, int]:
    """What is wrong with the checkpoint, if anything, and the iteration to continue from."""
    from stepwatch.errors import StepwatchError
    from stepwatch.trainer.resuming import load

    if told == 1 and not path.exists():
        return None, 0  # killed during the very first write: there was nothing to lose
    try:
        loaded = load(path)
    except StepwatchError as error:
        return str(error), told
    at = loaded["iter_num"]
    values = {float(value) for weight in loaded["model"].values() for value in weight.unique()}
    if values != {float(at)}:
        return f"weights of {sorted(values)} in the checkpoint of {at}", at
    return (f"told of save {told}, found {at}" if at < told - 1 else None), at


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Path | None]:
    """A disk of a few megabytes in memory; None if mounting is not allowed."""
    place.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def full_disk(directory: Path) -> str:
    """No room during a save, and no room before one: the previous checkpoint survives both times."""
    import torch

    from stepwatch.trainer.keeper import CheckpointWriter, Saved, replace
    from stepwatch.trainer.resuming import load

    def checkpoint(at: int, count: int) -> dict[str, Any]:
        args = SHAPE | {"vocab_size": 65}
        return {"model": {"w": torch.ones(count)}, "optimizer": {}, "model_args": args, "iter_num": at,
                "best_val_loss": 1.0, "config": {}}  # fmt: skip

    with small_disk(directory / "disk", 20) as disk:
        if disk is None:
            return "SKIPPED: only root can mount a small disk"
        saved: list[Saved] = []
        keeper = CheckpointWriter(disk, on_written=saved.append)
        keeper.save(checkpoint(1, 500_000), 1)
        keeper.wait()
        during = replace(disk / "ckpt.pt", checkpoint(2, 10_000_000), Event())
        keeper.save(checkpoint(3, 10_000_000), 3)
        keeper.close()
        assert load(disk / "ckpt.pt")["iter_num"] == 1
        assert os.listdir(disk) == ["ckpt.pt"]
        return f"during: {during}; before: {saved[-1].failed}; the older checkpoint is there and whole"


class Waiting(NamedTuple):
    """Seconds that training waited for each save, the plain way and ours, and the steps while ours were written."""

    plain_s: list[float]
    ours_s: list[float]
    quiet_steps_s: list[float]
    busy_steps_s: list[float]


def waiting(directory: Path, megabytes: int, saves: int = 5) -> Waiting:
    """Alternates nanoGPT's torch.save over ckpt.pt with the CheckpointWriter, with small matrix products in between."""
    import torch

    from stepwatch.trainer.keeper import CheckpointWriter, Saved

    count = 32
    weights = {str(number): torch.randn(megabytes * 250_000 // count) for number in range(count)}
    matrix, batch = torch.randn(_WIDTH, _WIDTH), torch.randn(_TOKENS, _WIDTH)
    written: list[Saved] = []
    keeper = CheckpointWriter(directory / "ours", on_written=written.append)
    keeper.expect({"model": weights})
    keeper.wait()
    found = Waiting([], [], [], [])
    for number in range(saves):
        began = time.perf_counter()
        torch.save({"model": weights}, directory / "plain.pt")
        found.plain_s.append(time.perf_counter() - began)
        found.quiet_steps_s.extend(_step(matrix, batch) for _ in range(20))
        waited = keeper.begin({"model": weights}, number)
        # The gradients, while the weights are copied or written: 6 operations per weight and token. A checkpoint
        # has 12 bytes per weight.
        operations = 6 * megabytes * 1e6 / 12 * len(batch)
        for _ in range(max(1, round(operations / _OPERATIONS))):
            found.busy_steps_s.append(_step(matrix, batch))
        found.ours_s.append(waited + keeper.settle())
        while len(written) <= number:
            found.busy_steps_s.append(_step(matrix, batch))
    keeper.close()
    return found


_WIDTH, _TOKENS, _PRODUCTS = 384, 256, 60
_OPERATIONS = 2 * _PRODUCTS * _TOKENS * _WIDTH**2  # per step


def _step(matrix: Any, batch: Any) -> float:
    began = time.perf_counter()
    for _ in range(_PRODUCTS):
        batch = (batch @ matrix).tanh()
    return time.perf_counter() - began


def exchange(nanogpt: Path, directory: Path) -> Iterator[str]:
    """The real nanoGPT trains on our data, we load its checkpoint, and it samples and resumes from ours."""
    import torch

    from stepwatch.trainer.keeper import CheckpointWriter
    from stepwatch.trainer.resuming import load, model_state
    from stepwatch.trainer.tokenizing import prepare

    copy = directory / "nanogpt"
    shutil.copytree(nanogpt, copy, ignore=shutil.ignore_patterns(".git", "*.bin", "out*"))
    (directory / "cup.txt").write_text(TEXT)
    prepared = prepare(directory / "cup.txt", copy / "data" / "cup")
    settings = [f"--{key}={value}" for key, value in SHAPE.items() if key != "bias"]
    common = ["--dataset=cup", "--device=cpu", "--compile=False", "--eval_iters=2", "--batch_size=4",
              "--gradient_accumulation_steps=1", "--eval_interval=5", "--log_interval=1", *settings]  # fmt: skip
    _run(copy, "train.py", *common, "--max_iters=10", "--out_dir=out", "--always_save_checkpoint=True")
    yield "nanoGPT trains on what prepare wrote"
    theirs = load(copy / "out" / "ckpt.pt")
    wanted = SHAPE | {"vocab_size": prepared.vocab_size}
    assert {name: theirs["model_args"][name] for name in wanted} == wanted
    yield f"its ckpt.pt (iteration {theirs['iter_num']}) is loaded without running anything in it"
    keeper = CheckpointWriter(copy / "ours")
    keeper.save(theirs | {"model": model_state(theirs)}, theirs["iter_num"])
    keeper.close()
    again = load(copy / "ours" / "ckpt.pt")
    assert all(torch.equal(weight, again["model"][name]) for name, weight in model_state(theirs).items())
    assert _run(copy, "sample.py", "--out_dir=ours", "--device=cpu", "--num_samples=1", "--max_new_tokens=20")
    yield "sample.py prints from ours"
    log = _run(copy, "train.py", *common, "--max_iters=12", "--out_dir=ours", "--init_from=resume")
    first = _run(copy, "train.py", *common, "--max_iters=12", "--out_dir=out", "--init_from=resume")
    assert _losses(log) == _losses(first), (log, first)
    yield f"train.py resumes from ours with the losses it has from its own: {_losses(log)[:3]}"


def _losses(log: str) -> list[str]:
    return [line.split(",")[0] for line in log.splitlines() if line.startswith(("iter ", "step "))]


def _run(directory: Path, script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, script, *arguments],
        cwd=directory, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def measure(nanogpt: Path | None, *, kills: int, megabytes: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if nanogpt is None:
            yield "exchange with nanoGPT: SKIPPED, name a checkout with --nanogpt"
        else:
            yield from (f"exchange: {line}" for line in exchange(nanogpt, directory))
        yield f"full disk: {full_disk(directory)}"
        yield from _told(waiting(directory, megabytes), megabytes)
        os.environ.update(ONE_THREAD)  # of the process that forks, begun below
        found = killings(directory / "killed", times=kills, seed=0)
        yield " ".join([f"SIGKILL {kills} times during {found.saves} saves: {len(found.lost)} lost more", *found.lost])


def _told(found: Waiting, megabytes: int) -> Iterator[str]:
    plain, ours = statistics.median(found.plain_s), statistics.median(found.ours_s)
    median = statistics.median(found.quiet_steps_s)
    busy = statistics.median(found.busy_steps_s) / median, max(found.busy_steps_s) / median
    yield f"waiting, {megabytes} MB: torch.save {plain * 1e3:.0f} ms, ours {ours * 1e3:.1f} ms: {ours / plain:.3f}"
    yield f"the first of ours {found.ours_s[0] * 1e3:.1f} ms, the slowest {max(found.ours_s) * 1e3:.1f} ms"
    yield f"all {len(found.ours_s)} saves together: {sum(found.ours_s) / sum(found.plain_s):.3f}"
    yield (
        f"steps while it writes: median {busy[0]:.2f}, slowest {busy[1]:.2f} times the median of quiet ones, of which "
        f"the slowest takes {max(found.quiet_steps_s) / median:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", type=Path)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES)
    options = parser.parse_args()
    FORKING.set_forkserver_preload(["stepwatch.trainer.keeper"])
    for line in measure(options.nanogpt, kills=options.kills, megabytes=options.megabytes):
        print(line, flush=True)


if __name__ == "__main__":
    main()
