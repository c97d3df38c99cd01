"""`stepwatch prepare`: the files that nanoGPT's own scripts make, in bounded memory, and a clear line for bad input."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from stepwatch.cli import main
from stepwatch.trainer import tokenizing as module
from stepwatch.trainer.config import config_from_flags, train_config
from stepwatch.trainer.tokenizing import encoded, prepare

TEXT = "Zwölf Boxkämpfer jagen Viktor\nquer über den großen Sylter Deich.\r\n" * 40


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["prepare", *arguments])


def tokens(directory: Path, split: str) -> list[int]:
    return list(np.fromfile(directory / f"{split}.bin", dtype=np.uint16).tolist())


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8"))
    return path


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_characters_become_what_nanogpt_makes_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(module, "_PIECE", piece)
    prepared = prepare(written(tmp_path / "deich.txt", TEXT), tmp_path / "out")
    text = TEXT.replace("\r\n", "\n")
    characters = sorted(set(text))
    meta = pickle.loads((tmp_path / "out" / "meta.pkl").read_bytes())
    assert meta["vocab_size"] == prepared.vocab_size == len(characters)
    assert [meta["itos"][token] for token in range(len(characters))] == characters
    ids = [meta["stoi"][character] for character in text]
    assert tokens(tmp_path / "out", "train") == ids[: int(len(text) * 0.9)]
    assert tokens(tmp_path / "out", "val") == ids[int(len(text) * 0.9) :]


def test_shards_of_nanochat_become_documents_and_the_last_one_is_for_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: Parquet is not tested")
    table = pytest.importorskip("pyarrow").table
    (tmp_path / "base_data").mkdir()
    documents = [["Ein Bär", "am Deich"], ["quer", None, "über"], ["Sylt"]]
    for number, texts in enumerate(documents):
        parquet.write_table(table({"text": texts}), tmp_path / "base_data" / f"shard_{number:05d}.parquet")
    prepare(tmp_path / "base_data", tmp_path / "out", kind="byte")
    assert bytes(tokens(tmp_path / "out", "train")).decode() == "Ein Bär\n\nam Deich\n\nquer\n\nüber\n\n"
    assert bytes(tokens(tmp_path / "out", "val")).decode() == "Sylt\n\n"
    monkeypatch.setattr(module, "gpt2_table", lambda: SimpleNamespace(encode_ordinary=lambda text: [len(text)]))
    prepare(tmp_path / "base_data", tmp_path / "out", kind="gpt2")
    assert tokens(tmp_path / "out", "train") == [7, 50256, 8, 50256, 4, 50256, 4, 50256]
    assert tokens(tmp_path / "out", "val") == [4, 50256]
    prepare(tmp_path / "base_data" / "shard_00000.parquet", tmp_path / "one", kind="char", val=0.5)
    meta = pickle.loads((tmp_path / "one" / "meta.pkl").read_bytes())
    both = [meta["itos"][token] for split in ("train", "val") for token in tokens(tmp_path / "one", split)]
    assert "".join(both) == "Ein Bär\n\nam Deich\n\n"
    parquet.write_table(table({"words": ["a"]}), tmp_path / "base_data" / "shard_00000.parquet")
    assert "no column “text”" in run(str(tmp_path / "base_data"), "--out", str(tmp_path / "none")).output


def test_bytes_of_any_file(tmp_path: Path) -> None:
    data = bytes(range(256)) * 8
    (tmp_path / "picture.raw").write_bytes(data)
    prepared = prepare(tmp_path / "picture.raw", tmp_path / "out", kind="byte", val=0.25)
    assert tokens(tmp_path / "out", "train") + tokens(tmp_path / "out", "val") == list(data)
    assert (prepared.vocab_size, prepared.val_tokens) == (256, len(data) // 4)


@given(st.text(alphabet="ab ,'\n\t1é", max_size=300), st.integers(1, 40))
def test_gpt2_tokens_of_pieces_are_those_of_the_whole(text: str, piece: int) -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="GPT-2's way of cutting needs tiktoken")
    public = pytest.importorskip("tiktoken_ext.openai_public")
    merges = [bytes([code]) for code in range(256)] + [b"\n\n", b"  ", b" a", b"ab", b"\n\n\n", b"'a", b"\n ", b" \n"]
    gpt2_like = tiktoken.Encoding(
        "gpt2_like",
        pat_str=public.r50k_pat_str,
        mergeable_ranks={token: rank for rank, token in enumerate(merges)},
        special_tokens={},
    )
    pieces = (text[start : start + piece] for start in range(0, len(text), piece))
    found = np.concatenate(list(encoded(pieces, gpt2_like.encode_ordinary)))
    assert found.tolist() == gpt2_like.encode_ordinary(text)


def test_a_vocabulary_of_before_goes_with_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = written(tmp_path / "deich.txt", TEXT)
    prepare(text, tmp_path / "out")
    monkeypatch.setattr(module, "gpt2_table", lambda: SimpleNamespace(encode_ordinary=lambda text: [len(text)]))
    prepare(text, tmp_path / "out", kind="gpt2")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["train.bin", "val.bin"]


def test_the_command_says_what_it_wrote_and_what_comes_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "deich.txt", TEXT)
    done = run("deich.txt")
    assert done.exit_code == 0, done.stderr
    assert "tokens for training" in done.stdout
    assert "next: stepwatch train --dataset=deich " in done.stdout
    suggested = config_from_flags(done.stdout.split("stepwatch train ")[1].split())
    assert train_config(suggested).warmup_iters * 10 <= suggested["max_iters"] == suggested["lr_decay_iters"]
    assert sorted(path.name for path in Path("data/deich").iterdir()) == ["meta.pkl", "train.bin", "val.bin"]


@pytest.mark.parametrize(
    ("content", "arguments", "told"),
    [
        (None, (), "there is no file “it.txt”"),
        (b"", (), "the text is empty"),
        (b"abc", (), "too short to split"),
        (b"\xff\xfe\x00abc" * 20, (), "is not UTF-8 text"),
        ("".join(map(chr, range(0x10000, 0x20000))).encode(), (), "65,536 different characters"),
        (b"abc" * 100, ("--val", "1"), "above 0 and below 1"),
        (b"abc" * 100, ("--val", "nan"), "above 0 and below 1"),
    ],
)
def test_bad_input_is_one_clear_line(
    tmp_path: Path, content: bytes | None, arguments: tuple[str, ...], told: str
) -> None:
    if content is not None:
        (tmp_path / "it.txt").write_bytes(content)
    done = run(str(tmp_path / "it.txt"), "--out", str(tmp_path / "out"), *arguments)
    assert done.exit_code in (1, 2)
    assert told in done.stderr
    assert done.stderr.count("\n") == 2
    assert not list((tmp_path / "out").glob("*"))


def test_a_directory_as_text_and_a_file_as_directory(tmp_path: Path) -> None:
    assert "cannot be used" in run(str(tmp_path), "--out", str(tmp_path / "out")).stderr
    written(tmp_path / "deich.txt", TEXT)
    assert "cannot be used" in run(str(tmp_path / "deich.txt"), "--out", str(tmp_path / "deich.txt")).stderr


def test_prepare_needs_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import stepwatch.cli.prepare"
    subprocess.run([sys.executable, "-c", code], check=True)
