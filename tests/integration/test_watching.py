"""`stepwatch watch` as people use it: real files, pipes, a real terminal, real commands to call."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyte
import pytest
from tests.builders import Truth, a_log
from tests.commands import stepwatch

from stepwatch.answers.from_logs import UserContext
from stepwatch.cli.watch import Display, Watching, _Alerts
from stepwatch.web.looking import look_at
from stepwatch.web.wire import Asked, LogUpdate

WAIT_S = 60.0  # for what must happen; nothing takes that long
TEXT = a_log(Truth(max_iters=400, log_interval=1, eval_interval=100, step_s=0.2, eval_s=1.0))
LINES = TEXT.splitlines(keepends=True)
HOSTILE = "$(touch pwned) `touch pwned` ; touch pwned # \x1b]0;title\x07 '\" && touch pwned\n"


def environment(**more: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    return own | {"LANGUAGE": "en", "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1", "TERM": "xterm-256color"} | more


def watch(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "stepwatch", "watch", *arguments]


def eventually(happened: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    """Waits for an outcome; fails when it does not come or the process ends before."""
    deadline = time.monotonic() + WAIT_S
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        assert process is None or process.poll() is None or happened(), "ended before it happened"
        time.sleep(0.02)


class Watched:
    """A watch of a file whose plain lines go to another file."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.log = directory / "train.log"
        self.said = directory / "said.txt"
        with self.said.open("wb") as out:
            self.process = subprocess.Popen(
                watch("train.log", "--interval", "0.05", *options), cwd=directory, env=environment(), stdout=out,
                stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def text(self) -> str:
        return self.said.read_text(encoding="utf-8")

    def says(self, words: str) -> None:
        eventually(lambda: words in self.text(), self.process)

    def write(self, *lines: str) -> None:
        with self.log.open("a", encoding="utf-8") as stream:
            stream.writelines(lines)

    def ends(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, errors.decode()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    started: list[Watched] = []

    def begin(*options: str) -> Watched:
        started.append(Watched(tmp_path, *options))
        return started[-1]

    yield begin
    for watched in started:
        if watched.process.poll() is None:
            watched.process.kill()
        watched.process.communicate()


def test_a_log_that_does_not_exist_yet_is_followed_to_its_last_iteration(start: Callable[..., Watched]) -> None:
    watched = start()
    watched.says("Waiting for “train.log”")
    watched.write(*LINES[:200])
    watched.says("Iteration")
    watched.write(*LINES[200:])
    assert watched.ends() == (0, "")
    assert "The run reached its last iteration, 400." in watched.text()
    assert "Training step" in watched.text()  # the report


def test_rotation_and_a_cut_lose_nothing(start: Callable[..., Watched]) -> None:
    watched = start()
    third = len(LINES) // 3
    watched.write(*LINES[:third])
    watched.says("Iteration")
    watched.log.rename(watched.log.with_suffix(".1"))
    watched.write(*LINES[third : 2 * third])
    watched.says("truncated or replaced")
    watched.log.write_text("".join(LINES[2 * third :]), encoding="utf-8")
    assert watched.ends() == (0, "")
    assert "for 401 iterations" in watched.text()


def test_ctrl_c_is_a_normal_end_with_the_report(start: Callable[..., Watched]) -> None:
    watched = start()
    watched.write(*LINES[:200])
    watched.says("Iteration")
    watched.process.send_signal(signal.SIGINT)
    assert watched.ends() == (0, "")
    assert "\nLeft " in watched.text()  # the report


def test_ctrl_c_before_any_iteration_has_nothing_to_report(start: Callable[..., Watched]) -> None:
    watched = start()
    watched.says("Waiting")
    watched.process.send_signal(signal.SIGINT)
    assert watched.ends() == (130, "")


def test_a_pipe_is_passed_on_unchanged_and_reported_on_the_other_output() -> None:
    data = TEXT.replace("\n", "\r\n").encode() + b"\xff\xfe no text\n"
    done = subprocess.run(
        watch("-", "--tee"), input=data, capture_output=True, env=environment(), timeout=WAIT_S, check=False
    )
    assert done.returncode == 0
    assert done.stdout == data
    assert "The run reached its last iteration, 400." in done.stderr.decode()


def test_a_pipe_without_iterations_is_an_error_in_one_line() -> None:
    done = stepwatch("watch", "-", data=b"hello\n")
    assert done.returncode == 1
    assert done.stderr.decode() == "stepwatch: no iteration found in the log\n"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--once", "absent.log"), 1, "there is no file"),
        (("--on-stall", "unmatched ' quote", "absent.log"), 2, "is not a command"),
        (("--on-done", "", "absent.log"), 2, "is not a command"),
        ((".",), 1, "is a directory"),
        (("--gpu", "no such card", "absent.log"), 1, "no such card"),
    ],
)
def test_bad_usage_is_told_in_two_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = stepwatch("watch", *arguments)
    assert done.returncode == code
    assert words in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_one_look_and_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.log").write_text("".join(LINES[:200]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = stepwatch("watch", "train.log", "--once")
    assert done.returncode == 0
    shown = done.stdout.decode()
    assert "of 400" in shown
    assert "left" in shown
    assert "Training step" not in shown


