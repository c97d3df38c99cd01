"""The questions that stepwatch answers, once for the command line, the page, `watch` and Python callers.

A request says what is asked, the answer is a value for `presenters.render`. Nothing is printed and nothing ends the
process: what should be said beside the answer, such as a log among several that cannot be read, comes back as notices,
of the answer or of the error.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from stepwatch.advice import advice_on_log, advice_on_plan
from stepwatch.advice.recommended import recommend, too_large
from stepwatch.analysis import Analysis, analyse
from stepwatch.analysis.comparison import SIDES, Comparison, limit_of
from stepwatch.analysis.comparison import compare as compare_runs
from stepwatch.analysis.findings import NOTICE, WARNING, Finding
from stepwatch.errors import NoIterations, NothingRead, Notice, StepwatchError, UnknownGpu, UsageError
from stepwatch.estimator.plan import Plan, named_shape, plan
from stepwatch.gpus import Gpu, find_gpu, find_gpu_in_text, gpus
from stepwatch.gpus.choice import card_of_config, card_of_this_machine, count_in, named_card
from stepwatch.gpus.driver import this_card
from stepwatch.gpus.links import checked_link
from stepwatch.messages import Message
from stepwatch.readers import detect, read_all, settings_of
from stepwatch.report import AdviceReport, PlanReport, Report, RunReport
from stepwatch.run import Run
from stepwatch.settings import Origin, Settings, Value, config_settings, parse_assignment
from stepwatch.sources import LARGEST_EXPANSION_BYTES, Source, expanded, from_bytes, from_file, from_text
from stepwatch.sources.directories import is_collection

Answer = Report | PlanReport | AdviceReport | Comparison
_ON_WINDOWS = sys.platform == "win32"


# --- what can be asked ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainRequest:
    """The names of the fields are those of the options in `stepwatch.options`."""

    logs: tuple[str | Source, ...] = ("-",)
    """Files, directories, `-` for standard input, or logs that are at hand."""
    gpu: str | None = None
    gpus: int | None = None
    """How many cards there are, for the advice."""
    config: str | Source | None = None
    settings: tuple[str, ...] = ()
    """As `--set` takes them: key=value."""
    run: int | None = None
    log_format: str | None = None
    like: str | None = None
    max_size: int = LARGEST_EXPANSION_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRequest:
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
    """The size of a dataset's vocabulary, where its data are on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseRequest(EstimateRequest):
    """Of a log, else of a config before its run; with neither, a config is recommended."""

    log: str | Source | None = None
    run: int | None = None
    log_format: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    before: ExplainRequest
    after: ExplainRequest
    fail_over: str | None = None


class NoSuchRun(UsageError):
    def __init__(self, number: int, count: int) -> None:
        self.count = count
        super().__init__(
            Message(
                "there is no run {number:n}: the log holds {count:n} run",
                {"number": number, "count": count},
                "there is no run {number:n}: the log holds {count:n} runs",
                count,
            ),
            Message("runs are numbered from 1"),
        )


def pasted(text: str | bytes, name: str = "-", *, limit: int = LARGEST_EXPANSION_BYTES) -> Source:
    """A log or config that is at hand; bytes may be packed."""
    return from_text(text, name) if isinstance(text, str) else from_bytes(text, name, limit=limit)


def unpacked(data: bytes, *, limit: int) -> bytes:
    """What gzip and its like hold; anything else as it is."""
    return expanded(data, limit=limit)


def text_of(config: str | Source) -> str:
    source = from_file(config) if isinstance(config, str) else config
    return source.text.decode("utf-8", "replace")


def is_log(source: Source) -> bool:
    """Whether it looks like a log, not like a config."""
    return detect(source) is not None


def shown(log: str | Source) -> str:
    """A relative path is as typed; of any other only the name, since a report is made to be passed on."""
    if isinstance(log, Source):
        return log.name
    parts = set(log.replace("\\", "/").split("/"))
    return os.path.basename(log) if os.path.isabs(log) or {"..", "~"} & parts else log


# --- explain ----------------------------------------------------------------------------------------------------


def explain(request: ExplainRequest) -> Report:
    """Why iterations are slow, what each part costs, when the run ends, what to change: of every run in the logs."""
    known = Known(gpu=request.gpu, config=request.config, settings=request.settings)
    if request.like is not None and request.log_format is not None:
        raise UsageError(
            Message("--like and --log-format exclude each other"),
            Message("--log-format names a format that is known, --like shows a line of one that is not"),
        )
    found = read_all(request.logs, log_format=request.log_format, like=request.like, limit=request.max_size)
    runs = found.runs
    with _saying_first(found.notices):
        if request.run is not None:
            if request.run > len(runs):
                raise NoSuchRun(request.run, len(runs))
            runs = (sorted(runs, key=lambda run: not len(run.iterations))[request.run - 1],)  # as the report has them
        cards = request.gpus or count_in(request.gpu)
        gaps = [Finding("piece_missing", WARNING, gap) for gap in found.gaps]
        report = explain_runs(runs, known, remarks=gaps, cards=cards)
    command = "stepwatch explain" + (f" --like {shlex.quote(request.like)}" if request.like is not None else "")
    return replace(
        report,
        inputs=tuple(map(shown, request.logs)),
        directory=request.run is None and any(isinstance(log, str) and is_collection(log) for log in request.logs),
        command=command + (f" --run {request.run}" if request.run is not None else ""),
        notices=found.notices,
    )


