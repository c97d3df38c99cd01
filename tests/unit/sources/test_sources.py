"""Whatever was handed in, the readers see plain lines."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from stepwatch.errors import TooLarge, UnreadableInput
from stepwatch.sources import from_file, from_stdin, from_text, normalise, packed

LINE = "iter 10: loss 4.2000, time 168.60ms, mfu 3.21%"
LOG = f"step 0: train loss 4.3000, val loss 4.3100\n{LINE}\n"


class Pipe:
    """Standard input as a program sees it."""

    def __init__(self, stream: object) -> None:
        self.buffer = stream


def a_file(folder: Path, data: bytes, name: str = "train.log") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


# --- encodings and line ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_every_encoding_gives_the_same_lines(encoding: str) -> None:
    mark = {"utf-16-be": b"\xfe\xff", "utf-32-be": b"\x00\x00\xfe\xff"}.get(encoding, b"")
    assert normalise(mark + LOG.encode(encoding)).decode() == LOG


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_that_lost_its_mark_is_recognised(encoding: str) -> None:
    assert normalise((LOG * 4).encode(encoding)).decode() == LOG * 4


def test_utf16_appended_to_a_utf8_log_is_read() -> None:
    data = LOG.encode() + LOG.replace("\n", "\r\n").encode("utf-16-le")
    assert [line for line in normalise(data).decode().split("\n") if line] == LOG.split("\n")[:2] * 2


def test_a_byte_order_mark_in_the_middle_is_dropped() -> None:
    assert normalise(LOG.encode() + LOG.encode("utf-8-sig")).decode() == LOG + LOG


def test_utf16_cut_in_the_middle_of_a_character_is_read() -> None:
    assert normalise(LOG.encode("utf-16")[:-3]).decode().startswith(LOG[:-2])


BAR = "  1%|▊         | 10/1000 [00:32<53:42,  3.25s/it, Loss=3.4, LR=1.00e-04]"


@pytest.mark.parametrize(
    "bar",
    [BAR, "  0%|          | 0/1000 [00:00<?, ?it/s]", "Epoch 1: 100%|" + "█" * 250 + "| 5/5 [00:01<00:00, 4.90it/s]",
     "[rank0]:  5%|▌ | 1.5k/30.0k [1:00:00<19:00:00, 2.4s/ba]"],
)  # fmt: skip
@pytest.mark.parametrize(
    "line", [LINE, "{'loss': 2.4}", "[2024-05-04 09:30:07] x", "2024-05-04 x", "*** x", BAR.strip()]
)
def test_a_line_behind_a_progress_bar_is_one_of_its_own(bar: str, line: str) -> None:
    assert normalise(f"a\n{bar}{line}\nb\n".encode()).decode() == f"a\n{bar}\n{line}\nb\n"
    assert normalise(f"{bar}\r{bar}{line}".encode()).decode() == f"{bar}\n{bar}\n{line}"


@pytest.mark.parametrize(
    "line",
    [BAR, BAR + " loss: 0.5", BAR + "]", BAR + ", x", f'{{"text": "{BAR}"}}', "5%|x| a <b]c", "[a<b]%|c",
     "50% | 1/2 [00:01<00:01, 1s/it]x", "done [00:32<53:42,  3.25s/it]x 5%|"],
)  # fmt: skip
def test_what_belongs_to_a_bar_or_is_none_stays_on_its_line(line: str) -> None:
    assert normalise(f"{line}\n".encode()).decode() == f"{line}\n"


def test_many_brackets_without_an_end_take_no_longer() -> None:
    began = time.process_time()
    normalise(b"5%|<" + b"]a" * 200_000)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_carriage_returns_end_lines(end: str) -> None:
    assert normalise(LOG.replace("\n", end).encode()).decode() == LOG


@pytest.mark.parametrize(
    "dressed",
    [
        f"\x1b[32m{LINE}\x1b[0m",
        f"\x1b[1;38;5;208m{LINE}\x1b[K",
        f"\x1b]0;my title\x07{LINE}",
        f"\x1b]8;;http://x\x1b\\{LINE}\x1b]8;;\x1b\\",
        f"\x1b(B{LINE}\x1b[?25h",
        f"\x1bM{LINE}",
        f"\x1b7{LINE}\x1b8",
        f"\x1b={LINE}\x1b>",
        f"abc\x08\x08\x08{LINE}",
        f"\x00\x00{LINE}\x00",
        LINE.replace("loss", "lo\x00ss"),
        f"\x07\x0c{LINE}",
    ],
)
def test_colours_backspaces_and_nuls_are_gone(dressed: str) -> None:
    assert normalise(dressed.encode()).decode() == LINE


def test_a_title_that_never_ends_hides_only_its_line() -> None:
    assert LINE in normalise(f"\x1b]0;no end\r{LINE}\r".encode()).decode()


def test_plain_text_is_not_copied() -> None:
    data = LOG.encode()
    assert normalise(data) is data


def test_pasted_text_may_hold_half_a_surrogate_pair() -> None:
    assert LINE in from_text(f"\ud83d\n{LINE}\n").text.decode("utf-8", "replace")


# --- gz --------------------------------------------------------------------------------------------------------------


def test_gz_is_expanded(tmp_path: Path) -> None:
    assert from_file(a_file(tmp_path, gzip.compress(LOG.encode()), "train.log.gz")).text.decode() == LOG


def test_gz_is_known_by_its_content_not_its_name(tmp_path: Path) -> None:
    assert from_file(a_file(tmp_path, gzip.compress(LOG.encode()))).text.decode() == LOG


def test_gz_of_several_members_is_read_to_its_end(tmp_path: Path) -> None:
    data = b"".join(gzip.compress(f"{LINE} {i}\n".encode()) for i in range(50))
    assert from_file(a_file(tmp_path, data)).text.count(b"\n") == 50


@pytest.mark.parametrize("size", [2, 3, 7, 64, 65])
def test_gz_members_are_found_wherever_a_read_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(packed, "READ_BYTES", size)
    data = b"".join(gzip.compress(f"{LINE} {i}\n".encode()) for i in range(50))
    assert from_file(a_file(tmp_path, data)).text.count(b"\n") == 50


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9, 0.99])
def test_gz_cut_short_gives_what_it_holds(tmp_path: Path, kept: float) -> None:
    text = "".join(f"iter {i}: loss {4 / (i + 1):.4f}, time {100 + i % 7}.00ms\n" for i in range(20000)).encode()
    data = gzip.compress(text)
    found = from_file(a_file(tmp_path, data[: int(len(data) * kept)])).text
    assert text.startswith(found)
    assert len(found) > 0.8 * kept * len(text)


def test_gz_with_a_wrong_checksum_gives_what_it_holds(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(LOG.encode()))
    data[-6] ^= 0xFF
    assert from_file(a_file(tmp_path, bytes(data))).text.decode() == LOG


def test_gz_that_ends_on_a_full_step_of_expansion_loses_nothing(tmp_path: Path) -> None:
    text = b"a" * ((1 << 24) + 1000)
    assert from_file(a_file(tmp_path, gzip.compress(text))).text == text


def test_gz_of_nothing_is_an_empty_log(tmp_path: Path) -> None:
    assert from_file(a_file(tmp_path, gzip.compress(b""))).text == b""


def test_gz_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="gzip"):
        from_file(a_file(tmp_path, b"\x1f\x8b" + b"\xff" * 100))


def test_gz_bomb_stops_at_the_limit(tmp_path: Path) -> None:
    bomb = gzip.compress(b"0" * 50_000_000)
    began = time.process_time()
    with pytest.raises(UnreadableInput, match="larger"):
        from_file(a_file(tmp_path, bomb), limit=1_000_000)
    assert time.process_time() - began < 0.5


# --- xz, bzip2, zstd -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compress", [lzma.compress, bz2.compress])
def test_xz_and_bzip2_are_known_by_their_content(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    assert from_file(a_file(tmp_path, compress(LOG.encode()))).text.decode() == LOG
    assert from_file(a_file(tmp_path, compress(LOG.encode()) * 3)).text.decode() == LOG * 3


@pytest.mark.parametrize("compress", [partial(lzma.compress, preset=0), bz2.compress], ids=["xz", "bzip2"])
def test_xz_and_bzip2_cut_short_give_what_they_hold(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    rng = random.Random(1)
    text = "".join(f"iter {i}: loss {rng.random():.9f}, time 100.00ms\n" for i in range(30_000)).encode()
    data = compress(text)
    found = from_file(a_file(tmp_path, data[: len(data) * 3 // 4])).text
    assert text.startswith(found)
    assert len(found) > len(text) / 2


@pytest.mark.parametrize("compress", [lzma.compress, bz2.compress])
def test_xz_and_bzip2_bombs_stop_at_the_limit(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    path = a_file(tmp_path, compress(b"0" * 5_000_000))
    with pytest.raises(TooLarge):
        from_file(path, limit=1_000_000)


def test_xz_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="xz"):
        from_file(a_file(tmp_path, b"\xfd7zXZ\x00" + b"\xff" * 100))


ZSTD = b"\x28\xb5\x2f\xfd"


def test_zstd_without_a_machine_for_it_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("compression.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UnreadableInput, match="compressed with zstd") as told:
        from_file(a_file(tmp_path, ZSTD + b"anything"))
    assert told.value.remedy is not None
    assert "zstandard" in told.value.remedy.in_english()


class Zstandard(ModuleType):
    """As the package, with members whose content stands there as it is, between the magic and a full stop."""

    ZstdError = ArithmeticError

    class ZstdDecompressor:
        def decompressobj(self) -> Zstandard.Machine:
            return Zstandard.Machine()

    class Machine:
        eof, unused_data = False, b""

        def decompress(self, data: bytes) -> bytes:
            held, stop, rest = data.removeprefix(ZSTD).partition(b".")
            self.eof, self.unused_data = bool(stop), rest
            return held


def test_zstd_is_expanded_by_the_package_where_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    monkeypatch.setitem(sys.modules, "zstandard", Zstandard("zstandard"))
    line = b"iter 1: loss 2, time 3ms\n"
    path = a_file(tmp_path, (ZSTD + line * 100 + b".") * 2)
    assert from_file(path).text == line * 200
    with pytest.raises(TooLarge):
        from_file(path, limit=3000)


def test_a_device_without_an_end_stops_at_the_limit() -> None:
    if os.path.exists("/dev/zero"):
        with pytest.raises(TooLarge):
            from_file("/dev/zero", limit=1_000_000)


def test_plain_file_above_the_limit_is_told(tmp_path: Path) -> None:
    path = a_file(tmp_path, b"x" * 1001)
    with pytest.raises(UnreadableInput, match="larger"):
        from_file(path, limit=1000)
    assert from_file(path, limit=1001).text == b"x" * 1001


class Endless(io.RawIOBase):
    """A stream like /dev/zero."""

    def read(self, size: int = -1) -> bytes:
        assert size >= 0, "this would never end"
        return bytes(size)


def test_endless_stream_stops_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Pipe(Endless()))
    with pytest.raises(UnreadableInput, match="larger"):
        from_stdin(limit=100_000)


# --- files that cannot be read -------------------------------------------------------------------------------------


def test_missing_file_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match=r"there is no file “nowhere\.log”") as caught:
        from_file(tmp_path / "nowhere.log")
    assert caught.value.remedy is not None
    assert caught.value.exit_code == 1


def test_directory_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="is a directory"):
        from_file(tmp_path)


class Refusing(io.RawIOBase):
    """A stream whose reading fails, as a directory's does when it is given as standard input."""

    def __init__(self, error: OSError) -> None:
        self.error = error

    def read(self, size: int = -1) -> bytes:
        raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (IsADirectoryError(21, "Is a directory"), "is a directory"),
        (OSError(5, "Input/output error"), "cannot be read: Input/output error"),
        (PermissionError(13, "Permission denied"), "no permission"),
    ],
)
def test_input_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: OSError, said: str) -> None:
    monkeypatch.setattr(sys, "stdin", Pipe(Refusing(error)))
    with pytest.raises(UnreadableInput, match=said):
        from_stdin()
    # By a stream of our own: root may read every file.
    monkeypatch.setattr("builtins.open", lambda path, mode: Refusing(error))
    with pytest.raises(UnreadableInput, match=said):
        from_file(tmp_path / "train.log")


