"""What `stepwatch watch` costs, and how good its ETA is compared with tqdm's on the same planted runs.

    python -m benchmarks.watching [--only eta|cost]

The ETA is taken while a planted run is played back on an injected clock; both programs see the same lines at the same
moments. Cost is that of a real `stepwatch watch` of a file that grows by ten lines per second; time and memory per line
are ratios within one process, since only these are meaningful on a shared machine.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import numpy as np
from benchmarks.adapter import REPOSITORY, SOURCE, command, environment

sys.path[:0] = [str(REPOSITORY), str(SOURCE)]

from tests.builders import Record, a_run, random_truth  # noqa: E402

RUNS, SEED = 200, 1
MOMENTS = (0.05, 0.20, 0.50)
LINES_PER_S = 10.0
SETTLING_S, MEASURED_S = 4.0, 20.0
SIZES = (1_000, 10_000, 100_000, 1_000_000)
SMALL, LARGE = 10_000, 1_000_000
_PIECE = 500  # lines fed at once if only the sum counts


# --- ETA --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A logged iteration as it appears: when, with which lines, and the true time that is left after it."""

    number: int
    at_s: float
    text: bytes
    left_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """What both programs said at one moment of one run."""

    moment: float
    truth_s: float
    ours_s: float
    theirs_s: float
    covered: bool

    @property
    def ours(self) -> float:
        return abs(self.ours_s - self.truth_s) / self.truth_s

    @property
    def theirs(self) -> float:
        return abs(self.theirs_s - self.truth_s) / self.truth_s


def arrivals(record: Record) -> Iterator[Arrival]:
    """The lines of a planted log, each iteration with the lines above it, at the moment it is printed."""
    ends = np.cumsum(record.time_s)
    ended = dict(zip(record.number.tolist(), ends.tolist(), strict=True))
    held: list[str] = []
    for line in record.text.splitlines(keepends=True):
        held.append(line)
        place = line.find("iter ")
        if place < 0 or ": loss" not in line:
            continue
        number = int(line[place + 5 : line.index(":", place)])
        at = ended[number]
        yield Arrival(number=number, at_s=at, text="".join(held).encode(), left_s=float(ends[-1]) - at)
        held.clear()


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def play(record: Record) -> list[Guess]:
    """Plays one run to half of its length."""
    from tqdm import tqdm

    from stepwatch.analysis import analyse
    from stepwatch.settings import Origin, Settings
    from stepwatch.watch import Live

    truth = record.truth
    told = Settings.of(Origin.USER, {"max_iters": truth.max_iters})  # tqdm is told its total, so are we
    clock = _Clock()
    live = Live("planted", lambda run: analyse(_with(run, told)))
    total = truth.max_iters - truth.first_iter + 1
    with tqdm(total=total, file=io.StringIO()) as bar:
        bar._time = clock
        bar.start_t = bar.last_print_t = 0.0
        return list(_played(record, live, bar, clock))


def _with(run, told):  # type: ignore[no-untyped-def]
    from dataclasses import replace

    return replace(run, settings=run.settings.overridden_by(told))


def _played(record: Record, live, bar, clock: _Clock) -> Iterator[Guess]:  # type: ignore[no-untyped-def]
    first, end = record.truth.first_iter, record.truth.max_iters
    moments = list(MOMENTS)
    for arrival in arrivals(record):
        clock.now = arrival.at_s
        live.feed(arrival.text, clock.now)
        bar.update(arrival.number - first + 1 - bar.n)
        if arrival.number - first < moments[0] * (end - first):
            continue
        ours = live.look(clock.now, thoroughly=True).remaining_s
        yield Guess(
            moment=moments.pop(0), truth_s=arrival.left_s, ours_s=ours.mid, theirs_s=_remaining(bar),
            covered=ours.holds(arrival.left_s),
        )  # fmt: skip
        if not moments:
            return


