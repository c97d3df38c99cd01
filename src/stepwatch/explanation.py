"""From runs to a Report: what config and user say is laid over what the log says, and contradictions are told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from stepwatch.advice import advice_on_log
from stepwatch.analysis import analyse
from stepwatch.analysis.findings import NOTICE, WARNING, Finding
from stepwatch.errors import NoIterations
from stepwatch.messages import Message
from stepwatch.report import Report, RunReport
from stepwatch.run import Run
from stepwatch.settings import Origin, Settings, Value

if TYPE_CHECKING:
    from stepwatch.gpus import Gpu

NOTHING = Settings({})


def explain(
    runs: Sequence[Run], card: tuple[Gpu, str] | None = None, *, config: Settings = NOTHING, user: Settings = NOTHING,
    remarks: Sequence[Finding] = (), cards: int | None = None,
) -> Report:  # fmt: skip
    """Each run with the settings that count for it, on its card: the one that is named, else the one of its log."""
    started, unstarted = divided(runs)
    if not started and len(runs) > 1:
        raise _none_started(runs)
    if len(runs) > 1:
        facts = {"count": len(runs)}
        text = Message("The log holds {count:n} runs; each is explained by itself, with its own normal time.", facts)
        remarks = [*remarks, Finding("several_runs", NOTICE, text)]
    remarks = [*remarks, *_contradictions(runs, user, "--set"), *_contradictions(runs, config, "--config")]
    remarks += [Finding("unstarted", NOTICE, _unstarted(run)) for run in unstarted]
    explained = []
    for run in started:
        gpu, origin = card_of(run, card)
        analysis = analyse(replace(run, settings=laid_over(run.settings, config, user)), gpu, origin)
        explained.append(RunReport(analysis=analysis, advice=advice_on_log(analysis, cards=cards)))
    return Report(runs=tuple(explained), unstarted=tuple(unstarted), remarks=tuple(remarks))


def divided(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Those that can be explained, and those of several that never came to an iteration: one alone may be asked for."""
    if len(runs) < 2:
        return list(runs), []
    return [run for run in runs if len(run.iterations)], [run for run in runs if not len(run.iterations)]


def _unstarted(run: Run) -> Message:
    name = {"name": run.source or "-"}
    if not run.faults:
        return Message("“{name:word}” has a header but no iteration yet.", name)
    facts = {**name, "line": run.faults[-1].line + 1}
    return Message("“{name:word}” ended before its first iteration; its line {line:n} says why.", facts)


def _none_started(runs: Sequence[Run]) -> NoIterations:
    return NoIterations(
        Message("none of the {count:n} runs came to its first iteration", {"count": len(runs)}),
        Message("to see why, name one of them: {name:word}", {"name": runs[0].source or "-"}),
    )


def card_of(run: Run, card: tuple[Gpu, str] | None) -> tuple[Gpu | None, str | None]:
    if card is not None:
        return card
    if not run.gpu_text:
        return None, None
    from stepwatch.gpus import find_gpu_in_text

    found = find_gpu_in_text(run.gpu_text)
    return found, Origin.LOG.value if found else None


def laid_over(log: Settings, config: Settings, user: Settings) -> Settings:
    """What was inferred yields to the config, the config to what the log says, and all to --set."""
    said = Settings({name: setting for name, setting in log.items() if setting.origin is Origin.LOG})
    return log.beneath(config).beneath(said).beneath(user)


def _contradictions(runs: Sequence[Run], given: Settings, option: str) -> list[Finding]:
    found = []
    for name, setting in given.items():
        told = next((value for run in runs if (value := _told(run, name)) is not None), None)
        if told is None or told == setting.value:
            continue
        facts = {"name": name, "told": _short(told), "given": _short(setting.value)}
        text = Message("The log says {name:word} = {told:word}, --config says {given:word}: the log wins.", facts)
        if option == "--set":
            text = Message("The log says {name:word} = {told:word}, --set says {given:word}: --set wins.", facts)
        found.append(Finding("settings_conflict", WARNING, text))
    return found


def _told(run: Run, name: str) -> Value | None:
    """What the log says of a setting, in words or by the numbers of its evaluations."""
    if name in run.settings and run.settings[name].origin is Origin.LOG:
        return run.settings[name].value
    if name == "eval_interval" and len(run.evaluations) > 2:
        return math.gcd(*(b.at - a.at for a, b in pairwise(run.evaluations)))
    return None


def _short(value: Value) -> Value:
    return int(value) if isinstance(value, float) and value == int(value) else value
