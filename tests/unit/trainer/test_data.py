"""Data for training: draws and batches as nanoGPT makes them, bad files told in a line, pickles that never run."""

from __future__ import annotations

import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwatch.i18n import say
from stepwatch.trainer.hostile import Refused, plain

torch = pytest.importorskip("torch", reason="the trainer needs torch")

from stepwatch.trainer.data import Data, DataError, open_data  # noqa: E402

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=12,
)


def a_directory(path: Path, *, count: int = 200, vocab_size: int | None = 65, seed: int = 0) -> Path:
    path.mkdir(exist_ok=True)
    for split in ("train", "val"):
        ids = np.random.default_rng(seed).integers(0, 65, count).astype(np.uint16)
        ids.tofile(path / f"{split}.bin")
    if vocab_size is not None:
        (path / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": vocab_size, "itos": {0: "a"}, "stoi": {"a": 0}}))
    return path


def told(path: Path, *, block_size: int = 16, vocab_size: int | None = None) -> str:
    with pytest.raises(DataError) as caught:
        open_data(path, block_size=block_size, vocab_size=vocab_size)
    assert caught.value.remedy is not None
    return say(caught.value.what) + " / " + say(caught.value.remedy)


@pytest.fixture
def data(tmp_path: Path) -> Data:
    return open_data(a_directory(tmp_path / "data"), block_size=16)


@given(seed=st.integers(0, 2**32), size=st.integers(1, 16), count=st.integers(10, 4000), block=st.integers(1, 9))
def test_draws_are_those_of_the_global_generator(
    tmp_path_factory: pytest.TempPathFactory, seed: int, size: int, count: int, block: int
) -> None:
    batches = open_data(
        a_directory(tmp_path_factory.getbasetemp() / "draws", count=count), block_size=block
    ).batches("train", "cpu")  # fmt: skip
    torch.manual_seed(seed)
    expected = [torch.randint(count - block, (size,)) for _ in range(3)] + [torch.rand(1)]
    torch.manual_seed(seed)
    found = [batches.draw(size) for _ in range(3)] + [torch.rand(1)]
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


def test_targets_are_one_token_further_on(data: Data, tmp_path: Path) -> None:
    tokens = np.fromfile(tmp_path / "data" / "val.bin", dtype=np.uint16).astype(np.int64)
    starts = torch.tensor([0, 7, 200 - 16 - 1])
    inputs, targets = data.batches("val", "cpu").gather(starts)
    assert inputs.tolist() == [tokens[start : start + 16].tolist() for start in starts]
    assert targets.tolist() == [tokens[start + 1 : start + 17].tolist() for start in starts]
    assert inputs.dtype == targets.dtype == torch.int64
    assert inputs.is_contiguous()
    assert targets.is_contiguous()


def test_what_is_prefetched_is_taken_in_order(data: Data) -> None:
    batches = data.batches("train", "cpu")
    draws = [batches.draw(4) for _ in range(5)]
    for starts in draws:
        batches.prefetch(starts)
    for starts in draws:
        assert torch.equal(batches.take()[1], batches.gather(starts)[1])


def test_what_goes_wrong_in_the_background_is_raised_by_take(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepwatch.trainer.data._LOOKED_THROUGH", 10)  # bytes: the file is larger, and read ahead
    data.expect(65)
    batches = data.batches("train", "cpu")
    batches.prefetch(torch.tensor([3, 5]))
    assert torch.equal(batches.take()[0], batches.gather(torch.tensor([3, 5]))[0])
    data.limit = 3
    batches.prefetch(batches.draw(4))
    with pytest.raises(DataError, match="the vocabulary ends at 2"):
        batches.take()


def test_the_vocabulary_is_that_of_meta(data: Data, tmp_path: Path) -> None:
    assert data.vocab_size == 65
    assert open_data(a_directory(tmp_path / "gpt2", vocab_size=None), block_size=16).vocab_size is None


def test_a_directory_or_file_that_is_missing(tmp_path: Path) -> None:
    assert "stepwatch prepare FILE.txt --out" in told(tmp_path / "none")
    (a_directory(tmp_path / "data") / "val.bin").unlink()
    assert "val.bin”" in told(tmp_path / "data")


def test_a_file_that_is_too_short_tells_what_is_needed(tmp_path: Path) -> None:
    a_directory(tmp_path / "data", count=16)
    assert "has 16 tokens, and block_size 16 needs at least 17" in told(tmp_path / "data")
    a_directory(tmp_path / "data", count=17)
    assert open_data(tmp_path / "data", block_size=16).batches("val", "cpu").draw(3).tolist() == [0, 0, 0]


def test_an_odd_number_of_bytes(tmp_path: Path) -> None:
    with open(a_directory(tmp_path / "data") / "train.bin", "ab") as stream:
        stream.write(b"x")
    assert "ends within a token: tokens take 2 bytes each" in told(tmp_path / "data")


def llm_c_shard(path: Path, tokens: np.ndarray, *, magic: int = 20240520, count: int | None = None) -> None:
    header = np.zeros(256, dtype="<i4")
    header[:3] = magic, 1, len(tokens) if count is None else count
    path.write_bytes(header.tobytes() + tokens.tobytes())


@pytest.mark.parametrize(("magic", "width"), [(20240520, np.uint16), (20240801, np.uint32)])
def test_shards_of_llm_c_are_one_data_set(tmp_path: Path, magic: int, width: type) -> None:
    highest = np.iinfo(width).max // 2 if width is np.uint16 else 128_255
    shards = [np.arange(first, first + 40, dtype=width) for first in (0, 100, highest - 39)]
    for number, tokens in enumerate(shards):
        llm_c_shard(tmp_path / f"fineweb_train_00000{number}.bin", tokens, magic=magic)
    llm_c_shard(tmp_path / "fineweb_train_000003.bin", shards[0][:5], magic=magic)  # too short for one sequence
    llm_c_shard(tmp_path / "fineweb_val_000000.bin", shards[0], magic=magic)
    data = open_data(tmp_path, block_size=8)
    assert data.vocab_size == (None if width is np.uint16 else 128_256)
    batches = data.batches("train", "cpu")
    assert batches.beyond == 3 * (40 - 8)
    inputs, targets = batches.gather(torch.arange(batches.beyond))
    expected = [list(range(start, start + 8)) for tokens in shards for start in tokens[:32].tolist()]
    assert inputs.tolist() == expected
    assert torch.equal(targets, inputs + 1)


def test_plain_tokens_are_as_wide_as_the_vocabulary_asks_for(tmp_path: Path) -> None:
    for split in ("train", "val"):
        np.arange(70_000, 70_040, dtype=np.uint32).tofile(tmp_path / f"{split}.bin")
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 70_040}))
    assert open_data(tmp_path, block_size=8).batches("val", "cpu").gather(torch.tensor([31]))[1].max() == 70_039
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 70_039}))
    assert "has token 70,039" in told(tmp_path)