def _remaining(bar) -> float:  # type: ignore[no-untyped-def]
    """The remaining time by tqdm's bar: its smoothed rate, or the mean if it has none yet."""
    state = bar.format_dict
    rate = state["rate"] or (state["n"] / state["elapsed"] if state["elapsed"] else None)
    return (state["total"] - state["n"]) / rate if rate else float("inf")


def eta(runs: int = RUNS, seed: int = SEED) -> list[Guess]:
    rng = np.random.default_rng(seed)
    return [guess for _ in range(runs) for guess in play(a_run(random_truth(rng)))]


def eta_table(guesses: Sequence[Guess], runs: int = RUNS, seed: int = SEED) -> str:
    out = [
        f"{runs} planted runs (seed {seed}) played back on an injected clock; error of the time left, against the time "
        "that was really left. tqdm is given the total, updated at each logged iteration, and smooths by default.",
        "",
        "| played | runs | stepwatch, median error | tqdm, median error | ratio | wanted | stepwatch, mean "
        "| tqdm, mean | nearer than tqdm | truth in the 90 % interval |",
        "|---|--:|--:|--:|--:|---|--:|--:|--:|--:|",
    ]
    for moment in MOMENTS:
        mine = [guess for guess in guesses if guess.moment == moment and guess.truth_s > 0]
        ours, theirs = [g.ours for g in mine], [g.theirs for g in mine]
        nearer = sum(g.ours < g.theirs for g in mine) / len(mine)
        out.append(
            f"| {moment:.0%} | {len(mine)} | {median(ours):.1%} | {median(theirs):.1%} "
            f"| **{median(ours) / median(theirs):.2f}** | ≤ 0.5 | {mean(ours):.1%} | {mean(theirs):.1%} "
            f"| {nearer:.0%} | {sum(g.covered for g in mine) / len(mine):.0%} |"
        )
    return "\n".join(out)


# --- cost of a real watch ---------------------------------------------------------------------------------------


def _lines(begin: int, count: int) -> Iterator[str]:
    """Iterations at ten per second, including evaluations."""
    for number in range(begin, begin + count):
        time_ms = 100.0 + (number * 7919 % 400) / 100
        if number % 100 == 0:
            yield f"step {number}: train loss 2.4866, val loss 2.5051\n"
            if number:
                yield "saving checkpoint to out\n"
            time_ms += 900
        mfu = "-100.00" if number < 5 else f"{27 + number % 90 / 100:.2f}"
        yield f"iter {number}: loss {10.4 + number % 977 / 10000:.4f}, time {time_ms:.2f}ms, mfu {mfu}%\n"


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _grow(log: Path, until_s: float, begin: int) -> int:
    """Writes ten lines per second, by the real clock."""
    started, written, lines = time.monotonic(), 0, _lines(begin, 1_000_000)
    with log.open("a") as file:
        while (passed := time.monotonic() - started) < until_s:
            while written < passed * LINES_PER_S:
                file.write(next(lines))
                written += 1
            file.flush()
            time.sleep(1 / LINES_PER_S / 2)
    return begin + written


def share_of_core(*, on_terminal: bool, already: int) -> float:
    """CPU time over wall time of a watch that has caught up with this many lines."""
    if not sys.platform.startswith("linux"):
        return float("nan")
    with tempfile.TemporaryDirectory(prefix="stepwatch-watching-") as directory:
        log = Path(directory) / "train.log"
        log.write_text("max_iters = 10000000\n" + "".join(_lines(0, already)))
        ask = command("watch", str(log))
        master, slave = pty.openpty()
        drain = subprocess.DEVNULL
        process = subprocess.Popen(
            ask, stdout=slave if on_terminal else drain, stderr=drain, stdin=drain,
            env={**environment(), "TERM": "xterm-256color"},
        )  # fmt: skip
        try:
            with _Drained(master):
                begin = _grow(log, SETTLING_S, already)
                before, started = _cpu_s(process.pid), time.monotonic()
                _grow(log, MEASURED_S, begin)
                return (_cpu_s(process.pid) - before) / (time.monotonic() - started)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
            os.close(slave), os.close(master)


