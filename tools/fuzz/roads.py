"""One input through every command and presenter, and the laws of every answer."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from random import Random
from typing import Any

import numpy as np

from stepwatch.analysis import Analysis
from stepwatch.answers import AdviseRequest, CompareRequest, EstimateRequest, ExplainRequest, is_log, pasted
from stepwatch.answers.from_logs import Known, compare, explain, explain_runs
from stepwatch.answers.from_plans import advise, estimate
from stepwatch.errors import StepwatchError
from stepwatch.gpus import gpus
from stepwatch.i18n import LANGUAGES
from stepwatch.presenters import View, page_body, render
from stepwatch.presenters.look_answer import event_line, live_lines, progress_line
from stepwatch.sources.follow import Lines
from stepwatch.units import Interval
from stepwatch.watch import Live
from tools.fuzz import material
from tools.fuzz.limits import without_limits
from tools.fuzz.mutations import mutated, mutated_text

LIMIT = 64_000_000
PAGES = 0.002  # of the answers: their charts are drawn as pictures, which takes seconds
DEEPEST, MOST_ALIKE = 9, 200  # below an answer, and in one list of it: the law is the same for all of a kind
# What may be below zero: a difference, or what a change costs instead of saving it.
SIGNED = frozenset(
    {"saves_s", "saving_s", "difference", "share", "change", "text", "loss", "gain", "saves", "reported_mfu"}
)


@dataclass(frozen=True)
class Case:
    """What is asked: a question and its inputs. Made from a seed and a number alone."""

    question: str
    data: bytes = b""
    other: bytes = b""
    options: tuple[tuple[str, Any], ...] = ()
    seed: int = 0


QUESTIONS = ("explain", "watch", "compare", "advise", "estimate", "recommend", "explain with options")
_SHARES = (52, 12, 8, 6, 10, 4, 8)


def case_of(seed: int, number: int, corpus: str | None) -> Case:
    random = Random(f"{seed} {number}")
    own = material.own_logs()
    real = material.real_logs(corpus) if corpus else ()
    logs = real if real and random.random() < 0.75 else own
    question = random.choices(QUESTIONS, _SHARES)[0]
    options: dict[str, Any] = {}
    data = other = b""
    if question in ("explain", "watch", "compare", "explain with options", "advise"):
        data = mutated(random.choice(logs), (*own, *real), random)
    if question == "compare":
        other = mutated(random.choice(logs), (*own, *real), random) if random.random() < 0.5 else random.choice(own)
    if question in ("advise", "estimate", "recommend", "explain with options"):
        options["settings"] = tuple(
            mutated_text(assigned, random) if random.random() < 0.4 else assigned
            for assigned in random.sample(material.ASSIGNMENTS, random.choice((0, 1, 1, 3, 5)))
        )
        card = random.choice(gpus()).name
        options["gpu"] = card if random.random() < 0.8 else mutated_text(card, random)
    if question in ("advise", "estimate", "explain with options"):
        options["config"] = mutated_text(random.choice(material.CONFIGS), random) if random.random() < 0.7 else None
    if question in ("estimate", "recommend", "advise"):
        options["gpus"] = random.choice((None, None, 1, 2, 8, 512, 10**6))
    if question == "estimate":
        options["claim"] = mutated_text(random.choice(material.CLAIMS), random) if random.random() < 0.6 else None
        options["depth"] = random.choice((None, None, 4, 12, 10**9))
    if question == "explain with options":
        options["like"] = mutated_text(random.choice(material.LIKE), random) if random.random() < 0.5 else None
    if question == "advise" and random.random() < 0.5:
        options["no_log"] = True
    return Case(question, data, other, tuple(options.items()), random.randrange(2**32))


class BrokenLaw(AssertionError):
    """An answer that cannot be."""


def put_to_the_test(case: Case) -> None:
    """Raises whatever is not an error of the project's own, or BrokenLaw."""
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
    if case.question == "compare":
        before, after = (
            ExplainRequest(logs=(pasted(data, name, limit=LIMIT),))
            for data, name in ((case.data, "a.log"), (case.other, "b.log"))
        )
        return compare(CompareRequest(before=before, after=after, fail_over="5%"))
    if case.question == "estimate":
        return estimate(EstimateRequest(**options))
    if case.question == "recommend":
        return advise(AdviseRequest(**options))
    if case.question == "advise":
        log = None if options.pop("no_log", False) else pasted(case.data, "a.log", limit=LIMIT)
        return advise(AdviseRequest(log=log, **options))
    source = pasted(case.data, "a.log", limit=LIMIT)
    if case.seed % 4 == 0:  # as where a log or a config may be given
        is_log(source)
    return explain(ExplainRequest(logs=(source,), **options))


def _watched(case: Case) -> Any:
    """Piece by piece, with a look now and then, as `stepwatch watch` does."""
    random, lines, known = Random(case.seed), Lines(), Known()
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
    """In one of the forms; the page of a file, with its pictures, only now and then."""
    random = Random(case.seed + 1)
    language = random.choice(LANGUAGES)
    view = View(full=random.random() < 0.3, why=random.random() < 0.3, with_lines=random.random() < 0.3, colour=False)
    form = random.choices(("terminal", "md", "json", "page"), (3, 3, 3, 1))[0]
    if random.random() < PAGES:
        with without_limits():
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
    """Every interval below an answer; and of every analysis that its parts sum up and nothing is below zero."""
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
    """What is in a value of that type: named, or else in order; None where nothing is that could be checked."""
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return () if issubclass(kind, (tuple, list, dict)) else None


def _check_analysis(a: Analysis) -> None:
    goodput, split, times = a.goodput, a.split, a.run.iterations.time_s
    if not len(times):
        return
    parts = list(split)
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
