"""The trainer next to the real nanoGPT, on the CPU: the same losses, no longer, no spikes, files exchangeable.

    python -m benchmarks.trainer --nanogpt DIR [--rounds 5] [--only losses|speed|checkpoints|ranks|…]
    python -m benchmarks.trainer --nanogpt DIR --only speed --shape accumulation [--rounds 1] [--iterations 20]

    python -m benchmarks.trainer --nanogpt DIR --only recomputing [--rounds 3] --write     into docs/train.md

DIR is a checkout of nanoGPT, which is not part of this repository. Both are run as processes with the same flags on the
same data and number of threads (one processor is left free), alternately, so that other load affects both. Times are
CPU time, as medians over the rounds: they also hold on a machine that does other work.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[1]
ROUNDS = 5
WANTED_LOSS, WANTED_TIME, WANTED_MEDIAN, WANTED_MEMORY, WANTED_SLOWEST, WANTED_WAIT = 1e-4, 1.0, 0.9, 1.1, 1.3, 0.1
WANTED_COVERED = 0.99
WANTED_CHUNKED_PEAK, WANTED_CHUNKED_TIME = 0.7, 1.05
# For both. Threads that wait for each other on a busy processor take many times as long, by chance.
THREADS = max(1, (os.cpu_count() or 2) - 1)
# nanoGPT's unmodified train.py, with a clock around torch.save.
_NANOGPT = """
import runpy, sys, time, torch
sys.argv[0] = "train.py"; sys.path.insert(0, ".")
save = torch.save
def timed(*args, **named):
    began = time.perf_counter(); save(*args, **named)
    print(f"torch.save took {(time.perf_counter() - began) * 1e3:.2f}ms")
