"""`stepwatch gpus`: the catalogue of cards, or one of them with its sources."""

from __future__ import annotations

import click

from stepwatch.cli.options import format_options, language_option, speaking, write
from stepwatch.gpus import find_gpu, gpus
from stepwatch.presenters import View, render


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
        cards = find_gpu(name) if name is not None else gpus()
        write(render(cards, form, language, View(colour=False if output is not None else None)), output)
