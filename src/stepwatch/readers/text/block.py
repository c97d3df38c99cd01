"""Whole lines as one array of bytes; the numbers and clocks in them are read for all lines at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_DIGITS = b"0123456789"
UNDECODED = "surrogateescape"  # so that the letters of any line can be counted in its bytes


class Block(NamedTuple):
    """Lines as bytes, with every line's start and end and a view of eight bytes at any offset."""

    text: bytes
    words: Words
    octets: Bytes
    starts: Ints
    ends: Ints
    filled: Ints
    """The lines that are not empty."""

    @classmethod
    def of(cls, text: bytes) -> Block:
        padded = text + bytes(64)  # so that no load of eight bytes reads past the end
        octets = np.frombuffer(padded, np.uint8)
        newlines = np.flatnonzero(octets[: len(text)] == ord("\n"))
        starts = np.concatenate(([0], newlines + 1))
        ends = np.concatenate((newlines, [len(text)]))
        if starts[-1] == len(text):
            starts, ends = starts[:-1], ends[:-1]
        words = np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded, 0, (1,))
        return cls(text, words, octets, starts, ends, np.flatnonzero(ends > starts))

    def line(self, index: int) -> bytes:
        return self.text[self.starts[index] : self.ends[index]]

    def lines(self, indexes: Ints) -> list[bytes]:
        """Like `line`, for many."""
        text = self.text
        ends = self.ends[indexes].tolist()
        return [text[start:end] for start, end in zip(self.starts[indexes].tolist(), ends, strict=True)]

    def letters(self, lines: Ints) -> bytes:
        """The text of these lines; adjacent lines are copied together."""
        if len(lines) == len(self.starts):
            return self.text
        if not len(lines):
            return b""
        edges = np.flatnonzero(np.diff(lines) > 1)
        begins = self.starts[lines[np.concatenate(([0], edges + 1))]].tolist()
        ends = self.ends[lines[np.append(edges, len(lines) - 1)]].tolist()
        return b"\n".join([self.text[begin:end] for begin, end in zip(begins, ends, strict=True)])

    def without(self, lines: Ints, others: Ints) -> Ints:
        """The lines that are not among the others."""
        if not len(others):
            return lines
        left = np.ones(len(self.starts), bool)
        left[others] = False
        return lines[left[lines]]

    def holding(self, lines: Ints, literals: Iterable[bytes]) -> Ints:
        """The lines that contain one of the literals; if these contain digits, perhaps some more.

        Most lines of a log differ only in their digits: the literals are searched for in one line of each kind.
        """
        without_digits = self.letters(lines).translate(None, _DIGITS).split(b"\n")[: len(lines)]
        kinds = {line: place for place, line in enumerate(dict.fromkeys(without_digits))}
        kind = np.array([*map(kinds.__getitem__, without_digits)], np.int64)
        letters = b"\n".join(kinds)
        places = [
            found.start()
            for literal in {literal.translate(None, _DIGITS) for literal in literals}
            if literal in letters  # faster than a search by pattern, and most are missing
            for found in re.finditer(re.escape(literal), letters)
        ]
        held = np.zeros(len(kinds) + 1, bool)
        held[np.searchsorted(np.cumsum([len(line) + 1 for line in kinds]), places, side="right")] = True
        return lines[held[kind]]


# --- figures at a cursor, eight bytes at a time ---------------------------------------------------------------------
# Each function takes the places at which figures may begin. It returns which of them are figures, where these end, and
# their values, which equal those of float().

_ZEROS = np.uint64(0x3030303030303030)
_PAST_NINE = np.uint64(0x7676767676767676)
_HIGH_BITS = np.uint64(0x8080808080808080)
_ONES = np.uint64(0x0101010101010101)
_LARGEST_TEN = 22  # the last power of ten that a float holds exactly
_TENS = np.array([float(10 ** min(n, _LARGEST_TEN)) for n in range(64)])
_WHOLE_TENS = np.array([10 ** min(n, 18) for n in range(64)])
_LOADS = 4  # of eight digits each
_NAN, _INF = (np.uint64(int.from_bytes(word, "little")) for word in (b"nan", b"inf"))
_ENDS_WITH_FIGURE = np.zeros(256, bool)
_ENDS_WITH_FIGURE[list(b"0123456789.eE")] = True


