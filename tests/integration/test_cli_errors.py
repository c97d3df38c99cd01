"""The command as people call it: what is wrong in one line, what to do in another, never a traceback."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import stepwatch

LINES = [f"iter {i}: loss 4.0000, time {9000 if i == 0 else 100 + i % 3}.00ms, mfu 5.00%" for i in range(0, 300, 10)]
LOG = "max_iters = 5000\n" + "\n".join(LINES) + "\n"
ENVIRONMENT = {**{k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG"))}, "PYTHONUTF8": "1"}


def assert_told(done: subprocess.CompletedProcess[bytes], code: int, *said: str) -> None:
    error = done.stderr.decode()
    assert done.returncode == code, error
    assert done.stdout == b""
    assert len(error.splitlines()) == 2, error
    assert error.startswith("stepwatch: ")
    assert "Traceback" not in error
    assert all(letter.isprintable() or letter in "\n\u00a0\u202f" for letter in error)
    for words in said:
        assert words in error


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(LOG)
    return path


# --- input that cannot be answered: 1 --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"), (b"\n \n", "empty"), (bytes(range(256)) * 40, "not text"), (b"hello\n", "no iteration"),
        (b"iter 5: loss 4.2 \x1b[31mred\x07\n", "iter 5: loss 4.2 red"), ("iter 5: \u202eloss\u0085\n".encode(),
        "iter 5"),
        (b"\x1f\x8b\xff\xff\xff\xff", "gzip"), (b'{"cells": []}', "no iteration"), (b"iter " * 100_000, "no iteration"),
    ],
)  # fmt: skip
def test_standard_input_that_holds_no_run(data: bytes, said: str) -> None:
    assert_told(stepwatch("-", "--json", data=data), 1, said)


def test_a_pipe_needs_no_dash() -> None:
    """In a process of its own, where the pipe is a pipe and a warning an error."""
    command = [sys.executable, "-W", "error", "-m", "stepwatch", "--json"]
    done = subprocess.run(command, input=b"hello", capture_output=True, env=ENVIRONMENT, timeout=60, check=False)
    assert_told(done, 1, "no iteration", "--like")


def test_missing_file(tmp_path: Path) -> None:
    assert_told(stepwatch(tmp_path / "nowhere.log", "--json"), 1, "nowhere.log")


def test_directory(tmp_path: Path) -> None:
    assert_told(stepwatch(tmp_path, "--json"), 1, "directory")


def test_forbidden_file(log: Path) -> None:
    log.chmod(0)
    done = stepwatch(log, "--json")
    if os.access(log, os.R_OK):  # root may read everything
        assert done.returncode == 0
    else:
        assert_told(done, 1, "permission")


def test_gz_bomb(tmp_path: Path) -> None:
    path = tmp_path / "bomb.log.gz"
    path.write_bytes(gzip.compress(b"0" * 50_000_000))
    assert_told(stepwatch(path, "--json", "--max-size", "1000000"), 1, "larger", "--max-size")


def test_file_name_with_control_characters(tmp_path: Path) -> None:
    name = "a\x1b[31m\nb.log" if sys.platform != "win32" else "a b.log"
    assert_told(stepwatch(tmp_path / name, "--json"), 1, "there is no file")


@pytest.mark.parametrize("card", ["rtx 4071", "nonsense", "\x1b[31mred", " ", "x" * 5000, "407" * 400])
def test_unknown_card(log: Path, card: str) -> None:
    assert_told(stepwatch(log, "--json", "--gpu", card), 1)


def test_unknown_card_names_the_nearest(log: Path) -> None:
    assert_told(stepwatch(log, "--json", "--gpu", "rtx 4071"), 1, "4071", "4070")


# --- wrong usage: 2 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("max_iter=5", "max_iters"), ("nonsense=5", "nonsense"), ("max_iters", "key=value"), ("max_iters=0",
        "above zero"),
        ("max_iters=9**9**9", "max_iters"), ("compile=perhaps", "True or False"), ("max_iters=\x1b[31m", "max_iters"),
        ("=", "setting"), ("n_layer=" + "9" * 3000, "n_layer"), ("x" * 100_000, "key=value"),
    ],
)  # fmt: skip
def test_wrong_setting(log: Path, assignment: str, said: str) -> None:
    assert_told(stepwatch(log, "--json", "--set", assignment), 2, said)


def test_unknown_log_format(log: Path) -> None:
    assert_told(stepwatch(log, "--json", "--log-format", "cobol"), 2, "cobol", "nanogpt", "stepwatch")


def test_forced_log_format(log: Path) -> None:
    assert_told(stepwatch(log, "--json", "--log-format", "llm.c"), 1, "llm.c", "looks like nanogpt")


def test_run_that_is_not_there(log: Path) -> None:
    assert_told(stepwatch(log, "--json", "--run", "7"), 2, "7")


@pytest.mark.parametrize(
    "arguments", [["--nonsense"], ["--lang", "xx"], ["--max-size", "0"], ["--run", "x"], ["--set"]]
)
def test_unknown_options_are_wrong_usage(log: Path, arguments: list[str]) -> None:
    done = stepwatch(log, *arguments)
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr


# --- answered --------------------------------------------------------------------------------------------------------


def test_answer_goes_to_standard_output_alone(log: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "stepwatch", str(log), "--json"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=ENVIRONMENT, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["schema"] == "stepwatch.report/1"


def test_several_files_give_their_runs_in_order(log: Path, tmp_path: Path) -> None:
    packed = tmp_path / "other.log.gz"
    packed.write_bytes(gzip.compress(LOG.replace("iter 0:", "iter 1:").encode()))
    runs = json.loads(stepwatch(log, packed, "-", "--json", data=LOG.encode()).stdout)["runs"]
    assert [run["source"] for run in runs] == ["train.log", "other.log.gz", "-"]


def test_one_bad_file_among_several_is_told_and_the_rest_answered(log: Path, tmp_path: Path) -> None:
    done = stepwatch(log, tmp_path / "nowhere.log", "--json")
    assert done.returncode == 1
    assert len(json.loads(done.stdout)["runs"]) == 1
    assert "nowhere.log" in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_contradiction_names_both_and_the_user_wins(log: Path) -> None:
    done = stepwatch(log, "--json", "--set", "max_iters=700")
    assert (done.returncode, done.stderr) == (0, b"")
    (run,) = json.loads(done.stdout)["runs"]
    assert (run["settings"]["max_iters"], run["origins"]["max_iters"]) == (700, "user")
    (finding,) = [finding for finding in run["findings"] if finding["code"] == "settings_conflict"]
    assert finding["severity"] == "warning"
    assert "5000" in finding["text"].replace(",", "")
    assert "700" in finding["text"]


def test_unread_lines_are_shown_on_request_without_their_commands(tmp_path: Path) -> None:
    path = tmp_path / "odd.log"
    path.write_bytes(LOG.encode() + b"what \x1b]0;title\x07is\xc2\x9b31m \xe2\x80\xaethis\n")
    (run,) = json.loads(stepwatch(path, "--json", "--with-lines").stdout)["runs"]
    assert run["unread_lines"] == 1
    assert run["unread"][0]["text"].isprintable()
    assert "unread" not in json.loads(stepwatch(path, "--json").stdout)["runs"][0]


def test_hostile_settings_in_the_log_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "hostile.log"
    lines = ["max_iters = 9**9**9", "dtype = '\\ud800\\x1b[2J'", "out_dir = 'C:\\data'", "batch_size = 10**400", LOG]
    path.write_text("\n".join(lines))
    done = stepwatch(path, "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["runs"][0]["settings"]["dtype"] is None


def test_file_name_that_is_no_text_is_answered(tmp_path: Path) -> None:
    path = tmp_path / (os.fsdecode(b"\xff.log") if sys.platform == "linux" else "\u202e.log")
    path.write_text(LOG)
    done = stepwatch(path, "--json")
    assert (done.returncode, done.stderr) == (0, b"")


# --- in other languages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("language", "word"), [("fr", "fichier"), ("de", "Datei"), ("es", "archivo")])
def test_errors_speak_the_language_of_the_answer(tmp_path: Path, language: str, word: str) -> None:
    assert_told(stepwatch(tmp_path / "nowhere.log", "--json", "--lang", language), 1, "nowhere.log", word)


# --- settings from several places -------------------------------------------------------------------------------


def remarks(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    findings = json.loads(done.stdout)["runs"][0]["findings"]
    return [finding["text"] for finding in findings if finding["code"] in ("settings_conflict", "config_skipped")]


def test_the_log_wins_over_a_config_and_both_are_named(log: Path, tmp_path: Path) -> None:
    config = tmp_path / "other.py"
    config.write_text("max_iters = 40000\neval_iters = 50\n")
    done = stepwatch(log, "--config", config, "--json", "--no-iterations")
    settings = json.loads(done.stdout)["runs"][0]["settings"]
    assert settings["max_iters"] == 5000
    assert settings["eval_iters"] == 50
    assert any("5000" in text and "40000" in text for text in remarks(done))


def test_an_interval_that_the_evaluations_contradict_is_named(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    steps = "".join(
        f"step {n}: train loss 3, val loss 3\niter {n}: loss 3, time {3000 if n else 9000}.00ms, mfu 5.00%\n"
        + "".join(f"iter {n + i}: loss 3, time 100.00ms, mfu 5.00%\n" for i in range(10, 250, 10))
        for n in range(0, 1001, 250)
    )
    log.write_text(steps)
    done = stepwatch(log, "--set", "eval_interval=100", "--json", "--no-iterations")
    assert any("250" in text and "100" in text for text in remarks(done))


def test_nothing_of_a_config_but_names_is_repeated(log: Path, tmp_path: Path) -> None:
    config = tmp_path / "secret.py"
    config.write_text('import os\nos.environ["KEY"] = "c0ffee"\nbatch_size = len("x")\n')
    for form in ("json", "md", "terminal"):
        done = stepwatch(log, "--config", config, "--format", form)
        assert b"c0ffee" not in done.stdout
        assert b"environ" not in done.stdout


def test_a_closed_standard_input_is_an_empty_log() -> None:
    done = subprocess.run(
        f'"{sys.executable}" -m stepwatch --json <&-', shell=True, capture_output=True, env=ENVIRONMENT, check=False
    )
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


def test_what_is_no_log_is_told_shortly_and_help_names_the_formats() -> None:
    done = stepwatch("-", data=b"hello\n")
    assert max(map(len, done.stderr.decode().splitlines())) < 130
    assert b"`stepwatch explain --help`" in done.stderr
    assert b"torchtitan" in stepwatch("explain", "--help").stdout
