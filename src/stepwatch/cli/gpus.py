"""`stepwatch gpus`: the catalogue of cards, or one of them with its sources."""

from __future__ import annotations

import click

from stepwatch.answers import cards
from stepwatch.cli import described
from stepwatch.cli.commands import deliver, options_of
from stepwatch.messages import Message


@described(
    texts=(
        Message("List the cards in the catalogue, or show one."),
        Message(
            'NAME is what people type or what the driver reports: 4070, rtx4090, a100-80gb, "NVIDIA GeForce RTX '
            '4070 Laptop GPU". The peaks are dense, without sparsity, and accumulate in fp32, as training does.'
        ),
    ),
    options=options_of("gpus", "terminal", "md", "json"),
)
@click.argument("name", required=False)
def command(name: str | None, lang: str, form: str, output: str | None) -> None:
    found = cards(name)
    answer = found if name is None else found[0]
    deliver(answer, lang, form, output)
