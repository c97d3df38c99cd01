"""Many lines at once: a line template matched by numpy over a block of bytes.

A log of two million iterations is two million lines of one shape. Matching them one by one costs an
object per line; here every step of the match (a literal, the digits of a number) is done for all
lines of a block together, eight bytes at a time. Lines that do not fit are left to the reader's patterns.
"""

from __future__ import annotations

import re
from itertools import repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stepwatch.readers.text.stamps import stamp_of

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MANY_LINES = 300  # below, to read them together is not worth it
PADDING = 16  # bytes after the block, so that a load of eight bytes never leaves it

_ZEROS = np.uint64(0x3030303030303030)
_PAST_NINE = np.uint64(0x7676767676767676)
_HIGH_BITS = np.uint64(0x8080808080808080)
_TENS = np.array([float(10**n) for n in range(23)])  # all exact


class Block(NamedTuple):
    """Whole lines as bytes, with every line's start and end and a view of eight bytes at any offset."""

    padded: bytes
    words: Words
    octets: Bytes
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, text: bytes) -> Block:
        padded = text + bytes(PADDING)
        octets = np.frombuffer(padded, np.uint8)
        newlines = np.flatnonzero(octets[: len(text)] == 10)
        starts = np.concatenate(([0], newlines + 1))
        ends = np.concatenate((newlines, [len(text)]))
        if starts[-1] == len(text):
            starts, ends = starts[:-1], ends[:-1]
        words = np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded, 0, (1,))
        return cls(padded, words, octets, starts, ends)

    def unindented(self) -> Block:
        """The same, each line from its first letter on: behind a tab and spaces."""
        begins = skip_spaces(self, self.starts + (self.octets[self.starts] == ord("\t")))
        return self._replace(starts=np.minimum(begins, self.ends))

    def letters(self, text: bytes, lines: Ints) -> bytes:
        """These lines as a text of their own; lines that follow on each other are copied together."""
        if not len(lines):
            return b""
        edges = np.flatnonzero(np.diff(lines) > 1)
        begins = self.starts[lines[np.concatenate(([0], edges + 1))]].tolist()
        ends = self.ends[lines[np.append(edges, len(lines) - 1)]].tolist()
        return b"\n".join([text[begin:end] for begin, end in zip(begins, ends, strict=True)])

    def without(self, lines: Ints, others: Ints) -> Ints:
        """The lines that are not among the others."""
        if not len(others):
            return lines
        left = np.ones(len(self.starts), bool)
        left[others] = False
        return lines[left[lines]]


