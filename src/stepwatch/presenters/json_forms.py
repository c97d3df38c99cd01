"""Every answer as JSON, per docs/json.md: the value itself with its sentences in the reader's language."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from stepwatch.advice import AdviceList
from stepwatch.analysis import Analysis
from stepwatch.analysis.comparison import Comparison, comparison_json
from stepwatch.estimator.plan import Plan, plan_json
from stepwatch.estimator.simulate import Simulated
from stepwatch.fleet_report import FleetReport
from stepwatch.gpus import Gpu
from stepwatch.gpus.calibration import Calibration, calibration_json
from stepwatch.i18n import clean, say, say_all
from stepwatch.presenters import plan_sentences
from stepwatch.presenters.advice_answer import command_of, config_diff
from stepwatch.presenters.comparison_answer import headline
from stepwatch.presenters.run_json import SCHEMA, iterations_json, run_json, understood_json
from stepwatch.report import AdviceReport, PlanReport, Report, RunReport
from stepwatch.units import HOUR_S, Interval, interval_json, plain_json

if TYPE_CHECKING:
    from stepwatch.presenters import Answer

ADVICE_SCHEMA = "stepwatch.advice/1"
FLEET_SCHEMA = "stepwatch.fleet/1"
CARDS_SCHEMA = "stepwatch.gpus/1"

_dumps = partial(json.dumps, ensure_ascii=False, allow_nan=False)


def as_json(answer: Answer, language: str, *, iterations: bool = True, with_lines: bool = False) -> Iterator[str]:
    """The JSON in pieces: only the iterations, of which there may be millions, are formatted as the pieces are read."""
    document: dict[str, Any]
    if isinstance(answer, Report):
        runs = [_run(answer, run, language, iterations=iterations, with_lines=with_lines) for run in answer.runs]
        document = {"schema": SCHEMA, "language": language, "runs": _list(map(_object, runs))}
        if answer.understood is not None:
            document["understood"] = understood_json(answer.understood)
    elif isinstance(answer, PlanReport):
        said = {"language": language, "remarks": [say(remark, language) for remark in answer.remarks]}
        advice = _advice_list(answer.advice, language)
        first = next(iter(answer.advice.advice), None)
        sentences = (*plan_sentences.verdict(answer.plan), plan_sentences.headline(answer.plan))
        verdict = _verdict(
            plan_sentences.status(answer.plan),
            say_all(sentences, language),
            remedy=say(first.what, language) if first is not None else None,
            saves_s=first.saves_s if first is not None else None,
        )
        document = {**plan_json(answer.plan), "verdict": verdict, "advice": advice, **said}
    elif isinstance(answer, AdviceReport):
        document = _advice(answer, language)
    elif isinstance(answer, Comparison):
        text = say(headline(answer), language)
        document = {**comparison_json(answer), "verdict": _verdict(answer.verdict, text)}
        document |= {"language": language, "text": text}
        for name in ("doubts", "reasons", "notes"):
            document[name] = [say(message, language) for message in getattr(answer, name)]
    elif isinstance(answer, FleetReport):
        document = _fleet(answer, language)
    elif isinstance(answer, Calibration):
        document = calibration_json(answer)
    else:
        cards = [answer] if isinstance(answer, Gpu) else answer
        document = {"schema": CARDS_SCHEMA, "gpus": [_card(gpu) for gpu in cards]}
    return _object(document, end="}\n")


def _object(members: dict[str, Any], end: str = "}") -> Iterator[str]:
    """The object as json.dumps would write it; a member that is an iterator contains pieces of JSON."""
    text, before = "", "{"
    for name, value in members.items():
        text += f"{before}{_dumps(name)}: "
        if isinstance(value, Iterator):
            yield text
            yield from value
            text = ""
        else:
            text += _dumps(value)
        before = ", "
    yield text + end


def _list(members: Iterable[Iterable[str]]) -> Iterator[str]:
    """The same for a list whose members are pieces of JSON."""
    before = "["
    for member in members:
        yield before
        yield from member
        before = ", "
    yield "]" if before == ", " else "[]"


def _run(report: Report, run: RunReport, language: str, *, iterations: bool, with_lines: bool) -> dict[str, Any]:
    analysis, verdict = run.analysis, run.verdict
    texts: dict[str, Any] = {
        "verdict": _verdict(
            verdict.status.value,
            say(verdict.text, language),
            because=verdict.because,
            remedy=say(verdict.remedy, language) if verdict.remedy is not None else None,
            saves_s=verdict.saves_s,
            line=verdict.line,
        ),
        "findings": [
            {"code": finding.code, "severity": finding.severity, "text": say(finding.message, language)}
            for finding in (*report.remarks, *analysis.findings)
        ],
        "advice": _advice_list(run.advice, language),
    }
    if with_lines:
        unread = sorted((*analysis.run.unread, *analysis.run.outside))
        texts["unread"] = [{"line": line + 1, "text": clean(text)} for line, text in unread]
    blocks = ([_dumps(block)[1:-1]] for block in iterations_json(analysis))
    return run_json(analysis, texts, {"iterations": _list(blocks)} if iterations else {})


def _fleet(answer: FleetReport, language: str) -> dict[str, Any]:
    from stepwatch.presenters import fleet_answer

    first = next(iter(answer.changes), None)
    texts = [say(message, language) for message in fleet_answer.headline(answer)]
    changes = [
        change._asdict() | {"text": say(change.text, language), "hours": interval_json(change.hours)}
        for change in answer.changes
    ]
    suspects = [
        suspect._asdict() | {"text": " ".join(say(text, language) for text in fleet_answer.suspect_text(suspect))}
        for suspect in answer.suspects
    ]
    return {
        "schema": FLEET_SCHEMA,
        "language": language,
        "verdict": _verdict(
            "slow" if answer.suspects else "healthy",
            " ".join([*texts, *(suspect["text"] for suspect in suspects[:1])]),
            because=[suspect.kind for suspect in answer.suspects],
            remedy=say(first.text, language) if first is not None else None,
            saves_s=first.hours.scaled(HOUR_S) if first is not None else None,
        ),
        "runs": answer.runs,
        "logs": answer.logs,
        "jobs": answer.job_count,
        "gpu_hours": plain_json(answer.hours),
        "asked": dict(answer.asked),
        "by": list(answer.by),
        "parts": [part._asdict() for part in answer.shares],
        "statuses": dict(answer.statuses),
        "groups": [group._asdict() for group in answer.groups],
        "weeks": [group._asdict() for group in answer.weeks],
        "restarted": [job._asdict() for job in answer.jobs],
        "suspects": suspects,
        "changes": changes,
        "scaling": [scale._asdict() for scale in answer.scaling],
        "speeds": [speed._asdict() for speed in answer.speeds],
        "failures": [cause._asdict() for cause in answer.causes],
        "forecasts": answer.held._asdict() if answer.held is not None else None,
        "started_s": answer.first_s,
        "ended_s": answer.last_s,
    }


def _verdict(
    status: str,
    text: str,
    *,
    because: Sequence[str] = (),
    remedy: str | None = None,
    saves_s: Interval | None = None,
    line: int | None = None,
) -> dict[str, Any]:
    """The same keys for a run, a plan and a comparison."""
    return {
        "status": status,
        "text": text,
        "because": list(because),
        "remedy": remedy,
        "saves_s": interval_json(saves_s),
        "line": line,
    }


def _advice(answer: AdviceReport, language: str) -> dict[str, Any]:
    found, advised = answer.recommended, answer.advice
    document: dict[str, Any] = {
        "schema": ADVICE_SCHEMA,
        "language": language,
        "advice": _advice_list(advised, language),
        "before": None,
        "after": None,
        "saves_s": None,
        "recommended": None,
        "plan": None,
        "command": " ".join(command_of(answer)) or None,
        "diff": [],
        "missing": [],
        "offers": [],
        "remarks": [say(remark, language) for remark in answer.remarks],
    }
    if advised is not None:
        document |= {
            "before": _simulated(advised.before, advised.vram_before, advised.case.analysis),
            "after": _simulated(advised.after, advised.vram_after, advised.case.analysis),
            "saves_s": interval_json(advised.saves_s),
            "diff": config_diff(advised.change),
            "missing": [say(message, language) for message in advised.missing],
            "offers": [say(message, language) for message in advised.offers],
        }
    if found is not None:
        document |= {
            "recommended": found.settings,
            "plan": plan_json(found.plan),
            "before": _planned(found.usual),
            "after": _planned(found.plan),
        }
    return document


def _advice_list(advised: AdviceList | None, language: str) -> list[dict[str, Any]]:
    if advised is None:
        return []
    return [
        {
            "rule": advice.rule,
            "change": {name: [old, new] for name, (old, new) in advice.stated.items()},
            "patch": advice.patch,
            "saves_s": interval_json(advice.saves_s),
            "basis": advice.basis,
            "price": say(advice.price, language),
            "text": say_all((advice.what, advice.because), language),
            "together_s": interval_json(saved),
            "chosen": chosen,
        }
        for advice, saved, chosen in zip(advised.advice, advised.together_s, advised.chosen, strict=True)
    ]


def _simulated(run: Simulated, vram: Interval | None, log: Analysis | None) -> dict[str, Any]:
    hidden = [part for part, took in log.parts_s.items() if took is None] if log is not None else []
    parts = {
        "step": run.step_s,
        "eval": run.eval_s,
        "checkpoint": run.checkpoint_s,
        "compile": run.start_s,
        "stall": run.lost_s,
    }
    return {
        "total_s": interval_json(run.total_s),
        "parts_s": {name: None if name in hidden else interval_json(part) for name, part in parts.items()},
        "vram_bytes": interval_json(vram),
    }


def _planned(plan: Plan) -> dict[str, Any]:
    return {
        "total_s": interval_json(plan.total_s),
        "step_s": interval_json(plan.estimate.step_s),
        "vram_bytes": interval_json(plan.estimate.vram_bytes),
        "fits": plan.fits,
    }


def _card(gpu: Gpu) -> dict[str, Any]:
    peak = gpu.peak_flops()
    known = {name: value for name, value in asdict(gpu).items() if name not in ("calibration", "remark")}
    capability = ".".join(map(str, gpu.compute_capability)) if gpu.compute_capability else None
    return known | {"compute_capability": capability, "peak_flops": peak.flops, "peak_dtype": peak.dtype}
