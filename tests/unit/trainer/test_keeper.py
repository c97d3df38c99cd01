"""Checkpoints: whole whenever the process dies, nanoGPT's in both directions, and refused with a reason."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from benchmarks import checkpoints as benchmark

from stepwatch.i18n import say

torch = pytest.importorskip("torch", reason="the trainer needs torch")

from stepwatch.trainer import keeper as module  # noqa: E402
from stepwatch.trainer.keeper import CheckpointError, Keeper, Saved, check_shape, load, model_state  # noqa: E402

SHAPE = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 16, "bias": False, "vocab_size": 65}


def a_checkpoint(at: int = 1, **changed: Any) -> dict[str, Any]:
    model = torch.nn.ModuleDict({"wte": torch.nn.Embedding(65, 8), "lm_head": torch.nn.Linear(8, 65, bias=False)})
    model["lm_head"].weight = model["wte"].weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model["lm_head"](model["wte"](torch.arange(5))).sum().backward()
    optimizer.step()
    whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "model_args": SHAPE, "iter_num": at}
    return whole | {"best_val_loss": torch.tensor(2.5), "config": {"dataset": "it"}} | changed


def told(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load(path)
    assert caught.value.remedy is not None
    return say(caught.value.what)


@pytest.mark.parametrize("background", [True, False])
def test_what_is_saved_is_loaded(tmp_path: Path, background: bool) -> None:
    saved: list[Saved] = []
    keeper = Keeper(tmp_path / "out", background=background, on_written=saved.append)
    checkpoint = a_checkpoint(at=7)
    keeper.expect(checkpoint)
    assert keeper.save(checkpoint, 7) >= 0
    keeper.close()
    loaded = load(tmp_path / "out" / "ckpt.pt")
    assert torch.equal(loaded["model"]["wte.weight"], checkpoint["model"]["wte.weight"])
    assert torch.equal(loaded["optimizer"]["state"][0]["exp_avg"], checkpoint["optimizer"]["state"][0]["exp_avg"])
    assert loaded["optimizer"]["param_groups"] == checkpoint["optimizer"]["param_groups"]
    assert {key: loaded[key] for key in ("model_args", "iter_num", "best_val_loss", "config")} == {
        "model_args": SHAPE, "iter_num": 7, "best_val_loss": 2.5, "config": {"dataset": "it"},
    }  # fmt: skip
    assert [(one.at, one.failed) for one in saved] == [(7, None)]
    assert os.listdir(tmp_path / "out") == ["ckpt.pt"]


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
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
    may_copy, finish = Event(), module.Copy.finish

    def held_up(copy: module.Copy) -> None:
        may_copy.wait(30)
        finish(copy)

    monkeypatch.setattr(module.Copy, "finish", held_up)
    weight = torch.ones(40_000)
    keeper = Keeper(tmp_path)
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


def test_a_save_waits_for_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    begun = Event()
    written = module.replace

    def slow(path: Path, checkpoint: dict[str, Any], hurry: Event) -> str | None:
        order.append(f"begin {checkpoint['iter_num']}")
        begun.set()
        hurry.wait(30)  # until someone waits for this write
        failed = written(path, checkpoint, hurry)
        order.append(f"end {checkpoint['iter_num']}")
        return failed

    monkeypatch.setattr(module, "replace", slow)
    keeper = Keeper(tmp_path)
    keeper.save(a_checkpoint(1), 1)
    begun.wait()
    keeper.save(a_checkpoint(2), 2)
    keeper.close()
    assert order == ["begin 1", "end 1", "begin 2", "end 2"]
    assert load(tmp_path / "ckpt.pt")["iter_num"] == 2


def test_leftovers_of_a_killed_write_are_removed(tmp_path: Path) -> None:
    (tmp_path / "ckpt.pt.123.tmp").write_bytes(b"half")
    (tmp_path / "other.tmp").write_bytes(b"of someone else")
    Keeper(tmp_path).close()
    assert os.listdir(tmp_path) == ["other.tmp"]


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(CheckpointError, match="cannot be written"):
        Keeper(tmp_path / "out")


def test_no_room_before_a_save_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Saved] = []
    keeper = Keeper(tmp_path, on_written=saved.append)
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
    keeper = Keeper(tmp_path, on_written=saved.append)
    keeper.save(a_checkpoint(config={"f": lambda: 0}), 1)
    keeper.save(a_checkpoint(2), 2)
    keeper.close()
    assert saved[0].failed is not None
    assert saved[1].failed is None
    assert os.listdir(tmp_path) == ["ckpt.pt"]


def test_killed_at_random_moments_the_checkpoint_is_whole_and_recent(tmp_path: Path) -> None:
    assert benchmark.killings(tmp_path, times=10, seed=1).lost == []


def test_files_that_are_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    assert "there is no file" in told(path)
    path.write_bytes(b"")
    assert "is empty" in told(path)
    path.write_bytes(b"PK\x03\x04 and nothing more")
    assert "cut off or damaged" in told(path)
    path.write_text("a text")
    assert "is not a checkpoint" in told(path)
    torch.save([1, 2], path)
    assert "is not a checkpoint" in told(path)
    torch.save({"model": {}, "iter_num": "three"}, path)
    assert "it lacks optimizer, model_args, iter_num, best_val_loss" in told(path)
    torch.save(a_checkpoint(model_args={"n_layer": 1}), path)
    assert "model_args.n_head" in told(path)
    assert "cannot be read" in told(tmp_path)


def test_a_checkpoint_that_is_cut_off_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    torch.save(a_checkpoint(), path)
    whole = path.read_bytes()
    for share in range(1, 12):
        path.write_bytes(whole[: len(whole) * share // 12])
        assert "cut off or damaged" in told(path)


class Trap:
    def __reduce__(self) -> Any:
        return os.mkdir, ("trap",)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_hostile_checkpoint_is_refused_by_the_name_of_what_it_asks_for(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "ckpt.pt"
    torch.save(a_checkpoint(config=Trap()), path, _use_new_zipfile_serialization=zipped)
    assert "it asks for posix.mkdir" in told(path).replace("nt.mkdir", "posix.mkdir")
    path.write_bytes(pickle.dumps(Trap()))
    assert "ckpt.pt" in told(path)
    assert not Path("trap").exists()


def test_the_names_of_a_compiled_model_are_those_of_the_plain_one() -> None:
    assert list(model_state({"model": {"_orig_mod.wte.weight": 1, "wpe.weight": 2}})) == ["wte.weight", "wpe.weight"]


def test_another_shape_is_told_setting_by_setting() -> None:
    check_shape(SHAPE, {"n_layer": 1, "block_size": 8})
    with pytest.raises(CheckpointError, match="n_layer 1 ≠ 2, block_size 16 ≠ 32"):
        check_shape(SHAPE, SHAPE | {"n_layer": 2, "block_size": 32})