def test_a_shard_that_is_cut_off(tmp_path: Path) -> None:
    for split in ("train", "val"):
        llm_c_shard(tmp_path / f"tiny_{split}.bin", np.arange(40, dtype=np.uint16), count=50)
    assert "tiny_train.bin” should contain 50 tokens according to its header, but contains 40" in told(tmp_path)


def test_tokens_beyond_the_vocabulary(tmp_path: Path) -> None:
    assert "the vocabulary ends at 9" in told(a_directory(tmp_path / "small", vocab_size=10))
    assert "meta.pkl” has token 64, and the vocabulary ends at 49" in told(
        a_directory(tmp_path / "data"), vocab_size=50
    )


@pytest.mark.parametrize("meta", [b"", b"nonsense", pickle.dumps([1]), pickle.dumps({"vocab_size": "many"})])
def test_a_damaged_vocabulary(tmp_path: Path, meta: bytes) -> None:
    (a_directory(tmp_path / "data") / "meta.pkl").write_bytes(meta)
    assert "meta.pkl" in told(tmp_path / "data")


@given(value=PLAIN, protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_data_is_read_as_pickle_reads_it(value: Any, protocol: int) -> None:
    assert plain(pickle.dumps(value, protocol=protocol)) == value


class Trap:
    """What a hostile pickle does when it is loaded."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@given(
    st.sampled_from([(os.mkdir, ".mkdir"), (eval, ".eval"), (os.system, ".system"), (getattr, ".getattr")]),
    st.integers(0, pickle.HIGHEST_PROTOCOL),
    PLAIN,
)
def test_a_hostile_pickle_is_refused_by_the_name_of_what_it_asks_for(
    trap: tuple[Any, str], protocol: int, beside: Any
) -> None:
    data = pickle.dumps({"vocab_size": 65, "beside": [beside], "x": Trap(trap[0], "trap")}, protocol=protocol)
    with pytest.raises(Refused) as caught:
        plain(data)
    assert str(caught.value.asked).endswith(trap[1])
    assert not Path("trap").exists()


@given(st.binary(max_size=80) | PLAIN.map(pickle.dumps).flatmap(lambda data: st.permutations(list(data)).map(bytes)))
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    with suppress(Refused):
        plain(data)


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'true'\ntR.",  # a call, as protocol 0 writes it
        b"\x80\x02\x82\x01.",  # an entry of the registry of extensions
        b"Pid\n.",  # an object kept elsewhere
        b"\x80\x04]r\xff\xff\xff\x7f.",  # a memo of two thousand million entries: must take no memory
        b"\x80\x04" + b"(" * 100_000 + b"t" * 100_000 + b"}q\x00.",  # a tuple in a tuple, and so on
        pickle.dumps({(1, 2): 3}),  # hashing a tuple of tuples could take for ever
    ],
)
def test_known_tricks(data: bytes) -> None:
    with suppress(Refused):
        assert plain(data) == []


def test_a_refused_vocabulary_names_the_reason(tmp_path: Path) -> None:
    (a_directory(tmp_path / "data") / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": Trap(os.mkdir, "trap")}))
    assert "mkdir, and a vocabulary is plain data" in told(tmp_path / "data")
