"""Time and memory follow the bytes of an input, never a number in it; watched as read at once."""

from __future__ import annotations

import gc
import json
import pickle
import re
import resource
import sqlite3
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import psutil
import pytest
from benchmarks.mixed_lines import EVENTS
from tests import event_files, wandb_files
from tools.formats_page import example_of

from stepwatch import sources
from stepwatch.analysis import analyse, statistics
from stepwatch.answers import pasted
from stepwatch.answers.from_logs import ExplainRequest, UserContext, explain
from stepwatch.errors import StepwatchError
from stepwatch.presenters import run_json, text_of
from stepwatch.readers import following, formats, read, records
from stepwatch.readers.following import LiveReader
from stepwatch.run import COLUMNS, Iterations, Run
from stepwatch.run.more import Inside, Span
from stepwatch.sources import Source, contents, from_file, normalise
from stepwatch.watch import Live

FORMATS = [name for name in formats.FORMATS if not example_of(name).startswith("(binary")]
HUGE = "99099000000"


@pytest.fixture(autouse=True)
def a_collector_as_in_a_new_process() -> Iterator[None]:
    """Other tests leave many objects and the command line's threshold: then garbage is collected late."""
    thresholds = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    gc.freeze()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def a_log(name: str, copies: int) -> str:
    """The example of a format and its events, with numbers that rise; what stands before a number stays."""
    text = "\n".join((example_of(name), *(event.written(100) for event in EVENTS.get(name, ()))))
    steps = count(1)
    return "\n".join(re.sub(r"\b\d{3,4}\b", lambda _: str(next(steps)), text) for _ in range(copies)) + "\n"


def answered(text: str) -> None:
    with suppress(StepwatchError):
        explain(ExplainRequest(logs=(pasted(text),)))


def watched(text: str) -> None:
    live = Live("a.log", UserContext().analyse, stopwatch=lambda: 0.0)
    live.feed(normalise(text.encode()), 0.0)
    live.begin_watching(0.0)
    live.look(1.0, thoroughly=True)


