"""A checkpoint in parts: read as it was written, refused where it is damaged or asks for anything beyond data."""

from __future__ import annotations

import json
import os
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs torch")

from tests.checkpoints import a_checkpoint  # noqa: E402

from stepwatch.trainer import CheckpointError, sharded  # noqa: E402
from stepwatch.trainer.resuming import load, newest  # noqa: E402


@pytest.fixture
def written(tmp_path: Path) -> Path:
    sharded.write_whole(tmp_path / "ckpt_sharded_7", a_checkpoint(7))
    return tmp_path / "ckpt_sharded_7"


def sign(directory: Path) -> None:
    """A manifest that fits the files, whatever they hold."""
    names = [name for name in os.listdir(directory) if name != "manifest.json"]
    files = {name: [len(data := (directory / name).read_bytes()), zlib.crc32(data)] for name in names}
    (directory / "manifest.json").write_text(json.dumps(files))


def test_a_checkpoint_in_parts_is_read_as_one(written: Path) -> None:
    found, expected = load(written), a_checkpoint(7)
    assert found.keys() == expected.keys()
    assert found["optimizer"]["param_groups"] == expected["optimizer"]["param_groups"]
    assert {key: tensor.shape for key, tensor in found["model"].items()} == {
        key: tensor.shape for key, tensor in expected["model"].items()
    }
    assert found["model"]["wte.weight"].data_ptr() == found["model"]["lm_head.weight"].data_ptr()


def test_what_was_begun_when_the_ranks_were_killed_is_no_checkpoint(written: Path) -> None:
    written.rename(written.with_name("ckpt_sharded_9.0a1b2c3d.tmp"))
    assert newest(written.parent).name == "ckpt.pt"
    sharded.write_whole(written, a_checkpoint(7))
    assert newest(written.parent) == written


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp", "rest.pt", "manifest.json"])
@pytest.mark.parametrize("damage", [_cut, _flip, Path.unlink])
def test_a_part_that_is_cut_changed_or_missing_is_named(
    written: Path, name: str, damage: Callable[[Path], object]
) -> None:
    damage(written / name)
    with pytest.raises(CheckpointError) as refused:
        load(written)
    assert str(written) in str(refused.value)
    assert name in str(refused.value) or name == "manifest.json"


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch hostile",)


@pytest.mark.parametrize("name", [".metadata", "rest.pt"])
def test_a_hostile_part_is_refused_by_the_name_of_what_it_asks_for(
    written: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(written.parent)
    if name == "rest.pt":
        torch.save({"model": Hostile()}, written / name)
    else:
        (written / name).write_bytes(pickle.dumps({"model": Hostile()}))
    sign(written)
    with pytest.raises(CheckpointError, match=r"asks for (posix|nt)\.system"):
        load(written)
    assert not Path("hostile").exists()


def _of_any_size(metadata: Any) -> None:
    next(iter(metadata.state_dict_metadata.values())).size = torch.Size((1 << 40,))


def _elsewhere(metadata: Any) -> None:
    next(iter(metadata.storage_data.values())).relative_path = "../../secret"


def _packed(metadata: Any) -> None:
    next(iter(metadata.storage_data.values())).transform_descriptors = ["zstd"]


def _without_a_part(metadata: Any) -> None:
    name = next(index.fqn for index in metadata.storage_data if index.fqn.startswith("model/"))
    metadata.state_dict_metadata[name].chunks.clear()


@pytest.mark.parametrize("change", [_of_any_size, _elsewhere, _packed, _without_a_part])
def test_metadata_that_ask_for_more_than_the_files_hold(written: Path, change: Callable[[Any], None]) -> None:
    metadata = pickle.loads((written / ".metadata").read_bytes())
    change(metadata)
    (written / ".metadata").write_bytes(pickle.dumps(metadata))
    sign(written)
    with pytest.raises(CheckpointError, match=r"damaged|nan"):
        load(written)


def test_a_manifest_names_files_of_its_own_directory_only(written: Path) -> None:
    files = json.loads((written / "manifest.json").read_text())
    (written / "manifest.json").write_text(json.dumps(files | {"../secret": [0, 0]}))
    with pytest.raises(CheckpointError, match=r"manifest\.json” is cut off or damaged"):
        load(written)
