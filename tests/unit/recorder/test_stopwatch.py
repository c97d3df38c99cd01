"""The recorder: phases add up whatever their nesting, and nothing it meets reaches the training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwatch.recorder import Recorder, lines, phase, stopwatch
from stepwatch.recorder.lines import Lines, WarnOnce
from stepwatch.recorder.stopwatch import StepEvents


class Clock:
    """Stands still until it is told how long something took."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return with_clock(monkeypatch)


def with_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for room in (phase, stopwatch, lines):
        monkeypatch.setattr(room, "perf_counter", clock)
    return clock


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def go(path: Path | str, steps: int) -> None:
    """A whole training of empty steps."""
    recorder = Recorder(path)
    take(recorder, steps)
    recorder.close()


def take(recorder: Recorder, steps: int) -> None:
    for _ in range(steps):
        with recorder.step():
            pass


def of_kind(path: Path, kind: str) -> list[dict[str, Any]]:
    return [line for line in written(path) if kind in line]


# --- what is written --------------------------------------------------------------------------------------------


def test_each_phase_has_its_own_time(tmp_path: Path, clock: Clock) -> None:
    recorder = Recorder(tmp_path / "run.jsonl", {"batch_size": 12}, tokens_per_step=8192)
    with recorder.compile():
        clock.passes(30)
    for _ in range(2):
        with recorder.data():
            clock.passes(0.25)
        with recorder.step() as step:
            clock.passes(1)
            step.note(loss=3.5)
    with recorder.evaluation() as evaluation:
        clock.passes(5)
        evaluation.note(val_loss=3.25)
    with recorder.checkpoint(tmp_path / "ckpt.pt"):
        clock.passes(2)
    recorder.close()

    header, compiled, first, second, evaluated, saved, end = written(tmp_path / "run.jsonl")
    assert header["settings"] == {"batch_size": 12, "tokens_per_iter": 8192}
    assert (header["rank"], header["world_size"]) == (0, 1)
    assert (compiled["compile"], compiled["s"]) == (0, 30)
    assert (first["step"], first["s"], first["data_s"], first["loss"]) == (0, 1.25, 0.25, 3.5)
    assert second["step"] == 1
    assert (evaluated["eval"], evaluated["s"], evaluated["val_loss"]) == (2, 5, 3.25)
    assert (saved["checkpoint"], saved["s"]) == (2, 2)
    assert end["end"] == 2
    assert end["t"] - compiled["t"] == pytest.approx(2 * 1.25 + 5 + 2)


@pytest.mark.parametrize("before_s", [1e-7, 0.5, 3.0])
def test_times_go_on_where_their_first_digits_change(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, before_s: float
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_763_300_000 - 2.0 - before_s)
    recorder = Recorder(tmp_path / "run.jsonl")
    for _ in range(5):
        clock.passes(1)
        take(recorder, 1)
    clock.passes(1e6)
    with recorder.evaluation():
        pass
    recorder.close()
    ends = [line["t"] for line in written(tmp_path / "run.jsonl")[1:-1]]
    expected = [1_763_300_000 - 2.0 - before_s + passed for passed in (1, 2, 3, 4, 5, 1_000_005)]
    assert ends == pytest.approx(expected, rel=0, abs=2e-6)


def test_a_phase_that_is_told_late_may_have_ended_before_the_digits_changed(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_763_299_999.0)
    recorder = Recorder(tmp_path / "run.jsonl")
    late = recorder.step().__enter__()
    clock.passes(0.5)
    ended = clock.now
    clock.passes(1)
    with recorder.evaluation():
        pass
    recorder.stopwatch.leave(late, ended, True)
    recorder.close()
    assert [line["t"] for line in written(tmp_path / "run.jsonl")[1:-1]] == [1_763_300_000.5, 1_763_299_999.5]


def test_a_machine_without_a_clock_leaves_a_record_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 7.0)
    go(tmp_path / "run.jsonl", 3)
    assert len(of_kind(tmp_path / "run.jsonl", "step")) == 3


