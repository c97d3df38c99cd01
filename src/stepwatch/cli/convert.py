"""`stepwatch convert`: turns a checkpoint into one file, or into the parts that several ranks read."""

from __future__ import annotations

from pathlib import Path

import click

from stepwatch.cli import described
from stepwatch.cli.commands import needing_torch, options_of
from stepwatch.messages import Message


@described(
    texts=(
        Message(
            "Convert a checkpoint: to one file, like nanoGPT's ckpt.pt, or to a directory, like that of several ranks."
        ),
        Message(
            "FROM is a checkpoint, or the out_dir of a training run, whose newest checkpoint is used. TO "
            "is a file if it ends in .pt, otherwise a directory."
        ),
    ),
    options=options_of("convert"),
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
def command(source: str, target: str, lang: str) -> None:
    with needing_torch(Message("to convert, stepwatch needs PyTorch")):
        import torch  # noqa: F401
    from stepwatch.trainer.sharded import convert

    at = convert(Path(source), Path(target))
    click.echo(f"{target}: iteration {at}")
