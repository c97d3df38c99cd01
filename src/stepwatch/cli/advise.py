"""`stepwatch advise`: what to change, what it saves, what it costs; or a recommended config if there is no run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import click

from stepwatch.answers.from_plans import AdviseRequest, advise
from stepwatch.cli import described
from stepwatch.cli.commands import (
    ask_for_paste,
    check_count,
    checked_output,
    deliver,
    options_of,
    settings_among,
    with_store_prior,
)
from stepwatch.cli.estimate import vocabulary_near
from stepwatch.errors import UsageError
from stepwatch.messages import Message


@described(
    texts=(
        Message("Advise what to change: what each change saves, as an interval, and what it costs."),
        Message(
            "For a LOG it uses the costs measured there; for a CONFIG.py, before the run, estimates. "
            "Changes that save less than a minute or 1 % of the run are not listed. With neither log nor "
            "config it recommends a complete config for the given card and shape: micro-batch, "
            "accumulation, dtype, compilation, evaluations and checkpoints. --set mtbf_hours=24 says how "
            "often the machine fails."
        ),
    ),
    options=options_of("advise", "terminal", "md", "json", "html"),
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[LOG | CONFIG.py | -] [--KEY=VALUE]...")
def command(
    arguments: tuple[str, ...],
    settings: tuple[str, ...],
    config: str | None,
    lang: str,
    history: str | None,
    form: str,
    output: str | None,
    **asked: Any,
) -> None:
    check_count(asked["gpus"])
    own = settings_among([argument for argument in arguments if argument != "-"])
    files: Sequence[str] = [name for name in arguments if name == "-" or not name.startswith("-")]
    files, output = checked_output(files, form, output)
    if len(files) > 1:
        raise UsageError(
            Message("one log or config at a time, not {count:n}", {"count": len(files)}),
            Message("pass the config of a log with --config FILE.py"),
        )
    logs = [name for name in files if not name.lower().endswith(".py")]
    if "-" in logs:
        ask_for_paste(lang)
    configs = [config] if config is not None and not files else [name for name in files if name not in logs]
    request = AdviseRequest(
        log=logs[0] if logs else None,
        config=config if logs else configs[0] if configs else None,
        settings=(*own, *settings),
        vocabulary=vocabulary_near(configs),
        **asked,
    )
    with with_store_prior(history) if history is not None else nullcontext():
        report = advise(request)
    deliver(report, lang, form, output)
