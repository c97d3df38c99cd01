"""Puts one input through every command and presenter, and checks the laws of every answer."""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from random import Random
from typing import Any

import numpy as np

from stepwatch import bounds
from stepwatch.analysis import Analysis
from stepwatch.answers import is_log, pasted
from stepwatch.answers.from_logs import ExplainRequest, UserContext, compare, explain, explain_runs
from stepwatch.answers.from_plans import AdviseRequest, EstimateRequest, advise, estimate
from stepwatch.errors import StepwatchError
from stepwatch.gpus import gpus
from stepwatch.i18n import LANGUAGES
from stepwatch.presenters import View, page_body, render
from stepwatch.presenters.look_answer import event_line, live_lines, progress_line
from stepwatch.sources.stored import LineSplitter
from stepwatch.units import Interval
from stepwatch.watch import Live
from tools.fuzz import material as inputs
from tools.fuzz.binaries import damaged
from tools.fuzz.mutations import excerpt, mutated, mutated_text

LIMIT = 64_000_000
PAGES = 0.01  # share of the answers: a whole page is its body, and a hundred times longer because of the chart engine
DEEPEST, MOST_ALIKE = 9, 200  # below an answer, and in one of its lists: the law is the same for all elements
# What may be negative: a difference, or what a change costs instead of saving.
SIGNED = frozenset(
    {"saves_s", "saving_s", "difference", "share", "change", "text", "loss", "gain", "saves", "reported_mfu"}
)


@dataclass(frozen=True)
class Case:
    """What is asked: a question and its inputs. Determined by a seed and a number alone."""

    question: str
    data: bytes = b""
    other: bytes = b""
    options: tuple[tuple[str, Any], ...] = ()
    seed: int = 0


_SHARES = {
    "explain": 32,
    "watch": 5,
    "compare": 3,
    "advise": 5,
    "explain with options": 6,
    "packed": 12,
    "samples": 6,
    "calibration": 4,
    "estimate": 21,
    "recommend": 6,
}
QUESTIONS = tuple(_SHARES)


def case_of(seed: int, number: int, corpus: str | None) -> Case:
    random = Random(f"{seed} {number}")
    material = inputs.material(corpus)
    question = random.choices(QUESTIONS, tuple(_SHARES.values()))[0]
    options: dict[str, Any] = {}
    data = other = b""
    if question in ("explain", "watch", "compare", "explain with options", "advise"):
        data = mutated(material.log(random), material.all, random)
    if question == "compare":
        other = (
            mutated(material.log(random), material.all, random)
            if random.random() < 0.5
            else random.choice(material.own)
        )
    if question == "packed":
        data = damaged(material, random)
    if question == "samples":
        data = material.record if random.random() < 0.5 else excerpt(material.log(random), random)
        other = mutated(random.choice(material.samples), material.samples, random)
    if question == "calibration":
        other = _other_machine(material.calibration, random).encode()
        options["gpu"] = "cpu"
    if question in ("advise", "estimate", "recommend", "explain with options"):
        options |= _options(question, random)
    return Case(question, data, other, tuple(options.items()), random.randrange(2**32))


def _options(question: str, random: Random) -> dict[str, Any]:
    """Mostly as people give them, with one or two that are damaged: what is refused first hides the rest."""

    def text(whole: str, share: float = 0.15) -> str:
        return mutated_text(whole, random) if random.random() < share else whole

    assigned = random.sample(inputs.ASSIGNMENTS, random.choice((0, 1, 1, 3, 5)))
    options: dict[str, Any] = {
        "settings": tuple(_extreme(each, random) if random.random() < 0.5 else text(each, 0.08) for each in assigned),
        "gpu": text(random.choice(gpus()).name, 0.05),
    }
    if question != "recommend":
        options["config"] = text(random.choice(inputs.CONFIGS), 0.4) if random.random() < 0.7 else None
    if question == "explain with options":
        options["like"] = text(random.choice(inputs.LIKE), 0.4) if random.random() < 0.3 else None
        return options
    options["gpus"] = random.choice((None, None, 1, 2, 8, 512, 10**6))
    if question == "estimate":
        options["claim"] = text(random.choice(inputs.CLAIMS), 0.3) if random.random() < 0.6 else None
        options["depth"] = random.choice((4, 12, 10**9)) if random.random() < 0.06 else None
    if question == "advise" and random.random() < 0.5:
        options["no_log"] = True
    return options


