"""How fast stepwatch answers: against an empty Python, and against `rg -c` over the same lines.

Seconds are CPU time, and the two of each pair are timed alternately, so that a busy machine slows both; only ratios are
claimed.
    python -m benchmarks.speed
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.adapter import command, environment

SMALL_LINES = 5_000
LARGE_ITERATIONS = 2_000_000
GROWTH = (500_000, 1_000_000, 2_000_000, 8_000_000)  # for the last one the text is not kept, and columns are narrow
PATTERN = (
    r"^(iter [0-9]+: loss [0-9.]+, time [0-9.]+ms, mfu -?[0-9.]+%"
    r"|step [0-9]+: train loss [0-9.]+, val loss [0-9.]+|saving checkpoint to .*)$"
)
HEADER = "tokens per iteration will be: 16,384\nnumber of parameters: 10.65M\nusing fused AdamW: True\n"
# A small separate process starts the child: a child's ru_maxrss begins at the size of its parent (Linux, vfork).
LAUNCHER = """
import json, os, sys
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ,
                       file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
_, status, usage = os.wait4(child, 0)
spent = usage.ru_utime + usage.ru_stime
print(json.dumps([spent, os.waitstatus_to_exitcode(status), usage.ru_maxrss]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one command took."""

    seconds: float
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """Two commands timed in turn."""

    ours_s: float
    theirs_s: float
    ratio: float
    repeats: int
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The result for one size of the growing log."""

    iterations: int
    size_bytes: int
    cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Everything that is measured; None for what could not be."""

    small: Against
    large: Against | None
    growth: list[Growth]

    def exponent(self) -> float:
        """p in time ~ n^p between the smallest and the largest log; 1 is linear."""
        first, last = self.growth[0], self.growth[-1]
        return math.log(last.cost.seconds / first.cost.seconds) / math.log(last.iterations / first.iterations)


def run(args: Sequence[str]) -> Cost:
    """Runs a command to its end and returns its processor time and peak memory. A command that fails is not timed."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", LAUNCHER, *args], capture_output=True, text=True, env=environment(), check=True
    )
    seconds, code, peak_kib = json.loads(done.stdout)
    if code != 0:
        raise RuntimeError(f"{' '.join(args)}: exit code {code}: {done.stderr[-500:]}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Cost(seconds=seconds, peak_bytes=peak_kib * unit)


def against(ours: Sequence[str], theirs: Sequence[str], repeats: int) -> Against:
    """Times both alternately after one warm-up; returns the median of the ratios."""
    run(ours), run(theirs)
    pairs = [(run(ours), run(theirs)) for _ in range(repeats)]
    return Against(
        ours_s=median(mine.seconds for mine, _ in pairs),
        theirs_s=median(other.seconds for _, other in pairs),
        ratio=median(mine.seconds / other.seconds for mine, other in pairs),
        repeats=repeats,
        peak_bytes=max(mine.peak_bytes for mine, _ in pairs),
    )


def _block(start: int, count: int, every: int) -> list[str]:
    """`count` iterations from `start`, each logged, with an evaluation and a checkpoint at every `every`-th."""
    out = []
    for number in range(start, start + count):
        time_ms = 1155.0 + (number * 7919 % 400) / 100
        if number % every == 0:
            out.append(f"step {number}: train loss 2.4866, val loss 2.5051\n")
            if number:
                out.append("saving checkpoint to out\n")
            time_ms += 5000
        mfu = "-100.00" if number < 5 else f"{27 + number % 90 / 100:.2f}"
        out.append(f"iter {number}: loss {10.4 + number % 977 / 10000:.4f}, time {time_ms:.2f}ms, mfu {mfu}%\n")
    return out


def write_log(path: Path, iterations: int, every: int = 1000) -> Path:
    """A log of this many iterations, written block by block."""
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(HEADER)
        for start in range(0, iterations, 50_000):
            file.writelines(_block(start, min(50_000, iterations - start), every))
    return path


def write_small(path: Path) -> Path:
    """A log of exactly 5,000 lines, header included."""
    lines = HEADER.splitlines(keepends=True) + _block(0, SMALL_LINES, 250)
    path.write_text("".join(lines[:SMALL_LINES]), encoding="utf-8", newline="")
    return path


def small(directory: Path, repeats: int = 15) -> Against:
    """5,000 lines, explained on the terminal, against `python -c pass`."""
    log = write_small(directory / "small.log")
    return against(command("explain", str(log)), [sys.executable, "-c", "pass"], repeats)


def large(directory: Path, repeats: int = 3) -> Against | None:
    """Two million iterations against `rg -c`; None, with a message, if rg is missing."""
    rg = shutil.which("rg")
    if rg is None:
        needed = "rg is not installed; on Debian: apt-get install ripgrep"
        print(f"NOT MEASURED: two million iterations against `rg -c` ({needed})", file=sys.stderr)
        return None
    log = write_log(directory / "large.log", LARGE_ITERATIONS)
    theirs = [rg, "--no-config", "-c", PATTERN, str(log)]
    expected = sum(1 + 2 * (number % 1000 == 0) for number in range(LARGE_ITERATIONS)) - 1
    counted = int(subprocess.run(theirs, capture_output=True, text=True, check=True).stdout)
    if counted != expected:
        raise RuntimeError(f"the pattern is not equivalent: rg counts {counted}, the log has {expected}")
    result = against(command("explain", str(log), "--no-iterations"), theirs, repeats)
    log.unlink()
    return result


def grow(directory: Path) -> list[Growth]:
    """Time and memory at each size (the faster of two runs)."""
    out = []
    for iterations in GROWTH:
        log = write_log(directory / f"{iterations}.log", iterations)
        ask = command("explain", str(log), "--no-iterations")
        cost = min((run(ask), run(ask)), key=lambda each: each.seconds)
        out.append(Growth(iterations=iterations, size_bytes=log.stat().st_size, cost=cost))
        log.unlink()
    return out


def measure() -> Speed:
    """Everything, in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="stepwatch-speed-") as name:
        directory = Path(name)
        return Speed(small=small(directory), large=large(directory), growth=grow(directory))


def _row(name: str, result: Against | None, wanted: str) -> str:
    if result is None:
        return f"| {name} | not measured: rg is missing | | | {wanted} | | |"
    return (
        f"| {name} | {result.ours_s:.3f} | {result.theirs_s:.3f} | **{result.ratio:.1f}** | {wanted} "
        f"| {result.peak_bytes / 1e6:.0f} MB | {result.repeats} |"
    )


def table(result: Speed) -> str:
    """The result as Markdown."""
    out = [
        "Seconds of CPU time.",
        "",
        "| log | stepwatch s | yardstick s | ratio | wanted | peak memory | n |",
        "|---|---|---|---|---|---|---|",
        _row("5,000 lines, against `python -c pass`", result.small, "≤ 20"),
        _row("2,000,000 iterations (110 MB), against `rg -c`", result.large, "≤ 8, < 1 GB"),
        "",
        "| iterations | MB | s | peak memory | of its size |",
        "|---|---|---|---|---|",
    ]
    out += [
        f"| {each.iterations:,} | {each.size_bytes / 1e6:.0f} | {each.cost.seconds:.2f} "
        f"| {each.cost.peak_bytes / 1e6:.0f} MB | {each.cost.peak_bytes / each.size_bytes:.1f} |"
        for each in result.growth
    ]
    out += ["", f"Time grows as n^{result.exponent():.2f} (1 is linear).", "", f"Pattern for rg: `{PATTERN}`"]
    return "\n".join(out)


if __name__ == "__main__":
    print(table(measure()))
