"""Writes any document as a note that can be published: CommonMark, with front matter on request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stepwatch.i18n import joined, say
from stepwatch.i18n.languages import TABLE
from stepwatch.messages import Message
from stepwatch.presenters import document as doc
from stepwatch.presenters.document import text_and_code
from stepwatch.presenters.screen import printable

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&!$])")


def as_markdown(document: doc.Document, language: str, *, front_matter: bool = False) -> str:
    writer = _Writer(language)
    start = ""
    if front_matter and document.title is not None:
        quoted = json.dumps(say(document.title, language), ensure_ascii=False)
        start = f'---\ntitle: {quoted}\nlang: "{language}"\nlayout: post\ntype: note\n---\n\n'
    title = [f"# {writer.said([document.title])}"] if document.title is not None else []
    blocks = [*title, *writer.blocks(document.blocks), *writer.sections(document.sections, "##")]
    return printable(start + "\n\n".join(blocks) + "\n")


@dataclass(frozen=True, slots=True)
class _Writer:
    """Yields headings, paragraphs, lists and tables, to be joined by empty lines."""

    language: str

    def sections(self, sections: Iterable[doc.Section], level: str) -> Iterator[str]:
        for section in sections:
            said = [*self.blocks(section.blocks), *self.sections(section.sections, level + "#")]
            if section.prompt or not (said or section.beside):  # a section with charts alone has nothing to read
                continue
            number = "" if section.number is None else f"{section.number}. "
            yield f"{level} {number}{self.said([section.heading])}"
            if section.beside is not None:
                yield f"*{self.said([section.beside])}*"
            yield from said

    def blocks(self, blocks: Iterable[doc.Block]) -> Iterator[str]:
        yield from filter(None, map(self.block, blocks))

    def block(self, block: doc.Block) -> str:
        match block:
            case doc.Headline():
                badge = [self.cell(block.badge)] if block.badge is not None else []
                return "\n\n".join([*badge, *(f"**{self.said(messages)}**" for messages in block.paragraphs)])
            case doc.Text():
                return self.text(block)
            case doc.Bullets():
                return "\n".join("- " + self.text(item) for item in block.items)
            case doc.Table():
                return self.table(block)
            case doc.Command() if block.why is not None:
                return f"{self.said([block.why])} `{' '.join(block.arguments)}`"
            case doc.Command():
                return fenced(" ".join(block.arguments), "sh")
            case doc.Code():
                return fenced(block.text, block.language)
            case doc.Quoted():
                return fenced("\n".join(f"{number}: {text}" for number, text in block.lines), "text")
            case doc.Labelled():
                if block.figures and block.priority is None:
                    return ""
                items = block.items
                return "\n".join(f"- {self.label(self.cell(item.label))} {self.said(item.messages)}" for item in items)
            case doc.Progress():
                return f"{self.label(escaped(block.name))} {self.said([block.where])}"
            case doc.Chart() | doc.Shares():  # a table shows the same data
                return ""

    def text(self, text: doc.Text) -> str:
        said = self.said(text.messages)
        return f"{self.label(self.said([Message('Warning')]))} {said}" if text.kind == "warning" else said

    def table(self, table: doc.Table) -> str:
        if not table.rows:
            return ""
        heads = [self.said([head]) for head in table.head] or [""] * len(table.align)
        rule = "|".join("---:" if side == "r" else "---" for side in table.align)
        rows = ([self.cell(cell) for cell in row] for row in table.rows)
        return "\n".join((f"| {' | '.join(heads)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)))

    def cell(self, cell: doc.Cell) -> str:
        if isinstance(cell, doc.Badge):
            return f"{cell.sign} {self.said([cell.word])}"
        return self.said([cell]) if cell is not None else ""

    def said(self, messages: Iterable[Message]) -> str:
        return joined(escaped(say(message, self.language)) for message in messages)

    def label(self, text: str) -> str:
        return f"**{text}{TABLE[self.language].colon}**"


def escaped(text: str) -> str:
    """Escapes all markup in a sentence; commands, options and setting names are formatted as code."""
    pieces = text_and_code(text)
    return "".join(f"`{piece}`" if index % 2 else _SPECIAL.sub(r"\\\1", piece) for index, piece in enumerate(pieces))


def fenced(text: str, language: str) -> str:
    """A code block with a fence that no line of the text can close."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
