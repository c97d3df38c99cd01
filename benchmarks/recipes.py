"""`recipe=modern` against nanoGPT's: the time to nanoGPT's validation loss, and the share of each part in the gain.

    python -m benchmarks.recipes [--only characters|tokens] [--seeds 1,2,3] [--parts] [--write]

Text and tokens are made from what comes with every Python: the topics of its help, and the sources of its standard
library. Each run is a separate process with one thread; the recipes alternate. What counts is the processor time of the
training steps, without start, evaluation and saving. Results are kept in benchmarks/data/recipes.jsonl, and a run with
a result is not repeated; `--write` only writes the tables of docs/train.md. Seed 1 is the one that the recipe was tuned
with.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "benchmarks/data/recipes.jsonl"
PAGE = REPOSITORY / "docs/train.md"
TUNED = 1
PARTS = ("muon", "rotary", "qk_norm", "relu2", "zero_init", "cap", "untied", "value_embeddings", "warm_down")
GPT2_TOKENS = 50257
# How GPT-2 splits a text into words, without its letters of other scripts.
_PIECE = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z_]+| ?[0-9]+| ?[^\sA-Za-z_0-9]+|\s+")
# The unmodified trainer, with a CPU clock around each step.
_RUNNER = """
import json, sys, time
from stepwatch.trainer import loop
from stepwatch.trainer.config import config_from_flags, train_config
from stepwatch.trainer.distributed import Ranks
from stepwatch.trainer.log import Log
config = train_config(config_from_flags(sys.argv[1:]))
spent = []
step, evaluate = loop.TrainingLoop.step, loop.TrainingLoop.evaluate
def timed(self, number):
    began = time.process_time()
    told = step(self, number)
    spent.append(time.process_time() - began)
    return told
def watched(self):
    improved = evaluate(self)
    losses.append((self.training.iteration, self.training.best_val_loss))
    return improved
losses = []
loop.TrainingLoop.step, loop.TrainingLoop.evaluate = timed, watched
loop.train(config, Ranks(), Log(speaks=False))
print(json.dumps({"cpu_s": sum(spent[: config.max_iters]), "val_loss": dict(losses)[config.max_iters]}))
"""

Flags = Mapping[str, object]


class Text(NamedTuple):
    """A text to learn, with a model of a size that takes a minute to train."""

    name: str
    what: str
    flags: Flags
    lengths: tuple[int, ...]
    """The lengths of runs with recipe=modern; the last one is used if a part is left out."""


_COMMON: Flags = {
    "device": "cpu", "compile": False, "gradient_accumulation_steps": 1, "block_size": 64, "eval_splits": "val",
    "always_save_checkpoint": False, "learning_rate": 1e-3, "log_interval": 100,
}  # fmt: skip
# nanoGPT's own for small models (config/train_shakespeare_char.py); the other has no warm-up and ends at zero.
_NANOGPT: Flags = {"recipe": "nanogpt", "warmup_iters": 100, "min_lr": 1e-4, "beta2": 0.99}
_MODERN: Flags = {"recipe": "modern", "warmup_iters": 0, "min_lr": 0.0}
ITERATIONS = 2000
TEXTS = (
    Text(
        "characters",
        "characters of Python's help, 3 layers of 64, batches of 8 × 64",
        {"n_layer": 3, "n_head": 2, "n_embd": 64, "batch_size": 8, "eval_iters": 80},
        (500, 300),
    ),
    Text(
        "tokens",
        "50,257 tokens of Python's library, 2 layers of 32, batches of 2 × 64",
        {"n_layer": 2, "n_head": 2, "n_embd": 32, "batch_size": 2, "eval_iters": 80},
        (500,),
    ),
)


# --- the data ---------------------------------------------------------------------------------------------------


def make_data(place: Path) -> None:
    _write(place / "data/characters", _characters())
    _write(place / "data/tokens", _tokens())


def _characters() -> tuple[np.ndarray[Any, Any], list[str]]:
    from pydoc_data import topics

    text = "".join(topics.topics[name] for name in sorted(topics.topics))
    letters = sorted(set(text))
    number = {letter: place for place, letter in enumerate(letters)}
    return np.array([number[letter] for letter in text], dtype=np.uint16), letters


def _tokens() -> tuple[np.ndarray[Any, Any], None]:
    """The most frequent words of the library's sources, and single bytes for everything else."""
    library = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in library.rglob("*.py") if not {"site-packages", "test", "tests"} & {*path.parts})
    pieces = [piece for path in files for piece in _PIECE.findall(path.read_text(encoding="utf-8", errors="replace"))]
    words = [word for word, _ in Counter(pieces).most_common(GPT2_TOKENS - 256)]
    number = {word: 256 + place for place, word in enumerate(words)}
    found: list[int] = []
    for piece in pieces:
        token = number.get(piece)
        found.extend([token] if token is not None else piece.encode())
    return np.array(found, dtype=np.uint16), None


