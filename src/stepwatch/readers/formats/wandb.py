"""Weights & Biases: what its files show about a run besides the console output, which has the trainer's own format.

The configuration contains settings, the metadata the card. If the output has no iteration, the summary shows the mean
over the whole run. Host, user, e-mail, arguments and paths are never kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from stepwatch.bounds import LOSS, within
from stepwatch.patterns import Pattern
from stepwatch.readers.formats import BOTH, Reader
from stepwatch.readers.records import Records
from stepwatch.readers.text.arguments import settings_from
from stepwatch.run import Evaluation, Fact, Run, Timing
from stepwatch.settings import Origin, Settings, Value
from stepwatch.sources import Source, cut_off, is_cut_json

_CONFIG, _METADATA, _SUMMARY = "config.yaml", "wandb-metadata.json", "wandb-summary.json"
_OWN_KEYS = (b'"_runtime"', b'"_step"', b'"_timestamp"')
_LARGEST_BYTES = 20_000_000
_STEPS = ("train/global_step", "trainer/global_step", "global_step", "iter", "step")
# Not every word: Lightning calls the loss of a step train_loss_step, and total_steps may be what is planned.
_OTHER_STEPS = Pattern(
    r"(?i)(?:\w+[/.])?(?:(?:global|update|optimi[sz]er|opt|train|training|grad|gradient|current)_)?(?:step|iter|iteration)s?"
)
_WHOLE_RUNTIMES = ("train_runtime", "train/train_runtime")
_RUNTIMES = (*_WHOLE_RUNTIMES, "_runtime")
_VAL_LOSSES = ("eval/loss", "val/loss", "val_loss")
CARD = Pattern(r"[\w .()/+-]{2,80}")


def completed(runs: tuple[Run, ...], beside: tuple[Source, ...]) -> tuple[Run, ...]:
    """Completes the runs with what the files next to their log show; the log takes precedence."""
    files = {source.name: source.text for source in beside if source.name in (_CONFIG, _METADATA)}
    stated = _settings(files.get(_CONFIG, b""))
    card, count = _card(_object(files.get(_METADATA, b"")))
    if count == 1:  # if several are there, a run may use fewer
        stated.setdefault("world_size", 1)
    return with_settings(runs, stated, card)


def with_settings(runs: tuple[Run, ...], stated: Mapping[str, Value], card: str | None) -> tuple[Run, ...]:
    """Adds settings and a card to the runs; what the log says, and the distance of its rows, take precedence."""
    whole = []
    for run in runs:
        items = run.settings.items()
        said = Settings({name: each for name, each in items if each.origin is Origin.LOG or name == "log_interval"})
        settings = run.settings.overridden_by(Settings.of(Origin.LOG, stated)).overridden_by(said)
        whole.append(replace(run, settings=settings, gpu_text=run.gpu_text or card))
    return tuple(whole)


def with_summary(source: Source) -> Source:
    """The source with the summary as its text, if the output shows no iteration."""
    summary = next((file.text for file in source.beside if file.name == _SUMMARY), b"")
    if is_cut_json(summary) and not source.text.strip():
        raise cut_off(_SUMMARY)
    return source.holding(summary) if sniff(summary) else source


def _settings(text: bytes) -> dict[str, Value]:
    """The settings among the values of a config.yaml, which has each of them under its name as `value`."""
    if not text.strip() or len(text) > _LARGEST_BYTES:
        return {}
    import yaml  # only needed here

    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError):
        return {}
    entries = document.items() if isinstance(document, dict) else ()
    values = {str(name): entry["value"] for name, entry in entries if isinstance(entry, dict) and "value" in entry}
    return settings_from(values)


def _card(metadata: Mapping[str, object]) -> tuple[str | None, int | None]:
    """The name of the card, and how many there are."""
    devices = next((metadata[key] for key in ("gpu_nvidia", "gpu_amd", "gpu_devices") if metadata.get(key)), None)
    first = devices[0] if isinstance(devices, list) and devices else {}
    name = metadata.get("gpu") or (first.get("name") if isinstance(first, dict) else None)
    apple = metadata.get("apple") or metadata.get("gpuapple")
    if not isinstance(name, str) and isinstance(apple, dict):
        name = apple.get("name") or apple.get("gpuType")
    count = metadata.get("gpu_count") or metadata.get("gpuCount")
    known = isinstance(name, str) and CARD.fullmatch(name)
    return (str(name) if known else None), count if isinstance(count, int) else None


def _object(text: bytes) -> dict[str, object]:
    if len(text) > _LARGEST_BYTES:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# --- the summary alone ------------------------------------------------------------------------------------------


def sniff(head: bytes) -> float:
    """1 if it is a summary: an object with W&B's own keys."""
    begins = head.lstrip()[:1] == b"{"
    return 1.0 if begins and sum(key in head for key in _OWN_KEYS) > 1 else 0.0


def parse(text: bytes, first_line: int, records: Records) -> None:
    records.held += text


def finish(first_line: int, records: Records) -> None:
    text, records.held = records.held, b""
    summary = _object(text)
    if not summary and is_cut_json(text):
        raise cut_off(_SUMMARY)
    step, runtime = _step(summary), _first(summary, _RUNTIMES)
    if not (step and runtime and step >= 1 and runtime > 0 and step < 1e15):
        return
    loss = _first(summary, ("train/loss", "train_loss", "loss"))
    records.add_row(number=int(step), line=0, time_s=runtime / step, loss=math.nan if loss is None else loss)
    if step > 1:  # else it is the first step, with its warm-up
        records.events.append(Fact(line=0, name="mean_of_run", value=True))
    if _first(summary, _WHOLE_RUNTIMES) is not None:  # written when the training is over
        records.events.append(Fact(line=0, name="max_iters", value=int(step)))
    val_loss, took = _first(summary, _VAL_LOSSES), _first(summary, ("eval/runtime",))
    if val_loss is not None:
        records.events.append(Evaluation(line=0, at=int(step), val_loss=val_loss, took_s=took))


def step_key(names: Iterable[str]) -> str | None:
    """The key that counts the steps: one of the usual names, else another one that says so."""
    names = set(names)
    usual = next((name for name in _STEPS if name in names), None)
    return usual or min(filter(_OTHER_STEPS.fullmatch, names), default=None)


def _step(summary: Mapping[str, object]) -> float | None:
    """The step that the run reached."""
    named = {*_STEPS} & summary.keys() | {*filter(_OTHER_STEPS.fullmatch, summary)}
    counts = {name: count for name in named if (count := _first(summary, (name,))) is not None and count % 1 == 0}
    name = step_key(counts)
    return None if name is None else counts[name]


def _first(summary: Mapping[str, object], names: tuple[str, ...]) -> float | None:
    for name in names:
        value = summary.get(name)
        number = within(LOSS, value)
        if number is not None:
            return number
    return None


READER = Reader(
    name="wandb", timing=Timing.CUMULATIVE, holds=BOTH,
    sniff=sniff, parse=parse, finish=finish,
)  # fmt: skip
