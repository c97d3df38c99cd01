"""A growing file and a pipe: nothing that was written is lost, whatever happens to the file."""

from __future__ import annotations

import codecs
import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwatch.errors import UnreadableInput
from stepwatch.sources import normalise
from stepwatch.sources.follow import GrowingFile, GrowingPipe, NewText
from stepwatch.sources.stored import LONGEST_HALF_LINE, LineSplitter


class Nap:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.naps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "train.log"


@pytest.fixture
def growing(log: Path) -> Iterator[GrowingFile]:
    nap = Nap()
    file = GrowingFile(log, sleep=nap.sleep, clock=nap)
    yield file
    file.close()


def append(log: Path, text: bytes) -> None:
    with log.open("ab") as stream:
        stream.write(text)


def read_on(growing: GrowingFile) -> bytes:
    """All that there is now."""
    text = b""
    while (piece := growing.poll(0)).text or piece.more or piece.anew:
        text += piece.text
    return text


def test_a_file_that_is_not_there_yet_is_waited_for(log: Path, growing: GrowingFile) -> None:
    assert growing.poll(0) == NewText()
    append(log, b"iter 0: loss 1\n")
    assert growing.poll(0).text == b"iter 0: loss 1\n"


def test_only_what_is_new_is_given(log: Path, growing: GrowingFile) -> None:
    append(log, b"one\n")
    assert read_on(growing) == b"one\n"
    append(log, b"two\nthree\n")
    assert read_on(growing) == b"two\nthree\n"
    assert growing.poll(0).text == b""


def test_half_a_line_waits_for_its_other_half(log: Path, growing: GrowingFile) -> None:
    append(log, b"iter 0: loss 1, ti")
    assert read_on(growing) == b""
    append(log, b"me 5ms\niter 1: lo")
    assert read_on(growing) == b"iter 0: loss 1, time 5ms\n"
    assert growing.rest() == b"iter 1: lo\n"


def test_a_rotated_log_is_read_to_its_end_and_then_the_new_one(log: Path, growing: GrowingFile) -> None:
    append(log, b"one\n")
    read_on(growing)
    append(log, b"two, before the move\n")
    log.rename(log.with_suffix(".log.1"))
    append(log.with_suffix(".log.1"), b"three, after it\n")
    append(log, b"four, in the new one\n")
    assert read_on(growing) == b"two, before the move\nthree, after it\nfour, in the new one\n"


def test_a_log_that_was_moved_away_goes_on_growing(log: Path, growing: GrowingFile) -> None:
    append(log, b"one\n")
    read_on(growing)
    log.rename(log.with_suffix(".old"))
    append(log.with_suffix(".old"), b"two\n")
    assert read_on(growing) == b"two\n"


def test_a_cut_log_is_read_from_its_new_beginning(log: Path, growing: GrowingFile) -> None:
    append(log, b"a long first line\n")
    read_on(growing)
    log.write_bytes(b"short\n")
    piece = growing.poll(0)
    assert (piece.text, piece.anew) == (b"short\n", True)


def test_a_log_that_was_cut_and_has_grown_beyond_its_old_end_is_noticed(log: Path, growing: GrowingFile) -> None:
    append(log, b"old\n")
    read_on(growing)
    with log.open("r+b") as stream:  # the same file, as with `>` of a shell
        stream.truncate()
        stream.write(b"new, and longer than what was there\n")
    os.utime(log, ns=(0, 1))
    piece = growing.poll(0)
    assert (piece.text, piece.anew) == (b"new, and longer than what was there\n", True)


def test_half_a_line_before_a_cut_is_not_glued_to_what_follows(log: Path, growing: GrowingFile) -> None:
    append(log, b"whole\nhalf")
    read_on(growing)
    log.write_bytes(b"new\n")
    assert read_on(growing) == b"half\nnew\n"


def test_a_long_log_comes_in_pieces(log: Path, growing: GrowingFile) -> None:
    line = b"x" * 99 + b"\n"
    append(log, line * 30_000)
    assert growing.poll(0).more
    assert read_on(growing).count(b"\n") + 10_485 == 30_000