def read_number(block: Block, at: Ints, *, commas: bool = False, nan: bool = False) -> tuple[Mask, Ints, Floats]:
    """A decimal; with `commas`, perhaps with commas between thousands; with `nan`, perhaps nan or inf, read as inf."""
    begin, octets = at, block.octets
    sign = octets[at]
    negative = sign == ord("-")
    signed = negative | (sign == ord("+"))
    if signed.any():
        at = at + signed
    mantissa, digits = _read_digits(block, at)
    fits = digits > 0
    at = at + digits
    point = octets[at] == ord(".")
    if commas and not point.all():
        mantissa, digits, at = _read_thousands(block, begin + signed, mantissa, digits, at)
        point = octets[at] == ord(".")
    places = np.zeros(len(at), np.int64)
    if point.any():
        fraction, places = _read_digits(block, at + 1)
        if not point.all():
            fraction, places = fraction * point, places * point
        mantissa = mantissa * _WHOLE_TENS[places] + fraction
        at, digits = at + point + places, digits + places
    power = (octets[at] | 32) == ord("e")
    value: Floats
    if power.any():
        sign = octets[at + 1]
        signed_power = (sign == ord("-")) | (sign == ord("+"))
        exponent, count = eight_digits(block, at + 1 + signed_power)
        power &= (count > 0) & (count < 8)
        at = at + power * (1 + signed_power + count)
        places = places + np.where(sign == ord("-"), exponent, -exponent) * power
        down, up = np.clip(places, 0, _LARGEST_TEN), np.clip(-places, 0, _LARGEST_TEN)
        value = mantissa / _TENS[down] * _TENS[up]
    else:
        value = mantissa / _TENS[places]
    # One division or product of exact numbers rounds as float() does; the few others are read by float(). A float holds
    # 53 bits, and 64 bits hold 18 digits.
    if digits.max(initial=0) > 15 or np.abs(places).max(initial=0) > _LARGEST_TEN:
        doubtful = (mantissa >= 1 << 53) | (digits > 18) | (np.abs(places) > _LARGEST_TEN)
        rows = np.flatnonzero(doubtful & fits)
        spans = zip(begin[rows].tolist(), at[rows].tolist(), strict=True)
        value[rows] = [abs(float(block.text[first:end].replace(b",", b""))) for first, end in spans]
    if negative.any():
        value = np.where(negative, -value, value)
    if nan and not fits.all():
        word = block.words[begin + signed] & np.uint64(0xFFFFFF)
        named = ~fits & ((word == _NAN) | (word == _INF))
        fits, at, value = fits | named, np.where(named, begin + signed + 3, at), np.where(named, np.inf, value)
    return fits, at, value


def read_int(block: Block, at: Ints, *, commas: bool = False) -> tuple[Mask, Ints, Floats]:
    """One to fifteen digits; with `commas`, perhaps with commas between thousands."""
    value, count = _read_digits(block, at)
    end = at + count
    if commas:
        value, count, end = _read_thousands(block, at, value, count, end)
    return (count > 0) & (count <= 15), end, value.astype(np.float64)


def may_continue_number(block: Block, at: Ints) -> Mask:
    """Whether the text after a number may be part of it, so that a pattern has to decide."""
    after = block.octets[at]
    thousands = (after == ord(",")) & (block.octets[at + 1] - np.uint8(ord("0")) < 10)
    return np.asarray(_ENDS_WITH_FIGURE[after] | thousands)


def read_clock(block: Block, at: Ints) -> tuple[Mask, Ints, Floats]:
    """`mm:ss` or `h:mm:ss` in seconds."""
    seconds, count = eight_digits(block, at)
    fits, parts = (count > 0) & (count < 7), np.zeros(len(at), np.int64)
    at = at + count
    for _ in range(2):
        more, two = eight_digits(block, at + 1)
        part = (block.octets[at] == ord(":")) & fits & (two == 2)
        seconds = np.where(part, seconds * 60 + more, seconds)
        at, parts = at + 3 * part, parts + part
    point = (block.octets[at] == ord(".")) & (block.octets[at + 1] - np.uint8(ord("0")) < 10)
    if not point.any():
        return fits & (parts > 0), at, seconds.astype(np.float64)
    fraction, places = eight_digits(block, at + 1)
    fits &= ~point | (places < 8)
    return fits & (parts > 0), at + point * (1 + places), seconds + point * fraction / _TENS[places]


def read_duration(block: Block, at: Ints) -> tuple[Mask, Ints, Floats]:
    """`1d 2h 3m 4s`, or only the last of these parts, in seconds."""
    seconds, part, begin = np.zeros(len(at)), np.ones(len(at), bool), at
    for _ in range(4):
        value, count = eight_digits(block, at)
        unit = _SECONDS_OF_UNITS[block.octets[at + count]]
        part &= (count > 0) & (count < 8) & (unit > 0)
        seconds = np.where(part, seconds + value * unit, seconds)
        at = at + (count + 1) * part
        spaced = part & (block.octets[at] == ord(" ")) & (block.octets[at + 1] - np.uint8(ord("0")) < 10)
        at = at + spaced
        part = spaced
    return at > begin, at, seconds


