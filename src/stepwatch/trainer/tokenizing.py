"""Turns a text into data for training: train.bin and val.bin of uint16 tokens, and meta.pkl with the vocabulary.

The text is read piece by piece, so that its size does not matter. Needs only numpy; GPT-2's tokens need tiktoken.
Instead of a text there may be Parquet files of documents, as in nanochat, which need pyarrow.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, AnyStr, NamedTuple, TypeAlias

import numpy as np

from stepwatch.errors import UsageError
from stepwatch.messages import Message
from stepwatch.settings import GPT2_TOKENS
from stepwatch.trainer import DataError

KINDS = ("char", "byte", "gpt2")
Tokens: TypeAlias = np.ndarray[Any, np.dtype[np.uint16]]
Meta = dict[str, Any]

PARQUET = ".parquet"
_BETWEEN = "\n\n"  # between two documents
_PIECE = 1 << 20  # characters or bytes read at a time
_LARGEST_VOCABULARY = 2**16 - 1
_LONGEST_LINE = 16 * _PIECE  # a longer one is cut anywhere


class Prepared(NamedTuple):
    """What was written, and where."""

    directory: Path
    kind: str
    vocab_size: int
    train_tokens: int
    val_tokens: int


class _Recipe(NamedTuple):
    """How a text becomes tokens: those for training, those for validation, and the vocabulary to write with them."""

    train: Iterator[Tokens]
    val: Iterator[Tokens]
    vocab_size: int
    meta: Meta | None


def prepare(text: Path, directory: Path, *, kind: str = "char", val: float = 0.1) -> Prepared:
    """Makes the data of a text; previous files are replaced once the new ones are complete."""
    if not 0 < val < 1:
        raise UsageError(
            Message("--val is the share of the text for validation: above 0 and below 1"),
            Message("for example: --val 0.1"),
        )
    try:
        recipe = {"char": _characters, "byte": _bytes, "gpt2": _gpt2}[kind](text, val)
        directory.mkdir(parents=True, exist_ok=True)
        return _write(directory, kind, recipe)
    except UnicodeDecodeError as error:
        raise DataError(
            Message("“{name:word}” is not UTF-8 text", {"name": text.name}),
            Message("for any other file, use bytes as tokens: --tokens byte"),
        ) from error
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not text.exists():
            missing = Message("there is no file “{name:word}”", {"name": text.name})
            raise DataError(missing, Message("check the path")) from error
        reason = {"name": str(error.filename or directory), "reason": error.strerror or type(error).__name__}
        raise DataError(
            Message("“{name:word}” cannot be used: {reason:word}", reason),
            Message("name a text file to read, and a directory to write with --out"),
        ) from error


def _characters(path: Path, val: float) -> _Recipe:
    """One token for each character that occurs, in Unicode order, as in nanoGPT's shakespeare_char."""
    seen = np.zeros(sys.maxunicode + 1, dtype=bool)
    length = 0
    for piece in (piece for file in _files(path) for piece in _pieces(file)):
        seen[_codes(piece)] = True
        length += len(piece)
    codes = np.flatnonzero(seen)
    if len(codes) > _LARGEST_VOCABULARY:
        facts = {"count": len(codes), "most": _LARGEST_VOCABULARY}
        raise DataError(
            Message("the text has {count:n} different characters, and a token file allows {most:n}", facts),
            Message("for any other file, use bytes as tokens: --tokens byte"),
        )
    token_of = np.zeros(sys.maxunicode + 1, dtype=np.uint16)
    token_of[codes] = np.arange(len(codes))
    train, rest = _halves(path, _pieces, val, length)
    meta = _meta([chr(code) for code in codes.tolist()])
    return _Recipe(
        (token_of[_codes(piece)] for piece in train), (token_of[_codes(piece)] for piece in rest), len(codes), meta
    )


def _bytes(path: Path, val: float) -> _Recipe:
    """The bytes of any file as tokens. In meta.pkl byte n is character n, so that nanoGPT's sample.py can print it."""
    train, rest = _halves(path, _raw_pieces, val)
    meta = _meta([chr(code) for code in range(256)])
    return _Recipe((_widened(piece) for piece in train), (_widened(piece) for piece in rest), 256, meta)


def _gpt2(path: Path, val: float) -> _Recipe:
    """GPT-2's tokens, without meta.pkl, by which nanoGPT recognises them. The two splits are encoded separately."""
    encode = gpt2_table().encode_ordinary
    is_documents = _files(path)[0].suffix == PARQUET

    def tokens_of(pieces: Iterator[str]) -> Iterator[Tokens]:
        if not is_documents:
            yield from encoded(pieces, encode)
            return
        for document in pieces:  # after each GPT-2's mark, the last of the vocabulary, as in nanoGPT's openwebtext
            yield np.array([*encode(document.removesuffix(_BETWEEN)), GPT2_TOKENS - 1], dtype=np.uint16)

    train, rest = _halves(path, _pieces, val)
    return _Recipe(tokens_of(train), tokens_of(rest), GPT2_TOKENS, None)


def gpt2_table() -> Any:
    """GPT-2's tokens, from tiktoken."""
    try:
        import tiktoken
    except ImportError as error:
        raise DataError(
            Message("GPT-2's tokens need tiktoken, which is not installed"),
            Message("install it with: pip install tiktoken; or use --tokens char"),
        ) from error
    try:
        return tiktoken.get_encoding("gpt2")
    except Exception as error:  # any error of its download
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(
            Message("tiktoken could not fetch the table of GPT-2's tokens: {reason:word}", {"reason": reason}),
            Message("it is fetched once, from the network; without one, use --tokens char"),
        ) from error


