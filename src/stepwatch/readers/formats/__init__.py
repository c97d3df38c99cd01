"""The interface of a reader, and the list of formats: one row and one module for each, loaded on first use.

docs/formats.md explains what the times of each format mean, and shows some of its lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import NamedTuple, TypeAlias

from stepwatch.messages import Message
from stepwatch.readers.records import Kinds, Records
from stepwatch.readers.text.line import MOST_SNIFFED
from stepwatch.run import Run, Timing, Traits
from stepwatch.sources import RECORD

NOTHING: frozenset[str] = frozenset()
EVALUATION, CHECKPOINT = "eval", "checkpoint"
BOTH = frozenset({EVALUATION, CHECKPOINT})

Untimed: TypeAlias = tuple[re.Pattern[bytes], Message]


class Reader(NamedTuple):
    """One log format. `sniff` counts how many lines of a text are iterations of this format."""

    name: str
    timing: Timing
    sniff: Callable[[bytes], float]
    parse: Callable[[bytes, int, Records], None]
    finish: Callable[[int, Records], None]
    holds: frozenset[str] = NOTHING
    """What the printed time includes besides the step: evaluations, checkpoints, both or neither."""
    traits: Traits = Traits()
    strongest: float = MOST_SNIFFED
    """The most that `sniff` returns: if another format claims more, this one need not be asked."""
    claims_any_bar: bool = False
    """Whether the progress bar of any loop before the training looks like this format."""
    untimed: tuple[Untimed, ...] = ()
    """Lines of side files, or of a stage, that show steps but no times, and what to give instead."""
    complete: Callable[[Run, Kinds, Records], Run] | None = None
    """Adds to a run what only this format shows; the events are those of the run."""


# Begins with a letter, because that is found eight times as fast as the beginning of a line.
_NANOGPT_LINE = rb"iter (?<=^iter )\d{1,12}: loss [\d.naif-]{1,16}(?: [A-Z]{1,8})?, time [\d.]{1,16}ms"

# The module that contains READER, by the name of the format. If two claim equally many lines, the first wins.
FORMATS = {
    "nanogpt": "nanogpt",
    "nanochat": "nanochat",
    "nanoswe": "nanoswe",
    "build-nanogpt": "build_nanogpt",
    "modded-nanogpt": "modded_nanogpt",
    "parameter-golf": "parameter_golf",
    "llm.c": "llm_c",
    "mingpt": "mingpt",
    "verl": "verl",
    "detectron2": "detectron2",
    "detectron2-json": "detectron2_metrics",
    "mmengine": "mmengine",
    "mmengine-json": "mmengine_json",
    "yolox": "yolox",
    "ultralytics": "ultralytics",
    "ultralytics-csv": "ultralytics_csv",
    "hf-trainer": "hf_trainer",
    "hf-notebook": "hf_notebook",
    "tqdm-loop": "tqdm_loop",
    "epoch-lines": "epoch_lines",
    "hf-state": "hf_state",
    "axolotl": "axolotl",
    "lightning": "lightning",
    "litgpt": "litgpt",
    "megatron": "megatron",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "composer": "composer",
    "mlx-lm": "mlx_lm",
    "keras": "keras",
    "time-series-library": "time_series_library",
    "mindspore": "mindspore",
    "metric-logger": "metric_logger",
    "timm": "timm",
    "minimind": "minimind",
    "olmo": "olmo",
    "fairseq": "fairseq",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "wandb-file": "wandb_file",
    "trackio": "trackio",
    "mlflow": "mlflow",
    "stepwatch": "recorder_file",
}


# Written by no other trainer: if a log begins with it, the other readers need not be loaded.
CERTAIN = {
    "nanogpt": re.compile(rb"(?m)%b(?s:.*?)%b" % (_NANOGPT_LINE, _NANOGPT_LINE)),
    "stepwatch": re.compile(rb"\A%b" % re.escape(RECORD)),
}


@cache
def reader_of(name: str) -> Reader:
    """The reader of a format, loaded on first use: most logs are nanoGPT's, and need not wait for the others."""
    reader: Reader = import_module(f"{__name__}.{FORMATS[name]}").READER
    return reader


def all_readers() -> dict[str, Reader]:
    """All readers by name."""
    return {name: reader_of(name) for name in FORMATS}