@contextmanager
def room_for(more: int) -> Iterator[None]:
    """MemoryError where more bytes than this are asked for on top of those that the process has."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    has = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (has + more, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def test_the_room_is_limited() -> None:
    with pytest.raises(MemoryError), room_for(64_000_000):
        np.zeros(10**9, np.int8)  # far more: what ran before in this process may give memory back meanwhile
    with pytest.raises(MemoryError), room_for(64_000_000):
        list(range(10**7))


@pytest.mark.parametrize("ask", [answered, watched])
@pytest.mark.parametrize("name", FORMATS)
def test_a_huge_number_costs_no_memory(name: str, ask: Callable[[str], None]) -> None:
    text = a_log(name, 6).strip()
    numbers = [found.span() for found in re.finditer(r"\b\d{1,4}\b", text)]
    # The last of all, and the first ones of the last line, which looks like all others.
    tried = {numbers[-1], *[span for span in numbers if span[0] > text.rfind("\n")][:4]}
    ask(text)  # what stays, as compiled patterns do, is not counted
    with room_for(64_000_000):
        for begin, end in sorted(tried):
            ask(text[:begin] + HUGE + text[end:])


@pytest.mark.parametrize("name", FORMATS)
def test_twice_the_lines_take_twice_the_time(name: str) -> None:
    """With room for a busy machine: what grows with the square of its length takes four times as long, and 16 times."""
    spent = []
    for copies in (40, 160):
        source = Source("a.log", normalise(a_log(name, copies).encode()))
        began = time.process_time()
        with suppress(StepwatchError):
            read(source, name)
        spent.append(time.process_time() - began)
    assert spent[1] < 12 * max(spent[0], 0.02)


def test_many_fits_of_keras_take_their_share_of_time() -> None:
    """None of them looks through the rows of all others."""
    fit = b"Epoch 1/1\n10/10 - 1s - loss: 2.5000 - 100ms/step\n10/10 - 0s - loss: 2.3000 - 10ms/step\n"
    spent = []
    for fits in (3_000, 30_000):
        source = Source("a.log", fits * fit)
        began = time.process_time()
        read(source, "keras")
        spent.append(time.process_time() - began)
    assert spent[1] < 16 * spent[0]


@pytest.mark.parametrize("unit", ["]a", "1%|]a", "1%||1/1 [00:00<1,", "1%| |1/1 [00:00<1,]a<", "9" * 50 + "%|"])
def test_a_hostile_bar_costs_its_length(unit: str) -> None:
    data = b"5%|<" + unit.encode() * (1_000_000 // len(unit))
    began = time.process_time()
    normalise(data)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(("kind", "most"), [("steady", 20), ("drifting", 20), ("two speeds", 20), ("recorded", 65)])
def test_an_analysis_takes_less_memory_than_the_columns_of_a_long_log(
    monkeypatch: pytest.MonkeyPatch, kind: str, most: float
) -> None:
    """A log of 2 GB has 37 million rows: a copy of one column is 300 MB."""
    monkeypatch.setattr(statistics, "PIECE", 1 << 12)  # as a million rows are to the log of 2 GB
    monkeypatch.setattr(statistics, "_SAMPLED", 1 << 12)
    peaks = []
    for length in (20_000, 60_000):
        time_s = 0.1 + np.random.default_rng(0).random(length) * 1e-3 + 0.5 * (np.arange(length) % 5003 == 7)
        if kind == "drifting":
            time_s *= np.linspace(1.0, 1.2, length)
        elif kind == "two speeds":
            time_s[length // 2 :] *= 2
        unknown, rows = np.broadcast_to(np.nan, length), np.arange(length, dtype=np.int32)
        columns = dict.fromkeys(COLUMNS, unknown) | {"number": rows, "line": rows, "time_s": time_s}
        run = replace(read(Source("a.log", b"iter 0: loss 1.0, time 10.0ms\n"))[0], iterations=Iterations(**columns))
        if kind == "recorded":
            run = replace(run, inside=Inside(0.1 * time_s, unknown, 0.8 * time_s), span=Span(0.0, 0.0, 1e6))
        tracemalloc.start()
        analyse(run)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / 40_000 < most  # bytes a row; the columns of nanoGPT have 24, of a record 52


def all_that_is_read(text: bytes, name: str) -> list[tuple[str, str]]:
    """The rows and events of each run, and its settings."""
    try:
        runs = read(Source("a.log", text), name)
    except StepwatchError as error:
        return [(repr(error), "")]
    found = []
    for run in runs:
        rows = [getattr(run.iterations, column).tolist() for column in COLUMNS]
        found.append((repr((rows, [*run.evaluations], [*run.checkpoints])), repr(dict(run.settings))))
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_events_as_columns_are_what_they_are_one_by_one(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As of a log with more of them than are kept as objects."""
    text = normalise(a_log(name, 30).encode())
    monkeypatch.setattr(sources, "BLOCK_BYTES", 2000)
    at_first = all_that_is_read(text, name)
    monkeypatch.setattr(records, "MANY_EVENTS", 8)
    assert all_that_is_read(text, name) == at_first


