"""`stepwatch explain`: from a log to an answer."""

from __future__ import annotations

import math
import os
import shlex
import sys
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import click

from stepwatch.analysis import analyse
from stepwatch.analysis.findings import NOTICE, WARNING, Finding
from stepwatch.cli.cards import named_card
from stepwatch.cli.errors import complain
from stepwatch.cli.options import format_options, language_option, speaking, write
from stepwatch.errors import StepwatchError, UsageError
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters import Presenter
from stepwatch.readers import read
from stepwatch.report import Report
from stepwatch.run import Run
from stepwatch.settings import Origin, Settings, Value, parse_assignment, read_config
from stepwatch.sources import LARGEST_EXPANSION_BYTES, Source, from_file, from_stdin

if TYPE_CHECKING:
    from stepwatch.gpus import Gpu


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
@format_options("terminal", "md", "json")
def command(
    logs: tuple[str, ...], gpu: str | None, lang: str | None, config: str | None, assignments: tuple[str, ...],
    full: bool, chosen: int | None, no_iterations: bool, with_lines: bool, front_matter: bool, log_format: str | None,
    like: str | None, max_size: int, form: str, output: str | None,
) -> None:  # fmt: skip
    """Explain the log of a training run.

    Tells why some iterations are slow, what a step, an evaluation, a checkpoint and the compilation cost, how fast
    the run is on your card, where the time went and when it will end. Reads files (plain or .gz), `-` or a pipe;
    alone on a terminal it waits for a pasted log.
    """
    with speaking(lang) as language:
        report, failed = report_on(
            logs, gpu, config, assignments, language, chosen=chosen, log_format=log_format, like=like, limit=max_size
        )
        presenter = _presenter(
            form, full=full, iterations=not no_iterations, with_lines=with_lines, front_matter=front_matter,
            colour=None if output is None else False,
        )  # fmt: skip
        write(presenter.render(report, language), output)
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
    from_config, remarks = _config_settings(config)
    runs, failed = _read_all(logs, log_format, like, limit, language)
    if chosen is not None:
        runs = [_chosen(runs, chosen)]
    report = replace(
        _report(runs, card, from_config, user, remarks), inputs=tuple(_shown(name) for name in logs or ("-",)),
        command=_command(chosen, like),
    )  # fmt: skip
    return report, failed


def _command(chosen: int | None, like: str | None) -> str:
    """What was asked, so that what is suggested next can be pasted."""
    learned = "" if like is None else f" --like {shlex.quote(like)}"
    return "stepwatch explain" + learned + ("" if chosen is None else f" --run {chosen}")


def _read_all(
    logs: tuple[str, ...], log_format: str | None, like: str | None, limit: int, language: str
) -> tuple[list[Run], bool]:
    """All runs of all logs. One bad file among several is told and skipped; alone it is the answer."""
    runs: list[Run] = []
    failed = False
    for name in logs or ("-",):
        try:
            runs.extend(read(_source(name, limit, language), log_format, like=like))
        except StepwatchError as error:
            if len(logs) < 2:
                raise
            failed = True
            complain(error, language)
    if not runs:
        sys.exit(1)
    return runs, failed


def _source(name: str, limit: int, language: str) -> Source:
    if name != "-":
        return from_file(name, limit=limit)
    if sys.stdin is not None and sys.stdin.isatty():
        end = "Ctrl-Z" if sys.platform == "win32" else "Ctrl-D"
        click.echo(say(Message("Paste the log, then {key:word}.", {"key": end}), language), err=True)
    return from_stdin(limit=limit)


def _shown(name: str) -> str:
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


def _config_settings(config: str | None) -> tuple[dict[str, Value], list[Finding]]:
    if config is None:
        return {}, []
    values, skipped = read_config(from_file(config).text.decode("utf-8", "replace"))
    if not skipped:
        return values, []
    facts = {"names": ", ".join([*skipped[:8], *(["…"] if len(skipped) > 8 else [])]), "count": len(skipped)}
    text = Message("These settings of the config are not plain values and were left out: {names:word}.", facts)
    return values, [Finding("config_skipped", NOTICE, text)]


def _report(
    runs: list[Run], card: tuple[Gpu, str] | None, from_config: dict[str, Value], user: Settings, remarks: list[Finding]
) -> Report:
    if len(runs) > 1:
        facts = {"count": len(runs)}
        text = Message("The log holds {count:n} runs; each is explained by itself, with its own normal time.", facts)
        remarks = [*remarks, Finding("several_runs", NOTICE, text)]
    config = Settings.of(Origin.CONFIG, from_config)
    remarks = [*remarks, *_contradictions(runs, user, "--set"), *_contradictions(runs, config, "--config")]
    analyses = []
    for run in runs:
        gpu, origin = _card(run, card)
        analyses.append(analyse(replace(run, settings=_laid_over(run.settings, config, user)), gpu, origin))
    return Report(analyses=tuple(analyses), remarks=tuple(remarks))


def _card(run: Run, card: tuple[Gpu, str] | None) -> tuple[Gpu | None, str | None]:
    if card is not None:
        return card
    if not run.gpu_text:
        return None, None
    from stepwatch.gpus import find_gpu_in_text

    found = find_gpu_in_text(run.gpu_text)
    return found, Origin.LOG.value if found else None


def _laid_over(log: Settings, config: Settings, user: Settings) -> Settings:
    """What was inferred yields to the config, the config to what the log says, and all to --set."""
    said = Settings({name: setting for name, setting in log.items() if setting.origin is Origin.LOG})
    return log.beneath(config).beneath(said).beneath(user)


def _contradictions(runs: list[Run], given: Settings, option: str) -> list[Finding]:
    found = []
    for name, setting in given.items():
        told = next((value for run in runs if (value := _told(run, name)) is not None), None)
        if told is None or told == setting.value:
            continue
        facts = {"name": name, "told": _short(told), "given": _short(setting.value)}
        text = Message("The log says {name:word} = {told:word}, --config says {given:word}: the log wins.", facts)
        if option == "--set":
            text = Message("The log says {name:word} = {told:word}, --set says {given:word}: --set wins.", facts)
        found.append(Finding("settings_conflict", WARNING, text))
    return found


def _told(run: Run, name: str) -> Value | None:
    """What the log says of a setting, in words or by the numbers of its evaluations."""
    if name in run.settings and run.settings[name].origin is Origin.LOG:
        return run.settings[name].value
    if name == "eval_interval" and len(run.evaluations) > 2:
        return math.gcd(*(b.at - a.at for a, b in pairwise(run.evaluations)))
    return None


def _short(value: Value) -> Value:
    return int(value) if isinstance(value, float) and value == int(value) else value


def _presenter(
    form: str, *, full: bool, iterations: bool, with_lines: bool, front_matter: bool, colour: bool | None
) -> Presenter:
    if form == "json":
        from stepwatch.presenters.jsondoc import JsonPresenter

        return JsonPresenter(iterations=iterations, with_lines=with_lines)
    if form == "md":
        from stepwatch.presenters.markdown import MarkdownPresenter

        return MarkdownPresenter(front_matter=front_matter, with_lines=with_lines)
    from stepwatch.presenters.terminal import TerminalPresenter

    return TerminalPresenter(full=full, with_lines=with_lines, colour=colour)
