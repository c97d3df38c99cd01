"""`stepwatch explain`: from a log to an answer."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

import click

from stepwatch.answers.from_logs import KNOWN_FORMATS, ExplainRequest, explain
from stepwatch.cli import described
from stepwatch.cli.commands import ask_for_paste, checked_output, deliver, options_of, typed, with_store_prior
from stepwatch.messages import Message
from stepwatch.presenters import CHARTS


@described(
    texts=(
        Message("Explain the log of a training run."),
        Message(
            "Shows why some iterations are slow, what a step, an evaluation, a checkpoint and the compilation "
            "cost, how fast the run is on your card, where the time went and when it will end. Reads files "
            "(plain, gz, xz, bz2 or zst), directories, `-` or a pipe; alone on a terminal it waits for a pasted "
            "log."
        ),
        Message("Formats: {names:list}.", {"names": ", ".join(KNOWN_FORMATS)}),
    ),
    options=options_of("explain", "terminal", "md", "json", "html", "png", charts=CHARTS),
)
@click.argument("logs", nargs=-1, metavar="[LOG]...")
def command(
    logs: tuple[str, ...],
    lang: str,
    full: bool,
    no_iterations: bool,
    with_lines: bool,
    front_matter: bool,
    chart: str | None,
    history: str | None,
    form: str,
    output: str | None,
    **asked: Any,
) -> None:
    logs, output = checked_output(logs or ("-",), form, output, chart)
    if "-" in logs:
        ask_for_paste(lang)
    with with_store_prior(history) if history is not None else nullcontext():
        report = explain(ExplainRequest(logs=logs, **asked))
    deliver(
        report,
        lang,
        form,
        output,
        full=full,
        iterations=not no_iterations,
        with_lines=with_lines,
        front_matter=front_matter,
        chart=chart,
        typed=typed(logs) if output is None else None,
    )
    if any(notice.is_failure for notice in report.notices):  # some of the input could not be read
        sys.exit(1)
