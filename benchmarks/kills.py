"""SIGKILL at random moments: of the recorder, the trainer, `watch` and the workers of `serve`; lack of descriptors.

    python -m benchmarks.kills [--kills 200] [--seconds 60]

What was readable before a kill must be readable after it, and every later question must be answered. Needs Linux; the
trainer needs torch, and is left out if torch is missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pickle
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Timer

import numpy as np
from benchmarks import recording
from benchmarks.checkpoints import LONGEST_S, ONE_THREAD
from benchmarks.serving import post, server

KILLS, SECONDS, SEED = 200, 60.0, 1
HALF_OPEN, DESCRIPTORS = 400, 24
LOG = b"".join(b"iter %d: loss 4.2000, time 100.00ms, mfu 9.00%%\n" % number for number in range(200))
# Forks a training for each line it reads, since torch takes seconds to load; see benchmarks/checkpoints.py.
TRAINING = """
import os, sys
from stepwatch.cli import main
import torch, stepwatch.trainer.loop
torch.set_num_threads(1)
assert len(os.listdir("/proc/self/task")) == 1
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.write(1, b"process %d\\n" % os.getpid())
        main(line.split())
    os.waitpid(child, 0)
    os.write(1, b"\\ndead\\n")  # the last line may be torn
"""
TINY = (
    "--device=cpu", "--n_layer=1", "--n_head=2", "--n_embd=32", "--block_size=16", "--batch_size=4",
    "--gradient_accumulation_steps=1", "--max_iters=1000000000", "--eval_interval=5", "--eval_iters=1",
    "--log_interval=1",
)  # fmt: skip


# --- the trainer ------------------------------------------------------------------------------------------------


def trainer(times: int) -> str:
    """Trained, killed, resumed, killed, …: after each kill the checkpoint is loaded and the record is read."""
    if importlib.util.find_spec("torch") is None:
        return "not measured: torch is missing"
    moments = random.Random(SEED)
    wrong, at = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        tokens = np.arange(4000, dtype=np.uint16) % 61
        for name in ("train.bin", "val.bin"):
            tokens.tofile(place / name)
        (place / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 61}))
        pipe = subprocess.PIPE
        with subprocess.Popen(
            [sys.executable, "-c", TRAINING], stdin=pipe, stdout=pipe, text=True, bufsize=1,
            env=os.environ | ONE_THREAD, start_new_session=True,
        ) as launcher:  # fmt: skip
            assert launcher.stdout is not None
            launcher.stdout.readline()  # ready
            for _ in range(times):
                deadline = Timer(LONGEST_S, os.killpg, (launcher.pid, signal.SIGKILL))
                deadline.start()
                saved = _trained_until_killed(launcher, place, moments.uniform(0.0, 0.3), resume=at > 0)
                deadline.cancel()
                found = _iteration(place / "out" / "ckpt.pt") if at or saved else 0
                # The write that was reported last may have been the previous one; nothing older than that.
                wrong += found is None or found < max(at, saved) or not _is_record(place / "out" / "run.jsonl")
                at = found or at
            launcher.communicate()
    return f"{wrong} lost or unreadable, up to iteration {at:,}"


def _trained_until_killed(launcher: subprocess.Popen[str], place: Path, after_s: float, *, resume: bool) -> int:
    """The last checkpoint that the log reported as written."""
    assert launcher.stdin is not None
    assert launcher.stdout is not None
    begin = "resume" if resume else "scratch"
    command = ("train", *TINY, f"--dataset={place}", f"--out_dir={place / 'out'}", f"--init_from={begin}")
    launcher.stdin.write(" ".join(command) + "\n")
    process = written = 0
    killer: Timer | None = None
    for line in launcher.stdout:
        if line == "dead\n":
            return written
        name, _, rest = line.partition(" ")
        process = int(rest) if name == "process" else process
        if line.startswith("checkpoint at") and "written in" in line and line.endswith("ms\n"):
            written = int(line.split()[2].rstrip(":"))
        if process and line.startswith("iter ") and killer is None:
            killer = Timer(after_s, os.kill, (process, signal.SIGKILL))
            killer.start()
    raise TimeoutError(f"not dead {LONGEST_S} s after its start")


def _iteration(path: Path) -> int | None:
    from stepwatch.errors import StepwatchError
    from stepwatch.trainer.resuming import load

    try:
        return int(load(path)["iter_num"])
    except StepwatchError:
        return None


def _is_record(path: Path) -> bool:
    """Whether every line is complete, except one before each start, which a kill may have cut."""
    torn = 0
    starts = 0
    for line in path.read_bytes().splitlines():
        try:
            starts += "stepwatch" in json.loads(line)
        except ValueError:
            torn += 1
    return torn <= starts


# --- watch ------------------------------------------------------------------------------------------------------


def watch(times: int) -> str:
    """The log that `watch` reads while it grows is the same as its writer wrote."""
    moments = random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.log"
        written = bytearray(LOG)
        path.write_bytes(written)
        wrong = 0
        for _ in range(times):
            command = [sys.executable, "-m", "stepwatch", "watch", str(path)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
                assert process.stdout is not None
                process.stdout.readline()
                time.sleep(moments.uniform(0.0, 0.2))
                with path.open("ab") as stream:
                    stream.write(LOG[:51])
                written += LOG[:51]
                process.kill()
            wrong += path.read_bytes() != written or os.listdir(folder) != ["train.log"]
    return f"{wrong} logs changed or files left"


# --- serve ------------------------------------------------------------------------------------------------------


def workers(times: int, seconds: float) -> tuple[str, str]:
    """Kills workers while questions are answered: first a number of times, then at random for a while."""
    moments = random.Random(SEED)
    with server() as (address, server_id), ThreadPoolExecutor(4) as pool:
        _status(address)
        answered: list[int] = []
        killed = 0
        asked = [pool.submit(_status, address) for _ in range(2)]
        while killed < times:
            killed += _kill_one(server_id, moments)
            time.sleep(moments.uniform(0.0, 0.2))
            for place, each in enumerate(asked):
                if each.done():
                    answered.append(each.result())
                    asked[place] = pool.submit(_status, address)
        afterwards = list(pool.map(lambda _: _status(address), range(50)))
        told = f"{answered.count(200)} of {len(answered)} answered meanwhile, {answered.count(503)} told to ask again"
        first = f"{told}; afterwards {afterwards.count(200)} of 50"
        until = time.monotonic() + seconds
        more = 0
        while time.monotonic() < until:
            more += _kill_one(server_id, moments)
            time.sleep(moments.expovariate(1.0))
            asked = [each if not each.done() else pool.submit(_status, address) for each in asked]
        afterwards = list(pool.map(lambda _: _status(address), range(50)))
        second = f"{more} kills; afterwards {afterwards.count(200)} of 50 answered"
    return first, second


def connections() -> str:
    with server() as (address, _), _half_open(address, HALF_OPEN):
        began = time.perf_counter()
        answered = [_status(address) for _ in range(20)]
        each_ms = (time.perf_counter() - began) / 20 * 1e3
        return f"{answered.count(200)} of 20 answered meanwhile, in {each_ms:.0f} ms each"


def descriptors() -> str:
    with server() as (address, server_id):
        _status(address)
        soft, hard = resource.prlimit(server_id, resource.RLIMIT_NOFILE)
        resource.prlimit(server_id, resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
        with _half_open(address, 3 * DESCRIPTORS):
            time.sleep(5.0)
        resource.prlimit(server_id, resource.RLIMIT_NOFILE, (soft, hard))
        return f"{[_status(address) for _ in range(20)].count(200)} of 20 answered afterwards"


def _status(address: str) -> int:
    try:
        post(f"{address}/api/explain?iterations=false", LOG)
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, urllib.error.URLError):
        return 0
    return 200


def _kill_one(server_id: int, moments: random.Random) -> bool:
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == server_id and b"stepwatch.web.worker" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
        except OSError:
            continue
    if not found:
        return False
    try:
        os.kill(moments.choice(sorted(found)), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def _half_open(address: str, count: int) -> Iterator[None]:
    host, _, port = address.removeprefix("http://").rstrip("/").rpartition(":")
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            connection.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
        yield


# --- the table --------------------------------------------------------------------------------------------------


def table(kills: int = KILLS, seconds: float = SECONDS) -> str:
    recorded = recording.kills(kills)
    killed, storm = workers(kills, seconds)
    rows = (
        (f"{kills} SIGKILLs of a loop with the recorder", "0 unreadable",
         f"{recorded.unreadable} unreadable, {recorded.most_lost} lines lost at most, {recorded.steps:,} steps"),
        (f"{kills} SIGKILLs of `train`, each time resumed", "0 lost", trainer(kills)),
        (f"{kills} SIGKILLs of `watch`", "0 changed", watch(kills)),
        (f"{kills} SIGKILLs of `serve`'s workers", "50 of 50", killed),
        (f"workers killed at random for {seconds:.0f} s", "50 of 50", storm),
        (f"{HALF_OPEN} half-open connections", "20 of 20", connections()),
        (f"{DESCRIPTORS} descriptors, {3 * DESCRIPTORS} half-open connections", "20 of 20", descriptors()),
    )  # fmt: skip
    return "\n".join(("| what | wanted | found |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    print(table(options.kills, options.seconds))


if __name__ == "__main__":
    main()
