"""`stepwatch estimate`: how long a config will take on a card, before it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stepwatch.advice import advice_on_plan
from stepwatch.cli.options import (
    chart_option,
    check_output,
    format_options,
    language_option,
    speaking,
    write,
)
from stepwatch.errors import UsageError
from stepwatch.estimator.plan import MODEL_NAMES, named_shape, plan
from stepwatch.gpus.choice import card_of_config, card_of_this_machine, count_in, named_card
from stepwatch.gpus.links import checked_link
from stepwatch.messages import Message
from stepwatch.presenters import PLAN_CHARTS, View, render
from stepwatch.report import PlanReport
from stepwatch.settings import Origin, Settings, config_settings, parse_assignment
from stepwatch.sources import from_file

IMPOSSIBLE = 3


@click.command(
    name="estimate", context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": True}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[CONFIG.py] [--KEY=VALUE]...")
@click.option("--gpu", metavar="NAME", help="The card: 4070, rtx4090, a100-80gb, …; `this` or nothing asks the driver.")
@click.option("--gpus", "n_gpus", type=click.IntRange(min=1), metavar="N", help="Train on N cards with DDP.")
@click.option("--link", metavar="NAME", help="How the cards are connected: nvlink, pcie3, pcie4, pcie5, infiniband, …")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="A setting, over what the config says.")
@click.option("--model", type=click.Choice(MODEL_NAMES), help="The shape of a model by its name.")
@click.option("--depth", type=click.IntRange(1, 200), metavar="N", help="The shape that nanochat's --depth N means.")
@click.option(
    "--claim", metavar="FIGURE", help="Is this possible? 100ms or 2s: an iteration; 20min: the run; 2M-tokens/s."
)
@click.option("--why", is_flag=True, help="Show the terms that the step time is the sum of.")
@language_option()
@chart_option(*PLAN_CHARTS)
@format_options("terminal", "md", "json", "html", "png")
def command(
    arguments: tuple[str, ...], gpu: str | None, n_gpus: int | None, link: str | None, assignments: tuple[str, ...],
    model: str | None, depth: int | None, claim: str | None, why: bool, lang: str | None, chart: str | None, form: str,
    output: str | None,
) -> None:  # fmt: skip
    """Estimate what a config will take on a card, before the run.

    Time per iteration, evaluation and checkpoint, compilation, total, tokens/s, MFU, memory and whether it fits: each
    as an interval. CONFIG.py is a nanoGPT config (read, never executed) or a log whose header tells the settings; what
    is missing is nanoGPT's default, and said to be. Settings may be given as train.py takes them: --batch_size=8.
    With --claim it tells whether a promised figure is possible; exit code 3 when it is not.
    """
    with speaking(lang) as language:
        check_output(form, output, chart)
        settings, remarks = settings_from(arguments, assignments, model, depth)
        card, origin = named_card(gpu) or card_of_config(settings) or card_of_this_machine()
        answer = plan(
            settings,
            card,
            gpu_origin=origin,
            n_gpus=n_gpus or count_in(gpu),
            link=checked_link(link, card),
            claim=claim,
        )
        report = PlanReport(plan=answer, advice=advice_on_plan(answer), remarks=(*remarks, *answer.notes))
        view = View(why=why, chart=chart, colour=False if output is not None else None)
        write(render(report, form, language, view), output, form)
    if answer.claim is not None and answer.claim.verdict == "impossible":
        sys.exit(IMPOSSIBLE)


def settings_from(
    arguments: tuple[str, ...], assignments: tuple[str, ...], model: str | None, depth: int | None
) -> tuple[Settings, tuple[Message, ...]]:
    files = [argument for argument in arguments if not argument.startswith("-")]
    if len(files) > 1:
        raise UsageError(
            Message("one config at a time, not {count:n}", {"count": len(files)}),
            Message("name a single CONFIG.py; further settings go as --key=value"),
        )
    own = [argument for argument in arguments if argument.startswith("-")]
    given = Settings.of(Origin.USER, dict(parse_assignment(text) for text in (*own, *assignments)))
    shape = Settings.of(Origin.USER, named_shape(model, depth))
    from_file_, remarks = _from_file(files[0]) if files else (Settings({}), ())
    settings = from_file_.beneath(shape).beneath(given)
    return _vocabulary(settings, files).beneath(settings), remarks


def _vocabulary(settings: Settings, files: list[str]) -> Settings:
    """What meta.pkl of the dataset says, where train.py would find it: from here, or from a config in config/."""
    dataset = settings.text("dataset")
    if not dataset or "vocab_size" in settings or str(settings.text("init_from")).startswith("gpt2"):
        return Settings({})
    from stepwatch.trainer.hostile import Refused, plain

    places = [Path(), *(Path(name).parent / up for name in files for up in (".", ".."))]
    try:
        found = next((path for place in places if (path := place / "data" / dataset / "meta.pkl").is_file()), None)
        size = plain(found.read_bytes())["vocab_size"] if found is not None else None
    except (OSError, Refused, KeyError, TypeError):
        return Settings({})
    return Settings.of(Origin.CONFIG, {"vocab_size": size}) if type(size) is int and size > 0 else Settings({})


def _from_file(name: str) -> tuple[Settings, tuple[Message, ...]]:
    source = from_file(name)
    if not name.lower().endswith(".py"):
        from stepwatch.readers import settings_of  # a log tells its settings too

        return settings_of(source), ()
    return config_settings(source.text.decode("utf-8", "replace"))
