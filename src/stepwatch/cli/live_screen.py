"""The screen of `stepwatch watch`, drawn by rich in place; only a terminal loads it."""

from __future__ import annotations

from typing import IO

from rich.console import Console
from rich.live import Live as Region
from rich.text import Text

from stepwatch.cli.watch import read_card
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters.lines import NARROWEST, WIDEST, Line, printable
from stepwatch.presenters.live import screen
from stepwatch.watch import Look, Occurrence

_SENSORS_S = 2.0


class LiveScreen:
    """Drawn again at every look, and gone when the report comes."""

    def __init__(self, out: IO[str], language: str, *, shares_terminal: bool) -> None:
        self.language = language
        self.colour: bool | None = True
        self.shares_terminal = shares_terminal
        self._out = out
        self._console = Console(file=out, highlight=False, markup=False, emoji=False)
        self._region = Region(console=self._console, auto_refresh=False, transient=True)
        self._drawn = ""
        self._card_at = float("-inf")

    def show(self, look: Look, news: list[Occurrence] | None = None) -> None:
        if not self._region.is_started:
            self._region.start()
        if look.now_s >= self._card_at + _SENSORS_S:
            self._card_at, self._card = look.now_s, read_card()
        size = self._console.size
        width = max(NARROWEST, min(size.width, WIDEST))
        self._draw(screen(look, self.language, width=width, height=size.height - 1, card=self._card))

    def pass_on(self, text: bytes) -> None:
        """Above the screen, where both are on one terminal."""
        if self.shares_terminal:
            self._console.out(printable(text.decode("utf-8", "replace")), end="")

    def warn(self, message: Message) -> None:
        self._console.out(f"stepwatch: {say(message, self.language)}")

    def write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def close(self) -> None:
        if self._region.is_started:
            self._region.stop()

    def _draw(self, lines: list[Line]) -> None:
        whole = "\n".join(line.text for line in lines)
        if whole == self._drawn:
            return
        self._drawn = whole
        text = Text("\n", no_wrap=True, overflow="crop", end="").join(Text.assemble(*line.pieces) for line in lines)
        self._region.update(text, refresh=True)