def test_closed_standard_input_is_an_empty_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert from_stdin().text == b""


def test_standard_input_may_be_gz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Pipe(io.BytesIO(gzip.compress(LOG.encode()))))
    assert from_stdin().text.decode() == LOG


def test_file_name_that_is_no_text_can_be_printed(tmp_path: Path) -> None:
    odd = os.fsdecode(b"\xff\x1b[31m.log") if sys.platform == "linux" else "\u202e.log"
    path = tmp_path / odd
    path.write_text(LOG)
    name = from_file(path).name
    assert name.isprintable()
    assert name.encode("utf-8").endswith(b".log")


# --- notebooks and Kaggle ------------------------------------------------------------------------------------------


def a_notebook(**extra: object) -> dict[str, object]:
    stream = {"name": "stdout", "output_type": "stream", "text": [line + "\n" for line in LOG.splitlines()]}
    result = {"output_type": "execute_result", "data": {"text/plain": "'a result'"}, "metadata": {}}
    failure = {"output_type": "error", "ename": "Stop", "traceback": ["\x1b[31mKeyboardInterrupt\x1b[0m"]}
    return {
        "cells": [
            {"cell_type": "markdown", "metadata": {}, "source": ["iter 99: loss 1, time 1ms in prose"]},
            {"cell_type": "code", "metadata": {}, "source": "!python train.py", "outputs": [stream, result, failure]},
        ],
        "metadata": {"kernelspec": {"name": "python3"}}, "nbformat": 4, "nbformat_minor": 5, **extra,
    }  # fmt: skip


