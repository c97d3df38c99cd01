"""The server when things go wrong around it: half-open connections, no descriptors, workers that are killed."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from tests.integration.serving import PATIENCE_S, TO_US, Serving, iteration_lines, serving

from stepwatch.web.limits import Limits

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="processes are found in /proc")

PLAIN = {"Content-Type": "text/plain"}
LOG = iteration_lines(60).encode()


def asked(server: Serving) -> int:
    address = f"{server.address}/api/explain?iterations=false"
    return httpx.post(address, content=LOG, headers=PLAIN, **TO_US).status_code


def workers_of(server: Serving) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (place / "stat").read_text().rpartition(")")[2].split()[:2]
            is_worker = b"stepwatch.web.worker" in (place / "cmdline").read_bytes()
        except OSError:
            continue
        if int(parent) == server.process.pid and is_worker and state != "Z":
            found.append(int(place.name))
    return found


def allow_descriptors(server: Serving, count: int) -> None:
    _, most = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (count, most))


@contextmanager
def half_open(server: Serving, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    host, _, port = server.address.removeprefix("http://").rpartition(":")
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            opened.append(stack.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE_S)))
            opened[-1].sendall(sent)
        yield opened


def test_half_open_connections_make_room_for_questions(server: Serving) -> None:
    for sent in (b"", b"POST /api/explain HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "):
        with half_open(server, 450, sent):
            assert [asked(server) for _ in range(3)] == [200, 200, 200]


def test_a_connection_without_a_question_is_closed(server: Serving) -> None:
    with half_open(server, 1, b"GET / HT") as (connection,):
        try:
            heard = connection.recv(1)
        except ConnectionResetError:
            heard = b""
        assert heard == b""


def test_with_few_descriptors_from_the_start_it_answers() -> None:
    with serving(descriptors=64) as server, half_open(server, 100, b"GET / HT"):
        assert [asked(server) for _ in range(3)] == [200] * 3


def test_questions_are_answered_though_their_workers_are_killed(server: Serving) -> None:
    assert asked(server) == 200
    for _ in range(2):
        for worker in workers_of(server):
            os.kill(worker, signal.SIGKILL)
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda _: asked(server), range(4))) == [200] * 4


@pytest.fixture(scope="module")
def starved() -> Iterator[Serving]:
    """Descriptors are taken away from it and given back."""
    with serving() as server:
        yield server


def test_a_worker_that_cannot_be_started_is_tried_again(starved: Serving) -> None:
    assert asked(starved) == 200
    maps = Path(f"/proc/{starved.process.pid}/maps").read_text()
    assert "numpy" not in maps  # which is for workers
    allow_descriptors(starved, len(os.listdir(f"/proc/{starved.process.pid}/fd")) + 1)
    for worker in workers_of(starved):
        os.kill(worker, signal.SIGKILL)
    time.sleep(3.0)
    allow_descriptors(starved, 1024)
    assert asked(starved) == 200


def test_without_descriptors_it_is_quiet_and_answers_afterwards(starved: Serving) -> None:
    """Then it ends, since only then all is heard that it said."""
    assert asked(starved) == 200
    allow_descriptors(starved, 24)
    with half_open(starved, 60, b"GET / HT"):
        time.sleep(3.0)
        for worker in workers_of(starved):  # new ones need descriptors, too
            os.kill(worker, signal.SIGKILL)
        time.sleep(2.0)
    allow_descriptors(starved, 1024)
    assert [asked(starved) for _ in range(5)] == [200] * 5
    starved.process.terminate()
    _, error = starved.process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in error
    assert len(error) < 2000


def test_no_more_live_views_than_allowed_even_at_once(server: Serving, served_directory: Path) -> None:
    (served_directory / "crowd.log").write_bytes(LOG)
    address = f"{server.address}/live?path=crowd.log"
    count = 3 * Limits().live_views
    with ExitStack() as stack, ThreadPoolExecutor(count) as pool:

        def view(client: httpx.Client) -> int:
            return stack.enter_context(client.stream("GET", address)).status_code

        clients = [stack.enter_context(httpx.Client(**TO_US)) for _ in range(count)]
        statuses = list(pool.map(view, clients))
    assert statuses.count(200) == Limits().live_views
    assert statuses.count(503) == count - Limits().live_views


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a line says that the token is seen")
def test_the_token_is_not_in_the_list_of_processes() -> None:
    token = "a-secret-of-many-letters"
    with serving("--token", token) as server:
        assert token in server.address
        listed = subprocess.run(["ps", "-o", "args=", "-p", str(server.process.pid)], stdout=subprocess.PIPE, text=True)
        assert "serve" in listed.stdout
        assert token not in listed.stdout
    with serving(environment={"STEPWATCH_TOKEN": token}) as server:
        assert token in server.address
        deadline = time.monotonic() + PATIENCE_S
        while not (workers := workers_of(server)):
            assert time.monotonic() < deadline, "no worker was started"
            time.sleep(0.02)
        for process in workers:
            assert token.encode() not in Path(f"/proc/{process}/environ").read_bytes()
