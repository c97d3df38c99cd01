"""How well a fleet is read: speed, faults, restart chains, bad nodes and regressions.

    python -m benchmarks.fleet chains|fleets|kills|speed [--count N] [--logs DIR] [--write-docs]

`chains` and `fleets` are planted (tests/fleets.py). `kills` ends readers with SIGKILL at random moments and compares
the store with an undisturbed one. `speed` reads copies of the logs below a directory, of sizes as met in the wild: the
median is 28 kB. With --write-docs the table goes into docs/fleet.md.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from math import exp
from pathlib import Path
from statistics import median

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.fleets import a_chain, a_fleet  # noqa: E402

from stepwatch.fleet import likes  # noqa: E402
from stepwatch.fleet.collect import CollectRequest, collect  # noqa: E402
from stepwatch.fleet.questions import FleetRequest, ask  # noqa: E402
from stepwatch.fleet.store import Store  # noqa: E402

PAGE = ROOT / "docs" / "fleet.md"


def chains(count: int) -> Iterator[tuple[str, str]]:
    """Planted restart chains, through logs and a store."""
    with tempfile.TemporaryDirectory() as place:
        top = Path(place)
        truths = {}
        for seed in range(count):
            truths[f"job{seed}"] = chain = a_chain(seed)
            (top / "logs" / f"job{seed}").mkdir(parents=True)
            for name, text in chain.files.items():
                (top / "logs" / f"job{seed}" / name).write_text(text)
        collect(CollectRequest(places=(str(top / "logs"),), into=str(top / "store")))
        jobs = {Path(job.name).parent.name: job for job in ask(FleetRequest(store=str(top / "store"))).jobs}
    exact = sum(name in jobs and jobs[name].redone == truth.redone for name, truth in truths.items())
    within = [abs(jobs[name].goodput / truth.goodput - 1) for name, truth in truths.items() if name in jobs]
    yield f"{count} planted restart chains: iterations done again are exact", f"{exact} of {count}"
    yield (
        "their goodput is within 1 %",
        f"{sum(off <= 0.01 for off in within)} of {count}; at most {max(within):.2%} off",
    )


def fleets(count: int) -> Iterator[tuple[str, str]]:
    """Planted fleets, by what a store tells of their runs."""
    named = dict.fromkeys(("node", "day", ""), 0)
    for kind in named:
        for seed in range(1000, 1000 + count):
            planted = a_fleet(seed, kind)
            rows = []
            for run in planted.runs:
                started = run["started"]
                assert isinstance(started, datetime)
                told = {
                    "work": run["work"], "node": run["node"], "step_s_mid": run["step_s"],
                    "torch_version": run["torch"],
                    "started_at": started.replace(tzinfo=UTC).timestamp(), "source": run["source"], "wall_s": 3600.0,
                }  # fmt: skip
                rows.append({**dict.fromkeys(likes.COLUMNS), **told})
            found = [(each.kind, each.name) for each in likes.find_suspects(rows) if each.kind != "run"]
            named[kind] += found == ([(kind, planted.name)] if kind else [])
    yield f"{count} fleets with a bad node: it alone is named", f"{named['node']} of {count}"
    yield f"{count} fleets with a regression: it alone is named, with its day", f"{named['day']} of {count}"
    yield f"{count} healthy fleets: neither is named", f"{named['']} of {count}"


def kills(count: int) -> Iterator[tuple[str, str]]:
    """Readers killed at random moments."""
    with tempfile.TemporaryDirectory() as place:
        top = Path(place)
        logs = top / "logs"
        logs.mkdir()
        for seed in range(4 * count):
            for name, text in a_chain(seed).files.items():
                (logs / f"{seed}-{name}").write_text(text)
        collect(CollectRequest(places=(str(logs),), into=str(top / "calm")))
        stop, killed = threading.Event(), []

        def kill() -> None:
            rng = random.Random(1)
            while len(killed) < count and not stop.wait(rng.uniform(0.2, 1.6)):
                with suppress(psutil.Error):
                    below = psutil.Process().children(recursive=True)
                    readers = [child for child in below if "stepwatch.fleet.reader" in " ".join(child.cmdline())]
                    if readers:
                        rng.choice(readers).send_signal(signal.SIGKILL)
                        killed.append(1)

        killer = threading.Thread(target=kill)
        killer.start()
        while len(killed) < count:  # the logs are read until so many kills have been survived
            for table in (top / "hit").glob("*/*/*.parquet"):
                table.unlink()
            collect(CollectRequest(places=(str(logs),), into=str(top / "hit")))
        stop.set()
        killer.join()
        same = all(
            _rows(str(top / "hit"), table) == _rows(str(top / "calm"), table)
            for table in ("runs", "parts", "findings", "failures")
        )
    yield f"{len(killed)} readers killed with SIGKILL at random moments: every row as without", "yes" if same else "no"


def _rows(store: str, table: str) -> list[str]:
    data = Store(store).dataset(table)
    assert data is not None
    names = [name for name in data.schema.names if name not in ("collected_at", "bucket")]
    return sorted(map(repr, data.to_table(columns=names).to_pylist()))


def speed(count: int, logs: Path) -> Iterator[tuple[str, str]]:
    """Copies of real logs; processor time, since other programs may be at work."""
    with tempfile.TemporaryDirectory() as place:
        top = Path(place)
        sizes = copies(count, logs, top / "logs")
        yield (
            f"{count:,} logs: size in the median, largest",
            f"{median(sizes) / 1000:.0f} kB, {max(sizes) / 1e6:.1f} MB",
        )
        before = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF)
        began = time.monotonic()
        done = collect(CollectRequest(places=(str(top / "logs"),), into=str(top / "store")))
        wall = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF)
        readers, client = (
            (new.ru_utime + new.ru_stime - old.ru_utime - old.ru_stime) / count
            for new, old in zip(after, before, strict=True)
        )
        load = os.getloadavg()[0]
        yield "processor time per log: readers, client", f"{readers * 1000:.1f} ms, {client * 1000:.2f} ms"
        yield "wall time, with this load average", f"{wall:.0f} s, {load:.1f}"
        yield "the largest reader", f"{after[0].ru_maxrss / 1000:.0f} MB"
        yield "runs, failures", f"{done.runs:,}, {sum(done.failures.values()):,}"
        began = time.monotonic()
        spent = time.process_time()
        collect(CollectRequest(places=(str(top / "logs"),), into=str(top / "store")))
        yield (
            "again, nothing changed: processor time, wall time",
            f"{time.process_time() - spent:.2f} s, {time.monotonic() - began:.2f} s",
        )


def copies(count: int, logs: Path, place: Path) -> list[int]:
    """Of the logs that stepwatch reads, those next in size to what a log-normal distribution asks for."""
    with tempfile.TemporaryDirectory() as store:
        collect(CollectRequest(places=(str(logs),), into=store))
        data = Store(store).dataset("sources")
        assert data is not None
        rows = data.to_table(columns=["log", "outcome", "files", "size_bytes"]).to_pylist()
    known = sorted((row["size_bytes"], row["log"]) for row in rows if row["outcome"] == "runs" and row["files"] == 1)
    rng, sizes = random.Random(7), []
    for number in range(count):
        wanted = min(28_000 * exp(rng.gauss(0, 1.3)), 3_000_000)
        size, source = rng.choice(sorted(known, key=lambda log: abs(log[0] - wanted))[:8])
        target = place / f"{number // 100:03}" / f"run{number:05}{Path(source).suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(Path(source).read_bytes())
        sizes.append(size)
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("chains", "fleets", "kills", "speed"))
    parser.add_argument("--count", type=int)
    parser.add_argument("--logs", type=Path, default=ROOT.parent / "shared" / "corpus")
    parser.add_argument("--write-docs", action="store_true")
    asked = parser.parse_args()
    count = asked.count or {"chains": 200, "fleets": 50, "kills": 50, "speed": 10_000}[asked.what]
    rows = list(speed(count, asked.logs) if asked.what == "speed" else globals()[asked.what](count))
    table = "\n".join(("| measured | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows))) + "\n"
    print(table)
    if asked.write_docs:
        marked = re.compile(rf"(<!-- figures:{asked.what} -->\n).*?(<!-- /figures -->)", re.DOTALL)
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(marked.sub(lambda found: found[1] + table + found[2], page), encoding="utf-8")


if __name__ == "__main__":
    main()
