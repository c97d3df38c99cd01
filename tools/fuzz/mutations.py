"""Damages an input by structure and by byte, using nothing but a random number generator."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

NUMBERS = (
    b"0", b"-1", b"1", b"nan", b"inf", b"-inf", b"NaN", b"1e308", b"-1e308", b"1e-308", b"9007199254740993", b"99099000000",
    b"9223372036854775807", b"-9223372036854775808", b"18446744073709551616", b"1" * 40, b"9" * 400, b"0." + b"0" * 60 + b"1",
    b"1e400", b"1e-400", b"-0", b"-0.0", b"+5", b"1,234,567", b"1.234,5", b"1_000", b"0x10", b"1e", b".", b"--3",
    b"999999999999", b"0.0000001", b"604801", b"31536000000", b"2147483648", b"4294967296", b"1e15", b"-273.15", b"007", b"",
    "١٢٣".encode(), "१२३".encode(), "１２３".encode(), "²".encode(), "Ⅷ".encode(), "𝟗".encode(),
)  # fmt: skip
_NUMBER = re.compile(rb"[-+]?\d[\d,_]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORDS = (
    b"\r",
    b"\x00",
    b"\x1b[31m",
    b"\t",
    b"|",
    b"]",
    b"}",
    b"{",
    b'"',
    b"\xff\xfe",
    b"\n",
    b"\x08",
    b"%|",
    b"<",
    b"loss",
    b"=",
    "é".encode(),
)
_SIZES = (  # bytes, and the share of inputs up to that size: most faults show in a few lines
    (2_000, 0.85),
    (28_000, 0.14),  # the median of the real logs
    (400_000, 0.0095),
    (5_000_000, 0.0005),
)
_SMALLEST = 200


def excerpt(data: bytes, random: Random) -> bytes:
    """The beginning and a later stretch, as people paste them: long logs take long, and show little more."""
    largest = random.choices([size for size, _ in _SIZES], [share for _, share in _SIZES])[0]
    size = int(_SMALLEST * (largest / _SMALLEST) ** random.random())
    if len(data) <= size:
        return data
    head = data[: data.find(b"\n", random.randrange(min(size, 4000))) + 1][:size]
    begin = data.find(b"\n", random.randrange(len(data) - size + 1)) + 1
    return head + data[begin : begin + size - len(head)]


def mutated(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """An excerpt with a few faults."""
    data = excerpt(data, random)
    for _ in range(random.choice((1, 1, 2, 3, 5, 9))):
        data = random.choices(_FAULTS, _WEIGHTS)[0](data, others, random)
    return data


def _lines_changed(
    change: Callable[[list[bytes], Random], list[bytes]],
) -> Callable[[bytes, Sequence[bytes], Random], bytes]:
    return lambda data, others, random: b"\n".join(change(data.split(b"\n"), random))


def _cut(lines: list[bytes], random: Random) -> list[bytes]:
    begin = random.randrange(len(lines))
    return lines[:begin] + lines[begin + random.randrange(1, len(lines) + 1) :]


def _doubled(lines: list[bytes], random: Random) -> list[bytes]:
    begin = random.randrange(len(lines))
    end = min(begin + random.randrange(1, 40), len(lines))
    return lines[:end] + lines[begin:end] * random.choice((1, 1, 1, 5)) + lines[end:]


def _swapped(lines: list[bytes], random: Random) -> list[bytes]:
    for _ in range(random.choice((1, 3, 10))):
        a, b = random.randrange(len(lines)), random.randrange(len(lines))
        lines[a], lines[b] = lines[b], lines[a]
    return lines


def _cut_short(lines: list[bytes], random: Random) -> list[bytes]:
    row = random.randrange(len(lines))
    lines[row] = lines[row][: random.randrange(len(lines[row]) + 1)]
    return lines


def _joined(lines: list[bytes], random: Random) -> list[bytes]:
    row = random.randrange(len(lines))
    return [*lines[:row], b"".join(lines[row : row + 2]), *lines[row + 2 :]]


def _reversed(lines: list[bytes], random: Random) -> list[bytes]:
    begin = random.randrange(len(lines))
    end = begin + random.randrange(2, 60)
    return lines[:begin] + lines[begin:end][::-1] + lines[end:]


def _spliced(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    lines, other = data.split(b"\n"), excerpt(random.choice(others), random).split(b"\n")
    begin, place = random.randrange(len(other)), random.randrange(len(lines) + 1)
    return b"\n".join(lines[:place] + other[begin : begin + random.choice((1, 3, 40))] + lines[place:])


def _other_number(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    found = [match.span() for match in _NUMBER.finditer(data)]
    for begin, end in sorted(random.sample(found, min(len(found), random.choice((1, 1, 2, 5)))), reverse=True):
        data = data[:begin] + _changed(data[begin:end], random) + data[end:]
    return data


def _column_of_numbers(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Changes the same place in every line, as a broken trainer prints it throughout."""
    place, new, keep = random.randrange(8), random.choice(NUMBERS), random.random() * random.choice((0, 1))
    lines = data.split(b"\n")
    for row, line in enumerate(lines):
        found = [match.span() for match in _NUMBER.finditer(line)]
        if place < len(found) and random.random() >= keep:
            begin, end = found[place]
            lines[row] = line[:begin] + (new or _changed(line[begin:end], random)) + line[end:]
    return b"\n".join(lines)


