"""Whole inputs to begin with: our own examples in every format, and real logs where a directory of them is given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from benchmarks.mixed_lines import EVENTS
from tests import event_files, recorded
from tests.builders import a_log, random_truth
from tests.planted import traceback

from stepwatch.readers import READERS

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 5_000_000  # bytes: what is larger is no input of a campaign
_BEGAN_S = 1_700_000_000.0


@cache
def own_logs() -> tuple[bytes, ...]:
    """Of every format its example, grown to some dozen lines, and the logs of the planted runs."""
    logs = [path.read_bytes() for path in sorted((ROOT / "examples").glob("*.log"))]
    logs += [a_log(random_truth(np.random.default_rng(seed))).encode()[:60_000] for seed in range(6)]
    for name, reader in READERS.items():
        if reader.example.startswith("(binary"):
            continue
        events = "\n".join(event.written(100) for event in EVENTS.get(name, ()))
        logs.append("\n".join([reader.example, events, reader.example, traceback("RuntimeError: no")]).encode())
    return (*logs, recorded.a_record().text.encode(), *own_binaries())


def own_binaries() -> Iterator[bytes]:
    """An event file, a notebook and a file of W&B."""
    from tests.unit.readers.formats.test_wandb_file import framed, history, printed, started

    yield event_files.start(_BEGAN_S) + b"".join(
        event_files.scalar(_BEGAN_S + 2.0 * step, step, "train/loss", 3.0 - step / 100) for step in range(1, 80)
    )
    rows = "".join(f"<tr><td>{100 * row}</td><td>{3 - row / 10}</td></tr>" for row in range(1, 8))
    output = {
        "output_type": "stream",
        "name": "stdout",
        "text": [f"iter {n}: loss 2.1, time {90 + n}ms\n" for n in range(30)],
    }
    table = {
        "output_type": "display_data",
        "data": {
            "text/html": f"<progress value='700' max='900'></progress> [700/900 01:10 < 00:20]<table>{rows}</table>"
        },
    }
    yield json.dumps(
        {"cells": [{"cell_type": "code", "source": [], "outputs": [output, table]}], "nbformat": 4}
    ).encode()
    steps = (history(_step=n, _timestamp=_BEGAN_S + n, _runtime=float(n), train__loss=2.0) for n in range(1, 40))
    yield framed(started({"batch_size": {"value": 8}}), *steps, printed("iter 0: loss 2.1, time 90ms\n"))


@cache
def real_logs(directory: str) -> tuple[bytes, ...]:
    """All files of a directory, by name, so that a seed means the same everywhere."""
    files = sorted(path for path in Path(directory).rglob("*") if path.is_file())
    return tuple(
        path.read_bytes() for path in files if path.stat().st_size <= LARGEST and path.suffix not in (".tsv", ".md")
    )


CONFIGS = (
    "batch_size = 12\nblock_size = 1024\ngradient_accumulation_steps = 5 * 8\nmax_iters = 600000\nn_layer = 12\n"
    "n_head = 12\nn_embd = 768\neval_interval = 1000\neval_iters = 200\nlog_interval = 10\ndtype = 'bfloat16'\ncompile = True\n",
    "n_layer, n_head = 6, 6\nn_embd = 384\nblock_size: int = 256\nbatch_size = 64\nmax_iters = 5000\nlr_decay_iters = max_iters\n"
    "vocab_size = 65\ndropout = 0.2\nalways_save_checkpoint = False\nlearning_rate = 1e-3\nmtbf_hours = 40\nworld_size = 8\n",
)
CLAIMS = ("100 ms", "12 h", "150000 tok/s", "mfu 40%", "3 days", "1.5s/it", "40%", "2e5 tokens/s", "10 GB")
ASSIGNMENTS = (
    "max_iters=6000", "tokens_per_iter=491520", "n_params=124e6", "batch_size=12", "block_size=1024", "eval_interval=250",
    "eval_iters=200", "log_interval=10", "n_layer=12", "n_head=12", "n_embd=768", "world_size=8", "mtbf_hours=12", "dropout=0.1",
    "gradient_accumulation_steps=40", "vocab_size=50304", "dtype=float16", "compile=False",
)  # fmt: skip
LIKE = ("it 12 | 0.34 s", "12/500 took 340 ms", "step 12, 3.4 it/s, loss 2.1", "epoch 1 batch 12 elapsed 00:12:31")
