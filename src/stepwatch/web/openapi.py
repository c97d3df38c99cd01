"""The OpenAPI document of the API: the inputs come from the table of options, the rest is written here."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from stepwatch.options import API, API_INPUT, FORMS, OPTIONS, Option
from stepwatch.settings import KINDS

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_INTERVAL: Schema = {"$ref": "#/components/schemas/Interval"}
_INTERVAL_OR_NULL: Schema = {"anyOf": [_INTERVAL, {"type": "null"}]}
_PLAIN = ("text/plain", "application/gzip", "application/octet-stream")
_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}
_ERRORS = {
    400: "The question cannot be answered: wrong usage, no iteration found, unknown card.",
    401: "The server wants a token.",
    403: "Another site asks, or the path is not in an allowed directory.",
    408: "The body did not arrive in time.",
    413: "Larger than 64 MB, before or after expansion.",
    415: "A body of that kind cannot be read.",
    503: "Too many questions at once, or the answer took too long.",
}


# For each question: what it does, its log or config in a JSON body, the same as a plain body, and its answer.
_QUESTIONS: dict[str, tuple[str, Schema, str, str]] = {
    "explain": (
        "Explain the log of a training run.",
        {"type": "string", "description": "The text of the log."},
        "The log itself, plain or gzip; what else there is goes into the query.",
        "Report",
    ),
    "estimate": (
        "Estimate what a config will take on a card, and whether a claim is possible.",
        {"anyOf": [{"type": "string", "description": "A nanoGPT config, or a log with a header."}, {"type": "null"}]},
        "The config itself; what else there is goes into the query.",
        "Plan",
    ),
    "advise": (
        "Advise what to change, or recommend a config where there is neither log nor config.",
        {"anyOf": [{"type": "string", "description": "The text of the log, where there is one."}, {"type": "null"}]},
        "The log or the config itself; what else there is goes into the query.",
        "Advice",
    ),
    "compare": (
        "Compare two runs: whether the second is slower than the first, by how much and why.",
        {"type": "string", "description": "The text of the log."},
        "Both logs, one after the other; `before_bytes` is the length of the first.",
        "Comparison",
    ),
    "gpus": (
        "Show the cards that stepwatch knows, or one of them with its sources.",
        {"anyOf": [_TEXT, {"type": "null"}]},
        "Nothing: what is asked goes into the query.",
        "Gpus",
    ),
}


def document() -> Schema:
    posts = {f"/api/{kind}": {"post": _question(kind, *texts)} for kind, texts in _QUESTIONS.items()}
    path = "A log on the server, below a directory that it allows; the body is then ignored."
    posts["/api/explain"]["post"]["parameters"].append(_parameter("path", _TEXT, path))
    posts["/api/gpus"]["get"] = _get("listGpus", "The cards that stepwatch knows.", "Gpus")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "stepwatch",
            "version": version("stepwatch"),
            "summary": "Why was that iteration slow, how long will it take?",
            "description": "Times are seconds, sizes bytes, shares 0–1; unknown is null; an interval means 90 %.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": {**posts, "/api/openapi.json": {"get": _get("openapi", "This document.", "Document")}},
        "components": {"schemas": _schemas(), "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _question(kind: str, summary: str, text: Schema, plain: str, answer: str) -> Schema:
    """The log or config is `text` in a JSON body, or `plain` as the body itself; options go in either or the query."""
    options = [OPTIONS[name] for name in API[kind]]
    settings = [_parameter("set", _schema(OPTIONS["settings"]), OPTIONS["settings"].api)] if API_INPUT[kind] else []
    required = "anyOf" not in text
    question = {
        "type": "object",
        "properties": {
            **dict.fromkeys(API_INPUT[kind], text),
            **{option.name: _or_null({**_schema(option), "description": option.api}) for option in options},
            **({"settings": {"$ref": "#/components/schemas/Settings"}} if API_INPUT[kind] else {}),
        },
        "required": [*API_INPUT[kind]] if required else [],
        "additionalProperties": False,
    }
    bare = {media: {"schema": {"type": "string", "description": plain}} for media in _PLAIN}
    either = {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in (answer, "PageParts")]}
    content = {media: {"schema": either if form == "json" else _TEXT} for form, media in FORMS.items()}
    return {
        "operationId": kind,
        "summary": summary,
        "parameters": [*(_parameter(option.name, _schema(option), option.api) for option in options), *settings],
        "requestBody": {"required": required, "content": {"application/json": {"schema": question}, **bare}},
        "responses": {
            "200": {"description": "The answer, in the form that was asked for.", "content": content},
            **_refusals(*_ERRORS),
        },
    }


def _schema(option: Option) -> Schema:
    if option.repeated:
        return {"type": "array", "items": _TEXT}
    if option.choices:
        return {"enum": [*option.choices]}
    if option.kind is int:
        return {"type": "integer", "minimum": 1, "maximum": option.most or option.api_most}
    return {"type": _TYPES[option.kind]}


def _parameter(name: str, schema: Schema, description: str) -> Schema:
    return {"name": name, "in": "query", "schema": schema, "description": description}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _get(name: str, summary: str, schema: str) -> Schema:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    responses = {"200": {"description": summary, "content": content}, **_refusals(401, 403)}
    return {"operationId": name, "summary": summary, "responses": responses}


def _refusals(*statuses: int) -> Schema:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {str(status): {"description": _ERRORS[status], "content": content} for status in statuses}


def _schemas() -> Schema:
    plain, maybe = {"type": "object"}, {"type": ["object", "null"]}
    run = {
        "source": _TEXT,
        "format": _TEXT,
        "settings": plain,
        "costs": _record(
            {"step_s": _INTERVAL, **dict.fromkeys(("eval_s", "checkpoint_s", "compile_s"), _INTERVAL_OR_NULL)}
        ),
        "throughput": plain,
        "goodput": plain,
        "forecast": maybe,
        "findings": {"type": "array"},
        "advice": {"type": "array"},
    }
    report = {
        "schema": {"const": "stepwatch.report/1"},
        "language": _TEXT,
        "runs": {"type": "array", "items": _record(run)},
    }
    plan = {
        "schema": {"const": "stepwatch.plan/1"},
        "gpu": _TEXT,
        "settings": plain,
        **dict.fromkeys(("step_s", "eval_s", "checkpoint_s", "compile_s", "total_s", "vram_bytes"), _INTERVAL),
        "fits": {"type": ["boolean", "null"]},
        "claim": maybe,
        "advice": {"type": "array"},
    }
    advice = {
        "schema": {"const": "stepwatch.advice/1"},
        "advice": {"type": "array"},
        **dict.fromkeys(("before", "after", "recommended", "plan"), maybe),
    }
    comparison = {
        "schema": {"const": "stepwatch.comparison/1"},
        "runs": {"type": "array"},
        "ratio": _INTERVAL,
        "verdict": plain,
    }
    return {
        "Error": {
            "type": "object",
            "required": ["error", "hint", "field"],
            "properties": {"error": _TEXT, **{key: {"type": ["string", "null"]} for key in ("hint", "field")}},
        },
        "Interval": _record({name: {"type": "number"} for name in ("low", "mid", "high")}),
        "Settings": {
            "type": ["object", "null"],
            "description": "nanoGPT's own names, and ours where it has none.",
            "properties": {name: {"type": _TYPES[kind]} for name, kind in KINDS.items()},
            "additionalProperties": False,
        },
        "Report": _record(report),
        "Plan": _record(plan),
        "Advice": _record(advice),
        "Comparison": _record(comparison),
        "PageParts": _record({"html": _TEXT, "specs": plain, "notices": {"type": "array", "items": _TEXT}}),
        "Gpus": _record({"schema": _TEXT}),
        "Document": plain,
    }


def _record(properties: Schema) -> Schema:
    """An object with at least these keys; others may be added."""
    return {"type": "object", "required": list(properties), "properties": properties}