torch.save = timed
runpy.run_path("train.py", run_name="__main__")
"""
_ITERATION = re.compile(r"^iter (\d+): loss (\S+), time ([\d.]+)ms", re.M)
_EVALUATION = re.compile(r"^step (\d+): train loss (\S+), val loss (\S+)$", re.M)
_NANOGPT_SAVE = re.compile(r"^torch\.save took ([\d.]+)ms", re.M)
_OWN_WAIT = re.compile(r"^checkpoint at \d+: waited ([\d.]+)ms", re.M)

Flags = Mapping[str, object]
_COMMON: Flags = {
    "device": "cpu", "compile": False, "dtype": "float32", "warmup_iters": 10, "lr_decay_iters": 100,
    "learning_rate": 1e-3, "log_interval": 1,
}  # fmt: skip
PARITY: Mapping[str, Flags] = {
    "no dropout": {"dataset": "characters", "n_layer": 2, "n_head": 2, "n_embd": 32, "block_size": 32, "batch_size": 4,
                   "gradient_accumulation_steps": 2, "max_iters": 100, "eval_interval": 25, "eval_iters": 4},
    "dropout 0.2, biases": {"dataset": "characters", "n_layer": 2, "n_head": 2, "n_embd": 32, "block_size": 32,
                            "batch_size": 4, "gradient_accumulation_steps": 2, "max_iters": 100, "eval_interval": 25,
                            "eval_iters": 4, "dropout": 0.2, "bias": True},
    "GPT-2's vocabulary": {"dataset": "words", "n_layer": 1, "n_head": 2, "n_embd": 32, "block_size": 32,
                           "batch_size": 2, "gradient_accumulation_steps": 1, "max_iters": 100, "eval_interval": 50,
                           "eval_iters": 2},
    "GPT-2's vocabulary, chunked loss": {"dataset": "words", "n_layer": 2, "n_head": 4, "n_embd": 128, "block_size": 64,
                                         "batch_size": 4, "gradient_accumulation_steps": 1, "max_iters": 110,
                                         "eval_interval": 50, "eval_iters": 4},
}  # fmt: skip
SHAPES: Mapping[str, Flags] = {
    "short steps, 2 x 32": {"dataset": "characters", "n_layer": 2, "n_head": 2, "n_embd": 32, "block_size": 32,
                            "batch_size": 4, "gradient_accumulation_steps": 1, "max_iters": 400, "eval_interval": 200,
                            "eval_iters": 10, "dropout": 0.0},
    "characters, 4 x 128": {"dataset": "characters", "n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64,
                            "batch_size": 12, "gradient_accumulation_steps": 1, "max_iters": 120, "eval_interval": 40,
                            "eval_iters": 10, "dropout": 0.0},
    "characters, 6 x 192 with dropout and biases": {"dataset": "characters", "n_layer": 6, "n_head": 6, "n_embd": 192,
                                                    "block_size": 64, "batch_size": 8,
                                                    "gradient_accumulation_steps": 1, "max_iters": 60,
                                                    "eval_interval": 30, "eval_iters": 8, "dropout": 0.2, "bias": True},
    "GPT-2's vocabulary, 2 x 192 (116 MB)": {"dataset": "words", "n_layer": 2, "n_head": 4, "n_embd": 192,
                                             "block_size": 64, "batch_size": 4, "gradient_accumulation_steps": 1,
                                             "max_iters": 60, "eval_interval": 20, "eval_iters": 4},
    "accumulation of four, 3 x 384 with dropout": {"dataset": "characters", "n_layer": 3, "n_head": 6, "n_embd": 384,
                                                   "block_size": 128, "batch_size": 2,
                                                   "gradient_accumulation_steps": 4, "max_iters": 40,
                                                   "eval_interval": 20, "eval_iters": 8, "dropout": 0.1},
    "GPT-2 itself, 124 M": {"dataset": "words", "n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 64,
                            "batch_size": 1, "gradient_accumulation_steps": 1, "max_iters": 8, "eval_interval": 4,
                            "eval_iters": 1},
}  # fmt: skip

LARGE_VOCABULARY: Flags = {
    "dataset": "words", "n_layer": 2, "n_head": 4, "n_embd": 128, "block_size": 64, "batch_size": 12,
    "gradient_accumulation_steps": 1, "max_iters": 8, "eval_interval": 1000, "eval_iters": 1,
}  # fmt: skip

MANY_ACTIVATIONS: Flags = {
    "dataset": "characters", "n_layer": 12, "n_head": 4, "n_embd": 128, "block_size": 128, "batch_size": 32,
    "gradient_accumulation_steps": 1, "eval_interval": 1000, "eval_iters": 1, "always_save_checkpoint": False,
}  # fmt: skip
FEW_ITERATIONS, MORE_ITERATIONS = 2, 10


# --- running both -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The results of one process."""

    wall_s: float
    cpu_s: float
    """CPU time, which other load on a machine affects least."""
    peak_bytes: float
    log: str
    losses: Mapping[str, float] = field(default_factory=dict)
    times_s: tuple[float, ...] = ()
    waits_s: tuple[float, ...] = ()


def nanogpt(checkout: Path, flags: Flags, out: Path) -> Ran:
    ran = _run([sys.executable, "-c", _NANOGPT, *_arguments(flags, out)], checkout)
    return _read(ran, _NANOGPT_SAVE)


def ours(place: Path, flags: Flags, out: Path, ranks: int = 1) -> Ran:
    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"] if ranks > 1 else []
    ran = _run([sys.executable, *start, "-m", "stepwatch", "train", *_arguments(flags, out)], place)
    return _read(ran, _OWN_WAIT)


def _arguments(flags: Flags, out: Path) -> list[str]:
    return [f"--{name}={value}" for name, value in ({**_COMMON, **flags, "out_dir": str(out)}).items()]


def _run(command: list[str], place: Path) -> Ran:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": str(THREADS)}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=place, env=environment, stdout=out, stderr=errors, text=True)
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        log, said = (stream.seek(0) or stream.read() for stream in (out, errors))
    if status:
        sys.exit(f"{' '.join(command[-4:])} failed:\n{log[-800:]}\n{said[-2000:]}")
    peak_bytes = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)  # macOS counts bytes
    return Ran(wall_s=wall_s, cpu_s=used.ru_utime + used.ru_stime, peak_bytes=peak_bytes, log=log)