# --- clocks that are set ---------------------------------------------------------------------------------------------

DAY_S = 86400.0


class SetClock:
    """The time of day of a machine whose clock is set by a day, now to one side and now to the other."""

    def __init__(self, real: Callable[[], float]) -> None:
        self.real, self.calls = real, 0

    def __call__(self) -> float:
        self.calls += 1
        return self.real() + (DAY_S if self.calls % 2 else -DAY_S)


def test_a_clock_that_is_set_is_neither_silence_nor_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a file whose own machine is behind, or ahead."""
    log, out, set_clock = tmp_path / "train.log", io.StringIO(), SetClock(time.time)
    monkeypatch.setattr("time.time", set_clock)
    display = Display(out, "en")
    watching = Watching(str(log), UserContext(), display, _Alerts({}, str(log), display), interval_s=0.001)
    poll, lines = watching._source.poll, iter(LINES[:300])

    def next_line(wait_s: float) -> Any:
        line = next(lines, None)
        if line is None:
            raise KeyboardInterrupt
        with log.open("a", encoding="utf-8") as stream:
            stream.write(line)
        os.utime(log, (0, set_clock()))
        return poll(wait_s)

    monkeypatch.setattr(watching._source, "poll", next_line)
    with closing(watching), pytest.raises(KeyboardInterrupt):
        watching._follow()
    said = out.getvalue().splitlines()
    assert len(said) == 2  # that nothing is there yet, and how far it is, a line a minute
    assert "of 400" in said[1]


def test_a_view_of_the_page_goes_by_a_clock_that_nobody_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr("time.time", SetClock(time.time))
    header = next(place for place, line in enumerate(LINES) if line.startswith("iter"))
    glance = LogUpdate(view="a view", name="train.log", first=True)
    for text in ("".join(LINES[: header + 50]), *(LINES[header + place] for place in range(50, 90)), "", "", ""):
        asked = Asked("look", "", [], glance.before(text.encode()), 1 << 20, "en")
        looks.append(json.loads(look_at(asked).body)["look"])
    look_at(asked._replace(body=glance._replace(ended=True).before(b"")))
    assert {look["state"] for look in looks} == {"running"}
    assert not looks[-1]["events"]


# --- alerts -----------------------------------------------------------------------------------------------------

NOTE = """
import json, os, sys
facts = {name: value for name, value in os.environ.items() if name.startswith("STEPWATCH_")}
with open("called.tmp", "w") as stream:
    json.dump([sys.argv[1:], facts], stream)
