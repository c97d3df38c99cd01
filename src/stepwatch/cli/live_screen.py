"""The screen of `stepwatch watch`, drawn by rich in place; only a terminal loads it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.live import Live as Region
from rich.text import Text

from stepwatch.cli.watch import Display, read_card
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters.look_answer import live_lines
from stepwatch.presenters.screen import NARROWEST, WIDEST, plain, printable
from stepwatch.watch import Look, WatchEvent


class LiveScreen(Display):
    """Redrawn at every look, and removed when the report comes."""

    colour = True

    def __init__(self, out: IO[str], language: str) -> None:
        super().__init__(out, language)
        self.shares_terminal = out is sys.stderr and sys.stdout is not None and sys.stdout.isatty()
        self._console = Console(file=out, highlight=False, markup=False, emoji=False)
        self._region = Region(console=self._console, auto_refresh=False, transient=True)
        self._drawn = ""
        self._card_at = float("-inf")

    def show(self, look: Look, news: Sequence[WatchEvent] = ()) -> None:
        if not self._region.is_started:
            self._region.start()
        if look.now_s >= self._card_at + 2.0:  # seconds between two readings of the card
            self._card_at, self._card = look.now_s, read_card()
        size = self._console.size
        width = max(NARROWEST, min(size.width, WIDEST))
        drawn = live_lines(look, self.language, width=width, height=size.height - 1, card=self._card)
        whole = "\n".join(map(plain, drawn))
        if whole != self._drawn:
            self._drawn = whole
            parts = (Text.assemble(*line) for line in drawn)
            self._region.update(Text("\n", no_wrap=True, overflow="crop", end="").join(parts), refresh=True)

    def pass_on(self, text: bytes) -> None:
        """Prints above the screen if both are on the same terminal."""
        if self.shares_terminal:
            self._console.out(printable(text.decode("utf-8", "replace")), end="")

    def warn(self, message: Message) -> None:
        self._console.out(f"stepwatch: {say(message, self.language)}")

    def close(self) -> None:
        if self._region.is_started:
            self._region.stop()