class Template:
    """A line shape such as `iter {number}: loss {loss}, time {time}ms`, matched on whole lines.

    `{name,}` is a number that may have commas, `{name+}` one that may be long, `{name~}` one with any number of
    decimals, of which eight count, `{name?}` one that may be nan or inf, which is inf, `{name:}` a clock such as
    `1:02:03` in seconds, `{name;}` a duration such as `1h 2m 3s`, `{name/}` a rate, `2.1s/it` or `5.0it/s`, in seconds,
    `{name@}` seconds since 1970 with a fraction, `{name&}` a member of a JSON object that may be missing, `,"name":1.5`
    (nan), `{ }` any number of spaces, `{%}` a percentage, `{*}` anything up to the next space or the end, `{'}` and
    `{"}` up to the next such quote, `{|}` the drawing of a progress bar, `{**}` the rest of the line, `{>}` the rest of
    a JSON object, `{{` a brace. With `anywhere` the shape begins where its first letters are first found in the line,
    and a date and time in front of it become `stamp_s`.
    """

    def __init__(self, shape: str, *, anywhere: bool = False) -> None:
        self.anywhere = anywhere
        self.first = shape.partition("{")[0].encode()
        self.pieces: list[tuple[str, bytes]] = []  # (field name or "", literal)
        for literal, name in re.findall(r"((?:[^{]|\{\{)*)(?:\{([\w ,*+~?:;|/@&>%'\"]+)\})?", shape):
            letters = literal.replace("{{", "{").encode()
            # Eight at a time: what does not fit the first ones is done with.
            self.pieces += [("", letters[begin : begin + 8]) for begin in range(0, len(letters), 8)]
            if name:
                self.pieces.append((name, b""))
        self.fields = [field for name, _ in self.pieces for field in _fields(name)]

    def match(self, block: Block, lines: Ints) -> tuple[Ints, dict[str, Floats]]:
        """The lines (of those given) that fit, and the numbers in them by field name."""
        cursor = block.starts[lines]
        if self.anywhere:
            lines, cursor = _find_literal(block, lines, self.first)
        begins = cursor
        found: dict[str, Floats] = {}
        for name, literal in self.pieces:
            if literal:
                fits, cursor = skip_literal(block, cursor, literal)
            elif name == " ":
                fits, cursor = np.ones(len(cursor), bool), skip_spaces(block, cursor)
            elif name in _SKIPPED:
                fits, cursor = _skip_to(block, cursor, block.ends[lines], _SKIPPED[name])
            elif name == "%":
                fits, cursor = _skip_percentage(block, cursor)
            elif name == "|":
                fits, cursor = _skip_bar(block, cursor, block.ends[lines])
            elif name == "**":
                fits, cursor = cursor <= block.ends[lines], block.ends[lines]
            elif name == ">":
                fits, cursor = _ends_object(block, cursor, block.ends[lines]), block.ends[lines]
            elif name[-1] in _CLOCKS:
                fits, cursor, found[name[:-1]] = _CLOCKS[name[-1]](block, cursor)
            elif name.endswith("&"):
                fits, cursor, found[name.rstrip("&")] = _read_member(block, cursor, name.rstrip("&"))
            elif name.endswith("/"):
                fits, cursor, found[name.rstrip("/")], found["digits"] = _read_rate(block, cursor)
            else:
                how = {_KINDS_OF_NUMBERS[kind]: True for kind in name if kind in _KINDS_OF_NUMBERS}
                fits, cursor, found[name.rstrip(",+~?")] = read_number(block, cursor, **how)
            if not fits.all():
                lines, cursor, begins = lines[fits], cursor[fits], begins[fits]
                if not len(lines):
                    return lines, {field: np.empty(0) for field in self.fields}
                found = {key: column[fits] for key, column in found.items()}
        fits = cursor == block.ends[lines]
        lines, found = lines[fits], {key: column[fits] for key, column in found.items()}
        if self.anywhere and len(lines):
            fits, stamps = stamps_in_front(block, block.starts[lines], begins[fits])
            lines, found = lines[fits], {key: column[fits] for key, column in found.items()}
            if stamps is not None:
                found["stamp_s"] = stamps
        return lines, found


def _fields(name: str) -> tuple[str, ...]:
    """The names under which a part of a shape is found."""
    field = name.rstrip(",+~?:;@&/")
    if not field.isidentifier():
        return ()
    return (field, "digits") if name.endswith("/") else (field,)


def some_of(lines: Ints) -> Ints:
    """A few stretches of the lines: what fits none of them is hardly worth a try on all."""
    if len(lines) <= 2 * _STRETCHES * _STRETCH:
        return lines
    begins = np.linspace(0, len(lines) - _STRETCH, _STRETCHES).astype(np.int64)
    return np.asarray(lines[(begins[:, None] + np.arange(_STRETCH)).ravel()])


def numbers_behind(block: Block, lines: Ints, literal: bytes) -> Floats:
    """For each line the number behind the first place of these letters; nan where they are not, inf if no plain one."""
    rows, places = _find_literal(block, lines, literal)
    fits, places = skip_literal(block, places, literal)
    plain, places, values = read_number(block, places, long=True)
    after = block.octets[places]
    ended = (after == ord(" ")) | (places == block.ends[rows])
    found = np.full(len(lines), np.nan)
    found[np.searchsorted(lines, rows)] = np.where(fits & plain & ended, values, np.inf)
    return found