def test_a_phase_that_is_kept_begins_anew_each_time(tmp_path: Path, clock: Clock) -> None:
    recorder = Recorder(tmp_path / "run.jsonl")
    step = recorder.step(tokens=8)
    for loss in (3.5, None):
        with step:
            clock.passes(1)
            with recorder.data():
                clock.passes(0.25)
            with recorder.evaluation():
                clock.passes(4)
            if loss is not None:
                step.note(loss=loss)
    first, second = (line for line in written(tmp_path / "run.jsonl") if "step" in line)
    assert (first["s"], first["data_s"], first["tokens"], first["loss"]) == (1.25, 0.25, 8, 3.5)
    assert (second["step"], second["s"], second["data_s"], second["tokens"]) == (1, 1.25, 0.25, 8)
    assert "loss" not in second


def test_what_lies_inside_a_step_and_is_none_is_taken_off_it(tmp_path: Path, clock: Clock) -> None:
    recorder = Recorder(tmp_path / "run.jsonl")
    with recorder.step(number=7):
        clock.passes(1)
        with recorder.evaluation():
            clock.passes(4)
            with recorder.checkpoint():
                clock.passes(2)
        with recorder.wait():
            clock.passes(0.5)
    saved, evaluated, step = written(tmp_path / "run.jsonl")[1:]
    assert (saved["checkpoint"], saved["s"]) == (7, 2)
    assert (evaluated["eval"], evaluated["s"]) == (7, 4)
    assert (step["step"], step["s"], step["wait_s"]) == (7, 1.5, 0.5)


def test_a_phase_inside_one_of_its_kind_is_part_of_it(tmp_path: Path, clock: Clock) -> None:
    recorder = Recorder(tmp_path / "run.jsonl")

    @recorder.evaluation()
    def evaluate(split: str) -> None:
        clock.passes(3)
        recorder.note(**{f"{split}_loss": 2.5})

    with recorder.evaluation():
        evaluate("train")
        evaluate("val")
    (evaluated,) = of_kind(tmp_path / "run.jsonl", "eval")
    assert (evaluated["s"], evaluated["train_loss"], evaluated["val_loss"]) == (6, 2.5, 2.5)


def test_a_loader_gives_its_batches_and_its_times(tmp_path: Path, clock: Clock) -> None:
    def loader() -> Iterator[int]:
        for batch in range(3):
            clock.passes(0.5)
            yield batch

    recorder = Recorder(tmp_path / "run.jsonl")
    seen = []
    for batch in recorder.steps(loader()):
        seen.append(batch)
        clock.passes(2)
        recorder.note(loss=1.0)
    assert seen == [0, 1, 2]
    assert [(s["s"], s["data_s"], s["loss"]) for s in of_kind(tmp_path / "run.jsonl", "step")] == [(2.5, 0.5, 1.0)] * 3


def test_a_loop_that_is_left_keeps_its_last_step(tmp_path: Path, clock: Clock) -> None:
    recorder = Recorder(tmp_path / "run.jsonl")
    for batch in recorder.steps(range(10)):
        clock.passes(1)
        if batch == 4:
            break
    assert len(of_kind(tmp_path / "run.jsonl", "step")) == 5


def test_a_step_that_failed_is_no_step(tmp_path: Path, clock: Clock) -> None:
    recorder = Recorder(tmp_path / "run.jsonl")
    with pytest.raises(ValueError, match="mine"), recorder.step():
        raise ValueError("mine")
    with recorder.step():
        clock.passes(1)
    assert [(s["step"], s["s"]) for s in of_kind(tmp_path / "run.jsonl", "step")] == [(0, 1)]


KINDS = ("step", "evaluation", "checkpoint", "compile", "data", "wait")
TREES = st.recursive(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.just(())),
    lambda inner: st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.lists(inner, max_size=3).map(tuple)),
    max_leaves=12,
)


