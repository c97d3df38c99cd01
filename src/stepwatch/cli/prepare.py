"""`stepwatch prepare`: turns a text into data for training."""

from __future__ import annotations

import os
from pathlib import Path

import click

from stepwatch.cli import described, option
from stepwatch.cli.commands import options_of, write
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.platforms import quoted
from stepwatch.trainer.tokenizing import KINDS, Prepared, prepare


@described(
    texts=(
        Message("Turn a text into training data: train.bin, val.bin and meta.pkl, as for nanoGPT."),
        Message(
            "Characters (char) work for any UTF-8 text, bytes (byte) for any file; gpt2 needs the package "
            "tiktoken. The end of the text is used for validation."
        ),
        Message(
            "A directory of Parquet files with a column text, such as nanochat's shards, is read as "
            "documents; the last file is used for validation."
        ),
    ),
    options=options_of("prepare"),
)
@click.argument("text", metavar="FILE.txt")
@option("--out", metavar="DIR", help=Message("Where to write the data (default: data/ and the name of the file)."))
@option("--tokens", type=click.Choice(KINDS), default="char", help=Message("What a token is."))
@option("--val", type=float, metavar="SHARE", default=0.1, help=Message("Share of the text used for validation."))
def command(text: str, out: str | None, tokens: str, val: float, lang: str) -> None:
    source = Path(text)
    prepared = prepare(source, Path(out) if out is not None else Path("data") / source.stem, kind=tokens, val=val)
    facts = prepared._asdict() | {"directory": str(prepared.directory)}
    messages = (
        Message("{directory:list}: {train_tokens:n} tokens for training, {val_tokens:n} for validation", facts),
        Message("vocabulary: {vocab_size:n}", facts),
        Message("next: {command:list}", {"command": _next(prepared)}),
    )
    write((say(message, lang) + "\n" for message in messages), None, lang)


def _next(prepared: Prepared) -> str:
    """The command to train next: a small model, so that the first run ends within minutes on any machine."""
    block = max(size for size in (1, 8, 64) if size < min(prepared.val_tokens, prepared.train_tokens))
    directory = prepared.directory  # nanoGPT looks in data/
    dataset = os.path.relpath(directory, "data") if directory.parts[:1] == ("data",) else str(directory)
    return (
        f"stepwatch train --dataset={quoted(dataset)} --n_layer=4 --n_head=4 --n_embd=128 "
        f"--block_size={block} --batch_size=12 --gradient_accumulation_steps=1 --max_iters=2000 --lr_decay_iters=2000 "
        "--warmup_iters=100 --learning_rate=1e-3 --min_lr=1e-4 --eval_interval=250 --eval_iters=20 --dropout=0.0"
    )
