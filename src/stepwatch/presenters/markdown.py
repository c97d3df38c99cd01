"""The answer as a note that can be published: CommonMark, with front matter where it is wanted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stepwatch.analysis import Analysis
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters import outline, sentences
from stepwatch.presenters.blocks import Block, Bullets, Code, Labelled, Section, Table, Text, Typed, text_and_code
from stepwatch.presenters.lines import printable
from stepwatch.report import Report

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&!$])")


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkdownPresenter:
    front_matter: bool = False
    with_lines: bool = False
    name: str = "md"
    suffix: str = ".md"

    def render(self, report: Report, language: str) -> str:
        note = _Note(report, Writer(language))
        blocks = [*note.blocks(), *(note.unread() if self.with_lines else ())]
        start = front_matter(outline.title(report), language) if self.front_matter else ""
        return printable(start + "\n\n".join(blocks) + "\n")


def front_matter(title: Message, language: str) -> str:
    quoted = json.dumps(say(title, language), ensure_ascii=False)
    return f'---\ntitle: {quoted}\nlang: "{language}"\nlayout: post\ntype: note\n---\n\n'


@dataclass(frozen=True, slots=True)
class _Note:
    """Yields blocks: headings, paragraphs, lists and tables, to be joined by empty lines."""

    report: Report
    writer: Writer

    def blocks(self) -> Iterator[str]:
        yield "# " + self.say(outline.title(self.report))
        analyses = self.report.analyses
        if self.report.count == 1:
            yield from self.run(analyses[0], "##")
            return
        yield self.say(Message("The input holds {count:n} runs.", {"count": self.report.count}))
        yield self.writer.block(outline.runs(self.report))
        for number, a in enumerate(analyses, start=1):
            yield "## " + self.say(Message("Run {number:n}", {"number": number}))
            yield from self.run(a, "###")

    def run(self, a: Analysis, level: str) -> Iterator[str]:
        yield f"**{self.say(sentences.headline(a))}**"
        if a.run.source not in ("", "-"):
            yield self.say(Message("Log: {source:word}", {"source": a.run.source}))
        for section in outline.sections(self.report, a):
            yield from self.writer.section(section, level)

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

    def say(self, message: Message) -> str:
        return self.writer.say(message)


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the blocks of a section as Markdown."""

    language: str

    def section(self, section: Section, level: str) -> Iterator[str]:
        number = "" if section.number is None else f"{section.number}. "
        yield f"{level} {number}{self.say(section.heading)}"
        yield from map(self.block, section.blocks)

    def block(self, block: Block) -> str:
        match block:
            case Text():
                return self.text(block)
            case Bullets():
                return "\n".join("- " + self.text(item) for item in block.items)
            case Table():
                return self.table(block)
            case Typed():
                return f"{self.say(block.why)} `{block.command}`"
            case Code():
                return f"```{block.language}\n{block.text}\n```"
            case Labelled():
                return "\n".join(f"- **{self.say(label)}:** {self.said(texts)}" for label, texts in block.items)

    def text(self, text: Text) -> str:
        said = self.said(text.messages)
        return f"**{self.say(Message('Warning'))}:** {said}" if text.warning else said

    def table(self, table: Table) -> str:
        rule = "|".join({"r": "---:", "l": "---"}[side] for side in table.align)
        rows = ([" + ".join(map(self.say, cell)) for cell in row] for row in table.rows)
        head = f"| {' | '.join(map(self.say, table.head))} |"
        return "\n".join((head, f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)))

    def said(self, messages: Iterable[Message]) -> str:
        return " ".join(map(self.say, messages))

    def say(self, message: Message) -> str:
        return escaped(say(message, self.language))


def escaped(text: str) -> str:
    """Nothing in a sentence is markup, but for what one would type: that is set as code."""
    pieces = text_and_code(text)
    return "".join(f"`{piece}`" if index % 2 else _SPECIAL.sub(r"\\\1", piece) for index, piece in enumerate(pieces))
