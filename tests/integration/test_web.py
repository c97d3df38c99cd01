"""The API and its guard: what is asked and refused, with the whole application and real workers, without a socket."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from starlette.testclient import TestClient
from tests.integration.serving import PATIENCE_S, iteration_lines
from tools import ROOT

from stepwatch.web.app import create_app
from stepwatch.web.limits import Limits, ServerOptions
from stepwatch.web.places import samples_beside
from stepwatch.web.wire import Asked
from stepwatch.web.workers import Workers

HERE = "http://127.0.0.1:8765"
SHORT = (ROOT / "examples" / "short.log").read_bytes()
CONFIG = (ROOT / "examples" / "train_gpt2_small.py").read_text(encoding="utf-8")
TOKEN = "a-token-of-some-length"
PLAIN = {"Content-Type": "text/plain"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What may be read, beside what may not."""
    place = tmp_path_factory.mktemp("machine")
    (place / "logs" / "deep").mkdir(parents=True)
    (place / "logs" / "train.log").write_bytes(SHORT)
    (place / "logs" / "deep" / "train.log.gz").write_bytes(gzip.compress(SHORT))
    (place / "secret.log").write_bytes(SHORT)
    (place / "logs-of-others").mkdir()
    (place / "logs-of-others" / "train.log").write_bytes(SHORT)
    (place / "logs" / "link.log").symlink_to(place / "secret.log")
    (place / "logs" / "away").symlink_to(place / "logs-of-others")
    (place / "logs" / "inside.log").symlink_to(place / "logs" / "train.log")
    os.mkfifo(place / "logs" / "pipe.log")
    return place


@pytest.fixture(scope="module")
def client(directory: Path) -> Iterator[TestClient]:
    options = ServerOptions(allowed=(str(directory / "logs"),), limits=Limits(body_bytes=2_000_000, workers=2))
    with TestClient(create_app(options), base_url=HERE) as client:
        yield client


def explained(response: Any) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    assert document["schema"] == "stepwatch.report/1"
    return document


def refused(response: Any, status: int) -> str:
    assert response.status_code == status, response.text
    found = response.json()
    assert set(found) == {"error", "hint", "field"}
    assert "Traceback" not in response.text
    error: str = found["error"]
    return error


# --- explain ----------------------------------------------------------------------------------------------------


def test_a_plain_log_is_explained(client: TestClient) -> None:
    found = explained(
        client.post("/api/explain?gpu=4070&set=max_iters=6000&name=train.log", content=SHORT, headers=PLAIN)
    )
    (run,) = found["runs"]
    assert run["source"] == "train.log"
    assert run["throughput"]["gpu"] == "GeForce RTX 4070"
    assert run["settings"]["max_iters"] == 6000
    assert run["iterations"]


def test_json_and_plain_body_have_the_same_answer(client: TestClient) -> None:
    question = {
        "log": SHORT.decode(),
        "gpu": "4070",
        "lang": "fr",
        "settings": {"max_iters": 6000},
        "iterations": False,
    }
    asked = "/api/explain?gpu=4070&lang=fr&set=max_iters=6000&iterations=false"
    found = explained(client.post("/api/explain", json=question))
    assert found == explained(client.post(asked, content=SHORT, headers=PLAIN))
    assert found["language"] == "fr"
    assert "iterations" not in found["runs"][0]


@pytest.mark.parametrize("media", ["application/gzip", "application/octet-stream", "text/plain", ""])
def test_a_gzip_log_is_expanded(client: TestClient, media: str) -> None:
    headers = {"Content-Type": media} if media else {}
    explained(client.post("/api/explain", content=gzip.compress(SHORT), headers=headers))


def test_a_gzip_json_body_is_expanded(client: TestClient) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    explained(
        client.post(
            "/api/explain", content=gzip.compress(json.dumps({"log": SHORT.decode()}).encode()), headers=headers
        )
    )


def test_a_config_tells_settings(client: TestClient) -> None:
    found = explained(client.post("/api/explain", json={"log": SHORT.decode(), "config": "max_iters = 7000"}))
    assert found["runs"][0]["settings"]["max_iters"] == 7000