def _read(ran: Ran, waits: re.Pattern[str]) -> Ran:
    losses = {f"iter {number}": float(loss) for number, loss, _ in _ITERATION.findall(ran.log)}
    for number, train, val in _EVALUATION.findall(ran.log):
        losses |= {f"train {number}": float(train), f"val {number}": float(val)}
    return Ran(
        wall_s=ran.wall_s, cpu_s=ran.cpu_s, peak_bytes=ran.peak_bytes, log=ran.log, losses=losses,
        times_s=tuple(float(time_ms) / 1e3 for _, _, time_ms in _ITERATION.findall(ran.log)),
        waits_s=tuple(float(wait) / 1e3 for wait in waits.findall(ran.log)),
    )  # fmt: skip


def apart(one: Ran, other: Ran) -> float:
    """The largest difference between two logs; both print four digits, so that half of the last one is rounding."""
    if one.losses.keys() != other.losses.keys() or not one.losses:
        sys.exit(f"the logs have different lines: {set(one.losses) ^ set(other.losses)}")
    return max(abs(one.losses[name] - other.losses[name]) for name in one.losses)


def make_data(checkout: Path, place: Path) -> None:
    """Random sentences, by characters with meta.pkl and by words without, where both programs find them under data/."""
    chance = random.Random(1)
    words = [
        "".join(chance.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(chance.randint(2, 9))) for _ in range(900)
    ]
    text = " ".join(chance.choices(words, weights=[1 / (i + 1) for i in range(len(words))], k=60_000))
    letters = sorted(set(text))
    number = {letter: i for i, letter in enumerate(letters)}
    tokens = {
        "characters": np.array([number[letter] for letter in text], dtype=np.uint16),
        "words": np.array([words.index(word) * 55 for word in text.split()], dtype=np.uint16),
    }
    (place / "data").mkdir(parents=True)
    for name, ids in tokens.items():
        directory = checkout / "data" / name
        directory.mkdir(parents=True, exist_ok=True)
        cut = int(0.9 * len(ids))
        ids[:cut].tofile(directory / "train.bin")
        ids[cut:].tofile(directory / "val.bin")
        (place / "data" / name).symlink_to(directory)
    meta = {"vocab_size": len(letters), "itos": dict(enumerate(letters)), "stoi": number}
    (checkout / "data" / "characters" / "meta.pkl").write_bytes(pickle.dumps(meta))


# --- what is measured -------------------------------------------------------------------------------------------


class Row(NamedTuple):
    what: str
    wanted: str
    found: str
    holds: bool = True


def losses(checkout: Path, place: Path) -> Iterator[Row]:
    for name, flags in PARITY.items():
        theirs, own = nanogpt(checkout, flags, place / "theirs"), ours(place, flags, place / "own")
        worst = apart(theirs, own)
        figures = f"{worst:.6f} ({len(own.losses)} figures)"
        yield Row(f"losses, {name}: apart at most", f"≤ {WANTED_LOSS}", figures, worst <= WANTED_LOSS * 1.0001)


