"""Laws of reading: no bytes make it raise, and what does not matter changes nothing."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.builders import Truth, a_log

from stepwatch.advice import advice_on_log
from stepwatch.analysis import analyse
from stepwatch.errors import StepwatchError
from stepwatch.presenters import View, render
from stepwatch.readers import read, reading
from stepwatch.readers.formats import nanogpt
from stepwatch.readers.text.block import Block
from stepwatch.readers.text.line import Line, stamp_of, strip_prefix
from stepwatch.readers.text.shape import alike
from stepwatch.report import Report, RunReport
from stepwatch.run import Run
from stepwatch.settings import KINDS, NotPlain, evaluate, read_config, read_value
from stepwatch.sources import Source, normalise
from stepwatch.sources.contents import read_bytes
from stepwatch.verdict import judge

TRUTHS = (
    Truth(max_iters=300, log_interval=10, eval_interval=50),
    Truth(max_iters=60, log_interval=1, eval_interval=20, timestamps=True, with_mfu=False),
    Truth(max_iters=2000, first_iter=500, log_interval=100, eval_interval=250, header=False),
    Truth(max_iters=200, log_interval=20, eval_interval=50, stall_share=0.2, step_s=1e-4, eval_s=0.0, compile_s=0.0),
)
LOGS = [a_log(truth) for truth in TRUTHS]
PIECES = [
    b"iter 0: loss 4.2, time 1ms, mfu -100.00%\n", b"iter 5: loss nan, time 0.00ms\n", b"iter 999999999999: time 1ms\n",
    b"step 100: train loss nan, val loss inf\n", b"saving checkpoint to out/ckpt99.pt\n", b"max_iters = 0\n",
    b"iter 7: loss 4",
    b"log_interval = -5\n", b"eval_interval = 1\n", b"tokens per iteration will be: 1\n",
    b"number of parameters: 0.00M\n",
    b"Traceback (most recent call last):\n", b"batch_size = 10**17\n", b"n_layer = 10**18\n", b"block_size = 1\n",
    b"\x00", b"\r",
    b"\x1b[31m", b"\x08\x08", b"\xff\xfe", b"\xef\xbb\xbf", b"{", b"```\n",
    b"iter 10: loss 1, time 999999999.00ms, mfu 1%\n",
    b"99:99:99 ", b"2024-05-04 09:30:00 ", b"0001-01-01 00:00:00 ", b"9999-12-31 23:59:59 ", b"1e308",
    b"max_iters = 10**18\n",
    b"iter 20: loss 1, time 1ms, mfu 999999999.00%\n", b"NVIDIA GeForce RTX 4070\n", b"world_size = 10**18\n",
    b"eval_iters = 0\n",
]  # fmt: skip


def runs_of(data: bytes) -> tuple[Run, ...]:
    with suppress(StepwatchError):
        return read(Source("x", normalise(data)))
    return ()


def document(data: bytes) -> list[dict[str, object]]:
    """The whole road: bytes, runs, analyses, JSON."""
    runs = [run for run in runs_of(data) if len(run.iterations)]  # a header alone is answered only with a card
    analyses = map(analyse, runs[:5])
    report = Report(runs=tuple(RunReport(analysis=a, advice=advice_on_log(a), verdict=judge(a)) for a in analyses))
    text = str(render(report, "json", "en", View(with_lines=True)))
    text.encode("utf-8")
    return json.loads(text)["runs"]  # type: ignore[no-any-return]


def rows(runs: tuple[Run, ...]) -> list[tuple[object, ...]]:
    """What was read, as plain values; nan is made equal to itself."""
    columns = ("number", "time_s", "loss", "reported_mfu", "line")
    return [
        (
            *(np.nan_to_num(getattr(run.iterations, name), nan=-9.0).tolist() for name in columns),
            [(e.at, e.line) for e in run.evaluations], [(c.at, c.line) for c in run.checkpoints],
            sorted((name, setting.value) for name, setting in run.settings.items()), run.unread_count, run.resumed,
        )
        for run in runs
    ]  # fmt: skip


def timed(runs: tuple[Run, ...]) -> list[list[tuple[int, float]]]:
    return [list(zip(run.iterations.number.tolist(), run.iterations.time_s.tolist(), strict=True)) for run in runs]


# --- never raises ----------------------------------------------------------------------------------------------------


@given(st.binary(max_size=600))
@example(b"\x1f\x8b")
@example(b'{"cells": [')
@example(b"iter 1: time 1ms, tokens/s 1.2.3")
def test_no_bytes_make_reading_raise(data: bytes) -> None:
    document(data)


@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=20) | st.text(max_size=20).map(str.encode), max_size=30))
def test_no_mixture_of_lines_makes_explaining_raise(pieces: list[bytes]) -> None:
    document(b"".join(pieces))


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A log after an accident: pieces lost, doubled, swapped, cut, overwritten, strange ones put in."""
    for _ in range(rng.randint(1, 6)):
        lines = data.split(b"\n")
        place, other = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)
        begin, end = min(place, other), max(place, other)
        kind = rng.randrange(8)
        if kind == 0:
            data = data[:begin] + data[min(end, begin + 500) :]
        elif kind == 1:
            data = data[:end] + data[begin:]
        elif kind == 2:
            rng.shuffle(lines)
            data = b"\n".join(lines)
        elif kind == 3:
            data = data[: max(end, 200)]
        elif kind == 4:
            data = data[:place] + rng.choice(PIECES) + data[place:]
        elif kind == 5:
            data = data[:place] + rng.randbytes(rng.randint(1, 9)) + data[place + 5 :]
        elif kind == 6:
            data = re.sub(rb"\d", lambda _: bytes([rng.choice(b"0123456789.-")]), data, count=rng.randint(1, 99))
        else:
            old, new = rng.choice([b"\n", b" ", b".", b"time", b"iter", b"0"]), rng.choice([b"", b"\n", b"-", b"9"])
            data = data.replace(old, new, 9)
    return data


