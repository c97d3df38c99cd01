"""`stepwatch train`: nanoGPT's training loop with an honest log."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from stepwatch.answers import text_of
from stepwatch.answers.from_plans import EstimateRequest, estimate
from stepwatch.cli import Command, described, language_of, option
from stepwatch.cli.commands import deliver, needing_torch, options_of
from stepwatch.cli.estimate import vocabulary_near
from stepwatch.errors import InputError, StepwatchError, UnreadableInput
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.settings import KINDS, Value
from stepwatch.trainer.config import MEANINGS, TrainConfig, config_from_file, config_from_flags, train_config

if TYPE_CHECKING:
    from stepwatch.trainer.eta import Expected
    from stepwatch.trainer.log import Log


class _WithSettings(Command):
    """A command whose help ends with all settings, their defaults and meanings."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        language = language_of(ctx)
        with formatter.section(say(Message("Settings, as flags or as lines of the config:"), language)):
            defaults = {field.name: field.default for field in fields(TrainConfig)}
            rows = [
                (f"{name}={'…' if defaults[name] is None else defaults[name]}", say(meaning, language))
                for name, meaning in MEANINGS.items()
            ]
            formatter.write_dl(rows)


@described(
    texts=(
        Message("Train a GPT as nanoGPT does, with the time of every part on a separate line."),
        Message(
            "Takes nanoGPT's config files (read, never executed), flags, data and checkpoints, and writes "
            "nanoGPT's log, its checkpoint and run.jsonl, which `stepwatch explain` reads. Under torchrun it "
            "trains on all ranks: torchrun --nproc_per_node=2 -m stepwatch train CONFIG.py"
        ),
    ),
    options=options_of("train"),
    cls=_WithSettings,
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[CONFIG.py | --KEY=VALUE]...")
@option("--dry-run", is_flag=True, help=Message("Only show how long it will take and whether it fits; start nothing."))
@option("--samples", is_flag=True, help=Message("Also sample the machine, to run.samples.csv next to run.jsonl."))
def command(arguments: tuple[str, ...], dry_run: bool, samples: bool, lang: str) -> None:
    started = time.time()
    with _without_collector():
        if dry_run:
            _estimate(arguments, lang)
            return
        with needing_torch(Message("to train, stepwatch needs PyTorch")):
            import torch  # noqa: F401
        from stepwatch.trainer.distributed import ranks_from_environment
        from stepwatch.trainer.log import Log
        from stepwatch.trainer.loop import train

        ranks = ranks_from_environment()
        log = Log(speaks=ranks.is_first)
        try:
            train(
                _config(arguments, log), ranks, log, samples=samples, started=started,
                estimate=lambda decided, vocab_size: _expected(decided, vocab_size, ranks.world_size),
            )  # fmt: skip
        except Exception as error:
            failure = _as_stepwatch_error(error)
            if ranks.is_alone:
                if failure is None:
                    raise
                raise failure from error
            _leave(ranks.rank, failure or error, lang)


def _estimate(arguments: tuple[str, ...], language: str) -> None:
    """Prints what `estimate` says about these settings on this machine; needs no PyTorch."""
    from stepwatch.trainer.log import Log

    config = _config(arguments, Log(speaks=True))
    files = [argument for argument in arguments if not argument.startswith("-")]
    with _this_machine():
        answer = estimate(replace(_request(config), vocabulary=vocabulary_near(files)))
    deliver(answer, language, "terminal", None)


@contextmanager
def _this_machine() -> Iterator[None]:
    """Gives an unknown card a different hint than `estimate` does, since `train` has no --gpu."""
    try:
        yield
    except InputError as error:
        if error.about != "gpu":
            raise
        remedy = Message("measure this machine: stepwatch calibrate; for another card: stepwatch estimate --gpu NAME")
        raise InputError(error.what, remedy, about="gpu") from error


def _request(config: TrainConfig, **more: Value) -> EstimateRequest:
    settings = {**config.plain(), **more}
    return EstimateRequest(
        settings=tuple(f"{name}={value}" for name, value in settings.items() if name in KINDS),
        gpu="cpu" if config.device == "cpu" else None,
    )


def _expected(config: TrainConfig, vocab_size: int, ranks: int) -> Expected | str:
    """The estimate for the run that begins; without one the reason, in English like the log."""
    from stepwatch.trainer.eta import Expected

    try:
        with _this_machine():
            plan = estimate(_request(config, vocab_size=vocab_size, world_size=ranks)).plan
    except StepwatchError as error:
        return "; ".join(message.in_english() for message in (error.what, error.remedy) if message is not None)
    found = plan.estimate
    return Expected(
        step_s=found.step_s, eval_s=found.eval_s, total_s=plan.total_s, memory_bytes=found.vram_bytes, fits=plan.fits,
        busy=plan.gpu.calibration is not None and plan.gpu.calibration.is_busy,
    )  # fmt: skip


@contextmanager
def _without_collector() -> Iterator[None]:
    """Imports create a million objects that stay; collecting garbage among them would slow down the start."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _config(arguments: tuple[str, ...], log: Log) -> TrainConfig:
    """Files and flags in any order, as nanoGPT accepts them: later ones override earlier ones."""
    layers: list[dict[str, Value]] = []
    overridden: set[str] = set()
    for argument in reversed(arguments):
        if argument.startswith("-"):
            settings = config_from_flags([argument])
        else:
            try:
                text = text_of(argument)
            except UnreadableInput as error:
                raise UnreadableInput(error.what, Message("check the path of the config")) from error
            settings, left_out = config_from_file(text, overridden)
            if left_out:
                names = ", ".join(left_out)
                log.say(f"note: left out of {Path(argument).name}, since it is read and not executed: {names}")
        overridden |= settings.keys()
        layers.insert(0, settings)
    return train_config(*layers)


def _as_stepwatch_error(error: Exception) -> StepwatchError | None:
    """The error as one sentence for the user; None for a bug of ours."""
    if isinstance(error, StepwatchError):
        return error
    if isinstance(error, MemoryError) or "out of memory" in str(error) or "can't allocate memory" in str(error):
        return InputError(
            Message("out of memory: the batch does not fit"),
            Message("halve batch_size and double gradient_accumulation_steps: the same training with less memory"),
        )
    if isinstance(error, OSError):
        return InputError(
            Message(
                "“{name:word}” cannot be written: {reason:word}",
                {"name": error.filename or "", "reason": error.strerror or type(error).__name__},
            ),
            Message("choose another directory with --out_dir"),
        )
    return None


def _leave(rank: int, error: Exception, language: str) -> NoReturn:
    """Says which rank ends and why, and exits at once, so that the others notice instead of waiting for it."""
    lost = ("Connection closed by peer", "Connection reset", "Broken pipe", "connection was closed", "Socket closed")
    if isinstance(error, StepwatchError):
        reason = say(error.what, language)
    elif any(words in str(error) for words in lost):
        reason = "another rank is gone"
    else:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        reason = f"{type(error).__name__}: {first[:200]}"
    click.echo(f"stepwatch: rank {rank}: {reason}", err=True)
    if isinstance(error, StepwatchError) and error.remedy is not None:
        click.echo("  " + say(error.remedy, language), err=True)
    sys.stdout.flush()
    os._exit(error.exit_code if isinstance(error, StepwatchError) else 1)
