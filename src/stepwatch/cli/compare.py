"""`stepwatch compare`: two runs side by side, and an exit code for use in CI."""

from __future__ import annotations

import sys

import click

from stepwatch.analysis import Analysis
from stepwatch.cli.explain import report_on
from stepwatch.cli.options import format_options, language_option, speaking, write
from stepwatch.comparison import Comparison, compare, limit_of
from stepwatch.presenters.sentences import longest

REGRESSION = 3


@click.command(name="compare", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--gpu", metavar="NAME", help="The card that both runs used; otherwise each log's own.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="A setting that neither log tells.")
@click.option("--fail-over", "limit", metavar="PERCENT", help="Exit code 3 if B is slower by more than this: 5%.")
@language_option()
@format_options("terminal", "md", "json")
def command(
    before: str, after: str, gpu: str | None, assignments: tuple[str, ...], limit: str | None, lang: str | None,
    form: str, output: str | None,
) -> None:  # fmt: skip
    """Compare two runs: A, the older, with B.

    Tells whether the difference of their step times is more than noise, what changed in settings, card and parts, and
    why as far as the logs tell. Runs of different batch sizes are compared by the time per token. With --fail-over it
    serves in CI: exit code 3 if B is surely slower, and by more than that.
    """
    with speaking(lang) as language:
        allowed = None if limit is None else limit_of(limit)
        runs = [_longest(name, gpu, assignments, language) for name in (before, after)]
        found = compare(*runs, limit=allowed)
        write(_render(found, form, language, to_file=output is not None), output)
    if found.failed:
        sys.exit(REGRESSION)


def _longest(name: str, gpu: str | None, assignments: tuple[str, ...], language: str) -> Analysis:
    report, _ = report_on((name,), gpu, None, assignments, language)
    return report.analyses[longest(report)]


def _render(found: Comparison, form: str, language: str, *, to_file: bool) -> str:
    from stepwatch.presenters.comparisons import as_json, as_note, on_terminal

    if form == "json":
        return as_json(found, language)
    if form == "md":
        return as_note(found, language)
    return on_terminal(found, language, colour=False if to_file else None)
