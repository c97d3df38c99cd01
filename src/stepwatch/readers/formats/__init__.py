"""The formats: one row for each, one module for each, loaded when it is first asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import NamedTuple

from stepwatch.patterns import Pattern
from stepwatch.readers.reader import Reader
from stepwatch.sources import RECORD


class Row(NamedTuple):
    module: str
    """Of this package; it holds the READER."""
    certain: re.Pattern[bytes] | None = None
    """What no other trainer writes: where a log begins with it, the other readers need not be loaded."""


# Begins with a letter, which is searched for eight times as fast as the beginning of a line.
_NANOGPT_LINE = rb"iter (?<=^iter )\d{1,12}: loss [\d.naif-]{1,16}(?: [A-Z]{1,8})?, time [\d.]{1,16}ms"

# By name. Where two claim as many lines, the first wins.
FORMATS: dict[str, Row] = {
    "nanogpt": Row("nanogpt", certain=Pattern(rb"(?m)%b(?s:.*?)%b" % (_NANOGPT_LINE, _NANOGPT_LINE))),
    "nanochat": Row("nanochat"),
    "nanoswe": Row("nanoswe"),
    "build-nanogpt": Row("build_nanogpt"),
    "modded-nanogpt": Row("modded_nanogpt"),
    "parameter-golf": Row("parameter_golf"),
    "llm.c": Row("llm_c"),
    "mingpt": Row("mingpt"),
    "verl": Row("verl"),
    "detectron2": Row("detectron2"),
    "detectron2-json": Row("detectron2_metrics"),
    "mmengine": Row("mmengine"),
    "mmengine-json": Row("mmengine_json"),
    "yolox": Row("yolox"),
    "ultralytics": Row("ultralytics"),
    "ultralytics-csv": Row("ultralytics_csv"),
    "hf-trainer": Row("hf_trainer"),
    "hf-notebook": Row("hf_notebook"),
    "tqdm-loop": Row("tqdm_loop"),
    "epoch-lines": Row("epoch_lines"),
    "hf-state": Row("hf_state"),
    "axolotl": Row("axolotl"),
    "lightning": Row("lightning"),
    "litgpt": Row("litgpt"),
    "megatron": Row("megatron"),
    "torchtitan": Row("torchtitan"),
    "deepspeed": Row("deepspeed"),
    "composer": Row("composer"),
    "mlx-lm": Row("mlx_lm"),
    "keras": Row("keras"),
    "time-series-library": Row("time_series_library"),
    "mindspore": Row("mindspore"),
    "metric-logger": Row("metric_logger"),
    "timm": Row("timm"),
    "minimind": Row("minimind"),
    "olmo": Row("olmo"),
    "fairseq": Row("fairseq"),
    "tensorboard": Row("tensorboard"),
    "wandb": Row("wandb"),
    "wandb-file": Row("wandb_file"),
    "trackio": Row("trackio"),
    "mlflow": Row("mlflow"),
    "stepwatch": Row("recorder_file", certain=Pattern(rb"\A%b" % re.escape(RECORD))),
}


class Readers(MutableMapping[str, Reader]):
    """By name. Most logs are nanoGPT's, and need not wait for the others to be loaded."""

    def __init__(self) -> None:
        self._readers: dict[str, Reader | None] = dict.fromkeys(FORMATS)

    def __getitem__(self, name: str) -> Reader:
        reader = self._readers[name]
        if reader is None:
            reader = self._readers[name] = import_module(f"{__name__}.{FORMATS[name].module}").READER
        return reader

    def __setitem__(self, name: str, reader: Reader) -> None:
        self._readers[name] = reader

    def __delitem__(self, name: str) -> None:
        del self._readers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


READERS = Readers()
