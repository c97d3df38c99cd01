"""A server that is not well: passes HTTP on to another, with errors, delays and connections cut in between."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KINDS = ("500", "503", "slow", "refused", "lost", "cut")
"""`refused`: closed before the request is passed on; `lost`: after it, without an answer; `cut`: in the answer."""
HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length", "date", "server")


class Faults:
    """A share of the requests goes wrong, at moments that a seed gives."""

    def __init__(self, *, seed: int, share: float, delay_s: float, most: int) -> None:
        self._rng, self._share, self.delay_s, self._most = random.Random(seed), share, delay_s, most
        self._lock = threading.Lock()
        self.made: Counter[str] = Counter()

    def next(self) -> str | None:
        with self._lock:
            if self.made.total() >= self._most or self._rng.random() >= self._share:
                return None
            kind = self._rng.choice(KINDS)
            self.made[kind] += 1
            return kind


@contextmanager
def faulty(
    port: int, *, seed: int = 1, share: float = 0.2, delay_s: float = 0.3, most: int = 50
) -> Iterator[tuple[str, Faults]]:
    """In front of a server on the loopback: the address to use instead, and what went wrong so far."""
    faults = Faults(seed=seed, share=share, delay_s=delay_s, most=most)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kind = faults.next()
            if kind in ("500", "503"):
                self.send_response(int(kind))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if kind == "refused":
                self.hang_up()
                return
            if kind == "slow":
                time.sleep(faults.delay_s)
            connection = HTTPConnection("127.0.0.1", port, timeout=60)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            if kind == "lost":
                self.hang_up()
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if kind == "cut" else data)
            if kind == "cut":
                self.hang_up()

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on  # noqa: N815

        def hang_up(self) -> None:
            self.close_connection = True
            with suppress(OSError):
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", faults
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