os.replace("called.tmp", facts["STEPWATCH_EVENT"] + ".json")
"""


def noting(directory: Path) -> str:
    (directory / "note.py").write_text(NOTE)
    return f"'{sys.executable}' note.py 'two words' $HOME ';' touch pwned"


def test_alerts_get_their_facts_in_the_environment_and_never_a_shell(
    tmp_path: Path, start: Callable[..., Watched]
) -> None:
    command = noting(tmp_path)
    watched = start("--on-stall", command, "--on-done", command)
    watched.write(*LINES[:150], HOSTILE)
    watched.says("Iteration")
    watched.write(f"iter 149: loss $(touch pwned) 2.0, time 9000.00ms, mfu 5.00% {HOSTILE}")
    eventually((tmp_path / "stall.json").exists, watched.process)
    arguments, facts = json.loads((tmp_path / "stall.json").read_text())
    assert arguments == ["two words", "$HOME", ";", "touch", "pwned"]
    assert (facts["STEPWATCH_EVENT"], facts["STEPWATCH_LOG"]) == ("stall", "train.log")
    assert facts["STEPWATCH_ITERATION"] == "149"
    assert float(facts["STEPWATCH_TIME_S"]) == 9.0
    assert float(facts["STEPWATCH_RATIO"]) == pytest.approx(45, rel=0.1)
    assert 30 < float(facts["STEPWATCH_ETA_S"]) < 90
    assert "pwned" not in " ".join(facts.values())
    watched.write(*LINES[155:])
    assert watched.ends()[0] == 0
    assert json.loads((tmp_path / "done.json").read_text())[1]["STEPWATCH_EVENT"] == "done"
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("command", ["./not-there", f"'{sys.executable}' -c 'raise SystemExit(3)'"])
def test_an_alert_that_fails_is_one_warning_and_the_watch_goes_on(command: str, start: Callable[..., Watched]) -> None:
    watched = start("--on-done", command)
    watched.write(*LINES[:100])
    watched.says("Iteration")
    watched.write(*LINES[100:])
    assert watched.ends()[0] == 0
    assert watched.text().count("the command of --on-done failed") == 1
    assert "Training step" in watched.text()


def test_an_alert_that_never_ends_blocks_nothing(tmp_path: Path, start: Callable[..., Watched]) -> None:
    (tmp_path / "wait.py").write_text(
        "import os, time\nopen('started', 'w').close()\nwhile not os.path.exists('go'):\n    time.sleep(0.05)\n"
    )
    watched = start("--on-stall", f"'{sys.executable}' wait.py")
    watched.write(*LINES[:150])
    watched.says("Iteration")
    watched.write("iter 149: loss 2.0, time 9000.00ms, mfu 5.00%\n")
    eventually((tmp_path / "started").exists, watched.process)
    watched.write(*LINES[155:])
    assert watched.ends()[0] == 0
    (tmp_path / "go").touch()


# --- how runs end -----------------------------------------------------------------------------------------------

TRAIN = """
import os, signal, sys
for line in open(sys.argv[1]):
    sys.stdout.write(line)