@given(st.integers(0, 2**32), st.sampled_from(LOGS))
def test_no_accident_to_a_log_makes_explaining_raise(seed: int, log: str) -> None:
    document(mutated(log.encode(), random.Random(seed)))


@given(st.integers(0, 2**32), st.sampled_from(LOGS))
def test_no_accident_to_a_packed_log_makes_reading_raise(seed: int, log: str) -> None:
    rng = random.Random(seed)
    cells = {"cells": [{"outputs": [{"text": log.splitlines(keepends=True)}]}]}
    lines = enumerate(log.splitlines(keepends=True))
    kaggle = [{"stream_name": "stdout", "time": i, "data": line} for i, line in lines]
    packed = rng.choice([json.dumps(cells).encode(), json.dumps(kaggle, indent=0).encode(), log.encode("utf-16")])
    runs_of(mutated(packed, rng))


@given(st.integers(0, 2**32))
def test_no_accident_to_gz_raises_anything_but_our_own(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(gzip.compress(LOGS[0].encode()))
    for _ in range(rng.randint(0, 4)):
        data[rng.randrange(2, len(data))] = rng.randrange(256)
    try:
        read_bytes(io.BytesIO(bytes(data[: rng.randint(2, len(data))])), 10**7)
    except StepwatchError:
        return


# --- what does not matter changes nothing ----------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.sampled_from(LOGS), st.sampled_from([1, 64, 100, 333, 1000]))
def test_small_blocks_give_the_same_runs(monkeypatch: pytest.MonkeyPatch, seed: int, log: str, size: int) -> None:
    rng = random.Random(seed)
    data = log.encode() if seed % 2 else mutated(log.encode(), rng)
    if seed % 3 == 0:  # a terminal copy
        width = rng.randint(20, 79)
        lines = data.split(b"\n")
        data = b"\n".join(line[i : i + width] for line in lines for i in range(0, max(len(line), 1), width))
    whole, name = rows(runs_of(data)), reading.detect(Source("x", normalise(data)))
    with monkeypatch.context() as patch:
        patch.setattr("stepwatch.sources.BLOCK_BYTES", size)
        patch.setattr(reading, "detect", lambda _: name)  # which looks through longer pieces than such blocks
        assert rows(runs_of(data)) == whole


DRESSES: dict[str, Callable[[str], bytes]] = {
    "crlf": lambda log: log.replace("\n", "\r\n").encode(),
    "lone cr": lambda log: log.replace("\n", "\r").encode(),
    "utf-16": lambda log: log.encode("utf-16"),
    "utf-16 crlf": lambda log: log.replace("\n", "\r\n").encode("utf-16"),
    "utf-8 with mark": lambda log: log.encode("utf-8-sig"),
    "colours": lambda log: "".join(f"\x1b[32m{line}\x1b[0m\n" for line in log.splitlines()).encode(),
    "nuls": lambda log: log.replace("e", "e\x00").encode(),
    "backspaces": lambda log: log.replace("e", "ex\x08").encode(),
    "no last end": lambda log: log.rstrip("\n").encode(),
    "tmux": lambda log: "".join(f"{line:<120}\n" for line in log.splitlines()).encode(),
    "notebook": lambda log: json.dumps({"cells": [{"outputs": [{"text": log}]}]}).encode(),
    "fences": lambda log: f"```\n{log}```\n".encode(),
    "repeated": lambda log: (log + log).encode(),
}
LAUNCHERS = [
    "[rank0]: ", "0: ", "[1,0]<stdout>:", "(train pid=77) ", "> ", "    ", "INFO:root:", "[INFO] ", "node-1: ",
    "trainer-1  | ",
    "2024-05-04 09:30:07,250 ", "2024-05-04T09:30:07.250Z ", "2024-05-04T09:30:07+02:00 ", "[2024-05-04 09:30:07] ",
    "09:30:07 ",
    "2024-05-04 09:30:07,250 - INFO - ", "2024-05-04 09:30:07.250 | INFO     | __main__:main:42 - ", "May  4 09:30:07 ",
    "I0504 09:30:07.250000 123 train.py:55] ", "1714815007.25 ", "[Sat May  4 09:30:07 2024] ",
    "2024-05-04T09:30:07Z stdout F ", "05/04/2024 09:30:07 - INFO - a.b -   ", "[05/04 09:30:07 a.b]: ",
    "[05/04 09:30:07] a.b INFO: ",
]  # fmt: skip


@pytest.mark.parametrize("dress", DRESSES)
@pytest.mark.parametrize("log", LOGS, ids=range(len(LOGS)))
def test_dress_changes_no_iteration(log: str, dress: str) -> None:
    assert timed(runs_of(DRESSES[dress](log))) == timed(runs_of(log.encode()))


@pytest.mark.parametrize("prefix", LAUNCHERS)
@pytest.mark.parametrize("log", LOGS, ids=range(len(LOGS)))
def test_prefix_changes_no_iteration_and_no_event(log: str, prefix: str) -> None:
    dressed = "".join(f"{prefix}{line}\n" for line in log.splitlines()).encode()
    before, after = runs_of(log.encode()), runs_of(dressed)
    assert timed(after) == timed(before)
    for plain, run in zip(before, after, strict=True):
        assert [e.at for e in run.evaluations] == [e.at for e in plain.evaluations]
        assert [c.at for c in run.checkpoints] == [c.at for c in plain.checkpoints]
        if prefix not in ("node-1: ",):  # whose config dump cannot be told from prose
            assert dict(run.settings) == dict(plain.settings)


# --- columns and patterns agree --------------------------------------------------------------------------------------

NUMBERS = st.from_regex(r"-?[0-9]{1,9}(\.[0-9]{0,9})?", fullmatch=True) | st.sampled_from(["nan", "", ".", "1e5", "-"])

LONG_NUMBERS = st.from_regex(r"[-+]?[0-9]{1,22}(\.[0-9]{0,22})?([eE][-+]?[0-9]{1,2})?", fullmatch=True)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=20), st.booleans())
@example([("-0", "1", "2", "3"), ("1", "-0", "-0", "-0")], True)
def test_lines_together_give_what_they_give_one_by_one(quadruples: list[tuple[str, ...]], with_mfu: bool) -> None:
    shape = "iter {}: loss {}, time {}ms, mfu {}%" if with_mfu else "iter {}: loss {}, time {}ms"
    text = "\n".join(shape.format(*numbers) for numbers in quadruples)
    slow = records_of(text)  # there are few lines
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nanogpt, "_MANY_LINES", 1)
        fast = records_of(text)
    for name in ("number", "time_s", "line", "reported_mfu"):
        assert np.array_equal(getattr(fast, name), getattr(slow, name), equal_nan=True)