@given(trees=st.lists(TREES, max_size=6))
def test_the_parts_sum_to_the_wall(trees: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("record") / "run.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        clock = with_clock(patch)
        recorder = Recorder(path)

        def enact(tree: Any) -> None:
            kind, seconds, inner = tree
            with getattr(recorder, kind)():
                clock.passes(seconds)
                for part in inner:
                    enact(part)
                clock.passes(seconds)

        begun = clock.now
        for tree in trees:
            enact(tree)
        with recorder.step():  # takes up data and waiting that came last
            clock.passes(1)
        wall = clock.now - begun
        recorder.close()
    assert sum(line["s"] for line in written(path) if "s" in line) == pytest.approx(wall)


# --- nothing reaches the training -------------------------------------------------------------------------------


def test_wrong_calls_become_one_warning_each(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.jsonl")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            with recorder.step("seven") as step:
                step.note(3.2)
                step.note(loss=object(), lr=0.5)
            with recorder.evaluate(), recorder.checkpoint(7, whatever=[1]):
                pass
            step.__exit__(None, None, None)
            recorder.note(loss=1)
        recorder.close()
        with recorder.step():
            pass
    assert all(str(warning.message).startswith("stepwatch: ") for warning in said)
    assert all(os.path.basename(warning.filename) == Path(__file__).name for warning in said)
    texts = [str(warning.message) for warning in said]
    assert len(texts) == len(set(texts))
    assert any("no evaluate(); evaluation() is meant?" in text for text in texts)
    assert any("closed" in text for text in texts)
    assert [step["lr"] for step in of_kind(tmp_path / "run.jsonl", "step")] == [0.5] * 3


def test_warnings_that_are_errors_do_not_stop_the_training(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Recorder(tmp_path / "run.jsonl") as recorder, recorder.step("x") as step:
            step.note(loss=object())
    assert len(of_kind(tmp_path / "run.jsonl", "step")) == 1


@pytest.mark.parametrize("place", ["a directory", "no such place"])
def test_a_file_that_cannot_be_opened_is_one_warning(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path if place == "a directory" else tmp_path / "file" / "run.jsonl"
    with pytest.warns(RuntimeWarning, match="nothing is recorded") as said:
        go(path, 3)
    assert len(said) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_that_nobody_reads_does_not_hold_up_the_training(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.warns(RuntimeWarning, match="nothing is recorded"):
        Recorder(tmp_path / "pipe").close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_is_one_warning() -> None:
    with pytest.warns(RuntimeWarning, match="the training goes on") as said:
        go("/dev/full", 1000)
    assert len(said) == 1


class Disk:
    """Takes what it has room for, as a disk does."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, descriptor: int, data: bytes) -> int:
        if not self.room:
            raise OSError(28, "No space left on device")
        taken = os.write(descriptor, data[: self.room])
        self.room -= taken
        return taken


def test_lines_go_on_when_there_is_room_again(tmp_path: Path) -> None:
    disk = Disk(room=40)
    file = Lines(str(tmp_path / "run.jsonl"), WarnOnce(), lambda _: b'{"stepwatch":1}\n', write=disk.write)
    for number in range(2):
        file.append(b'{"step":%d}\n' % number, lines.perf_counter())
    with pytest.warns(RuntimeWarning, match="the training goes on"):
        file.append(b'{"step":2}\n', lines.perf_counter())
    for number in range(3, 5):
        file.append(b'{"step":%d}\n' % number, lines.perf_counter())
    disk.room = 1000
    file.append(b'{"step":5}\n', lines.perf_counter())
    file.close()
    kept = (tmp_path / "run.jsonl").read_bytes().split(b"\n")
    assert kept[:3] == [b'{"stepwatch":1}', b'{"step":0}', b'{"step":1}']
    assert kept[3] == b'{"'
    assert json.loads(kept[4])["lost"] == 3
    assert kept[5:] == [b'{"step":5}', b""]


def test_a_slow_disk_is_written_behind_the_training(tmp_path: Path) -> None:
    held = threading.Event()

    def write(descriptor: int, data: bytes) -> int:
        if b'"step":1}' in data:
            held.wait(10)
        return os.write(descriptor, data)

    file = Lines(str(tmp_path / "run.jsonl"), WarnOnce(), lambda _: b'{"stepwatch":1}\n', write=write)
    with pytest.warns(RuntimeWarning, match="slow to write"):
        file.append(b'{"step":0}\n', lines.perf_counter() - 1)  # a write that took a second
    for number in range(1, 4):
        file.append(b'{"step":%d}\n' % number, lines.perf_counter())  # returns though the disk hangs
    held.set()
    file.close()
    assert [line.get("step") for line in written(tmp_path / "run.jsonl")] == [None, 0, 1, 2, 3]


def test_a_torn_last_line_does_not_spoil_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"stepwatch":1}\n{"step":0,"s":0.0')
    Recorder(path).close()
    assert [json.loads(line).get("stepwatch") for line in path.read_text().splitlines()[2:]] == [1, None]


def test_a_forked_worker_does_not_end_the_record(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.jsonl")
    child = os.fork()
    if not child:
        recorder.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert not of_kind(tmp_path / "run.jsonl", "end")
    recorder.close()
    assert len(of_kind(tmp_path / "run.jsonl", "end")) == 1


def test_a_checkpoint_of_another_thread_is_one_in_the_background(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.jsonl")

    def save() -> None:
        with recorder.checkpoint("ckpt.pt"):
            pass

    with recorder.step():
        thread = threading.Thread(target=save)
        thread.start()
        thread.join()
    (saved,) = of_kind(tmp_path / "run.jsonl", "checkpoint")
    assert saved["s"] == 0
    assert saved["background_s"] >= 0


def test_the_loop_may_run_in_another_thread_than_the_one_that_made_the_recorder(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.jsonl")

    def loop() -> None:
        for _ in range(2):
            with recorder.data():
                time.sleep(0.001)
            with recorder.step(), recorder.evaluation():
                pass

    thread = threading.Thread(target=loop)
    thread.start()
    thread.join()
    assert [line["step"] for line in of_kind(tmp_path / "run.jsonl", "step")] == [0, 1]
    assert [line["eval"] for line in of_kind(tmp_path / "run.jsonl", "eval")] == [0, 1]
    assert of_kind(tmp_path / "run.jsonl", "step")[1]["data_s"] >= 0.001


def test_steps_beside_the_loop_are_left_out_with_one_warning(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.jsonl")
    take(recorder, 150)

    thread = threading.Thread(target=take, args=(recorder, 3))

    def run() -> None:
        thread.start()
        thread.join()
        take(recorder, 10)

    with pytest.warns(RuntimeWarning, match="another thread") as warned:
        run()
    assert len(warned) == 1
    assert [line["step"] for line in of_kind(tmp_path / "run.jsonl", "step")] == list(range(160))


def test_two_steps_that_are_asked_for_before_they_begin(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.jsonl")
    first, second = recorder.step(3), recorder.step(4, tokens=8)
    for step in (first, second):
        with step:
            pass
    lines = of_kind(tmp_path / "run.jsonl", "step")
    assert [(line["step"], line.get("tokens")) for line in lines] == [(3, None), (4, 8)]


# --- files ------------------------------------------------------------------------------------------------------


def test_each_rank_has_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    Recorder(tmp_path / "run.jsonl").close()
    (header, _) = written(tmp_path / "run.rank3.jsonl")
    assert (header["rank"], header["world_size"]) == (3, 8)


def test_a_full_piece_is_put_aside(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.jsonl", rotate_bytes=2000)
    take(recorder, 200)
    recorder.close()
    pieces = sorted(tmp_path.iterdir(), key=lambda path: -int(path.suffix[1:]) if path.suffix[1:].isdigit() else 0)
    assert len(pieces) > 3
    steps = [line["step"] for piece in pieces for line in written(piece) if "step" in line]
    assert steps == list(range(200))
    assert all(written(piece)[0]["stepwatch"] == 1 for piece in pieces)
    assert all(piece.stat().st_size < 2300 for piece in pieces)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are seen in /proc")
def test_no_piece_is_open_while_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows would refuse it."""
    rename, renamed = os.rename, []

    def on_windows(old: str, new: str) -> None:
        places = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        opened = {os.readlink(place) for place in places if os.path.islink(place)}
        assert os.path.abspath(old) not in opened
        assert not os.path.exists(new)
        renamed.append(old)
        rename(old, new)

    monkeypatch.setattr(os, "rename", on_windows)
    recorder = Recorder(tmp_path / "run.jsonl", rotate_bytes=1000)
    take(recorder, 60)
    recorder.close()
    assert len(renamed) > 3


@pytest.mark.parametrize("rotate_bytes", [0, 1, 300])
def test_a_piece_smaller_than_its_header_is_no_endless_matter(tmp_path: Path, rotate_bytes: int) -> None:
    recorder = Recorder(tmp_path / "run.jsonl", {"name": "x" * 400}, rotate_bytes=rotate_bytes)
    take(recorder, 100)
    recorder.close()
    pieces = [written(path) for path in tmp_path.iterdir()]
    assert 3 < len(pieces) < 30
    assert sorted(line["step"] for piece in pieces for line in piece if "step" in line) == list(range(100))
    assert all("stepwatch" in piece[0] for piece in pieces)


def test_a_piece_that_cannot_be_put_aside_goes_on_growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError(13, "held by a reader")

    monkeypatch.setattr(os, "rename", refused)
    recorder = Recorder(tmp_path / "run.jsonl", rotate_bytes=1000)
    with pytest.warns(RuntimeWarning, match="cannot be put aside"):
        take(recorder, 100)
    recorder.close()
    assert [line["step"] for line in of_kind(tmp_path / "run.jsonl", "step")] == list(range(100))
    assert len(of_kind(tmp_path / "run.jsonl", "stepwatch")) == 1


def test_a_file_that_another_process_writes_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    other = "import sys; from stepwatch import Recorder; own = Recorder(sys.argv[1]); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", other, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.warns(RuntimeWarning, match=r"written by another process: this one writes .*run-2\.jsonl"):
            recorder = Recorder(path)
        take(recorder, 3)
        recorder.close()
        process.communicate(b"\n")
    assert recorder.path == str(tmp_path / "run-2.jsonl")
    assert (len(of_kind(path, "step")), len(of_kind(tmp_path / "run-2.jsonl", "step"))) == (0, 3)
    go(path, 1)  # now it is free
    assert len(of_kind(path, "step")) == 1


def test_a_second_recorder_of_a_file_ends_the_first(tmp_path: Path) -> None:
    first = Recorder(tmp_path / "run.jsonl")
    take(first, 1)
    second = Recorder(tmp_path / "run.jsonl")
    with pytest.warns(RuntimeWarning, match="is closed"):
        take(first, 1)
    take(second, 2)
    second.close()
    kinds = [next(iter(line)) for line in written(tmp_path / "run.jsonl")]
    assert kinds == ["stepwatch", "step", "end", "stepwatch", "step", "step", "end"]


def test_a_forked_process_does_not_write(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.jsonl")
    child = os.fork()
    if not child:
        take(recorder, 5)
        recorder.describe(n_params=3)
        os._exit(0)
    os.waitpid(child, 0)
    take(recorder, 1)
    recorder.close()
    assert [next(iter(line)) for line in written(tmp_path / "run.jsonl")] == ["stepwatch", "step", "end"]


def test_a_file_that_was_moved_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_LOOKS_EVERY_BYTES", 100)
    recorder = Recorder(tmp_path / "run.jsonl")
    (tmp_path / "run.jsonl").rename(tmp_path / "old.jsonl")
    take(recorder, 20)
    recorder.close()
    assert written(tmp_path / "run.jsonl")[0]["continued"] is True


# --- the device -------------------------------------------------------------------------------------------------


class Event:
    """Like torch.cuda.Event, of a device that is some steps behind."""

    made: int = 0
    reached: int = 0

    def __init__(self) -> None:
        self.at: int | None = None

    def record(self) -> None:
        Event.made += 1
        self.at = Event.made

    def query(self) -> bool:
        assert self.at is not None
        return self.at <= Event.reached

    def elapsed_time(self, end: Event, /) -> float:
        assert self.at is not None
        assert end.at is not None
        return 120.0 * (end.at - self.at)


class LateEvents(StepEvents):
    def new_event(self) -> Event:
        return Event()


def test_device_times_come_when_the_device_is_done_and_nobody_waits(tmp_path: Path) -> None:
    Event.made = Event.reached = 0
    recorder = Recorder(tmp_path / "run.jsonl")
    recorder.stopwatch.device = LateEvents()
    for number in range(5):
        with recorder.step():
            Event.reached = 2 * number  # the device has finished the step before
    recorder.close()
    lines_written = of_kind(tmp_path / "run.jsonl", "device")
    assert [line["device"] for line in lines_written] == [0, 1, 2, 3]
    assert {line["s"] for line in lines_written} == {0.12}


def test_a_device_that_fails_is_left_alone(tmp_path: Path) -> None:
    class Broken(StepEvents):
        def new_event(self) -> Event:
            raise RuntimeError("out of memory")

    recorder = Recorder(tmp_path / "run.jsonl")
    recorder.stopwatch.device = Broken()
    with pytest.warns(RuntimeWarning, match="out of memory") as said:
        take(recorder, 3)
    assert len(said) == 1
    assert len(of_kind(tmp_path / "run.jsonl", "step")) == 3


def test_recording_loads_neither_torch_nor_numpy(tmp_path: Path) -> None:
    code = (
        "import sys; from stepwatch import Recorder\n"
        f"with Recorder({str(tmp_path / 'run.jsonl')!r}) as recorder:\n"
        "    for batch in recorder.steps(range(3)): pass\n"
        "print([name for name in ('torch', 'numpy', 'rich', 'click') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
    assert told.stderr == ""


# --- the machine meanwhile --------------------------------------------------------------------------------------


def test_samples_are_taken_beside_the_record_by_a_process_that_ends_with_it(tmp_path: Path) -> None:
    loop = (
        "import os, sys, time; from stepwatch import Recorder\n"
        "def lines(): return open('run.samples.csv').read().count('\\n') if os.path.exists('run.samples.csv') else 0\n"
        "before = lines()\n"
        "recorder = Recorder(sys.argv[1], samples=True)\n"
        "while lines() < before + 3: time.sleep(0.05)\n"
        "if len(sys.argv) > 2: os.kill(os.getpid(), 9)\n"
    )
    for words in (["run.jsonl"], ["run.jsonl", "killed"]):  # the second start appends, as the record does
        subprocess.run([sys.executable, "-c", loop, *words], cwd=tmp_path, timeout=60, check=False)
    size = -1
    while size != (size := (tmp_path / "run.samples.csv").stat().st_size):
        time.sleep(1.1)  # more than an interval: it has noticed by then that nobody is there any more
    assert (tmp_path / "run.samples.csv").read_text().count("# stepwatch.samples/1") == 2


def test_a_sampler_that_cannot_be_started_is_said_once_and_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with pytest.warns(RuntimeWarning, match="not sampled"), Recorder(tmp_path / "run.jsonl", samples=True) as recorder:
        take(recorder, 2)
    assert [line["step"] for line in written(tmp_path / "run.jsonl") if "step" in line] == [0, 1]


def test_the_start_of_the_program_can_be_part_of_the_record(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run.jsonl", started=1763264000.25) as recorder, recorder.step():
        pass
    assert json.loads((tmp_path / "run.jsonl").read_text().splitlines()[0])["started"] == 1763264000.25


@pytest.mark.parametrize("text", ["out/ckpt.pt", 'a "b"', "back\\slash", "größer", "a\nb"])
def test_words_are_noted_as_they_are(tmp_path: Path, text: str) -> None:
    with Recorder(tmp_path / "run.jsonl") as recorder:
        for _ in range(2):  # the first time with care
            with recorder.checkpoint(text):
                pass
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["path"] for line in lines if "checkpoint" in line] == [text, text]
