"""schemathesis asks everything that the API's own document allows, and much that it does not."""

from __future__ import annotations

import gzip
from contextlib import suppress

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.integration.serving import Serving

from stepwatch.web.openapi import document


@schemathesis.serializer("application/gzip")
def packed(context: schemathesis.SerializationContext, value: object) -> bytes:
    return gzip.compress(value if isinstance(value, bytes) else str(value).encode("utf-8", "replace"))


schema = schemathesis.openapi.from_dict(document())


OPERATIONS = [(path, method) for path, methods in document()["paths"].items() for method in methods]
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
@pytest.mark.parametrize("mode", [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE])
def test_no_question_breaks_the_server(
    server: Serving, path: str, method: str, mode: schemathesis.GenerationMode
) -> None:
    @settings(
        max_examples=15, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(schema[path][method].as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        case.validate_response(case.call(base_url=server.address), checks=CHECKS)

    with suppress(Unsatisfiable):  # where nothing that is sent can be wrong
        ask()
