"""Arguments as they can be pasted into a shell, whatever they hold."""

from __future__ import annotations

import os
import shlex

from stepwatch.patterns import Pattern

_BACKSLASH = "\\" if os.sep == "\\" else ""  # where it separates directories, it is no escape
_PLAIN = Pattern(rf"(?!=)[\w@%+=:,./{2 * _BACKSLASH}-]+")  # zsh expands `=name`
_SPECIAL = set('$`"!\\') - {_BACKSLASH}
"""What double quotes do not protect; `!` brings a command of the history back."""

_KEPT = {chr(code) for code in range(32, 127)} - set("\\'")


def quoted(text: str) -> str:
    """In double quotes where they are enough: they work in every shell, single ones do not in cmd.exe."""
    if not text.isprintable():  # an escape would reach the terminal, and a newline end the command
        letters = (chr(byte) if chr(byte) in _KEPT else f"\\x{byte:02x}" for byte in os.fsencode(text))
        return f"$'{''.join(letters)}'"
    if _PLAIN.fullmatch(text):
        return text
    return shlex.quote(text) if _SPECIAL & set(text) else f'"{text}"'


def quoted_path(path: str) -> str:
    """A file whose name begins like an option is named with its directory; `-` alone is standard input."""
    return quoted(os.path.join(os.curdir, path) if path.startswith("-") and path != "-" else path)
