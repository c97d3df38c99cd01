"""`stepwatch monitor`: the sampler alone."""

from __future__ import annotations

import os
import signal
import sys
import time

import click

from stepwatch.cli import described, option
from stepwatch.cli.commands import options_of
from stepwatch.cli.sampling import interval_option, keep_as_parquet, name_unseen, open_sampler
from stepwatch.errors import InputError, UsageError
from stepwatch.messages import Message
from stepwatch.sampler import parquet
from stepwatch.sampler.host import runs


@described(
    texts=(
        Message("Sample this machine during a training run that is already going."),
        Message(
            "Samples cards, processors, memory, disk and network, and with --pid the processes of the "
            "training. Ends with that process or with Ctrl-C. `stepwatch explain LOG --samples FILE` then "
            "uses the samples to explain the log."
        ),
    ),
    options=options_of("monitor"),
)
@option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help=Message("Where to write the samples; as Parquet if the name ends in .parquet."),
)
@option(
    "--pid",
    type=click.IntRange(1),
    metavar="N",
    help=Message("The process of the training; its children are included."),
)
@interval_option
def command(output: str, pid: int | None, interval: float, lang: str) -> None:
    if pid is not None and not runs(pid):
        raise InputError(Message("there is no process {pid:word}", {"pid": pid}))
    lines = f"{output}.csv" if output.endswith(".parquet") else output
    if lines != output and not parquet.available():
        raise UsageError(
            Message("to read and write Parquet, stepwatch needs pyarrow"),
            Message('pip install "stepwatch[parquet]"'),
        )
    sampler = open_sampler(lines, pid, interval, lang)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        sampler.sample()
        time.sleep(0.1)
        sampler.sample()  # rates are known from the second sample on
        name_unseen(sampler, lang)
        sampler.run(until=lambda: pid is not None and not runs(pid))
    except KeyboardInterrupt:
        pass  # the usual way to end it
    finally:
        sampler.close()
        if lines != output and keep_as_parquet(lines, output, lang):
            os.remove(lines)
