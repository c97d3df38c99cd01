"""How the page handles many users: 50 logs of 5 MB at once, one paste against the same answer in this process, and how
long a browser on a slow connection waits.

The logs of the parallel posts have planted step times, so that a mix-up shows.
    python -m benchmarks.serving
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Event, Thread

from benchmarks.adapter import command, environment
from benchmarks.speed import SMALL_LINES, write_small

POSTS = 50
POST_BYTES = 5_000_000
PASTES = 40
SETTLING_S = 3.0
BITS_PER_S, LATENCY_MS = 1.6e6, 150  # “slow 4G”, as Lighthouse emulates it


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """The result of many posts at once; memory is that of the server and its workers together."""

    answered: int
    right: int
    seconds: float
    before_bytes: int
    peak_bytes: int
    after_bytes: int

    @property
    def memory_ratio(self) -> float:
        return self.after_bytes / self.before_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Paste:
    served_s: float
    in_process_s: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstUse:
    """For a browser on its first visit, on a slow connection."""

    usable_s: float
    """Until the button can be pressed."""
    usable_bytes: int
    answered_bytes: int
    """Including the answer to the example, without the engine of the charts."""
    engine_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    parallel: Parallel
    pastes: dict[str, Paste]
    first: FirstUse | None


@contextmanager
def server() -> Iterator[tuple[str, int]]:
    """A real server on a free port; its address and its process id."""
    process = subprocess.Popen(command("serve", "--port", "0"), stdout=subprocess.PIPE, text=True, env=environment())
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.stdout.readline().strip().rstrip("/"), process.pid
    finally:
        process.terminate()
        process.wait()


def post(address: str, body: bytes) -> bytes:
    request = urllib.request.Request(address, body, {"Content-Type": "text/plain"})
    with urllib.request.urlopen(request, timeout=300) as response:
        found: bytes = response.read()
        return found


# --- many at once -----------------------------------------------------------------------------------------------


def planted_log(step_ms: float) -> bytes:
    """5 MB of iterations that all take the same time."""
    line = "iter {}: loss 4.2000, time " + f"{step_ms:.2f}ms, mfu 9.00%\n"
    count = POST_BYTES // len(line.format(50_000))
    return "".join(line.format(number) for number in range(count)).encode()


def memory_bytes(server_id: int) -> int:
    """The memory of the server and its workers, with shared pages divided (Linux)."""
    family = {server_id}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == server_id:
            family.add(int(place.name))
    total = 0
    for member in family:
        try:
            rollup = Path(f"/proc/{member}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
    return total


def parallel() -> Parallel | None:
    """None if the system does not report the memory of a process."""
    if not os.path.exists("/proc/self/smaps_rollup"):
        return None
    with server() as (address, server_id), ThreadPoolExecutor(POSTS) as pool:
        asked = f"{address}/api/explain?iterations=false"
        list(pool.map(lambda number: post(asked, planted_log(100.0)), range(6)))  # every worker has had its share
        time.sleep(SETTLING_S)
        before = memory_bytes(server_id)
        logs = [planted_log(100.0 + number) for number in range(POSTS)]
        peaks, done = [before], Event()
        watcher = Thread(target=_watch, args=(server_id, peaks, done))
        watcher.start()
        begin = time.perf_counter()
        answers = list(pool.map(lambda log: post(asked, log), logs))
        seconds = time.perf_counter() - begin
        done.set()
        watcher.join()
        time.sleep(SETTLING_S)
        after = memory_bytes(server_id)
    steps = [json.loads(answer)["runs"][0]["costs"]["step_s"]["mid"] for answer in answers]
    right = sum(abs(step - (0.1 + number / 1000)) < 1e-6 for number, step in enumerate(steps))
    return Parallel(
        answered=len(answers), right=right, seconds=seconds, before_bytes=before, peak_bytes=max(peaks),
        after_bytes=after,
    )  # fmt: skip


def _watch(server_id: int, peaks: list[int], done: Event) -> None:
    while not done.wait(0.2):
        peaks.append(memory_bytes(server_id))


# --- one paste --------------------------------------------------------------------------------------------------


def pastes() -> dict[str, Paste]:
    """Alternates, so that a busy machine slows both: the post over HTTP, and the same answer in this process."""
    from stepwatch.web.replies import reply_to
    from stepwatch.web.wire import Asked

    with tempfile.TemporaryDirectory(prefix="stepwatch-serving-") as directory:
        log = write_small(Path(directory) / "small.log").read_bytes()
    out = {}
    with server() as (address, _):
        urllib.request.urlopen(address + "/").read()  # now the engine and the workers are ready
        for form in ("json", "page"):
            asked_of_worker = Asked("explain", "text/plain", [["format", form]], log, len(log), "en")
            asked = f"{address}/api/explain?format={form}"
            times = []
            for _ in range(PASTES):
                begin = time.perf_counter()
                served = post(asked, log)
                middle = time.perf_counter()
                own = reply_to(asked_of_worker)
                times.append((middle - begin, time.perf_counter() - middle))
                if served != own.body:
                    raise RuntimeError("the page and the same call in this process answer differently")
            out[form] = Paste(
                served_s=median(mine for mine, _ in times), in_process_s=median(other for _, other in times),
                ratio=median(mine / other for mine, other in times[5:]),
            )  # fmt: skip
    return out


# --- a slow connection ------------------------------------------------------------------------------------------


def first_use() -> FirstUse | None:
    """None if there is no browser."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        return None
    from playwright.sync_api import sync_playwright

    with server() as (address, _), sync_playwright() as play:
        for place in ("/", "/page/engine.js"):  # until the server is ready
            urllib.request.urlopen(address + place).read()
        page = play.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page()
        network = page.context.new_cdp_session(page)
        names: dict[str, str] = {}
        sizes: dict[str, int] = {}
        network.on(
            "Network.requestWillBeSent", lambda event: names.update({event["requestId"]: event["request"]["url"]})
        )
        network.on(
            "Network.loadingFinished", lambda event: sizes.update({event["requestId"]: event["encodedDataLength"]})
        )
        network.send("Network.enable")
        conditions = {"offline": False, "latency": LATENCY_MS, "uploadThroughput": -1}
        network.send("Network.emulateNetworkConditions", {**conditions, "downloadThroughput": BITS_PER_S / 8})
        begin = time.perf_counter()
        page.goto(address, wait_until="commit")
        page.wait_for_selector("#explain .main:enabled")
        usable_s = time.perf_counter() - begin
        page.wait_for_load_state("networkidle")
        usable = sum(sizes.values())
        page.click("#explain .example")
        page.wait_for_selector("figure.drawn canvas")
        engine = sum(size for name, size in sizes.items() if "engine.js" in names[name])
        return FirstUse(
            usable_s=usable_s, usable_bytes=usable, answered_bytes=sum(sizes.values()) - engine, engine_bytes=engine
        )