def _changed(number: bytes, random: Random) -> bytes:
    """Impossible or at least unusual: an input that is refused at once tests nothing further."""
    how = random.randrange(8)
    if how >= 6:
        return b"%g" % 10 ** random.uniform(-9, 12)
    if how == 5:
        return b"%d" % 10 ** random.uniform(0, 12)
    if how == 0:
        return b"-" + number
    if how == 1:
        return number + b"0" * random.choice((1, 3, 9, 18, 300))
    if how == 2:
        return b"0" * len(number)
    return random.choice(NUMBERS)


def bytes_changed(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 2, 8, 40))):
        if changed:
            changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def _word_put_in(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + random.choice(_WORDS) * random.choice((1, 1, 2, 50)) + data[place:]


def _ended_early(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _other_encoding(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    return data.decode("utf-8", "replace").encode(
        random.choice(("utf-16", "utf-16-le", "utf-32", "latin-1")), "replace"
    )


def same_length(data: bytes, random: Random) -> bytes:
    """Replaces a number by one of the same length, for data that also contains lengths."""
    found = [match.span() for match in _NUMBER.finditer(data)]
    if found:
        begin, end = random.choice(found)
        other = random.choice((b"9", b"0", b"-", b"1e9")).ljust(end - begin, b"9")[: end - begin]
        data = data[:begin] + other + data[end:]
    return data


LINES_CHANGED = (_cut, _doubled, _swapped, _joined, _reversed)
_FAULTS, _WEIGHTS = zip(
    (_lines_changed(_cut), 3), (_lines_changed(_doubled), 3), (_lines_changed(_swapped), 3), (_lines_changed(_cut_short), 2),
    (_lines_changed(_joined), 2), (_lines_changed(_reversed), 1), (_spliced, 4), (_other_number, 8), (_column_of_numbers, 5),
    (lambda data, others, random: bytes_changed(data, random), 2), (_word_put_in, 2), (_ended_early, 2), (_other_encoding, 0.2), strict=True,
)  # fmt: skip


def mutated_text(text: str, random: Random) -> str:
    """A config, an assignment or a claim with other numbers, or with other bytes."""
    data = text.encode()
    for _ in range(random.choice((1, 1, 2, 4))):
        how = random.randrange(8)
        if how < 5:
            data = _other_number(data, (), random)
        elif how == 5:
            data = bytes_changed(data, random)
        else:
            data = random.choice((_word_put_in, _ended_early))(data, (), random)
    return data.decode("utf-8", "replace")
