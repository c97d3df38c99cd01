"""schemathesis asks everything that the API's own document allows, and much that it does not."""

from __future__ import annotations

import gzip

import schemathesis
from hypothesis import HealthCheck, Phase, settings
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


@schema.parametrize()
@settings(
    max_examples=60, derandomize=True, deadline=None, database=None, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_no_question_breaks_the_server(server: Serving, case: schemathesis.Case) -> None:
    response = case.call(base_url=server.address)
    case.validate_response(
        response,
        checks=[not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance],
    )
