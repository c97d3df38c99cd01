"""`stepwatch run` and `monitor` with real processes, terminals and signals."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import platform
import pty
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from tests.commands import stepwatch

from stepwatch import explain
from stepwatch.cli.run import versions_of

TRAINING = """
import sys, time
print("number of parameters: 10.65M")
for number in range(30):
    begin = time.perf_counter()
    time.sleep(0.05)
    print(f"iter {number}: loss 4.0000, time {(time.perf_counter() - begin) * 1000:.2f}ms, mfu 1.00%", flush=True)
print("a word on the other stream", file=sys.stderr)
sys.exit(7)
"""


def run(*words: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "stepwatch", "run", *words]
    return subprocess.run(command, capture_output=True, timeout=60, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_output_and_exit_code_are_those_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING.replace("{(time.perf_counter() - begin) * 1000:.2f}", "50.00"))
    bare = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, timeout=60, check=False)
    passed = run("--quiet", "-o", "kept", "--", sys.executable, "train.py", cwd=tmp_path)
    assert (passed.stdout, passed.stderr, passed.returncode) == (bare.stdout, bare.stderr, 7)
    kept = (tmp_path / "kept" / "train.log").read_bytes()
    assert kept == bare.stdout + bare.stderr


def test_the_versions_are_those_of_the_python_behind_the_command(tmp_path: Path) -> None:
    script = tmp_path / "torchrun"
    script.write_text(f"#!{sys.executable}\nprint('it trains')\n")
    script.chmod(0o755)
    assert versions_of(str(script)) == versions_of(sys.executable)
    assert versions_of(sys.executable)["numpy"] == np.__version__
    assert versions_of("sh") == versions_of("no such program") == {}


def test_the_command_has_the_environment_and_the_options_that_it_would_have(tmp_path: Path) -> None:
    """Its own options too where no dashes stand before it."""
    program = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))"
    shown = [sys.executable, "-c", program, "--page", "-o", "x"]
    plain = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    bare = subprocess.run(shown, cwd=tmp_path, env=plain, capture_output=True, timeout=60, check=True)
    passed = run("--quiet", "-o", "kept", *shown, cwd=tmp_path, env=plain)
    assert json.loads(passed.stdout) == json.loads(bare.stdout)


def test_a_slip_in_the_card_is_found_before_the_training_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begin = (sys.executable, "-c", "open('begun', 'w')")
    done = stepwatch("run", "--gpu", "no such card", "-o", "kept", "--", *begin)
    assert (done.returncode, b"no such card" in done.stderr) == (1, True)
    assert not (tmp_path / "begun").exists()


def test_the_directory_of_a_run_is_explained_with_its_samples(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    done = run("--interval", "0.2", "-o", "kept", "--", sys.executable, "train.py", "--api_key=hidden", cwd=tmp_path)
    (explained,) = explain(str(tmp_path / "kept")).runs
    assert len(explained.analysis.run.iterations) == 30
    assert explained.analysis.machine is not None
    assert explained.analysis.machine.clock == "arrivals"
    assert (explained.analysis.machine.row >= 0).sum() >= 3
    assert b"Step" in done.stderr
    (again,) = explain(str(tmp_path)).runs  # the directory above holds runs
    assert again.analysis.machine is not None
    assert again.analysis.machine.causes == explained.analysis.machine.causes
    environment = json.loads((tmp_path / "kept" / "environment.json").read_text())
    assert environment["command"] == [sys.executable, "train.py", "--api_key=***"]
    assert environment["versions"]["python"] == platform.python_version()
    assert environment["versions"]["numpy"] == np.__version__
    assert "hidden" not in (tmp_path / "kept" / "environment.json").read_text()


def test_on_a_terminal_the_command_has_one_too_and_ctrl_c_reaches_it(tmp_path: Path) -> None:
    program = "import os, sys, time\ntry:\n    print(os.isatty(0), os.isatty(1), flush=True)\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('interrupted', flush=True)\n    sys.exit(5)\n"
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(tmp_path)
        words = [sys.executable, "-m", "stepwatch", "run", "--quiet", "-o", "kept", "--", sys.executable, "-c", program]
        os.execv(sys.executable, words)
    seen = b""
    sent = False
    with contextlib.suppress(OSError):  # the end of a terminal
        while data := os.read(terminal, 4096):
            seen += data
            if b"True True" in seen and not sent:
                sent = True
                os.write(terminal, b"\x03")
    assert b"interrupted" in seen
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5


def test_a_signal_is_handed_on_to_the_command(tmp_path: Path) -> None:
    program = "import signal, sys, time\nsignal.signal(signal.SIGHUP, lambda *_: print('hung up', flush=True))\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\nprint('ready', flush=True)\ntime.sleep(60)\n"
    words = [sys.executable, "-m", "stepwatch", "run", "--quiet", "-o", "kept", "--", sys.executable, "-c", program]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"  # perhaps before the sampler has begun
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == b"hung up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 9


def test_a_signal_before_the_sampler_has_begun_is_handed_on_too(tmp_path: Path) -> None:
    program = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(9)); open('ready', 'w').close(); time.sleep(60)"
    around = (
        "import os, signal, sys, time\nfrom stepwatch.cli import passing\n"
        f"relay_pid, _ = passing.start([sys.executable, '-c', {program!r}], '.')\n"
        "while not os.path.exists('ready'): time.sleep(0.01)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nsys.exit(passing.wait(relay_pid))\n"
    )
    done = subprocess.run([sys.executable, "-c", around], cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == 9


def test_a_command_killed_by_a_signal_is_reported_as_a_shell_does(tmp_path: Path) -> None:
    done = run("--quiet", "-o", "kept", "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)", cwd=tmp_path)
    assert done.returncode == 137


def test_killing_stepwatch_leaves_the_training_and_its_log_alone(tmp_path: Path) -> None:
    program = "import time\nfor number in range(20):\n    print('line', number, flush=True)\n    time.sleep(0.1)\nopen('done', 'w').close()\n"
    words = [
        sys.executable,
        "-m",
        "stepwatch",
        "run",
        "--quiet",
        "--interval",
        "0.2",
        "-o",
        "kept",
        "--",
        sys.executable,
        "-c",
        program,
    ]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while b"line 8" not in process.stdout.readline():
            pass
        while len((tmp_path / "kept" / "samples.csv").read_text().splitlines()) < 4:
            time.sleep(0.05)
        process.kill()
        rest = process.stdout.read()
    assert b"line 19" in rest
    assert (tmp_path / "done").exists()
    assert (tmp_path / "kept" / "train.log").read_bytes().count(b"\n") == 20
    assert len((tmp_path / "kept" / "samples.csv").read_text().splitlines()) > 3


def test_a_reader_who_leaves_does_not_end_the_training(tmp_path: Path) -> None:
    program = "import time\nfor number in range(20):\n    print('line', number, flush=True)\n    time.sleep(0.05)\nopen('done', 'w').close()\n"
    words = [sys.executable, "-m", "stepwatch", "run", "--quiet", "-o", "kept", "--", sys.executable, "-c", program]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 0
    assert (tmp_path / "done").exists()
    assert (tmp_path / "kept" / "train.log").read_bytes().count(b"\n") == 20


@pytest.mark.skipif(shutil.which("seq") is None, reason="lines are made by seq, which is faster than we are")
def test_many_lines_pass_without_loss_at_a_hundred_thousand_for_a_second_of_a_processor(tmp_path: Path) -> None:
    """Beyond the start of the program, and with the time of the command itself: so wall time cannot disturb it."""

    def seconds(count: int) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        form = "iter %.0f: loss 4.0000, time 100.00ms\n"
        done = run("--quiet", "-o", "kept", "--", "seq", "-f", form.strip(), str(count), cwd=tmp_path)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        printed = "".join(form % number for number in range(1, count + 1)).encode()
        assert done.stdout == (tmp_path / "kept" / "train.log").read_bytes() == printed
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert seconds(200_000) - seconds(1) < 2.0


def test_the_page_of_a_run_shows_it_with_its_samples_and_ends_with_it(tmp_path: Path) -> None:
    program = TRAINING.replace("range(30)", "range(1500)")
    words = [
        sys.executable,
        "-m",
        "stepwatch",
        "run",
        "--page",
        "--quiet",
        "--gpu",
        "4070",
        "--interval",
        "0.2",
        "-o",
        "kept",
        "--",
    ]
    with subprocess.Popen(
        [*words, sys.executable, "-c", program],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        address, _, query = said.split()[-1].partition("#watch?")
        assert (address.startswith("http://127.0.0.1:"), query) == (True, "path=train.log&gpu=4070")
        with urllib.request.urlopen(f"{address}live?{query}", timeout=50) as events:
            reports = (line for line in events if line.startswith(b'data: {"html"'))
            # Either is said only of samples: it depends on who else is at work here.
            assert any(b"Nothing in the samples" in line or b"processors busy" in line for line in reports)
        process.terminate()
        process.wait(30)
    latest = time.monotonic() + 30
    with contextlib.suppress(urllib.error.URLError, ConnectionError):  # nobody is there any more
        while True:
            urllib.request.urlopen(address, timeout=5).close()
            assert time.monotonic() < latest


def test_an_option_that_does_not_exist_is_not_taken_for_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = stepwatch("run", "--intervall", "5", "--", "true")
    assert done.returncode == 2
    assert b"--interval" in done.stderr
    assert not (tmp_path / "stepwatch-runs").exists()


def test_a_port_that_is_taken_is_found_before_the_training_begins(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run(
            "--page", "--port", port, "-o", "kept", "--", sys.executable, "-c", "open('begun', 'w')", cwd=tmp_path
        )
    assert done.returncode == 1
    assert port.encode() in done.stderr
    assert not (tmp_path / "begun").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a disk that is always full")
def test_a_full_disk_is_said_once_and_the_training_goes_on(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    for name in ("train.log", "samples.csv", "arrivals.csv"):
        (tmp_path / "kept" / name).symlink_to("/dev/full")
    program = "import time\nfor number in range(8):\n    print('line', number, flush=True)\n    time.sleep(0.1)\n"
    done = run("--quiet", "--interval", "0.1", "-o", "kept", "--", sys.executable, "-c", program, cwd=tmp_path)
    assert (done.returncode, done.stdout.count(b"line")) == (0, 8)
    assert done.stderr.count(b"No space left") == 2, done.stderr  # the log and the samples


def test_a_terminal_that_is_closed_does_not_end_a_training_that_ignores_it(tmp_path: Path) -> None:
    program = "import signal, time\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\nfor number in range(10):\n    print('line', number, flush=True)\n    time.sleep(0.1)\nopen('done', 'w').close()\n"
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(tmp_path)
        words = [sys.executable, "-m", "stepwatch", "run", "--quiet", "-o", "kept", "--", sys.executable, "-c", program]
        os.execv(sys.executable, words)
    os.read(terminal, 4096)
    os.close(terminal)
    os.waitpid(pid, 0)
    assert (tmp_path / "done").exists()
    assert (tmp_path / "kept" / "train.log").read_bytes().count(b"\n") == 10


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    done = run("-o", "kept", "--", "no-such-program", cwd=tmp_path)
    assert done.returncode == 127
    assert b"no-such-program" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = stepwatch("run", "-o", tmp_path / "file", "--", "true")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"cannot be written" in done.stderr


def test_a_crash_is_sent_as_a_message_without_a_line_of_the_log(tmp_path: Path) -> None:
    received: list[dict[str, str]] = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    (tmp_path / "train.py").write_text(TRAINING.replace("sys.exit(7)", "raise RuntimeError('my private path')"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/hook"
        run("--quiet", "--notify", address, "-o", "kept", "--", sys.executable, "train.py", cwd=tmp_path)
        server.shutdown()
    (message,) = received
    assert message["event"] == "crashed"
    assert "29" in message["text"]
    assert "private" not in json.dumps(message)


def test_monitor_samples_a_process_until_it_ends(tmp_path: Path) -> None:
    samples = tmp_path / "samples.csv"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        words = [sys.executable, "-m", "stepwatch", "monitor", "-o", str(samples), "--interval", "0.2"]
        with subprocess.Popen([*words, "--pid", str(process.pid)], stderr=subprocess.PIPE) as monitor:
            while not samples.exists() or len(samples.read_text().splitlines()) < 6:
                assert monitor.poll() is None
                time.sleep(0.1)
            process.kill()
            process.wait()
            assert monitor.wait(30) == 0


def test_monitor_of_no_process(tmp_path: Path) -> None:
    done = stepwatch("monitor", "-o", tmp_path / "samples.csv", "--pid", "4194303")
    assert done.returncode == 1
    assert b"4194303" in done.stderr