def measure() -> Served:
    found = parallel()
    if found is None:
        raise SystemExit("the memory of a process cannot be read here: this benchmark needs Linux")
    return Served(parallel=found, pastes=pastes(), first=first_use())


def table(result: Served) -> str:
    """The result as Markdown."""
    p = result.parallel
    out = [
        f"| {POSTS} posts of {POST_BYTES / 1e6:.0f} MB at once | measured | wanted |",
        "|---|---|---|",
        f"| answered | {p.answered} | {POSTS} |",
        f"| with their own step time | {p.right} | {POSTS} |",
        f"| time for all of them | {p.seconds:.1f} s | |",
        f"| memory of server and workers, before | {p.before_bytes / 1e6:.0f} MB | |",
        f"| at its peak | {p.peak_bytes / 1e6:.0f} MB | |",
        f"| after | {p.after_bytes / 1e6:.0f} MB, **{p.memory_ratio:.2f}** times before | ≤ 1.2 |",
        "",
        f"| a paste of {SMALL_LINES:,} lines | over HTTP | in process | ratio | wanted |",
        "|---|---|---|---|---|",
    ]
    names = {"json": "as JSON", "page": "as the page shows it"}
    out += [
        f"| {names[form]} | {paste.served_s * 1000:.0f} ms | {paste.in_process_s * 1000:.0f} ms "
        f"| **{paste.ratio:.2f}** | ≤ 3 |"
        for form, paste in result.pastes.items()
    ]
    first = result.first
    if first is not None:
        out += [
            "",
            f"| a browser's first visit, at {BITS_PER_S / 1e6:g} Mbit/s and {LATENCY_MS} ms | measured | wanted |",
            "|---|---|---|",
            f"| usable after | {first.usable_s:.2f} s | ≤ 1 s |",
            f"| transferred by then | {first.usable_bytes / 1e3:.0f} kB | |",
            f"| with the first answer, before its charts | {first.answered_bytes / 1e3:.0f} kB | ≤ 150 kB |",
            f"| the engine of the charts | {first.engine_bytes / 1e3:.0f} kB | |",
        ]
    return "\n".join(out)


if __name__ == "__main__":
    print(table(measure()))
