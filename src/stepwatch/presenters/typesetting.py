"""How wide a text is on a terminal, and where a line of it may end, for Latin and East Asian scripts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from unicodedata import category, east_asian_width

from stepwatch.i18n.languages import TABLE
from stepwatch.patterns import Pattern

# A figure stays with its unit at the end of a line, `3 min 15 s` stays whole, and so does an option of one of two runs.
_HELD = Pattern(
    r"(?<=\d) (?=(?:ms|s|min|h|d|j|%|TFLOPS?|tokens/s|[kMGT]?[Bo]|GiB|Gio)(?!\w))"
    r"|(?<=\d [hdj]) (?=\d)|(?<=\d min) (?=\d)|(?<=--(?:set|run)) (?=[AB]:)"
)
# What no line begins or ends with in Chinese and Japanese (Unicode's line breaking, JIS X 4051): the small kana too.
_CLOSING = "。，、．：；！？）」』》〉】〕…‥・”’々ー〜～ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ％℃"
_OPENING = "（「『《〈【〔“‘"
_WIDE = r"\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6"
_UNITS = "|".join(sorted({word for row in TABLE.values() for word in row.clock if not word.isascii()}, key=len)[::-1])
_HAN_OR_KANA = rf"(?:[\u30a1-\u30fa\u30fc]+|[{_WIDE}])"  # a word in katakana stays whole
_WORD = rf"(?:[^\s{_WIDE}{_OPENING}]|\u00a0|\u202f|[“‘](?![{_WIDE}]))+"
# What stays on one line: a character of a script without spaces, or a word; a figure with what it counts.
_COUNTED = rf"{_WORD}(?:(?<=[\d\u00a0])(?:{_UNITS}|{_HAN_OR_KANA}))?"
_ATOM = Pattern(rf"\s*[{_OPENING}]*(?:{_COUNTED}|{_HAN_OR_KANA})[{_CLOSING}]*(?:\u00a0{_COUNTED}[{_CLOSING}]*)*|\s*\S")


def cell_width(text: str) -> int:
    """Columns of a terminal: two for a wide character, none for a mark that combines."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(c) in "WF" else category(c) not in ("Mn", "Me", "Cf") for c in text)


def padded(text: str, width: int, side: str = "left") -> str:
    """With spaces up to a width, the text on this side of them."""
    space = " " * (width - cell_width(text))
    return space + text if side == "right" else text + space


def cut(text: str, width: int) -> str:
    """As much of the text as fits."""
    if cell_width(text) <= width:
        return text
    used = 0
    for place, character in enumerate(text):
        used += cell_width(character)
        if used > width:
            return text[:place]
    return text


def held(text: str) -> str:
    """With a space that no line ends at between a figure and its unit."""
    return _HELD.sub("\u00a0", text)


def longest_word(text: str) -> int:
    """How wide a column has to be for no word of the text to be cut, and none to stand in it letter by letter."""
    words = text.split(" ")
    if _is_narrow(text):
        return max(map(len, words))
    return max(*(cell_width(atom.strip(" ")) for atom in _atoms(text)), *(min(cell_width(word), 8) for word in words))


def wrapped(text: str, width: int) -> list[str]:
    return wrapped_words(held(text), max(width, 20), cut_words=True)


def wrapped_words(text: str, width: int, *, cut_words: bool = False) -> list[str]:
    """The lines of a text, broken between words and between the characters of scripts that have no spaces."""
    if _is_narrow(text):
        lines = textwrap.wrap(text, max(width, 1), break_long_words=cut_words, break_on_hyphens=False) or [""]
        return [line.replace("\u00a0", " ") for line in lines]
    lines, line = [], ""
    for atom in _atoms(text):
        if line and cell_width(line + atom) > width:
            lines.append(line)
            line = ""
        line += atom if line else atom.lstrip(" ")
        while cut_words and cell_width(line) > width:
            lines.append(cut(line, width))
            line = line[len(lines[-1]) :]
    return [line.replace("\u00a0", " ") for line in (*lines, line)]


def _is_narrow(text: str) -> bool:
    return text.isascii() or not any(east_asian_width(character) in "WF" for character in text)


def _atoms(text: str) -> Iterator[str]:
    return (found.group() for found in _ATOM.finditer(text))
