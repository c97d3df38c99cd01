"""`stepwatch gpus`: the catalogue of cards, or one of them with its sources."""

from __future__ import annotations

import click

from stepwatch.cli.options import format_options, language_option, speaking, write
from stepwatch.gpus import Gpu, find_gpu, gpus
from stepwatch.presenters.cards import card_details, cards_json, cards_table


@click.command(name="gpus", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", required=False)
@language_option()
@format_options("terminal", "md", "json")
def command(name: str | None, lang: str | None, form: str, output: str | None) -> None:
    """List the cards that stepwatch knows, or show one.

    NAME is what people type or what the driver reports: 4070, rtx4090, a100-80gb, "NVIDIA GeForce RTX 4070 Laptop
    GPU". The peaks are dense, without sparsity, and accumulate in fp32, as training does.
    """
    with speaking(lang) as language:
        write(_answer(find_gpu(name) if name is not None else None, form, language), output)


def _answer(card: Gpu | None, form: str, language: str) -> str:
    if form == "json":
        return cards_json(gpus() if card is None else [card])
    if card is None:
        return cards_table(gpus(), language, markdown=form == "md")
    return card_details(card, language, markdown=form == "md")