def encoded(pieces: Iterator[str], encode: Callable[[str], list[int]]) -> Iterator[Tokens]:
    """The tokens of a text in pieces, the same as for the whole: only cut between a word and the end of its line."""
    held = ""
    for piece in pieces:
        start = max(len(held), 1)
        held += piece
        cut = held.rfind("\n", start)
        while cut > 0 and held[cut - 1].isspace():
            cut = held.rfind("\n", start, cut)
        if cut <= 0 and len(held) >= _LONGEST_LINE:
            cut = len(held)
        if cut > 0:
            yield np.array(encode(held[:cut]), dtype=np.uint16)
            held = held[cut:]
    yield np.array(encode(held), dtype=np.uint16)


def _files(path: Path) -> list[Path]:
    """The file itself, or all shards in the directory."""
    return sorted(path.glob(f"*{PARQUET}")) or [path]


def _halves(
    path: Path, pieces: Callable[[Path], Iterator[AnyStr]], val: float, length: int | None = None
) -> tuple[Iterator[AnyStr], Iterator[AnyStr]]:
    """For training and for validation: the last of several shards, as in nanochat, else a share of the text."""
    *most, last = _files(path)
    if most:
        return (piece for file in most for piece in pieces(file)), pieces(last)
    if length is None:
        is_known = pieces is _raw_pieces and last.suffix != PARQUET
        length = last.stat().st_size if is_known else sum(len(piece) for piece in pieces(last))
    train = int(length * (1 - val))  # the beginning of the text, as in nanoGPT
    if min(train, length - train) < 2:  # one token to read and one to predict
        parts = {"train": train, "val": length - train}
        short = Message(
            "the text is too short to split: {train:n} tokens for training and {val:n} for validation", parts
        )
        what = short if length else Message("the text is empty")
        raise DataError(what, Message("give a text of at least a few thousand characters"))
    return _split(pieces(last), train)


def _split(pieces: Iterator[AnyStr], length: int) -> tuple[Iterator[AnyStr], Iterator[AnyStr]]:
    """The first `length` of a stream, and the rest, which can be read after the first part."""
    left_over: list[AnyStr] = []

    def first() -> Iterator[AnyStr]:
        remaining = length
        for piece in pieces:
            yield piece[:remaining]
            if len(piece) >= remaining:
                left_over.append(piece[remaining:])
                return
            remaining -= len(piece)

    def rest() -> Iterator[AnyStr]:
        yield from left_over
        yield from pieces

    return first(), rest()


def _documents(path: Path) -> Iterator[str]:
    """The documents in the column `text` of a Parquet file, read a few at a time."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise DataError(
            Message("to read and write Parquet, stepwatch needs pyarrow"), Message('pip install "stepwatch[parquet]"')
        ) from error
    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1000, columns=["text"]):
                yield from (f"{document}{_BETWEEN}" for document in batch.column(0).to_pylist() if document)
    except (pyarrow.ArrowException, IndexError) as error:
        raise DataError(
            Message("“{name:word}” is damaged, or has no column “text”", {"name": path.name}),
            Message("give a text, or documents in Parquet files as nanochat has them"),
        ) from error


def _pieces(path: Path) -> Iterator[str]:
    if path.suffix == PARQUET:
        yield from _documents(path)
    else:
        with open(path, encoding="utf-8-sig") as stream:
            yield from iter(lambda: stream.read(_PIECE), "")


def _raw_pieces(path: Path) -> Iterator[bytes]:
    if path.suffix == PARQUET:
        yield from (document.encode() for document in _documents(path))
    else:
        with open(path, "rb") as stream:
            yield from iter(lambda: stream.read(_PIECE), b"")


def _codes(text: str) -> np.ndarray[Any, np.dtype[np.uint32]]:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")


def _widened(piece: bytes) -> Tokens:
    return np.frombuffer(piece, dtype=np.uint8).astype(np.uint16)


def _meta(characters: list[str]) -> Meta:
    """The content of meta.pkl that nanoGPT reads."""
    return {
        "vocab_size": len(characters),
        "itos": dict(enumerate(characters)),
        "stoi": {character: token for token, character in enumerate(characters)},
    }


def _write(directory: Path, kind: str, recipe: _Recipe) -> Prepared:
    """Writes all files under other names first, then moves each into place."""
    contents: dict[str, Iterable[bytes]] = {
        "train.bin": (tokens.tobytes() for tokens in recipe.train),
        "val.bin": (tokens.tobytes() for tokens in recipe.val),
    }
    if recipe.meta is not None:
        contents["meta.pkl"] = [pickle.dumps(recipe.meta, protocol=4)]
    parts = {name: directory / f"{name}.{os.getpid()}.tmp" for name in contents}
    try:
        for name, part in parts.items():
            with open(part, "wb") as stream:
                stream.writelines(contents[name])
                stream.flush()
                os.fsync(stream.fileno())
        counts = [parts[name].stat().st_size // 2 for name in ("train.bin", "val.bin")]  # two bytes per token
        for name, part in parts.items():
            os.replace(part, directory / name)
        if recipe.meta is None:  # otherwise that of a previous text would be used
            (directory / "meta.pkl").unlink(missing_ok=True)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
    return Prepared(directory, kind, recipe.vocab_size, *counts)
