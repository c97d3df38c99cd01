"""Several ranks on CPUs: same losses as one rank, checkpoints for other rank counts, SIGKILL during saves, memory.

    python -m benchmarks.cards [--only equal|kills|memory] [--kills 100] [--place DIR]

The ranks of each training are forked by one process that has loaded torch, which takes seconds. Kills continue from
what a place already contains, so that a long campaign can be run in pieces. Needs Linux and torch.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer

import numpy as np
from benchmarks.checkpoints import ONE_THREAD

KILLS, WANTED_LOSS, LONGEST_S = 100, 1e-5, 120.0
LAUNCHER = """
import os, socket, sys
import torch, torch._dynamo, torch.distributed.fsdp, torch.distributed.tensor, torch.utils.serialization.config
import stepwatch.answers.from_plans, stepwatch.cli.train, stepwatch.trainer.loop, stepwatch.trainer.sharded
from stepwatch.cli import main
torch.set_num_threads(1)
assert len(os.listdir("/proc/self/task")) == 1
print("ready", flush=True)
for line in sys.stdin:
    count, *flags = line.split()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for number in range(int(count)):
        ranks.append(os.fork())
        if ranks[-1] == 0:
            place = dict(RANK=number, LOCAL_RANK=number, WORLD_SIZE=count, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            os.environ.update({name: str(value) for name, value in place.items()})
            code = 1
            try:
                main(["train", *flags])
                code = 0
            except SystemExit as ended:
                code = ended.code or 0
            finally:
                os._exit(code)
        os.write(1, b"\\nprocess %d\\n" % ranks[-1])
    codes = [os.waitpid(rank, 0)[1] for rank in ranks]
    os.write(1, b"\\nended %s\\n" % " ".join(map(str, codes)).encode())  # the last line may be torn
"""
TINY = (
    "--device=cpu", "--n_layer=2", "--n_head=2", "--n_embd=32", "--block_size=16", "--batch_size=2",
    "--gradient_accumulation_steps=6", "--eval_interval=1000000", "--eval_iters=1", "--log_interval=1",
    "--learning_rate=1e-3", "--warmup_iters=10", "--lr_decay_iters=100000", "--dropout=0.0",
)  # fmt: skip


@contextmanager
def launcher(errors: Path) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with (
        errors.open("a") as stream,
        subprocess.Popen(
            [sys.executable, "-c", LAUNCHER], stdin=pipe, stdout=pipe, stderr=stream, text=True, bufsize=1,
            env=os.environ | ONE_THREAD, start_new_session=True,
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()  # ready; a busy machine may take a minute to load torch
        yield process
        process.communicate()


def lines_of(process: subprocess.Popen[str], ranks: int, flags: list[str]) -> Iterator[str]:
    """What the ranks print, up to the line that says how each has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    deadline = Timer(LONGEST_S, os.killpg, (process.pid, signal.SIGKILL))
    deadline.start()
    process.stdin.write(f"{ranks} {' '.join(flags)}\n")
    for line in process.stdout:
        yield line
        if line.startswith("ended "):
            deadline.cancel()
            return
    raise TimeoutError(f"the ranks had not ended after {LONGEST_S:.0f} s")


def make_data(place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    numbers = np.arange(20_000)
    tokens = ((3 * numbers + numbers // 5 * (numbers // 97 % 3)) % 61).astype(np.uint16)
    for name in ("train.bin", "val.bin"):
        tokens.tofile(place / name)
    (place / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 61}))


def losses(record: Path) -> dict[int, set[float]]:
    """The losses of each iteration, over all starts of the training; lines cut by a kill are left out."""
    found: dict[int, set[float]] = {}
    for line in (record.read_bytes() if record.exists() else b"").splitlines():
        try:
            told = json.loads(line[max(line.rfind(b'{"stepwatch"'), 0) :])
        except ValueError:
            continue
        if "step" in told and "loss" in told:
            found.setdefault(told["step"], set()).add(told["loss"])
    return found


# --- the losses of one ------------------------------------------------------------------------------------------


def equal(place: Path) -> Iterator[str]:
    flags = [*TINY, f"--dataset={place / 'data'}", "--sharding=fsdp"]
    with launcher(place / "errors") as process:

        def trained(ranks: int, out: str, last: int, begin: str = "scratch") -> dict[int, set[float]]:
            options = [*flags, f"--out_dir={place / out}", f"--max_iters={last}", f"--init_from={begin}"]
            *_, ended = lines_of(process, ranks, options)
            assert ended.split()[1:] == ["0"] * ranks, ended
            return losses(place / out / "run.jsonl")

        one, two = trained(1, "one", 60), trained(2, "two", 30)
        yield _apart("FSDP2 on two ranks against one rank", one, two)
        for ranks in (1, 2, 3):
            shutil.copytree(place / "two", place / f"on {ranks}".replace(" ", "_"))
            resumed = trained(ranks, f"on_{ranks}", 60, "resume")
            yield _apart(f"a checkpoint of two ranks, resumed on {ranks}", one, resumed)


def _apart(what: str, one: dict[int, set[float]], other: dict[int, set[float]]) -> str:
    worst = max(abs(a - b) for number, values in other.items() for a in values for b in one[number])
    return f"| {what}: losses apart at most, {len(other)} iterations | ≤ {WANTED_LOSS} | {worst:.1e} |"


# --- SIGKILL ----------------------------------------------------------------------------------------------------


def kills(place: Path, times: int) -> Iterator[str]:
    """Two ranks that save in every iteration: one of them, or both, are killed at random moments of a save."""
    state = place / "state.json"
    told = json.loads(state.read_text()) if state.exists() else {"kills": 0, "jobs": 0, "saves": 0, "wrong": []}
    flags = [*TINY, f"--dataset={place / 'data'}", "--sharding=fsdp", "--checkpoint_interval=1", "--init_from=auto"]
    out = place / "killed"
    with launcher(place / "errors") as process:
        while told["kills"] < times:
            moments = random.Random(told["kills"])
            options = [*flags, f"--out_dir={out}", "--max_iters=1000000"]
            told["saves"] += _until_killed(process, options, moments, told)
            told["kills"] += 1
            told["wrong"] += [f"kill {told['kills']}: {what}" for what in _wrong(out, told)]
            state.write_text(json.dumps(told))
        found = losses(out / "run.jsonl")
        reached = max(found)
        options = [*TINY, f"--dataset={place / 'data'}", "--sharding=fsdp", f"--out_dir={place / 'never'}"]
        if max(losses(place / "never" / "run.jsonl"), default=-1) < reached:
            shutil.rmtree(place / "never", ignore_errors=True)
            *_, ended = lines_of(process, 2, [*options, f"--max_iters={reached}"])
            assert ended == "ended 0 0\n", ended
    expected = losses(place / "never" / "run.jsonl")
    other = [number for number, values in found.items() if values != expected[number]]
    left_out = sorted(set(range(reached + 1)) - found.keys())
    what = f"{told['kills']} SIGKILLs during saves ({told['jobs']} of both ranks, the others of one)"
    figures = f"{len(told['wrong'])} lost or damaged, {told['saves']} saves; {reached + 1} iterations"
    yield f"| {what} | 0 lost | {figures} |"
    yield f"| … losses that differ from a run without kills, to the last digit | 0 | {len(other)} |"
    yield f"| … iterations that no start has recorded | – | {len(left_out)} (the last lines of a killed process) |"
    yield from (f"| {what} | | |" for what in told["wrong"])


def _until_killed(
    process: subprocess.Popen[str], options: list[str], moments: random.Random, told: dict[str, int]
) -> int:
    """How many saves were reported as complete; `told` keeps the newest of them."""
    ranks: list[int] = []
    killer: Timer | None = None
    begun = saves = 0
    at, after_s = moments.randint(2, 4), moments.uniform(0.0, 0.5)  # at least one save is complete by then
    for line in lines_of(process, 2, options):
        if line.startswith("process "):
            ranks.append(int(line.split()[1]))
        written = re.match(r"checkpoint at (\d+): written in [\d.]+ms$", line)
        if written:
            saves, told["newest"] = saves + 1, int(written[1])
        begun += line.startswith("saving checkpoint")
        if begun == at and killer is None:
            victims = list(ranks) if moments.random() < 0.5 else [moments.choice(ranks)]
            told["jobs"] += len(victims) == 2
            killer = Timer(after_s, _kill, victims)
            killer.start()
    if killer is None:
        raise RuntimeError("the ranks ended before they were killed: see the file errors")
    return saves


def _kill(*processes: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _wrong(out: Path, told: dict[str, int]) -> Iterator[str]:
    """What is wrong after a kill: every directory with a checkpoint's name must be complete, and one must be new."""
    from stepwatch.errors import StepwatchError
    from stepwatch.trainer.resuming import load

    found = []
    for path in out.glob("ckpt_sharded_*"):
        if not path.name.endswith(".tmp"):
            try:
                found.append(int(load(path)["iter_num"]))
            except StepwatchError as error:
                yield str(error)
    if max(found, default=-1) < told.get("newest", -1):
        yield f"told of {told['newest']}, found {found}"


# --- memory -----------------------------------------------------------------------------------------------------


def memory(place: Path, nanogpt: Path) -> Iterator[str]:
    """The peak memory of a training that saves, next to nanoGPT's with the same flags; 124 M parameters."""
    flags = [
        "--device=cpu", "--compile=False", "--dtype=float32", "--n_layer=12", "--n_head=12", "--n_embd=768",
        "--block_size=64", "--batch_size=1", "--gradient_accumulation_steps=1", "--max_iters=3", "--eval_interval=2",
        "--eval_iters=1", "--log_interval=1", "--always_save_checkpoint=True",
    ]  # fmt: skip
    text = place / "words"
    text.mkdir(exist_ok=True)
    for name in ("train.bin", "val.bin"):
        (np.arange(20_000) * 7 % 50_000).astype(np.uint16).tofile(text / name)
    data = nanogpt / "data" / "words"
    data.mkdir(parents=True, exist_ok=True)
    for name in ("train.bin", "val.bin"):
        shutil.copyfile(text / name, data / name)
    other = [sys.executable, "train.py", *flags, "--dataset=words", f"--out_dir={place / 'theirs'}"]
    theirs = _peak_bytes(other, nanogpt)
    own = [sys.executable, "-m", "stepwatch", "train", *flags, f"--dataset={text}", f"--out_dir={place / 'own'}"]
    ours = _peak_bytes(own, place)
    yield (
        f"| peak memory with saves over nanoGPT's, 124 M parameters | ≤ 1.1 | {ours / theirs:.2f} "
        f"({ours / 1e6:,.0f} MB and {theirs / 1e6:,.0f} MB) |"
    )
    lines = (json.loads(line) for line in (place / "own" / "run.jsonl").read_text().splitlines())
    steps = [line["s"] for line in lines if "step" in line][1:]
    yield f"| … slowest step over the median one | ≤ 1.3 | {max(steps) / float(np.median(steps)):.2f} |"


def _peak_bytes(command: list[str], directory: Path) -> int:
    process = subprocess.Popen(
        command, cwd=directory, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return used.ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("equal", "kills", "memory"))
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--place", type=Path)
    parser.add_argument("--nanogpt", type=Path, help="a checkout, for memory")
    asked = parser.parse_args()
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        place = (asked.place or Path(folder)).resolve()
        make_data(place / "data")
        print("| what | wanted | found |\n|---|---|---|")
        if asked.only in (None, "equal"):
            print("\n".join(equal(place)), flush=True)
        if asked.only in (None, "kills"):
            print("\n".join(kills(place, asked.kills)), flush=True)
        if asked.only in (None, "memory") and asked.nanogpt is not None:
            print("\n".join(memory(place, asked.nanogpt.resolve())), flush=True)
    print(f"this process used {time.process_time() - began:.0f} s of CPU time", file=sys.stderr)


if __name__ == "__main__":
    main()