def test_the_age_is_that_of_the_last_write(log: Path, growing: GrowingFile) -> None:
    append(log, b"one\n")
    os.utime(log, (999_000.0, 999_000.0))
    assert growing.poll(0).age_s == 1000.0


def test_polling_sleeps_on_the_clock_it_was_given(log: Path) -> None:
    nap = Nap()
    GrowingFile(log, sleep=nap.sleep, clock=nap).poll(0.5)
    assert nap.naps == [0.5]


def test_a_directory_and_a_compressed_log_are_refused(tmp_path: Path, log: Path, growing: GrowingFile) -> None:
    with pytest.raises(UnreadableInput, match="is a directory"):
        GrowingFile(tmp_path).poll(0)
    log.write_bytes(gzip.compress(b"iter 0: loss 1\n"))
    with pytest.raises(UnreadableInput, match="compressed"):
        growing.poll(0)


# --- lines out of bytes -----------------------------------------------------------------------------------------

TEXT = "iter 0: loss 1,5 — time 5ms\r\nümläut\n\x1b[31mred\x1b[0m\n10 %\r20 %\rdone\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "latin-1"])
@given(st.lists(st.integers(1, 9)))
def test_bytes_in_any_pieces_give_the_same_lines(encoding: str, sizes: list[int]) -> None:
    data = (TEXT * 3).encode(encoding, "replace")
    lines, got, place = LineSplitter(), b"", 0
    for size in sizes:
        got += lines.feed(data[place : place + size])
        place += size
    got += lines.feed(data[place:]) + lines.end()
    assert got == normalise(data)


@given(st.binary(max_size=300), st.integers(0, 300))
def test_no_bytes_are_an_error(data: bytes, cut: int) -> None:
    lines = LineSplitter()
    text = lines.feed(data[:cut]) + lines.feed(data[cut:]) + lines.end()
    assert b"\r" not in text
    assert b"\x1b[" not in text


def test_a_line_without_an_end_takes_no_more_than_its_share_of_memory() -> None:
    lines = LineSplitter()
    for _ in range(100):
        assert lines.feed(b"x" * 10_000) == b""
    assert len(lines.end()) <= LONGEST_HALF_LINE + 1


def test_a_text_begins_anew_after_its_end() -> None:
    lines = LineSplitter()
    lines.feed("one\n".encode("utf-16"))
    lines.end()
    assert lines.feed(codecs.BOM_UTF8 + b"two\n") == b"two\n"


# --- pipes ------------------------------------------------------------------------------------------------------


def test_a_pipe_gives_its_lines_and_its_end_and_passes_every_byte_on() -> None:
    reading, writing = os.pipe()
    passed = bytearray()
    text = b""
    with os.fdopen(reading, "rb") as stream:
        pipe = GrowingPipe(stream, tee=passed.extend)
        os.write(writing, b"one\r\ntw")
        os.write(writing, b"o\nhalf")
        os.close(writing)
        while not (piece := pipe.poll(5)).ended:
            text += piece.text
    assert text + piece.text + pipe.rest() == b"one\ntwo\nhalf\n"
    assert bytes(passed) == b"one\r\ntwo\nhalf"


def test_whoever_reads_on_may_go_away() -> None:
    reading, writing = os.pipe()

    def gone(data: bytes) -> None:
        raise BrokenPipeError

    with os.fdopen(reading, "rb") as stream:
        pipe = GrowingPipe(stream, tee=gone)
        os.write(writing, b"one\n")
        assert pipe.poll(5).ended
    os.close(writing)


def test_a_read_that_fails_in_passing_loses_nothing(
    log: Path, growing: GrowingFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, b"one\n")
    assert read_on(growing) == b"one\n"
    append(log, b"two\n")
    with monkeypatch.context() as away:
        away.setattr("os.stat", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        assert growing.poll(0.0).text == b""
    assert read_on(growing) == b"two\n"