def _write(directory: Path, data: tuple[np.ndarray[Any, Any], list[str] | None]) -> None:
    tokens, letters = data
    directory.mkdir(parents=True)
    edge = int(0.9 * len(tokens))
    tokens[:edge].tofile(directory / "train.bin")
    tokens[edge:].tofile(directory / "val.bin")
    if letters is not None:
        numbers = {letter: number for number, letter in enumerate(letters)}
        meta = {"vocab_size": len(letters), "itos": dict(enumerate(letters)), "stoi": numbers}
        (directory / "meta.pkl").write_bytes(pickle.dumps(meta))


# --- the runs ---------------------------------------------------------------------------------------------------


class Wanted(NamedTuple):
    text: str
    recipe: str
    seed: int
    iterations: int
    without: str = ""
    learning_rate: float = 1e-3


def wanted(text: Text, seeds: list[int], *, parts: bool) -> Iterator[Wanted]:
    for seed in seeds:
        yield Wanted(text.name, "nanogpt", seed, ITERATIONS)
        for length in text.lengths:
            yield Wanted(text.name, "modern", seed, length)
    if parts:
        yield Wanted(text.name, "nanogpt", TUNED, text.lengths[-1])
        for part in PARTS:
            yield Wanted(text.name, "modern", TUNED, text.lengths[-1], part)
        yield Wanted(text.name, "nanogpt", TUNED, ITERATIONS, learning_rate=3e-3)


def known() -> dict[Wanted, dict[str, Any]]:
    found = {}
    for line in RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else ():
        row = json.loads(line)
        found[Wanted(*(row[name] for name in Wanted._fields))] = row
    return found


def measure(place: Path, run: Wanted) -> dict[str, Any]:
    text = next(text for text in TEXTS if text.name == run.text)
    own = _MODERN if run.recipe == "modern" else {**_NANOGPT, "min_lr": run.learning_rate / 10}
    flags = {
        **_COMMON, **text.flags, **own, "dataset": run.text, "seed": run.seed, "max_iters": run.iterations,
        "lr_decay_iters": run.iterations, "eval_interval": run.iterations, "learning_rate": run.learning_rate,
        "out_dir": str(place / "out" / str(os.getpid())),
    }  # fmt: skip
    if run.without:
        flags["without"] = run.without
    command = [sys.executable, "-c", _RUNNER, *(f"--{name}={value}" for name, value in flags.items())]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{run} failed:\n{done.stdout[-500:]}\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**run._asdict(), **found, "python": sys.version.split()[0]}


# --- the tables -------------------------------------------------------------------------------------------------


def ratios(text: Text, found: Mapping[Wanted, Mapping[str, Any]]) -> dict[int, tuple[Wanted, float]]:
    """For each seed, the shortest run of recipe=modern that reaches nanoGPT's loss, and its time over nanoGPT's."""
    reached = {}
    for run, row in found.items():
        if run == Wanted(text.name, "nanogpt", run.seed, ITERATIONS):
            ends = [
                (other["cpu_s"] / row["cpu_s"], mine)
                for mine, other in found.items()
                if mine.text == text.name and mine.recipe == "modern" and mine.seed == run.seed and not mine.without
                and other["val_loss"] <= row["val_loss"]
            ]  # fmt: skip
            if ends:
                ratio, mine = min(ends)
                reached[run.seed] = mine, ratio
    return reached


