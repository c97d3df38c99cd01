"""`stepwatch sample`: prints text that a trained model generates."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stepwatch.answers import text_of
from stepwatch.cli import described, option
from stepwatch.cli.commands import needing_torch, options_of
from stepwatch.errors import InputError
from stepwatch.messages import Message

FROM_FILE = "FILE:"
END = "---------------"


@described(
    texts=(
        Message("Let a trained model continue a text, like nanoGPT's sample.py."),
        Message(
            "Reads the checkpoints of `stepwatch train` and of nanoGPT. The text appears as it is "
            "generated. The same seed gives the same tokens as nanoGPT."
        ),
    ),
    options=options_of("sample"),
)
@click.argument("checkpoint", metavar="[CKPT]", required=False)
@option("--out_dir", metavar="DIR", default="out", help=Message("The directory of the checkpoint, or its file."))
@option(
    "--start",
    "--prompt",
    default="\n",
    show_default=False,
    metavar="TEXT",
    help=Message("The text to continue; FILE:prompt.txt reads it from a file."),
)
@option(
    "--num_samples", type=click.IntRange(min=1), metavar="N", default=10, help=Message("Number of texts to generate.")
)
@option(
    "--max_new_tokens",
    type=click.IntRange(min=1),
    metavar="N",
    default=500,
    help=Message("Length of each text, in tokens."),
)
@option(
    "--temperature",
    type=click.FloatRange(min=0, min_open=True),
    metavar="T",
    default=0.8,
    help=Message("Below 1 the text varies less, above 1 more."),
)
@option(
    "--top_k",
    type=click.IntRange(min=1),
    metavar="N",
    default=200,
    help=Message("Choose among the N most likely tokens only."),
)
@option("--seed", type=int, metavar="N", default=1337, help=Message("The same seed gives the same text."))
@option("--device", metavar="NAME", help=Message("cpu, cuda, mps (default: the best available)."))
@option("--dataset", metavar="NAME", help=Message("The data whose vocabulary is used (default: the checkpoint's)."))
def command(
    checkpoint: str | None,
    out_dir: str,
    start: str,
    num_samples: int,
    max_new_tokens: int,
    temperature: float,
    top_k: int,
    seed: int,
    device: str | None,
    dataset: str | None,
    lang: str,
) -> None:
    with needing_torch(Message("to sample, stepwatch needs PyTorch")):
        import torch  # noqa: F401
    from stepwatch.trainer.config import train_config
    from stepwatch.trainer.generate import continued, load_model, vocabulary_of
    from stepwatch.trainer.hardware import choose_device

    here = choose_device(train_config({"device": device} if device else {}))
    model, saved = load_model(Path(checkpoint or out_dir), seed, here)
    vocabulary = vocabulary_of(saved, dataset)
    text = text_of(start.removeprefix(FROM_FILE)) if start.startswith(FROM_FILE) else start
    tokens = vocabulary.encode(text)
    if not tokens:
        raise InputError(Message("there is no text to continue"), Message("give some text with --start"))
    for _ in range(num_samples):
        new = continued(model, tokens, max_new_tokens, temperature=temperature, top_k=top_k, device=here)
        sys.stdout.write(text)
        for piece in vocabulary.pieces(new):
            sys.stdout.write(piece)
            sys.stdout.flush()
        sys.stdout.write(f"\n{END}\n")
