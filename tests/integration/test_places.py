"""Logs that lie elsewhere: real servers on the loopback, and what is said where a package is missing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.commands import stepwatch

from stepwatch.fleet.copies import fetched_locally
from stepwatch.fleet.logs import find_logs


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """A web server with its own lists of links."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(directory)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_links_of_a_web_server_are_followed(tmp_path: Path) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    for name in ("runs/one.log", "runs/a/two words.log"):
        (tmp_path / name).write_text(f"iter 0: of {name}\n")
    with served(tmp_path) as address:
        first = find_logs([f"{address}/runs/"])
        assert [log.name.removeprefix(address) for log in first] == ["/runs/a/two%20words.log", "/runs/one.log"]
        for log, text in zip(first, ("runs/a/two words.log", "runs/one.log"), strict=True):
            with fetched_locally(log, limit=1000) as (path,):
                assert Path(path).read_text() == f"iter 0: of {text}\n"
        assert [log.fingerprint for log in find_logs([f"{address}/runs/"])] == [log.fingerprint for log in first]
        (tmp_path / "runs" / "one.log").write_text("iter 0: longer than before, and more\n")
        again = {log.name for log in find_logs([f"{address}/runs/"])} - {log.name for log in first}
        changed = {log.fingerprint for log in find_logs([f"{address}/runs/"])} - {log.fingerprint for log in first}
        assert (again, len(changed)) == (set(), 1)
        (alone,) = find_logs([f"{address}/runs/one.log"])
        assert alone.files[0].written_s is not None


@pytest.mark.parametrize(
    ("place", "word"),
    [
        ("gs://lab/runs", b"gcsfs"),
        ("az://lab/runs", b"adlfs"),
        ("sftp://127.0.0.1:1/runs", b"paramiko"),
        ("strange://lab/runs", b"strange"),
        ("http://127.0.0.1:1/runs/", b"127.0.0.1:1"),
        ("sftp://me:secret@127.0.0.1/runs", b"FSSPEC_SFTP_PASSWORD"),
    ],
)
def test_what_is_missing_is_named(place: str, word: bytes, tmp_path: Path) -> None:
    done = stepwatch("collect", place, "--into", tmp_path / "store")
    assert done.returncode == 1
    assert word in done.stderr
    assert b"secret" not in done.stderr
    assert len(done.stderr.splitlines()) == 2