@pytest.mark.parametrize("name", FORMATS)
def test_rows_that_are_made_in_pieces_are_what_they_are_at_once(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As of a log with more rows than are looked at together, in more than one block."""
    text = normalise(a_log(name, 60).encode())
    at_first = all_that_is_read(text, name)
    monkeypatch.setattr(records, "PIECE", 7)
    monkeypatch.setattr(sources, "BLOCK_BYTES", 3000)
    assert all_that_is_read(text, name) == at_first


def nanogpt_with_events(place: int) -> str:
    """An evaluation and a save every tenth iteration."""
    loss = 2.0 + place % 97 / 100
    told = (
        f"step {place}: train loss {loss:.4f}, val loss {loss:.4f}\nsaving checkpoint to out\n"
        if place % 10 == 0
        else ""
    )
    return f"{told}iter {place}: loss {loss:.4f}, time {100 + place % 7:.2f}ms, mfu 12.34%\n"


def nanogpt_by_the_clock(place: int) -> str:
    """A clock without a date in front of each line."""
    clock = f"{place // 3600 % 24:02}:{place // 60 % 60:02}:{place % 60:02} "
    return "".join(clock + line for line in nanogpt_with_events(place).splitlines(keepends=True))


def nanogpt_of_no_shape(place: int) -> str:
    """Another word in front of each line: they are read one by one."""
    return f"{'abcdefghijk'[place % 11] * (place % 41 + 1)} ({place % 7 * 'k'}) {nanogpt_with_events(10 * place + 1)}"


def mmengine_json(place: int) -> str:
    facts = {"lr": 0.001, "data_time": 0.0123, "loss": 2.0 + place % 97 / 100, "time": 0.25 + place % 7 / 100}
    return json.dumps(facts | {"loss_cls": 1.2345, "memory": 1234, "iter": 10 * place, "step": 10 * place}) + "\n"


def resumed(place: int) -> str:
    """From a checkpoint of ten rows before: numbers come again."""
    return mmengine_json(place if place < 5000 else place - 10)


def bar_and_loss(place: int) -> str:
    """Of the Hugging Face Trainer, whose rate and loss vary from step to step."""
    bar = bar_of_trainer(place).split("\n")[0].replace("2.00s/it", f"{1.9 + place % 21 / 100:.2f}s/it")
    return f"{bar}\n{{'loss': 2.{place % 9973:04}, 'learning_rate': 4.99e-05, 'epoch': {place / 1e4:.2f}}}\n"


def bar_alone(place: int) -> str:
    """With nothing between the bars."""
    return bar_and_loss(place).split("\n")[0] + "\n"


def running_clock(place: int) -> str:
    """modded-nanogpt's."""
    loss = f"val_loss:{2 + place % 97 / 100:.4f} " if place % 250 == 0 else ""
    return f"step:{place}/100000 {loss}train_time:{33 * place + place % 5}ms step_avg:33.02ms\n"


def mmengine(place: int) -> str:
    clock = (datetime(2026, 1, 1) + timedelta(seconds=18 * place)).strftime("%Y/%m/%d %H:%M:%S")
    epoch, batch = divmod(place - 1, 100)
    row = f"time: 0.36{place % 100:02}  data_time: 0.0121  memory: 2928  loss: {2 + place % 97 / 100:.4f}"
    place_text = f"Epoch(train)  [{epoch + 1}][{50 * batch + 50:4}/5000]"
    return f"{clock} - mmengine - INFO - {place_text}  lr: 1.0e-02  eta: 0:07:20  {row}\n"


def epoch_line(place: int) -> str:
    clock = (datetime(2026, 1, 1) + timedelta(seconds=63.7 * place)).strftime("%Y-%m-%d %H:%M:%S,")
    return f"{clock}{place % 1000:03} - INFO: Epoch {place}/900000: train loss 0.0{place % 997:03}, test acc 0.010\n"


def timm(place: int) -> str:
    epoch, step = divmod(place, 400)
    mean = f"(0.3{place % 100:02}s,  7{place % 89:02}.69/s)  LR: 5e-4  Data: 0.010 (0.0{place % 97:02})"
    return f"Train: {epoch} [{20 * step:5}/8001 (  8%)]  Loss: 4.{place % 1000} (5)  Time: 0.301s,  850.13/s  {mean}\n"


def metric_logger(place: int) -> str:
    epoch, step = divmod(place, 400)
    row = f"loss: 2.{place % 9973:04} (2.3391)  time: 0.4{place % 997:03}  data: 0.01{place % 97:02}  max mem: 5310"
    return f"Epoch: [{epoch}]  [{20 * step:4}/8001]  eta: 0:00:08  lr: 0.0001  {row}\n"


def lightning(place: int) -> str:
    epoch, batch = divmod(place, 1000)
    return f"Epoch {epoch}:  40%|████      | {batch + 1}/1000 [{batch // 300:02}:{batch // 5 % 60:02}<00:12,  \
4.{place % 89 + 10}it/s, v_num=0, train_loss=2.{place % 997:03}]\n"


def ultralytics(place: int) -> str:
    gap, last = " " * 6, place % 10
    losses = f"1.{place % 997:03}{gap}0.{place % 9973:04}{gap}1.012{gap}    9{gap}    640"
    return (
        f"\n{gap}Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
        f"{gap}{place}/1000000{gap}5.84G{gap}{losses}: 100% ━━━━━━━━━━━━ 63/63 2.5it/s 25.{last}s\n"
        f"{gap}{gap}Class   Images  Instances   Box(P   R   mAP50  mAP50-95): 100% ━━━━━━━━━━━━ 8/8 3.1it/s 2.{last}s\n"
        f"{gap}{gap}  all      253        647      0.676      0.583      0.641      0.377\n"
    )


def keras_epoch(place: int) -> str:
    row = f"500/500 ━━━━━━━━━━ 46s {91 + place % 7}ms/step - loss: 4.{place % 9973:04} - val_loss: 4.{place % 7919:04}"
    return f"Epoch {place}/1000000\n{row}\n"


def recorded(place: int) -> str:
    header = '{"stepwatch":1,"started":1763264000.12,"rank":0,"world_size":1,"gpu":null}\n' if place == 1 else ""
    inside = f'"data_s":0.001210,"wait_s":0.000{place % 997:03},"loss":3.{place % 9973:04}'
    row = f'{{"step":{place},"s":0.171{place % 997:03},"t":{1763264000.12 + 0.1718 * place:.6f},{inside}}}'
    return f'{header}{row}\n{{"device":{place},"s":0.170{place % 991:03}}}\n'


def composer(place: int) -> str:
    hours = 20 * place / 900 + place % 97 / 1e4
    speed = f"0.25{place % 89:02}\n\t Train throughput/samples_per_sec: 64.{place % 9967:04}"
    return (
        f"[batch={20 * place}/200000000]:\n\t Train loss/train/total: 2.{place % 9973:04}\n"
        f"\t Train throughput/batches_per_sec: {speed}\n\t Train throughput/device/mfu: 0.4{place % 991:03}\n"
        f"\t Train time/train: {hours:.4f}\n\t Train time/val: 0.{place // 100:04}\n\t Train time/total: {hours:.4f}\n"
    )


def time_series(place: int) -> str:
    laps = "".join(
        f"\titers: {done}, epoch: {place} | loss: 0.55{(7 * place + done) % 99991:05}\n"
        f"\tspeed: 0.0{500 + (place + done) % 97}s/iter; left time: {136 + place % 1009}.1232s\n"
        for done in (100, 200)
    )
    losses = f"Train Loss: 0.60{place % 99989:05} Vali Loss: 1.01{place % 99971:05} Test Loss: 0.5432101"
    end = f"Epoch: {place} cost time: 13.1{place % 997:03}\nEpoch: {place}, Steps: 264 | {losses}\n"
    return f"{laps}{end}Validation loss decreased (1.012345 --> 1.012346).  Saving model ...\n"


def torchtitan_with_events(place: int) -> str:
    """A validation and a save every tenth step."""
    clock = (datetime(2026, 1, 1) + timedelta(seconds=1.7 * place + place // 10 * 5.5)).strftime("%Y-%m-%d %H:%M:%S")
    before = f"[rank0]:[titan] {clock},{place % 997:03} - root - INFO - "
    row = f"step: {place}  loss:  2.{place % 9973:05}  grad_norm:  0.44{place % 97:02}  memory: 41.20GiB(51.50%)"
    lines = [f"{row}  tps: 24,{place % 991:03}  tflops: 198.{place % 89:02}  mfu: 63.{place % 83:02}%"]
    if place % 10 == 0:
        lines.append(f"validate step: {place}  loss:  3.{place % 9967:05}  memory: 41.20GiB(51.50%)  tps: 24,310")
        lines.append("Saving the checkpoint (or staging if async is enabled).")
        lines.append(f"Finished saving the checkpoint (or staging if async is enabled) in 4.{place % 47 + 50} seconds.")
    return "".join(f"{before}{line}\n" for line in lines)


def yolo_csv(place: int) -> str:
    header = (
        "epoch,time,train/box_loss,train/cls_loss,metrics/mAP50(B),val/box_loss,val/cls_loss\n" if place == 1 else ""
    )
    return f"{header}{place},{31.97 * place:.2f},1.{place % 9973:04},2.4112,0.1771,1.9748,3.2741\n"


def mlflow(place: int) -> str:
    return f"{1_745_377_456_120 + 321 * place + place % 7} {2 + place % 9973 / 1e6:.6f} {place}\n"


def metrics_by_the_clock(place: int) -> str:
    header = "elapsed,epoch,step,train_loss,val_loss\n" if place == 1 else ""
    return f"{header}{0.1547 * place:.3f},{place // 1000},{place},2.{place % 9973:04},\n"


def metrics_by_epochs(place: int) -> str:
    header = "epoch,epoch_time,step,train_loss,val_loss\n" if place == 1 else ""
    ended = f"{place // 20},{154 + place % 7}.{place % 89},{place},,2.{place % 997:03}\n" if place % 20 == 0 else ""
    return f"{header}{place // 20},,{place},2.{place % 9973:04},\n{ended}"


def of_two_metrics(place: int) -> str:
    """As of a run's directory, at steps of their own; where an epoch is logged, rows are put together."""
    name, step = ("loss", place // 2) if place % 2 else ("epoch", place // 2)
    return f"{1_745_377_456_120 + 321 * step} {2 + step % 9973 / 1e6:.6f} {step} {name}\n"


@pytest.mark.parametrize(
    ("name", "line", "most"),
    [
        ("nanogpt", nanogpt_with_events, 0.65),
        ("nanogpt", nanogpt_by_the_clock, 0.9),
        ("nanogpt", nanogpt_of_no_shape, 1.0),
        ("timm", timm, 1.0),
        ("metric-logger", metric_logger, 1.0),
        ("lightning", lightning, 0.75),
        ("ultralytics", ultralytics, 1.0),
        ("stepwatch", recorded, 0.7),
        ("mmengine-json", mmengine_json, 1.0),
        ("mmengine-json", resumed, 1.0),
        ("composer", composer, 0.6),
        ("torchtitan", torchtitan_with_events, 0.4),
        ("time-series-library", time_series, 0.85),
        ("hf-trainer", bar_alone, 0.6),
        ("hf-trainer", bar_and_loss, 0.75),
        # Rows of several lines, or whose time is a difference of clocks, are made of a table that is as long.
        ("modded-nanogpt", running_clock, 2.0),
        ("mmengine", mmengine, 0.85),
    ],
)
def test_reading_a_long_log_takes_about_as_much_memory_as_the_log(
    monkeypatch: pytest.MonkeyPatch, name: str, line: Callable[[int], str], most: float
) -> None:
    """Or less. Without the text, which stays in its file."""
    if line is nanogpt_of_no_shape:
        rows, block_bytes, piece = 1000, 1 << 14, 1 << 7  # one by one
    elif line in (composer, time_series, ultralytics):
        rows, block_bytes, piece = 2500, 1 << 16, 1 << 7  # several lines each
    elif line is torchtitan_with_events:
        rows, block_bytes, piece = 5000, 1 << 16, 1 << 8
    else:
        rows, block_bytes, piece = 4000, 1 << 15, 1 << 7
    assert read_for_each_byte_more(monkeypatch, name, line, rows, block_bytes=block_bytes, piece=piece) < most


def of_two_metrics_at_once(place: int) -> str:
    """At the same steps, of which one lacks the first: its rows are some of the other's."""
    if place == 1:
        return ""
    name, step = ("loss", "epoch")[place % 2], (place + 1) // 2
    return f"{1_745_377_456_120 + 321 * step} {2 + step % 9973 / 1e6:.6f} {step} {name}\n"


@pytest.mark.parametrize(
    ("name", "line", "most"),
    [
        ("mlflow", mlflow, 0.7),
        ("mlflow", of_two_metrics, 1.05),
        ("mlflow", of_two_metrics_at_once, 0.65),
        ("lightning", metrics_by_the_clock, 1.0),
        ("lightning", metrics_by_epochs, 0.9),
        ("epoch-lines", epoch_line, 0.6),
        ("keras", keras_epoch, 0.35),
        ("ultralytics-csv", yolo_csv, 0.7),
    ],
)
def test_columns_that_are_put_aside_take_no_memory(
    monkeypatch: pytest.MonkeyPatch, name: str, line: Callable[[int], str], most: float
) -> None:
    """Of lines that are as short as their rows."""
    slow = line in (epoch_line, keras_epoch)
    rows, block_bytes, piece = (12_000, 1 << 15, 1 << 9) if slow else (20_000, 1 << 14, 1 << 10)
    assert read_for_each_byte_more(monkeypatch, name, line, rows, block_bytes=block_bytes, piece=piece) < most


def read_for_each_byte_more(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    line: Callable[[int], str],
    rows: int,
    *,
    block_bytes: int,
    piece: int = 1 << 8,
    many_rows: int | None = None,
) -> float:
    """Of a log as long as shows it, with all that counts as long in proportion: tracing costs more than reading."""
    monkeypatch.setattr(sources, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(records, "MANY_ROWS", many_rows or 4 * piece)
    monkeypatch.setattr(records, "MANY_EVENTS", piece // 4)
    monkeypatch.setattr(records, "PIECE", piece)
    peaks = []
    for length in (100, rows // 2, rows):  # the first of them, for what is made once
        source = Source("a.log", "".join(map(line, range(1, length + 1))).encode())
        tracemalloc.start()
        read(source, name)
        peaks.append((tracemalloc.get_traced_memory()[1], len(source.text)))
        tracemalloc.stop()
    _, (small, few), (large, many) = peaks
    return (large - small) / (many - few)


@pytest.mark.parametrize("line", [nanogpt_by_the_clock, nanogpt_of_no_shape])
def test_rows_of_single_lines_are_put_together(monkeypatch: pytest.MonkeyPatch, line: Callable[[int], str]) -> None:
    """Before there are so many that their columns become narrow: an array of one row takes a hundred bytes."""
    rows, block_bytes = (1000, 1 << 14) if line is nanogpt_of_no_shape else (6000, 1 << 15)
    never = records.MANY_ROWS
    assert read_for_each_byte_more(monkeypatch, "nanogpt", line, rows, block_bytes=block_bytes, many_rows=never) < 2


def wandb_rows(rows: int) -> bytes:
    one = partial(wandb_files.history, train__grad_norm=0.5, train__learning_rate=1e-4, _runtime=1.0)
    return wandb_files.framed(
        *(one(train__loss=2.5, train__global_step=n, _step=n, _timestamp=1.7e9 + 0.8 * n) for n in range(1, rows + 1))
    )


def event_rows(rows: int) -> bytes:
    tags = ("train/loss", "train/grad_norm", "train/learning_rate")
    scalars = (event_files.scalar(1.7e9 + 0.8 * n, n, tag, 2.5) for n in range(1, rows + 1) for tag in tags)
    return event_files.start(1.7e9) + b"".join(scalars)


@pytest.mark.parametrize(("name", "written"), [("wandb-file", wandb_rows), ("tensorboard", event_rows)])
def test_a_long_file_of_records_is_read_in_blocks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, written: Callable[[int], bytes]
) -> None:
    """Neither its bytes nor its rows as objects are in memory at once."""
    monkeypatch.setattr(contents, "WHOLE_BYTES", 1 << 16)
    monkeypatch.setattr(contents, "READ_BYTES", 1 << 16)
    monkeypatch.setattr(records, "MANY_ROWS", 1 << 10)
    monkeypatch.setattr(records, "PIECE", 1 << 8)
    peaks = []
    for rows in (1000, 4000):
        file = tmp_path / f"{rows}.log"
        file.write_bytes(written(rows))
        read(from_file(file), name)  # for what is made once
        tracemalloc.start()
        (run,) = read(from_file(file), name)
        peaks.append((tracemalloc.get_traced_memory()[1], file.stat().st_size))
        tracemalloc.stop()
        assert len(run.iterations) >= rows - 1
    (small, few), (large, many) = peaks
    assert (large - small) / (many - few) < 0.8


def test_neither_a_database_nor_its_rows_are_in_memory_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its rows as objects would take ten times the bytes of its file."""
    monkeypatch.setattr(contents, "WHOLE_BYTES", 1 << 16)
    monkeypatch.setattr(contents, "READ_BYTES", 1 << 16)
    monkeypatch.setattr(records, "MANY_ROWS", 1 << 12)
    monkeypatch.setattr(records, "PIECE", 1 << 10)
    peaks = []
    for rows in (100, 20_000, 60_000):  # the first of them, for what is made once
        file = tmp_path / f"{rows}.db"
        with closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE metrics (timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT)")
            database.executemany(
                "INSERT INTO metrics VALUES (?, 'one', ?, ?)",
                (
                    (
                        datetime.fromtimestamp(1.7e9 + n).isoformat(),
                        n,
                        json.dumps({"train/loss": 2 + 1 / n, "lr": 4e-05}),
                    )
                    for n in range(1, rows + 1)
                ),
            )
            database.commit()
        tracemalloc.start()
        read(from_file(file), "trackio")
        peaks.append((tracemalloc.get_traced_memory()[1], file.stat().st_size))
        tracemalloc.stop()
    _, (small, few), (large, many) = peaks
    assert (large - small) / (many - few) < 1.5


def test_json_of_a_long_log_is_never_in_memory_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """An iteration that has 20 bytes as a row has about 170 in it, and 1000 as an object."""
    monkeypatch.setattr(run_json, "_TOGETHER", 1 << 9)
    peaks = []
    for rows in (2000, 6000):
        text = "".join(f"iter {place}: loss 2.1234, time {100 + place % 7:.2f}ms\n" for place in range(rows))
        report = explain(ExplainRequest(logs=(pasted(text),)))
        tracemalloc.start()
        written = sum(map(len, text_of(report, "json", "en")))
        peaks.append((tracemalloc.get_traced_memory()[1], written))
        tracemalloc.stop()
    (small, few), (large, many) = peaks
    assert large - small < 0.05 * (many - few)


@pytest.mark.parametrize("name", sorted(name for name in formats.FORMATS if example_of(name)))
def test_narrow_columns_change_nothing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Sums and products of large numbers that are kept in four bytes each are what they are in eight."""
    example = example_of(name)
    numbers = dict.fromkeys(re.findall(r"(?<![\w.])\d+(?![\w.])", example))
    texts = [
        re.sub(rf"(?<![\w.]){number}(?![\w.])", large, example).encode() + b"\n"
        for number in numbers
        for large in ("70000000", str(2**31 - 1))
    ]
    narrowed, large_ones = records._exactly, []

    def noted(column: np.ndarray) -> np.ndarray:
        kept = narrowed(column)
        large_ones.append(kept.dtype == np.int32 and bool((np.abs(kept) > 30_000).any()))
        return kept

    def in_eight_bytes(column: np.ndarray) -> np.ndarray:
        whole = np.nan_to_num(column).astype(np.int64)
        return whole if (whole == column).all() else np.array(column)

    for text in texts:
        large_ones.clear()
        monkeypatch.setattr(records, "_exactly", noted)
        found = all_that_is_read(text, name)
        if any(large_ones):  # sums and products of smaller ones fit into four bytes
            monkeypatch.setattr(records, "_exactly", in_eight_bytes)
            assert all_that_is_read(text, name) == found


# --- watched as read at once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("recent_bytes", [following.RECENT_BYTES, 300])
@pytest.mark.parametrize("name", FORMATS)
def test_a_log_that_is_watched_gives_what_it_gives_at_once(
    monkeypatch: pytest.MonkeyPatch, name: str, recent_bytes: int
) -> None:
    """However often somebody looks on the way, and however soon older lines are let go."""
    monkeypatch.setattr(following, "RECENT_BYTES", recent_bytes)
    monkeypatch.setattr(following, "MOST_SINCE_CUT", 1)
    monkeypatch.setattr(following, "LEAST_ALIKE", 3)
    text = normalise(a_log(name, 12).encode())
    try:
        whole: Run = read(Source("a.log", text), name)[-1]
    except StepwatchError:
        return
    live, lines = LiveReader("a.log", name), text.split(b"\n")
    size = len(lines) // 11 + 1
    for begin in range(0, len(lines), size):
        live.feed(b"\n".join(lines[begin : begin + size]) + b"\n")
        with suppress(StepwatchError):
            live.run()
    run = live.run()
    assert run is not None
    assert len(run.iterations) == len(whole.iterations)
    assert np.allclose(run.iterations.time_s, whole.iterations.time_s, equal_nan=True)


def test_rows_that_later_lines_change_are_not_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are printed before the card has done them; how much before is the median of all validations."""
    monkeypatch.setattr(following, "RECENT_BYTES", 4096)
    monkeypatch.setattr(following, "MOST_SINCE_CUT", 1)
    monkeypatch.setattr(following, "LEAST_ALIKE", 20)
    lines = []
    for place in range(1, 1201):
        lines.append(f"step:{place}/2000 train_time:{33 * place - 20 + place % 5}ms step_avg:33.02ms\n")
        if place % 20 == 0:
            late = 33 * place + place // 20 % 9
            lines.append(f"step:{place}/2000 val_loss:3.1234 train_time:{late}ms step_avg:33.02ms\n")
    live = LiveReader("a.log")
    for begin in range(0, len(lines), 40):
        live.feed("".join(lines[begin : begin + 40]).encode())
        run = live.run()
    assert run is not None
    whole = read(Source("a.log", "".join(lines).encode()))[-1].iterations
    assert np.allclose(run.iterations.time_s, whole.time_s)


def torchtitan(place: int) -> str:
    clock = (datetime(2026, 1, 1) + timedelta(seconds=1.7 * place)).strftime("%Y-%m-%d %H:%M:%S,123")
    row = f"step: {place}  loss: 2.1234  memory: 45.67GiB(48.12%)  tps: {6000 + place % 7}  tflops: 300.12  mfu: 30.34%"
    return f"[rank0]:[titan] {clock} - root - INFO - {row}\n"


def bar_of_trainer(place: int) -> str:
    elapsed = f"{2 * place // 3600}:{2 * place // 60 % 60:02}:{2 * place % 60:02}"
    loss = f"{{'loss': 2.1234, 'learning_rate': 4.99e-05, 'epoch': {place / 1e4:.4f}}}\n" if place % 10 == 0 else ""
    return f"  0%|          | {place}/100000000 [{elapsed}<999:00:00,  2.00s/it]\n{loss}"


def keras(place: int) -> str:
    rows = (f"{n}/500 ━━━━━━━━ {n // 50}s {19 + place % 3}ms/step - loss: 2.1234" for n in (250, 500))
    return f"Epoch {place}/9999999\n" + "\n".join(rows) + " - val_loss: 0.3123\n"


@pytest.mark.parametrize("line", [mmengine_json, torchtitan, bar_of_trainer, keras])
def test_watching_a_longer_log_takes_no_more_memory_though_its_rows_are_made_of_several_lines(
    monkeypatch: pytest.MonkeyPatch, line: Callable[[int], str]
) -> None:
    monkeypatch.setattr(following, "RECENT_BYTES", 1 << 15)
    monkeypatch.setattr(following, "LEAST_ALIKE", 20)
    lines = [line(place) for place in range(1, 6001)]
    live, held = LiveReader("a.log"), []
    for begin in range(0, len(lines), 500):
        live.feed(normalise("".join(lines[begin : begin + 500]).encode()))
        run = live.run()
        assert run is not None
        forgotten = [evaluation.at for evaluation in run.evaluations[:-100]]
        live.keep(run, np.arange(len(run.iterations)) >= len(run.iterations) - 400, forgotten)
        held.append(len(pickle.dumps((live._records, live._recent, live._older))))
    assert max(held[6:]) < 1.1 * max(held[:6])
    whole = read(Source("a.log", normalise("".join(lines).encode())))[-1].iterations
    assert run.logged == len(whole)
    assert np.array_equal(run.iterations.number[-400:], whole.number[-400:])
    assert np.allclose(run.iterations.time_s[-400:], whole.time_s[-400:])
