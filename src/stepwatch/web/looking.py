"""Watched logs, on the worker's side: each run as far as it was fed, looked at again and again."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from stepwatch.answers.from_logs import UserContext, explain_runs
from stepwatch.errors import NoIterations, StepwatchError
from stepwatch.presenters import page_body
from stepwatch.presenters.look_answer import monitor
from stepwatch.watch import Live, steady_clock
from stepwatch.web.replies import refused, values_of
from stepwatch.web.wire import JSON, UNKNOWN_VIEW, Asked, LogUpdate, Reply

_watched: dict[str, _Watched] = {}  # by the name of the view


@dataclass
class _Watched:
    known: UserContext
    live: Live
    clock: Callable[[], float] = field(default_factory=steady_clock)
    begun: bool = False


def look_at(asked: Asked) -> Reply:
    """The current state of the run; with `report`, also the page's report of it."""
    glance, text = LogUpdate.of(asked.body)
    found: dict[str, Any] = {}
    if glance.ended:
        _watched.pop(glance.view, None)
        return Reply(200, JSON, b"{}")
    try:
        values = values_of(asked._replace(kind="explain"))
        language = values.get("lang") or asked.language
        watched = _watched.get(glance.view)
        if watched is None and not glance.first:
            return Reply(UNKNOWN_VIEW, JSON, b"{}")
        if watched is None:
            known = UserContext(gpu=values.get("gpu"), settings=values.get("settings", ()), or_this_machine=True)
            watched = _watched[glance.view] = _Watched(known, Live(glance.name, known.analyse))
        live, now = watched.live, watched.clock()
        if glance.anew:
            live.report_truncation(now)
        live.feed(text, now if watched.begun else now - glance.age_s)
        if glance.more:
            return Reply(200, JSON, b"{}")
        if not watched.begun:
            live.begin_watching(now)
            watched.begun = True
        look = live.look(now, thoroughly=glance.report)
        with suppress(NoIterations):  # a header alone may not be enough
            runs = live.runs() if glance.report else ()
            if runs:
                known = watched.known
                with suppress(StepwatchError):  # there are no samples yet, or they cannot be read
                    known = known.with_samples(glance.samples) if glance.samples is not None else known
                report = replace(explain_runs(runs, known), inputs=(glance.name,))
                body = page_body(report, language)
                found["report"] = {"html": body.html, "specs": body.specs}
        found["look"] = monitor(look, language)
    except StepwatchError as error:
        return refused(error, asked)
    return Reply(200, JSON, json.dumps(found, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace"))