def _find_literal(block: Block, lines: Ints, literal: bytes) -> tuple[Ints, Ints]:
    """The lines that hold the literal, and where it first begins in each; mostly all prefixes are equally long."""
    for model in lines[:: max(len(lines) // _MODELS, 1)].tolist():
        offset = block.padded.find(literal, block.starts[model], block.ends[model]) - block.starts[model]
        if offset < 0:
            continue
        places = block.starts[lines] + offset
        alike = places + len(literal) <= block.ends[lines]
        alike &= skip_literal(block, np.where(alike, places, 0), literal)[0]
        if alike.mean() > _MOSTLY:
            return lines[alike], places[alike]
        if alike.mean() > _OFTEN:
            return _joined((lines[alike], places[alike]), _find_singly(block, lines[~alike], literal))
    if _FEW * len(lines) < len(block.starts):
        return _find_singly(block, lines, literal)
    found = re.finditer(re.escape(literal), block.padded)  # faster than numpy where most bytes do not fit
    places = np.fromiter((match.start() for match in found), np.int64)
    rows = np.searchsorted(block.starts, places, side="right") - 1
    rows, first = np.unique(rows, return_index=True)
    wanted = np.isin(rows, lines, assume_unique=True)
    return rows[wanted], places[first[wanted]]


def _joined(some: tuple[Ints, Ints], others: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Lines and places of two kinds as one, by line."""
    lines = np.concatenate((some[0], others[0]))
    order = np.argsort(lines, kind="stable")
    return lines[order], np.concatenate((some[1], others[1]))[order]


def _find_singly(block: Block, lines: Ints, literal: bytes) -> tuple[Ints, Ints]:
    """As above, for a few lines of a block."""
    starts, ends = block.starts[lines], block.ends[lines]
    found = list(map(block.padded.find, repeat(literal), starts.tolist(), ends.tolist()))
    places = np.array(found, np.int64).reshape(-1)
    return lines[places >= 0], places[places >= 0]


def skip_spaces(block: Block, cursor: Ints) -> Ints:
    for _ in range(_MOST_SPACES // 8):
        others = block.words[cursor] ^ _SKIPPED["*"]
        count = (np.bitwise_count((others & (~others + np.uint64(1))) - np.uint64(1)) >> 3).astype(np.int64)
        cursor = cursor + count
        if (count < 8).all():
            break
    return cursor


def skip_digits(block: Block, cursor: Ints) -> Ints:
    """Over some digits, however many."""
    for _ in range(_MOST_SPACES // 8):
        word = block.words[cursor] ^ _ZEROS
        past = ((word + _PAST_NINE) | word) & _HIGH_BITS
        count = (np.bitwise_count((past & (~past + np.uint64(1))) - np.uint64(1)) >> 3).astype(np.int64)
        cursor = cursor + count
        if (count < 8).all():
            break
    return cursor


def _skip_percentage(block: Block, cursor: Ints) -> tuple[Mask, Ints]:
    """Over ` 42%`: some spaces, some digits and the sign."""
    words = block.words[cursor]
    count = _bytes_before(words, _PERCENTS)
    figures = (words | _SPACE_TO_ZERO) ^ _ZEROS
    others = ((figures + _PAST_NINE) | figures) & _HIGH_BITS
    inside = (np.uint64(1) << (count << 3).astype(np.uint64) % np.uint64(64)) - np.uint64(1)
    fits = (count > 0) & (count < 8) & ((others & inside) == 0)
    return fits & (block.octets[cursor + count - 1] != ord(" ")), cursor + count + 1


def _skip_to(block: Block, cursor: Ints, ends: Ints, wanted: np.uint64) -> tuple[Mask, Ints]:
    """Over some letters to the wanted one, or to a space or the end of the line."""
    begin = cursor
    for _ in range(_MOST_WORD_PARTS):
        count = _bytes_before(block.words[np.minimum(cursor, ends)], wanted)
        cursor = cursor + count
        if (count < 8).all():
            break
    stop = np.minimum(cursor, ends)
    return (stop > begin) & ((count < 8) | (stop == ends)), stop


def _skip_bar(block: Block, cursor: Ints, ends: Ints) -> tuple[Mask, Ints]:
    """Over what tqdm draws, to the digits behind it: `|███   | 12/100` goes on at the 12."""
    rows, at, stop = np.arange(len(cursor)), cursor, ends.copy()
    for _ in range(_MOST_BAR_PARTS):
        count = _bytes_before(block.words[np.minimum(at, ends[rows])], _BARS)
        at = np.minimum(at + count, ends[rows])
        drawn = (count < 8) & (block.octets[at + 1] == ord(" ")) & (block.octets[at + 2] - np.uint8(48) < 10)
        stop[rows[drawn]] = at[drawn] + 2
        goes_on = ~drawn & (at < ends[rows])
        if not goes_on.any():
            break
        rows, at = rows[goes_on], (at + (count < 8))[goes_on]
    fits = stop < ends
    return fits, np.where(fits, stop, cursor)


def _bytes_before(words: Words, wanted: np.uint64) -> Ints:
    """How many of eight bytes stand before the first that is the wanted one, which is given eight times."""
    words = words ^ wanted
    zero = (words - _ONES) & ~words & _HIGH_BITS  # the lowest bit that is set is that of the first
    return (np.bitwise_count((zero & (~zero + np.uint64(1))) - np.uint64(1)) >> 3).astype(np.int64)


def read_clock(block: Block, cursor: Ints) -> tuple[Mask, Ints, Floats]:
    """`mm:ss` or `h:mm:ss`."""
    seconds, count = _read_digits(block, cursor)
    fits, parts = (count > 0) & (count < 6), np.zeros(len(cursor), np.int64)
    cursor = cursor + count
    for _ in range(2):
        goes_on = (block.octets[cursor] == ord(":")) & fits
        if not goes_on.any():
            break
        more, two = _read_digits(block, cursor + 1)
        goes_on &= two == 2
        seconds = np.where(goes_on, seconds * 60 + more, seconds)
        cursor, parts = cursor + 3 * goes_on, parts + goes_on
    return fits & (parts > 0), cursor, seconds


def _read_duration(block: Block, cursor: Ints) -> tuple[Mask, Ints, Floats]:
    """`1d 2h 3m 4s`, or the last of these parts."""
    seconds, goes_on = np.zeros(len(cursor)), np.ones(len(cursor), bool)
    begin = cursor
    for _ in range(4):
        value, count = _read_digits(block, cursor)
        unit = _SECONDS_OF_UNITS[block.octets[cursor + count]]
        goes_on &= (count > 0) & (count < 8) & (unit > 0)
        seconds = np.where(goes_on, seconds + value * unit, seconds)
        cursor = cursor + (count + 1) * goes_on
        cursor = cursor + (goes_on & (block.octets[cursor] == ord(" ")))
    return cursor > begin, cursor, seconds


def _read_rate(block: Block, cursor: Ints) -> tuple[Mask, Ints, Floats, Floats]:
    """`2.10s/it` or `5.00it/s`: the seconds of one, and the number as it is printed."""
    fits, cursor, printed = read_number(block, cursor)
    unit = block.words[cursor] & np.uint64(0xFFFFFFFF)
    slow, fast = (unit == np.uint64(int.from_bytes(word, "little")) for word in (b"s/it", b"it/s"))
    seconds = np.where(slow, printed, 1 / np.maximum(printed, 1e-9))
    return fits & (slow | fast), cursor + 4, seconds, printed


def _read_epoch(block: Block, cursor: Ints) -> tuple[Mask, Ints, Floats]:
    """`1763264000.123456`: seconds of this century, with up to seven decimals."""
    first, eight = _read_digits(block, cursor)
    fits = eight == 8  # what does not fit is read no further: it may stand at the end of the block
    last, two = _read_digits(block, cursor + 8 * fits)
    fits &= two == 2
    fits &= block.octets[cursor + 10 * fits] == ord(".")
    fraction, places = _read_digits(block, cursor + 11 * fits)
    fits &= (places > 0) & (places < 8)
    return fits, cursor + (11 + places) * fits, first * 100 + last + fraction / _TENS[places]


def _read_member(block: Block, cursor: Ints, name: str) -> tuple[Mask, Ints, Floats]:
    """`,"name":1.5` where it stands here; nan, and no step on, where something else does."""
    there, after = skip_literal(block, cursor, f',"{name}":'.encode())
    if not there.any():
        return ~there, cursor, np.full(len(cursor), np.nan)
    fits, end, values = read_number(block, after, loose=True)
    return ~there | fits, np.where(there, end, cursor), np.where(there, values, np.nan)


def _ends_object(block: Block, cursor: Ints, ends: Ints) -> Mask:
    """Whether only the closing brace follows, or more members before it."""
    here, last = block.octets[cursor], block.octets[ends - 1]
    return np.asarray(((here == ord("}")) & (cursor == ends - 1)) | ((here == ord(",")) & (last == ord("}"))))


def read_floats(text: bytes, block: Block, begins: Ints, ends: Ints, *, commas: bool = False) -> Floats:
    """The numbers between these places as float() gives them; raises ValueError where there is another thing."""
    values = np.full(len(begins), np.nan)
    few = ends - begins <= _LONGEST + 2  # a sign, a point and as many digits
    rows = np.arange(len(begins)) if few.all() else np.flatnonzero(few)
    fits, stops, found = read_number(block, begins[rows], commas=commas, long=True)
    fits &= stops == ends[rows]
    values[rows] = np.where(fits, found, np.nan)
    others = np.flatnonzero(np.isnan(values))
    if len(others):
        stops, found = _read_decimals(block, begins[others])
        values[others] = np.where(stops == ends[others], found, np.nan)
        others = others[np.isnan(values[others])]
        spans = zip(begins[others].tolist(), ends[others].tolist(), strict=True)
        values[others] = [float(text[begin:end].replace(b",", b"")) for begin, end in spans]
    return values


def _read_decimals(block: Block, cursor: Ints) -> tuple[Ints, Floats]:
    """A number with 8 to 17 decimals, and where it ends; nan where it is another, or its last bit is in doubt."""
    negative = block.octets[cursor] == ord("-")
    whole, count = _read_digits(block, cursor + negative)
    cursor = cursor + negative + count
    fits = (count > 0) & (count < 8) & (block.octets[cursor] == ord("."))
    mantissa, places = whole.astype(np.uint64), np.zeros(len(cursor), np.int64)
    cursor = cursor + fits
    for _ in range(3):
        goes_on = np.flatnonzero(fits & (places % 8 == 0))
        digits, further = _read_digits(block, cursor[goes_on])
        mantissa[goes_on] = mantissa[goes_on] * _WHOLE_TENS[further] + digits.astype(np.uint64)
        cursor[goes_on] += further
        places[goes_on] += further
    fits &= (places >= 8) & (places + count <= _MOST_DECIMALS) & (np.finfo(np.longdouble).nmant >= 63)
    # Rounded to 64 bits and then to 53 a quotient is right, but where the first lies midway between two of these.
    fine = mantissa.astype(np.longdouble) / _TENS.astype(np.longdouble)[np.minimum(places, _MOST_DECIMALS)]
    values = fine.astype(np.float64)
    fits &= np.abs(fine - values) * 2 != np.spacing(values)
    return cursor, np.where(fits, np.where(negative, -values, values), np.nan)


def places_behind(text: bytes, literal: bytes) -> Ints:
    """Where the literal ends, each time that it occurs; the pieces between tell it faster than a match for each."""
    lengths = np.fromiter(map(len, text.split(literal)), np.int64)
    return np.cumsum(lengths[:-1] + len(literal))


def _first_places(block: Block, text: bytes, literal: bytes) -> tuple[Ints, Ints]:
    """The lines that hold the literal, and where it first ends in each."""
    places = places_behind(text, literal)
    rows = np.searchsorted(block.starts, places, side="right") - 1
    first = np.diff(rows, prepend=-1) > 0
    return rows[first], places[first]


def _at_their_ends(block: Block, text: bytes, literal: bytes) -> tuple[Ints, Ints] | None:
    """As the first places, where these are as far from the end in nearly all lines, as in bars; else None."""
    model = len(block.starts) // 2
    begin, end = int(block.starts[model]), int(block.ends[model])
    found = text.find(literal, begin, end)
    if found < 0:
        return None
    rows = np.flatnonzero(block.ends - block.starts >= end - found)
    places = block.ends[rows] - (end - found)
    alike, behind = skip_literal(block, places, literal)
    if alike.sum() <= _MOSTLY * len(block.starts):
        return None
    others = np.ones(len(block.starts), bool)
    others[rows[alike]] = False
    singly = [(row, text.find(literal, block.starts[row], block.ends[row])) for row in np.flatnonzero(others).tolist()]
    more = np.array([pair for pair in singly if pair[1] >= 0], np.int64).reshape(-1, 2)
    rows = np.concatenate((rows[alike], more[:, 0]))
    order = np.argsort(rows, kind="stable")
    return rows[order], np.concatenate((behind[alike], more[:, 1] + len(literal)))[order]


def numbers_after(block: Block, text: bytes, literal: bytes, *, clock: bool = False) -> tuple[Ints, Floats]:
    """The lines that hold the literal, and the number (quoted or not) behind its first place in each.

    A printed nan is inf, as everywhere; what is no number is nan. With `clock`, `h:mm:ss` or `1h 2m 3s` in seconds.
    """
    if literal not in text:  # at the speed of a text search
        return np.zeros(0, np.int64), np.zeros(0)
    rows, cursor = _at_their_ends(block, text, literal) or _first_places(block, text, literal)
    cursor = cursor + np.isin(block.octets[cursor], _QUOTES)
    if clock:
        fits, _, values = read_clock(block, cursor)
        in_parts, end, parts = _read_duration(block, cursor)
        in_parts &= np.isin(block.octets[end], _QUOTES)
        return rows, np.where(fits, values, np.where(in_parts, parts, np.nan))
    fits, end, values = read_number(block, cursor, long=True)
    if not fits.all():
        end[~fits], values[~fits] = _read_decimals(block, cursor[~fits])
    fits = ~np.isnan(values) & ((block.octets[end] | 32) != ord("e"))
    for row in np.flatnonzero(~fits).tolist():
        found = _FLOAT.match(text, int(cursor[row]))
        values[row] = np.nan if found is None else np.inf if found[0][:1] in b"nN" else float(found[0])
    return rows, values


_WHOLE_TENS = np.array([10**n for n in range(9)], np.uint64)
_MOST_DECIMALS = 18  # digits in all that 64 bits hold
_FLOAT = re.compile(rb"[-+]?(?:\d{1,40}\.?\d{0,40}(?:[eE][-+]?\d{1,3})?|inf|Infinity|nan|NaN)\b")
_SECONDS_OF_UNITS = np.zeros(256)
_SECONDS_OF_UNITS[list(b"dhms")] = (86400, 3600, 60, 1)
_KINDS_OF_NUMBERS = {",": "commas", "+": "long", "~": "loose", "?": "unknown"}
_LONGEST = 15  # digits that a float holds exactly
_UNKNOWN = np.array([int.from_bytes(word, "little") for word in (b"nan", b"inf")], np.uint64)
_QUOTES = np.frombuffer(b"'\"", np.uint8)
_STRETCHES, _STRETCH = 32, 8
_MOSTLY, _OFTEN = 0.9, 0.6
_MODELS = 4
_FEW = 8  # times as many lines are searched as one
_MOST_WORD_PARTS = 8
_MOST_BAR_PARTS = 200
_BARS = np.uint64(0x7C7C7C7C7C7C7C7C)
_PERCENTS = np.uint64(0x2525252525252525)
_SPACE_TO_ZERO = np.uint64(0x1010101010101010)
_SKIPPED = {
    "*": np.uint64(0x2020202020202020), "'": np.uint64(0x2727272727272727), '"': np.uint64(0x2222222222222222),
}  # fmt: skip
_CLOCKS = {":": read_clock, ";": _read_duration, "@": _read_epoch}
_ONES = np.uint64(0x0101010101010101)
_MOST_SPACES = 40
_TIME = r"\d\d:\d\d:\d\d"
_MIDNIGHT = np.uint64(int.from_bytes(b"00:00:00", "little"))
_PAST_TIMES = np.uint64(0x76767F76767F7676)  # past nine of the digits, past nothing of the colons
_LONGEST_FRACTION = 7  # digits
_DAYS = np.array((0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31))  # a 29th of February is for the patterns


class _Date(NamedTuple):
    """How a date is written in front of a time of day."""

    shape: re.Pattern[bytes]
    year: int | None
    """Where each part begins; without a year it is 2000, as for the patterns."""
    month: int
    day: int
    marks: tuple[tuple[int, bytes], ...]
    """What stands between the parts, and behind them."""

    @property
    def width(self) -> int:
        return self.marks[-1][0]


_ISO = _Date(
    re.compile(rf"\d{{4}}[-/]\d\d[-/]\d\d[T ]{_TIME}".encode()), 0, 5, 8, ((4, b"-/"), (7, b"-/"), (10, b"T "))
)
_DATES = (  # the first that is found counts, as for the patterns
    _ISO,
    _Date(
        re.compile(rf"(?<![\d/])\d\d/\d\d/\d{{4}}[T ]{_TIME}".encode()), 6, 0, 3, ((2, b"/"), (5, b"/"), (10, b"T "))
    ),
    _Date(re.compile(rf"(?<![\d/])\d\d/\d\d {_TIME}".encode()), None, 0, 3, ((2, b"/"), (5, b" "))),
)


def stamps_in_front(block: Block, starts: Ints, begins: Ints) -> tuple[Mask, Floats | None]:
    """The clocks in front of the lines, which stand at the same place in all of them; lines with another do not fit."""
    if not len(starts):
        return np.zeros(0, bool), None
    prefix = block.octets[starts[0] : begins[0]].tobytes()
    date, found = next(((date, found) for date in _DATES if (found := date.shape.search(prefix))), (_ISO, None))
    if found is None:
        if stamp_of(prefix.decode("utf-8", "replace")) is not None:  # a clock of another form is for the patterns
            return np.zeros(len(starts), bool), None
        # A line whose prefix is longer may hold a clock: it is for the patterns too.
        return np.asarray(begins - starts == begins[0] - starts[0]), None
    at = starts + found.start()
    fits = at + len(found[0]) <= begins
    at = np.where(fits, at, at[0])  # a short last line would be read beyond its end
    clocks, ends, seconds = read_stamp(block, at, date)
    fits &= clocks & ~_goes_on(block, ends)
    return fits, seconds[fits]


def _goes_on(block: Block, ends: Ints) -> Mask:
    """Where a fraction is left that is longer than what is read at once."""
    mark = block.octets[ends]
    return np.asarray(((mark == ord(".")) | (mark == ord(","))) & (block.octets[ends + 1] - np.uint8(ord("0")) < 10))


def read_stamp(block: Block, at: Ints, date: _Date = _ISO) -> tuple[Mask, Ints, Floats]:
    """`2025-01-02 03:04:05`, with a fraction or without, in seconds since 1970, and where it ends."""
    fits, days = _read_dates(block, at, date)
    time = at + date.width + 1
    figures = block.words[time] ^ _MIDNIGHT
    fits &= (((figures + _PAST_TIMES) | figures) & _HIGH_BITS) == 0
    figures = figures * np.uint64(10) + (figures >> np.uint64(8))  # two digits in the byte of the first
    hour, minute, second = (((figures >> np.uint64(bits)) & np.uint64(0xFF)).astype(np.int64) for bits in (0, 24, 48))
    fits &= (hour <= 23) & (minute <= 59)
    seconds = (days + hour * 3600 + minute * 60 + np.minimum(second, 59)).astype(np.float64)
    end = time + 8
    mark = block.octets[end]
    fits &= mark - np.uint8(ord("0")) > 9
    pointed = (mark == ord(".")) | (mark == ord(","))
    if not pointed.any():
        return fits, end, seconds
    fraction, places = _read_digits(block, end + 1)
    pointed &= (places > 0) & (places <= _LONGEST_FRACTION)
    seconds = seconds + np.where(pointed, fraction / _TENS[np.minimum(places, 8)], 0.0)
    return fits, end + np.where(pointed, places + 1, 0), seconds


def _read_dates(block: Block, at: Ints, date: _Date) -> tuple[Mask, Ints]:
    """`2025-01-02 ` as seconds since 1970; lines that follow on each other mostly have the same."""
    first, last = block.words[at], block.words[at + max(date.width - 7, 0)]
    begins = np.flatnonzero(np.concatenate(([True], (first[1:] != first[:-1]) | (last[1:] != last[:-1]))))
    heads = at[begins[: len(at)]]
    fits = np.ones(len(heads), bool)
    for offset, allowed in date.marks:
        octets = block.octets[heads + offset]
        fits &= (octets == allowed[0]) | (octets == allowed[-1])
    parts = [np.full(len(heads), 2000)]
    for place, length in ((date.year, 4), (date.month, 2), (date.day, 2)):
        if place is not None:
            value, count = _read_digits(block, heads + place)
            fits &= count == length
            parts.append(value.astype(np.int64))
    year, month, day = parts[-3:]
    fits &= (month >= 1) & (month <= 12) & (day >= 1) & (day <= _DAYS[np.minimum(month, 12)])
    lengths = np.diff(np.append(begins[: len(at)], len(at)))
    return np.repeat(fits, lengths), np.repeat(_days_of(year, month, day) * 86400, lengths)


def _days_of(year: Ints, month: Ints, day: Ints) -> Ints:
    """Since 1970, by the usual shift of the year to March."""
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    return np.asarray(era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468)


def skip_literal(block: Block, cursor: Ints, literal: bytes) -> tuple[Mask, Ints]:
    fits = _has(block, cursor, literal[:8])
    if len(literal) > 8:  # which may be longer than a small block
        cursor = np.where(fits, cursor, 0)
        for begin in range(8, len(literal), 8):
            fits &= _has(block, np.minimum(cursor + begin, len(block.words) - 1), literal[begin : begin + 8])
    return fits, cursor + (len(literal) if fits.all() else len(literal) * fits)


def _has(block: Block, cursor: Ints, letters: bytes) -> Mask:
    """Whether these letters, at most eight, are there."""
    words, wanted = block.words[cursor], np.uint64(int.from_bytes(letters, "little"))
    if len(letters) < 8:
        words = words & np.uint64((1 << (8 * len(letters))) - 1)
    return np.asarray(words == wanted)


def read_number(
    block: Block, cursor: Ints, *, commas: bool = False, long: bool = False, loose: bool = False, unknown: bool = False
) -> tuple[Mask, Ints, Floats]:
    """A decimal number of at most seven digits on either side of the point, `E+00` after it; no other fits.

    A long one may have 15 digits in all; a loose one any number of decimals; an unknown one may be nan or inf.
    """
    begin = cursor
    negative = block.octets[cursor] == ord("-")
    cursor = cursor + negative
    whole, count = _read_digits(block, cursor, long=long)
    most = _LONGEST if long else 7
    fits = (count > 0) & (count <= most)
    cursor = cursor + count
    while commas:
        more, three = _read_digits(block, cursor + 1)
        group = (block.octets[cursor] == ord(",")) & (three == 3) & fits & (count <= 3) & (whole > 0)
        if not group.any():
            break
        whole = np.where(group, whole * 1000 + more, whole)
        cursor = cursor + 4 * group
    point = (block.octets[cursor] == ord(".")) & fits
    value: Floats = whole
    places: Ints = np.zeros(len(cursor), np.int64)
    pointed = bool(point.any())
    if pointed:
        cursor = cursor + point
        fraction, places = _read_digits(block, cursor, long=long)
        places = np.where(point, places, 0)
        fits &= ((places <= most - count * long) | loose) & (point <= (places > 0))
        value = np.asarray(whole * _TENS[places] + np.where(point, fraction, 0.0))
        cursor = cursor + places
        further = places
        while loose and bool((further == 8).any()):
            further = np.where(further == 8, _read_digits(block, cursor)[1], 0)
            cursor = cursor + further
    power = block.octets[cursor] == ord("E")
    powers = bool(power.any())
    if powers:
        exponent, digits = _read_digits(block, cursor + 2)
        sign = block.octets[cursor + 1]
        power &= (digits == 2) & ((sign == ord("+")) | (sign == ord("-")))
        shift = np.where(power, np.where(sign == ord("-"), exponent, -exponent), 0.0).astype(np.int64)
        cursor, places = cursor + 4 * power, places + shift
    if pointed or powers:
        # One division or product of whole numbers: the result is the one nearest to the decimal, as float() gives.
        fits &= np.abs(places) < len(_TENS)
        down, up = np.clip(places, 0, len(_TENS) - 1), np.clip(-places, 0, len(_TENS) - 1)
        value = value / _TENS[down] * _TENS[up]
    if negative.any():
        value = np.where(negative, -value, value)
    if unknown and not fits.all():
        fits, cursor, value = _with_unknown(block, begin, fits, cursor, value)
    return fits, cursor, value


def _with_unknown(block: Block, begin: Ints, fits: Mask, cursor: Ints, value: Floats) -> tuple[Mask, Ints, Floats]:
    """`nan`, `inf`, with a sign or without, are inf."""
    sign = block.octets[begin]
    signed = (sign == ord("-")) | (sign == ord("+"))
    word = block.words[begin + signed] & np.uint64(0xFFFFFF)
    named = ~fits & np.isin(word, _UNKNOWN)
    return fits | named, np.where(named, begin + signed + 3, cursor), np.where(named, np.inf, value)


def _read_digits(block: Block, cursor: Ints, *, long: bool = False) -> tuple[Floats, Ints]:
    """The digits at the cursor as one number, and how many there are (8, long 16: at least so many)."""
    value, count = _read_eight(block, cursor)
    full = np.flatnonzero(count == 8) if long else ()
    if len(full):
        more, further = _read_eight(block, cursor[full] + 8)
        value[full] = value[full] * _TENS[further] + more
        count[full] += further
    return value, count


def _read_eight(block: Block, cursor: Ints) -> tuple[Floats, Ints]:
    word = block.words[cursor] ^ _ZEROS
    past = ((word + _PAST_NINE) | word) & _HIGH_BITS  # the high bit of every byte that is no digit
    first = past & (~past + np.uint64(1))
    count = np.bitwise_count(first - np.uint64(1)) >> 3
    shift = (8 - count.astype(np.uint64)) << np.uint64(3)
    word = np.where(count > 0, word << (shift & np.uint64(63)), 0)
    word = (word * np.uint64(2561)) >> np.uint64(8)
    word = ((word & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601)) >> np.uint64(16)
    word = ((word & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001)) >> np.uint64(32)
    return word.astype(np.float64), count.astype(np.int64)
