"""Damage to an input, by structure and by byte, from a generator of random numbers alone."""

from __future__ import annotations

import bz2
import gzip
import lzma
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
FULL_SIZE, LONG_SHARE = 0.002, 0.01  # of the inputs
SMALLEST, MEDIAN, LONG = 400, 28_000, 400_000  # bytes: a few lines, the median of the real logs, some thousand lines


def excerpt(data: bytes, random: Random) -> bytes:
    """The beginning, and a stretch further on, as people paste them: long logs take long, and show little more."""
    size = int(SMALLEST * (MEDIAN / SMALLEST) ** random.random()) if random.random() > LONG_SHARE else LONG
    if len(data) <= size or random.random() < FULL_SIZE:
        return data
    if b"\0" in data[:1000]:  # binary: of no use without its beginning
        return data[:LONG]
    head = data[: data.find(b"\n", random.randrange(min(size, 4000))) + 1][:size]
    begin = data.find(b"\n", random.randrange(len(data) - size + 1)) + 1
    return head + data[begin : begin + size - len(head)]


def mutated(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """An excerpt with a few faults; sometimes packed, sometimes cut."""
    data = excerpt(data, random)
    for _ in range(random.choice((1, 1, 2, 3, 5, 9))):
        data = random.choices(_FAULTS, _WEIGHTS)[0](data, others, random)
    if random.random() < 0.04:
        data = _packed(data, random)
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
    """The same place in every line: what a trainer that is broken prints throughout."""
    place, new, keep = random.randrange(8), random.choice(NUMBERS), random.random() * random.choice((0, 1))
    lines = data.split(b"\n")
    for row, line in enumerate(lines):
        found = [match.span() for match in _NUMBER.finditer(line)]
        if place < len(found) and random.random() >= keep:
            begin, end = found[place]
            lines[row] = line[:begin] + (new or _changed(line[begin:end], random)) + line[end:]
    return b"\n".join(lines)


def _changed(number: bytes, random: Random) -> bytes:
    how = random.randrange(5)
    if how == 0:
        return b"-" + number
    if how == 1:
        return number + b"0" * random.choice((1, 3, 9, 18, 300))
    if how == 2:
        return b"0" * len(number)
    return random.choice(NUMBERS)


def _bytes_changed(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
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


def _packed(data: bytes, random: Random) -> bytes:
    packs = [gzip.compress, bz2.compress, lambda data: lzma.compress(data, preset=0)]
    try:
        from compression import zstd  # Python 3.14
    except ImportError:
        try:
            import zstandard

            packs.append(zstandard.ZstdCompressor().compress)
        except ImportError:
            pass
    else:
        packs.append(zstd.compress)
    packed = random.choice(packs)(data)
    how = random.randrange(3)
    if how == 0:
        packed = packed[: random.randrange(len(packed))]
    return packed if how == 1 else _bytes_changed(packed, (), random)


_FAULTS, _WEIGHTS = zip(
    (_lines_changed(_cut), 3), (_lines_changed(_doubled), 3), (_lines_changed(_swapped), 3), (_lines_changed(_cut_short), 2),
    (_lines_changed(_joined), 2), (_lines_changed(_reversed), 1), (_spliced, 4), (_other_number, 8), (_column_of_numbers, 5),
    (_bytes_changed, 2), (_word_put_in, 2), (_ended_early, 2), (_other_encoding, 0.2), strict=True,
)  # fmt: skip


def mutated_text(text: str, random: Random) -> str:
    """A config, an assignment or a claim with other numbers, or with other bytes."""
    data = text.encode()
    for _ in range(random.choice((0, 1, 1, 2, 4))):
        data = random.choice((_other_number, _other_number, _other_number, _bytes_changed, _word_put_in, _ended_early))(
            data, (), random
        )
    return data.decode("utf-8", "replace")