@pytest.mark.parametrize(("form", "media", "sign"), [("md", "text/markdown", "# "), ("html", "text/html", "<!")])
def test_other_forms_have_their_media_type(client: TestClient, form: str, media: str, sign: str) -> None:
    response = client.post(f"/api/explain?format={form}", content=SHORT, headers=PLAIN)
    assert response.headers["content-type"].startswith(media)
    assert response.text.lstrip().startswith(sign)


def test_the_page_gets_markup_and_charts(client: TestClient) -> None:
    found = client.post("/api/explain?format=page", content=SHORT, headers=PLAIN).json()
    assert set(found) == {"html", "specs", "notices"}
    assert "<script" not in found["html"]


def test_what_a_log_says_is_escaped(client: TestClient) -> None:
    hostile = b"<img src=x onerror=alert(1)> iter <script>\n" + SHORT
    asked = "/api/explain?format=page&name=<img src=x onerror=alert(1)>.log"
    html = client.post(asked, content=hostile, headers=PLAIN).json()["html"]
    assert "<img" not in html
    assert "<script" not in html


@pytest.mark.parametrize(
    ("address", "body", "error"),
    [
        ("/api/explain", b"", "the log is empty"),
        ("/api/explain", b"no such thing", "no iteration found in the log"),
        ("/api/explain", bytes(range(128, 256)) * 20, "“-” is not text"),
        ("/api/explain?gpu=nonsense", SHORT, "there is no card “nonsense” in the catalogue"),
        ("/api/explain?lang=xx", SHORT, "“xx” is not a value for lang"),
        ("/api/explain?format=exe", SHORT, "“exe” is not a value for format"),
        ("/api/explain?set=max_iters", SHORT, "--set needs key=value, not “max_iters”"),
        ("/api/explain?set=nonsense=1", SHORT, "there is no setting “nonsense”"),
        ("/api/explain?colour=red", SHORT, "unknown parameter “colour”"),
        ("/api/explain?run=9", SHORT, "“run” cannot have this value"),
        ("/api/explain?run=%D9%A3", SHORT, "“run” cannot have this value"),
        ("/api/explain?iterations=perhaps", SHORT, "“iterations” cannot have this value"),
        ("/api/explain?log_format=nonsense", SHORT, "there is no log format “nonsense”"),
        ("/api/estimate?claim=soon&gpu=4070", b"", "the claim “soon” cannot be read"),
        ("/api/estimate?gpu=4070", b"x = (", "the config is not Python: see line 1"),
        ("/api/estimate?gpu=4070&gpus=0", b"", "“gpus” cannot have this value"),
        ("/api/estimate?gpu=4070&model=gpt9", b"", "“gpt9” is not a value for model"),
        ("/api/estimate?gpu=4070&link=string", b"", "there is no link “string”"),
    ],
)
def test_mistakes_are_told_in_one_line(client: TestClient, address: str, body: bytes, error: str) -> None:
    assert refused(client.post(address, content=body, headers=PLAIN), 400) == error


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"log": 3}', b"{}", b'{"log": null}', b'{"log": "x", "what": 1}', b"[" * 100_000,
     b'{"log": "x", "settings": {"max_iters": [1]}}', b'{"log": "x", "settings": []}', b'{"log": "x", "run": true}',
     b'{"log": "\\ud800"}', b"\xff\xfe", b'{"log": "iter 1", "run": 99999999999999999999999}'],
)  # fmt: skip
def test_json_that_makes_no_sense_is_a_mistake_of_the_asker(client: TestClient, body: bytes) -> None:
    refused(client.post("/api/explain", content=body, headers={"Content-Type": "application/json"}), 400)


def test_errors_speak_the_language_that_was_asked_for(client: TestClient) -> None:
    found = refused(client.post("/api/explain?lang=de", content=b"", headers=PLAIN), 400)
    assert found != "the log is empty"


# --- estimate ---------------------------------------------------------------------------------------------------


def test_a_config_is_estimated_and_a_claim_judged(client: TestClient) -> None:
    found = client.post("/api/estimate", json={"config": CONFIG, "gpu": "4070", "claim": "1ms", "gpus": 2}).json()
    assert found["schema"] == "stepwatch.plan/1"
    assert found["n_gpus"] == 2
    assert found["claim"]["verdict"] == "impossible"
    plain = client.post("/api/estimate?gpu=4070&claim=1ms&gpus=2", content=CONFIG, headers=PLAIN).json()
    assert plain == found


