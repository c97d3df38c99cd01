"""How the page is served, and how much of the machine it may use."""

from __future__ import annotations

import ctypes
import ipaddress
import os
import socket
import sys
from dataclasses import dataclass, field

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
SHORTEST_TOKEN = 16  # too long to guess, so wrong guesses need not be counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    body_bytes: int = 64 * 10**6
    """Per request, also after its gzip is expanded."""
    held_bytes: int = 512 * 10**6
    """For all requests that wait for their answer."""
    waiting: int = 100
    """Requests at a time; more are refused with 503."""
    answer_s: float = 60.0
    """For the analysis of one request; then its worker is killed."""
    queue_s: float = 120.0
    """How long a request waits for a free worker."""
    arrive_s: float = 60.0
    """How long the body of a request may take to arrive."""
    live_views: int = 16
    workers: int = field(default_factory=lambda: max(2, min(os.cpu_count() or 2, 4)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None
    allowed: tuple[str, ...] = ()
    """Directories that contain the logs which a path may name."""
    store: str | None = None
    """A store of runs that `stepwatch collect` has gathered."""
    language: str = "en"
    language_asked: bool = False
    """Whether the language was given as an option: then the browser's language is ignored."""
    limits: Limits = Limits()


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def may_be_called(name: str, options: ServerOptions) -> bool:
    """Whether a Host header names this server: another site may have pointed its own name here (DNS rebinding)."""
    if name in LOOPBACK_NAMES or name == options.host.lower():
        return True
    bound = _address(options.host)
    if bound is None or not bound.is_unspecified:
        return False
    # Bound to every address of the machine: an address cannot be rebound, and the machine's own names are trusted.
    return _address(name) is not None or name in {socket.gethostname().lower(), socket.getfqdn().lower()}


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def give_large_blocks_back() -> None:
    """Returns the memory of large logs to the system once they are answered: glibc would keep it for later."""
    if not sys.platform.startswith("linux"):
        return
    try:
        # M_MMAP_THRESHOLD of malloc.h; by default the threshold rises with the largest block that was ever freed.
        ctypes.CDLL("libc.so.6").mallopt(-3, 1 << 20)
    except (OSError, AttributeError):  # another C library
        return
