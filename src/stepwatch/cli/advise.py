"""`stepwatch advise`: what to change, what it saves, what it costs; or a recommended config where there is no run."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import click

from stepwatch.advice import advice_on_log, advice_on_plan
from stepwatch.cli.estimate import settings_from
from stepwatch.cli.options import check_output, format_options, language_option, speaking, write
from stepwatch.errors import UsageError
from stepwatch.estimator.plan import MODEL_NAMES, Plan, plan
from stepwatch.gpus.choice import card_of_config, card_of_this_machine, count_in, named_card
from stepwatch.gpus.links import checked_link
from stepwatch.messages import Message
from stepwatch.presenters import View, render
from stepwatch.report import AdviceReport
from stepwatch.settings import Settings


@click.command(name="advise", context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[LOG | CONFIG.py | -] [--KEY=VALUE]...")
@click.option("--gpu", metavar="NAME", help="The card: 4070, rtx4090, a100-80gb, …; `this` asks the driver.")
@click.option("--gpus", "n_gpus", type=click.IntRange(min=1), metavar="N", help="The cards that there are.")
@click.option("--link", metavar="NAME", help="How the cards are connected: nvlink, pcie3, pcie4, pcie5, infiniband, …")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="A setting, over what is told.")
@click.option("--config", metavar="FILE.py", help="The nanoGPT config of the run that a log is of.")
@click.option("--model", type=click.Choice(MODEL_NAMES), help="The shape of a model by its name.")
@click.option("--depth", type=click.IntRange(1, 200), metavar="N", help="The shape that nanochat's --depth N means.")
@click.option("--run", "chosen", type=click.IntRange(min=1), metavar="N", help="Advise on the N-th run of the log.")
@language_option()
@format_options("terminal", "md", "json", "html")
def command(
    arguments: tuple[str, ...], gpu: str | None, n_gpus: int | None, link: str | None, assignments: tuple[str, ...],
    config: str | None, model: str | None, depth: int | None, chosen: int | None, lang: str | None, form: str,
    output: str | None,
) -> None:  # fmt: skip
    """Advise what to change: what each change saves, as an interval, and what it costs.

    Of a LOG it takes the costs measured there; of a CONFIG.py, before the run, the estimator's. Changes that save less
    than a minute or a hundredth of the run are not listed. With neither log nor config it recommends a whole config
    for the card and the shape given: micro-batch, accumulation, dtype, compilation, evaluations and checkpoints.
    --set mtbf_hours=24 tells how often the machine fails.
    """
    with speaking(lang) as language:
        check_output(form, output, None)
        files = [name for name in arguments if name == "-" or not name.startswith("-")]
        if len(files) > 1:
            raise UsageError(
                Message("one log or config at a time, not {count:n}", {"count": len(files)}),
                Message("the config of a log goes as --config FILE.py"),
            )
        log = files[0] if files else None
        if log is not None and not log.lower().endswith(".py"):
            answer = _of_log(arguments, log, gpu, n_gpus, link, assignments, config, chosen, language)
        else:
            settings, remarks = settings_from(arguments, assignments, model, depth)
            answer = replace(_of_config(settings, log, gpu, n_gpus, link), remarks=remarks)
        write(render(answer, form, language, View(colour=False if output is not None else None)), output)


def _of_log(
    arguments: tuple[str, ...], log: str, gpu: str | None, n_gpus: int | None, link: str | None,
    assignments: tuple[str, ...], config: str | None, chosen: int | None, language: str,
) -> AdviceReport:  # fmt: skip
    from stepwatch.cli.explain import report_on
    from stepwatch.presenters.sentences import longest

    own = tuple(argument for argument in arguments if argument.startswith("--"))
    report, _ = report_on((log,), gpu, config, (*own, *assignments), language, chosen=chosen)
    analysis = report.analyses[longest(report)]
    card, cards = analysis.throughput.gpu, n_gpus or count_in(gpu)
    if not len(analysis.run.iterations) and card is not None:  # only begun: as its config would be advised on
        begun = plan(analysis.run.settings, card, link=checked_link(link, card))
        return _of_plan(begun, _shown(config), cards)
    found = advice_on_log(analysis, cards=cards, windows=sys.platform == "win32")
    remarks = tuple(finding.message for finding in report.remarks)
    return AdviceReport(advice=found, config=_shown(config), remarks=remarks)


def _of_config(
    settings: Settings, name: str | None, gpu: str | None, n_gpus: int | None, link: str | None
) -> AdviceReport:
    from stepwatch.advice.recommended import recommend

    card, origin = named_card(gpu) or card_of_config(settings) or card_of_this_machine()
    cards, between = n_gpus or count_in(gpu), checked_link(link, card)
    if name is None:
        return AdviceReport(recommended=recommend(settings, card, gpu_origin=origin, n_gpus=cards, link=between))
    return _of_plan(plan(settings, card, gpu_origin=origin, link=between), _shown(name), cards)


def _of_plan(found: Plan, config: str | None, cards: int | None) -> AdviceReport:
    from stepwatch.advice.recommended import too_large

    if found.largest_batch_size == 0:
        raise too_large(found)
    return AdviceReport(advice=advice_on_plan(found, cards=cards, windows=sys.platform == "win32"), config=config)


def _shown(name: str | None) -> str | None:
    """A path in somebody's home is nobody else's business."""
    return None if name is None else os.path.basename(name) if os.path.isabs(name) else name