@pytest.mark.parametrize("indent", [None, 1])
def test_notebook_gives_the_output_of_its_cells(indent: int | None) -> None:
    text = normalise(json.dumps(a_notebook(), indent=indent).encode()).decode()
    assert text.startswith(LOG)
    assert "prose" not in text
    assert "KeyboardInterrupt" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("indent", [None, 1])
def test_notebook_cut_short_gives_the_lines_it_holds(indent: int | None) -> None:
    data = json.dumps(a_notebook(), indent=indent).encode()
    lines = normalise(data[: data.index(b"3.21%") + 8]).decode().splitlines()
    assert set(LOG.splitlines()) <= set(lines)


def test_notebook_nested_without_end_cannot_overflow() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    data = json.dumps(a_notebook(x="DEEP")).replace('"DEEP"', deep).encode()
    assert set(LOG.splitlines()) <= set(normalise(data).decode().splitlines())


@pytest.mark.parametrize(
    "odd",
    ['{"cells": 5}', '{"cells": [1, null, {"outputs": 3}]}', '{"cells": [{"outputs": [1, {"text": [1]}]}]}',
     '{"cells": [{"outputs": [{"text": "\\ud800"}]}]}', '{"cells": ' + "9" * 6000 + "}", '["cells"', '{"cells"',
     '[{"stream_name": 1}, 5, {"data": 7}]', '[{"stream_name"'],
)  # fmt: skip
def test_odd_json_never_raises(odd: str) -> None:
    assert isinstance(normalise(odd.encode()), bytes)


