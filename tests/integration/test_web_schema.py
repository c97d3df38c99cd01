"""schemathesis asks everything that the API's own document allows, and much that it does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

from stepwatch.web.app import create_app
from stepwatch.web.openapi import document
from stepwatch.web.options import Limits, Options

schema = schemathesis.openapi.from_dict(document())


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    options = Options(limits=Limits(workers=2))
    with TestClient(create_app(options), base_url="http://127.0.0.1:8765") as client:
        yield client


@schema.parametrize()
@settings(
    max_examples=60, derandomize=True, deadline=None, database=None, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_no_question_breaks_the_server(client: TestClient, case: schemathesis.Case) -> None:
    response = case.call(session=client, base_url="http://127.0.0.1:8765")
    case.validate_response(
        response,
        checks=[not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance],
    )
