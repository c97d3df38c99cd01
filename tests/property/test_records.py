"""Laws of records: no accident to a file makes it raise, parts sum to the span, and what was planted is found."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.recorded import a_record, several_ranks

from stepwatch import sources
from stepwatch.advice import advice_on_log
from stepwatch.analysis import analyse
from stepwatch.errors import StepwatchError
from stepwatch.presenters import View, render
from stepwatch.readers import read
from stepwatch.readers.formats import recorder_file
from stepwatch.readers.records import Records
from stepwatch.report import Report, RunReport
from stepwatch.run import Run
from stepwatch.sources import Source, normalise
from stepwatch.verdict import judge

RECORDS = [
    a_record(steps=40, data_s=0.02, device_s=0.1, eval_interval=10).text,
    a_record(steps=30, wait_s=0.01).text + a_record(steps=10, seed=3, started=1.7632645e9, compile_s=None).text,
    "".join(record.text for record in several_ranks([0.1, 0.1, lambda n: 0.5 if n == 7 else 0.15], steps=15)),
]
PIECES = [
    b'{"step":1,"s":0.1,"t":1763264000.5}\n', b'{"step":1e300,"s":-1,"t":"x"}\n', b'{"step":5,"s":1e400,"t":NaN}\n',
    b'{"step":999999999999,"s":0.000000,"t":1763264000.000000}\n', b'{"device":3,"s":0.5}\n', b'{"device":-1}\n',
    b'{"eval":true,"s":null,"t":[]}\n', b'{"eval":3,"s":0.5,"t":1763264000.5,"val_loss":NaN}\n',
    b'{"lost":1e18,"t":0}\n', b'{"checkpoint":{"a":1}}\n', b'{"compile":0,"s":1e9,"t":1e11}\n',
    b'{"end":0,"t":1763264000.5}\n', b"{}\n", b"[]\n",
    b'{"stepwatch":1,"started":null,"rank":null,"world_size":null,"settings":null}\n', b'{"stepwatch":1}\n',
    b'{"stepwatch":1,"started":9e99,"rank":7,"world_size":2,"settings":{"max_iters":1e400,"n_params":-1}}\n',
    b'{"settings":{"tokens_per_iter":0,"flops_per_iter":1e400}}\n', b'{"step":' + b"9" * 5000 + b"}\n", b"[" * 3000,
    b'{"stepwatch":1,"started":1763264000.1,"rank":0,"world_size":1,"continued":true}\n', b"\x00", b"\n", b'"', b"}",
]  # fmt: skip


def runs_of(data: bytes) -> tuple[Run, ...]:
    with suppress(StepwatchError):
        return read(Source("x", normalise(data)))
    return ()


def explained(data: bytes) -> list[dict[str, object]]:
    """The whole road, and the law of its parts."""
    runs = [run for run in runs_of(data) if len(run.iterations)]
    analyses = tuple(analyse(run) for run in runs[:4])
    for a in analyses:
        assert min(a.goodput.parts_s.values()) >= 0
        assert sum(a.goodput.parts_s.values()) == pytest.approx(a.goodput.wall_s)
    report = Report(runs=tuple(RunReport(analysis=a, advice=advice_on_log(a), verdict=judge(a)) for a in analyses))
    return json.loads(render(report, "json", "en", View(with_lines=True)))["runs"]  # type: ignore[no-any-return]


@given(st.binary(max_size=400))
@example(b"{")
@example(b'{"stepwatch":')
def test_no_bytes_behind_a_header_make_explaining_raise(data: bytes) -> None:
    explained(RECORDS[0].encode()[:900] + data)
    explained(b'{"stepwatch":1' + data)


@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=12), max_size=25), st.sampled_from([b"", PIECES[14]]))
def test_no_mixture_of_lines_makes_explaining_raise(pieces: list[bytes], head: bytes) -> None:
    explained(head + b"".join(pieces))


@given(st.integers(0, 2**32), st.sampled_from(RECORDS))
def test_no_accident_to_a_record_makes_explaining_raise(seed: int, text: str) -> None:
    rng, data = random.Random(seed), text.encode()
    for _ in range(rng.randint(1, 5)):
        begin, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        kind = rng.randrange(5)
        if kind == 0:
            data = data[:begin] + data[min(end, begin + 300) :]
        elif kind == 1:
            data = data[:end] + data[begin:]
        elif kind == 2:
            data = data[:begin] + rng.choice(PIECES) + data[begin:]
        elif kind == 3:
            data = data[:begin] + rng.randbytes(rng.randint(1, 9)) + data[begin + 5 :]
        else:
            lines = data.split(b"\n")
            rng.shuffle(lines)
            data = b"\n".join(lines)
    explained(data)


@given(st.sampled_from(RECORDS), st.sampled_from([1, 64, 100, 333, 1000]))
def test_small_blocks_give_the_same_runs(text: str, size: int) -> None:
    whole = explained(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "BLOCK_BYTES", size)
        assert explained(text.encode()) == whole


PLANTED = st.fixed_dictionaries({
    "steps": st.integers(12, 60), "step_s": st.floats(0.01, 3.0), "eval_s": st.floats(0.0, 20.0),
    "checkpoint_s": st.floats(0.0, 5.0), "compile_s": st.none() | st.floats(0.1, 60.0),
    "before_s": st.floats(0.0, 60.0), "between_s": st.floats(0.0, 0.5), "eval_interval": st.integers(3, 30),
    "noise": st.floats(0.0, 0.03), "seed": st.integers(0, 99), "first_step": st.sampled_from([0, 1, 500]),
})  # fmt: skip


@given(PLANTED)
def test_planted_parts_are_found(planted: dict[str, float]) -> None:
    record = a_record(**planted)
    (run,) = runs_of(record.text.encode())
    a = analyse(run)
    assert a.goodput.wall_s == pytest.approx(record.wall_s, abs=1e-3)
    found = a.goodput.parts_s
    assert found["eval"] == pytest.approx(record.parts["eval"], abs=1e-4)
    assert found["checkpoint"] == pytest.approx(record.parts["checkpoint"], abs=1e-4)
    steps = record.parts["step"] + record.parts["compile"]  # the first step may be slower than a normal one
    assert found["step"] + found["compile"] + found["stall"] == pytest.approx(steps, abs=1e-3)
    assert found["compile"] == pytest.approx(record.parts["compile"], abs=0.15 * planted["step_s"] + 1e-4)


@given(PLANTED, st.floats(0.0, 0.9), st.integers(1, 20), st.sampled_from([0.0, 2.0, 40.0]))
def test_waiting_for_data_is_a_part_and_the_parts_sum_to_the_whole(
    planted: dict[str, Any], share: float, every: int, late_s: float
) -> None:
    """Some of the steps wait longer, and may stall for it."""
    late = [late_s * (number % every == 1) for number in range(planted["steps"])]
    waits, times = ([part * planted["step_s"] + each for each in late] for part in (share, 1.0))
    planted |= {"noise": 0.0, "first_step": 0, "step_s": times.__getitem__, "data_s": waits.__getitem__}
    planted["settings"] = {"max_iters": len(late) - 1}
    (run,) = runs_of(a_record(**planted).text.encode())
    a = analyse(run)
    named = ("step", "eval", "checkpoint", "compile", "unexplained", "data")
    split = np.stack([a.split.column_s(part) for part in named])
    assert split.min() >= 0
    np.testing.assert_allclose(split.sum(axis=0), run.iterations.time_s, atol=1e-9)
    parts = a.goodput.parts_s
    assert min(parts.values()) >= 0
    assert sum(parts.values()) == pytest.approx(a.goodput.wall_s)
    assert a.costs.data_s is not None
    assert parts["data"] <= sum(waits[1:]) + a.costs.data_s.mid + 1e-3  # of the first step, the mean of the others
    advised = advice_on_log(a)
    for advice in advised.advice if advised is not None else ():
        assert 0 < advice.saves_s.low <= advice.saves_s.mid
        if advice.rule == "feed_faster":
            assert advice.saves_s.high <= parts["data"] * 1.001


@given(st.integers(2, 9), st.data())
def test_the_planted_slow_rank_is_found(count: int, data: st.DataObject) -> None:
    slow = data.draw(st.integers(0, count - 1))
    slower = data.draw(st.floats(0.08, 3.0))
    own = [0.1 * (1 + slower) if rank == slow else 0.1 for rank in range(count)]
    (run,) = runs_of("".join(record.text for record in several_ranks(own, steps=40)).encode())
    ranks = analyse(run).ranks
    assert ranks is not None
    assert (ranks.slowest, ranks.chronic) == (slow, True)
    assert ranks.skew is not None
    assert ranks.skew.mid == pytest.approx(slower, abs=0.02 * (1 + slower))


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 1e5), st.floats(0, 10) | st.none()), max_size=20))
def test_columns_read_what_json_reads(rows: list[tuple[int, float, float | None]]) -> None:
    lines = [
        f'{{"step":{number},"s":{seconds:.6f},"t":1763264000.{place:06d}'
        + ("" if data is None else f',"data_s":{min(data, seconds):.6f}') + ',"loss":1.25}'
        for place, (number, seconds, data) in enumerate(rows)
    ]  # fmt: skip
    fast, slow = Records(), Records()
    recorder_file.parse("\n".join(lines).encode(), 0, fast)
    recorder_file.parse("\n".join(json.dumps(json.loads(line)) for line in lines).encode(), 0, slow)
    for name in ("number", "time_s", "stamp_s", "loss", "line"):
        assert np.array_equal(getattr(fast.iterations(), name), getattr(slow.iterations(), name))
    if any(data is not None for _, _, data in rows):
        assert np.array_equal(*(_told(records.table("inside", 3)) for records in (fast, slow)))


def _told(table: np.ndarray) -> np.ndarray:
    """Lines whose data time is known."""
    return table[np.isfinite(table[:, 1])][:, :2]
