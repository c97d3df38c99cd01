"""`stepwatch estimate`: how long a config will take on a card, before it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from stepwatch.answers.from_plans import EstimateRequest, estimate
from stepwatch.cli import described
from stepwatch.cli.commands import check_count, checked_output, deliver, options_of, settings_among, with_store_prior
from stepwatch.errors import UsageError
from stepwatch.messages import Message
from stepwatch.presenters import PLAN_CHARTS
from stepwatch.trainer.hostile import Refused, plain


@described(
    texts=(
        Message("Estimate how long a config will take on a card, before the run."),
        Message(
            "Time per iteration, evaluation and checkpoint, compilation, total, tokens/s, MFU, memory and whether "
            "it fits: each as an interval. CONFIG.py is a nanoGPT config (read, never executed) or a log whose "
            "header shows the settings. Missing settings are nanoGPT's defaults, and the answer names them. "
            "Settings may be given as train.py takes them: --batch_size=8. --claim checks whether a promised "
            "figure is possible; exit code 3 if it is not."
        ),
    ),
    options=options_of("estimate", "terminal", "md", "json", "html", "png", charts=PLAN_CHARTS),
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[CONFIG.py] [--KEY=VALUE]...")
def command(
    arguments: tuple[str, ...],
    settings: tuple[str, ...],
    why: bool,
    lang: str,
    chart: str | None,
    history: str | None,
    form: str,
    output: str | None,
    **asked: Any,
) -> None:
    check_count(asked["gpus"])
    own = settings_among(arguments)
    files: Sequence[str] = [argument for argument in arguments if not argument.startswith("-")]
    files, output = checked_output(files, form, output, chart)
    if len(files) > 1:
        raise UsageError(
            Message("one config at a time, not {count:n}", {"count": len(files)}),
            Message("name a single CONFIG.py; pass further settings as --key=value"),
        )
    request = EstimateRequest(
        config=files[0] if files else None, settings=(*own, *settings), vocabulary=vocabulary_near(files), **asked
    )
    with with_store_prior(history) if history is not None else nullcontext():
        report = estimate(request)
    deliver(report, lang, form, output, why=why, chart=chart)
    if report.plan.claim is not None and report.plan.claim.verdict == "impossible":
        sys.exit(3)  # the claim is impossible


def vocabulary_near(configs: Sequence[str]) -> Callable[[str], int | None]:
    """The vocabulary in a dataset's meta.pkl, if it is where train.py looks: from here, or from a config in config/."""
    places = [Path(), *(Path(name).parent / up for name in configs for up in (".", ".."))]

    def size(dataset: str) -> int | None:
        try:
            found = next((path for place in places if (path := place / "data" / dataset / "meta.pkl").is_file()), None)
            size = plain(found.read_bytes())["vocab_size"] if found is not None else None
        except (OSError, Refused, KeyError, TypeError):
            return None
        return size if type(size) is int and size > 0 else None

    return size