def records_of(text: str) -> object:
    records = nanogpt.Records()
    nanogpt.parse(text.encode(), 0, records)
    nanogpt.finish(text.count("\n") + 1, records)
    return records.iterations()


@given(st.lists(NUMBERS | LONG_NUMBERS, min_size=1, max_size=30))
def test_a_shape_reads_numbers_as_python_does(numbers: list[str]) -> None:
    block = Block.of("\n".join(f"a {number} b" for number in numbers).encode())
    statement = Line("a {x:decimal} b")
    expected = {
        i: float(found.texts["x"].replace(",", ""))
        for i, number in enumerate(numbers)
        if (found := statement.find(f"a {number} b")) is not None
    }
    read = {
        line: value
        for _, lines, found in alike(block, block.filled, (statement,))
        for line, value in zip(lines.tolist(), found["x"].tolist(), strict=True)
    }
    assert read.items() <= expected.items()
    usual = re.compile(r"[-+]?\d{1,30}(\.\d{1,30})?([eE][-+]?\d{1,3})?")
    assert {i for i in expected if usual.fullmatch(numbers[i])} <= read.keys()


# --- settings --------------------------------------------------------------------------------------------------------

EXPRESSIONS = st.text("0123456789.+-*/%()e_'\"\\ truefalsnxb~[],:#=\n\x00é", max_size=60)


@given(EXPRESSIONS, st.sampled_from(sorted(KINDS)))
def test_expressions_are_bounded_in_time_and_value(text: str, name: str) -> None:
    began = time.process_time()
    with suppress(NotPlain):
        evaluate(text)
    value = read_value(name, text)
    with suppress(StepwatchError):  # no Python
        read_config(f"{name} = {text}")
    assert time.process_time() - began < 1
    assert value is None or type(value) is KINDS[name]


@given(st.text(max_size=200))
def test_prefixes_are_parts_of_their_line(line: str) -> None:
    rest, prefix = strip_prefix(line)
    assert prefix + rest == line
    stamp_of(line)