@contextmanager
def _saying_first(notices: Sequence[Notice]) -> Iterator[None]:
    """An error in the end does not swallow what should be said before it."""
    try:
        yield
    except StepwatchError as error:
        error.notices = (*notices, *error.notices)
        raise


class Known:
    """What is known beside the log: its card, its config, and settings of the user's."""

    def __init__(
        self,
        *,
        gpu: str | None = None,
        config: str | Source | None = None,
        settings: Sequence[str] = (),
        or_this_machine: bool = False,
    ) -> None:
        self._card = named_card(gpu)
        self._or_this_machine = or_this_machine
        self.user = _assigned(settings)
        self.config, skipped = _config(config)
        self.remarks = [Finding("config_skipped", NOTICE, remark) for remark in skipped]
        if self._card is not None and self._card[0].remark is not None:
            self.remarks.append(Finding("not_calibrated", NOTICE, self._card[0].remark))

    def analyse(self, run: Run) -> Analysis:
        """The card is the one that is named, else the log's. What was inferred yields to the config, the config to
        what the log says, and all to the user's settings."""
        gpu, origin = self._card or (None, None)
        if gpu is None and run.gpu_text and (found := find_gpu_in_text(run.gpu_text)) is not None:
            gpu, origin = found, Origin.LOG.value
        if gpu is None and self._or_this_machine:
            gpu, origin = _graphics_card_here() or (None, None)
        logged = Settings({name: setting for name, setting in run.settings.items() if setting.origin is Origin.LOG})
        settings = run.settings.beneath(self.config).beneath(logged).beneath(self.user)
        return analyse(replace(run, settings=settings), gpu, origin)


def explain_runs(
    runs: Sequence[Run], known: Known, *, remarks: Sequence[Finding] = (), cards: int | None = None
) -> Report:
    """Each run by itself; those of several that never came to an iteration are only named."""
    started = [run for run in runs if len(run.iterations) or len(runs) == 1]
    unstarted = [run for run in runs if not len(run.iterations) and len(runs) > 1]
    if not started:
        raise NoIterations(
            Message("none of the {count:n} runs came to its first iteration", {"count": len(runs)}),
            Message("to see why, name one of them: {name:word}", {"name": runs[0].source or "-"}),
        )
    remarks = [*known.remarks, *remarks]
    if len(runs) > 1:
        facts = {"count": len(runs)}
        text = Message("The log holds {count:n} runs; each is explained by itself, with its own normal time.", facts)
        remarks.append(Finding("several_runs", NOTICE, text))
    remarks += [*_contradictions(runs, known.user, by_user=True), *_contradictions(runs, known.config, by_user=False)]
    for run in unstarted:
        name = run.source or "-"
        text = Message("“{name:word}” has a header but no iteration yet.", {"name": name})
        if run.faults:
            line = {"name": name, "line": run.faults[-1].line + 1}
            text = Message("“{name:word}” ended before its first iteration; its line {line:n} says why.", line)
        remarks.append(Finding("unstarted", NOTICE, text))
    explained = []
    for run in started:
        analysis = known.analyse(run)
        advice = advice_on_log(analysis, cards=cards, windows=_ON_WINDOWS)
        explained.append(RunReport(analysis=analysis, advice=advice))
    return Report(runs=tuple(explained), unstarted=tuple(unstarted), remarks=tuple(remarks))


def _contradictions(runs: Sequence[Run], given: Settings, *, by_user: bool) -> Iterator[Finding]:
    for name, setting in given.items():
        logged = next((value for run in runs if (value := _logged(run, name)) is not None), None)
        if logged is None or logged == setting.value:
            continue
        facts = {"name": name, "told": _as_typed(logged), "given": _as_typed(setting.value)}
        text = Message("The log says {name:word} = {told:word}, --config says {given:word}: the log wins.", facts)
        if by_user:
            text = Message("The log says {name:word} = {told:word}, --set says {given:word}: --set wins.", facts)
        yield Finding("settings_conflict", WARNING, text)


def _logged(run: Run, name: str) -> Value | None:
    """What the log says of a setting, in words or by the numbers of its evaluations."""
    if name in run.settings and run.settings[name].origin is Origin.LOG:
        return run.settings[name].value
    if name == "eval_interval" and len(run.evaluations) > 2:
        return math.gcd(*(b.at - a.at for a, b in pairwise(run.evaluations)))
    return None


