"""Dictionaries of a log, read many at once: those of one program have the same keys in the same order.

The first of them shows the shape of all: its keys become letters of a template, the values that are wanted its fields,
and the others are passed over. Dictionaries of another shape show their own, a few times; what is left then is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stepwatch.patterns import Pattern
from stepwatch.readers.columns import Block, Floats, Ints, Template

Field = Callable[[str, str], str | None]
"""For a key and its value the fields of a template that read such values; None where they are of no use."""

_PAIR = Pattern(
    r"""(?P<key>(?P<mark>['"])[^'"{}\n]{1,60}(?P=mark): )(?P<quote>['"]?)(?P<value>[^'"{}\[\]\n]{1,60})(?P=quote)"""
    r"""(?P<after>, |\}$)"""
)
_MOST_SHAPES = 4
_MOST_TRIED = 200
_LONGEST = 4000


def dictionaries(
    text: bytes, block: Block, lines: Ints, needed: Pattern[bytes], field: Field
) -> Iterator[tuple[Ints, dict[str, Floats]]]:
    """Those of the lines that are dictionaries with the needed letters, and what they tell, one shape after another."""
    left = lines[block.octets[block.starts[lines]] == ord("{")]
    for _ in range(_MOST_SHAPES):
        model = _first(text, block, left[:_MOST_TRIED], needed)
        if model is None:
            return
        shape = _shape(text[block.starts[model] : block.ends[model]][:_LONGEST].decode("utf-8", "replace"), field)
        if shape is not None:
            fits, found = Template(shape).match(block, left)
            if len(fits):
                yield fits, found
                left = block.without(left, fits)
        left = left[left > model]


def _first(text: bytes, block: Block, lines: Ints, needed: Pattern[bytes]) -> int | None:
    letters = ((line, text[block.starts[line] : block.ends[line]]) for line in lines.tolist())
    return next((line for line, each in letters if needed.search(each[:_LONGEST])), None)


def _shape(line: str, field: Field) -> str | None:
    """The line as the shape of a template; None where it is not a dictionary from end to end."""
    shape, begin = "{{", 1
    while begin < len(line):
        found = _PAIR.match(line, begin)
        if found is None:
            return None
        key, quote, last = found["key"], found["quote"], found["after"] == "}"
        reads = field(key[1:-3], found["value"])
        if reads is None and not quote:  # all up to the quote of the next key, or to the end
            shape += key + ("{*}" if last else f"{{{found['mark']}}}")
        else:
            shape += f"{key}{quote}{reads or f'{{{quote}}}'}{quote}{found['after']}"
        begin = found.end()
    return shape
