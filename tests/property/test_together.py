"""Lines that are alike are read together as they are read one by one."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from random import Random

import numpy as np
import pytest
from benchmarks.mixed_lines import EVENTS
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tools.formats_page import example_of

from stepwatch.readers.formats import reader_of
from stepwatch.readers.records import Records
from stepwatch.readers.text.block import Block, read_cells, read_floats
from stepwatch.readers.text.clocks import Prefix
from stepwatch.readers.text.line import stamp_of, strip_prefix
from stepwatch.run import COLUMNS, Fact

CLOCKS = (  # one of each form
    "%Y-%m-%d %H:%M:%S,{ms} - INFO - ", "%Y-%m-%dT%H:%M:%S.{ms}000000Z ", "%Y-%m-%d %I:%M:%S %p - ",
    "[%Y/%m/%d %H:%M:%S+02:00] ", "%m/%d/%Y %H:%M:%S - INFO - a.b -   ", "[%m/%d/%y %H:%M:%S] INFO     ",
    "[%m.%d.%y|%H:%M:%S] ", "[%m/%d %H:%M:%S a.b]: ", "I%m%d %H:%M:%S.{ms}000 {n} a.py:12] ",
    "%b %d %H:%M:%S host a[12]: ", "%a %b %d %H:%M:%S %Y ", "%H:%M:%S ", "[%H:%M:%S.{ms}] ", "%I:%M:%S %p ",
    "{epoch:.3f} ", "[{epoch:.0f}] ",
)  # fmt: skip
PREFIXES = ("", "", "[rank{n}]:", "{n}: ", *CLOCKS)
SAMPLES = {"rate", "drawn", "full", "samples"}  # kept of lines that are read together only
ODD_NUMBERS = ("0", "1", "100", "12345678901", "1234567890123456789", "7.5", "nan", "-3", "1e-05", "007", "")


def a_log(name: str, seed: int, oddness: float) -> bytes:
    """Lines of a format in any order, with other numbers; some of them are none that the trainer would write."""
    random = Random(seed)
    shapes = [*example_of(name).split("\n"), *(event.written(100) for event in EVENTS[name])]
    prefix = random.choice(PREFIXES)
    written = []
    for number in range(80):
        line = re.sub(r"\d+", lambda digits: _other(digits[0], random, oddness), random.choice(shapes))
        written.append(_in_front(prefix, number, random, oddness) + line)
    return "\n".join(written).encode() + b"\n"


def _in_front(prefix: str, number: int, random: Random, oddness: float) -> str:
    """Through midnight, at times with the clock of the line before; where there is oddness, also damaged or missing."""
    clock = datetime(2026, 1, 2, 23, 59, 20, tzinfo=UTC) + timedelta(seconds=number // 2 * 2, milliseconds=number)
    told = clock.strftime(prefix.format(n=number % 60, ms=f"{number:03}", epoch=clock.timestamp()))
    damage = random.random()
    if damage < oddness / 2 and told:
        place = random.randrange(len(told))
        return told[:place] + random.choice("0123456789-/:. Tx") + told[place + 1 :]
    return "" if damage < oddness else told


def _other(digits: str, random: Random, oddness: float) -> str:
    if random.random() < oddness:
        return random.choice(ODD_NUMBERS)
    return "".join(random.choice("0123456789") for _ in digits) if random.random() < 0.8 else digits


def told(name: str, text: bytes) -> tuple[object, ...]:
    """All that a reader finds, before it is divided into runs; of facts each only once."""
    records = Records()
    reader_of(name).parse(text, 0, records)
    rows = records.iterations()
    events = [repr(event) for event in records.sorted_events() if not isinstance(event, Fact)]
    facts = {(event.name, repr(event.value), event.header) for event in records.events if isinstance(event, Fact)}
    columns = tuple(np.asarray(getattr(rows, name), np.float64).tobytes() for name in COLUMNS)
    names = sorted((records.tables.keys() | records.table_rows.keys()) - SAMPLES)
    tables = {name: records.table(name, records._width(name)).tobytes() for name in names}
    return columns, events, facts, list(map(repr, records.unplaced)), tables, records.unread, records.unread_lines


@pytest.mark.parametrize("name", EVENTS)
@given(seed=st.integers(0, 2**32), oddness=st.sampled_from((0.0, 0.0, 0.02, 0.2)))
@settings(max_examples=max(settings().max_examples // len(EVENTS), 4))  # of each of many formats
def test_together_as_one_by_one(name: str, seed: int, oddness: float) -> None:
    text = a_log(name, seed, oddness)
    assert told(name, text) == one_by_one(name, text)


def one_by_one(name: str, text: bytes) -> tuple[object, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stepwatch.readers.text.shape._model", lambda *_: None)
        return told(name, text)


@given(st.lists(st.floats(-1e6, 1e6) | st.floats(-1e6, 1e6, width=32), min_size=1, max_size=50))
def test_long_decimals_are_read_to_the_last_bit(values: list[float]) -> None:
    text = ",".join(map(repr, values)).encode()
    edges = [-1, *(place for place, letter in enumerate(text) if letter == ord(",")), len(text)]
    begins, ends = np.array(edges[:-1]) + 1, np.array(edges[1:])
    assert read_floats(Block.of(text), begins, ends).tolist() == values


CELLS = st.sampled_from(("", "1", "2.5", "7.628580570220947", "nan", "-3", "1e-05", "inf"))


@given(st.lists(st.lists(CELLS, min_size=4, max_size=4), min_size=1, max_size=20), st.booleans())
def test_a_table_at_once_as_cell_by_cell(rows: list[list[str]], odd: bool) -> None:
    text = "\n".join([*map(",".join, rows), *(["a,b,c,d", "1,2", " 1,2,3,4 "] if odd else [])]).encode()
    at_once = read_cells(text, 4, range(4))
    assert (at_once is None) is odd
    if at_once is not None:
        cells = [[float(cell or "nan") for cell in row] for row in rows]
        assert np.array_equal(at_once, cells, equal_nan=True)


_CLOCKS = st.datetimes(datetime(1970, 1, 1), datetime(2999, 12, 31))
_AFTER = st.sampled_from(["", " - INFO", ",5", ".25", ",119", ".123456", ".", ",x", "7", ":", "Z", " PM", " AMx"])
Written = tuple[datetime, str, str, tuple[int, int] | None]
_DAMAGE = st.none() | st.tuples(st.integers(0, 18), st.sampled_from(b"0123456789-/:; Tx\xff"))


@pytest.mark.parametrize("fraction", ["", ",119", ".123456789"])
@example([(datetime(2025, 3, 1 + day, 23, 59), "-", "", None) for day in (0, 0, 1, 1, 0)])
@example([(datetime(2025, month, 1), "-", ",119", None) for month in (1, 1, 2, 11)])
@example([(datetime(2024, 2, 29), "-", "", None), (datetime(2024, 2, 29), "-", "", (3, ord("3")))])
@example([(datetime(2025, 3, 1, 23, 5), "-", "", damage) for damage in ((12, ord("4")), (14, ord("6")), None)])
@given(clocks=st.lists(st.tuples(_CLOCKS, st.sampled_from("-/"), _AFTER, _DAMAGE), min_size=1))
def test_clocks_of_many_lines_are_those_of_each(fraction: str, clocks: list[Written]) -> None:
    """Also where a byte of one is another; the lines of a day are read together, those of two days are not."""
    lines = [_written(f"%Y{written[1]}%m{written[1]}%d %H:%M:%S", written) for written in clocks]
    block = Block.of(b"\n".join(lines))
    fits, _, seconds = Prefix("2025-01-01 00:00:00" + fraction).skip(block, np.arange(len(lines)))
    assert seconds is not None
    read = dict(zip(fits.tolist(), seconds.tolist(), strict=True))
    form = re.compile(_CLOCK + re.sub(rb"\d", rb"\\d", re.escape(fraction.encode())) + rb")(?![\w:.]|,\d| [AP]M\b)")
    for place, line in enumerate(lines):
        found = form.match(line)
        expected = None if found is None else _moment(found)
        assert read.get(place) == expected


def _written(form: str, written: Written) -> bytes:
    clock, _, after, damage = written
    line = bytearray((clock.strftime(form) + after).encode())
    if damage is not None:
        line[damage[0] % len(line)] = damage[1]
    return bytes(line)


FORMS = (
    "%Y-%m-%d %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%m/%d/%y %H:%M:%S", "%m.%d.%y|%H:%M:%S", "%m/%d %H:%M:%S",
    "[%m/%d %H:%M:%S a.b]:", "I%m%d %H:%M:%S", "%b %d %H:%M:%S", "%a, %b %d %H:%M:%S", "%H:%M:%S", "[%I:%M:%S %p]",
    "%I:%M:%S %p", "1%d%H%M%S0", "1%d%H%M%S0.%f",
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@example([(datetime(2025, 3, 1 + day, 23, 59), "", "", None) for day in (0, 0, 1, 1, 0)])
@example([(datetime(2025, 3, 1, 23, 5), "", ".123456789", None)])
@given(clocks=st.lists(st.tuples(_CLOCKS, st.just(""), _AFTER, _DAMAGE), min_size=1, max_size=20))
def test_clocks_in_front_of_a_block_are_those_of_each_line(form: str, clocks: list[Written]) -> None:
    lines = [_written(form, written) + b" step 7" for written in clocks]
    text = b"\n".join(lines)
    _, prefix = strip_prefix(lines[0].decode("latin-1"))
    block = Block.of(text)
    if not prefix.isascii():
        return
    fits, begins, stamps = Prefix(prefix).skip(block, np.arange(len(lines)))
    read = [None] * len(fits) if stamps is None else stamps.tolist()
    for place, begin, stamp in zip(fits.tolist(), begins.tolist(), read, strict=True):
        rest, own = strip_prefix(lines[place].decode("latin-1"))  # which may be longer than that of the others
        assert text[begin : block.ends[place]].endswith(rest.encode("latin-1"))
        if stamps is not None or own == prefix:
            assert stamp == stamp_of(own)


_CLOCK = rb"(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)("


def _moment(found: re.Match[bytes]) -> float | None:
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    try:
        whole = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError:
        return None
    return whole.timestamp() + float(b"0." + found[7][1:] or b"0")


# --- nanoGPT, whose lines may be broken in two ---------------------------------------------------------------------

_FORKS = ("", ", tokens/s 1234.5", ", tok/s: 1,234.5", ", gpu 3%", ", tokens/s 12, tok/s 14", ", 12 tokens/s")
_SAVES = (
    "saving checkpoint to out",
    "saving checkpoint to out/ckpt_10.pt",
    "saving checkpoint to x/s",
    "Saving checkpoint",
)
_AFTER = ("", "96", "iter", "noise", "  ", "step")


def a_nanogpt_log(seed: int) -> bytes:
    random = Random(seed)
    prefix, fork = random.choice(PREFIXES), random.choice(_FORKS)
    oddness = random.choice((0.0, 0.02))
    written = []
    for number in range(120):
        more = fork if random.random() < 0.95 else ""
        loss, mfu = random.random() * 5, random.random() * 40
        written.append(f"iter {number}: loss {loss:.4f}, time {number % 7 + 90:.2f}ms, mfu {mfu:.2f}%{more}")
        if random.random() < 0.3:
            val = random.choice(("nan", "inf", "1.2", "3.4567", "2.", "-1.5"))
            evaluation = f"step {number}: train loss {random.random():.4f}, val loss {val}"
            cut = random.randint(5, len(evaluation))
            written += [evaluation] if random.random() < 0.8 else [evaluation[:cut], evaluation[cut:]]
        written += random.sample(_SAVES, random.random() < 0.3) + random.sample(_AFTER, random.random() < 0.1)
    lines = (_in_front(prefix, number, random, oddness) + line for number, line in enumerate(written))
    return "\n".join(lines).encode() + b"\n"


@given(st.integers(0, 10**6))
def test_nanogpt_is_read_together_as_line_by_line(seed: int) -> None:
    text = a_nanogpt_log(seed)
    assert told("nanogpt", text) == one_by_one("nanogpt", text)