def a_kaggle_log(lines: list[tuple[float, str]]) -> str:
    entries = (json.dumps({"stream_name": "stdout", "time": when, "data": text}) for when, text in lines)
    return "[" + "\n,".join(entries) + "\n]"


KAGGLE = [(5.5, LOG.splitlines()[0] + "\n"), (9.25, LINE + "\n"), (3700.125, LINE.replace("10", "20") + "\n")]


def test_kaggle_log_gives_its_lines_with_their_clock() -> None:
    lines = normalise(a_kaggle_log(KAGGLE).encode()).decode().splitlines()
    assert lines == [
        "00:00:05.500 " + LOG.splitlines()[0], "00:00:09.250 " + LINE, "01:01:40.125 " + LINE.replace("10", "20"),
    ]  # fmt: skip


def test_kaggle_entry_that_goes_on_in_the_next_gets_one_clock() -> None:
    text = normalise(a_kaggle_log([(1.0, LINE[:20]), (2.0, LINE[20:] + "\n")]).encode()).decode()
    assert text == "00:00:01.000 " + LINE + "\n"


@pytest.mark.parametrize("cut", range(2, 60, 7))
def test_kaggle_log_cut_short_gives_its_whole_entries(cut: int) -> None:
    lines = normalise(a_kaggle_log(KAGGLE)[:-cut].encode()).decode().splitlines()
    assert [line[13:] for line in lines[:2]] == LOG.splitlines()


