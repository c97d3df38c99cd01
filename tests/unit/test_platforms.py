"""What differs between systems, on the one that the tests run on."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwatch import platforms
from stepwatch.platforms import quoted, quoted_path


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
    platforms.replace_durably(tmp_path / "new", tmp_path / "old")
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


@pytest.mark.skipif(sys.platform != "linux", reason="others do not say what of a file is in memory")
def test_what_is_put_aside_is_in_memory_only_while_it_is_read() -> None:
    def in_memory() -> int:
        return int(psutil.Process().memory_info().shared)

    parts = [bytes([number]) * 1_000_000 for number in range(16)]
    aside = platforms.spill_to_disk(iter(parts))
    assert aside is not None
    platforms.release_pages()
    before = in_memory()
    assert aside[:] == b"".join(parts)
    assert in_memory() - before > 15e6
    platforms.release_pages()
    assert in_memory() - before < 1e6
    assert aside[-1] == 15


def test_where_there_is_no_room_nothing_is_put_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    assert platforms.spill_to_disk([b"a"]) is None


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_freed_memory_is_kept() -> None:
    code = """
import os
from stepwatch.platforms import keep_freed_memory
def held():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
before = held()
large = b"x" * 20_000_000
del large
given_back = held() - before
keep_freed_memory()
large = b"x" * 20_000_000
del large
print(given_back < 5_000_000, held() - before > 15_000_000)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["True", "True"]


def test_the_memory_of_the_machine_is_known() -> None:
    assert platforms.physical_memory_bytes() > 1e8


ODD = [
    "train.log", "my run.log", "it's.log", 'a "b".log', "$HOME.log", "`id`.log", "a!b.log", "größe.log", "实验 1.log",
    "😀.log", "a;b&c|d.log", "*.log", "[1]?.log", "~/x.log", "a\\b.log", "=x", "#1.log", "(1).log", "", "a\nb.log",
    "\x1b[31mred.log", "\u202eabc.log", "a\u00a0b.log", "{a,b}.log", "100%.log", "a^b.log", "<x>.log", "-rf",
    "tab\t.log",
]  # fmt: skip


def arguments_in(shell: str, texts: list[str]) -> list[bytes]:
    """What a program gets of each text as it is typed on a line of its own."""
    lines = [f"printf '%s\\0' {text}\n" for text in texts]
    return subprocess.run([shell, "-c", "".join(lines)], stdout=subprocess.PIPE, check=True).stdout.split(b"\0")[:-1]


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell is needed")
def test_a_shell_reads_what_was_quoted() -> None:
    odd = [*ODD, os.fsdecode(b"\xff\xfe.log")]
    assert arguments_in("bash", [*map(quoted, odd)]) == [*map(os.fsencode, odd)]


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_what_is_quoted_is_one_printable_line_that_can_be_split_again(text: str) -> None:
    import shlex

    line = quoted(text)
    assert line.isprintable()
    if not line.startswith("$'"):
        assert shlex.split(line) == [text]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("runs/a.log", "runs/a.log"), ("größe.log", "größe.log"), ("my run.log", '"my run.log"'),
        ("it's.log", '"it\'s.log"'), ("$x.log", "'$x.log'"), ("a\nb", r"$'a\x0ab'"),
    ],
)  # fmt: skip
def test_quotes_are_used_only_where_needed_and_double_ones_where_they_are_enough(text: str, line: str) -> None:
    assert quoted(text) == line


def test_a_name_like_an_option_is_named_with_its_directory() -> None:
    assert quoted_path("-x.log") == os.path.join(os.curdir, "-x.log")
    assert quoted_path("-") == "-"


def arguments_on_windows(line: str) -> list[str]:
    """As the C library of Windows divides a command line."""
    found, current, within, backslashes = [], "", False, 0
    for letter in line + " ":
        if letter == "\\":
            backslashes += 1
            continue
        if letter == '"':
            current += "\\" * (backslashes // 2)
            if backslashes % 2:
                current += '"'
            else:
                within = not within
        else:
            current += "\\" * backslashes
            if letter == " " and not within:
                found.append(current)
                current = ""
            else:
                current += letter
        backslashes = 0
    return found


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_a_program_of_windows_gets_what_was_quoted_for_cmd(text: str) -> None:
    line = quoted(text, for_cmd=True)
    assert line.isprintable()
    if text.isprintable():
        assert arguments_on_windows(line) == [text]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (r"C:\runs\a.log", r"C:\runs\a.log"), ("my run.log", '"my run.log"'), ("a&b.log", '"a&b.log"'),
        ("it's.log", '"it\'s.log"'), ("a^b|c.log", '"a^b|c.log"'), ("$x.log", '"$x.log"'), ("runs\\ ", '"runs\\ "'),
        ("my runs\\", '"my runs\\\\"'), ("a\nb", '"a?b"'), ("", '""'),
    ],
)  # fmt: skip
def test_cmd_takes_double_quotes_alone(text: str, line: str) -> None:
    assert quoted(text, for_cmd=True) == line
