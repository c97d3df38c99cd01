"""What a worker does: turns a question from the wire into its reply.

A question is a JSON object, or a plain body with query parameters; both mean the same.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stepwatch.answers import cards, is_log, pasted
from stepwatch.answers.from_logs import ExplainRequest, compare, explain
from stepwatch.answers.from_plans import AdviseRequest, EstimateRequest, advise, estimate
from stepwatch.errors import NoSuchRun, StepwatchError, TooLarge, UsageError
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.options import API, API_INPUT, COMPARED, FORMS, OPTIONS
from stepwatch.presenters import View, page_body, render
from stepwatch.presenters.page_wording import on_page
from stepwatch.sources.contents import read_bytes
from stepwatch.web.wire import JSON, Asked, Reply, complaint, too_large

if TYPE_CHECKING:
    from stepwatch.presenters import Answer
    from stepwatch.sources import Source

# What each question accepts in its JSON body, with types; all but the settings may be in the query instead.
TAKES: Mapping[str, Mapping[str, type]] = {
    question: {
        **{name: list if OPTIONS[name].repeated else OPTIONS[name].kind for name in names},
        **dict.fromkeys(API_INPUT[question], str),
        **({"settings": dict} if API_INPUT[question] else {}),
    }
    for question, names in API.items()
}
_NOT_OF_THE_REQUEST = ("lang", "format", "iterations", "why", "log", "config", "name", "file")
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_KIND_NAMES: Mapping[type, Message] = {
    str: Message("it takes a text"),
    int: Message("it takes a whole number"),
    bool: Message("it takes true or false"),
    dict: Message("it takes an object"),
    list: Message("it takes a list"),
}


def reply_to(asked: Asked) -> Reply:
    """The answer to a question; mistakes in the question are answered as well."""
    try:
        values = values_of(asked)
        answer = _answer(asked, values)
        form, language = values.get("format", "json"), values.get("lang") or asked.language
        if form == "page":
            body = page_body(answer, language)
            notices = [say(on_page(notice.what), language) for notice in getattr(answer, "notices", ())]
            parts = {"html": body.html, "specs": body.specs, "notices": notices}
            text = json.dumps(parts, ensure_ascii=False, allow_nan=False)
            return Reply(200, JSON, text.encode("utf-8", "replace"))
        view = View(why=values.get("why", False), iterations=values.get("iterations", True))
        media = FORMS[form] if form == "json" else f"{FORMS[form]}; charset=utf-8"
        return Reply(200, media, str(render(answer, form, language, view)).encode("utf-8", "replace"))
    except (TooLarge, MemoryError):
        return too_large(asked.limit, asked.spoken())
    except StepwatchError as error:
        return refused(error, asked)


def reply_or_error(answer: Callable[[Asked], Reply], asked: Asked) -> Reply:
    """Reports a bug of ours as one, without the text that caused it."""
    try:
        return answer(asked)
    except MemoryError:
        return too_large(asked.limit, asked.spoken())
    except Exception:
        what = Message("stepwatch failed on this input")
        return complaint(500, what, Message("please report it: this is a bug in stepwatch"), asked.spoken())


def refused(error: StepwatchError, asked: Asked) -> Reply:
    what, remedy = error.what, error.remedy
    if isinstance(error, NoSuchRun):
        remedy = Message("it takes a number from 1 to {most:n}", {"most": error.count})
        what = _invalid_value(error.about or "run", remedy).what
    if ["format", "page"] in asked.query:
        what, remedy = on_page(what), on_page(remedy) if remedy is not None else None
    return complaint(400, what, remedy, asked.spoken(), about=error.about)


def values_of(asked: Asked) -> dict[str, Any]:
    """The values of the question, each with the type of its option."""
    values = _from_query(asked)
    if asked.media == JSON:
        values |= _from_json(asked)
    return {name: value for name in values if (value := _checked(name, values[name])) is not None}


def _answer(asked: Asked, values: Mapping[str, Any]) -> Answer:
    if asked.kind == "compare":
        return _comparison(asked, values)
    if asked.kind == "gpus":
        found = cards(values.get("gpu"))
        return found[0] if "gpu" in values else found
    given = {name: value for name, value in values.items() if name not in _NOT_OF_THE_REQUEST}
    if "file" in values and asked.media != JSON:
        config = pasted(values["config"]) if "config" in values else None
        return explain(ExplainRequest(logs=tuple(_split_logs(asked, values["file"])), config=config, **given))
    body = b"" if asked.media == JSON else asked.body
    text = pasted(values.get("log", body), values.get("name", "-"), limit=asked.limit)
    config = pasted(values["config"]) if "config" in values else None
    if asked.kind == "explain":
        return explain(ExplainRequest(logs=(text,), config=config, **given))
    if asked.kind == "estimate":
        return estimate(EstimateRequest(config=config or text, **given))
    if not text.text.strip():
        return advise(AdviseRequest(config=config, **given))
    if "log" in values or is_log(text):
        return advise(AdviseRequest(log=text, config=config, **given))
    return advise(AdviseRequest(config=config or text, **given))


def _split_logs(asked: Asked, files: Sequence[str]) -> Iterator[Source]:
    """The logs that follow one another in the body."""
    at = 0
    for file in files:
        size, _, name = file.partition(":")
        if not (size.isascii() and size.isdigit() and len(size) < 10 and name):
            raise _invalid_value("file", Message("it takes the bytes and the name of a log: 1234:train.log"))
        yield pasted(asked.body[at : at + int(size)], name, limit=asked.limit)
        at += int(size)
    if at != len(asked.body):
        raise _invalid_value(
            "file",
            Message("the files have {told:n} bytes, the body has {found:n}", {"told": at, "found": len(asked.body)}),
        )


def _comparison(asked: Asked, values: Mapping[str, Any]) -> Answer:
    logs: dict[str, str | bytes] = {side: values[side] for side in COMPARED if side in values}
    if asked.media != JSON and "before_bytes" in values:
        cut = values["before_bytes"]
        logs = dict(zip(COMPARED, (asked.body[:cut], asked.body[cut:]), strict=True))
    requests = []
    for side in COMPARED:
        if side not in logs:
            raise UsageError(
                Message("the request has no log “{side:word}”", {"side": side}),
                Message("give the texts as “before” and “after”, or both in the body with before_bytes"),
                about=side,
            )
        own = {name.removeprefix(f"{side}_"): value for name, value in values.items() if name.startswith(f"{side}_")}
        own.pop("bytes", None)
        log = pasted(logs[side], own.pop("name", side), limit=asked.limit)
        requests.append(ExplainRequest(logs=(log,), settings=values.get("settings", ()), **own))
    before, after = requests
    return compare(before, after)


def _from_query(asked: Asked) -> dict[str, Any]:
    takes = {name: kind for name, kind in TAKES[asked.kind].items() if kind is not dict}
    values: dict[str, Any] = {}
    for name, value in asked.query:
        if name == "set" and "settings" in TAKES[asked.kind]:
            values["settings"] = (*values.get("settings", ()), value)
        elif name in takes and takes[name] is list:
            values[name] = [*values.get(name, ()), value]
        elif name in takes:
            values[name] = value
        else:
            raise _unknown(name, [*sorted(takes), *(["set"] if "settings" in TAKES[asked.kind] else [])])
    return values


def _from_json(asked: Asked) -> dict[str, Any]:
    try:
        given = json.loads(read_bytes(io.BytesIO(asked.body), asked.limit))
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise UsageError(
            Message("the body is not a JSON object"), Message("send an object, or the plain log as text/plain")
        )
    takes = TAKES[asked.kind]
    for name, value in given.items():
        if name not in takes:
            raise _unknown(name, sorted(takes))
        kind = takes[name]
        if value is not None and not (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
            raise _invalid_value(name, _KIND_NAMES[kind])
    if asked.kind == "explain" and given.get("log") is None:
        raise UsageError(Message("the request has no log"), Message("give the text of the log as “log”"), about="log")
    for name, value in (given.get("settings") or {}).items():
        if not isinstance(value, str | int | float | bool):
            raise _invalid_value(name, Message("it takes a plain value"))
    if given.get("settings") is not None:
        given["settings"] = tuple(f"{name}={value}" for name, value in given["settings"].items())
    return {name: value for name, value in given.items() if value is not None}


def _checked(name: str, value: Any) -> Any:
    """The value with the type of its option; None if the text is empty."""
    option = OPTIONS.get(name)
    if option is None or option.repeated:
        return value
    text = str(value)
    if option.kind is bool:
        if text.lower() not in _FLAGS:
            raise _invalid_value(name, _KIND_NAMES[bool])
        return _FLAGS[text.lower()]
    if not text:
        return None
    if option.kind is int:
        most = option.most or option.api_most
        if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
            raise _invalid_value(name, Message("it takes a number from 1 to {most:n}", {"most": most}))
        return int(text)
    if option.choices and text not in option.choices:
        raise UsageError(
            Message("“{value:word}” is not a value for {name:word}", {"value": text, "name": name}),
            Message("values: {names:word}", {"names": ", ".join(option.choices)}),
            about=name,
        )
    return text


def _unknown(name: str, known: list[str]) -> UsageError:
    return UsageError(
        Message("unknown parameter “{name:word}”", {"name": name}),
        Message("parameters: {names:word}", {"names": ", ".join(known)}),
    )


def _invalid_value(name: str, kind: Message) -> UsageError:
    return UsageError(Message("“{name:word}” cannot have this value", {"name": name}), kind, about=name)
