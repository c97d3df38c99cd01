"""Answers before a run: `estimate` and `advise`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from stepwatch.advice import advice_on_plan
from stepwatch.answers import is_log, of_config
from stepwatch.errors import ConfigGiven, InputError
from stepwatch.estimator.plan import Plan, named_shape, plan
from stepwatch.gpus import Gpu
from stepwatch.gpus.links import checked_link
from stepwatch.gpus.names import card_of_config, count_in, named_card
from stepwatch.messages import Message
from stepwatch.platforms import quoted, quoted_path
from stepwatch.report import AdviceReport, PlanReport
from stepwatch.settings import Origin, Settings, parse_assignment
from stepwatch.sources import Source, from_file

ON_WINDOWS = sys.platform == "win32"


@dataclass(frozen=True, kw_only=True)
class EstimateRequest:
    """An estimate for a config, or for nanoGPT's defaults if there is none."""

    config: str | Source | None = None
    """A config, or a log whose header has the settings."""
    settings: tuple[str, ...] = ()
    model: str | None = None
    depth: int | None = None
    gpu: str | None = None
    gpus: int | None = None
    link: str | None = None
    claim: str | None = None
    vocabulary: Callable[[str], int | None] | None = None
    """Returns the size of a dataset's vocabulary, if its data is on this machine."""


@dataclass(frozen=True, kw_only=True)
class AdviseRequest(EstimateRequest):
    """Advice on a log, else on a config before its run; with neither, a config is recommended."""

    log: str | Source | None = None
    run: int | None = None
    log_format: str | None = None


def estimate(request: EstimateRequest) -> PlanReport:
    """What a config will take on a card, before the run, and whether a claimed figure is possible."""
    settings, remarks = _settings_before(request)
    card, origin = _card_before(request.gpu, settings)
    found = plan(
        settings,
        card,
        gpu_origin=origin,
        n_gpus=request.gpus or count_in(request.gpu),
        link=checked_link(request.link, card),
        claim=request.claim,
    )
    advice = advice_on_plan(found, windows=ON_WINDOWS)
    return PlanReport(plan=found, advice=advice, remarks=(*remarks, *found.notes))


def advise(request: AdviseRequest) -> AdviceReport:
    """What to change, what it saves and what it costs; or a recommended config."""
    cards = request.gpus or count_in(request.gpu)
    config = request.config if isinstance(request.config, str) else None
    if config is not None and os.path.isabs(config):
        config = os.path.basename(config)  # a path may name a person
    if request.log is not None:
        from stepwatch.answers.from_logs import ExplainRequest, explain, with_notices

        report = explain(
            ExplainRequest(
                logs=(request.log,),
                gpu=request.gpu,
                gpus=request.gpus,
                config=request.config,
                settings=request.settings,
                run=request.run,
                log_format=request.log_format,
            )
        )
        chosen = report.runs[report.longest]
        card = chosen.analysis.throughput.gpu
        if len(chosen.analysis.run.iterations) or card is None:
            remarks = tuple(finding.message for finding in report.remarks)
            return AdviceReport(advice=chosen.advice, config=config, remarks=remarks, notices=report.notices)
        with with_notices(report.notices):
            begun = plan(chosen.analysis.run.settings, card, link=checked_link(request.link, card))
            return replace(_advice_before(begun, cards), config=config, notices=report.notices)
    settings, remarks = _settings_before(request)
    card, origin = _card_before(request.gpu, settings)
    link = checked_link(request.link, card)
    if request.config is None:
        from stepwatch.advice.recommended import recommend

        return AdviceReport(
            recommended=recommend(settings, card, gpu_origin=origin, n_gpus=cards, link=link), remarks=remarks
        )
    planned = plan(settings, card, gpu_origin=origin, link=link)
    return replace(_advice_before(planned, cards), config=config, remarks=remarks)


def _advice_before(found: Plan, cards: int | None) -> AdviceReport:
    if found.largest_batch_size == 0:
        from stepwatch.advice.recommended import too_large

        raise too_large(found)
    return AdviceReport(advice=advice_on_plan(found, cards=cards, windows=ON_WINDOWS))


def _settings_before(request: EstimateRequest) -> tuple[Settings, tuple[Message, ...]]:
    """The config, overridden by a named shape and by the user's settings; and remarks on the config."""
    user = Settings.of(Origin.USER, dict(map(parse_assignment, request.settings)))
    shape = Settings.of(Origin.USER, named_shape(request.model, request.depth))
    config = request.config
    settings, remarks = Settings({}), tuple[Message, ...]()
    log = from_file(config) if isinstance(config, str) and not config.lower().endswith(".py") else None
    if isinstance(config, Source) and is_log(config):
        log = config
    if log is not None:
        from stepwatch.readers import settings_of

        try:
            settings = settings_of(log)
        except ConfigGiven as error:
            error.what = Message("“{name:word}” is neither a log nor a config named .py", {"name": log.name})
            error.remedy = error.estimate(*([f"--gpu {quoted(request.gpu)}"] if request.gpu else []))
            raise
        shown = any(setting.origin is Origin.LOG for setting in settings.values())
        if not shown and not user and not shape and isinstance(config, str):
            raise InputError(
                Message("“{name:word}” is a log that shows no settings", {"name": log.name}),
                Message("to explain it: {command:list}", {"command": f"stepwatch explain {quoted_path(config)}"}),
            )
    elif config is not None:
        settings, remarks = of_config(config)
    settings = settings.overridden_by(shape).overridden_by(user)
    dataset = settings.text("dataset")
    is_gpt2 = str(settings.text("init_from")).startswith("gpt2")
    if request.vocabulary is not None and dataset and "vocab_size" not in settings and not is_gpt2:
        size = request.vocabulary(dataset)
        settings = Settings.of(Origin.CONFIG, {"vocab_size": size} if size is not None else {}).overridden_by(settings)
    return settings, remarks


def _card_before(name: str | None, settings: Settings) -> tuple[Gpu, str]:
    found = named_card(name) or card_of_config(settings)
    if found is None:
        from stepwatch.gpus.this_machine import card_of_this_machine

        found = card_of_this_machine()
    return found
