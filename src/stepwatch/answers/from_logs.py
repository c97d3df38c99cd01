"""Answers from logs: `explain` and `compare`."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from stepwatch.advice import advice_on_log
from stepwatch.analysis import Analysis, analyse
from stepwatch.analysis.findings import INFO, NOTICE, WARNING, Finding, passed
from stepwatch.analysis.phases import Phase
from stepwatch.answers import of_config
from stepwatch.errors import (
    ConfigGiven,
    LooksLike,
    NoIterations,
    NoSuchRun,
    NothingRead,
    Notice,
    StepwatchError,
    UnknownGpu,
    UsageError,
)
from stepwatch.estimator import own_runs
from stepwatch.gpus import Gpu, find_gpu_in_text
from stepwatch.gpus.names import count_in, named_card
from stepwatch.messages import Message
from stepwatch.platforms import quoted
from stepwatch.readers import read_all
from stepwatch.readers.formats import FORMATS
from stepwatch.report import Excerpts, LogLine, Report, RunReport
from stepwatch.run import Run, column_of
from stepwatch.settings import Origin, Settings, Value, parse_assignment
from stepwatch.sources import LARGEST_EXPANSION_BYTES, Source, samples_of_log
from stepwatch.sources.directories import is_collection
from stepwatch.units import Interval
from stepwatch.verdict import ENDED, judge

if TYPE_CHECKING:
    from stepwatch.analysis.comparison import Comparison
    from stepwatch.run.more import Understood


ON_WINDOWS = sys.platform == "win32"
KNOWN_FORMATS = tuple(FORMATS)


@dataclass(frozen=True, kw_only=True)
class ExplainRequest:
    """The names of the fields are those of the options in `stepwatch.options`."""

    logs: tuple[str | Source, ...] = ("-",)
    """Files, directories, `-` for standard input, or logs in memory."""
    gpu: str | None = None
    gpus: int | None = None
    """How many cards there are, for the advice."""
    config: str | Source | None = None
    settings: tuple[str, ...] = ()
    """As `--set` takes them: key=value."""
    run: int | None = None
    log_format: str | None = None
    like: str | None = None
    samples: str | None = None
    """A file of samples of the machine, or the directory of `stepwatch run`."""
    price_per_hour: str | None = None
    price_per_kwh: str | None = None
    max_size: int = LARGEST_EXPANSION_BYTES


# --- explain ----------------------------------------------------------------------------------------------------


def explain(request: ExplainRequest) -> Report:
    """Why iterations are slow, what each part costs, when the run ends, what to change: of every run in the logs."""
    paths = [log for log in request.logs if isinstance(log, str)]
    directories = [path for path in filter(os.path.isdir, paths) if is_collection(path)]
    known = UserContext(
        gpu=request.gpu,
        config=request.config,
        settings=request.settings,
        samples=request.samples or next(filter(None, map(samples_of_log, paths)), None),
        below=next(iter(directories), None),
        price_per_hour=request.price_per_hour,
        price_per_kwh=request.price_per_kwh,
    )
    if request.like is not None and request.log_format is not None:
        raise UsageError(
            Message("--like and --log-format cannot be combined"),
            Message("--log-format names a known format, --like gives a line of an unknown one"),
        )
    try:
        found = read_all(request.logs, log_format=request.log_format, like=request.like, limit=request.max_size)
    except ConfigGiven as error:
        card = [f"--gpu {quoted(request.gpu)}"] if request.gpu else []
        path = request.logs[0] if isinstance(request.logs[0], str) else None
        error.remedy = error.estimate(*card, path=path)
        raise
    except LooksLike as error:
        if isinstance(request.logs[0], str):
            error.remedy = error.command(request.logs[0])
        raise
    runs = found.runs
    with with_notices(found.notices):
        if request.run is not None:
            if request.run > len(runs):
                raise NoSuchRun(request.run, len(runs))
            in_order = sorted(runs, key=lambda run: not (len(run.iterations) or run.faults))  # the order of the report
            runs = (in_order[request.run - 1],)
        cards = request.gpus or count_in(request.gpu)
        gaps = [Finding("piece_missing", WARNING, gap) for gap in found.gaps]
        understood = next((run.understood for run in runs if run.understood is not None), None)
        doubts = _doubts(understood) if understood is not None else ()
        report = explain_runs(runs, known, remarks=[*gaps, *doubts], cards=cards)
    command = "stepwatch explain" + (f" --like {quoted(request.like)}" if request.like is not None else "")
    return replace(
        report,
        runs=tuple(replace(run, excerpts=partial(excerpts_of, run.analysis, found.source)) for run in report.runs),
        inputs=tuple(map(shown, request.logs)),
        directory=request.run is None and bool(directories),
        command=command + (f" --run {request.run}" if request.run is not None else ""),
        notices=found.notices,
    )


def _doubts(understood: Understood) -> Iterator[Finding]:
    """Findings about what neither the example nor the log makes clear."""
    names = {"word": understood.word, "unit": understood.unit}
    if understood.unit_assumed:
        text = Message("No unit is printed next to “{word:word}”: {unit:word} is assumed.", names)
        yield Finding("like_unit", NOTICE, text)
    if understood.disagrees:
        text = Message("No time in the lines agrees with their timestamps, which are used instead.")
        yield Finding("like_clock", NOTICE, text)
    if understood.doubtful:
        text = Message(
            "The lines have several times, and no clock to check them by: “{word:word}” is taken for that of an "
            "iteration.",
            names,
        )
        yield Finding("like_doubt", WARNING, text)


def shown(log: str | Source) -> str:
    """A relative path as it was typed; only the name of any other, since reports are passed on."""
    if isinstance(log, Source):
        return log.name
    parts = set(log.replace("\\", "/").split("/"))
    return os.path.basename(log) if os.path.isabs(log) or {"..", "~"} & parts else log


@contextmanager
def with_notices(notices: Sequence[Notice]) -> Iterator[None]:
    """Adds these notices to an error that is raised inside, so that they are not lost."""
    try:
        yield
    except StepwatchError as error:
        error.notices = (*notices, *error.notices)
        raise


class UserContext:
    """What is known besides the log: its card, its config, and the user's settings."""

    def __init__(
        self,
        *,
        gpu: str | None = None,
        config: str | Source | None = None,
        settings: Sequence[str] = (),
        samples: str | None = None,
        below: str | None = None,
        price_per_hour: str | None = None,
        price_per_kwh: str | None = None,
        or_this_machine: bool = False,
    ) -> None:
        given = {"price_per_hour": price_per_hour, "price_per_kwh": price_per_kwh}
        self._prices = {option: _price(option, text) for option, text in given.items() if text is not None}
        self._below = below  # a directory whose runs may have their own samples
        self._samples = None
        if samples is not None:
            from stepwatch.sources.sample_files import read_samples  # few logs come with samples

            self._samples = read_samples(samples)
        self._card = named_card(gpu)
        self._or_this_machine = or_this_machine
        self.user = Settings.of(Origin.USER, dict(map(parse_assignment, settings)))
        self.config, skipped = of_config(config) if config is not None else (Settings({}), ())
        self.remarks = [Finding("config_skipped", NOTICE, remark) for remark in skipped]
        if self._card is not None and self._card[0].remark is not None:
            self.remarks.append(Finding("not_calibrated", NOTICE, self._card[0].remark))

    def with_samples(self, path: str) -> UserContext:
        """A copy with the samples of the machine up to now."""
        from stepwatch.sources.sample_files import read_samples

        other = copy(self)
        other._samples = read_samples(path)
        return other

    def analyse(self, run: Run) -> Analysis:
        """Analyses a run on the card that was named, else the log's. Precedence of settings: those of the user, of the
        log, of the config, and inferred ones."""
        gpu, origin = self._card or (None, None)
        if gpu is None and run.gpu_text and (found := find_gpu_in_text(run.gpu_text)) is not None:
            gpu, origin = found, Origin.LOG.value
        samples = self._samples
        path = samples_of_log(os.path.join(self._below, run.source)) if self._below is not None else None
        if samples is None and path is not None:
            with suppress(StepwatchError):  # an overview does without samples that cannot be read
                samples = self.with_samples(path)._samples
        names = {card.name for card in samples.cards} if samples is not None else set()
        if gpu is None and len(names) == 1 and (found := find_gpu_in_text(*names)) is not None:
            gpu, origin = found, Origin.DRIVER.value  # a tool of the driver wrote them
        if gpu is None and self._or_this_machine:
            gpu, origin = _graphics_card_here() or (None, None)
        logged = Settings({name: setting for name, setting in run.settings.items() if setting.origin is Origin.LOG})
        settings = run.settings.overridden_by(self.config).overridden_by(logged).overridden_by(self.user)
        analysis = analyse(replace(run, settings=settings), gpu, origin, samples)
        if samples is None and not self._prices:
            return analysis
        from stepwatch.analysis.bill import Tariff, bill_findings, find_bill  # few questions are about money

        prices = Tariff(self._prices.get("price_per_hour"), self._prices.get("price_per_kwh"))
        analysis = replace(analysis, bill=find_bill(analysis, prices))
        return replace(analysis, findings=(*analysis.findings, *bill_findings(analysis)))


