"""The answer on a terminal: one screen of 25 lines, everything with `full`; good without colour."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stepwatch.analysis import Analysis
from stepwatch.analysis.findings import NOTICE, WARNING, Finding
from stepwatch.analysis.phases import Phase
from stepwatch.analysis.statistics import median, quantile
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters import sentences
from stepwatch.presenters.lines import (
    SCREEN_LINES,
    Cell,
    Line,
    Table,
    labelled,
    shown,
    width_of_output,
    wrapped,
)
from stepwatch.presenters.writing import Screen
from stepwatch.report import Report

MOST_SLOW_ROWS = 30
MOST_RUNS = 8
MOST_FINDINGS = 4
_ENOUGH_STEPS = 20_000  # to draw the middle of each column
_CHART_HEIGHTS = (5, 4, 3)
_FULL_CHART_HEIGHT = 7

# What the table, the headline and the legend of the first screen say already.
_SAID_ABOVE = frozenset({"evaluation_spikes", "silent_evaluations", "checkpoint_cost", "several_runs", "mfu_sentinel"})
_MARKS = {WARNING: ("!", "bold red"), NOTICE: ("•", "yellow")}
_MARK_STYLES = {"e": "cyan", "c": "cyan bold", "0": "magenta bold", "!": "red bold"}
_DOTS = ".·˙"  # low, middle and high in the cell: three levels per line

LEGEND = {
    "e": Message("evaluation"),
    "c": Message("with checkpoint"),
    "0": Message("first iteration"),
    "!": Message("stall"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalPresenter:
    full: bool = False
    with_lines: bool = False
    colour: bool | None = None
    """None: as standard output can take it. False for an answer that goes into a file."""
    name: str = "terminal"
    suffix: str = ".txt"

    def render(self, report: Report, language: str) -> str:
        width = width_of_output()
        page = _Page(report, language, width)
        if report.directory and not self.full:
            from stepwatch.presenters.overview import WIDEST  # of directories alone

            width = width_of_output(WIDEST)
            return shown(list(page.overview(width)), width, self.colour)
        return shown(list(page.lines(full=self.full, with_lines=self.with_lines)), width, self.colour)


class _Page(NamedTuple):
    """Blocks of finished lines, so that they can be counted before they are shown."""

    report: Report
    language: str
    width: int

    def lines(self, *, full: bool, with_lines: bool) -> Iterator[Line]:
        chosen = sentences.longest(self.report)
        head = self.runs(chosen, full) if self.report.count > 1 else []
        yield from head
        if full:
            for number, a in enumerate(self.report.analyses):
                if len(self.report.analyses) > 1:
                    yield from self.heading(Message("Run {number:n}", {"number": number + 1}))
                yield from self.everything(a)
        else:
            yield from self.screen(self.report.analyses[chosen], SCREEN_LINES - len(head))
        if with_lines:
            yield from self.unread()

    # --- the first screen -----------------------------------------------------------------------------------

    def screen(self, a: Analysis, size: int) -> list[Line]:
        """The tallest chart that leaves room for what matters; less and less where sentences are long."""
        parts = self.parts(a)
        top = [*self.paragraph(sentences.headline(a), style="bold"), Line(), *parts, *([Line()] if parts else ())]
        facts, end = self.facts(a, short=True), self.next(a, full=False)
        first, others = self.remarks(a)
        for height in _CHART_HEIGHTS:
            chart = self.chart(a, height)
            room = size - sum(map(len, (top, chart, facts, end)))
            if room >= sum(map(len, first)):
                break
        if room < 0:
            chart, room = [], room + len(chart)
        remarks = list(_fitting((*first, *others), room))
        spare = room - len(remarks)
        before, after = [Line()] * (spare > 1 and bool(remarks)), [Line()] * (spare > 0)
        return [*top, *chart, *facts, *before, *remarks, *after, *end]

    def remarks(self, a: Analysis) -> tuple[list[list[Line]], list[list[Line]]]:
        """What a smaller chart makes room for, and what is said if there is room anyway."""
        found = [finding for finding in sentences.ranked(self.report, a) if finding.code not in _SAID_ABOVE]
        warnings = [self.in_brief(finding, a) for finding in found if finding.severity == WARNING]
        told = " ".join(map(self.say, sentences.worthwhile(self.report.advice_of(a))))
        change = [self.labelled("→", told, 2)] if told else []
        others = [finding for finding in found if finding.severity != WARNING]
        others.sort(key=lambda finding: not sentences.is_pressing(finding, a))
        notices = [self.in_brief(finding, a) for finding in others]
        first = [*warnings, *change, *notices[:1]]
        return first, notices[1 : max(MOST_FINDINGS - len(first), 1) + 1]

    def facts(self, a: Analysis, *, short: bool) -> list[Line]:
        speed = " ".join(self.say(message) for message in sentences.speed(a, short=short))
        rows = [
            (Message("Speed"), speed),
            (Message("Time"), self.say(sentences.time_spent(a))),
            (Message("Forecast"), self.say(sentences.forecast(a))),
        ]
        labels = [self.say(label) for label, _ in rows]
        indent = max(map(len, labels)) + 2
        blocks = [self.labelled(label, text, indent) for label, (_, text) in zip(labels, rows, strict=True)]
        return [line for block in blocks for line in block]

    def next(self, a: Analysis, *, full: bool) -> list[Line]:
        ask = sentences.next_command(self.report, a, full=full)
        if ask is None:
            return []
        return [*self.paragraph(ask.why, style="dim"), *self.command(ask.arguments)]

    def command(self, arguments: Sequence[str]) -> list[Line]:
        return Screen(self.language, self.width).command(arguments)

    # --- everything -----------------------------------------------------------------------------------------

    def everything(self, a: Analysis) -> Iterator[Line]:
        yield from self.paragraph(sentences.headline(a), style="bold")
        yield Line()
        yield from self.parts(a)
        yield from self.together(a)
        yield Line()
        yield from self.chart(a, _FULL_CHART_HEIGHT)
        yield from self.facts(a, short=False)
        yield from (line for note in sentences.forecast_notes(a) for line in self.bullet(self.say(note)))
        yield from self.heading(Message("What was noticed"))
        for finding in sentences.ranked(self.report, a):
            yield from self.finding(finding)
        yield from self.heading(Message("What to change"))
        for change in sentences.changes(self.report.advice_of(a)):
            yield from self.bullet(" ".join(map(self.say, change)))
        yield from self.levels(a)
        yield from self.ranks(a)
        yield from self.slow(a)
        yield from self.settings(a)
        end = self.next(a, full=True)
        yield from ([Line(), *end] if end else ())

    def together(self, a: Analysis) -> list[Line]:
        if a.costs.pair_s is None or not sentences.told_apart(a):
            return []
        text = Message("Evaluation and checkpoint together: {pair:range}, measured.", {"pair": a.costs.pair_s})
        return self.paragraph(text)

    def levels(self, a: Analysis) -> Iterator[Line]:
        if len(a.regimes.regimes) < 2:
            return
        yield from self.heading(Message("Levels of speed"))
        for text in sentences.regime_sentences(a):
            yield from self.bullet(self.say(text))

    def ranks(self, a: Analysis) -> Iterator[Line]:
        if a.ranks is None:
            return
        yield from self.heading(Message("The ranks beside each other"))
        table = Table(*((self.say(head), "right") for head in sentences.RANKS))
        for row in sentences.rank_cells(a):
            table.add(*map(self.say, row))
        yield from table.lines(self.width)

    def slow(self, a: Analysis) -> Iterator[Line]:
        rows, left_out = sentences.slow_rows(a, MOST_SLOW_ROWS)
        if not rows:
            return
        yield from self.heading(Message("Slow iterations"))
        table = Table(
            (self.say(Message("Iteration")), "right"), (self.say(Message("Time")), "right"), ("", "left"),
            (self.say(Message("What it includes")), "left"),
        )  # fmt: skip
        for row in rows:
            table.add(
                self.say(Message("{iteration:n}", {"iteration": row.iteration})),
                self.say(Message("{time:time}", {"time": row.time_s})),
                Cell(row.mark, _MARK_STYLES[row.mark]),
                " + ".join(self.say(part) for part in row.holds),
            )
        yield from table.lines(self.width)
        if left_out:
            yield from self.paragraph(Message("… and {count:n} more.", {"count": left_out}))

    def settings(self, a: Analysis) -> Iterator[Line]:
        known = list(sentences.known_settings(a))
        if not known:
            return
        yield from self.heading(Message("Settings"))
        table = Table(("", "left"), ("", "left"), ("", "left"))
        for name, value, origin in known:
            table.add(name, value, Cell(self.say(origin), "dim"))
        yield from table.lines(self.width)

    def unread(self) -> Iterator[Line]:
        yield from self.heading(Message("Lines that were not understood"))
        lines = [line for a in self.report.analyses for line in sentences.unread_lines(a)]
        if not lines:
            yield from self.paragraph(Message("None."))
        for number, text in lines[:20]:
            yield from self.labelled(self.say(Message("{line:n}", {"line": number})), text, 8)

    # --- tables ---------------------------------------------------------------------------------------------

    def parts(self, a: Analysis) -> list[Line]:
        table = Table(
            (self.say(Message("Part")), "left"), (self.say(Message("Cost")), "right"),
            (self.say(Message("Basis")), "left"), (self.say(Message("Count")), "right"),
            (self.say(Message("Share")), "right"),
        )  # fmt: skip
        rows = sentences.part_rows(a)
        if not rows:
            return []
        for row in rows:
            count = self.say(Message("{count:n}", {"count": row.count})) if row.count else ""
            table.add(
                self.say(row.name),
                self.say(row.cost),
                Cell(self.say(row.how) if row.how else "", "dim"),
                count,
                self.say(sentences.share_text(row.share)),
            )
        return table.lines(self.width)

    def overview(self, width: int) -> Iterator[Line]:
        """The runs of a directory in a table of that width, and how to see one of them."""
        from stepwatch.presenters.overview import overview

        yield from self.paragraph(_found(self.report.count), style="bold")
        rows = [[self.say(cell) for cell in row] for row in sentences.overview_rows(self.report)]
        table = overview(list(map(self.say, sentences.OVERVIEW)), rows, width)
        yield from [Line(), *table.lines, Line()]
        if table.left_out:
            text = Message("Left out, for want of room: {columns:word}.", {"columns": ", ".join(table.left_out)})
            yield from self.paragraph(text, style="dim")
        for finding in self.report.remarks:
            if finding.code not in {*_SAID_ABOVE, "unstarted"}:
                yield from self.finding(finding)
        ask = sentences.next_command(self.report, self.report.analyses[0], full=False)
        if ask is not None:
            yield from [*self.paragraph(ask.why, style="dim"), *self.command(ask.arguments)]

    def runs(self, chosen: int, full: bool) -> list[Line]:
        several = Message("The input holds {count:n} runs.", {"count": self.report.count})
        table = Table(
            (self.say(Message("Run")), "right"), (self.say(Message("Iterations")), "right"),
            (self.say(Message("Normal iteration")), "right"), (self.say(Message("Time")), "right"),
            (self.say(Message("State")), "left"),
        )  # fmt: skip
        rows = list(sentences.run_rows(self.report))
        for index in range(len(rows)) if full else _shown_runs(len(rows), chosen):
            table.add(*map(self.say, rows[index]), style="bold" if index == chosen and not full else "")
        lines = [*self.paragraph(several, style="bold"), *table.lines(self.width)]
        if not full:
            lines += self.paragraph(Message("Below: run {number:n}, the longest.", {"number": chosen + 1}), style="dim")
        return [*lines, Line()]

    # --- chart ----------------------------------------------------------------------------------------------

    def chart(self, a: Analysis, height: int) -> list[Line]:
        """Iteration times on a logarithmic scale; slow ones by the letter of what they include."""
        times = a.run.iterations.time_s
        if len(times) < 2 or not np.isfinite(times).all():
            return []
        low, high = _scale(times)
        ticks = {height - 1: low, height // 2: math.sqrt(low * high), 0: high}
        longest = float(times.max()) * 1.001  # the scale may go further, but no label says what no iteration took
        labels = {row: self.say(Message("{time:time}", {"time": at})) for row, at in ticks.items() if at <= longest}
        margin = max(map(len, labels.values())) + 1
        columns = self.width - margin - 2
        cells = _plot(a, columns, height, low, high)
        lines = []
        for row in range(height):
            line = Line(labels.get(row, "").rjust(margin - 1) + " │", style="dim")
            for mark in cells[row]:
                line.append(mark, style=_MARK_STYLES.get(mark, ""))
            lines.append(line)
        return [*lines, self.axis(a, margin, columns), self.legend(cells), Line()]

    def axis(self, a: Analysis, margin: int, columns: int) -> Line:
        numbers = a.run.iterations.number
        ends = [self.say(Message("{iteration:n}", {"iteration": int(value)})) for value in (numbers[0], numbers[-1])]
        middle = self.say(Message("iteration"))
        free = columns - len("".join(ends) + middle) - 6
        left, right = max(free // 2, 1), max(free - free // 2, 1)
        return Line(f"{'':{margin}}└ {ends[0]} {'─' * left} {middle} {'─' * right} {ends[1]}", style="dim")

    def legend(self, cells: list[list[str]]) -> Line:
        line = Line("  ")
        line.append("· ").append(self.say(Message("step")), style="dim")
        present = {mark for row in cells for mark in row}
        for mark, meaning in LEGEND.items():
            if mark in present:
                line.append("   ").append(mark, style=_MARK_STYLES[mark]).append(" " + self.say(meaning), style="dim")
        return line.cut(self.width)

    # --- lines ----------------------------------------------------------------------------------------------

    def say(self, message: Message) -> str:
        return say(message, self.language)

    def paragraph(self, message: Message, *, style: str = "") -> list[Line]:
        return [Line(line, style=style) for line in wrapped(self.say(message), self.width)]

    def heading(self, message: Message) -> list[Line]:
        return [Line(), Line(self.say(message), style="bold underline")]

    def labelled(self, label: str, text: str, indent: int, style: str = "bold") -> list[Line]:
        return labelled(label, text, indent=indent, width=self.width, style=style)

    def bullet(self, text: str) -> list[Line]:
        return self.labelled("·", text, 2, "dim")

    def finding(self, finding: Finding) -> list[Line]:
        mark, style = _MARKS.get(finding.severity, ("·", "dim"))
        return self.labelled(mark, self.say(finding.message), 2, style)

    def in_brief(self, finding: Finding, a: Analysis) -> list[Line]:
        return self.finding(finding._replace(message=sentences.in_brief(finding, a)))


def _found(count: int) -> Message:
    return Message(
        "One run was found.", {"count": count}, "{count:n} runs were found.", count,
    )  # fmt: skip


def _fitting(blocks: Iterable[list[Line]], room: int) -> Iterator[Line]:
    """Whole blocks, the most important first, as long as there is room."""
    for block in blocks:
        if len(block) <= room:
            room -= len(block)
            yield from block


def _shown_runs(count: int, chosen: int) -> list[int]:
    """The first ones, and always the one that is explained."""
    if count <= MOST_RUNS:
        return list(range(count))
    return sorted({*range(MOST_RUNS - 1), chosen if chosen >= MOST_RUNS - 1 else MOST_RUNS - 1})


# --- the chart's cells ------------------------------------------------------------------------------------------


def _scale(times: np.ndarray) -> tuple[float, float]:
    """From the fastest to the slowest, at least a factor of two: noise should not look like much."""
    low = max(quantile(times, 0.01), 1e-6)
    return low, max(float(times.max()), 2 * low)


def _plot(a: Analysis, columns: int, height: int, low: float, high: float) -> list[list[str]]:
    """Per column the middle of its steps, under it stalls, over it what the log explains."""
    numbers, times = a.run.iterations.number, a.run.iterations.time_s
    span = max(int(numbers[-1]) - int(numbers[0]), 1)

    def place(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Column and height of some rows: 0 at the bottom, 1 at the top."""
        column = np.clip((numbers[rows] - numbers[0]) * (columns - 1) // span, 0, columns - 1)
        return column, np.log(np.maximum(times[rows], low) / low) / math.log(high / low)

    cells = [[" "] * columns for _ in range(height)]
    stalls = np.flatnonzero(a.phases.phase == Phase.STALL)
    _draw_slow(cells, a, stalls, *place(stalls))
    steps = np.flatnonzero(a.phases.phase == Phase.STEP)
    _draw_steps(cells, *place(steps[:: max(1, len(steps) // _ENOUGH_STEPS)]))
    for phase in (Phase.EVAL, Phase.CHECKPOINT, Phase.EVAL_CHECKPOINT, Phase.FIRST):
        rows = np.flatnonzero(a.phases.phase == phase)
        _draw_slow(cells, a, rows, *place(rows))
    return cells


def _draw_steps(cells: list[list[str]], column: np.ndarray, level: np.ndarray) -> None:
    finest = len(cells) * len(_DOTS)
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    for begin, end in pairwise([*starts.tolist(), len(column)]):
        third = min(int(median(level[begin:end]) * finest), finest - 1)
        cells[-1 - third // len(_DOTS)][int(column[begin])] = _DOTS[third % len(_DOTS)]


def _draw_slow(cells: list[list[str]], a: Analysis, rows: np.ndarray, column: np.ndarray, level: np.ndarray) -> None:
    for row, place, height in zip(rows.tolist(), column.tolist(), level.tolist(), strict=True):
        lines_up = min(int(height * len(cells)), len(cells) - 1)
        cells[-1 - lines_up][place] = sentences.PHASE_MARKS[Phase(int(a.phases.phase[row]))]