def test_a_header_of_a_log_serves_as_config(client: TestClient) -> None:
    log = "tokens per iteration will be: 16,384\nnumber of parameters: 10.65M\n" + iteration_lines(5)
    found = client.post("/api/estimate?gpu=4070", content=log, headers=PLAIN).json()
    assert found["settings"]["tokens_per_iter"] == 16384


@pytest.mark.parametrize("form", ["md", "html", "page"])
def test_an_estimate_comes_in_every_form(client: TestClient, form: str) -> None:
    assert client.post(f"/api/estimate?gpu=4070&format={form}", content=b"", headers=PLAIN).status_code == 200


# --- the rest of the API ----------------------------------------------------------------------------------------


def test_the_cards_are_listed(client: TestClient) -> None:
    assert "GeForce RTX 4070" in [card["name"] for card in client.get("/api/gpus").json()["gpus"]]


def test_the_document_names_what_there_is(client: TestClient) -> None:
    paths = client.get("/api/openapi.json").json()["paths"]
    questions = {f"/api/{question}" for question in ("explain", "estimate", "advise", "compare")}
    assert set(paths) == questions | {"/api/gpus", "/api/openapi.json"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/api/explain", 405), ("POST", "/", 405), ("GET", "/x", 404), ("GET", "/page/../app.py", 404),
     ("GET", "/page/%2e%2e%2fapp.py", 404), ("GET", "/page/words/xx.json", 404)],
)  # fmt: skip
def test_what_is_not_there_is_said_so(client: TestClient, method: str, path: str, status: int) -> None:
    refused(client.request(method, path), status)


@pytest.mark.parametrize(
    "headers",
    [{"Content-Type": "multipart/form-data"}, {"Content-Type": "application/x-www-form-urlencoded"},
     {"Content-Type": "text/plain", "Content-Encoding": "br"}],
)  # fmt: skip
def test_bodies_of_other_kinds_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    refused(client.post("/api/explain", content=SHORT, headers=headers), 415)


def test_a_body_beyond_the_limit_is_refused(client: TestClient) -> None:
    assert "2.00 MB" in refused(client.post("/api/explain", content=b"x" * 2_000_001, headers=PLAIN), 413)


def test_a_body_is_counted_while_it_comes(client: TestClient) -> None:
    endless = (b"x" * 100_000 for _ in range(40))
    refused(client.post("/api/explain", content=endless, headers=PLAIN), 413)


@pytest.mark.parametrize("media", ["application/gzip", "application/json"])
def test_what_expands_beyond_the_limit_is_refused(client: TestClient, media: str) -> None:
    bomb = gzip.compress(b" " * 3_000_000)
    refused(client.post("/api/explain", content=bomb, headers={"Content-Type": media}), 413)


# --- two logs ---------------------------------------------------------------------------------------------------


def test_two_logs_are_compared_either_way(client: TestClient) -> None:
    before, after = iteration_lines(100, 100.0).encode(), iteration_lines(100, 150.0).encode()
    asked = {"before_bytes": len(before), "before_name": "a.log", "after_name": "b.log"}
    plain = client.post("/api/compare", content=before + after, params=asked, headers=PLAIN).json()
    texts = {"before": before.decode(), "after": after.decode(), "before_name": "a.log", "after_name": "b.log"}
    assert plain == client.post("/api/compare", json=texts).json()
    assert plain["ratio"]["mid"] == pytest.approx(1.5, rel=1e-3)
    assert [run["name"] for run in plain["runs"]] == ["a.log", "b.log"]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"after": "nothing"}, "after"), ({"before": ""}, "before"), ({"before_gpu": "nonsense"}, "before_gpu"),
     ({"after": None}, "after"), ({"after_run": 2}, "after_run"), ({"settings": {"n_layr": 2}}, "settings")],
)  # fmt: skip
def test_of_two_logs_the_wrong_field_is_named(client: TestClient, wrong: dict[str, object], field: str) -> None:
    log = iteration_lines(60)
    response = client.post("/api/compare", json={"before": log, "after": log, **wrong})
    refused(response, 400)
    assert response.json()["field"] == field


