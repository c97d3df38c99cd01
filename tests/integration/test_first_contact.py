"""What a new user types: slips are pointed out, and what is suggested can be pasted."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import stepwatch

ROOT = Path(__file__).parents[2]
LOG = (ROOT / "examples" / "short.log").read_text(encoding="utf-8")
RESUMED = (ROOT / "examples" / "resumed.log").read_text(encoding="utf-8")
NAMES = [
    "train.log", "my run.log", "it's $x.log", 'a "b".log', "größe 1.log", "实验😀.log", "-x.log", "a!b;c.log", "#1.log",
    "a\nb\x1b[31m.log", "=x.log", "explan", "sub/dir/" + "long-name-" * 12 + ".log",
]  # fmt: skip


def suggested(text: str) -> str:
    """The command at the end of an answer, its lines as they stand there."""
    return "stepwatch " + text.rpartition("stepwatch ")[2].rstrip("\n")


def pasted(line: str, where: Path) -> subprocess.CompletedProcess[bytes]:
    """The line in a shell, in which `stepwatch` shows what it was given, and the answer to that."""
    shell = ["bash", "-c", "stepwatch() { printf '%s\\0' \"$@\"; }\n" + line]
    given = subprocess.run(shell, cwd=where, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert given.stderr == b""
    return stepwatch(*map(os.fsdecode, given.stdout.split(b"\0")[:-1]))


# --- commands to paste ------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="names and a shell that Windows does not have")
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_the_command_to_ask_next_can_be_pasted(
    name: str, absolute: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(LOG)
    typed = str(tmp_path / name) if absolute else os.path.join(".", name)
    done = stepwatch("explain", typed, "--lang", "fr")
    assert done.returncode == 0, done.stderr
    line = suggested(done.stdout.decode())
    assert all(letter.isprintable() or letter == "\n" for letter in line)
    again = pasted(line, tmp_path)
    assert (again.returncode, again.stderr) == (0, b"")
    assert "RTX 4070" in again.stdout.decode()  # the card that it suggested
    assert "itération" in again.stdout.decode()  # the language that was asked for


def test_a_report_in_a_file_keeps_the_path_to_itself(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(LOG)
    for name in ("out.txt", "out.md"):
        form = ("--md",) if name.endswith(".md") else ()
        assert stepwatch(tmp_path / "train.log", *form, "-o", tmp_path / name).returncode == 0
        assert str(tmp_path) not in (tmp_path / name).read_text(encoding="utf-8")


def test_many_logs_are_not_repeated_where_one_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [f"run {number}.log" for number in range(9)]
    for name in names:
        Path(name).write_text(LOG)
    assert suggested(stepwatch(*names).stdout.decode()) == 'stepwatch explain "run 1.log"'


def test_logs_with_several_runs_are_all_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [f"run {number}.log" for number in range(5)]
    for name in names:
        Path(name).write_text(RESUMED)
    line = suggested(stepwatch(*names, "--gpu", "4070").stdout.decode())
    assert shlex.split(line.replace("\\\n", ""))[2:-1] == [*names, "--gpu", "4070", "--run"]


def test_what_was_typed_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.log").write_text(LOG)
    Path("my config.py").write_text("eval_iters = 20\n")
    options = ["--gpu", "2x4090", "--config", "my config.py", "--set", "max_iters=9000", "--log-format", "nanogpt"]
    line = suggested(stepwatch("train.log", *options).stdout.decode())
    assert shlex.split(line.replace("\\\n", ""))[2:] == ["train.log", *options, "--full"]
    whole = stepwatch("train.log", *options, "--full").stdout.decode()
    assert not re.search(r"stepwatch advise .*--log-format", whole)  # which advise does not take


# --- slips ------------------------------------------------------------------------------------------------------


def told(*arguments: str | Path, code: int = 2, data: bytes = b"") -> tuple[str, str]:
    """What is wrong, and what to do."""
    done = stepwatch(*arguments, data=data)
    what, remedy = done.stderr.decode().splitlines()
    assert (done.returncode, done.stdout) == (code, b""), done.stderr
    return what, remedy.strip()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["explan", "my run.log"], 'explain "my run.log"'), (["gpu", "4070"], "gpus 4070"), (["Estimate"], "estimate"),
        (["compar", "a", "b"], "compare a b"), (["wach", "x.log", "--gpu", "4070"], "watch x.log --gpu 4070"),
        (["help", "trian"], "train --help"),
    ],
)  # fmt: skip
def test_a_slip_in_a_command_is_pointed_out(
    typed: list[str], meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    what, remedy = told(*typed)
    assert "no command or file" in what
    assert remedy == f"did you mean: stepwatch {meant}"


@pytest.mark.parametrize("name", ["explan.log", "train.lo", "runs/explan", "data", "tests", "x"])
def test_what_was_meant_as_a_file_is_missed_as_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "there is no file" in told(name, code=1)[0]


def test_a_file_with_nearly_the_name_of_a_command_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("explan", "help"):
        Path(name).write_text(LOG)
        assert stepwatch(name).returncode == 0
        assert b"168.7 ms" in stepwatch(name).stdout


def test_help_is_a_command_too() -> None:
    assert stepwatch("help").stdout == stepwatch("--help").stdout == stepwatch("help", "nonsense").stdout
    assert stepwatch("help", "explain").stdout == stepwatch("explain", "--help").stdout
    assert stepwatch("help").returncode == 0


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["explain", "x.log", "--gpus", "4070"], "--gpu"), (["x.log", "--formt", "md"], "--format"),
        (["estimate", "x.py", "--gpuu", "4070"], "--gpu"), (["advise", "--gpuu=4070"], "--gpu"),
        (["estimate", "--batchsize=8"], "--batch_size"), (["estimate", "--gpus", "4070"], "--gpu 4070"),
        (["advise", "--gpus", "3090"], "--gpu 3090"), (["x.log", "--set", "max_iter=5"], "max_iters"),
        (["watch", "--intervall", "2"], "--interval"),
    ],
)  # fmt: skip
def test_a_slip_in_an_option_or_a_setting_is_pointed_out(typed: list[str], meant: str) -> None:
    assert meant in re.split(r", |\?| mean ", told(*typed)[1])


def test_an_option_that_is_like_no_other_leads_to_the_help() -> None:
    assert told("calibrate", "--gpu", "4070")[1] == "all options: stepwatch calibrate --help"


def test_a_setting_without_its_value_is_pointed_out() -> None:
    assert told("estimate", "--batch_size", "8") == ("stepwatch: --batch_size needs a value", "as in --batch_size=8")


@pytest.mark.parametrize(("language", "word"), [("fr", "ouliez-vous"), ("de", "Meinten"), ("es", "querías")])
def test_slips_are_pointed_out_in_the_language_of_the_answer(language: str, word: str) -> None:
    assert word in told("explan", "x.log", "--lang", language)[1]
    assert word in told("x.log", "--gpuu", "4070", f"--lang={language}")[1]


# --- a config for a log, a log for a config ---------------------------------------------------------------------

CONFIGS = {
    "my config.py": "batch_size = 8\nmax_iters = 600\n",
    "config.yaml": "training:\n  batch_size: 8\n  max_steps: 600\n",
    "config.json": '{"batch_size": 8, "training": {"max_steps": 600}}',
    "-config.toml": "[training]\nbatch_size = 8\nmax_steps = 600\n",
    "config": "batch_size = 8\nmax_iters = 600\n",
}


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell is needed")
@pytest.mark.parametrize("question", ["explain", "estimate", "advise"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_is_pointed_to_estimate(
    name: str, question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.endswith(".py") and question != "explain":
        return  # it is answered
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(CONFIGS[name])
    what, remedy = told(question, os.path.join(".", name), "--gpu", "4070", code=1)
    assert f"“{name}” is " in what
    done = pasted(suggested(remedy) + " --json", tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    settings = json.loads(done.stdout)["settings"]
    assert (settings["batch_size"], settings["max_iters"]) == (8, 600)


def test_a_config_in_a_pipe_is_pointed_to_estimate() -> None:
    what, remedy = told("-", code=1, data=b"batch_size = 8\n")
    assert "is a config, not a log" in what
    assert remedy == "to estimate it: stepwatch estimate --batch_size=8"


def test_a_log_is_no_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my run.log").write_text(LOG)
    for question in (["explain", "my run.log"], ["advise", "my run.log"]):
        what, remedy = told(*question, "--config", "my run.log", code=1)
        assert "is a log, not a config" in what
        assert remedy == 'to explain it: stepwatch explain "my run.log"'
    what, remedy = told("estimate", "my run.log", "--gpu", "4070", code=1)
    assert "shows no settings" in what
    assert remedy == 'to explain it: stepwatch explain "my run.log"'


def test_the_settings_of_another_config_can_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.log").write_text(LOG)
    Path("config.yaml").write_text(CONFIGS["config.yaml"])
    remedy = told("train.log", "--config", "config.yaml", code=1)[1]
    assert remedy == "give its settings instead: --set batch_size=8 --set max_iters=600"