def speed(checkout: Path, place: Path, rounds: int, shape: str = "", iterations: int | None = None) -> Iterator[Row]:
    ratios = []
    for name, flags in SHAPES.items():
        if shape not in name:
            continue
        flags = {**flags, "max_iters": iterations or flags["max_iters"]}
        pairs, alone = [], []
        # Short steps are affected most by other load, and cost the least.
        for _ in range(3 * rounds if name.startswith("short") else rounds):
            pairs.append((nanogpt(checkout, flags, place / "theirs"), ours(place, flags, place / "own")))
            alone.append(_spike_of_machine(pairs[-1][1]))
        yield Row(f"**{name}**: losses apart at most", f"≤ {WANTED_LOSS}", f"{apart(*pairs[0]):.6f}", True)
        theirs, own = (statistics.median(ran.cpu_s for ran in runs) for runs in zip(*pairs, strict=True))
        ratios.append(own / theirs)
        found = f"{own / theirs:.3f} ({own:.1f} s and {theirs:.1f} s)"
        yield Row("… processor time over nanoGPT's", f"≤ {WANTED_TIME}", found, own <= WANTED_TIME * theirs)
        theirs, own = (statistics.median(ran.peak_bytes for ran in runs) / 1e6 for runs in zip(*pairs, strict=True))
        found = f"{own / theirs:.3f} ({own:.0f} MB and {theirs:.0f} MB)"
        yield Row("… peak memory over nanoGPT's", f"≤ {WANTED_MEMORY}", found, own <= WANTED_MEMORY * theirs)
        spikes = [min(_spike(ran) for ran in runs) for runs in zip(*pairs, strict=True)]
        found = f"{spikes[1]:.2f} (nanoGPT {spikes[0]:.1f}, the machine alone {min(alone):.2f})"
        yield Row("… slowest step over the median one", f"≤ {WANTED_SLOWEST}", found, spikes[1] <= WANTED_SLOWEST)
        yield from _waiting(pairs, (place / "own" / "ckpt.pt").stat().st_size)
        covered = _covered(place / "own" / "run.jsonl")
        yield Row("… span that its phases cover", f"≥ {WANTED_COVERED}", f"{covered:.4f}", covered >= WANTED_COVERED)
    if len(ratios) > 1:
        middle = statistics.median(ratios)
        found = f"{middle:.3f} ({len(ratios)} shapes)"
        yield Row("processor time over nanoGPT's, the median", f"≤ {WANTED_MEDIAN}", found, middle <= WANTED_MEDIAN)


def _covered(path: Path) -> float:
    """The covered share of the time from the first phase of the last run in the record to its end."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    begin = max(place for place, line in enumerate(lines) if "stepwatch" in line)
    phases = [line for line in lines[begin:] if "s" in line]
    span_s = lines[-1]["t"] - min(line["t"] - line["s"] for line in phases)
    return sum(line["s"] for line in phases) / span_s


def _waiting(pairs: Sequence[tuple[Ran, Ran]], size: int) -> Iterator[Row]:
    """Compares the medians over all saves, if both have saved."""
    if not all(ran.waits_s for pair in pairs for ran in pair):
        return
    theirs, own = (statistics.median(wait for ran in runs for wait in ran.waits_s) for runs in zip(*pairs, strict=True))
    found = f"{own / theirs:.3f} ({own * 1e3:.0f} ms and {theirs * 1e3:.0f} ms)"
    asked = size >= 100e6
    what = f"… waiting for a checkpoint of {size / 1e6:.0f} MB over nanoGPT's"
    yield Row(what, f"≤ {WANTED_WAIT}" if asked else "–", found, not asked or own <= WANTED_WAIT * theirs)


def _spike(ran: Ran) -> float:
    """Leaves out the first iteration of a process, which starts threads and fills caches, in both."""
    return max(ran.times_s[1:]) / statistics.median(ran.times_s[1:])


def _spike_of_machine(ran: Ran) -> float:
    """The spike of a loop that only counts, in as many turns of the same length: the effect of other programs."""

    def turn(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            pass
        return time.perf_counter() - began

    count = round(100_000 * statistics.median(ran.times_s) / statistics.median(turn(100_000) for _ in range(9)))
    times_s = [turn(count) for _ in ran.times_s]
    return max(times_s) / statistics.median(times_s)


def checkpoints(checkout: Path, place: Path) -> Iterator[Row]:
    """Each resumes from the other's file. From its own file nanoGPT draws its first batches again, we do not."""
    first = {**PARITY["no dropout"], "max_iters": 20, "eval_interval": 20}
    then = {**first, "init_from": "resume", "max_iters": 30}
    theirs, own = place / "from nanogpt", place / "from ours"
    nanogpt(checkout, first, theirs)
    ours(place, first, own)
    saved = {directory: (directory / "ckpt.pt").read_bytes() for directory in (theirs, own)}
    gone_on = {directory: nanogpt(checkout, then, directory) for directory in saved}
    for directory, data in saved.items():
        (directory / "ckpt.pt").write_bytes(data)
    whole = nanogpt(checkout, {**first, "max_iters": 30}, place / "whole")
    own_again = ours(place, then, own)
    after = {name: whole.losses[name] for name in own_again.losses}  # both have evaluated iteration 20
    for what, worst in (
        ("both go on from nanoGPT's checkpoint", apart(gone_on[theirs], ours(place, then, theirs))),
        ("nanoGPT goes on from our checkpoint as from its own", apart(gone_on[theirs], gone_on[own])),
        ("we go on from our checkpoint as nanoGPT without a stop", apart(replace(whole, losses=after), own_again)),
    ):
        yield Row(f"{what}: apart at most", f"≤ {WANTED_LOSS}", f"{worst:.6f}", worst <= WANTED_LOSS * 1.0001)