def test_a_body_of_two_logs_needs_their_lengths(client: TestClient) -> None:
    assert "no log “before”" in refused(client.post("/api/compare", content=SHORT, headers=PLAIN), 400)


# --- what is packed ---------------------------------------------------------------------------------------------


def test_text_is_packed_for_those_who_take_it(client: TestClient) -> None:
    for address in ("/", "/page/page.js", "/api/openapi.json"):
        assert client.get(address).headers["content-encoding"] == "gzip"
        assert "content-encoding" not in client.get(address, headers={"Accept-Encoding": "identity"}).headers


# --- logs on the machine ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["train.log", "deep/train.log.gz", "inside.log", "./deep/../train.log"])
def test_a_log_in_an_allowed_directory_is_explained(client: TestClient, path: str) -> None:
    explained(client.post("/api/explain", params={"path": path}))


@pytest.mark.parametrize(
    "path",
    ["../secret.log", "link.log", "away/train.log", "../logs-of-others/train.log", "/etc/passwd",
     "deep/../../secret.log", "", "/", "\0", "train.log\0", "..",
     "~/secret.log/../../../../etc/passwd", "C:\\train.log/../../secret.log"],
)  # fmt: skip
def test_roads_out_of_the_allowed_directories_are_closed(client: TestClient, path: str) -> None:
    for response in (client.post("/api/explain", params={"path": path}), client.get("/live", params={"path": path})):
        refused(response, 403)
        assert "secret" not in response.json()["hint"]


@pytest.mark.parametrize("path", ["pipe.log", "deep", "missing.log", "x" * 5000])
def test_what_is_no_file_cannot_be_read(client: TestClient, path: str) -> None:
    refused(client.post("/api/explain", params={"path": path}), 400)


def test_without_allowed_directories_no_path_is_read() -> None:
    with TestClient(create_app(ServerOptions(limits=Limits(workers=0))), base_url=HERE) as client:
        refused(client.post("/api/explain", params={"path": "train.log"}), 403)
        refused(client.get("/live", params={"path": "train.log"}), 403)


# --- who may ask ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8765", "", "localhost.evil.example", "192.168.0.1"]
)
def test_names_that_are_not_ours_are_refused(client: TestClient, host: str) -> None:
    refused(client.get("/", headers={"Host": host}), 403)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8765", "[::1]:8765", "LOCALHOST"])
def test_names_of_this_machine_are_taken(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:9999"},
     {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "http://["}],
)  # fmt: skip
def test_other_sites_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    refused(client.post("/api/explain", content=SHORT, headers=PLAIN | headers), 403)
    refused(client.get("/live?path=train.log", headers=headers), 403)
    refused(client.get("/api/gpus", headers=headers), 403)


def test_our_own_page_and_programs_may_ask(client: TestClient) -> None:
    own = {"Origin": HERE, "Sec-Fetch-Site": "same-origin"}
    explained(client.post("/api/explain", content=SHORT, headers=PLAIN | own))
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200  # a link was followed


def test_every_answer_carries_its_headers(client: TestClient) -> None:
    for response in (client.get("/"), client.get("/nowhere"), client.get("/api/gpus", headers={"Host": "evil"})):
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in response.headers


def test_the_page_has_no_inline_script_or_style(client: TestClient) -> None:
    text = client.get("/").text
    assert "<style" not in text
    assert " style=" not in text
    assert text.count("<script src=") == text.count("<script")
    assert "onclick" not in text


@pytest.mark.parametrize(("language", "said"), [("fr", 'lang="fr"'), ("xx", 'lang="en"')])
def test_the_page_speaks_the_language_of_its_address(client: TestClient, language: str, said: str) -> None:
    assert f"<html {said}>" in client.get(f"/?lang={language}").text


def test_the_page_speaks_the_language_of_the_browser(client: TestClient) -> None:
    assert '<html lang="de">' in client.get("/", headers={"Accept-Language": "nl, de-CH;q=0.9, en;q=0.8"}).text


# --- the token --------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded() -> Iterator[TestClient]:
    options = ServerOptions(host="0.0.0.0", token=TOKEN, limits=Limits(workers=0))  # nothing is asked that needs one
    with TestClient(create_app(options), base_url="http://192.168.0.7:8765") as client:
        yield client


