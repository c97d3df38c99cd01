"""`stepwatch calibrate`: measures this machine, so that `--gpu this` means it as it is."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from stepwatch.cli.options import format_options, language_option, speaking, write
from stepwatch.errors import InputError
from stepwatch.gpus.calibration import calibration_json, save_calibration
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters.calibrations import calibration_table

if TYPE_CHECKING:
    from stepwatch.gpus.calibration import Calibration


@click.command(name="calibrate", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--device", type=click.Choice(("cpu", "cuda")), help="What to measure (default: the card, if there is one)."
)
@click.option(
    "--directory",
    metavar="DIR",
    default=".",
    help="Where checkpoints will be written (default: the current directory).",
)
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out, which takes longest.")
@language_option()
@format_options("terminal", "json")
def command(
    device: str | None, directory: str, no_compile: bool, lang: str | None, form: str, output: str | None
) -> None:
    """Measure this machine, in about a minute.

    Matrix products by dtype, memory, launches, the parts of a training step, torch.save in the directory where
    checkpoints go, torch.compile. The figures are kept in the user's config directory, in calibration.json;
    `--gpu this` in estimate, advise and explain then means them. Measure while the machine is at rest.
    """
    with speaking(lang) as language:
        found = _measured(device, directory, not no_compile, language)
        save_calibration(found)
        if form == "json":
            write(json.dumps(calibration_json(found), ensure_ascii=False) + "\n", output)
        else:
            write(calibration_table(found, language), output)


def _measured(device: str | None, directory: str, compiles: bool, language: str) -> Calibration:
    try:
        from stepwatch.trainer.measuring import calibrate
    except ImportError as error:
        raise InputError(
            Message("to measure this machine, stepwatch needs PyTorch"), Message("pip install 'stepwatch[train]'")
        ) from error

    def told(part: Message) -> None:
        if sys.stderr is not None and sys.stderr.isatty():
            click.echo(say(Message("measuring: {part:word}", {"part": say(part, language)}), language), err=True)

    return calibrate(device, directory, compiles=compiles, told=told)
