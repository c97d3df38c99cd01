"""`stepwatch serve` as it is started: its words, its end, questions in parallel, a log that grows."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from tests.commands import stepwatch
from tests.integration.serving import PATIENCE_S, TO_US, Serving, iteration_lines, serving

from stepwatch.web.limits import Limits

PLAIN = {"Content-Type": "text/plain"}


def serve(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return stepwatch("serve", "--lang", "en", *arguments)


def events(response: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_a_port_that_is_taken_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = serve("--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert done.stderr.startswith(b"stepwatch: cannot listen on 127.0.0.1, port ")
    assert done.stderr.count(b"\n") == 2
    assert done.stdout == b""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--host", "0.0.0.0"], 2, "others can reach “0.0.0.0”: it needs a token"),
        (["--host", "::"], 2, "others can reach “::”: it needs a token"),
        (["--host", "example.invalid"], 2, "it needs a token"),
        (["--host", "example.invalid", "--token", "x" * 16], 1, "cannot listen on example.invalid"),
        (["--token", "short"], 2, "a token needs at least 16 plain characters"),
        (["--allow", "nowhere"], 2, "“nowhere” is not a value for --allow"),
    ],
)
def test_what_cannot_be_served_is_said(arguments: list[str], code: int, said: str) -> None:
    done = serve(*arguments)
    assert (done.returncode, b"Traceback" in done.stderr) == (code, False)
    assert said in done.stderr.decode()


def test_ctrl_c_ends_it_even_while_a_log_is_watched(served_directory: Path) -> None:
    (served_directory / "watched.log").write_text(iteration_lines(60), encoding="utf-8")
    with serving("--allow", str(served_directory)) as server:
        with httpx.stream("GET", f"{server.address}/live?path=watched.log", **TO_US) as response:
            assert next(events(response))[0] == "look"
            assert server.interrupt() == 0
        assert server.process.stderr is not None
        assert server.process.stderr.read() == ""


def test_parallel_questions_are_not_mixed_up(server: Serving) -> None:
    def step(number: int) -> float:
        text = iteration_lines(200, 100.0 + number)
        response = httpx.post(f"{server.address}/api/explain", content=text, headers=PLAIN, **TO_US)
        found: float = response.json()["runs"][0]["costs"]["step_s"]["mid"]
        return found

    with ThreadPoolExecutor(30) as pool:
        found = list(pool.map(step, range(30)))
    assert found == pytest.approx([0.1 + 0.001 * number for number in range(30)], rel=1e-6)


def test_a_body_beyond_the_limit_is_refused_and_the_answer_heard(server: Serving) -> None:
    body = (b"x" * 10**6 for _ in range(70))
    response = httpx.post(f"{server.address}/api/explain", content=body, headers=PLAIN, **TO_US)
    assert response.status_code == 413


def test_a_huge_log_does_not_stall_others(server: Serving) -> None:
    """Larger than the workers may have between them; a small question overtakes it."""
    huge = iteration_lines(200_000).encode()
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(_posted, server, huge) for _ in range(3)]
        small = pool.submit(_posted, server, iteration_lines(100).encode())
        assert small.result() == 200
        assert not all(each.done() for each in asked)
        assert [each.result() for each in asked] == [200, 200, 200]


def _posted(server: Serving, body: bytes) -> int:
    address = f"{server.address}/api/explain?iterations=false"
    return httpx.post(address, content=body, headers=PLAIN, **TO_US).status_code


def test_a_live_view_follows_its_log(server: Serving, served_directory: Path) -> None:
    log = served_directory / "followed.log"
    with httpx.stream("GET", f"{server.address}/live?path=followed.log", **TO_US) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        told = events(response)
        name, look = next(told)
        assert (name, look["state"]) == ("look", "waiting")
        assert "does not exist yet" in look["where"]
        log.write_text("nothing yet\n", encoding="utf-8")
        assert "No iteration has finished yet." in {look["where"] for _, look in islice(told, 1)}
        log.write_text(iteration_lines(60), encoding="utf-8")
        report = next(found for name, found in told if name == "report")
        assert report["size"] == log.stat().st_size
        assert "100" in report["html"]
        with log.open("a", encoding="utf-8") as file:
            file.write("iter 60: loss 4.2000, time 100.00ms, mfu 9.00%\n")
        look = next(found for name, found in told if name == "look" and found["size"] == log.stat().st_size)
        while look["where"] != "Iteration 60.":  # the analysis takes a hundredth of the time, no more
            look = next(found for name, found in told if name == "look")
        log.unlink()  # rotated away, and another one in its place
        log.write_text(iteration_lines(30, 200.0), encoding="utf-8")
        look = next(found for name, found in told if name == "look" and found["events"])
        assert "truncated or replaced" in look["events"][0]["text"]


def test_what_others_watch_outlasts_one_who_leaves(server: Serving, served_directory: Path) -> None:
    (served_directory / "shared.log").write_text(iteration_lines(60), encoding="utf-8")
    address = f"{server.address}/live?path=shared.log"
    with httpx.stream("GET", address, **TO_US) as staying:
        told = events(staying)
        assert next(told)[0] == "look"
        for _ in range(3):
            with httpx.stream("GET", address, **TO_US) as leaving:
                next(events(leaving))
        with (served_directory / "shared.log").open("a", encoding="utf-8") as file:
            file.write("iter 60: loss 4.2000, time 9000.00ms, mfu 9.00%\n")
        for name, found in told:
            assert name != "problem"
            if name == "look" and found["events"]:
                break
        assert found["events"][0]["alarm"]


def test_live_views_are_limited_and_free_their_place_when_they_leave(server: Serving, served_directory: Path) -> None:
    (served_directory / "many.log").write_text(iteration_lines(60), encoding="utf-8")
    address = f"{server.address}/live?path=many.log"
    with httpx.Client(**TO_US) as client:
        with ExitStack() as views:
            told = [events(views.enter_context(client.stream("GET", address))) for _ in range(Limits().live_views)]
            assert {next(each)[0] for each in told} == {"look"}
            assert _status(client, address) == 503
        deadline = time.monotonic() + PATIENCE_S
        while _status(client, address) != 200:
            assert time.monotonic() < deadline, "the views that left still count"


def _status(client: httpx.Client, address: str) -> int:
    with client.stream("GET", address) as response:
        return response.status_code


def test_nothing_is_left_of_what_was_pasted(server: Serving, served_temporary: Path) -> None:
    for form in ("json", "md", "html", "page"):
        address = f"{server.address}/api/explain?format={form}"
        httpx.post(address, content=iteration_lines(100), headers=PLAIN, **TO_US)
    assert [path for path in served_temporary.rglob("*") if path.is_file()] == []
