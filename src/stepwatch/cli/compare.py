"""`stepwatch compare`: two runs side by side, and an exit code for use in CI."""

from __future__ import annotations

import sys
from typing import NamedTuple

import click

from stepwatch.analysis import Analysis
from stepwatch.analysis.comparison import SIDES, compare, limit_of
from stepwatch.cli.explain import report_on, shown
from stepwatch.cli.options import format_options, language_option, speaking, write
from stepwatch.errors import NoIterations, UsageError
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters import View, render
from stepwatch.presenters.sentences import longest
from stepwatch.report import Report

REGRESSION = 3


class _Asked(NamedTuple):
    """Options, each as often as it was given; `A:` or `B:` in front makes one count for that run only."""

    gpu: tuple[str, ...]
    assignments: tuple[str, ...]
    run: tuple[str, ...]
    log_format: tuple[str, ...]
    like: tuple[str, ...]

    def of(self, side: str) -> _Asked:
        return _Asked(*(tuple(_of_side(side, values)) for values in self))


@click.command(name="compare", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("logs", nargs=-1, metavar="A B")
@click.option("--gpu", multiple=True, metavar="NAME", help="The card that the runs used; otherwise each log's own.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="A setting that the logs do not tell.")
@click.option("--run", "chosen", multiple=True, metavar="N", help="Compare the N-th run of a log, not the longest.")
@click.option("--log-format", multiple=True, metavar="NAME", help="Do not detect the format of the logs.")
@click.option("--like", multiple=True, metavar="LINE", help="Read lines like this one: 'it 12 | 0.34 s'.")
@click.option("--fail-over", "limit", metavar="PERCENT", help="Exit code 3 if B is slower by more than this: 5%.")
@language_option()
@format_options("terminal", "md", "json")
def command(
    logs: tuple[str, ...], gpu: tuple[str, ...], assignments: tuple[str, ...], chosen: tuple[str, ...],
    log_format: tuple[str, ...], like: tuple[str, ...], limit: str | None, lang: str | None, form: str,
    output: str | None,
) -> None:  # fmt: skip
    """Compare two runs: A, the older, with B.

    Tells whether the difference of their step times is more than noise, what changed in settings, card and parts, and
    why as far as the logs tell. Runs of different batch sizes are compared by the time per token. With --fail-over it
    serves in CI: exit code 3 if B is surely slower, and by more than that.

    The first five options count for both runs, or for one: --gpu A:4070 --gpu B:4090, --run B:2.
    """
    with speaking(lang) as language:
        _check(logs)
        allowed = None if limit is None else limit_of(limit)
        asked = _Asked(gpu, assignments, chosen, log_format, like)
        names = shown(logs[0]), shown(logs[1])
        runs: list[Analysis] = []
        notes: list[Message] = []
        for side, log in zip(SIDES, logs, strict=True):
            run, said = _run_of(log, side, asked.of(side), language)
            runs.append(run)
            notes += [note for note in said if note not in notes]
        found = compare(runs[0], runs[1], names=names, limit=allowed, notes=notes)
        write(render(found, form, language, View(colour=False if output is not None else None)), output)
    if found.failed:
        sys.exit(REGRESSION)


def _check(logs: tuple[str, ...]) -> None:
    if len(logs) != len(SIDES):
        raise UsageError(
            Message(
                "compare takes two logs, and {count:n} was named", {"count": len(logs)},
                "compare takes two logs, and {count:n} were named", len(logs),
            ),
            Message("for example: stepwatch compare before.log after.log"),
        )  # fmt: skip
    if set(logs) == {"-"}:
        raise UsageError(
            Message("standard input can be one of the two logs, not both"), Message("name a file for the other")
        )


def _of_side(side: str, values: tuple[str, ...]) -> list[str]:
    """What counts for this run, in the order that it was given."""
    divided = [value.partition(":") for value in values]
    return [
        rest if one in SIDES and colon else value
        for value, (one, colon, rest) in zip(values, divided, strict=True)
        if one == side or one not in SIDES or not colon
    ]


def _run_of(log: str, side: str, asked: _Asked, language: str) -> tuple[Analysis, list[Message]]:
    """The run that was asked for, else the longest, and what is to be said of the choice."""
    gpu, like, log_format = (values[-1] if values else None for values in (asked.gpu, asked.like, asked.log_format))
    number = _number(asked.run[-1]) if asked.run else None
    try:
        report, _ = report_on(
            (log,), gpu, None, asked.assignments, language, chosen=number, log_format=log_format, like=like
        )
    except NoIterations as error:  # of two logs it must be said which
        said = {"name": shown(log), "what": say(error.what, language)}
        raise NoIterations(Message("{name:word}: {what:word}", said), error.remedy) from error
    place = longest(report)
    remarks = [remark.message for remark in report.remarks if remark.code != "several_runs"]
    return report.analyses[place], [*remarks, *_of_several(report, place, log, side)]


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 10**9):
        raise UsageError(
            Message("“{text:word}” is no number of a run", {"text": text}), Message("for example: --run 2, --run B:2")
        )
    return int(text)


def _of_several(report: Report, place: int, log: str, side: str) -> list[Message]:
    count = len(report.analyses)
    if count < 2:
        return []
    facts = {"name": shown(log), "count": count, "number": place + 1, "side": side, "other": 1 if place else 2}
    return [
        Message(
            "“{name:word}” holds {count:n} runs; the longest, number {number:n}, is compared. "
            "For another one: --run {side:word}:{other:n}",
            facts,
        )
    ]