sys.stdout.flush()
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
raise RuntimeError("CUDA error: an illegal memory access was encountered")
"""


def train(directory: Path, end: str) -> list[str]:
    (directory / "lines.txt").write_text("".join(LINES[:150]), encoding="utf-8")
    return [sys.executable, "-S", "-c", TRAIN, str(directory / "lines.txt"), end]


def test_a_crash_is_said_at_once_calls_its_command_and_is_cleared_by_a_restart(
    tmp_path: Path, start: Callable[..., Watched]
) -> None:
    watched = start("--on-crashed", noting(tmp_path))
    watched.says("Waiting")
    with watched.log.open("ab") as out:
        assert subprocess.run(train(tmp_path, "raises"), stdout=out, stderr=out, check=False).returncode == 1
    watched.says("“RuntimeError: CUDA error: an illegal memory access was encountered”")
    eventually((tmp_path / "crashed.json").exists, watched.process)
    _, facts = json.loads((tmp_path / "crashed.json").read_text())
    lines = watched.log.read_text(encoding="utf-8").splitlines()
    assert "RuntimeError" in lines[int(facts["STEPWATCH_LINE"]) - 1]
    assert f"iter {facts['STEPWATCH_ITERATION']}:" in watched.log.read_text(encoding="utf-8")
    assert "STEPWATCH_ETA_S" not in facts
    assert " left" not in watched.text().split("✖ Crashed.", 1)[1]
    watched.write(*a_log(Truth(max_iters=20, log_interval=1, step_s=0.3)).splitlines(keepends=True))
    assert watched.ends() == (0, "")
    assert "A new run begins." in watched.text()


def test_a_log_that_had_crashed_is_said_to_have_and_gives_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "train.log").open("wb") as out:
        subprocess.run(train(tmp_path, "raises"), stdout=out, stderr=out, check=False)
    monkeypatch.chdir(tmp_path)
    done = stepwatch("watch", "train.log")
    assert done.returncode == 3
    first, *_ = done.stdout.decode().splitlines()
    assert "✖ Crashed." in first
    assert "“RuntimeError: CUDA error: an illegal memory access was encountered”" in first


def test_a_process_that_was_killed_has_stopped_without_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with subprocess.Popen(["sh", "-c", 'exec "$@" > pipe', "sh", *train(tmp_path, "killed")]) as process:
        done = stepwatch("watch", "pipe")
    assert process.returncode == -signal.SIGKILL
    assert done.returncode == 0
    assert "■ Stopped. The log ends at iteration" in done.stdout.decode()
    assert "Healthy" not in done.stdout.decode()


# --- on a terminal ----------------------------------------------------------------------------------------------


class Terminal:
    """A real pseudo-terminal, and what one would see on it."""

    def __init__(self, directory: Path, columns: int, *options: str) -> None:
        self.screen = pyte.HistoryScreen(columns, 24)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(
            watch("train.log", "--interval", "0.05", *options), cwd=directory, env=environment(), stdin=slave,
            stdout=slave, stderr=slave,
        )  # fmt: skip
        os.close(slave)

    def read(self) -> None:
        while select.select([self._master], [], [], 0)[0]:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            self.raw += data
            self._stream.feed(data)

    def shows(self, words: str) -> bool:
        self.read()
        return words in "\n".join(self.screen.display)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.mark.parametrize(("columns", "language", "left"), [(80, "en", "left,"), (60, "en", "left,"), (80, "de", "400")])
def test_the_screen_is_drawn_in_place_and_makes_room_for_the_report(
    tmp_path: Path, columns: int, language: str, left: str
) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(LINES[:150]), encoding="utf-8")
    terminal = Terminal(tmp_path, columns, "--lang", language)
    try:
        eventually(lambda: terminal.shows(left), terminal.process)
        for end in range(160, 220, 10):
            with log.open("a", encoding="utf-8") as stream:
                stream.writelines(LINES[end - 10 : end])
            last = [line for line in LINES[end - 10 : end] if line.startswith("iter")][-1].split(":")[0].split()[1]
            eventually(lambda last=last: terminal.shows(f" {last} "), terminal.process)  # type: ignore[misc]
            assert terminal.screen.display[0].startswith("train.log"), "the screen moved"
            assert not terminal.screen.history.top, "the screen scrolled"
        terminal.process.send_signal(signal.SIGINT)
        eventually(lambda: terminal.process.poll() is not None)
        terminal.read()
        assert terminal.process.returncode == 0
        shown = "\n".join(terminal.screen.display)
        assert "━" not in shown  # the screen is gone, the report stands there
        assert "stepwatch explain train.log" in shown
        assert terminal.raw.rstrip().rfind(b"\x1b[?25h") > terminal.raw.rfind(b"\x1b[?25l")  # the cursor is back
    finally:
        terminal.close()