def chunked_loss(place: Path, rounds: int) -> Iterator[Row]:
    """The same training with all logits at once and without, alternately; the median of the rounds."""
    pairs = [
        [ours(place, {**LARGE_VOCABULARY, "chunked_loss": chunked}, place / "loss") for chunked in (False, True)]
        for _ in range(rounds)
    ]
    for what, wanted, figures in (
        ("peak memory", WANTED_CHUNKED_PEAK, [(one.peak_bytes / 1e6, two.peak_bytes / 1e6) for one, two in pairs]),
        ("processor time", WANTED_CHUNKED_TIME, [(before.cpu_s, after.cpu_s) for before, after in pairs]),
    ):
        before, after = (statistics.median(side) for side in zip(*figures, strict=True))
        ratio = statistics.median(after / before for before, after in figures)
        unit = "MB" if what == "peak memory" else "s"
        found = f"{ratio:.3f} ({after:.0f} {unit} and {before:.0f} {unit})"
        yield Row(f"chunked loss, {what} over that of all logits at once", f"≤ {wanted}", found, ratio <= wanted)


def recomputing(place: Path, rounds: int) -> Iterator[Row]:
    """The same training with activations kept and recomputed, alternately; per iteration, without the start-up."""
    pairs = [[_of_iteration(place, setting) for setting in (False, True)] for _ in range(rounds)]
    kept, again = zip(*pairs, strict=True)
    tokens = f"{MANY_ACTIVATIONS['batch_size']} × {MANY_ACTIVATIONS['block_size']}"
    shape = f"{MANY_ACTIVATIONS['n_layer']} layers of {MANY_ACTIVATIONS['n_embd']}, batches of {tokens}"
    for what, unit, figures in (
        ("peak memory of the process", "MB", [[peak / 1e6 for _, peak in side] for side in (kept, again)]),
        ("processor time of an iteration", "s", [[cpu_s for cpu_s, _ in side] for side in (kept, again)]),
    ):
        before, after = map(statistics.median, figures)
        found = f"{after / before:.2f} ({after:.3g} {unit} and {before:.3g} {unit})"
        yield Row(f"activation_checkpointing, {shape}: {what} over that without", "–", found)
    saved = statistics.median(peak for _, peak in kept) - statistics.median(peak for _, peak in again)
    expected = _expected_bytes(place, False) - _expected_bytes(place, True)
    yield Row("… memory that it saves", "–", f"{saved / 1e6:.0f} MB (`estimate` expects {expected / 1e6:.0f} MB)")


def _expected_bytes(place: Path, recomputed: bool) -> float:
    """The memory of a card: that of a CPU is not estimated."""
    names = ("n_layer", "n_head", "n_embd", "block_size", "batch_size", "gradient_accumulation_steps")
    flags = {name: MANY_ACTIVATIONS[name] for name in names} | {"dtype": "float32", "compile": False, "vocab_size": 27}
    settings = [f"--{name}={value}" for name, value in {**flags, "activation_checkpointing": recomputed}.items()]
    ran = _run([sys.executable, "-m", "stepwatch", "estimate", "--gpu=4090", "--json", *settings], place)
    return float(json.loads(ran.log)["vram_bytes"]["mid"])


