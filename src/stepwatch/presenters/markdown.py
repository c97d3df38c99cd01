"""The answer as a note that can be published: CommonMark, with front matter where it is wanted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stepwatch.analysis import Analysis
from stepwatch.analysis.findings import WARNING, Finding
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters import sentences
from stepwatch.presenters.lines import printable
from stepwatch.report import Report
from stepwatch.settings import KINDS

MOST_SLOW_ROWS = 12

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&!$])")
# Options and nanoGPT's setting names are set as code, as one would type them.
_NAMES = "|".join(sorted((name for name in KINDS if "_" in name), key=len, reverse=True))
_TYPED = re.compile(rf"((?<!\S)--[a-z]+(?:-[a-z]+)*(?: [a-z_]+=…)?|\b(?:{_NAMES})\b(?: = \w+)?)")
_OWN_SECTION = frozenset({"first_iteration", "mfu_sentinel", "evaluation_spikes", "silent_evaluations", "several_runs"})
_ABOUT_SPEED = frozenset({"mfu_other_card", "mfu_smoothed", "impossible_figure", "unsynchronised", "busy_when_logging"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkdownPresenter:
    front_matter: bool = False
    with_lines: bool = False
    name: str = "md"
    suffix: str = ".md"

    def render(self, report: Report, language: str) -> str:
        note = _Note(report, language)
        blocks = [*note.blocks(), *(note.unread() if self.with_lines else ())]
        text = "\n\n".join(blocks) + "\n"
        return printable((note.front_matter() if self.front_matter else "") + text)


@dataclass(frozen=True, slots=True)
class _Note:
    """Yields blocks: headings, paragraphs, lists and tables, to be joined by empty lines."""

    report: Report
    language: str

    def front_matter(self) -> str:
        quoted = json.dumps(say(self.title(), self.language), ensure_ascii=False)
        return f'---\ntitle: {quoted}\nlang: "{self.language}"\nlayout: post\ntype: note\n---\n\n'

    def title(self) -> Message:
        return sentences.title(self.report.analyses[sentences.longest(self.report)])

    def blocks(self) -> Iterator[str]:
        yield "# " + self.say(self.title())
        analyses = self.report.analyses
        if len(analyses) == 1:
            yield from self.run(analyses[0], "##")
            return
        yield self.say(Message("The input holds {count:n} runs.", {"count": len(analyses)}))
        yield self.runs()
        for number, a in enumerate(analyses, start=1):
            yield "## " + self.say(Message("Run {number:n}", {"number": number}))
            yield from self.run(a, "###")

    def run(self, a: Analysis, level: str) -> Iterator[str]:
        yield f"**{self.say(sentences.headline(a))}**"
        if a.run.source not in ("", "-"):
            yield self.say(Message("Log: {source:word}", {"source": a.run.source}))
        for heading, blocks in (
            (Message("What a training step takes"), self.normal(a)),
            (Message("Which iterations are slow, and why"), self.slow(a)),
            (Message("Why the first one takes longer"), self.about(a, {"first_iteration", "mfu_sentinel"})),
            (Message("How fast it really is"), self.speed(a)),
            (Message("Where the time went"), self.time(a)),
            (Message("How long it will take"), self.forecast(a)),
            (Message("What else was noticed"), self.noticed(a)),
            (Message("What to change"), self.changes(a)),
        ):
            content = [block for block in blocks if block]
            if content:
                yield f"{level} {self.say(heading)}"
                yield from content

    def changes(self, a: Analysis) -> Iterator[str]:
        found = sentences.changes(self.report.counsel_of(a))
        yield self.bullets(" ".join(map(self.say, change)) for change in found)

    # --- sections -------------------------------------------------------------------------------------------

    def normal(self, a: Analysis) -> Iterator[str]:
        facts = {"step": a.costs.step_s, "normal": int(a.phases.normal.sum()), "rows": len(a.run.iterations)}
        if sentences.step_known(a) and len(a.run.iterations):
            yield self.say(Message(
                "Of {rows:n} logged iterations {normal:n} did nothing but a training step, in {step:range}.", facts
            ))  # fmt: skip
        if len(a.regimes.regimes) > 1:
            yield self.bullets(self.say(text) for text in sentences.regime_sentences(a))
        yield self.costs(a)

    def slow(self, a: Analysis) -> Iterator[str]:
        rows, left_out = sentences.slow_rows(a, MOST_SLOW_ROWS)
        if not rows:
            return
        yield from self.about(a, {"evaluation_spikes", "silent_evaluations"})
        head = (Message("Iteration"), Message("Time"), Message("What it includes"))
        cells = [
            (
                self.say(Message("{iteration:n}", {"iteration": row.iteration})),
                self.say(Message("{time:time}", {"time": row.time_s})),
                " + ".join(self.say(part) for part in row.holds),
            )
            for row in rows
        ]
        yield self.table(head, "rrl", cells)
        if left_out:
            yield self.say(Message("… and {count:n} more.", {"count": left_out}))

    def speed(self, a: Analysis) -> Iterator[str]:
        yield " ".join(self.say(message) for message in sentences.speed(a))
        yield from self.about(a, _ABOUT_SPEED)

    def time(self, a: Analysis) -> Iterator[str]:
        if not a.goodput.iterations:
            return
        yield self.say(sentences.time_spent(a))
        head = (Message("Part"), Message("Time"), Message("Share"))
        cells = [
            (
                self.say(row.name),
                self.say(Message("{time:time}", {"time": row.seconds})),
                self.say(sentences.share_text(row.share)),
            )
            for row in sentences.part_rows(a)
        ]
        yield self.table(head, "lrr", cells) if cells else ""

    def forecast(self, a: Analysis) -> Iterator[str]:
        yield " ".join(self.say(message) for message in (sentences.forecast(a), *sentences.forecast_notes(a)))

    def noticed(self, a: Analysis) -> Iterator[str]:
        said = _OWN_SECTION | _ABOUT_SPEED
        found = [finding for finding in sentences.ranked(self.report, a) if finding.code not in said]
        yield self.bullets(self.finding(finding) for finding in found)

    def about(self, a: Analysis, codes: Iterable[str]) -> Iterator[str]:
        chosen = frozenset(codes)
        yield from (self.finding(finding) for finding in a.findings if finding.code in chosen)

    def unread(self) -> Iterator[str]:
        """As a code block, with a fence that no line can close."""
        yield "## " + self.say(Message("Lines that were not understood"))
        lines = [f"{number}: {text}" for a in self.report.analyses for number, text in sentences.unread_lines(a)][:20]
        if not lines:
            yield self.say(Message("None."))
            return
        longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
        fence = "`" * max(3, longest + 1)
        yield "\n".join((fence + "text", *lines, fence))

    # --- tables ---------------------------------------------------------------------------------------------

    def costs(self, a: Analysis) -> str:
        head = (Message("Part"), Message("Cost"), Message("Basis"), Message("Count"))
        cells = [
            (
                self.say(row.name), self.say(row.cost), self.say(row.how) if row.how else "",
                self.say(Message("{count:n}", {"count": row.count})) if row.count else "",
            )
            for row in sentences.part_rows(a)
        ]  # fmt: skip
        return self.table(head, "lrlr", cells) if cells else ""

    def runs(self) -> str:
        head = (Message("Run"), Message("Iterations"), Message("Normal iteration"), Message("Time"), Message("State"))
        cells = [
            tuple(self.say(cell) for cell in sentences.run_cells(number, a))
            for number, a in enumerate(self.report.analyses, start=1)
        ]
        return self.table(head, "rrrrl", cells)

    def table(self, head: tuple[Message, ...], align: str, rows: Iterable[tuple[str, ...]]) -> str:
        rule = "|".join({"r": "---:", "l": "---"}[side] for side in align)
        lines = [f"| {' | '.join(self.say(cell) for cell in head)} |", f"|{rule}|"]
        return "\n".join((*lines, *(f"| {' | '.join(row)} |" for row in rows)))

    # --- sentences ------------------------------------------------------------------------------------------

    def say(self, message: Message) -> str:
        return escaped(say(message, self.language))

    def finding(self, finding: Finding) -> str:
        text = self.say(finding.message)
        return f"**{self.say(Message('Warning'))}:** {text}" if finding.severity == WARNING else text

    def bullets(self, texts: Iterable[str]) -> str:
        return "\n".join("- " + text for text in texts)


def escaped(text: str) -> str:
    """Nothing in a sentence is markup, but for what one would type: that is set as code."""
    pieces = _TYPED.split(text)
    return "".join(f"`{piece}`" if index % 2 else _SPECIAL.sub(r"\\\1", piece) for index, piece in enumerate(pieces))
