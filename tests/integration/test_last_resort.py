"""Whatever escapes is two lines and an exit code; a full disk and a closed pipe too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import stepwatch
from tools import ROOT

LOG = ROOT / "examples" / "short.log"
QUIET = {**os.environ, "STEPWATCH_DEBUG": "", "PYTHONPATH": str(ROOT / "src")}


def test_what_nothing_catches_is_two_lines_and_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr("stepwatch.cli.explain.explain", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = stepwatch("explain", LOG, STEPWATCH_DEBUG="")
    what, remedy = done.stderr.decode().strip().split("\n")
    assert (done.returncode, done.stdout) == (1, b"")
    assert what == "stepwatch: a bug in stepwatch: ZeroDivisionError: a mistake of ours"
    (file,) = tmp_path.iterdir()
    assert remedy.endswith(str(file))
    assert "Traceback" in file.read_text()
    with pytest.raises(ZeroDivisionError):
        stepwatch("explain", LOG)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [[str(LOG)], ["gpus"], ["--help"]])
def test_a_full_disk_is_named(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "stepwatch", *arguments], stdout=full, stderr=subprocess.PIPE, env=QUIET, check=False
        )
    assert done.returncode == 1
    assert done.stderr.decode().startswith("stepwatch: the answer cannot be written: No space left on device\n")
    assert done.stderr.count(b"\n") == 2


def in_shell(arguments: list[str], behind: str) -> subprocess.CompletedProcess[bytes]:
    """With something behind the command; what is written last is its own exit code."""
    command = f"{{ '{sys.executable}' -m stepwatch \"$@\"; echo $? >&2; }} {behind}"
    return subprocess.run(["sh", "-c", command, "sh", *arguments], capture_output=True, env=QUIET, check=False)


ANSWERS = [[str(LOG), "--json"], ["gpus"], ["--help"], ["--version"], ["watch", "--once", str(LOG)]]


@pytest.mark.parametrize("arguments", ANSWERS)
def test_a_reader_that_goes_away_is_no_matter(arguments: list[str]) -> None:
    done = in_shell(arguments, "| true")
    assert done.stderr == b"0\n"


def test_a_reader_that_goes_away_has_what_it_read() -> None:
    done = in_shell(ANSWERS[0], "| head -c 10")
    assert (done.stdout, done.stderr) == (b'{"schema":', b"0\n")


def test_a_reader_that_goes_away_does_not_change_what_was_found(tmp_path: Path) -> None:
    """A regression is one, whoever reads about it."""
    slow = tmp_path / "slow.log"
    lines = ("".join(f"iter {n}: loss 2.0, time {ms + n % 3}.00ms, mfu 20.00%\n" for n in range(90)) for ms in (50, 90))
    for path, text in zip((tmp_path / "fast.log", slow), lines, strict=True):
        path.write_text(text)
    done = in_shell(["compare", str(tmp_path / "fast.log"), str(slow), "--fail-over", "5%"], "| true")
    assert done.stderr == b"3\n"


@pytest.mark.parametrize("arguments", ANSWERS)
def test_an_answer_for_a_closed_output_is_lost_and_said_to_be(arguments: list[str]) -> None:
    done = in_shell(arguments, ">&-")
    what, remedy, code = done.stderr.decode().splitlines()
    assert what == "stepwatch: the answer cannot be written: Bad file descriptor"
    assert (remedy, code) == ("  choose another file with -o", "1")


def test_an_answer_in_a_file_needs_no_output(tmp_path: Path) -> None:
    done = in_shell([str(LOG), "--json", "-o", str(tmp_path / "a.json")], ">&-")
    assert done.stderr.endswith(b"\n0\n")
    assert (tmp_path / "a.json").read_bytes().startswith(b'{"schema":')


def test_a_command_is_run_though_nobody_can_read_what_it_prints(tmp_path: Path) -> None:
    done = in_shell(["run", "-o", str(tmp_path / "run"), "--", "sh", "-c", "echo hello; exit 7"], ">&-")
    assert done.stderr.endswith(b"\n7\n")
    assert any(b"hello" in file.read_bytes() for file in (tmp_path / "run").iterdir())
    command = f"exec '{sys.executable}' -m stepwatch run -o '{tmp_path / 'again'}' -- sh -c 'exit 7' >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], env=QUIET, check=False).returncode == 7
