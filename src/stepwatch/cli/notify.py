"""Messages to the user when something happens to a run.

A message contains what happened, never a line of the log. `http` and `https` addresses get JSON, in the form that the
webhooks of Slack and Discord accept too; any other scheme (ntfy://, tgram://, mailto://, …) needs apprise, an extra.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stepwatch.errors import UsageError
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.watch import CRASHED, DIVERGED, DONE, SILENCE, SLOWDOWN, STALL, STOPPED, Look, WatchEvent

PATIENCE_S = 10.0  # for a server to answer, and at the end for messages still being sent

TEXTS: Mapping[str, Message] = {
    CRASHED: Message("{name:word}: the run crashed after iteration {at:n}."),
    DIVERGED: Message("{name:word}: the loss is not a number since iteration {at:n}."),
    STOPPED: Message("{name:word}: the run stopped at iteration {at:n}."),
    STALL: Message("{name:word}: the run stalls at iteration {at:n}."),
    SLOWDOWN: Message("{name:word}: the run has become slower since iteration {at:n}."),
    SILENCE: Message("{name:word}: no line since iteration {at:n}."),
    DONE: Message("{name:word}: the run has reached its last iteration, {at:n}."),
}


class Notifier:
    """Sends in the background; a failure is reported once for each address."""

    def __init__(self, addresses: Sequence[str], name: str, language: str, warn: Callable[[Message], None]) -> None:
        self._addresses, self._name, self._language, self._warn = addresses, name, language, warn
        self._others = _apprise([address for address in addresses if not _is_web(address)])
        self._last: dict[str, float] = {}
        self._failed: set[str] = set()
        self._sending: list[threading.Thread] = []

    def raise_for(self, news: Sequence[WatchEvent], look: Look) -> None:
        for event in news:
            since_s = event.at_s - self._last.get(event.kind, float("-inf"))
            if event.kind in TEXTS and since_s >= 600.0:  # at most one message of a kind in ten minutes
                self._last[event.kind] = event.at_s
                at = event.iteration if event.iteration is not None else look.last_iteration
                self.send(
                    event.kind,
                    say(TEXTS[event.kind]._replace(params={"name": self._name, "at": at or 0}), self._language),
                )

    def send(self, kind: str, text: str) -> None:
        for address in self._addresses:
            if _is_web(address):
                self._start(self._post, address, kind, text)
        if self._others is not None:
            self._start(self._pass_on, "apprise", kind, text)

    def close(self) -> None:
        for thread in self._sending:
            thread.join(PATIENCE_S)

    def _start(self, how: Callable[[str, str, str], None], *arguments: str) -> None:
        thread = threading.Thread(target=how, args=arguments, daemon=True)
        thread.start()
        self._sending = [*(one for one in self._sending if one.is_alive()), thread]

    def _post(self, address: str, kind: str, text: str) -> None:
        body = {"event": kind, "source": self._name, "text": text, "content": text}
        headers = {"Content-Type": "application/json", "User-Agent": "stepwatch"}
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)
        try:
            urllib.request.urlopen(request, timeout=PATIENCE_S).close()
        except (OSError, ValueError) as error:
            self._fail(address, getattr(error, "reason", None) or type(error).__name__)

    def _pass_on(self, address: str, kind: str, text: str) -> None:
        if not self._others.notify(title="stepwatch", body=text):
            self._fail(address, kind)

    def _fail(self, address: str, reason: object) -> None:
        if address not in self._failed:
            self._failed.add(address)
            # An address may contain a password: only its scheme is repeated.
            facts = {"host": address.partition("://")[0], "reason": str(reason)}
            self._warn(Message("the message to {host:word}://… could not be sent: {reason:word}", facts))


def _is_web(address: str) -> bool:
    return address.startswith(("http://", "https://"))


def _apprise(addresses: Sequence[str]) -> Any:
    """apprise with these addresses; None if there are none."""
    if not addresses:
        return None
    try:
        import apprise
    except ImportError:
        raise UsageError(
            Message("--notify with other addresses than http and https needs apprise"),
            Message("install it: {command:list}", {"command": "pip install 'stepwatch[notify]'"}),
        ) from None
    known = apprise.Apprise()
    for address in addresses:
        if not known.add(address):
            raise UsageError(
                Message(
                    "--notify does not know addresses of the kind {scheme:word}", {"scheme": address.partition(":")[0]}
                ),
                Message("an https address gets JSON; ntfy://, tgram://, mailto:// and others are listed by apprise"),
            )
    return known
