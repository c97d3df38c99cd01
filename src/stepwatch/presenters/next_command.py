"""The command to ask next, ready to be pasted into a shell."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stepwatch.messages import Message
from stepwatch.presenters import document as doc
from stepwatch.presenters import run_sentences as sentences
from stepwatch.quoting import quoted, quoted_path
from stepwatch.settings import Origin

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis
    from stepwatch.presenters import Typed
    from stepwatch.report import Report, RunReport

_OF_EXPLAIN_ALONE = ("--like", "--log-format", "--max-size")


def next_commands(report: Report, run: RunReport, *, full: bool, typed: Typed | None = None) -> Iterator[doc.Command]:
    """The one command that would tell most more; nothing where there is nothing left to ask."""
    a = run.analysis
    command, options = ("stepwatch explain", typed.options) if typed else (report.command, tuple(given(a)))
    sources = dict.fromkeys(a.run.source or "-" for a in report.analyses)
    names = typed.logs if typed else report.inputs or tuple(sources)
    start = (command, *map(quoted_path, names), *options)
    if report.directory and not full:
        why = Message("To see it explained:") if report.count == 1 else Message("To see one of them:")
        yield doc.Command((*start, f"--run {report.worst_first[0] + 1}"), why)
    elif len(report.analyses) > 1 and not full:
        other = 0 if report.longest else 1
        alone = _log_of(other, report, names)
        asked = (*start, f"--run {other + 1}") if alone is None else (command, quoted_path(alone), *options)
        yield doc.Command(asked, Message("To see another run:"))
    elif a.throughput.gpu is None and a.throughput.achieved_flops is not None:
        why = Message("To see how much of your card is used, name it, for example:")
        peaks = {"4070": 58e12, "4090": 165e12, "h100": 989e12}  # one that could do what was measured
        card = next((name for name, peak in peaks.items() if a.throughput.achieved_flops < peak), "b200")
        if (a.run.settings.text("device") or "").startswith("cpu"):
            card = "cpu"
        yield doc.Command((*start, f"--gpu {card}"), why)
    elif a.forecast.max_iters is None and sentences.step_known(a):
        why = Message("To see when the run ends, give its length, for example:")
        length = max(int(float(f"{2 * a.forecast.last_iteration:.0e}")), 1000)  # one digit: it is an example
        yield doc.Command((*start, f"--set max_iters={length}"), why)
    elif not full:
        yield doc.Command((*start, "--full"), Message("To see everything:"))
    elif run.advice is not None and not any(option in " ".join((command, *options)) for option in _OF_EXPLAIN_ALONE):
        why = Message("To see what to change, with the lines to paste:")
        yield doc.Command((command.replace("explain", "advise", 1), *start[1:]), why)


def given(a: Analysis) -> Iterator[str]:
    """What the reader had given already, so that the next answer does not forget it."""
    if a.throughput.gpu is not None and a.throughput.gpu_origin == Origin.USER.value:
        yield f"--gpu {quoted(a.throughput.gpu.name)}"
    for name, setting in a.run.settings.items():
        if setting.origin is Origin.USER:
            value = setting.value
            whole = isinstance(value, float) and value == int(value)
            yield f"--set {quoted(f'{name}={int(value) if whole else value}')}"


def _log_of(number: int, report: Report, names: Sequence[str]) -> str | None:
    """The log that holds this run alone, where each log holds one."""
    source = report.analyses[number].run.source
    found = [name for name in names if os.path.basename(name) == source]
    return found[0] if len(found) == 1 and len(names) == report.count else None
