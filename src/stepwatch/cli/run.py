"""`stepwatch run`: any training command, while the machine is sampled."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from urllib.parse import urlencode

import click

from stepwatch.cli import described, option
from stepwatch.cli.commands import options_of
from stepwatch.cli.sampling import cannot_write, interval_option, keep_as_parquet, name_unseen, open_sampler
from stepwatch.errors import StepwatchError, UsageError
from stepwatch.gpus.names import named_card
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.samples import LOG_FILE, PARQUET_FILE, SAMPLES_FILE

ENVIRONMENT_FILE = "environment.json"
_SECRET = re.compile(r"(?i)(key|token|secret|passw|credential)")
# Run by the training's own Python, in a separate process; names as on PyPI.
_VERSIONS = """
import json, platform
from importlib import metadata
names = "torch triton numpy transformers accelerate lightning deepspeed datasets flash-attn bitsandbytes jax tensorflow"
found = {"python": platform.python_version()}
for name in names.split():
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


@described(
    texts=(
        Message("Start a training run and see what the machine does meanwhile."),
        Message(
            "The command runs as it would without stepwatch: its output, its terminal, Ctrl-C and its "
            "exit code are unchanged, and nothing is loaded into it. Its output and samples of cards, "
            "processors, memory and disk are saved in a directory that `stepwatch explain` reads. The "
            "report at the end goes to standard error."
        ),
    ),
    options=options_of("run"),
    context_settings={"allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@option(
    "-o",
    "--output",
    metavar="DIR",
    help=Message("Where to save the log and the samples (default: stepwatch-runs/TIME)."),
)
@option("--gpu", metavar="NAME", help=Message("The card, if the driver does not report it: 4070, rtx4090, …"))
@interval_option
@option("--notify", "addresses", multiple=True, metavar="URL", help=Message("Send a message when it stalls or ends."))
@option("--page", is_flag=True, help=Message("Show the run on a local page while it is running."))
@option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    default=0,
    show_default=False,
    help=Message("Port of that page (default: any free one)."),
)
@option("--quiet", is_flag=True, help=Message("No report at the end."))
def command(
    words: tuple[str, ...],
    output: str | None,
    gpu: str | None,
    interval: float,
    addresses: tuple[str, ...],
    page: bool,
    port: int,
    quiet: bool,
    lang: str,
) -> None:
    if sys.platform == "win32":
        raise UsageError(
            Message("`stepwatch run` needs Linux or macOS"),
            Message(
                "start the training as usual and sample it from another terminal: "
                "stepwatch monitor -o samples.csv --pid N"
            ),
        )
    from stepwatch.cli import passing

    directory = output or os.path.join("stepwatch-runs", time.strftime("%Y%m%d-%H%M%S"))
    try:
        os.makedirs(directory, exist_ok=True)
        _write_environment(directory, words)
    except OSError as error:
        raise cannot_write(directory, error) from error

    def warn(text: Message) -> None:
        click.echo(f"stepwatch: {say(text, lang)}", err=True)

    named_card(gpu)  # finds a typo before the training begins
    notifier = None
    if addresses:
        from stepwatch.cli.notify import Notifier

        notifier = Notifier(addresses, os.path.basename(words[0]), lang, warn)
    server = _open_page(directory, port, gpu, lang) if page else None
    relay_pid, pid = passing.start(words, directory)
    sampler = None
    if pid:
        try:
            sampler = open_sampler(os.path.join(directory, SAMPLES_FILE), pid, interval, lang)
            sampler.start()
        except StepwatchError as error:  # the training goes on without samples
            warn(error.what)
    if notifier is not None or not quiet:
        # The training does not wait for this import; at its end, days later, another version may be installed.
        from stepwatch.cli import run_log
    follower = None if notifier is None else run_log.Follower(directory, gpu, notifier, warn)
    code = passing.wait(relay_pid, None if follower is None else follower.look)
    if sampler is not None:
        sampler.close()
        keep_as_parquet(os.path.join(directory, SAMPLES_FILE), os.path.join(directory, PARQUET_FILE), lang)
        if not quiet:
            name_unseen(sampler, lang)
    if pid and not quiet:
        run_log.report(directory, gpu, lang)
    if server is not None:
        server.terminate()  # it needs no time to end, and ends with us anyway
    sys.exit(code)


def _open_page(directory: str, port: int, gpu: str | None, language: str) -> subprocess.Popen[str]:
    """Serves the live view of the log in a separate process; its address goes to standard error."""
    words = [sys.executable, "-m", "stepwatch", "serve", "--allow", directory, "--port", str(port), "--lang", language]
    server = subprocess.Popen(
        [*words, "--pid", str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the training
    )
    assert server.stdout is not None
    server.stdout.readline()  # the line that announces the page; the address follows
    address = server.stdout.readline().strip()
    if not address:  # the server has said why
        sys.exit(1)
    query = urlencode({"path": LOG_FILE} | ({"gpu": gpu} if gpu else {}))
    text = Message("The page of this run: {address:word}", {"address": f"{address}#watch?{query}"})
    click.echo(f"stepwatch: {say(text, language)}", err=True)
    return server


def _write_environment(directory: str, words: Sequence[str]) -> None:
    """Writes what was run and where, for later readers of the directory; never a secret."""
    commit, card = None, None
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # the training may not be in a git repository
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
        commit = found.stdout.strip() or None
    with contextlib.suppress(StepwatchError):
        from stepwatch.gpus.driver import this_card

        here = this_card()
        card = {"name": here.name, "count": here.count, "driver": here.driver_version}
    facts = {
        "command": without_secrets(words),
        "started_s": round(time.time(), 3),
        "stepwatch": version("stepwatch"),
        "versions": versions_of(words[0]),
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "card": card,
        "commit": commit,
    }
    with open(os.path.join(directory, ENVIRONMENT_FILE), "w", encoding="utf-8") as file:
        json.dump(facts, file, indent=2, ensure_ascii=False)
        file.write("\n")


def versions_of(program: str) -> dict[str, str]:
    """The versions of Python and the training libraries that the program uses; empty if it is not a Python program."""
    path = shutil.which(program)
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        if path is not None and not os.path.basename(path).startswith("python"):
            with open(path, "rb") as script:  # torchrun and similar programs name their Python in the first line
                first = script.readline(500)
            words = shlex.split(first[2:].decode()) if first.startswith(b"#!") else []
            path = next((word for word in words if os.path.basename(word).startswith("python")), None)
        if path is not None:
            asked = subprocess.run([path, "-c", _VERSIONS], capture_output=True, text=True, timeout=10, check=True)
            return dict(json.loads(asked.stdout))
    return {}


def without_secrets(words: Sequence[str]) -> list[str]:
    """The command line with every value replaced that belongs to the name of a secret."""
    shown, hide = [], False
    for word in words:
        name, equals, _ = word.partition("=")
        if hide and not word.startswith("-"):
            shown.append("***")
        elif equals and _SECRET.search(name):
            shown.append(f"{name}=***")
        else:
            shown.append(word)
        hide = not equals and word.startswith("-") and _SECRET.search(word) is not None
    return shown