def _other_machine(calibration: str, random: Random) -> str:
    """Figures as of a much faster or slower machine, within the accepted range, or a damaged file."""
    if random.random() < 0.3:
        return mutated_text(calibration, random)
    found = json.loads(calibration)
    spreads = [*found["figures"].values(), *(point for curve in found["curves"].values() for point in curve["points"])]
    for spread in random.sample(spreads, random.choice((1, 3, len(spreads)))):
        factor = 10 ** random.uniform(-12, 12)
        for name in spread if isinstance(spread, dict) else range(3):
            if name != "unit":
                spread[name] *= factor
    return json.dumps(found)


def _extreme(assigned: str, random: Random) -> str:
    """The same setting with any accepted value, small ones as often as large ones."""
    name = assigned.partition("=")[0]
    limits = bounds.SETTINGS.get(name)
    if limits is None:
        return assigned
    low, high = max(limits.low, 1e-3), limits.high
    value = random.choice(
        (limits.low, high, low * (high / low) ** random.random(), low * (high / low) ** random.random())
    )
    return f"{name}={value:g}" if isinstance(limits.low, float) else f"{name}={int(value)}"


class BrokenLaw(AssertionError):
    """An answer that is impossible."""


def run_case(case: Case) -> None:
    """Raises BrokenLaw, and any error that is not one of the project's own."""
    with contextlib.suppress(StepwatchError):
        answer = _answer(case)
        if answer is not None:
            check(answer)
            _present(answer, case)


def _answer(case: Case) -> Any:
    options = dict(case.options)
    config = options.pop("config", None)
    if config is not None:
        options["config"] = pasted(config, "config.py")
    if case.question == "watch":
        return _watched(case)
    if case.question == "samples":
        log = pasted(case.data, "a.log", limit=LIMIT)
        return explain(ExplainRequest(logs=(log,), samples=_written("samples.csv", case.other), price_per_kwh="0.3"))
    if case.question == "calibration":
        _written(os.path.join("stepwatch", "calibration.json"), case.other)
        with _own_settings():
            return estimate(EstimateRequest(**options))
    if case.question == "compare":
        before, after = (
            ExplainRequest(logs=(pasted(data, name, limit=LIMIT),))
            for data, name in ((case.data, "a.log"), (case.other, "b.log"))
        )
        return compare(before, after, "5%")
    if case.question == "estimate":
        return estimate(EstimateRequest(**options))
    if case.question == "recommend":
        return advise(AdviseRequest(**options))
    if case.question == "advise":
        log = None if options.pop("no_log", False) else pasted(case.data, "a.log", limit=LIMIT)
        return advise(AdviseRequest(log=log, **options))
    source = pasted(case.data, "a.log", limit=LIMIT)
    if case.seed % 4 == 0:  # as if either a log or a config may be given
        is_log(source)
    return explain(ExplainRequest(logs=(source,), **options))


