"""Many cases in processes with limits of time and memory; what breaks is made small and kept."""

from __future__ import annotations

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
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from tools.fuzz.limits import MEMORY_BYTES, SECONDS, limit_memory
from tools.fuzz.roads import BrokenLaw, Case, case_of, put_to_the_test

HANGS_S = 60.0  # of the clock, for what cannot be interrupted
ROUND = 5_000  # cases of one process: what it holds on to does not add up
MINIMISING_S = 40.0
SAVED_EVERY_S = 10.0  # so that little is done twice after an end by a signal


class TooSlow(BaseException):
    """Not an Exception: nothing may catch it."""


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlow


def set_limits() -> None:
    """Of memory, beyond what is in use before the first case."""
    limit_memory()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, _too_slow)
    warnings.simplefilter("error")  # those of numpy included: none may reach a terminal


def fault_of(case: Case, seconds: float = SECONDS) -> str | None:
    """What is wrong with the answer, in one line that is the same for the same fault."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        put_to_the_test(case)
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
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "stepwatch" in frame.filename]
    frames = [frame for frame in frames if not frame.filename.endswith("units.py")] or frames  # who made the interval
    last = frames[-1] if frames else traceback.extract_tb(error.__traceback__)[-1]
    place = os.path.join(*Path(last.filename).parts[-2:])
    return f"{type(error).__name__} in {place} {last.name}: {last.line}"


# --- the worker -------------------------------------------------------------------------------------------------


def work(seed: int, begin: int, end: int, corpus: str | None) -> None:
    """Cases in order; a line of JSON for each fault and, now and then, for how far it is."""
    case_of(seed, begin, corpus)
    put_to_the_test(case_of(0, 0, None))  # loads all modules before memory is limited
    set_limits()
    gc.freeze()  # the material and the modules need not be looked through again
    for number in range(begin, end):
        case = case_of(seed, number, corpus)
        print(json.dumps({"at": number}), flush=True)
        began = time.process_time()
        fault = fault_of(case)
        if fault is not None:
            print(json.dumps({"at": number, "fault": fault, "took": time.process_time() - began}), flush=True)


# --- the parent -------------------------------------------------------------------------------------------------


class Campaign:
    """Goes on where the last one of this seed in this directory ended."""

    def __init__(self, seed: int, corpus: str | None, kept: Path) -> None:
        self.seed, self.corpus, self.kept = seed, corpus, kept
        kept.mkdir(parents=True, exist_ok=True)
        self._state = kept / f"seed-{seed}.json"
        self.done, self.faults, self.mended = 0, dict[str, list[int]](), list[str]()
        if self._state.exists():
            state = json.loads(self._state.read_text())
            self.done, self.faults, self.mended = state["done"], state["faults"], state.get("mended", [])

    def run(self, count: int, seconds: float, report: Callable[[str], None]) -> None:
        until, target = time.monotonic() + seconds, self.done + count
        while self.done < target and time.monotonic() < until:
            self._one_worker(min(self.done + ROUND, target), until, report)
            self._save()
            self.minimise(report)

    def _one_worker(self, end: int, until: float, report: Callable[[str], None]) -> None:
        arguments = [sys.executable, "-m", "tools.fuzz", "--worker", str(self.seed), str(self.done), str(end)]
        arguments += [self.corpus] if self.corpus else []
        errors = open(self.kept / f"seed-{self.seed}.err", "w+b")  # noqa: SIM115 - closed with the worker
        worker = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=errors)
        with worker, errors:
            self._listen(worker, end, until, report)
            errors.seek(0)
            if worker.returncode not in (0, -signal.SIGKILL):
                last = errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
                self._keep(f"process ended with {worker.returncode}: {last}", self.done - 1, report)

    def _listen(self, worker: subprocess.Popen[bytes], end: int, until: float, report: Callable[[str], None]) -> None:
        assert worker.stdout is not None
        os.set_blocking(worker.stdout.fileno(), False)
        current, heard, rest = self.done - 1, time.monotonic(), b""
        saved = heard
        while True:
            data = worker.stdout.read()
            if data:
                heard = time.monotonic()
                *lines, rest = (rest + data).split(b"\n")
                for line in map(json.loads, lines):
                    current = line["at"]
                    if "fault" in line:
                        self._keep(line["fault"], current, report)
                if heard > saved + SAVED_EVERY_S:
                    self.done, saved = max(current, self.done), heard
                    self._save()
            elif worker.poll() is not None:
                break
            elif time.monotonic() - heard > HANGS_S:
                worker.kill()
                worker.wait()
                self._keep("hangs", current, report)
                break
            else:
                time.sleep(0.02)
            if time.monotonic() > until:
                worker.kill()
                worker.wait()
                self.done = max(current, self.done)
                return
        self.done = end if worker.returncode == 0 else current + 1

    def _keep(self, fault: str, number: int, report: Callable[[str], None]) -> None:
        alike = self.faults.setdefault(fault, [])
        alike.append(number)
        if len(alike) == 1:
            report(f"{number}: {fault}")

    def _save(self) -> None:
        self._state.write_text(json.dumps({"done": self.done, "faults": self.faults, "mended": self.mended}, indent=1))

    def try_again(self) -> None:
        """What was found and made small before, with the source of now: what is mended is counted as such."""
        for fault, numbers in [*self.faults.items()]:
            path = self.kept / f"{self.seed}-{numbers[0]}.case"
            if path.exists():
                command = [sys.executable, "-m", "tools.fuzz", "--again", str(path)]
                if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0:
                    self.mended.append(fault)
                    del self.faults[fault]
        self._save()

    def minimise(self, report: Callable[[str], None]) -> None:
        """Of each fault the first case, made small, in a file."""
        for fault, numbers in self.faults.items():
            name = f"{self.seed}-{numbers[0]}"
            if (self.kept / f"{name}.txt").exists():
                continue
            worker = [sys.executable, "-m", "tools.fuzz", "--minimise", str(self.seed), str(numbers[0])]
            with open(self.kept / f"{name}.txt", "w") as out:
                out.write(fault + "\n")
                out.flush()
                subprocess.run(
                    [*worker, str(self.kept / name), *([self.corpus] if self.corpus else [])],
                    stdout=out,
                    timeout=3 * MINIMISING_S + 60,
                    check=False,
                )
            report(f"kept {name}: {fault}")


def minimise(seed: int, number: int, path: str, corpus: str | None) -> None:
    """Writes the smallest case that shows the same fault: fewer lines, then fewer bytes, then shorter options."""
    case = case_of(seed, number, corpus)
    put_to_the_test(case_of(0, 0, None))
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
    """The fault of a case that was kept, or nothing."""
    put_to_the_test(case_of(0, 0, None))
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