def test_kaggle_log_on_one_line_cut_short_gives_its_lines() -> None:
    text = a_kaggle_log(KAGGLE).replace("\n,", ",")[:-30]
    assert set(LOG.splitlines()) <= set(normalise(text.encode()).decode().splitlines())


@pytest.mark.parametrize("when", ['"x"', "null", "1e400", "-3", "true", "NaN"])
def test_kaggle_entry_without_a_sensible_time_has_no_clock(when: str) -> None:
    text = a_kaggle_log([(0.5, LINE + "\n")]).replace("0.5", when)
    assert normalise(text.encode()).decode() == LINE + "\n"


# --- files beside a record --------------------------------------------------------------------------------------

RECORD = b'{"stepwatch":1,"started":1.0,"rank":0,"world_size":2}\n{"step":0,"s":0.1,"t":2.0}\n'


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes(RECORD)
    os.mkfifo(tmp_path / "run.rank1.jsonl")
    assert from_file(tmp_path / "run.jsonl").beside == ()
    run = tmp_path / "mlflow"
    (run / "metrics").mkdir(parents=True)
    (run / "meta.yaml").write_text("")
    os.mkfifo(run / "metrics" / "accuracy")
    (run / "metrics" / "loss").write_text("1700000000000 2.5 0\n")
    assert from_file(run).text == b"1700000000000 2.5 0 loss\n"


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="no file is at hand that opens and cannot be read")
def test_a_file_that_cannot_be_read_fails_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes(RECORD)
    (tmp_path / "run.rank1.jsonl").symlink_to("/proc/self/mem")
    with pytest.raises(UnreadableInput, match=r"run\.rank1\.jsonl"):
        from_file(tmp_path / "run.jsonl")


def test_what_is_printed_behind_a_bar_that_was_drawn_below_is_a_line_of_its_own() -> None:
    bar = b"Validation: |          | 0/? [00:00<?, ?it/s]\x1b[A"
    printed = normalise(bar + b"[\x1b[37m12/09/24 14:03:31\x1b[0m] Epoch 0: loss 1.5\n")
    assert printed.split(b"\n")[1] == b"[12/09/24 14:03:31] Epoch 0: loss 1.5"
    assert normalise(bar + b"\r" + bar + b"\x1b[A\n").count(b"\n") == 2  # only moved
