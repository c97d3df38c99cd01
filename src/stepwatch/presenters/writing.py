"""Saying Messages as lines of a terminal, in one language."""

from __future__ import annotations

from collections.abc import Sequence
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
