"""How fast real logs are read, each made as long as a long run: MB per second of CPU time, best of three.

For the longest run in a log, what precedes its first iterations is written once. The lines from there to its last
iteration are repeated with continuing iterations, epochs, dates and clocks, so that it stays one run: a repeated header
or restart would make thousands of runs, which no log has, and would measure the cost of a run.
    python -m benchmarks.real_rates [--corpus DIR] [format …]
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Iterator
from datetime import date, timedelta
from pathlib import Path

from benchmarks.adapter import corpus_or_exit
from benchmarks.formats import OWN_NOTES, WANTED_BYTES_PER_S, around_number, speed_of

from stepwatch.errors import InputError
from stepwatch.readers import read
from stepwatch.run import Run
from stepwatch.sources import Source, from_file, kind_of

SIZE = 3_000_000
REPEATS = 3
LEAST_ROWS = 4  # for a log that is worth repeating
WARMING = 6  # first rows of a process, which are written once: nanoGPT's have an MFU of -100 %
_DATE = re.compile(r"\b(\d{4})([-/])(\d\d)[-/](\d\d)\b")
_EPOCH = re.compile(r"(?i)(epoch(?:\(\w+\))?\W{0,4}|^Train: |^Test: )(\d+)")
_STEP = re.compile(r"(step: *|)(\d+)(?=/\d+ (?:val_|train_|loss))")  # also for validations, which are not rows
_BAR = re.compile(r"/(\d+) \[(\d+(?::\d\d){1,2})<")  # after the number of a step


class Body:
    """The lines of a run that are repeated, and how much each round adds to their figures."""

    def __init__(self, lines: list[str], run: Run) -> None:
        rows = dict(zip(run.iterations.line.tolist(), run.iterations.number.tolist(), strict=True))
        ordered = sorted(rows)
        self.begin, end = ordered[min(WARMING, len(rows) // 2)], ordered[-1] + 1
        self.lines = lines[self.begin : end]
        self.shapes = [
            around_number(line, rows[place]) if (place := self.begin + row) in rows and not _STEP.match(line) else None
            for row, line in enumerate(self.lines)
        ]
        self.numbers = [rows.get(self.begin + row, 0) for row in range(len(self.lines))]
        self.length = max(rows.values()) + 1 - min(min(rows.values()), 1)
        text = "\n".join(self.lines)
        epochs = [int(found[2]) for found in _EPOCH.finditer(text)] or [0]
        self.epochs = max(epochs) - min(epochs) + 1
        days = {found[0].replace("/", "-") for found in _DATE.finditer(text)}
        self.days = len(days) + 1
        self.elapsed = max((_seconds(found[2]) for found in _BAR.finditer(text)), default=0)

    def rounds(self) -> Iterator[str]:
        """Each repetition as a text, endlessly."""
        k = 0
        while True:
            yield "\n".join(map(self._raised, self.lines, self.shapes, self.numbers, [k] * len(self.lines)))
            k += 1

    def _raised(self, line: str, found: tuple[str, int, str] | None, number: int, k: int) -> str:
        if k == 0:
            return line
        if found is not None:
            before, width, after = found
            since = k * self.elapsed
            after = _BAR.sub(lambda bar: f"/{int(bar[1]) * 1000} [{_clock(_seconds(bar[2]) + since)}<", after)
            line = f"{before}{str(number + k * self.length).zfill(width)}{after}"
        else:
            line = _STEP.sub(lambda found: f"{found[1]}{int(found[2]) + k * self.length}", line, count=1)
        line = _EPOCH.sub(lambda found: f"{found[1]}{int(found[2]) + k * self.epochs}", line)
        return _DATE.sub(lambda found: self._day(found, k), line)

    def _day(self, found: re.Match[str], k: int) -> str:
        try:
            day = date(int(found[1]), int(found[3]), int(found[4])) + timedelta(days=k * self.days)
        except (ValueError, OverflowError):
            return found[0]
        return day.strftime(f"%Y{found[2]}%m{found[2]}%d")


def _seconds(clock: str) -> int:
    seconds = 0
    for part in clock.split(":"):
        seconds = 60 * seconds + int(part)
    return seconds


def _clock(seconds: int) -> str:
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def repeated(source: Source, runs: tuple[Run, ...], size: int = SIZE) -> Source:
    """The longest run of a log with its body repeated up to this size."""
    lines = source.text.decode("utf-8", "replace").split("\n")
    longest = max(range(len(runs)), key=lambda place: len(runs[place].iterations))
    body = Body(lines, runs[longest])
    above = int(runs[longest - 1].iterations.line.max()) + 1 if longest else 0
    text = lines[above : body.begin]
    length = sum(len(line) + 1 for line in text)
    for part in body.rounds():
        text.append(part)
        length += len(part) + 1
        if length >= size:
            break
    return source.holding(("\n".join(text) + "\n").encode())


def measure(place: Path, names: Collection[str]) -> Iterator[tuple[str, Path, float, int]]:
    """Format, file, bytes per second and rows of each log that has iterations on lines."""
    for path in sorted(place.glob("*/*")):
        try:
            source = from_file(path)
            runs = read(source) if path.suffix not in (*OWN_NOTES, ".ipynb") and kind_of(source.text) is None else ()
        except InputError:
            continue
        if sum(len(run.iterations) for run in runs) < LEAST_ROWS or source.text.count(b"\n") < LEAST_ROWS:
            continue
        name = runs[0].format
        if names and name not in names:
            continue
        whole = repeated(source, runs)
        best, rows = max(speed_of(whole, None) for _ in range(REPEATS))
        yield name, path, best, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="a directory of directories of logs")
    parser.add_argument("formats", nargs="*")
    options = parser.parse_args()
    print("| MB/s | format | rows | log |\n|--:|---|--:|---|")
    below = 0
    for name, path, rate, rows in measure(options.corpus or corpus_or_exit(), options.formats):
        below += rate < WANTED_BYTES_PER_S
        print(f"| {rate / 1e6:.1f} | {name} | {rows:,} | {path.parent.name}/{path.name.split('_')[0]} |", flush=True)
    print(f"\n{below} logs below {WANTED_BYTES_PER_S / 1e6:.0f} MB/s.")


if __name__ == "__main__":
    main()
