"""The OpenAPI document of the API, written by hand so that it says what is meant."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from stepwatch.estimator.plan import MODEL_NAMES
from stepwatch.i18n import LANGUAGES
from stepwatch.settings import KINDS

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_INTERVAL: Schema = {"$ref": "#/components/schemas/Interval"}
_INTERVAL_OR_NULL: Schema = {"anyOf": [_INTERVAL, {"type": "null"}]}
_PLAIN = ("text/plain", "application/gzip", "application/octet-stream")
_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}

# What both questions take: in the JSON body or in the query. Null, or nothing, is unknown.
_SHARED: dict[str, tuple[Schema, str]] = {
    "gpu": (_TEXT, "The card, as people type it or drivers report it; `this` asks the driver of the server."),
    "lang": ({"enum": [*LANGUAGES]}, "Language of all that is said."),
    "format": ({"enum": ["json", "md", "html", "page"]}, "Form of the answer; `page` is what the page shows."),
}
_EXPLAIN: dict[str, tuple[Schema, str]] = {
    **_SHARED,
    "name": (_TEXT, "Name of the log, as it may be shown."),
    "config": (_TEXT, "The nanoGPT config of the run; read, never executed."),
    "log_format": (_TEXT, "Do not detect the format of the log: it is this one."),
    "run": ({"type": "integer", "minimum": 1, "maximum": 1_000_000}, "Explain only this run of the log."),
    "iterations": ({"type": "boolean"}, "False leaves the list of iterations out."),
}
_ESTIMATE: dict[str, tuple[Schema, str]] = {
    **_SHARED,
    "gpus": ({"type": "integer", "minimum": 1, "maximum": 100_000}, "Number of cards, with DDP."),
    "link": (_TEXT, "How the cards are connected: nvlink, pcie4, …"),
    "claim": (_TEXT, "Is this possible? 100ms: an iteration; 20min: the run; 2M-tokens/s."),
    "model": ({"enum": [*MODEL_NAMES]}, "The shape of a model by its name."),
    "depth": ({"type": "integer", "minimum": 1, "maximum": 200}, "The shape that nanochat's --depth means."),
    "why": ({"type": "boolean"}, "With the terms behind the step time, in Markdown."),
}
_ADVISE: dict[str, tuple[Schema, str]] = {
    **_SHARED,
    **{name: _EXPLAIN[name] for name in ("name", "config", "log_format", "run")},
    **{name: _ESTIMATE[name] for name in ("gpus", "link", "model", "depth")},
}
_ERRORS = {
    400: "The question cannot be answered: wrong usage, no iteration found, unknown card.",
    401: "The server wants a token.",
    403: "Another site asks, or the path is not in an allowed directory.",
    408: "The body did not arrive in time.",
    413: "Larger than 64 MB, before or after expansion.",
    415: "A body of that kind cannot be read.",
    503: "Too many questions at once, or the answer took too long.",
}


def document() -> Schema:
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
        "paths": {
            "/api/explain": {"post": _explain()},
            "/api/estimate": {"post": _estimate()},
            "/api/advise": {"post": _advise()},
            "/api/gpus": {"get": _get("listGpus", "The cards that stepwatch knows.", "Gpus")},
            "/api/openapi.json": {"get": _get("openapi", "This document.", "Document")},
        },
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _explain() -> Schema:
    log = {"log": {"type": "string", "description": "The text of the log."}}
    path = _parameter("path", _TEXT, "A log on the server, below a directory that it allows; the body is then ignored.")
    return {
        "operationId": "explain",
        "summary": "Explain the log of a training run.",
        "parameters": [*_query(_EXPLAIN), path],
        "requestBody": _body(log, _EXPLAIN, "The log itself, plain or gzip; what else there is goes into the query."),
        "responses": _answers("Report"),
    }


def _estimate() -> Schema:
    config = {"config": _or_null({"type": "string", "description": "A nanoGPT config, or a log with a header."})}
    return {
        "operationId": "estimate",
        "summary": "Estimate what a config will take on a card, and whether a claim is possible.",
        "parameters": _query(_ESTIMATE),
        "requestBody": _body(config, _ESTIMATE, "The config itself; what else there is goes into the query."),
        "responses": _answers("Plan"),
    }


def _advise() -> Schema:
    log = {"log": _or_null({"type": "string", "description": "The text of the log, where there is one."})}
    return {
        "operationId": "advise",
        "summary": "Advise what to change, or recommend a config where there is neither log nor config.",
        "parameters": _query(_ADVISE),
        "requestBody": {
            **_body(log, _ADVISE, "The log or the config itself; what else there is goes into the query."),
            "required": False,
        },
        "responses": _answers("Advice"),
    }


def _get(name: str, summary: str, schema: str) -> Schema:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    responses = {"200": {"description": summary, "content": content}, **_refusals(401, 403)}
    return {"operationId": name, "summary": summary, "responses": responses}


def _query(fields: dict[str, tuple[Schema, str]]) -> list[Schema]:
    settings = _parameter("set", {"type": "array", "items": _TEXT}, "A setting as key=value; may be repeated.")
    return [*(_parameter(name, schema, text) for name, (schema, text) in fields.items()), settings]


def _parameter(name: str, schema: Schema, description: str) -> Schema:
    return {"name": name, "in": "query", "schema": schema, "description": description}


def _body(text: Schema, fields: dict[str, tuple[Schema, str]], plain: str) -> Schema:
    properties = {name: _or_null({**schema, "description": said}) for name, (schema, said) in fields.items()}
    question = {
        "type": "object",
        "properties": {**text, **properties, "settings": {"$ref": "#/components/schemas/Settings"}},
        "required": ["log"] if text.get("log", {}).get("type") == "string" else [],
        "additionalProperties": False,
    }
    bare = {media: {"schema": {"type": "string", "description": plain}} for media in _PLAIN}
    return {
        "required": text.get("log", {}).get("type") == "string",
        "content": {"application/json": {"schema": question}, **bare},
    }


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _answers(schema: str) -> Schema:
    either = {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in (schema, "PageParts")]}
    content = {
        "application/json": {"schema": either},
        "text/markdown": {"schema": _TEXT},
        "text/html": {"schema": _TEXT},
    }
    return {
        "200": {"description": "The answer, in the form that was asked for.", "content": content},
        **_refusals(*_ERRORS),
    }


def _refusals(*statuses: int) -> Schema:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {str(status): {"description": _ERRORS[status], "content": content} for status in statuses}


def _schemas() -> Schema:
    return {
        "Error": {
            "type": "object",
            "required": ["error", "hint"],
            "properties": {"error": _TEXT, "hint": {"type": ["string", "null"]}},
        },
        "Interval": _record({name: {"type": "number"} for name in ("low", "mid", "high")}),
        "Settings": {
            "type": ["object", "null"],
            "description": "nanoGPT's own names, and ours where it has none.",
            "properties": {name: {"type": _TYPES[kind]} for name, kind in KINDS.items()},
            "additionalProperties": False,
        },
        "Report": _record({
            "schema": {"const": "stepwatch.report/1"}, "language": _TEXT, "runs": {"type": "array", "items": _run()},
        }),
        "Plan": _record({
            "schema": {"const": "stepwatch.plan/1"}, "gpu": _TEXT, "settings": {"type": "object"},
            **dict.fromkeys(("step_s", "eval_s", "checkpoint_s", "compile_s", "total_s", "vram_bytes"), _INTERVAL),
            "fits": {"type": ["boolean", "null"]}, "claim": {"type": ["object", "null"]}, "advice": {"type": "array"},
        }),
        "Advice": _record({
            "schema": {"const": "stepwatch.advice/1"}, "advice": {"type": "array"},
            **{name: {"type": ["object", "null"]} for name in ("before", "after", "recommended", "plan")},
        }),
        "PageParts": _record({"html": _TEXT, "specs": {"type": "object"}}),
        "Gpus": _record({"schema": _TEXT}),
        "Document": {"type": "object"},
    }  # fmt: skip


def _run() -> Schema:
    costs = _record({"step_s": _INTERVAL, **dict.fromkeys(("eval_s", "checkpoint_s", "compile_s"), _INTERVAL_OR_NULL)})
    texts = {"findings": {"type": "array"}, "advice": {"type": "array"}}
    return _record({
        "source": _TEXT, "format": _TEXT, "settings": {"type": "object"}, "costs": costs,
        "throughput": {"type": "object"}, "goodput": {"type": "object"}, "forecast": {"type": ["object", "null"]},
        **texts,
    })  # fmt: skip


def _record(properties: Schema) -> Schema:
    """An object that has at least these; more keys may come."""
    return {"type": "object", "required": list(properties), "properties": properties}
