"""`stepwatch serve`: the page on this machine."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
import time
from contextlib import suppress
from types import FrameType
from urllib.parse import quote

import click
import uvicorn
from click.core import ParameterSource

from stepwatch.cli import described, option
from stepwatch.cli.commands import options_of
from stepwatch.errors import InputError, UsageError
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.platforms import hide_argument
from stepwatch.sampler.host import runs
from stepwatch.web.app import create_app
from stepwatch.web.connections import Connection, most_connections
from stepwatch.web.limits import SHORTEST_TOKEN, ServerOptions, give_large_blocks_back, is_loopback


@described(
    texts=(
        Message("Serve the page: paste a log or drop a file, get the report."),
        Message(
            "Also estimates a config, watches a growing log in a directory given by --allow, and has an "
            "API: see /api/openapi.json. Listens on this machine only; any other --host needs a --token. "
            "Nothing that is pasted is stored or sent anywhere. Press Ctrl-C to stop."
        ),
    ),
    options=options_of("serve"),
)
@option(
    "--host",
    metavar="HOST",
    default="127.0.0.1",
    help=Message("Address to listen on; any but the default needs a token."),
)
@option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    default=8765,
    help=Message("Port to listen on; 0 takes any free one."),
)
@option(
    "--token",
    metavar="TOKEN",
    envvar="STEPWATCH_TOKEN",
    help=Message(
        "Secret needed to use the page; better set it in the environment variable STEPWATCH_TOKEN, "
        "where other users cannot see it."
    ),
)
@option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help=Message("A directory whose logs may be watched (default: none)."),
)
@option("--store", metavar="STORE", help=Message("Also show the runs in a store of `stepwatch collect`."))
@click.option("--pid", type=click.IntRange(1), hidden=True)  # ends with this process
def command(
    host: str,
    port: int,
    token: str | None,
    allowed: tuple[str, ...],
    store: str | None,
    pid: int | None,
    lang: str,
) -> None:
    from_environment = os.environ.pop("STEPWATCH_TOKEN", None)  # so that workers do not inherit it
    if token and token != from_environment and not hide_argument(token):
        seen = Message("other users of this machine can see the token in the list of processes")
        remedy = Message("give it in the environment variable STEPWATCH_TOKEN instead")
        click.echo(f"stepwatch: {say(seen, lang)}\n  {say(remedy, lang)}", err=True)
    example = {"token": secrets.token_hex(SHORTEST_TOKEN)}
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise UsageError(
            Message("a token needs at least {count:n} plain characters", {"count": SHORTEST_TOKEN}),
            Message("for example: --token {token:word}", example),
        )
    if token is None and not is_loopback(host):
        raise UsageError(
            Message("others can reach “{host:word}”: it needs a token", {"host": host}),
            Message("for example: --token {token:word}", example),
        )
    listener = _listener(host, port)
    asked = click.get_current_context().get_parameter_source("lang")
    options = ServerOptions(
        host=host,
        port=listener.getsockname()[1],
        token=token,
        allowed=tuple(map(os.path.abspath, allowed)),  # relative paths are joined to the first one
        store=store,
        language=lang,
        language_asked=asked is ParameterSource.COMMANDLINE,
    )
    available = Message("The page is available here; press Ctrl-C to stop it:")
    click.echo(say(available, lang) + "\n  " + _address(options))
    if store is not None:
        click.echo("  " + _address(options).partition("?")[0] + "store")
    if pid is not None:
        threading.Thread(target=_end_with, args=(pid,), daemon=True).start()
    give_large_blocks_back()
    config = uvicorn.Config(
        create_app(options),
        log_level="critical",
        access_log=False,
        server_header=False,
        lifespan="on",
        http=Connection,
        limit_concurrency=most_connections(),
        backlog=most_connections() // 4,  # as many are accepted at once before the limit is checked
        timeout_graceful_shutdown=2,  # seconds
    )
    with suppress(KeyboardInterrupt):  # uvicorn raises it again after everything is closed
        _Server(config).run(sockets=[listener])


def _end_with(pid: int) -> None:
    while runs(pid):
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


def _listener(host: str, port: int) -> socket.socket:
    """Binds the socket before the address is printed, so that the address is true."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return socket.create_server(found[0][4][:2], family=found[0][0], backlog=most_connections() // 4)
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else getattr(error, "strerror", None) or str(error)
        raise InputError(
            Message(
                "cannot listen on {host:word}, port {port:word}: {reason:word}",
                {"host": host, "port": str(port), "reason": reason},
            ),
            Message("choose another one with --port, or stop the program that uses it"),
        ) from error


def _address(options: ServerOptions) -> str:
    """The address for a browser; a server bound to all addresses goes by the machine's name."""
    host = socket.gethostname() if options.host in ("0.0.0.0", "::") else options.host
    token = f"/?token={quote(options.token, safe='')}" if options.token else "/"
    return f"http://[{host}]:{options.port}{token}" if ":" in host else f"http://{host}:{options.port}{token}"


class _Server(uvicorn.Server):
    """Tells the live views that the server is leaving: otherwise they would keep it waiting."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.config.app.state.leaving.set()  # type: ignore[union-attr]
        super().handle_exit(sig, frame)