def tables(found: Mapping[Wanted, Mapping[str, Any]]) -> Iterator[str]:
    yield "| text and model | seed | nanoGPT's recipe, 2,000 iterations | recipe=modern | time over nanoGPT's |"
    yield "|---|---|---|---|---:|"
    for text in TEXTS:
        for seed, (mine, ratio) in sorted(ratios(text, found).items()):
            theirs, own = found[Wanted(text.name, "nanogpt", seed, ITERATIONS)], found[mine]
            note = " (tuned with)" if seed == TUNED else ""
            yield (
                f"| {text.what} | {seed}{note} | {theirs['val_loss']:.3f} after {theirs['cpu_s']:.0f} s | "
                f"{own['val_loss']:.3f} after {mine.iterations} iterations, {own['cpu_s']:.0f} s | **{ratio:.2f}** |"
            )
    for text in TEXTS:
        yield from _parts(text, found)


def _parts(text: Text, found: Mapping[Wanted, Mapping[str, Any]]) -> Iterator[str]:
    """How much the loss rises without a part, as a share of how much it falls with all of them."""
    length = text.lengths[-1]
    whole, none = (found.get(Wanted(text.name, recipe, TUNED, length)) for recipe in ("modern", "nanogpt"))
    if whole is None or none is None:
        return
    gain = none["val_loss"] - whole["val_loss"]
    yield ""
    yield f"Each part left out by itself, {text.what}, {length} iterations, seed {TUNED}:"
    yield ""
    yield "| | validation loss | share of the gain | time of a step |"
    yield "|---|---:|---:|---:|"
    yield f"| recipe=modern | {whole['val_loss']:.3f} | | 1.00 |"
    for part in PARTS:
        row = found.get(Wanted(text.name, "modern", TUNED, length, part))
        if row is not None:
            lost = round(100 * (row["val_loss"] - whole["val_loss"]) / gain)
            yield f"| without {part} | {row['val_loss']:.3f} | {lost}% | {row['cpu_s'] / whole['cpu_s']:.2f} |"
    yield f"| nanoGPT's recipe | {none['val_loss']:.3f} | 100% | {none['cpu_s'] / whole['cpu_s']:.2f} |"
    tuned = found.get(Wanted(text.name, "nanogpt", TUNED, ITERATIONS, learning_rate=3e-3))
    if tuned is not None:
        yield ""
        yield (
            f"nanoGPT's recipe with three times its learning rate reaches {tuned['val_loss']:.3f} after {ITERATIONS:,} "
            "iterations."
        )


def write(found: Mapping[Wanted, Mapping[str, Any]]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    begin, end = "<!-- recipes -->", "<!-- /recipes -->"
    before, rest = page.split(begin)
    _, after = rest.split(end)
    PAGE.write_text(f"{before}{begin}\n" + "\n".join(tables(found)) + f"\n{end}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[text.name for text in TEXTS])
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--parts", action="store_true", help="leave out each part, too")
    parser.add_argument("--write", action="store_true", help="only write the tables")
    asked = parser.parse_args()
    if not asked.write:
        with tempfile.TemporaryDirectory() as folder:
            make_data(Path(folder))
            for text in TEXTS:
                if asked.only in (None, text.name):
                    for run in wanted(text, [int(seed) for seed in asked.seeds.split(",") if seed], parts=asked.parts):
                        if run not in known():
                            row = measure(Path(folder), run)
                            print(row, flush=True)
                            with RESULTS.open("a", encoding="utf-8") as stream:
                                stream.write(json.dumps(row) + "\n")
    found = known()
    write(found)
    for text in TEXTS:
        each = {seed: ratio for seed, (_, ratio) in ratios(text, found).items()}
        if each:
            held = [ratio for seed, ratio in each.items() if seed != TUNED]
            print(text.name, each, "held out:", round(statistics.median(held), 3) if held else "none")


if __name__ == "__main__":
    main()
