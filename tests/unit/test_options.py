"""One table of options: what the command line, the API and its document offer is the same."""

from __future__ import annotations

from dataclasses import fields

import pytest

from stepwatch.answers.from_logs import ExplainRequest
from stepwatch.answers.from_plans import AdviseRequest, EstimateRequest
from stepwatch.messages import Message
from stepwatch.options import API, API_INPUT, COMMAND_LINE, OPTIONS
from stepwatch.presenters import View
from stepwatch.web.openapi import document
from stepwatch.web.replies import TAKES, reply_to
from stepwatch.web.wire import Asked

REQUESTS = {"explain": ExplainRequest, "estimate": EstimateRequest, "advise": AdviseRequest}
OF_THE_ANSWER = {"history", "lang", "format", "name", "file", "no_iterations", *View._fields}


@pytest.mark.parametrize("command", COMMAND_LINE)
def test_every_option_of_a_command_has_its_help(command: str) -> None:
    for name in COMMAND_LINE[command]:
        said = OPTIONS[name].help
        assert (said if isinstance(said, Message) else said[command]).in_english()


@pytest.mark.parametrize("question", API)
def test_the_document_of_the_api_has_what_the_api_takes(question: str) -> None:
    asked = document()["paths"][f"/api/{question}"]["post"]
    properties = asked["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert set(properties) == set(TAKES[question])
    in_query = {parameter["name"] for parameter in asked["parameters"]} - {"set", "path"}
    assert in_query == set(TAKES[question]) - {"settings", *API_INPUT[question]}
    assert all(parameter["description"] for parameter in asked["parameters"])


@pytest.mark.parametrize("form", OPTIONS["format"].choices)
def test_the_api_answers_in_every_form_that_it_offers_as_its_document_says(form: str) -> None:
    log = b"iter 0: loss 4.2, time 100.00ms\niter 1: loss 4.1, time 100.00ms\n"
    reply = reply_to(Asked("explain", "text/plain", [["format", form]], log, len(log), "en"))
    told = document()["paths"]["/api/explain"]["post"]["responses"]["200"]["content"]
    assert (reply.status, reply.media.partition(";")[0] in told) == (200, True)


@pytest.mark.parametrize("question", REQUESTS)
def test_what_can_be_given_can_be_asked(question: str) -> None:
    known = {field.name for field in fields(REQUESTS[question])} | OF_THE_ANSWER
    assert {*COMMAND_LINE[question], *API[question]} <= known
