"""Runs many cases in processes with limits on time and memory; what breaks is made small and kept."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from tools import SOURCE
from tools.fuzz.material import ROOT
from tools.fuzz.roads import BrokenLaw, Case, case_of, run_case

SECONDS = 5.0  # CPU time: the machine may be busy
MEMORY_BYTES = 500_000_000
HANGS_S = 30.0  # CPU time, for code that cannot be interrupted
ASLEEP_S = 900.0  # wall time, for a process that waits: on a busy machine it may wait for minutes
ROUND = 5_000  # cases per process, so that what it holds on to does not add up
MINIMISING_S = 40.0
SAVED_EVERY_S = 10.0  # so that little is repeated after an end by a signal


class TooSlow(BaseException):
    """Not an Exception, so that nothing catches it."""


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlow


def set_limits() -> None:
    """Limits the memory beyond what is in use before the first case."""
    with open("/proc/self/status") as status:
        used = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY_BYTES, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, _too_slow)
    warnings.simplefilter("error")  # including numpy's: none may reach a terminal


def fault_of(case: Case, seconds: float = SECONDS) -> str | None:
    """What is wrong with the answer, in one line that is the same for each occurrence of a fault."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        run_case(case)
    except TooSlow:
        return f"over {SECONDS:g} s in {case.question}"
    except MemoryError:
        return f"over {MEMORY_BYTES / 1e6:g} MB in {case.question}"
    except BrokenLaw as error:
        return f"law: {error} ({case.question})"
    except Exception as error:
        return named(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return None


def named(error: Exception) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(str(SOURCE))]
    frames = [frame for frame in frames if not frame.filename.endswith("units.py")] or frames  # who made the interval
    last = frames[-1] if frames else traceback.extract_tb(error.__traceback__)[-1]
    place = os.path.join(*Path(last.filename).parts[-2:])
    return f"{type(error).__name__} in {place} {last.name}: {last.line}"


# --- the worker -------------------------------------------------------------------------------------------------


def work(seed: int, begin: int, end: int, corpus: str | None) -> None:
    """Runs cases in order; prints a line of JSON for each when it is over."""
    case_of(seed, begin, corpus)
    run_case(case_of(0, 0, None))  # loads all modules before memory is limited
    set_limits()
    gc.freeze()  # do not search the material and the modules again
    for number in range(begin, end):
        case = case_of(seed, number, corpus)
        print(json.dumps({"at": number, "question": case.question, "fault": fault_of(case)}), flush=True)


# --- the parent -------------------------------------------------------------------------------------------------


class Campaign:
    """Continues where the last campaign with this seed in this directory ended."""

    def __init__(self, seed: int, corpus: str | None, kept: Path) -> None:
        self.seed, self.corpus, self.kept = seed, corpus, kept
        kept.mkdir(parents=True, exist_ok=True)
        self._state = kept / f"seed-{seed}.json"
        self.done, self.faults, self.mended = 0, dict[str, list[int]](), list[str]()
        self.questions, self.commits = Counter[str](), Counter[str]()  # how many of each there were
        if self._state.exists():
            state = json.loads(self._state.read_text())
            self.done, self.faults, self.mended = state["done"], state["faults"], state["mended"]
            self.questions, self.commits = Counter(state["questions"]), Counter(state["commits"])

    def run(self, count: int, seconds: float, report: Callable[[str], None]) -> None:
        until, target = time.monotonic() + seconds, self.done + count
        while self.done < target and time.monotonic() < until:
            self._one_worker(min(self.done + ROUND, target), until, report)
            self._save()
            self.minimise(report)

    def command(self, end: int) -> list[str]:
        """The command of a worker for the cases up to `end`."""
        command = [sys.executable, "-m", "tools.fuzz", "--worker", str(self.seed), str(self.done), str(end)]
        return [*command, self.corpus] if self.corpus else command

    def _one_worker(self, end: int, until: float, report: Callable[[str], None]) -> None:
        errors = open(self.kept / f"seed-{self.seed}.err", "w+b")  # noqa: SIM115 - closed with the worker
        commit = commit_of_now()  # when it loads the source
        worker = subprocess.Popen(self.command(end), stdout=subprocess.PIPE, stderr=errors)
        with worker, errors:
            hangs = self._listen(worker, commit, until, report)
            errors.seek(0)
            if hangs or worker.returncode not in (0, -signal.SIGKILL):
                last = errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
                self._keep("hangs" if hangs else f"process ended with {worker.returncode}: {last}", self.done, report)
                self.done += 1  # the next one begins after the case that ended this one

    def _listen(
        self, worker: subprocess.Popen[bytes], commit: str, until: float, report: Callable[[str], None]
    ) -> bool:
        """Listens until the worker ends or its time is up; returns whether it had to be killed because it hangs."""
        assert worker.stdout is not None
        os.set_blocking(worker.stdout.fileno(), False)
        heard, used = time.monotonic(), 0.0
        rest, saved, hangs = b"", heard, False
        while time.monotonic() < until and not hangs:
            data = worker.stdout.read()
            if data:
                heard, used = time.monotonic(), _used_s(worker.pid)
                *lines, rest = (rest + data).split(b"\n")
                for line in map(json.loads, lines):
                    self.done = line["at"] + 1
                    self.questions[line["question"]] += 1
                    self.commits[commit] += 1
                    if line["fault"] is not None:
                        self._keep(line["fault"], line["at"], report)
                if heard > saved + SAVED_EVERY_S:
                    self._save()
                    saved = heard
            elif worker.poll() is not None:
                return False
            else:
                hangs = _used_s(worker.pid) - used > HANGS_S or time.monotonic() - heard > ASLEEP_S
                time.sleep(0.02)
        worker.kill()
        worker.wait()
        return hangs

    def _keep(self, fault: str, number: int, report: Callable[[str], None]) -> None:
        alike = self.faults.setdefault(fault, [])
        alike.append(number)
        if len(alike) == 1:
            report(f"{number}: {fault}")

    def _save(self) -> None:
        names = ("done", "faults", "mended", "questions", "commits")
        self._state.write_text(json.dumps({name: getattr(self, name) for name in names}, indent=1))

    def try_again(self) -> None:
        """Repeats the faults made small before, with the current source; those that are gone count as mended."""
        for fault, numbers in [*self.faults.items()]:
            path = self.kept / f"{self.seed}-{numbers[0]}.case"
            if path.exists():
                command = [sys.executable, "-m", "tools.fuzz", "--again", str(path)]
                if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0:
                    self.mended.append(fault)
                    del self.faults[fault]
        self._save()

    def minimise(self, report: Callable[[str], None]) -> None:
        """Writes the first case of each fault, made small, to a file."""
        for fault, numbers in self.faults.items():
            name = f"{self.seed}-{numbers[0]}"
            if (self.kept / f"{name}.txt").exists():
                continue
            worker = [sys.executable, "-m", "tools.fuzz", "--minimise", str(self.seed), str(numbers[0])]
            with open(self.kept / f"{name}.txt", "w") as out, contextlib.suppress(subprocess.TimeoutExpired):
                out.write(fault + "\n")
                out.flush()
                subprocess.run(
                    [*worker, str(self.kept / name), *([self.corpus] if self.corpus else [])],
                    stdout=out,
                    timeout=3 * MINIMISING_S + 60,
                    check=False,
                )
            report(f"kept {name}: {fault}")


