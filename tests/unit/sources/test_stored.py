"""A long log stays in its file, and gives what it would give in memory."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.builders import Truth, a_log

from stepwatch.answers.from_logs import ExplainRequest, explain
from stepwatch.errors import NoIterations, TooLarge
from stepwatch.presenters import View, render
from stepwatch.readers import detect, read, records
from stepwatch.readers.refusals import fault_of
from stepwatch.sources import Source, contents, from_file, from_stdin, normalise, stored
from stepwatch.sources.stored import StoredText

LOG = a_log(Truth(max_iters=4000, log_interval=1, eval_interval=500, stall_share=0.01))
OTHER = "".join(
    f"step {n:4d}/500 | loss 4.{n:06d} (+0.1z)| norm 0.7 (+0.1z)| lr 1.0e-04 | 250.0 ms | 40.0% bf16 MFU | 2000 tok/s\n"
    for n in range(1, 60)
)
DRESSES: dict[str, Callable[[str], bytes]] = {
    "plain": str.encode,
    "crlf": lambda log: log.replace("\n", "\r\n").encode(),
    "no last end": lambda log: log.rstrip("\n").encode(),
    "colours": lambda log: log.replace("iter", "\x1b[32miter").encode(),
    "utf-16": lambda log: log.encode("utf-16"),
    "gzip": lambda log: gzip.compress(log.encode()),
    "xz": lambda log: lzma.compress(log.encode()),
    "bzip2 of utf-16": lambda log: bz2.compress(log.encode("utf-16")),
}


@pytest.fixture(autouse=True)
def _everything_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(stored, "BLOCK_BYTES", 3000)
    monkeypatch.setattr(stored, "_FEW", 700)
    monkeypatch.setattr(stored, "_LAST_LINES", 200)
    monkeypatch.setattr(stored, "LONGEST_LINE", 20_000)


def a_file(tmp_path: Path, data: bytes) -> Source:
    path = tmp_path / "train.log"
    path.write_bytes(data)
    return from_file(path)


@pytest.mark.parametrize("dress", DRESSES)
def test_its_text_is_that_of_one_in_memory(tmp_path: Path, dress: str) -> None:
    log = LOG + OTHER if dress != "no last end" else LOG
    source = a_file(tmp_path, DRESSES[dress](log))
    assert isinstance(source.content, StoredText)
    whole = Source("train.log", source.text)
    assert whole.text.decode() == (log if dress != "no last end" else log.rstrip("\n"))
    lines = whole.text.split(b"\n")
    for begin, end in ((0, 10), (700, 701), (3000, None), (0, 0), (2500, 2900)):
        assert source.part(begin, end).text == whole.part(begin, end).text
    assert source.part(300, 900).part(100, 200).text == b"".join(line + b"\n" for line in lines[400:500])
    asked = {0, 1, 2, 900, 901, 3999, len(lines) - 2}
    assert source.lines(asked, 30) == whole.lines(asked, 30) == {n: lines[n][:30].decode() for n in asked}
    assert source.head(5000) == whole.head(5000)
    assert detect(source) == "nanogpt"


@pytest.mark.parametrize("dress", ["plain", "gzip"])
def test_it_is_explained_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dress: str) -> None:
    answers = []
    for longest in (1 << 25, 1000):
        monkeypatch.setattr(contents, "WHOLE_BYTES", longest)
        (tmp_path / "train.log").write_bytes(DRESSES[dress](OTHER + LOG))
        report = explain(ExplainRequest(logs=(str(tmp_path / "train.log"),)))
        answers.append([render(report, form, "en", View(full=True)) for form in ("json", "terminal")])
        assert len(report.runs) == 2
        assert report.runs[1].excerpts()
    assert answers[0] == answers[1]


def test_what_is_added_meanwhile_is_not_read(tmp_path: Path) -> None:
    source = a_file(tmp_path, LOG.encode())
    with (tmp_path / "train.log").open("a") as file:
        file.write(OTHER)
    assert source.text.decode() == LOG


def test_a_pipe_is_kept_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(Pipe(gzip.compress(LOG.encode())))))
    source = from_stdin()
    assert isinstance(source.content, StoredText)
    assert source.text.decode() == LOG


def test_the_text_of_a_document_is_kept_in_a_file(tmp_path: Path) -> None:
    """Also of one that is packed, or that a pipe holds; of one without any text the document."""
    cells = json.dumps({"cells": [{"outputs": [{"text": LOG}]}]}).encode()
    whole = normalise(cells)
    for data in (cells, gzip.compress(cells)):
        source = a_file(tmp_path, data)
        assert isinstance(source.content, StoredText)
        assert source.text == whole
        assert len(read(source)[0].iterations) == len(read(Source("x", LOG.encode()))[0].iterations)
    cells = json.dumps({"cells": [{"source": LOG}]}).encode()
    assert a_file(tmp_path, cells).text == cells


def test_a_line_without_an_end_comes_in_pieces(tmp_path: Path) -> None:
    source = a_file(tmp_path, b"x" * 100_000 + b"\n" + LOG.encode())
    assert max(map(len, source.blocks())) <= 20_000 + 3000
    assert len(read(source)[0].iterations) == len(read(Source("x", LOG.encode()))[0].iterations)


def test_a_bomb_stops_at_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(gzip.compress(LOG.encode()))
    with pytest.raises(TooLarge):
        read(from_file(path, limit=20_000))


def test_one_without_iterations_is_refused_by_its_end(tmp_path: Path) -> None:
    source = a_file(tmp_path, b"chatter of a machine\n" * 3000 + b"RuntimeError: CUDA error: unspecified\n")
    found = fault_of(source)
    assert found is not None
    assert found.line == 3000
    with pytest.raises(NoIterations):
        read(source)


def test_columns_of_many_rows_are_narrow_and_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    (wide,) = read(Source("x", LOG.encode()))
    monkeypatch.setattr(records, "MANY_ROWS", 100)
    (narrow,) = read(Source("x", LOG.encode()))
    columns = {name: getattr(narrow.iterations, name) for name in ("number", "line", "loss", "reported_mfu")}
    assert {column.dtype.itemsize for column in columns.values()} == {4}
    assert narrow.iterations.time_s.tolist() == wide.iterations.time_s.tolist()
    for name, column in columns.items():
        np.testing.assert_allclose(column, getattr(wide.iterations, name), rtol=1e-7)
    assert narrow.iterations.number.tolist() == wide.iterations.number.tolist()


def test_columns_of_many_rows_are_put_aside_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MANY_ROWS", 100)
    (aside,) = read(Source("x", LOG.encode()))
    monkeypatch.setattr(records, "spill_to_disk", lambda parts: None)
    (held,) = read(Source("x", LOG.encode()))
    for name in ("number", "time_s", "loss", "line"):
        own, other = getattr(aside.iterations, name), getattr(held.iterations, name)
        assert (own.flags.writeable, other.flags.writeable) == (False, True)
        np.testing.assert_array_equal(own, other)


def test_records_of_other_ranks_stay_in_their_files_while_so_many_may_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = "".join(f'{{"step":{n},"s":0.1,"t":{1_770_000_000 + n / 10}}}\n' for n in range(200))
    for rank in range(4):
        header = f'{{"stepwatch":1,"started":1770000000.0,"rank":{rank},"world_size":4}}\n'
        (tmp_path / (f"run.rank{rank}.jsonl" if rank else "run.jsonl")).write_text(header + steps)
    stored = from_file(tmp_path / "run.jsonl")
    assert [type(rank.content) for rank in stored.beside] == [StoredText] * 3
    monkeypatch.setattr("stepwatch.sources.open_files_limit", lambda: 6)
    held = from_file(tmp_path / "run.jsonl")
    assert [type(rank.content) for rank in held.beside] == [bytes] * 3
    assert [rank.text for rank in held.beside] == [rank.text for rank in stored.beside]
    (run,), (other,) = read(stored), read(held)
    assert len(run.ranks) == 4
    assert [len(rank.number) for rank in run.ranks] == [len(rank.number) for rank in other.ranks] == [200] * 4