class _Drained:
    """Reads what goes to the terminal; otherwise the program would block."""

    def __init__(self, master: int) -> None:
        from threading import Event, Thread

        self._master, self._over = master, Event()
        self._thread = Thread(target=self._read, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._over.is_set():
            if select.select([self._master], [], [], 0.2)[0]:
                os.read(self._master, 65536)


# --- growth -----------------------------------------------------------------------------------------------------

_GROWTH = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from benchmarks.watching import growth
print(json.dumps(growth(int(sys.argv[2]))))
"""


def growth(lines: int) -> tuple[float, float, int]:
    """Seconds for one more line and for one more look at this length; peak memory in bytes."""
    from stepwatch.analysis import analyse
    from stepwatch.watch import Live

    live = Live("growing", analyse)
    begin = 0
    while begin < lines:
        count = min(_PIECE, lines - begin)
        live.feed("".join(_lines(begin, count)).encode(), float(begin))
        live.look(float(begin), thoroughly=True)
        begin += count
    line_s = median(_timed(live, begin + i, look=False) for i in range(100))
    look_s = median(_timed(live, begin + 100 + i, look=True) for i in range(30))
    return line_s, look_s, _peak_bytes()


def _peak_bytes() -> int:
    """The peak of this process alone: ru_maxrss begins at the size of its parent."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) * 1024


def _timed(live, number: int, *, look: bool) -> float:  # type: ignore[no-untyped-def]
    text = "".join(_lines(number, 1)).encode()
    started = time.process_time()
    live.feed(text, float(number))
    if look:
        live.look(float(number), thoroughly=True)
    return time.process_time() - started


def grown(lines: int) -> tuple[float, float, int]:
    """Runs in a separate process: a memory peak never falls again."""
    places = json.dumps([str(REPOSITORY), str(SOURCE)])
    done = subprocess.run(
        [sys.executable, "-c", _GROWTH, places, str(lines)], capture_output=True, text=True, check=True,
        env={**environment(), "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    line_s, look_s, peak = json.loads(done.stdout)
    return line_s, look_s, peak


def cost_table() -> str:
    shares = {
        "plain lines, 1,000 lines before": share_of_core(on_terminal=False, already=1_000),
        "plain lines, 100,000 lines before": share_of_core(on_terminal=False, already=100_000),
        "screen on a terminal, 1,000 lines before": share_of_core(on_terminal=True, already=1_000),
        "screen on a terminal, 100,000 lines before": share_of_core(on_terminal=True, already=100_000),
    }
    measured = {lines: grown(lines) for lines in SIZES}
    out = [
        f"CPU time over wall time of `stepwatch watch` of a file that grows by {LINES_PER_S:.0f} lines a second, "
        f"over {MEASURED_S:.0f} s:",
        "",
        "| shown as | share of one core | wanted |",
        "|---|--:|---|",
        *(f"| {name} | **{share:.1%}** | < 2 % |" for name, share in shares.items()),
        "",
        "| lines so far | one line more, ms | one look more, ms | peak memory, MB |",
        "|--:|--:|--:|--:|",
        *(
            f"| {n:,} | {line * 1e3:.2f} | {look * 1e3:.1f} | {peak / 1e6:.0f} |"
            for n, (line, look, peak) in measured.items()
        ),
        "",
        f"Memory at {LARGE:,} lines over that at {SMALL:,}: **{measured[LARGE][2] / measured[SMALL][2]:.2f}** (wanted: "
        f"flat). One line more: **{measured[LARGE][0] / measured[SMALL][0]:.2f}**; one look more: "
        f"**{measured[LARGE][1] / measured[SMALL][1]:.2f}**.",
    ]
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=("eta", "cost"))
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seed", type=int, default=SEED)
    chosen = parser.parse_args()
    tables: list[Callable[[], str]] = []
    if chosen.only != "cost":
        tables.append(lambda: eta_table(eta(chosen.runs, chosen.seed), chosen.runs, chosen.seed))
    if chosen.only != "eta":
        tables.append(cost_table)
    print("\n\n".join(table() for table in tables))


if __name__ == "__main__":
    main()
