"""How well a fleet is read: speed, faults, restart chains, bad nodes and regressions.

    python -m benchmarks.fleet chains|fleets|scaling|forecasts|kills|clients|bucket|poison|speed|workers|sizes
        [--count N] [--logs DIR] [--write-docs]

The first four are planted (tests/fleets.py, tests/builders.py). Four disturb a collection and compare its store with
that of an undisturbed one, row by row: `kills` ends readers with SIGKILL at random moments, `clients` the whole
process, `bucket` puts a server with errors, delays and cut connections in front of S3, `poison` adds bad logs of every
kind. Three read copies of the logs below a directory, in realistic sizes: `speed`, `workers` (one against two) and
`sizes` (100, 1,000 and 10,000 logs). With --write-docs the table goes into docs/fleet.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from math import exp
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.builders import a_run, random_truth  # noqa: E402
from tests.faulty_proxy import faulty  # noqa: E402
from tests.fleets import a_chain, a_fleet, a_scaling, a_sweep  # noqa: E402

from stepwatch.fleet import likes  # noqa: E402
from stepwatch.fleet.collect import CollectRequest, collect  # noqa: E402
from stepwatch.fleet.questions import FleetRequest, ask  # noqa: E402
from stepwatch.fleet.schema import TABLES  # noqa: E402
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
    yield f"{count} planted restart chains: repeated iterations are exact", f"{exact} of {count}"
    yield (
        "their goodput is within 1 %",
        f"{sum(off <= 0.01 for off in within)} of {count}; at most {max(within):.2%} off",
    )


def fleets(count: int) -> Iterator[tuple[str, str]]:
    """Planted fleets, from what a store contains about their runs."""
    named = dict.fromkeys(("node", "day", "", "sweep"), 0)
    for kind in named:
        for seed in range(1000, 1000 + count):
            planted = a_sweep(seed) if kind == "sweep" else a_fleet(seed, kind)
            rows = []
            for run in planted.runs:
                started = run["started"]
                assert isinstance(started, datetime)
                told = {
                    "work": run["work"], "node": run["node"], "step_s_mid": run["step_s"],
                    "torch_version": run["torch"], "dropout": run.get("dropout"),
                    "started_at": started.replace(tzinfo=UTC).timestamp(), "source": run["source"], "wall_s": 3600.0,
                }  # fmt: skip
                rows.append({**dict.fromkeys(likes.COLUMNS), **told})
            found = [(each.kind, each.name) for each in likes.find_suspects(rows) if each.kind != "run"]
            named[kind] += found == ([(kind, planted.name)] if planted.kind else [])
    yield f"{count} fleets with a bad node: it alone is named", f"{named['node']} of {count}"
    yield f"{count} fleets with a regression: it alone is named, with its day", f"{named['day']} of {count}"
    yield f"{count} healthy fleets: neither is named", f"{named['']} of {count}"
    yield f"{count} fleets with a sweep of other speeds: neither is named", f"{named['sweep']} of {count}"


def scaling(count: int) -> Iterator[tuple[str, str]]:
    """Planted models on several numbers of cards, through logs and a store."""
    with tempfile.TemporaryDirectory() as place:
        truths = [a_scaling(seed) for seed in range(count)]
        for name, text in (file for truth in truths for file in truth.files.items()):
            Path(place, name).write_text(text)
        collect(CollectRequest(places=(place,), into=f"{place}/store", gpu="h100"))
        found = {
            (scale.work, scale.cards): scale.efficiency for scale in ask(FleetRequest(store=f"{place}/store")).scaling
        }
    off = []
    for truth in truths:
        params = next(iter(truth.files)).partition("-")[0]
        told = {cards: share for (work, cards), share in found.items() if work.endswith(f"/{params}")}
        off.append(max(abs(told.get(cards, 9.0) / share - 1) for cards, share in truth.efficiency.items()))
    yield (
        f"{count} planted models on up to 16 cards, whose runs differ by up to 2 %: speed of a card within 3 %",
        f"{sum(each <= 0.03 for each in off)} of {count}; half of them within {median(off):.1%}",
    )


def forecasts(count: int) -> Iterator[tuple[str, str]]:
    """Planted finished runs, and what their forecast would have been after a tenth."""
    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as place:
        truths = {}
        for number in range(count):
            truth = random_truth(rng)
            last = max(truth.max_iters // truth.log_interval, 1) * truth.log_interval  # otherwise no line shows the end
            truth = replace(truth, first_iter=0, kept=1.0, max_iters=last)
            planted = a_run(truth)
            truths[f"{number}.log"] = planted.total_s
            Path(place, f"{number}.log").write_text(f"Overriding: max_iters = {truth.max_iters}\n{planted.text}")
        collect(CollectRequest(places=(place,), into=f"{place}/store", forecasts=True))
        columns = ("source", *(f"early_total_s_{end}" for end in ("low", "mid", "high")), "early_true_s")
        rows = [row for row in Store(f"{place}/store").table("runs", columns).to_pylist() if row["early_true_s"]]
        held = ask(FleetRequest(store=f"{place}/store")).held
    assert held is not None
    known = [(truths[Path(row["source"]).name], row) for row in rows]
    inside = sum(row["early_total_s_low"] <= truth <= row["early_total_s_high"] for truth, row in known)
    yield f"{count} planted runs: forecast at a tenth", f"{len(known)}; the others have fewer than 20 lines"
    yield "the forecast interval contains the planted time", f"{inside / len(known):.0%}"
    yield "`fleet` says, from the logs alone", f"{held.inside:.0%} of {held.runs}; half of them within {held.error:.1%}"
    off = median(abs(row["early_true_s"] / truth - 1) for truth, row in known)
    yield "the time it measures, compared with the planted one: half within", f"{off:.2%}"


# --- faults -----------------------------------------------------------------------------------------------------


def a_directory(place: Path, count: int) -> str:
    place.mkdir()
    for seed in range(count):
        for name, text in a_chain(seed).files.items():
            (place / f"{seed}-{name}").write_text(text)
    return str(place)


def rows_in(store: str) -> dict[str, list[str]]:
    """Every row of every table, without columns that always differ."""
    found = {}
    for table in TABLES:
        if table != "iterations":
            data = Store(store).table(table)
            kept = [name for name in data.column_names if name not in ("collected_at", "processor_s")]
            found[table] = sorted(map(repr, data.select(kept).to_pylist()))
    return found


def equal(store: str, other: str) -> str:
    return "yes" if rows_in(store) == rows_in(other) else "NO"


def kills(count: int) -> Iterator[tuple[str, str]]:
    """Readers killed at random moments."""
    with tempfile.TemporaryDirectory() as place:
        calm, hit = f"{place}/calm", f"{place}/hit"
        logs = a_directory(Path(place, "logs"), 4 * count)
        collect(CollectRequest(places=(logs,), into=calm))
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
        while len(killed) < count:  # the logs are read until that many kills have been survived
            shutil.rmtree(hit, ignore_errors=True)
            collect(CollectRequest(places=(logs,), into=hit))
        stop.set()
        killer.join()
        yield f"{len(killed)} readers killed with SIGKILL at random moments: every row as without", equal(hit, calm)


def clients(count: int) -> Iterator[tuple[str, str]]:
    """The collecting process is killed at random moments, and started again each time until everything is read."""
    with tempfile.TemporaryDirectory() as place:
        logs, rng, killed = a_directory(Path(place, "logs"), 60), random.Random(2), 0
        collect(CollectRequest(places=(logs,), into=f"{place}/calm"))
        while killed < count:
            shutil.rmtree(f"{place}/hit", ignore_errors=True)
            ended = False
            while not ended and killed < count:
                words = [sys.executable, "-m", "stepwatch", "collect", logs, "--into", f"{place}/hit"]
                with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
                    try:
                        ended = client.wait(rng.uniform(1, 8)) == 0
                    except subprocess.TimeoutExpired:
                        client.kill()
                        killed += 1
        collect(CollectRequest(places=(logs,), into=f"{place}/hit"))
        yield (
            f"{killed} clients killed with SIGKILL at random moments: every row as without",
            equal(f"{place}/hit", f"{place}/calm"),
        )


def bucket(count: int) -> Iterator[tuple[str, str]]:
    """Logs and store in S3 (moto), behind a server that fails."""
    import s3fs

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    real = f"http://127.0.0.1:{port}"
    os.environ |= dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "testing")
    os.environ |= {"AWS_ENDPOINT_URL": real, "AWS_DEFAULT_REGION": "us-east-1"}
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with tempfile.TemporaryDirectory() as place, subprocess.Popen(words, stderr=subprocess.DEVNULL) as server:
        try:
            while socket.socket().connect_ex(("127.0.0.1", port)):
                time.sleep(0.2)
            there = s3fs.S3FileSystem()
            there.mkdir("lab")
            there.put(a_directory(Path(place, "logs"), 20), "lab/logs", recursive=True)
            collect(CollectRequest(places=("s3://lab/logs",), into="s3://lab/calm"))
            made: Counter[str] = Counter()
            same = True
            while made.total() < count:
                with faulty(port, seed=made.total(), share=0.3, most=count - made.total()) as (address, faults):
                    os.environ["AWS_ENDPOINT_URL"] = address
                    s3fs.S3FileSystem.clear_instance_cache()
                    collect(CollectRequest(places=("s3://lab/logs",), into=f"s3://lab/hit{made.total()}"))
                os.environ["AWS_ENDPOINT_URL"] = real
                s3fs.S3FileSystem.clear_instance_cache()
                same = same and rows_in(f"s3://lab/hit{made.total()}") == rows_in("s3://lab/calm")
                made += faults.made
        finally:
            server.kill()
    told = ", ".join(f"{kind} {number}" for kind, number in sorted(made.items()))
    yield f"{made.total()} requests that S3 failed ({told}): every row as without", "yes" if same else "NO"


def poison(count: int) -> Iterator[tuple[str, str]]:
    """Logs that take too long, too much memory, or cannot be read, among good ones."""
    lines = b"iter 1: loss 4.2, time 100.00ms, mfu 9.00%\n" * 12_000_000
    drawn = (f"{n // 9999}%|## | {n}/1000000 [{n // 600:02}:{n // 10 % 60:02}<9:59, 10it/s]\n" for n in range(900_000))
    with tempfile.TemporaryDirectory() as place:
        logs = Path(a_directory(Path(place, "logs"), count))
        collect(CollectRequest(places=(str(logs),), into=f"{place}/calm"))
        good = logs / "0-train.log" if (logs / "0-train.log").exists() else next(logs.iterdir())
        (logs / "large.log.gz").write_bytes(gzip.compress(lines, compresslevel=1))
        (logs / "cut.log.gz").write_bytes(gzip.compress(good.read_bytes())[:-400])
        (logs / "noise.log.xz").write_bytes(random.Random(1).randbytes(5000))
        with zipfile.ZipFile(logs / "whole.zip", "w", zipfile.ZIP_DEFLATED) as packed:
            packed.write(good, "a.log")
        (logs / "cut.zip").write_bytes((logs / "whole.zip").read_bytes()[:-200])
        with tarfile.open(logs / "whole.tar.gz", "w:gz") as tar:
            tar.add(good, "a.log")
        (logs / "cut.tar.gz").write_bytes((logs / "whole.tar.gz").read_bytes()[:-400])
        for name in ("whole.zip", "whole.tar.gz"):
            (logs / name).unlink()
        collect(CollectRequest(places=(str(logs),), into=f"{place}/hit", time_limit=600, memory_limit=300_000_000))
        (logs / "slow.log").write_text("".join(drawn))
        collect(CollectRequest(places=(str(logs),), into=f"{place}/hit", time_limit=1.0))
        hit, calm = rows_in(f"{place}/hit"), rows_in(f"{place}/calm")
        failed = Store(f"{place}/hit").table("failures").to_pylist()
        causes = {Path(row["log"]).name: row["cause"] for row in failed}
        bad = ("slow.log", "large.log.gz", "cut.log.gz", "noise.log.xz", "cut.zip", "cut.tar.gz")
        same = all([row for row in hit[table] if not any(name in row for name in bad)] == calm[table] for table in calm)
    yield "logs that cannot be read, among good ones: causes", ", ".join(f"{name} {causes.get(name)}" for name in bad)
    yield "every row of the others as without them", "yes" if same else "NO"


# --- speed ------------------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    readers_s: float
    client_s: float
    wall_s: float
    largest_bytes: float
    runs: int
    failures: int


def collected(logs: Path, store: Path, workers: int | None = None) -> Cost:
    """In a separate process, whose children are its readers; counts processor time, as other programs may run."""
    code = (
        "import json, resource, sys, time\n"
        "from stepwatch.fleet.collect import CollectRequest, collect\n"
        "began, spent = time.monotonic(), time.process_time()\n"
        "done = collect(CollectRequest(places=(sys.argv[1],), into=sys.argv[2], workers=int(sys.argv[3]) or None))\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(json.dumps([used.ru_utime + used.ru_stime, time.process_time() - spent, time.monotonic() - began,\n"
        "    used.ru_maxrss * 1024, done.runs, sum(done.failures.values())]))\n"
    )
    words = [sys.executable, "-c", code, str(logs), str(store), str(workers or 0)]
    return Cost(*json.loads(subprocess.run(words, check=True, capture_output=True).stdout))


def speed(count: int, logs: Path) -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as place:
        top = Path(place)
        sizes = copies(count, logs, top / "logs")
        yield (
            f"{count:,} logs: size in the median, on average, largest; how many above 2 MB",
            f"{median(sizes) / 1000:.0f} kB, {sum(sizes) / count / 1000:.0f} kB, {max(sizes) / 1e6:.1f} MB; "
            f"{sum(size > 2e6 for size in sizes)}",
        )
        cost = collected(top / "logs", top / "store")
        told = f"{cost.readers_s / count * 1000:.1f} ms, {cost.client_s / count * 1000:.2f} ms"
        yield "processor time per log: readers, client", told
        yield "wall time, with this load average", f"{cost.wall_s:.0f} s, {os.getloadavg()[0]:.1f}"
        yield "the largest reader", f"{cost.largest_bytes / 1e6:.0f} MB"
        yield "runs, failures", f"{cost.runs:,}, {cost.failures:,}"
        cost = collected(top / "logs", top / "store")
        yield "again, nothing changed: processor time, wall time", f"{cost.client_s:.2f} s, {cost.wall_s:.2f} s"


def workers(count: int, logs: Path) -> Iterator[tuple[str, str]]:
    """Only useful on an idle machine."""
    with tempfile.TemporaryDirectory() as place:
        copies(count, logs, Path(place, "logs"))
        one, two = (collected(Path(place, "logs"), Path(place, f"store{number}"), number) for number in (1, 2))
    yield f"{count:,} logs: wall time with one worker and with two", f"{one.wall_s:.1f} s, {two.wall_s:.1f} s"
    yield "times as fast, with this load average", f"{one.wall_s / two.wall_s:.2f}, {os.getloadavg()[0]:.1f}"
    spent = [(cost.readers_s + cost.client_s) / count * 1000 for cost in (one, two)]
    yield "processor time per log", f"{spent[0]:.1f} ms, {spent[1]:.1f} ms"


def sizes(count: int, logs: Path) -> Iterator[tuple[str, str]]:
    """The same logs repeated, so that only their number differs."""
    with tempfile.TemporaryDirectory() as place:
        for number in sorted({100, 1000, count}):
            top = Path(place, str(number))
            copies(number, logs, top / "logs", of=100)
            cost = collected(top / "logs", top / "store")
            shutil.rmtree(top)
            per_log = (cost.readers_s / number, cost.client_s / number)
            yield (
                f"{number:,} logs: processor time per log",
                " + ".join(f"{each * 1000:.2f}" for each in per_log) + " ms",
            )


def copies(count: int, logs: Path, place: Path, of: int = 10**9) -> list[int]:
    """Renumbered copies of logs that stepwatch reads: their sizes are log-normal, with the median and the width of real
    ones (28 kB; 0.5 kB to 465 kB from the 5 to the 95 % quantile above it), up to 3 MB. With `of`, that many different
    ones, repeated."""
    known = readable(logs)
    rng = random.Random(7)
    chosen: list[tuple[int, str]] = []
    for number in range(count):
        if number >= of:
            chosen.append(chosen[number % of])
        else:
            wanted = min(28_000 * exp(rng.gauss(0, 1.57)), 3_000_000)
            near = [log for log in known if wanted / 1.5 <= log[0] <= wanted * 1.5]
            chosen.append(rng.choice(near or [min(known, key=lambda log: abs(log[0] - wanted))]))
        target = place / f"{number // 100:03}" / f"run{number:05}{Path(chosen[-1][1]).suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(Path(chosen[-1][1]).read_bytes())
    return [size for size, _ in chosen]


@cache
def readable(logs: Path) -> list[tuple[int, str]]:
    """Single files that stepwatch reads, with their sizes."""
    with tempfile.TemporaryDirectory() as store:
        collect(CollectRequest(places=(str(logs),), into=store))
        rows = Store(store).table("sources", ("log", "outcome", "files", "size_bytes")).to_pylist()
    return sorted((row["size_bytes"], row["log"]) for row in rows if row["outcome"] == "runs" and row["files"] == 1)


COUNTS = {
    "chains": 200,
    "fleets": 50,
    "scaling": 50,
    "forecasts": 200,
    "kills": 50,
    "clients": 50,
    "bucket": 50,
    "poison": 20,
    "speed": 10_000,
    "workers": 2_000,
    "sizes": 10_000,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=tuple(COUNTS))
    parser.add_argument("--count", type=int)
    parser.add_argument("--logs", type=Path, default=ROOT.parent / "shared" / "corpus")
    parser.add_argument("--write-docs", action="store_true")
    asked = parser.parse_args()
    where = (asked.logs,) if asked.what in ("speed", "workers", "sizes") else ()
    rows = list(globals()[asked.what](asked.count or COUNTS[asked.what], *where))
    table = "\n".join(("| measured | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows))) + "\n"
    print(table)
    if asked.write_docs:
        marked = re.compile(rf"(<!-- figures:{asked.what} -->\n).*?(<!-- /figures -->)", re.DOTALL)
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(marked.sub(lambda found: found[1] + table + found[2], page), encoding="utf-8")


if __name__ == "__main__":
    main()
