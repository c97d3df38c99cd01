"""Whole inputs to start from: our own examples in every format, and real logs if a directory of them is given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
from benchmarks.mixed_lines import EVENTS
from tests import event_files, recorded
from tests.builders import a_log, random_truth
from tests.calibrations import a_calibration
from tests.planted import traceback

from stepwatch.gpus.calibration import calibration_json
from stepwatch.readers.formats import FORMATS
from stepwatch.samples import CARD, MACHINE, SCHEMA
from stepwatch.sources import kind_of
from tools.formats_page import example_of

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 5_000_000  # bytes; larger files are not used
_BEGAN_S = 1_700_000_000.0


@cache
def own_logs() -> tuple[bytes, ...]:
    """The example of every format, grown to a few dozen lines, and the logs of planted runs."""
    logs = [path.read_bytes() for path in sorted((ROOT / "examples").glob("*.log"))]
    logs += [a_log(random_truth(np.random.default_rng(seed))).encode()[:60_000] for seed in range(6)]
    for name in FORMATS:
        example = example_of(name)
        if example.startswith("(binary"):
            continue
        events = "\n".join(event.written(100) for event in EVENTS.get(name, ()))
        logs.append("\n".join([example, events, example, traceback("RuntimeError: no")]).encode())
    return (*logs, recorded.a_record().text.encode())


def _own_binaries() -> Iterator[bytes]:
    """An event file, a notebook and a W&B file."""
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


class Material(NamedTuple):
    """The material of one campaign."""

    own: tuple[bytes, ...]
    real: tuple[bytes, ...]
    binaries: tuple[bytes, ...]
    samples: tuple[bytes, ...]
    calibration: str
    record: bytes
    """A record whose clock is that of our samples."""

    def log(self, random: Random) -> bytes:
        return random.choice(self.real if self.real and random.random() < 0.75 else self.own)

    @property
    def all(self) -> tuple[bytes, ...]:
        return self.own + self.real + self.binaries


@cache
def material(corpus: str | None) -> Material:
    """Our own inputs, and all files of a directory sorted by name, so that a seed means the same everywhere."""
    files = sorted(path for path in Path(corpus).rglob("*") if path.is_file()) if corpus else []
    files = [path for path in files if path.stat().st_size <= LARGEST and path.suffix not in (".tsv", ".md")]
    real = tuple(path.read_bytes() for path in files)
    samples = tuple(path.read_bytes() for path in files if path.parent.name == "gpu-samples")
    return Material(
        own_logs(),
        tuple(data for data in real if not is_binary(data)),
        (*_own_binaries(), *filter(is_binary, real)),
        (*_own_samples(), *samples),
        json.dumps(calibration_json(a_calibration())),
        recorded.a_record().text.encode(),
    )


def is_binary(data: bytes) -> bool:
    """Whether it is a binary file, or a notebook, whose lines mean nothing outside of it."""
    notebook = data.lstrip()[:1] == b"{" and b'"cells"' in data and b'"nbformat"' in data
    return notebook or kind_of(data) in ("events", "wandb")


def _own_samples() -> Iterator[bytes]:
    """One of every kind of sample file that is read; ours goes with the record, second by second."""
    from tests.unit.sources import test_sample_files as forms

    began = int(recorded.STARTED)
    names = ["time_s", *MACHINE, *(f"gpu0_{name}" for name in CARD)]
    rows = [",".join([str(began + second), *("0.5" for _ in names[1:])]) for second in range(40)]
    yield "\n".join([f"# {SCHEMA}\tCard A", ",".join(names), *rows, ""]).encode()
    yield forms.WITH_UNITS.encode()
    for header, row in forms.EIGHT.values():
        lines = [row.format(s=second, i=card, c=40) for second in range(10, 40, 5) for card in range(2)]
        yield "\n".join([header, *lines, ""]).encode()
    yield (
        b"#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk\n"
        b" 20260301   10:00:00      0    180     60      -     95     40   9501   2475\n"
    ) * 9
    yield "".join(
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",modelName="A"}} {second} {began + second}000\n' for second in range(30)
    ).encode()
    card = {"index": 0, "name": "A", "temperature.gpu": 60, "utilization.gpu": 97, "memory.used": 9, "memory.total": 80}
    yield json.dumps([{"query_time": f"2026-03-01T10:00:{s:02}", "gpus": [card]} for s in range(9)]).encode()
    series = {"metric": {"__name__": "DCGM_FI_DEV_POWER_USAGE", "gpu": "0"}}
    values = [[began + second, "300.5"] for second in range(20)]
    yield json.dumps({"status": "success", "data": {"result": [series | {"values": values}]}}).encode()


CONFIGS = (
    "batch_size = 12\nblock_size = 1024\ngradient_accumulation_steps = 5 * 8\nmax_iters = 600000\nn_layer = 12\n"
    "n_head = 12\nn_embd = 768\neval_interval = 1000\neval_iters = 200\nlog_interval = 10\ndtype = 'bfloat16'\ncompile = True\n",
    "n_layer, n_head = 6, 6\nn_embd = 384\nblock_size: int = 256\nbatch_size = 64\nmax_iters = 5000\nlr_decay_iters = max_iters\n"
    "vocab_size = 65\ndropout = 0.2\nalways_save_checkpoint = False\nlearning_rate = 1e-3\nmtbf_hours = 40\nworld_size = 8\n",
)
CLAIMS = ("100 ms", "12 h", "150000 tok/s", "20min", "3 days", "1.5s/it", "2M-tokens/s", "40%")
ASSIGNMENTS = (
    "max_iters=6000", "tokens_per_iter=491520", "n_params=124e6", "batch_size=12", "block_size=1024", "eval_interval=250",
    "eval_iters=200", "log_interval=10", "n_layer=12", "n_head=12", "n_embd=768", "world_size=8", "mtbf_hours=12", "dropout=0.1",
    "gradient_accumulation_steps=40", "vocab_size=50304", "dtype=float16", "compile=False",
)  # fmt: skip
LIKE = ("it 12 | 0.34 s", "12/500 took 340 ms", "step 12, 3.4 it/s, loss 2.1", "epoch 1 batch 12 elapsed 00:12:31")
