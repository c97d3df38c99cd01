"""`stepwatch compare`: two runs side by side, and an exit code for use in CI."""

from __future__ import annotations

import sys

import click

from stepwatch.answers.from_logs import ExplainRequest, compare
from stepwatch.cli import described
from stepwatch.cli.commands import ask_for_paste, checked_output, deliver, options_of
from stepwatch.errors import UsageError
from stepwatch.messages import Message
from stepwatch.options import SIDES
from stepwatch.presenters import COMPARISON_CHARTS


@described(
    texts=(
        Message("Compare two runs: A, the older, with B."),
        Message(
            "Shows whether their step times differ by more than noise, what changed in settings, card and "
            "parts, and why, as far as the logs show it. Runs of different batch sizes are compared by "
            "the time per token. For CI, --fail-over gives exit code 3 if B is definitely slower, and by "
            "more than that."
        ),
        Message("The first five options apply to both runs, or to one: --gpu A:4070 --gpu B:4090, --run B:2."),
    ),
    options=options_of("compare", "terminal", "md", "json", "html", "png", charts=COMPARISON_CHARTS),
)
@click.argument("logs", nargs=-1, metavar="A B")
def command(
    logs: tuple[str, ...],
    fail_over: str | None,
    lang: str,
    chart: str | None,
    form: str,
    output: str | None,
    **for_runs: tuple[str, ...],
) -> None:
    logs, output = checked_output(logs, form, output, chart)
    if len(logs) != len(SIDES):
        raise UsageError(
            Message(
                "compare takes two logs, and {count:n} was given",
                {"count": len(logs)},
                "compare takes two logs, and {count:n} were given",
                len(logs),
            ),
            Message("for example: stepwatch compare before.log after.log"),
        )
    if set(logs) == {"-"}:
        raise UsageError(
            Message("standard input can be one of the two logs, not both"), Message("name a file for the other")
        )
    if "-" in logs:
        ask_for_paste(lang)
    before, after = (_request(log, side, for_runs) for log, side in zip(logs, SIDES, strict=True))
    found = compare(before, after, fail_over)
    deliver(found, lang, form, output, chart=chart)
    if found.failed:
        sys.exit(3)  # a regression: neither success nor an error


def _request(log: str, side: str, for_runs: dict[str, tuple[str, ...]]) -> ExplainRequest:
    """What applies to this run: a value with `A:` or `B:` in front applies to that run only."""
    own: dict[str, list[str]] = {}
    for name, values in for_runs.items():
        own[name] = []
        for value in values:
            meant, colon, rest = value.partition(":")
            if not colon or meant not in SIDES:
                own[name].append(value)
            elif meant == side:
                own[name].append(rest)
    gpu, log_format, like, run = (own[name][-1] if own[name] else None for name in ("gpu", "log_format", "like", "run"))
    if run is not None and not (run.isascii() and run.isdigit() and 0 < int(run) < 10**9):
        raise UsageError(
            Message("“{text:word}” is not a run number", {"text": run}), Message("for example: --run 2, --run B:2")
        )
    number = int(run) if run is not None else None
    settings = tuple(own["settings"])
    return ExplainRequest(logs=(log,), gpu=gpu, settings=settings, run=number, log_format=log_format, like=like)
