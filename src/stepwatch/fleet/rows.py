"""What the store keeps of a log: rows of every table, as plain values."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from stepwatch.analysis import Analysis
from stepwatch.analysis.findings import cause_of_end
from stepwatch.analysis.phases import CERTAINTY_NAMES, PHASE_NAMES
from stepwatch.analysis.restarts import restart_between
from stepwatch.answers.from_logs import UserContext, explain_runs
from stepwatch.bounds import YEAR_S
from stepwatch.errors import NoIterations, StepwatchError, TooLarge
from stepwatch.fleet.identity import first_stamp_s, identity_of
from stepwatch.fleet.schema import SETTINGS, as_json
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters.run_json import settings_json
from stepwatch.readers import read_all
from stepwatch.readers.collection import looks_like_log, sniffs_of
from stepwatch.readers.log_files import ReadingOptions
from stepwatch.report import Report, RunReport
from stepwatch.run import Run
from stepwatch.settings import KINDS
from stepwatch.sources import samples_of_log
from stepwatch.sources.contents import head_of
from stepwatch.sources.directories import RECORD
from stepwatch.units import DAY_S, Interval
from stepwatch.verdict import YEARLESS_S

Rows = dict[str, list[dict[str, Any]]]
_DATED_S = YEARLESS_S + YEAR_S
_VERSION = version("stepwatch")
_SAME_WORK = (
    *("n_layer", "n_head", "n_embd", "vocab_size", "block_size", "batch_size", "gradient_accumulation_steps"),
    *("tokens_per_iter", "n_params", "dtype"),
)
_THROUGHPUT = ("tokens_per_s", "effective_tokens_per_s", "achieved_flops", "peak_flops", "mfu", "reported_mfu")
_EARLY = 0.1  # share of the iterations


class LogTask(NamedTuple):
    """A log on this machine, and what to read from it."""

    name: str
    """Where it was found."""
    paths: tuple[str, ...]
    """Its files on this machine; a single path for a directory or an archive."""
    places: tuple[str, ...] = ()
    """Where the same files were found, if that is elsewhere."""
    gpu: str | None = None
    iterations: bool = False
    forecasts: bool = False
    limit: int = 2 * 1024**3


def rows_of(asked: LogTask) -> Rows:
    """Never raises on any log: one that cannot be read becomes a row of `failures`."""
    began_s = time.process_time()
    rows: Rows = {"sources": [{"log": asked.name, "outcome": "runs", "runs": 0}]}
    try:
        found = _tables_of(asked)
        rows |= found
        rows["sources"][0]["runs"] = len(found["runs"])
        if not found["runs"]:
            rows["sources"][0]["outcome"] = "no log"
    except StepwatchError as error:
        causes = {TooLarge: "too large", NoIterations: "no iterations"}
        cause = next((cause for kind, cause in causes.items() if isinstance(error, kind)), "unreadable")
        rows |= failed(asked.name, cause, error.what)
    except MemoryError:
        rows |= failed(asked.name, "memory", Message("reading it takes more memory than a process may have"))
    except Exception as error:  # a bug of ours must not cost the other logs
        facts = {"kind": type(error).__name__, "text": str(error)}
        what = Message("a bug in stepwatch: {kind:word}: {text:word}", facts)
        rows |= failed(asked.name, "unreadable", what)
    rows["sources"][0]["processor_s"] = time.process_time() - began_s
    now = time.time()
    for table in ("sources", "runs", "failures"):
        for row in rows.get(table, ()):
            row["collected_at"] = now
    return rows


def failed(name: str, cause: str, what: Message) -> Rows:
    """The rows of a log that could not be read."""
    read = {"log": name, "collected_at": time.time()}
    failure = {**read, "cause": cause, "text": say(what, "en")}
    return {"sources": [{**read, "outcome": "failed", "runs": 0}], "failures": [failure]}


def _tables_of(asked: LogTask) -> Rows:
    paths = tuple(path for path in asked.paths if not path.endswith(".samples.csv"))
    if not os.path.isdir(paths[0]):
        sniffs = sniffs_of(ReadingOptions())
        # Reading a smaller file costs no more than checking whether it is a log.
        if len(paths) > 1 or os.path.getsize(paths[0]) > 1 << 20:
            paths = tuple(path for path in paths if looks_like_log(path, sniffs))
        if len(paths) > 1 and head_of(paths[0], len(RECORD)) == RECORD:
            paths = tuple(path for path in paths if ".rank" not in os.path.basename(path)) or paths  # read with it
    tables: Rows = {name: [] for name in ("runs", "parts", "findings", "advice", "restarts")}
    if asked.iterations:
        tables["iterations"] = []
    if not paths:
        return tables
    try:
        found = read_all(paths, limit=asked.limit)
    except NoIterations:
        if os.path.isdir(paths[0]) or any(looks_like_log(path, sniffs) for path in paths):
            raise
        return tables
    sampled = next(filter(None, map(samples_of_log, paths)), None)
    try:
        known = UserContext(gpu=asked.gpu, samples=sampled)
    except StepwatchError as error:  # only the samples failed: the log can be read
        known = UserContext(gpu=asked.gpu)
        tables |= {"failures": failed(asked.name, "unreadable", error.what)["failures"]}
    report = explain_runs(found.runs, known)
    files = [*paths]
    if os.path.isdir(paths[0]):
        files = [os.path.join(place, name) for place, _, names in os.walk(paths[0]) for name in names]
    identity = identity_of(files, asked.name)
    local = asked.places or asked.paths
    places = {os.path.basename(path): place for path, place in zip(asked.paths, local, strict=True)}
    counts: dict[str, int] = {}
    before: tuple[str, RunReport] | None = None
    for run in report.runs:
        source = places.get(run.analysis.run.source, asked.name)
        number = counts[source] = counts.get(source, -1) + 1
        key = {"log": asked.name, "source": source, "run_index": number}
        for table, row in _rows_of_run(report, run, known, asked, identity):
            if table == "runs" and number == 0 and row.get("times_from") == "log" and run.analysis.run.span is None:
                # A process starts with the first line of its log, before its first iteration does.
                named = (path for path in paths if os.path.basename(path) == run.analysis.run.source)
                first_s = first_stamp_s(next(named, paths[0]))
                if first_s is not None and row["started_at"] - DAY_S < first_s < row["started_at"]:
                    row["started_at"] = first_s
            tables[table].append({**key, **row})
        if before is not None and before[0] == source:
            again = restart_between(before[1].analysis, run.analysis)
            ends = before[1].analysis.run.iterations.number[-1:], run.analysis.run.iterations.number[:1]
            reached, begin = (next(iter(end.tolist()), None) for end in ends)
            row = {"reached_iteration": reached, "from_iteration": begin}
            if again is not None:
                row = {"reached_iteration": again.reached, "from_iteration": again.begin}
                row |= {"redone_iterations": again.redone, "redone_s": again.redone_s, "gap_s": again.gap_s}
            tables["restarts"].append({**key, **row})
        before = source, run
    return tables


def _rows_of_run(
    report: Report, run: RunReport, known: UserContext, asked: LogTask, identity: Mapping[str, str | None]
) -> Iterator[tuple[str, dict[str, Any]]]:
    a = run.analysis
    early = _early_forecast(known, a) if asked.forecasts else {}
    yield "runs", {**_run_row(run), **identity, **_where(a, identity, asked.name), **early}
    wall_s = a.goodput.wall_s
    for part, seconds in a.parts_s.items():
        share = seconds / wall_s if seconds is not None and wall_s > 0 else None
        yield "parts", {"part": part, "seconds": seconds, "share": share}
    for finding in (*report.remarks, *a.findings):
        yield "findings", {"code": finding.code, "severity": finding.severity, "text": say(finding.message, "en")}
    for advice in run.advice.advice if run.advice is not None else ():
        change = {name: [old, new] for name, (old, new) in advice.stated.items()}
        said = as_json(advice.what)
        texts = {"text": say(advice.what, "en"), "said": json.dumps(said) if said is not None else None}
        yield "advice", {"rule": advice.rule, "change": json.dumps(change), **texts, **_ends("saves_s", advice.saves_s)}
    if asked.iterations:
        yield from (("iterations", row) for row in _iterations(a))


def _run_row(run: RunReport) -> dict[str, Any]:
    a, verdict = run.analysis, run.verdict
    costs, goodput, forecast, t = a.costs, a.goodput, a.forecast, a.throughput
    numbers, settings = a.run.iterations.number, settings_json(a)[0]
    del settings["world_size"]
    columns: dict[str, Any] = dict.fromkeys(SETTINGS)
    for name in SETTINGS:
        value, kind = settings.pop(name, None), KINDS[name]
        with suppress(TypeError, ValueError, OverflowError):  # what does not fit into its column is left out
            if value is not None and (kind is not int or (value == int(value) and abs(value) < 2**63)):
                columns[name] = kind(value)
    fault = cause_of_end(a.run)
    intervals = {
        **{name: getattr(costs, name) for name in ("step_s", "data_s", "eval_s", "checkpoint_s", "compile_s")},
        "eval_and_checkpoint_s": costs.pair_s,
        "total_s": forecast.total_s,
        "remaining_s": forecast.remaining_s,
        "per_thousand_iterations_s": forecast.per_thousand_s,
        "expected_step_s": a.expected.step_s if a.expected is not None else None,
        "saves_s": verdict.saves_s,
        "energy_j": a.bill.energy_j if a.bill is not None else None,
    }
    row: dict[str, Any] = {
        "format": a.run.format,
        "gpu": t.gpu.name if t.gpu is not None else None,
        "gpu_origin": t.gpu_origin,
        "world_size": a.run.settings.count("world_size") or 1,
        "iterations": goodput.iterations,
        "first_iteration": int(numbers[0]) if len(numbers) else None,
        "last_iteration": int(numbers[-1]) if len(numbers) else None,
        "resumed": a.run.resumed,
        "done": forecast.done,
        "wall_s": goodput.wall_s,
        "wall_s_low": goodput.interval_s.low,
        "wall_s_high": goodput.interval_s.high,
        **{f"parts_{part}_s": seconds for part, seconds in a.parts_s.items()},
        **{name: getattr(t, name) for name in _THROUGHPUT},
        "verdict": verdict.status.value,
        "verdict_text": say(verdict.text, "en"),
        "fault": fault.kind if fault is not None else None,
        **_times(a.run, goodput.wall_s),
        **columns,
        "other_settings": json.dumps({name: value for name, value in sorted(settings.items()) if value is not None}),
        "stepwatch_version": _VERSION,
    }
    for name, interval in intervals.items():
        row |= _ends(name, interval)
    return row


def _where(a: Analysis, identity: Mapping[str, str | None], name: str) -> dict[str, Any]:
    directory, _, _ = name.replace(os.sep, "/").rpartition("/")
    stated = a.run.settings.text("wandb_project") if "wandb_project" in a.run.settings else None
    project = identity["project"] or stated or directory.rpartition("/")[2]
    values = [setting.value if (setting := a.run.settings.get(key)) is not None else None for key in _SAME_WORK]
    work = [*values[:-1], a.throughput.peak_dtype or values[-1]]
    if all(value is None for value in values[:-1]):
        work.append(project)  # nothing shows the model: compare the runs of a project
    card = a.throughput.gpu.name if a.throughput.gpu is not None else a.run.gpu_text
    key = [a.run.format, card, a.run.settings.count("world_size") or 1, *work]
    digest = hashlib.blake2b(repr(key).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return {"directory": directory, "project": project, "work": digest}


def _times(run: Run, wall_s: float) -> dict[str, Any]:
    """Start and end by the clock of the log or its recorder; else the last change of the file is taken for the end."""
    stamps = run.iterations.stamp_s
    dated = stamps[np.isfinite(stamps) & (stamps > _DATED_S)]
    first = float(dated[0]) if len(dated) else None
    if run.span is not None and run.span.started_s > _DATED_S:
        times = {"started_at": run.span.started_s, "first_step_at": first, "ended_at": run.span.ended_s}
        return {**times, "times_from": "log"}
    if first is not None:
        took_s = float(run.iterations.time_s[0])
        started = first - (took_s if math.isfinite(took_s) else 0.0)
        return {"started_at": started, "first_step_at": first, "ended_at": float(dated[-1]), "times_from": "log"}
    if run.written_s is None or not math.isfinite(wall_s):
        return {}
    return {"started_at": run.written_s - wall_s, "ended_at": run.written_s, "times_from": "file"}


def _early_forecast(known: UserContext, a: Analysis) -> dict[str, Any]:
    """The forecast after a tenth of a finished run, and what was true."""
    rows = a.run.iterations
    if not a.forecast.done or len(rows) < 2 / _EARLY:
        return {}
    first, last = int(rows.number[0]), int(rows.number[-1])
    kept = int(np.searchsorted(rows.number, first + _EARLY * (last - first), side="right"))
    line = int(rows.line[kept - 1])
    beginning = replace(
        a.run,
        iterations=rows.take(slice(0, kept)),
        evaluations=tuple(event for event in a.run.evaluations if event.line <= line),
        checkpoints=tuple(event for event in a.run.checkpoints if event.line <= line),
        faults=(),
        reported_s=None,
        closed=False,
        ended_by_plan=False,
        inside=None,
        span=None,
        ranks=(),
        parts={},
    )
    with suppress(StepwatchError, ValueError):
        total = known.analyse(beginning).forecast.total_s
        if total is not None:
            return {**_ends("early_total_s", total), "early_true_s": a.goodput.wall_s}
    return {}


def _iterations(a: Analysis) -> Iterator[dict[str, Any]]:
    rows = a.run.iterations
    columns = (rows.number, rows.time_s, a.phases.phase, a.phases.certainty, rows.loss, rows.stamp_s)
    for number, time_s, phase, certainty, loss, at in zip(*(column.tolist() for column in columns), strict=True):
        yield {
            "iter": number,
            "time_s": time_s,
            "phase": PHASE_NAMES[phase],
            "certainty": CERTAINTY_NAMES[certainty],
            "loss": loss,
            "at": at if at > _DATED_S else None,
        }


def _ends(name: str, interval: Interval | None) -> dict[str, float]:
    return {} if interval is None else {f"{name}_{end}": getattr(interval, end) for end in ("low", "mid", "high")}
