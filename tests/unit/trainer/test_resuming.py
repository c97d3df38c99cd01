"""Checkpoints that are read again: refused with a reason where anything in them cannot be."""

from __future__ import annotations

import os
import pickle
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from stepwatch.i18n import say

torch = pytest.importorskip("torch", reason="the trainer needs torch")

from tests.checkpoints import SHAPE, a_checkpoint  # noqa: E402

from stepwatch.trainer import CheckpointError  # noqa: E402
from stepwatch.trainer.resuming import load, model_state, point_of  # noqa: E402


def told(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load(path)
    assert caught.value.remedy is not None
    return say(caught.value.what)


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
    assert "it lacks manifest.json" in told(tmp_path)


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


# --- what no training can have left -----------------------------------------------------------------------------

GENERATOR = torch.Generator().get_state()
POINT = {"seed": 1, "generator": GENERATOR, "own": [None], "batches": [torch.arange(4)], "scaler": {}}


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"iter_num": -5}, "iter_num is -5"),
        ({"iter_num": True}, "iter_num is 1"),
        ({"iter_num": 10**30}, "iter_num is 1"),
        ({"best_val_loss": float("nan")}, "best_val_loss is nan"),
        ({"best_val_loss": torch.zeros(2)}, "best_val_loss is 2"),
        ({"model_args": SHAPE | {"n_layer": 0}}, "n_layer is 0"),
        ({"model_args": SHAPE | {"n_layer": 10**12}}, "n_layer is 1000000000000"),
        ({"model_args": SHAPE | {"n_embd": "8"}}, "n_embd is '8'"),
        ({"model_args": SHAPE | {"n_head": 3}}, "n_head is 3"),
        ({"model_args": SHAPE | {"bias": 2}}, "bias is 2"),
        ({"model": {"wte.weight": torch.tensor([1.0, float("nan")])}}, "wte.weight is nan"),
        ({"model": {"wte.weight": torch.tensor([1, 2])}}, "wte.weight is torch.LongTensor"),
        ({"model": {"wte.weight": 3}}, "wte.weight is int"),
        ({"model": {"wte.weight": torch.ones(1).expand(10**12)}}, "model is 1000000000000"),
        ({"optimizer": {"state": {0: {"exp_avg": torch.tensor([float("inf")])}}}}, "optimizer is nan"),
        ({"resume": None}, "resume is NoneType"),
        ({"resume": POINT | {"seed": "1"}}, "resume is dict"),
        ({"resume": POINT | {"generator": torch.zeros(5056, dtype=torch.uint8)}}, "resume is dict"),
        ({"resume": POINT | {"generator": torch.zeros(3, dtype=torch.uint8)}}, "resume is dict"),
        ({"resume": POINT | {"own": [torch.zeros(3)]}}, "resume is dict"),
        ({"resume": POINT | {"batches": [torch.zeros(3)]}}, "resume is dict"),
        ({"resume": POINT | {"batches": [torch.zeros(0, dtype=torch.int64)]}}, "resume is dict"),
        ({"resume": POINT | {"scaler": {"scale": 2.0}}}, "resume is dict"),
    ],
)
def test_a_figure_that_no_training_left_is_named(tmp_path: Path, changed: dict[str, Any], what: str) -> None:
    torch.save(a_checkpoint(**changed), tmp_path / "ckpt.pt")
    assert f"cannot be resumed from: {what}" in told(tmp_path / "ckpt.pt").replace("model_args.", "")


def test_a_resume_point_is_read_as_it_was_saved(tmp_path: Path) -> None:
    torch.save(a_checkpoint(resume=POINT), tmp_path / "ckpt.pt")
    point = point_of(load(tmp_path / "ckpt.pt"))
    assert point is not None
    assert point.as_plain().keys() == POINT.keys()
    assert torch.equal(point.batches[0], torch.arange(4))
    assert point_of(a_checkpoint()) is None


def test_a_flipped_byte_in_a_tensor_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    torch.save(a_checkpoint(), path)
    with zipfile.ZipFile(path) as archive:
        tensors = [entry for entry in archive.infolist() if "/data/" in entry.filename]
    whole = path.read_bytes()
    draws = random.Random(5)
    for entry in tensors:
        lengths = struct.unpack_from("<HH", whole, entry.header_offset + 26)  # of the name and of what follows it
        place = entry.header_offset + 30 + sum(lengths) + draws.randrange(entry.file_size)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert "cut off or damaged" in told(path)


def test_a_packed_archive_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10**7))
    assert "cut off or damaged" in told(path)