def _as_typed(value: Value) -> Value:
    return int(value) if isinstance(value, float) and value == int(value) else value


# --- estimate and advise ----------------------------------------------------------------------------------------


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
    advice = advice_on_plan(found, windows=_ON_WINDOWS)
    return PlanReport(plan=found, advice=advice, remarks=(*remarks, *found.notes))


def advise(request: AdviseRequest) -> AdviceReport:
    """What to change, what it saves and what it costs; or a recommended config."""
    cards = request.gpus or count_in(request.gpu)
    config = request.config if isinstance(request.config, str) else None
    if config is not None and os.path.isabs(config):
        config = os.path.basename(config)  # a path in somebody's home is nobody else's business
    if request.log is not None:
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
        with _saying_first(report.notices):
            begun = plan(chosen.analysis.run.settings, card, link=checked_link(request.link, card))
            return replace(_advice_before(begun, cards), config=config, notices=report.notices)
    settings, remarks = _settings_before(request)
    card, origin = _card_before(request.gpu, settings)
    link = checked_link(request.link, card)
    if request.config is None:
        return AdviceReport(
            recommended=recommend(settings, card, gpu_origin=origin, n_gpus=cards, link=link), remarks=remarks
        )
    planned = plan(settings, card, gpu_origin=origin, link=link)
    return replace(_advice_before(planned, cards), config=config, remarks=remarks)


def _advice_before(found: Plan, cards: int | None) -> AdviceReport:
    if found.largest_batch_size == 0:
        raise too_large(found)
    return AdviceReport(advice=advice_on_plan(found, cards=cards, windows=_ON_WINDOWS))


def _settings_before(request: EstimateRequest) -> tuple[Settings, tuple[Message, ...]]:
    """The config beneath a named shape, beneath the user's settings; and what is to be said of the config."""
    user = _assigned(request.settings)
    shape = Settings.of(Origin.USER, named_shape(request.model, request.depth))
    config = request.config
    remarks: tuple[Message, ...] = ()
    if isinstance(config, str) and not config.lower().endswith(".py"):
        settings = settings_of(from_file(config))
    elif isinstance(config, Source) and is_log(config):
        settings = settings_of(config)
    else:
        settings, remarks = _config(config)
    settings = settings.beneath(shape).beneath(user)
    dataset = settings.text("dataset")
    is_gpt2 = str(settings.text("init_from")).startswith("gpt2")
    if request.vocabulary is not None and dataset and "vocab_size" not in settings and not is_gpt2:
        size = request.vocabulary(dataset)
        settings = Settings.of(Origin.CONFIG, {"vocab_size": size} if size is not None else {}).beneath(settings)
    return settings, remarks


# --- compare ----------------------------------------------------------------------------------------------------


def compare(request: CompareRequest) -> Comparison:
    """Whether the second run is slower than the first, by how much and why; of several in a log the longest."""
    limit = None if request.fail_over is None else limit_of(request.fail_over)
    runs: list[Analysis] = []
    notes: list[Message] = []
    notices: list[Notice] = []
    for side, asked in zip(SIDES, (request.before, request.after), strict=True):
        (name,) = map(shown, asked.logs)
        with _saying_first(notices):
            try:
                report = explain(asked)
            except NothingRead:
                raise
            except NoIterations as error:  # of two logs it must be said which
                what = Message("{name:word}: {what:word}", {"name": name, "what": error.what})
                named = NoIterations(what, error.remedy)
                named.notices = error.notices
                raise named from error
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
    names = shown(request.before.logs[0]), shown(request.after.logs[0])
    with _saying_first(notices):
        found = compare_runs(runs[0], runs[1], names=names, limit=limit, notes=notes)
    return replace(found, notices=tuple(notices))


# --- cards, configs and logs ------------------------------------------------------------------------------------


def cards(name: str | None = None) -> Sequence[Gpu]:
    """All that are known, or the one of that name."""
    return gpus() if name is None else [find_gpu(name)]


@cache
def own_card() -> Gpu | None:
    """What the driver of this machine reports; asked once, since cards do not come and go."""
    try:
        return this_card().gpu
    except UnknownGpu:
        return None


def _card_before(name: str | None, settings: Settings) -> tuple[Gpu, str]:
    return named_card(name) or card_of_config(settings) or card_of_this_machine()


@cache
def _graphics_card_here() -> tuple[Gpu, str] | None:
    """A log is watched on a laptop too: that its processor was measured does not mean that the run is there."""
    try:
        card, origin = card_of_this_machine()
    except UnknownGpu:
        return None
    return None if card.segment == "cpu" else (card, origin)


def _assigned(settings: Sequence[str]) -> Settings:
    return Settings.of(Origin.USER, dict(parse_assignment(text) for text in settings))


def _config(config: str | Source | None) -> tuple[Settings, tuple[Message, ...]]:
    return config_settings(text_of(config)) if config is not None else (Settings({}), ())