@cache
def _directory() -> str:
    """For the files of this process; removed when it ends."""
    directory = tempfile.mkdtemp(prefix="fuzz-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _written(name: str, data: bytes) -> str:
    path = os.path.join(_directory(), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    return path


@contextlib.contextmanager
def _own_settings() -> Iterator[None]:
    """Uses the settings written for a case, not those of whoever runs it."""
    before = os.environ.get("XDG_CONFIG_HOME")
    os.environ["XDG_CONFIG_HOME"] = _directory()
    try:
        yield
    finally:
        os.environ.pop("XDG_CONFIG_HOME")
        if before is not None:
            os.environ["XDG_CONFIG_HOME"] = before


def _watched(case: Case) -> Any:
    """Feeds the log piece by piece, with a look now and then, as `stepwatch watch` does."""
    random, lines, known = Random(case.seed), LineSplitter(), UserContext()
    live = Live("a.log", known.analyse, stopwatch=lambda: 0.0)
    now, place = 1_700_000_000.0, 0
    sizes = (50, 400, 3000, 100_000)
    size = max(random.choice(sizes), len(case.data) // random.choice((3, 10, 30)))
    if random.random() < 0.5:
        live.begin_watching(now)
    while place < len(case.data):
        live.feed(lines.feed(case.data[place : place + size]), now)
        place += size
        if random.random() < 0.3:
            _shown(live, now, random)
        now += random.choice((0.1, 1.0, 60.0, 4000.0))
    live.feed(lines.end(), now)
    live.end()
    _shown(live, now, random)
    runs = live.runs()
    return explain_runs(runs, known) if runs else None


def _shown(live: Live, now: float, random: Random) -> None:
    language = random.choice(LANGUAGES)
    try:
        look = live.look(now, thoroughly=random.random() < 0.7)
    except StepwatchError as error:  # nothing catches these while a log is watched
        raise BrokenLaw(f"watching ends with {type(error).__name__}") from error
    check(look)
    live_lines(look, language, width=80, height=24, card=None)
    if look.last_iteration is not None:
        progress_line(look, language)
    for event in live.news():
        event_line(event, language)


def _present(answer: Any, case: Case) -> None:
    """Presents the answer in one form; a page as a file, with its pictures, only now and then."""
    random = Random(case.seed + 1)
    language = random.choice(LANGUAGES)
    view = View(full=random.random() < 0.3, why=random.random() < 0.3, with_lines=random.random() < 0.3, colour=False)
    form = random.choices(("terminal", "md", "json", "page"), (3, 3, 3, 1))[0]
    if random.random() < PAGES:
        render(answer, "html", language, view)
    elif form == "page":
        page_body(answer, language)
    elif form == "json":
        check_json(json.loads(render(answer, form, language), parse_constant=_no_number))
    else:
        render(answer, form, language, view)


def _no_number(word: str) -> float:
    raise BrokenLaw(f"JSON holds {word}")


# --- laws -------------------------------------------------------------------------------------------------------


def check(value: Any, name: str = "", depth: int = 0) -> None:
    """Checks every interval in an answer, and for every analysis that its parts add up and none is negative."""
    names = _fields(type(value))
    if names is None or depth == DEEPEST:
        return
    if isinstance(value, Interval):
        if not all(map(math.isfinite, (value.low, value.mid, value.high))):
            raise BrokenLaw(f"interval not finite: {name}")
        if value.low < 0 and name not in SIGNED:
            raise BrokenLaw(f"interval below zero: {name}")
        return
    if isinstance(value, Analysis):
        _check_analysis(value)
    if isinstance(value, dict):
        for key, inner in value.items():
            check(inner, str(key), depth + 1)
    elif names:
        for field in names:
            check(getattr(value, field), field, depth + 1)
    else:
        for inner in value[:MOST_ALIKE]:
            check(inner, name, depth + 1)


@cache
def _fields(kind: type) -> tuple[str, ...] | None:
    """The fields of that type by name; () for a container; None if it contains nothing to check."""
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return () if issubclass(kind, (tuple, list, dict)) else None


def _check_analysis(a: Analysis) -> None:
    goodput, split, times = a.goodput, a.split, a.run.iterations.time_s
    if not len(times):
        return
    parts = [split.column_s(part) for part in ("step", "eval", "checkpoint", "compile", "unexplained", "data")]
    if any(part.min(initial=0.0) < 0 for part in parts):
        raise BrokenLaw("a part of an iteration is below zero")
    if a.run.span is None and not np.allclose(sum(parts), times, rtol=1e-6, atol=1e-9):
        raise BrokenLaw("the parts of an iteration do not sum to its time")
    if not all(map(math.isfinite, (goodput.wall_s, *goodput.parts_s.values()))):
        raise BrokenLaw("goodput is not finite")
    if min(goodput.parts_s.values()) < 0:
        raise BrokenLaw(
            "a part of the wall is below zero: " + min(goodput.parts_s, key=lambda name: goodput.parts_s[name])
        )
    if not math.isclose(sum(goodput.parts_s.values()), goodput.wall_s, rel_tol=1e-6, abs_tol=1e-6):
        raise BrokenLaw("the parts do not sum to the wall")


def check_json(value: Any, name: str = "") -> None:
    if isinstance(value, dict):
        if set(value) == {"low", "mid", "high"} and not value["low"] <= value["mid"] <= value["high"]:
            raise BrokenLaw(f"interval out of order in JSON: {name}")
        for key, inner in value.items():
            check_json(inner, key if key not in ("low", "mid", "high") else name)
    elif isinstance(value, list):
        for inner in value:
            check_json(inner, name)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise BrokenLaw(f"not finite in JSON: {name}")
        if value < 0 and name not in SIGNED and name.endswith(("_s", "_per_s", "tflops", "mfu", "_bytes", "ratio")):
            raise BrokenLaw(f"below zero in JSON: {name}")
