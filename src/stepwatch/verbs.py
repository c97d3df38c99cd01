"""The public functions, for notebooks and scripts: they take simple inputs such as a path, a card's name or a dict."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from stepwatch import analysis, readers
from stepwatch.analysis import Analysis
from stepwatch.answers import from_logs
from stepwatch.answers.from_logs import ExplainRequest
from stepwatch.estimator import plan as planning
from stepwatch.estimator.plan import Plan
from stepwatch.gpus import Gpu, find_gpu
from stepwatch.notebook import ShownReport, shown
from stepwatch.run import Run
from stepwatch.settings import Origin, Settings, Value, parse_assignment
from stepwatch.sources import Source, from_file

Input = str | os.PathLike[str] | Source


def read(source: Input, format_name: str | None = None, *, like: str | None = None) -> tuple[Run, ...]:
    """All runs in a log. Raises NoIterations if none is timed."""
    return readers.read(source if isinstance(source, Source) else from_file(source), format_name, like=like)


def analyse(run: Run, gpu: Gpu | str | None = None, gpu_origin: str | None = None) -> Analysis:
    """What each part of the run costs, and why some iterations were slow."""
    return analysis.analyse(run, find_gpu(gpu) if isinstance(gpu, str) else gpu, gpu_origin)


def plan(
    settings: Settings | Mapping[str, Value],
    gpu: Gpu | str,
    *,
    n_gpus: int | None = None,
    link: str | None = None,
    claim: str | None = None,
) -> Plan:
    """What a run with these settings will take. Raises UsageError for settings that make no sense."""
    if not isinstance(settings, Settings):
        settings = Settings.of(Origin.USER, dict(map(parse_assignment, _assignments(settings))))
    card = find_gpu(gpu) if isinstance(gpu, str) else gpu
    return planning.plan(settings, card, n_gpus=n_gpus, link=link, claim=claim)


def explain(
    source: Input | Sequence[Input],
    *,
    gpu: str | None = None,
    settings: Mapping[str, Value] | None = None,
    config: Input | None = None,
    run: int | None = None,
    log_format: str | None = None,
    like: str | None = None,
    language: str | None = None,
) -> ShownReport:
    """Explains one or more logs; the report goes to `render`, and a notebook displays it.

    If some of several logs could not be read, its `notices` say so. The language defaults to that of the environment.
    """
    inputs = [source] if isinstance(source, (str, os.PathLike, Source)) else source
    request = ExplainRequest(
        logs=tuple(map(_plain, inputs)),
        gpu=gpu,
        config=None if config is None else _plain(config),
        settings=tuple(_assignments(settings or {})),
        run=run,
        log_format=log_format,
        like=like,
    )
    return shown(from_logs.explain(request), language)


def _plain(source: Input) -> str | Source:
    return source if isinstance(source, Source) else os.fspath(source)


def _assignments(settings: Mapping[str, Value]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]
