"""Progress bars that are redrawn many times: keeps only the drawings that show something new."""

from __future__ import annotations

import numpy as np

from stepwatch.readers.text.block import Block, Ints

_BEGIN, _END = 3, 2  # drawings kept at the ends of a bar: empty, the first step and its title; the last step, twice
_MOST_DIGITS = 9


def thinned(block: Block, first_line: int, apart_s: float) -> tuple[bytes, Ints]:
    """The text without drawings that closely follow another one of the same bar, and its line numbers.

    A drawing is `<number>/<total> [<clock><…]` at the end of its line, after any text. A full bar is always kept, as is
    every line that is not a drawing.
    """
    octets = block.octets
    places = np.flatnonzero(octets == ord("<"))
    places = places[(octets[places - 1] - ord("0")).astype(np.uint8) < 10] if len(places) else places
    line = np.searchsorted(block.starts, places, side="right") - 1
    alone = (np.diff(line, prepend=-1) > 0) & (np.diff(line, append=len(block.starts)) > 0)
    alone &= octets[np.maximum(block.ends[line] - 1, 0)] == ord("]")
    line, at = line[alone], places[alone]
    # The clock, as 1:02:03 or 02:03 after a bracket, and what precedes it.
    seconds, at, fits = _int_before(block, at)
    minutes, at, more = _int_before(block, at - 1)
    hours, before, with_hours = _int_before(block, at - 1)
    with_hours &= octets[at - 1] == ord(":")
    at = np.where(with_hours, before, at)
    fits &= more & (octets[at - 1] == ord("[")) & (octets[at - 2] == ord(" "))
    elapsed = seconds + 60 * minutes + np.where(with_hours, 3600 * hours, 0)
    total, at, has_total = _int_before(block, at - 2)
    number, at, has_number = _int_before(block, at - 1)
    digits = np.searchsorted(10 ** np.arange(1, _MOST_DIGITS + 1), number, side="right") + 1
    fits &= has_total & has_number & (octets[at + digits] == ord("/"))
    line, number, total, elapsed = (column[fits] for column in (line, number, total, elapsed))
    if len(line) <= _BEGIN + _END:
        return block.text, np.arange(len(block.starts)) + first_line
    filled = np.cumsum(block.ends > block.starts)
    follows = (np.diff(filled[line]) == 1) & (np.diff(total) == 0) & (np.diff(number) >= 0) & (np.diff(elapsed) >= 0)
    begins = np.flatnonzero(np.concatenate(([True], ~follows)))
    ends = np.append(begins[1:], len(line))
    kept = number == total
    for step in range(_BEGIN):
        kept[np.minimum(begins + step, ends - 1)] = True
    for step in range(_END):
        kept[np.maximum(ends - 1 - step, begins)] = True
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        if end - begin > _BEGIN + _END:
            at_s = elapsed[begin:end]
            row = int(np.searchsorted(at_s, at_s[0] + apart_s))
            while row < end - begin:
                kept[begin + row] = True
                row = int(np.searchsorted(at_s, at_s[row] + apart_s))
    whole = np.ones(len(block.starts), bool)
    whole[line[~kept]] = False
    lines = np.flatnonzero(whole)
    return block.letters(lines), lines + first_line


def _int_before(block: Block, at: Ints) -> tuple[Ints, Ints, np.ndarray]:
    """The whole number that ends at each place, where it begins, and whether there is one."""
    value, scale, end = np.zeros(len(at), np.int64), 1, at
    going = np.ones(len(at), bool)
    for _ in range(_MOST_DIGITS):
        digit = block.octets[at - 1].astype(np.int64) - ord("0")
        going = going & (digit >= 0) & (digit < 10) & (at > 0)
        if not going.any():
            break
        value, at, scale = value + np.where(going, digit * scale, 0), at - going, scale * 10
    return value, at, at < end
