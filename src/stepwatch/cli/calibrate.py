"""`stepwatch calibrate`: measures this machine, so that `--gpu this` uses its real figures."""

from __future__ import annotations

import sys

import click

from stepwatch.cli import described, option
from stepwatch.cli.commands import deliver, needing_torch, options_of
from stepwatch.gpus.calibration import save_calibration
from stepwatch.i18n import say
from stepwatch.messages import Message


@described(
    texts=(
        Message("Measure this machine, in about a minute."),
        Message(
            "Matrix products by dtype, memory, launches, the parts of a training step, torch.save in the "
            "directory where checkpoints go, torch.compile. The figures are kept in the user's config directory, "
            "in calibration.json; `--gpu this` in estimate, advise and explain then uses them. Measure while the "
            "machine is idle."
        ),
    ),
    options=options_of("calibrate", "terminal", "json"),
)
@option(
    "--device",
    type=click.Choice(("cpu", "cuda")),
    help=Message("What to measure (default: the card, if there is one)."),
)
@option(
    "--directory",
    metavar="DIR",
    default=".",
    show_default=False,
    help=Message("Where checkpoints will be written (default: the current directory)."),
)
@option("--no-compile", is_flag=True, help=Message("Skip torch.compile, which takes longest."))
def command(device: str | None, directory: str, no_compile: bool, lang: str, form: str, output: str | None) -> None:
    with needing_torch(Message("to measure this machine, stepwatch needs PyTorch")):
        from stepwatch.trainer.measuring import calibrate

    def report(part: Message) -> None:
        if sys.stderr is not None and sys.stderr.isatty():
            click.echo(say(Message("measuring: {part:word}", {"part": part}), lang), err=True)

    found = calibrate(device, directory, compiles=not no_compile, report=report)
    save_calibration(found)
    deliver(found, lang, form, output)
