"""What differs between systems, on the one that the tests run on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepwatch import platforms


def test_a_file_is_claimed_by_one_and_free_when_that_one_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    first, second = (os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for _ in range(2))
    assert platforms.claim(first)
    assert not platforms.claim(second)
    os.write(second, b"readers and other writers are not kept out")
    assert path.read_bytes()
    os.close(first)
    assert platforms.claim(second)
    os.close(second)


def test_a_file_takes_the_place_of_another(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("new")
    (tmp_path / "old").write_text("old")
    platforms.put_in_place(tmp_path / "new", tmp_path / "old")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_text() == "new"


def test_a_log_that_is_followed_may_be_renamed_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("iter 0")
    with platforms.opened_to_follow(str(path)) as stream:
        path.rename(tmp_path / "train.log.1")
        (tmp_path / "train.log.1").unlink()
        assert stream.read() == b"iter 0"
    with pytest.raises(FileNotFoundError):
        platforms.opened_to_follow(str(path))


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS keeps no limit of memory, and says so")
def test_a_limit_of_memory_is_kept() -> None:
    takes = "from stepwatch.platforms import limit_memory; assert limit_memory(10**8)\ntry: bytes(2 * 10**8)\n"
    done = subprocess.run([sys.executable, "-c", takes + "except MemoryError: print('refused')"], capture_output=True)
    assert done.stdout.strip() == b"refused"


def test_the_memory_of_the_machine_is_known() -> None:
    assert platforms.physical_memory_bytes() > 1e8
