"""How the page is served, and how much of the machine it may take."""

from __future__ import annotations

import ctypes
import ipaddress
import os
import socket
import sys
from dataclasses import dataclass, field

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
SHORTEST_TOKEN = 16  # what cannot be guessed needs no count of wrong guesses


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    body_bytes: int = 64 * 10**6
    """Of one request, and of what its gzip expands to."""
    held_bytes: int = 512 * 10**6
    """Of all requests that wait for their answer."""
    waiting: int = 100
    """Requests at a time; more are sent away with 503."""
    answer_s: float = 60.0
    """For the analysis of one request, after which its worker is killed."""
    queue_s: float = 120.0
    """For a request to wait until a worker is free."""
    arrive_s: float = 60.0
    """For the body of a request to arrive."""
    live_views: int = 16
    workers: int = field(default_factory=lambda: max(2, min(os.cpu_count() or 2, 4)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None
    allowed: tuple[str, ...] = ()
    """Directories in which a path may name a log."""
    store: str | None = None
    """Of runs that `stepwatch collect` has gathered."""
    language: str = "en"
    language_asked: bool = False
    """Whether the language was asked for: then the browser's own does not count."""
    limits: Limits = Limits()


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def may_be_called(name: str, options: ServerOptions) -> bool:
    """Whether a Host header names this server: a page elsewhere may have let its own name point here."""
    if name in LOOPBACK_NAMES or name == options.host.lower():
        return True
    bound = _address(options.host)
    if bound is None or not bound.is_unspecified:
        return False
    # Bound to every address of the machine: an address cannot be rebound, and its own names are its own.
    return _address(name) is not None or name in {socket.gethostname().lower(), socket.getfqdn().lower()}


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def give_large_blocks_back() -> None:
    """What large logs took goes back to the system when they are answered: glibc would keep it for the next time."""
    if not sys.platform.startswith("linux"):
        return
    try:
        # M_MMAP_THRESHOLD of malloc.h; left alone, the limit rises with the largest block that was ever freed.
        ctypes.CDLL("libc.so.6").mallopt(-3, 1 << 20)
    except (OSError, AttributeError):  # another C library
        return