def _price(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e9:
        facts = {"option": f"--{option.replace('_', '-')}", "text": text}
        what = Message("{option:word} “{text:word}” is not a price", facts)
        raise UsageError(what, Message("give a number: --price-per-hour 1.90"), about=option)
    return value


def explain_runs(
    runs: Sequence[Run], known: UserContext, *, remarks: Sequence[Finding] = (), cards: int | None = None
) -> Report:
    """Explains each run by itself; if there are several, those with neither an iteration nor an end are only named."""
    started = [run for run in runs if len(run.iterations) or run.faults or len(runs) == 1]
    unstarted = [run for run in runs if not any(run is other for other in started)]
    if not started:
        raise NoIterations(
            Message("none of the {count:n} runs reached its first iteration", {"count": len(runs)}),
            Message("to see why, name one of them: {name:word}", {"name": runs[0].source or "-"}),
        )
    remarks = [*known.remarks, *remarks]
    if len(runs) > 1:
        facts = {"count": len(runs)}
        text = Message("The log holds {count:n} runs; each is explained separately, with its own normal time.", facts)
        remarks.append(Finding("several_runs", NOTICE, text))
    if known.user or known.config:
        remarks += _contradictions(runs, known)
    for run in unstarted:
        name = run.source or "-"
        text = Message("“{name:word}” has a header but no iteration yet.", {"name": name})
        remarks.append(Finding("unstarted", NOTICE, text))
    explained = []
    # As in other programs with reproducible output, the environment may set the current time.
    stated = os.environ.get("SOURCE_DATE_EPOCH", "")
    now_s = float(stated) if stated.isdecimal() else time.time()
    before: Analysis | None = None
    for run, later in zip(started, (*started[1:], None), strict=True):
        analysis = known.analyse(run)
        if before is not None and before.run.source == run.source:
            from stepwatch.analysis import restarts  # few logs hold several runs

            analysis = replace(analysis, findings=(*analysis.findings, *restarts.findings(before, analysis)))
        before = analysis
        learned = own_runs.note(analysis.expected) if analysis.expected is not None else None
        if learned is not None:
            analysis = replace(analysis, findings=(*analysis.findings, Finding("own_runs", INFO, learned)))
        advice = advice_on_log(analysis, cards=cards, windows=ON_WINDOWS)
        followed = later is not None and later.source == run.source
        verdict = judge(analysis, advice, now_s=now_s, followed=followed)
        left_s, ends_s = analysis.forecast.remaining_s, None
        if left_s is not None and not analysis.forecast.done and verdict.status not in ENDED:
            written_s = run.written_s or now_s  # a log that is pasted was copied just now
            if written_s + left_s.mid > now_s:  # else the run is not in progress: its end cannot be predicted
                ends_s = Interval(*(written_s + end for end in (left_s.low, left_s.mid, left_s.high)))
        fine = tuple(passed(analysis)) if len(run.iterations) else ()
        explained.append(RunReport(analysis=analysis, advice=advice, verdict=verdict, fine=fine, ends_s=ends_s))
    understood = next((run.understood for run in started if run.understood is not None), None)
    return Report(runs=tuple(explained), unstarted=tuple(unstarted), remarks=tuple(remarks), understood=understood)


def _contradictions(runs: Sequence[Run], known: UserContext) -> Iterator[Finding]:
    by_user = Message("The log says {name:word} = {told:word}, --set says {given:word}: --set wins.")
    by_config = Message("The log says {name:word} = {told:word}, --config says {given:word}: the log wins.")
    for given, text in ((known.user, by_user), (known.config, by_config)):
        for name, setting in given.items():
            logged = next((value for run in runs if (value := _logged(run, name)) is not None), None)
            if logged is not None and logged != setting.value:
                facts = {"name": name, "told": _as_typed(logged), "given": _as_typed(setting.value)}
                yield Finding("settings_conflict", WARNING, text._replace(params=facts))


def _logged(run: Run, name: str) -> Value | None:
    """What the log says about a setting, directly or through the numbers of its evaluations."""
    if name in run.settings and run.settings[name].origin is Origin.LOG:
        return run.settings[name].value
    if name == "eval_interval" and len(run.evaluations) > 2:
        return int(np.gcd.reduce(np.diff(column_of(run.evaluations, "at")).astype(np.int64)))
    return None


def _as_typed(value: Value) -> Value:
    return int(value) if isinstance(value, float) and value == int(value) else value


@cache
def _graphics_card_here() -> tuple[Gpu, str] | None:
    """The graphics card of this machine, never its processor: a calibrated laptop may watch a run elsewhere."""
    from stepwatch.gpus.this_machine import card_of_this_machine

    try:
        card, origin = card_of_this_machine()
    except UnknownGpu:
        return None
    return None if card.segment == "cpu" else (card, origin)


# --- compare ----------------------------------------------------------------------------------------------------


def compare(before: ExplainRequest, after: ExplainRequest, fail_over: str | None = None) -> Comparison:
    """Whether the second run is slower than the first, by how much and why; takes the longest run of each log."""
    from stepwatch.analysis.comparison import SIDES, limit_of
    from stepwatch.analysis.comparison import compare as compare_runs

    limit = None if fail_over is None else limit_of(fail_over)
    runs: list[Analysis] = []
    notes: list[Message] = []
    notices: list[Notice] = []
    for side, field, asked in zip(SIDES, ("before", "after"), (before, after), strict=True):
        (name,) = map(shown, asked.logs)
        with with_notices(notices):
            try:
                report = explain(asked)
            except (NothingRead, ConfigGiven):
                raise
            except NoIterations as error:  # says which of the two logs it is
                what = Message("{name:word}: {what:word}", {"name": name, "what": error.what})
                named = NoIterations(what, error.remedy, about=field)
                named.notices = error.notices
                raise named from error
            except StepwatchError as error:
                own = {"log": field, **{name: f"{field}_{name}" for name in ("gpu", "run", "log_format")}}
                error.about = own.get(error.about or "", error.about)
                raise
        place = report.longest
        runs.append(report.analyses[place])
        notices += report.notices
        said = [remark.message for remark in report.remarks if remark.code != "several_runs"]
        if len(report.runs) > 1:
            number, other = place + 1, 1 if place else 2
            facts = {"name": name, "count": len(report.runs), "number": number, "side": side, "other": other}
            text = Message(
                "“{name:word}” holds {count:n} runs; the longest, number {number:n}, is compared. "
                "For another one: --run {side:word}:{other:n}",
                facts,
            )
            said.append(text)
        notes += [note for note in said if note not in notes]
    names = shown(before.logs[0]), shown(after.logs[0])
    with with_notices(notices):
        found = compare_runs(runs[0], runs[1], names=names, limit=limit, notes=notes)
    return replace(found, notices=tuple(notices))


# --- the lines of the log that an answer is about, for a reader who has no log ----------------------------------


MOST_EXCERPTS = 40
"""Per run: the slowest iterations, the first and the last one; with five lines each, 40 kB at most."""


def excerpts_of(a: Analysis, source: Source | None) -> Excerpts:
    """Log lines by row; the last row includes the lines of what ended the run, if known. No other lines are kept."""
    iterations = a.run.iterations
    if source is None or not len(iterations):
        return {}
    slow = np.flatnonzero(a.phases.phase != Phase.STEP)
    order = slow[np.lexsort((-iterations.time_s[slow], a.phases.phase[slow] != Phase.FIRST))]
    places = {int(row): [int(iterations.line[row])] for row in order[: MOST_EXCERPTS - 1]}
    last = len(iterations) - 1
    if a.run.faults:
        places.setdefault(last, [int(iterations.line[last])]).append(a.run.faults[-1].line)
    # An evaluation and its checkpoint are printed before the time of their iteration.
    wanted = {row: {near for at in lines for near in range(at - 3, at + 2)} for row, lines in places.items()}
    texts = source.lines(set().union(*wanted.values()), longest=200)
    return {
        row: tuple(LogLine(number + 1, texts[number]) for number in sorted(near) if texts.get(number, "").strip())
        for row, near in wanted.items()
    }
