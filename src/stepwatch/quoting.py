"""Arguments as they can be pasted into a shell, whatever they hold: a POSIX one, or cmd.exe on Windows."""

from __future__ import annotations

import os
import shlex

from stepwatch.patterns import Pattern

_PLAIN = Pattern(r"(?!=)[\w@%+=:,./-]+")  # zsh expands `=name`
_PLAIN_IN_CMD = Pattern(r"[\w@+=:./\\-]+")
_SPECIAL = set('$`"!\\')
"""What double quotes do not protect; `!` brings a command of the history back."""

_KEPT = {chr(code) for code in range(32, 127)} - set("\\'")


def quoted(text: str, *, for_cmd: bool = os.sep == "\\") -> str:
    """In double quotes where they are enough: they work in every shell, single ones do not in cmd.exe."""
    if for_cmd:
        return _quoted_for_cmd(text)
    if not text.isprintable():  # an escape would reach the terminal, and a newline end the command
        letters = (chr(byte) if chr(byte) in _KEPT else f"\\x{byte:02x}" for byte in os.fsencode(text))
        return f"$'{''.join(letters)}'"
    if _PLAIN.fullmatch(text):
        return text
    return shlex.quote(text) if _SPECIAL & set(text) else f'"{text}"'


def _quoted_for_cmd(text: str) -> str:
    """Programs of Windows divide their command line themselves, where backslashes before a quote are doubled.

    cmd.exe cannot quote a `%`: between two of them it looks for a variable, and leaves them where there is none.
    """
    text = "".join(letter if letter.isprintable() else "?" for letter in text)  # which no name of a file holds
    if _PLAIN_IN_CMD.fullmatch(text):
        return text
    pieces = (piece + piece[len(piece.rstrip("\\")) :] for piece in text.split('"'))
    return '"' + '\\"'.join(pieces) + '"'


def quoted_path(path: str) -> str:
    """A file whose name begins like an option is named with its directory; `-` alone is standard input."""
    return quoted(os.path.join(os.curdir, path) if path.startswith("-") and path != "-" else path)
