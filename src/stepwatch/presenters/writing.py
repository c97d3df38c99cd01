"""Saying Messages as lines of a terminal or as blocks of Markdown, in one language."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters.lines import Line, labelled, wrapped


class Screen(NamedTuple):
    """Lines of a given width."""

    language: str
    width: int

    def say(self, *messages: Message) -> str:
        return " ".join(say(message, self.language) for message in messages)

    def paragraph(self, *messages: Message, style: str = "") -> list[Line]:
        return [Line(line, style=style) for line in wrapped(self.say(*messages), self.width)]

    def heading(self, message: Message) -> list[Line]:
        return [Line(), Line(self.say(message), style="bold underline")]

    def labelled(self, label: str, text: str, indent: int, style: str = "bold") -> list[Line]:
        return labelled(label, text, indent=indent, width=self.width, style=style)

    def bullet(self, *messages: Message) -> list[Line]:
        return self.labelled("·", self.say(*messages), 2, "dim")

    def command(self, arguments: Sequence[str]) -> list[Line]:
        """On one line where it fits; else continued as a shell reads it."""
        lines = [arguments[0]]
        for argument in arguments[1:]:
            if len(lines[-1]) + len(argument) + 6 > self.width:
                lines[-1] += " \\"
                lines.append("  " + argument)
            else:
                lines[-1] += " " + argument
        return [Line("  " + line, style="bold green") for line in lines]


class Note(NamedTuple):
    """Blocks of CommonMark: headings, paragraphs, lists and tables."""

    language: str

    def say(self, *messages: Message) -> str:
        from stepwatch.presenters.markdown import escaped  # loads numpy, which most answers can do without

        return escaped(" ".join(say(message, self.language) for message in messages))

    def bullets(self, texts: Iterable[str]) -> str:
        return "\n".join("- " + text for text in texts)

    def table(self, head: Sequence[Message], align: str, rows: Iterable[Sequence[Message | None]]) -> str:
        rule = "|".join({"r": "---:", "l": "---"}[side] for side in align)
        lines = [f"| {' | '.join(map(self.say, head))} |", f"|{rule}|"]
        lines += [f"| {' | '.join('' if cell is None else self.say(cell) for cell in row)} |" for row in rows]
        return "\n".join(lines)

    def code(self, text: str, language: str = "") -> str:
        return f"```{language}\n{text}\n```"