def eight_digits(block: Block, at: Ints) -> tuple[Ints, Ints]:
    """The digits at each place as one number, and how many there are; 8 means at least 8."""
    word = block.words[at] ^ _ZEROS
    past = ((word + _PAST_NINE) | word) & _HIGH_BITS  # the high bit of every byte that is not a digit
    count = _bytes_below(past)
    word <<= (64 - 8 * count).view(np.uint64)  # a shift by 64 leaves nothing
    word *= np.uint64(2561)
    word >>= np.uint64(8)
    word &= np.uint64(0x00FF00FF00FF00FF)
    word *= np.uint64(6553601)
    word >>= np.uint64(16)
    word &= np.uint64(0x0000FFFF0000FFFF)
    word *= np.uint64(42949672960001)
    word >>= np.uint64(32)
    return word.view(np.int64), count


def bytes_before(words: Words, letter: int) -> Ints:
    """How many of the eight bytes precede the first one equal to this letter."""
    others = words ^ (np.uint64(letter) * _ONES)
    return _bytes_below((others - _ONES) & ~others & _HIGH_BITS)  # only the lowest set bit is reliable


def bytes_equal(words: Words, letter: int) -> Ints:
    """How many of the eight bytes equal this letter, before the first that does not."""
    return _bytes_below(words ^ (np.uint64(letter) * _ONES))


def _bytes_below(bits: Words) -> Ints:
    """Whole bytes below the lowest set bit."""
    return (np.bitwise_count(~bits & (bits - np.uint64(1))) >> 3).astype(np.int64)


def _read_digits(block: Block, at: Ints) -> tuple[Ints, Ints]:
    """Digits as one number, exact up to 18 of them, and how many there are."""
    value, count = eight_digits(block, at)
    rows = np.flatnonzero(count == 8)
    for _ in range(_LOADS - 1):
        if not len(rows):
            break
        more, further = eight_digits(block, at[rows] + count[rows])
        value[rows] = value[rows] * _WHOLE_TENS[further] + more
        count[rows] += further
        rows = rows[further == 8]
    return value, count


def _read_thousands(block: Block, begin: Ints, value: Ints, count: Ints, at: Ints) -> tuple[Ints, Ints, Ints]:
    """Groups of three digits after commas, following one to three digits of which the first is not 0."""
    head = (count > 0) & (count <= 3) & (block.octets[begin] != ord("0"))
    for _ in range(_LOADS):
        more, three = eight_digits(block, at + 1)
        group = head & (block.octets[at] == ord(",")) & (three == 3)
        if not group.any():
            break
        value = np.where(group, value * 1000 + more, value)
        count, at = count + 3 * group, at + 4 * group
        head = group
    return value, count, at


_SECONDS_OF_UNITS = np.zeros(256)
_SECONDS_OF_UNITS[list(b"dhms")] = (86400, 3600, 60, 1)


# --- cells of numbers between commas ----------------------------------------------------------------------------------

PIECE_BYTES = 1 << 18  # that are read together: one odd line makes the whole piece be read line by line
_LETTERS_OF_CELLS = b"0123456789.,eE+-naif\n"


def read_floats(block: Block, begins: Ints, ends: Ints) -> Floats:
    """The numbers between these places, as float() reads them; raises ValueError if one is not a number."""
    fits, stops, values = read_number(block, begins)
    for row in np.flatnonzero(~fits | (stops != ends)).tolist():
        values[row] = float(block.text[begins[row] : ends[row]])
    return values


def read_cells(text: bytes, width: int, wanted: Sequence[int]) -> Floats | None:
    """One row per line: nan for an empty cell, 0 for numbers that are not wanted.

    None unless each line has `width` cells, all of them numbers or empty.
    """
    text = text.rstrip(b"\n")
    if width < 3 or text.translate(None, _LETTERS_OF_CELLS):
        return None
    text = b"\n" + text + b"\n"
    block = Block.of(text)
    octets = block.octets[: len(text)]
    edges = np.flatnonzero((octets == ord(",")) | (octets == ord("\n")))
    if (len(edges) - 1) % width or not np.array_equal(edges[::width], np.flatnonzero(octets == ord("\n"))):
        return None
    begins, ends = (edges[:-1] + 1).reshape(-1, width), edges[1:].reshape(-1, width)
    filled = begins < ends
    table = np.where(filled, 0.0, np.nan)
    try:
        for place in wanted:
            rows = filled[:, place]
            table[rows, place] = read_floats(block, begins[rows, place], ends[rows, place])
    except ValueError:
        return None
    return table