def test_without_the_token_nothing_is_answered(guarded: TestClient) -> None:
    for address in ("/", "/api/gpus", "/page/page.js", f"/api/gpus?token={TOKEN}", "/?token=wrong", "/?token="):
        refused(guarded.get(address), 401)
    refused(guarded.get("/api/gpus", headers={"Authorization": "Bearer wrong"}), 401)
    refused(guarded.get("/api/gpus", headers={"Cookie": f"stepwatch={TOKEN}"}), 401)


def test_a_program_sends_the_token(guarded: TestClient) -> None:
    assert guarded.get("/api/gpus", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_a_browser_gives_the_token_once(guarded: TestClient) -> None:
    first = guarded.get(f"/?token={TOKEN}")
    assert first.status_code == 200
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    assert guarded.get("/api/gpus").status_code == 200  # by its cookie


def test_a_name_that_somebody_points_here_is_refused_even_with_the_token(guarded: TestClient) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Host": "rebound.example"}
    refused(guarded.get("/api/gpus", headers=headers), 403)


# --- limits of time and number ----------------------------------------------------------------------------------


def test_a_question_that_takes_too_long_loses_its_worker_and_no_more() -> None:
    limits = Limits(answer_s=0.3, workers=1)
    with TestClient(create_app(ServerOptions(limits=limits)), base_url=HERE) as client:
        explained(client.post("/api/explain", content=SHORT, headers=PLAIN))
        long = iteration_lines(400_000).encode()
        assert "took longer" in refused(client.post("/api/explain", content=long, headers=PLAIN), 503)
        explained(client.post("/api/explain", content=SHORT, headers=PLAIN))


def test_a_second_worker_starts_when_a_question_waits() -> None:
    asked = Asked("explain", "text/plain", [], SHORT, len(SHORT), "en")

    def count() -> int:
        return len(psutil.Process().children())

    async def alone_and_together() -> tuple[int, int]:
        workers, before = Workers(2, PATIENCE_S, PATIENCE_S), count()
        async with workers.running():
            for _ in range(2):
                await workers.ask(asked)
            alone = count() - before
            await asyncio.gather(*(workers.ask(asked) for _ in range(3)))
            return alone, count() - before

    with ThreadPoolExecutor(1) as thread:  # the browser's event loop may run in this one
        assert thread.submit(asyncio.run, alone_and_together()).result() == (1, 2)


def test_too_many_questions_are_sent_away() -> None:
    with TestClient(create_app(ServerOptions(limits=Limits(waiting=0, workers=0))), base_url=HERE) as client:
        response = client.post("/api/explain", content=SHORT, headers=PLAIN)
        refused(response, 503)
        assert int(response.headers["retry-after"]) > 0


def test_too_much_at_once_is_sent_away() -> None:
    with TestClient(create_app(ServerOptions(limits=Limits(held_bytes=1000, workers=0))), base_url=HERE) as client:
        refused(client.post("/api/explain", content=SHORT, headers=PLAIN), 503)


def test_too_many_live_views_are_sent_away(directory: Path) -> None:
    options = ServerOptions(allowed=(str(directory / "logs"),), limits=Limits(live_views=0, workers=0))
    with TestClient(create_app(options), base_url=HERE) as client:
        refused(client.get("/live?path=train.log"), 503)


def test_samples_of_a_run_are_read_only_where_they_are_themselves(tmp_path: Path) -> None:
    for name in ("kept", "linked", "none"):
        (tmp_path / "logs" / name).mkdir(parents=True)
        (tmp_path / "logs" / name / "train.log").write_text("iter 0\n")
    (tmp_path / "logs" / "kept" / "samples.csv").write_text("")
    (tmp_path / "secret.csv").write_text("")
    (tmp_path / "logs" / "linked" / "samples.csv").symlink_to(tmp_path / "secret.csv")
    allowed = (str(tmp_path / "logs"),)
    assert samples_beside("kept/train.log", allowed) == os.path.realpath(tmp_path / "logs" / "kept")
    assert samples_beside("linked/train.log", allowed) is None
    assert samples_beside("none/train.log", allowed) is None
    assert samples_beside(str(tmp_path / "secret.csv"), allowed) is None