def _used_s(pid: int) -> float:
    """CPU time of a process that may just have ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        user, system = file.read().rpartition(b")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return 0.0


def commit_of_now() -> str:
    """The current commit, with a + if the source has uncommitted changes."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "src", "tools/fuzz")
    return _git("rev-parse", "--short=8", "HEAD") + ("+" if changed else "")


def same_source(commit: str) -> bool:
    """Whether the source of stepwatch was the same at that commit as now."""
    places = ("src/stepwatch", ":!*.po", ":!*.txt")
    return not commit.endswith("+") and not _git("diff", "--name-only", commit, "--", *places)


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def minimise(seed: int, number: int, path: str, corpus: str | None) -> None:
    """Writes the smallest case that shows the same fault: fewer lines, then fewer bytes, then shorter options."""
    case = case_of(seed, number, corpus)
    run_case(case_of(0, 0, None))
    set_limits()
    fault, until = fault_of(case), time.monotonic() + MINIMISING_S

    def shows(other: Case) -> bool:
        return time.monotonic() < until and fault_of(other) == fault

    if fault is not None:
        for name in ("data", "other"):

            def still(lines: list[bytes], case: Case = case, name: str = name) -> bool:
                return shows(replace(case, **{name: b"\n".join(lines)}))

            case = replace(case, **{name: b"\n".join(fewest(getattr(case, name).split(b"\n"), still))})
        for option, value in case.options:
            without = replace(case, options=tuple(pair for pair in case.options if pair[0] != option))
            if value and shows(without):
                case = without
    print("question", case.question, "options", dict(case.options))
    Path(f"{path}.case").write_bytes(pickle.dumps(case))
    for name in ("data", "other"):
        content: bytes = getattr(case, name)
        if content:
            Path(f"{path}.{name}").write_bytes(content)


def again(path: str) -> str | None:
    """The fault of a case that was kept, or None."""
    run_case(case_of(0, 0, None))
    set_limits()
    return fault_of(pickle.loads(Path(path).read_bytes()))


def fewest(pieces: list[Any], still: Callable[[list[Any]], bool]) -> list[Any]:
    """Delta debugging: leaves out halves, quarters and so on as long as the fault stays."""
    size = max(len(pieces) // 2, 1)
    while len(pieces) > 1:
        place, shorter = 0, False
        while place < len(pieces):
            rest = pieces[:place] + pieces[place + size :]
            if rest and still(rest):
                pieces, shorter = rest, True
            else:
                place += size
        if size == 1 and not shorter:
            break
        size = max(size // 2, 1)
    return pieces
