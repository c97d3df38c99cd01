"""The site in a real browser: how long the first answer takes, what is transferred, whether anything freezes.

    python -m benchmarks.site [--runs 3] [--site FOLDER]

Builds the site (or uses a folder made by `make site`), serves it compressed as static hosts do, and drives Debian's
Chromium at the widths of a desktop and a phone. Processor time is that of the browser's processes: on a machine with
other load it says more than the clock. `chrt --rr 1` (as root) keeps other programs from affecting the clock.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from mimetypes import guess_type
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import psutil
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from tools.site import build

WIDTHS = {"desktop": (1366, 800), "phone": (390, 844)}
PATIENCE_MS = 300_000
BUILT = formatdate(usegmt=True)
# Lines of nanoGPT up to this many bytes, dropped on the page, while a timer notes the longest time without a turn.
DROP = """
(bytes) => {
  let number = 0;
  const line = () => `iter ${number++}: loss 4.2000, time ${100 + (number % 7)}.00ms, mfu 9.00%\\n`;
  const piece = () => new Blob([Array.from({ length: 20_000 }, line).join("")]);
  const parts = [piece()];
  const count = Math.ceil(bytes / parts[0].size);
  while (parts.length < count) parts.push(bytes > 1e8 ? parts[0] : piece());
  window.longest = 0;
  let last = performance.now();
  setInterval(() => { const now = performance.now(); longest = Math.max(longest, now - last); last = now; }, 20);
  take(zonesOf(byId("explain-form"))[0].place, new File(parts, "large.log"));
}
"""


class Host(ThreadingHTTPServer):
    """A static host below a subfolder: each file is compressed once, sent again only if it changed, and counted."""

    def __init__(self, site: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        files = [path for path in site.rglob("*") if path.is_file()]
        self.kept = {path.relative_to(site).as_posix(): gzip.compress(path.read_bytes(), 6) for path in files}
        self.sent = 0
        self.address = f"http://127.0.0.1:{self.server_port}/below/site/"


class Handler(BaseHTTPRequestHandler):
    server: Host
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        name = unquote(urlsplit(self.path).path).removeprefix("/below/site/") or "index.html"
        body = self.server.kept.get(name)
        known = self.headers.get("If-Modified-Since") == BUILT
        self.send_response(404 if body is None else 304 if known else 200)
        if known:
            body = b""
        if body is not None:
            self.send_header("Last-Modified", BUILT)
            self.send_header("Content-Type", guess_type(name)[0] or "application/octet-stream")
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")
        self.server.sent += len(body or b"")

    def log_message(self, *_: object) -> None:
        pass


class Taken(NamedTuple):
    wall_s: float
    processor_s: float


class Watch:
    """Wall and processor time of what the browser does."""

    def __init__(self, browser: psutil.Process) -> None:
        self._browser = browser
        self._wall, self._processor = time.perf_counter(), self._spent()

    def _spent(self) -> dict[int, float]:
        spent = {}
        for process in (self._browser, *self._browser.children(recursive=True)):
            try:
                spent[process.pid] = sum(process.cpu_times()[:2])
            except psutil.NoSuchProcess:
                continue
        return spent

    def taken(self) -> Taken:
        now = self._spent()
        processor = sum(seconds - self._processor.get(pid, 0.0) for pid, seconds in now.items())
        return Taken(time.perf_counter() - self._wall, processor)


@contextmanager
def visiting(browser: Browser, width: str, requests: list[str]) -> Iterator[tuple[BrowserContext, Page]]:
    """A visitor on a first visit: nothing is cached."""
    wide, high = WIDTHS[width]
    with browser.new_context(
        locale="en-GB", viewport={"width": wide, "height": high}, is_mobile=width == "phone", has_touch=width == "phone"
    ) as context:
        context.set_default_timeout(PATIENCE_MS)
        context.on("request", lambda request: requests.append(request.url))
        yield context, context.new_page()


def answered(page: Page, figure: str) -> None:
    page.wait_for_function("(figure) => document.getElementById('report')?.innerText.includes(figure)", arg=figure)


def violations(page: Page) -> list[str]:
    spec = find_spec("axe_playwright_python")
    assert spec is not None
    assert spec.origin is not None
    page.evaluate(Path(spec.origin).with_name("axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")["violations"]
    return [f"{each['id']}: {node['html'][:120]}" for each in found for node in each["nodes"]]


def measure_width(browser: Browser, process: psutil.Process, host: Host, width: str) -> dict[str, Any]:
    requests: list[str] = []
    with visiting(browser, width, requests) as (_, page):
        host.sent = 0
        watch = Watch(process)
        page.goto(f"{host.address}#explain?example=short.log&gpu=4070")
        answered(page, "168.7 ms")
        cold = watch.taken()
        watch = Watch(process)
        page.goto(f"{host.address}#explain?example=nanogpt-4070.log&gpu=4070")
        page.wait_for_function("() => document.getElementById('report').innerText.includes('nanogpt-4070.log')")
        loaded = watch.taken()
        faults = violations(page)
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        sent = host.sent
    foreign = [url for url in requests if not url.startswith((host.address, "blob:", "data:", "about:"))]
    return {"cold": cold, "loaded": loaded, "sent": sent, "axe": faults, "overflow": overflow, "foreign": foreign}


def measure_large(browser: Browser, host: Host) -> dict[str, Any]:
    with visiting(browser, "desktop", []) as (_, page):
        page.goto(f"{host.address}#explain?example=short.log&gpu=4070")
        answered(page, "168.7 ms")
        page.evaluate(DROP, 300e6)
        page.wait_for_function("() => document.querySelector('#explain .error').innerText")
        refusal = page.inner_text("#explain .error")
        begun = time.perf_counter()
        page.evaluate(DROP, 20e6)
        page.wait_for_function("() => document.getElementById('report').innerText.includes('large.log')")
        return {"large_s": time.perf_counter() - begun, "frozen_ms": page.evaluate("longest"), "refusal": refusal}


def rows(site: Path, found: dict[str, list[dict[str, Any]]], large: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    def middle(width: str, key: str) -> str:
        walls, processors = zip(*(each[key] for each in found[width]), strict=True)
        most = f"{statistics.median(walls):.1f} s ({min(walls):.1f} to {max(walls):.1f})"
        return f"{most}, processor time {statistics.median(processors):.1f} s"

    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    yield "the whole site", "< 40 MB", f"{size / 1e6:.1f} MB"
    every = [each for runs in found.values() for each in runs]
    yield "transferred, with what is kept for offline", "< 16 MB", f"{max(each['sent'] for each in every) / 1e6:.1f} MB"
    yield "requests to another origin", "0", str(sum(len(each["foreign"]) for each in every))
    for width, (wide, _) in WIDTHS.items():
        yield f"first answer, nothing kept, {width} ({wide} px)", "≤ 10 s", middle(width, "cold")
        yield f"next answer, {width}", "≤ 2 s", middle(width, "loaded")
        faults = sum(len(each["axe"]) for each in found[width])
        yield f"axe-core, {width}", "0 violations", str(faults)
        overflow = max(each["overflow"] for each in found[width])
        yield f"wider than the screen, {width}", "0 px", f"{max(overflow, 0)} px"
    yield "answer to 20 MB", "", f"{large['large_s']:.1f} s"
    yield "longest time without a turn meanwhile", "not frozen", f"{large['frozen_ms']:.0f} ms"
    yield "300 MB", "refused in words", f"“{large['refusal']}”"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--site", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        site = options.site or Path(temporary) / "site"
        if options.site is None:
            build(site)
        host = Host(site)
        threading.Thread(target=host.serve_forever, daemon=True).start()
        found: dict[str, list[dict[str, Any]]] = {width: [] for width in WIDTHS}
        with sync_playwright() as playwright:
            path = shutil.which("chromium")
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            ours = psutil.Process().children(recursive=True)
            process = next(each for each in ours if "chrom" in each.name() and "--type=" not in str(each.cmdline()))
            for _ in range(options.runs):
                for width in WIDTHS:
                    found[width].append(measure_width(browser, process, host, width))
            large = measure_large(browser, host)
            browser.close()
        host.shutdown()
        print(f"{options.runs} visits each; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n")
        print("| | wanted | measured |\n|---|---|---|")
        for row in rows(site, found, large):
            print("| " + " | ".join(row) + " |")
        for fault in (fault for runs in found.values() for each in runs for fault in (*each["axe"], *each["foreign"])):
            print(fault)


if __name__ == "__main__":
    main()
