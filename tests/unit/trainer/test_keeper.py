"""Checkpoints: whole whenever the process dies, and none is lost that should stay."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread, current_thread, main_thread
from typing import Any

import pytest
from benchmarks import checkpoints as benchmark

torch = pytest.importorskip("torch", reason="the trainer needs torch")

from tests.checkpoints import SHAPE, a_checkpoint  # noqa: E402

from stepwatch.trainer import CheckpointError  # noqa: E402
from stepwatch.trainer import keeper as module  # noqa: E402
from stepwatch.trainer.keeper import CheckpointWriter, Saved  # noqa: E402
from stepwatch.trainer.resuming import load, newest  # noqa: E402
from stepwatch.trainer.snapshot import LARGEST_COPY, SMALLEST_COPY, Copy  # noqa: E402

COPIED = SMALLEST_COPY // 4 + 1  # floats of a checkpoint that is neither small nor large


@pytest.mark.parametrize(("background", "more"), [(True, 0), (False, 0), (True, COPIED)])
def test_what_is_saved_is_loaded(tmp_path: Path, background: bool, more: int) -> None:
    saved: list[Saved] = []
    keeper = CheckpointWriter(tmp_path / "out", background=background, on_written=saved.append)
    checkpoint = {**a_checkpoint(at=7), "more": torch.arange(more)}
    keeper.expect(checkpoint)
    assert keeper.save(checkpoint, 7) >= 0
    keeper.close()
    loaded = load(tmp_path / "out" / "ckpt.pt")
    assert torch.equal(loaded["model"]["wte.weight"], checkpoint["model"]["wte.weight"])
    assert torch.equal(loaded["more"], checkpoint["more"])
    assert torch.equal(loaded["optimizer"]["state"][0]["exp_avg"], checkpoint["optimizer"]["state"][0]["exp_avg"])
    assert loaded["optimizer"]["param_groups"] == checkpoint["optimizer"]["param_groups"]
    assert {key: loaded[key] for key in ("model_args", "iter_num", "best_val_loss", "config")} == {
        "model_args": SHAPE, "iter_num": 7, "best_val_loss": 2.5, "config": {"dataset": "it"},
    }  # fmt: skip
    assert [(one.at, one.failed) for one in saved] == [(7, None)]
    assert os.listdir(tmp_path / "out") == ["ckpt.pt"]


def test_a_small_checkpoint_is_written_before_a_step_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_QUICK_S", 60.0)
    saved: list[Saved] = []
    keeper = CheckpointWriter(tmp_path, on_written=saved.append)
    keeper.begin(a_checkpoint(1), 1)
    assert [(one.at, one.failed, one.was_waited_for) for one in saved] == [(1, None, True)]
    assert load(tmp_path / "ckpt.pt")["iter_num"] == 1
    assert keeper.settle() == 0
    weight = torch.ones(2**18)
    for at in (2, 3):
        keeper.begin(a_checkpoint(at, model={"w": weight}), at)
        weight = torch.ones(COPIED)
    keeper.close()
    assert [one.was_waited_for for one in saved] == [True, False, False]


def test_a_disk_is_slow_until_it_was_quick_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    took_s, written = [5.0, 0.0, 0.0], module.replace
    began = int(module.time.perf_counter())  # whole, so that differences are exact
    clock = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: began + clock[0])

    def slow(*given: Any) -> str | None:
        clock[0] += took_s.pop(0)
        return written(*given)

    monkeypatch.setattr(module, "replace", slow)
    saved: list[Saved] = []
    keeper = CheckpointWriter(tmp_path, on_written=saved.append)
    for at in (1, 2, 3):
        keeper.begin(a_checkpoint(at), at)
        keeper.wait()
    keeper.close()
    assert [(one.seconds, one.was_waited_for) for one in saved] == [(5.0, True), (0.0, False), (0.0, True)]


@pytest.mark.parametrize("count", [100, 2**18])
def test_on_a_slow_disk_a_small_checkpoint_is_a_file_before_a_step_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(module, "_QUICK_S", 0.0)
    may_write, written = Event(), module.replace

    def held_up(path: Path, checkpoint: Any, *rest: Any) -> str | None:
        may_write.wait(30)
        return written(path, checkpoint, *rest)

    monkeypatch.setattr(module, "replace", held_up)
    weight = torch.ones(count)
    keeper = CheckpointWriter(tmp_path)
    keeper.save(a_checkpoint(1, model={"w": weight}), 1)
    weight.fill_(2)
    may_write.set()
    keeper.close()
    assert load(tmp_path / "ckpt.pt")["model"]["w"].unique().tolist() == [1]


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    keeper = CheckpointWriter(tmp_path)
    keeper.save(a_checkpoint(), 1)
    keeper.close()
    weights = load(tmp_path / "ckpt.pt")["model"]
    assert weights["wte.weight"].data_ptr() == weights["lm_head.weight"].data_ptr()


@pytest.mark.parametrize("count", [4, 40_000])  # copied at once, and by the thread that writes
def test_a_snapshot_is_of_the_moment_and_its_memory_is_used_again(count: int) -> None:
    snapshot = module.Snapshot()
    weight = torch.ones(count)
    first = snapshot.begin({"a": {"w": weight, "empty": torch.empty(0), "also empty": torch.empty(0)}})
    first.finish()
    place = first.values["a"]["w"].data_ptr()
    weight.fill_(2)
    assert first.values["a"]["w"].unique().tolist() == [1]
    again = snapshot.begin({"a": {"w": weight}, "more": [torch.ones(count, dtype=torch.bfloat16), weight[::2]]})
    again.finish()
    assert again.values["a"]["w"].data_ptr() == place
    assert again.values["a"]["w"].unique().tolist() == [2]
    assert torch.equal(again.values["more"][0], torch.ones(count, dtype=torch.bfloat16))
    assert torch.equal(again.values["more"][1], weight[::2])


def test_weights_may_change_once_the_copy_is_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_copy, finish = Event(), Copy.finish

    def held_up(copy: Copy) -> None:
        may_copy.wait(30)
        finish(copy)

    monkeypatch.setattr(Copy, "finish", held_up)
    weight = torch.ones(COPIED)
    keeper = CheckpointWriter(tmp_path)
    keeper.begin(a_checkpoint(1, model={"w": weight}), 1)
    settling = Thread(target=keeper.settle)
    settling.start()
    settling.join(0.05)
    assert settling.is_alive()
    may_copy.set()
    settling.join()
    weight.fill_(2)
    assert keeper.settle() == 0
    keeper.close()
    assert load(tmp_path / "ckpt.pt")["model"]["w"].unique().tolist() == [1]


def test_a_large_checkpoint_is_written_from_where_it_lies_before_the_weights_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write, written = Event(), module.replace

    def held_up(path: Path, checkpoint: dict[str, Any], hurry: Event, on_read: Callable[[], object]) -> str | None:
        may_write.wait(30)
        assert hurry.is_set(), "a step waits for it"
        return written(path, checkpoint, hurry, on_read)

    monkeypatch.setattr(module, "replace", held_up)
    weight = torch.ones(LARGEST_COPY // 4 + 1)
    saved: list[Saved] = []
    keeper = CheckpointWriter(tmp_path, on_written=saved.append)
    checkpoint = a_checkpoint(1, model={"w": weight})
    assert keeper._snapshot.begin(checkpoint).values["model"]["w"] is weight
    keeper.begin(checkpoint, 1)
    settling = Thread(target=keeper.settle)
    settling.start()
    settling.join(0.05)
    assert settling.is_alive()
    may_write.set()
    settling.join()
    weight.fill_(2)
    keeper.close()
    assert [one.failed for one in saved] == [None]
    assert load(tmp_path / "ckpt.pt")["model"]["w"].unique().tolist() == [1]


@pytest.mark.parametrize(("elements", "yields"), [(10, False), (COPIED, True), (LARGEST_COPY // 4 + 1, False)])
def test_only_a_writer_that_nobody_waits_for_yields_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elements: int, yields: bool
) -> None:
    yielding: list[bool] = []
    monkeypatch.setattr(module, "lower_priority", lambda: yielding.append(current_thread() is main_thread()))
    keeper = CheckpointWriter(tmp_path)
    keeper.expect(a_checkpoint(1, model={"w": torch.ones(elements)}))
    keeper.close()
    assert yielding == ([False] if yields else [])


def test_a_save_waits_for_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    begun = Event()
    written = module.replace

    def slow(path: Path, checkpoint: dict[str, Any], hurry: Event, on_read: Callable[[], object]) -> str | None:
        order.append(f"begin {checkpoint['iter_num']}")
        begun.set()
        hurry.wait(30)  # until someone waits for this write
        failed = written(path, checkpoint, hurry, on_read)
        order.append(f"end {checkpoint['iter_num']}")
        return failed

    monkeypatch.setattr(module, "replace", slow)
    keeper = CheckpointWriter(tmp_path)
    keeper.save(a_checkpoint(1, model={"w": torch.ones(COPIED)}), 1)
    begun.wait()
    keeper.save(a_checkpoint(2, model={"w": torch.ones(COPIED)}), 2)
    keeper.close()
    assert order == ["begin 1", "end 1", "begin 2", "end 2"]
    assert load(tmp_path / "ckpt.pt")["iter_num"] == 2


def test_leftovers_of_a_killed_write_are_removed(tmp_path: Path) -> None:
    (tmp_path / "ckpt.pt.123.tmp").write_bytes(b"half")
    (tmp_path / "other.tmp").write_bytes(b"of someone else")
    CheckpointWriter(tmp_path).close()
    assert os.listdir(tmp_path) == ["other.tmp"]


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(CheckpointError, match="cannot be written"):
        CheckpointWriter(tmp_path / "out")


def test_no_room_before_a_save_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Saved] = []
    keeper = CheckpointWriter(tmp_path, on_written=saved.append)
    keeper.save(a_checkpoint(1), 1)
    keeper.wait()
    monkeypatch.setattr(module, "_MARGIN", 10**18)
    keeper.save(a_checkpoint(2), 2)
    keeper.close()
    assert "no room on the disk" in str(saved[1].failed)
    assert load(tmp_path / "ckpt.pt")["iter_num"] == 1


def test_a_disk_that_fills_up_during_a_save_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    with benchmark.small_disk(tmp_path / "disk", 3) as disk:
        if disk is None:
            pytest.skip("only root can make a disk that is full")
        path = disk / "ckpt.pt"
        assert module.replace(path, a_checkpoint(1), Event()) is None
        large = a_checkpoint(2, config={"weights": torch.zeros(1_000_000)})
        assert module.replace(path, large, Event()) == "no space left on device"
        assert load(path)["iter_num"] == 1
        assert os.listdir(disk) == ["ckpt.pt"]


def test_what_cannot_be_written_is_told_and_training_goes_on(tmp_path: Path) -> None:
    saved: list[Saved] = []
    keeper = CheckpointWriter(tmp_path, on_written=saved.append)
    keeper.save(a_checkpoint(config={"f": lambda: 0}), 1)
    keeper.save(a_checkpoint(2), 2)
    keeper.close()
    assert saved[0].failed is not None
    assert saved[1].failed is None
    assert os.listdir(tmp_path) == ["ckpt.pt"]


# --- someone asks to stop ---------------------------------------------------------------------------------------


def stopped_at(directory: Path, at: int, **options: Any) -> list[str]:
    keeper = CheckpointWriter(directory, **options)
    keeper.begin(a_checkpoint(at), at, stopped=True)
    keeper.close()
    return sorted(os.listdir(directory))


def kept(directory: Path, at: int) -> Path:
    CheckpointWriter(directory, background=False).begin(a_checkpoint(at), at)
    return directory / "ckpt.pt"


def test_a_stop_leaves_the_checkpoint_of_another_run(tmp_path: Path) -> None:
    kept(tmp_path, 200)
    assert stopped_at(tmp_path, 1) == ["ckpt.pt", "ckpt_stopped_1.pt"]
    assert load(tmp_path / "ckpt.pt")["iter_num"] == 200
    assert newest(tmp_path) == tmp_path / "ckpt_stopped_1.pt"
    assert stopped_at(tmp_path, 1) == ["ckpt.pt", "ckpt_stopped_1.pt", "ckpt_stopped_1_1.pt"]


def test_a_stop_leaves_the_best_checkpoint_and_takes_the_place_of_the_last(tmp_path: Path) -> None:
    best = kept(tmp_path, 20)
    assert stopped_at(tmp_path, 30, resumed_from=best, keeps_best=True) == ["ckpt.pt", "ckpt_stopped_30.pt"]
    assert load(best)["iter_num"] == 20
    assert stopped_at(tmp_path, 40, resumed_from=best) == ["ckpt.pt", "ckpt_stopped_30.pt"]
    assert load(best)["iter_num"] == 40


def test_a_stop_is_saved_as_usual_where_nothing_is_lost_by_it(tmp_path: Path) -> None:
    assert stopped_at(tmp_path, 3) == ["ckpt.pt"]


def test_what_a_run_went_on_from_goes_when_it_has_saved_more(tmp_path: Path) -> None:
    kept(tmp_path, 20)
    (tmp_path / "ckpt_stopped_7.pt").write_bytes(b"of someone else")
    stopped_at(tmp_path, 30, keeps_best=True)
    resumed = tmp_path / "ckpt_stopped_30.pt"
    assert newest(tmp_path) == resumed
    left = stopped_at(tmp_path, 35, resumed_from=resumed, keeps_best=True)
    assert left == ["ckpt.pt", "ckpt_stopped_35.pt", "ckpt_stopped_7.pt"]


def test_a_directory_that_takes_no_block_is_known_before_the_training(tmp_path: Path) -> None:
    with benchmark.small_disk(tmp_path / "disk", 1) as disk:
        if disk is None:
            pytest.skip("only root can make a disk that is full")
        (disk / "filling").write_bytes(bytes(2**20))
        (disk / "more").write_bytes(b"")  # an empty file can still be made
        with pytest.raises(CheckpointError, match="cannot be written"):
            CheckpointWriter(disk)
        assert sorted(os.listdir(disk)) == ["filling", "more"]


def test_the_newest_checkpoints_stay_under_their_iterations(tmp_path: Path) -> None:
    keeper = CheckpointWriter(tmp_path, background=False, copies=2)
    for at in (5, 10, 15, 20):
        keeper.save(a_checkpoint(at), at)
    keeper.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpt.pt", "ckpt_15.pt", "ckpt_20.pt"]
    assert [load(tmp_path / f"ckpt_{at}.pt")["iter_num"] for at in (15, 20)] == [15, 20]


def test_a_copy_that_cannot_be_kept_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(shutil, "copyfile", full)
    reports: list[Saved] = []
    keeper = CheckpointWriter(tmp_path, background=False, copies=1, on_written=reports.append)
    keeper.save(a_checkpoint(5), 5)
    keeper.close()
    assert [(saved.path.name, saved.failed) for saved in reports] == [
        ("ckpt.pt", None), ("ckpt_5.pt", "no space left on device"),
    ]  # fmt: skip
    assert load(tmp_path / "ckpt.pt")["iter_num"] == 5
