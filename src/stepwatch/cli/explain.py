"""`stepwatch explain`: from a log to an answer."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from stepwatch.analysis.findings import NOTICE, WARNING, Finding
from stepwatch.cli.errors import complain
from stepwatch.cli.options import (
    chart_option,
    check_output,
    format_options,
    language_option,
    speaking,
    write,
)
from stepwatch.errors import StepwatchError, UsageError
from stepwatch.explanation import divided, explain
from stepwatch.gpus.choice import count_in, named_card
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters import CHARTS, View, render
from stepwatch.readers import joined_ranks, read
from stepwatch.report import Report
from stepwatch.run import Run
from stepwatch.settings import Origin, Settings, config_settings, parse_assignment
from stepwatch.sources import LARGEST_EXPANSION_BYTES, Source, from_file, from_stdin

if TYPE_CHECKING:
    from stepwatch.readers.log_files import Log, Wanted

MOST_FAILURES = 10


@click.command(name="explain", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("logs", nargs=-1, metavar="[LOG]...")
@click.option("--gpu", metavar="NAME", help="The card the run used: 4070, rtx4090, a100-80gb, cpu, …")
@language_option()
@click.option(
    "--config",
    metavar="FILE.py",
    help="The nanoGPT config of the run; read, never executed.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting the log does not tell, such as max_iters=6000.",
)
@click.option("--full", is_flag=True, help="Everything, not only the first screen.")
@click.option("--run", "chosen", type=click.IntRange(min=1), metavar="N", help="Explain only the N-th run of the log.")
@click.option("--no-iterations", is_flag=True, help="Leave the list of iterations out of the JSON.")
@click.option("--with-lines", is_flag=True, help="Show lines of the log that were not understood.")
@click.option("--front-matter", is_flag=True, help="Begin the Markdown with front matter for a site.")
@click.option("--log-format", metavar="NAME", help="Do not detect the format of the log: it is this one.")
@click.option(
    "--like",
    metavar="LINE",
    help="Read lines like this one, of a format that is not known: 'it 12 | 0.34 s'.",
)
@click.option(
    "--max-size",
    type=click.IntRange(min=1),
    metavar="BYTES",
    default=LARGEST_EXPANSION_BYTES,
    help="Largest log to read, after expansion (default: 2 GB).",
)
@chart_option(*CHARTS)
@format_options("terminal", "md", "json", "html", "png")
def command(
    logs: tuple[str, ...], gpu: str | None, lang: str | None, config: str | None, assignments: tuple[str, ...],
    full: bool, chosen: int | None, no_iterations: bool, with_lines: bool, front_matter: bool, log_format: str | None,
    like: str | None, max_size: int, chart: str | None, form: str, output: str | None,
) -> None:  # fmt: skip
    """Explain the log of a training run.

    Tells why some iterations are slow, what a step, an evaluation, a checkpoint and the compilation cost, how fast
    the run is on your card, where the time went and when it will end. Reads files (plain, gz, xz, bz2 or zst),
    directories, `-` or a pipe; alone on a terminal it waits for a pasted log.
    """
    with speaking(lang) as language:
        check_output(form, output, chart)
        report, failed = report_on(
            logs, gpu, config, assignments, language, chosen=chosen, log_format=log_format, like=like, limit=max_size
        )
        view = View(
            full=full,
            iterations=not no_iterations,
            with_lines=with_lines,
            front_matter=front_matter,
            chart=chart,
            colour=None if output is None else False,
        )
        write(render(report, form, language, view), output, form)
    if failed:
        sys.exit(1)


def report_on(
    logs: tuple[str, ...], gpu: str | None, config: str | None, assignments: tuple[str, ...], language: str, *,
    chosen: int | None = None, log_format: str | None = None, like: str | None = None,
    limit: int = LARGEST_EXPANSION_BYTES,
) -> tuple[Report, bool]:  # fmt: skip
    """The report, and whether one of several logs could not be read."""
    card = named_card(gpu)
    user = Settings.of(Origin.USER, dict(parse_assignment(text) for text in assignments))
    from_config, remarks = config_given(config)
    if card is not None and card[0].remark is not None:
        remarks.append(Finding("not_calibrated", NOTICE, card[0].remark))
    if like is not None and log_format is not None:
        raise UsageError(
            Message("--like and --log-format exclude each other"),
            Message("--log-format names a format that is known, --like shows a line of one that is not"),
        )
    reading = _Reading(log_format, like, limit, language)
    runs = reading.all(logs or ("-",))
    remarks += reading.remarks
    if chosen is not None:
        started, unstarted = divided(runs)
        runs = [_chosen([*started, *unstarted], chosen)]
    report = replace(
        explain(runs, card, config=from_config, user=user, remarks=remarks, cards=count_in(gpu)),
        inputs=tuple(shown(name) for name in logs or ("-",)),
        directory=chosen is None and any(map(is_collection, logs)),
        command=_command(chosen, like),
    )  # fmt: skip
    return report, reading.failed


def _command(chosen: int | None, like: str | None) -> str:
    """What was asked, so that what is suggested next can be pasted."""
    learned = "" if like is None else f" --like {shlex.quote(like)}"
    return "stepwatch explain" + learned + ("" if chosen is None else f" --run {chosen}")


class _Reading:
    """Reads all logs that were named. One bad file among several is told and skipped; alone it is the answer."""

    def __init__(self, log_format: str | None, like: str | None, limit: int, language: str) -> None:
        self.log_format, self.like, self.limit, self.language = log_format, like, limit, language
        self.failed = False
        self.remarks: list[Finding] = []

    def all(self, names: Sequence[str]) -> list[Run]:
        """In the order of the names. Ends the command where there is none, and the reasons are told."""
        if len(names) == 1 and self.log_format is None and not os.path.isdir(names[0]):
            # Most calls: what looks through files need not be loaded.
            source = self._pasted() if names[0] == "-" else from_file(names[0], limit=self.limit)
            return list(joined_ranks(read(source, like=self.like)))
        from stepwatch.readers.log_files import Log, logs_among

        logs = logs_among(names, self.wanted) if len(names) > 1 else [Log(tuple(names))]
        runs = [run for log in logs for run in self._read(log, alone=len(names) < 2)]
        if not runs:
            sys.exit(1)
        return list(joined_ranks(runs))

    @property
    def wanted(self) -> Wanted:
        from stepwatch.readers.log_files import Wanted

        return Wanted(self.log_format, self.like, self.limit)

    def _read(self, log: Log, *, alone: bool) -> Sequence[Run]:
        name = log.paths[-1]
        try:
            if is_collection(name):
                return self._directory(name)
            runs = self.wanted.read(self._pasted()) if name == "-" else log.runs(self.wanted)
        except StepwatchError as error:
            if alone:
                raise
            self.failed = True
            complain(error, self.language)
            return ()
        self._tell_gap(name, log.missing)
        return runs

    def _directory(self, name: str) -> Sequence[Run]:
        """The runs below a directory; what cannot be read is told, and so is a search that was cut short."""
        from stepwatch.readers.collection import MOST_FILES, runs_in

        found = runs_in(name, self.wanted)
        for log, error in found.failed[:MOST_FAILURES]:
            text = Message("{name:word}: {what:word}", {"name": log, "what": say(error.what, self.language)})
            self._say(text)
        if len(found.failed) > MOST_FAILURES:
            self._say(Message("… and {count:n} more.", {"count": len(found.failed) - MOST_FAILURES}))
        if found.passed_over:
            count = found.passed_over
            self._say(
                Message(
                    "{count:n} other file is no log",
                    {"count": count},
                    "{count:n} other files are no logs",
                    count,
                )
            )
        if found.more:
            self._say(Message("only the first {count:n} files were looked at", {"count": MOST_FILES}))
        for log, missing in found.gaps:
            self._tell_gap(log, missing)
        self.failed = self.failed or bool(found.failed)
        return found.runs

    def _tell_gap(self, name: str, missing: int) -> None:
        if missing:
            facts = {"name": os.path.basename(name), "count": missing}
            text = Message("Of “{name:word}” a piece is missing, and {count:n} iterations with it.", facts)
            self.remarks.append(Finding("piece_missing", WARNING, text))

    def _pasted(self) -> Source:
        if sys.stdin is not None and sys.stdin.isatty():
            end = "Ctrl-Z" if sys.platform == "win32" else "Ctrl-D"
            self._say(Message("Paste the log, then {key:word}.", {"key": end}), prefix="")
        return from_stdin(limit=self.limit)

    def _say(self, message: Message, prefix: str = "stepwatch: ") -> None:
        click.echo(prefix + say(message, self.language), err=True)


def is_collection(name: str) -> bool:
    """A directory that is not itself one run."""
    if not os.path.isdir(name):
        return False
    from stepwatch.sources.directories import event_files, wandb_files

    return wandb_files(name) is None and not event_files(name)


def shown(name: str) -> str:
    """A relative path is as typed; of any other only the name, since a report is made to be passed on."""
    parts = set(name.replace("\\", "/").split("/"))
    return os.path.basename(name) if os.path.isabs(name) or {"..", "~"} & parts else name


def _chosen(runs: list[Run], number: int) -> Run:
    if number > len(runs):
        raise UsageError(
            Message(
                "there is no run {number:n}: the log holds {count:n} run",
                {"number": number, "count": len(runs)},
                "there is no run {number:n}: the log holds {count:n} runs",
                len(runs),
            ),
            Message("runs are numbered from 1"),
        )
    return runs[number - 1]


def config_given(config: str | None) -> tuple[Settings, list[Finding]]:
    if config is None:
        return Settings({}), []
    settings, remarks = config_settings(from_file(config).text.decode("utf-8", "replace"))
    return settings, [Finding("config_skipped", NOTICE, remark) for remark in remarks]