def _of_iteration(place: Path, recomputed: bool) -> tuple[float, float]:
    """Processor time and peak memory per iteration."""
    flags = {**MANY_ACTIVATIONS, "activation_checkpointing": recomputed}
    lengths = FEW_ITERATIONS, MORE_ITERATIONS
    few, more = (ours(place, {**flags, "max_iters": last}, place / "kept") for last in lengths)
    return (more.cpu_s - few.cpu_s) / (MORE_ITERATIONS - FEW_ITERATIONS), more.peak_bytes


def ranks(place: Path) -> Iterator[Row]:
    flags = {**PARITY["no dropout"], "gradient_accumulation_steps": 4, "max_iters": 60, "eval_iters": 5}
    one, two = ours(place, flags, place / "one"), ours(place, flags, place / "two", ranks=2)
    exact = [_recorded_losses(place / name / "run.jsonl") for name in ("one", "two")]
    worst = max(abs(a - b) for a, b in zip(*exact, strict=True))
    holds = worst <= WANTED_LOSS and apart(one, two) <= WANTED_LOSS * 1.0001
    yield Row("two ranks and one: losses apart at most", f"≤ {WANTED_LOSS}", f"{worst:.7f}", holds)


def _recorded_losses(path: Path) -> list[float]:
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return [line["loss"] for line in lines if "loss" in line]


def measure(
    checkout: Path, rounds: int, only: str | None = None, shape: str = "", iterations: int | None = None
) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "place"
        make_data(checkout, place)
        parts = {
            "losses": lambda: losses(checkout, place),
            "checkpoints": lambda: checkpoints(checkout, place),
            "ranks": lambda: ranks(place),
            "chunked_loss": lambda: chunked_loss(place, rounds),
            "recomputing": lambda: recomputing(place, rounds),
            "speed": lambda: speed(checkout, place, rounds, shape, iterations),
        }
        for name, part in parts.items():
            if name == only or (only is None and name != "recomputing"):  # that one has its place in docs/train.md
                yield from part()


def section(checkout: Path, rounds: int = ROUNDS) -> str:
    """The section of docs/performance.md."""
    threads = "one thread" if THREADS == 1 else f"{THREADS} threads"
    how = (
        f"Both in turn with {threads}, {rounds} rounds, of short steps three times as many: medians, and of the "
        "slowest step that of the best round; "
        "beside it, the machine alone: a loop that only counts, with turns as many and as long."
    )
    return f"{how}\n\n{table(measure(checkout, rounds))}"


def table(rows: Iterable[Row]) -> str:
    return "\n".join(["| what | wanted | found |", "|---|---|---|", *map(_line, rows)])


def _line(row: Row) -> str:
    return f"| {row.what} | {row.wanted} | **{row.found.split()[0]}** {row.found.partition(' ')[2]} |".replace(
        "  ", " "
    )


def write(rows: Sequence[Row]) -> None:
    page = REPOSITORY / "docs/train.md"
    begin, end = "<!-- recomputing -->", "<!-- /recomputing -->"
    before, rest = page.read_text(encoding="utf-8").split(begin)
    lines = ["| what | found |", "|---|---|", *(f"| {row.what} | {row.found} |" for row in rows)]
    page.write_text(f"{before}{begin}\n" + "\n".join(lines) + f"\n{end}{rest.split(end)[1]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", type=Path, required=True, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", choices=("losses", "speed", "checkpoints", "ranks", "chunked_loss", "recomputing"))
    parser.add_argument("--shape", default="", help="only those with this in their name")
    parser.add_argument("--iterations", type=int, help="instead of each shape's own number")
    parser.add_argument("--write", action="store_true", help="the table of --only recomputing into docs/train.md")
    asked = parser.parse_args()
    holds, rows = True, []
    for row in measure(asked.nanogpt.resolve(), asked.rounds, asked.only, asked.shape, asked.iterations):
        print(_line(row), flush=True)
        holds &= row.holds
        rows.append(row)
    if asked.write and asked.only == "recomputing":
        write(rows)
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
