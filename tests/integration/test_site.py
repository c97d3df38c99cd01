"""The site: Python in the browser gives the answers of the command line, offline too, and asks nobody else."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import math
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.event_files import scalar, start
from tests.integration.browsing import needs_browser, open_view, violations
from tools import ROOT
from tools.site import build, runtime
from tools.site.links import faults
from tools.site.standing import EXAMPLES

from stepwatch.i18n import LANGUAGES, say
from stepwatch.web.in_browser import answer
from stepwatch.web.limits import Limits
from stepwatch.web.page_text import WORDS

PATIENCE_S = 240  # Python starts in a browser, on a machine that has much else to do
LIMIT = Limits().body_bytes
DROP = """
(bytes) => {
  let number = 0;
  const line = () => `iter ${number++}: loss 4.2000, time ${100 + (number % 7)}.00ms, mfu 9.00%\\n`;
  const piece = () => new Blob([Array.from({ length: 20_000 }, line).join("")]);
  const parts = [piece()];
  const count = Math.ceil(bytes / parts[0].size);
  while (parts.length < count) parts.push(bytes > 1e8 ? parts[0] : piece());
  window.ticks = 0;
  setInterval(() => window.ticks++, 50);
  take(zonesOf(byId("explain-form"))[0].place, new File(parts, "large.log"));
}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a folder of its own below the root of the server, as on many hosts."""
    place = tmp_path_factory.mktemp("hosts") / "below" / "site"
    try:
        build(place)
    except runtime.Unavailable as problem:
        pytest.skip(f"NO SITE: {problem}")
    return place


def test_no_link_is_dead_and_nothing_is_large(site: Path) -> None:
    assert faults(site) == []
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 40e6
    loaded = [site / "index.html", *(site / "page").glob("*.*"), *(site / "python").iterdir()]
    assert sum(len(gzip.compress(path.read_bytes(), 1)) for path in loaded) < 16e6


def test_a_wrong_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html">1</a><a href="/a.html">2</a><a href="#x">3</a><img src="https://example.org/x.png">'
        '<a href="https://example.org/">fine</a><a id="y" href="a.html#y">fine</a>',
        encoding="utf-8",
    )
    assert [fault.split(": ")[1] for fault in faults(tmp_path)] == [
        "dead link", "not relative", "no such place", "loads from elsewhere",
    ]  # fmt: skip


def test_a_folder_may_be_named_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/index.html").write_text('<p id="here"><a href="#here">here</a> <a href="index.html">again</a>')
    assert faults(Path("site")) == []


def test_a_package_that_is_not_the_pinned_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "CACHE", tmp_path)
    (tmp_path / runtime.NUMPY.file).write_bytes(b"something else")
    with pytest.raises(runtime.Unavailable, match="not what was pinned"):
        runtime.fetched(runtime.NUMPY)
    assert not (tmp_path / runtime.NUMPY.file).exists()


def test_answers_stand_by_themselves_in_every_language(site: Path) -> None:
    for language in LANGUAGES:
        ending = ".html" if language == "en" else f".{language}.html"
        for name, word in (
            ("why-is-this-iteration-slow", "why_slow"),
            ("how-long-4080", "how_long"),
            ("which-settings-4090", "which_settings"),
        ):
            text = (site / "answers" / f"{name}{ending}").read_text(encoding="utf-8")
            assert f'<html lang="{language}">' in text
            assert say(WORDS[word], language) in text
        gallery = (site / "examples" / f"index{ending}").read_text(encoding="utf-8")
        assert all(f"example={name}" in gallery for name in EXAMPLES)


# --- the same answers -------------------------------------------------------------------------------------------


def questions(place: Path) -> Iterator[tuple[str, list[list[str]], Path]]:
    """What is asked of both: every example, and inputs of other kinds."""
    for path in sorted((ROOT / "examples").glob("*.log")):
        yield "explain", [["gpu", "4070"]], path
    packed = place / "short.log.gz"
    packed.write_bytes(gzip.compress((ROOT / "examples" / "short.log").read_bytes()))
    yield "explain", [["lang", "de"], ["name", packed.name]], packed
    events = place / "events.out.tfevents.1.host"
    begin_s = 1_750_000_000.0
    rows = (scalar(begin_s + 2.0 * step, 10 * step, "train/loss", 4.0 - step / 100) for step in range(1, 60))
    events.write_bytes(b"".join((start(begin_s), *rows)))
    yield "explain", [["name", events.name]], events
    notebook = place / "run.ipynb"
    output = (ROOT / "examples" / "short.log").read_text(encoding="utf-8").splitlines(keepends=True)
    cell = {"cell_type": "code", "outputs": [{"output_type": "stream", "name": "stdout", "text": output}]}
    notebook.write_text(json.dumps({"cells": [cell | {"source": [], "metadata": {}}], "metadata": {}, "nbformat": 4}))
    yield "explain", [["name", notebook.name]], notebook
    large = place / "large.log"  # numpy treats large columns in another way
    lines = (f"iter {number}: loss 4.2000, time {100 + number % 7}.00ms, mfu 9.00%\n" for number in range(60_000))
    large.write_text("".join(lines))
    yield "explain", [["iterations", "false"]], large
    wrong = place / "wrong.log"
    wrong.write_text("nothing to see\n")
    yield "explain", [["lang", "fr"]], wrong
    empty = place / "empty"
    empty.write_text("")
    yield "estimate", [["gpu", "4090"], ["model", "gpt2"]], empty
    yield "advise", [["gpu", "4070"]], ROOT / "examples" / "nanogpt-4070.log"
    yield "advise", [["gpu", "4080"]], empty
    both = place / "both.log"
    sides = [(ROOT / "examples" / name).read_bytes() for name in ("short.log", "nanogpt-4070.log")]
    both.write_bytes(b"".join(sides))
    yield "compare", [["before_bytes", str(len(sides[0]))]], both


def differences(one: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    """Where two answers differ by more than the last digits of a figure."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key in one:
            yield from differences(one[key], other[key])
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for left, right in zip(one, other, strict=True):
            yield from differences(left, right)
    elif isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=1e-9):
        return
    elif one != other:
        yield one, other


def test_the_worker_answers_as_the_command_line_does(site: Path, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("NO NODE: Python for browsers is not tested; on Debian: apt-get install nodejs")
    asked = list(questions(tmp_path))
    lines = [
        json.dumps({"id": place, "kind": kind, "query": json.dumps(query), "path": str(path), "limit": LIMIT})
        for place, (kind, query, path) in enumerate(asked)
    ]
    script = ROOT / "tests" / "integration" / "worker_in_node.cjs"
    # As in browsing.py: optimising Python takes longer than it saves.
    command = [node, "--liftoff-only", str(script), str(site / "page" / "worker.js"), f"{site / 'python'}/"]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr[-2000:]
    answers = done.stdout.splitlines()
    assert len(answers) == len(asked)
    for line in answers:
        found = json.loads(line)
        kind, query, path = asked[found["id"]]
        status, body = answer(kind, json.dumps(query), path.read_bytes(), LIMIT)
        assert found["status"] == status, path
        assert [*differences(json.loads(base64.b64decode(found["body"])), json.loads(body))] == [], path


# --- in a real browser ------------------------------------------------------------------------------------------


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server(site: Path) -> Iterator[ThreadingHTTPServer]:
    """As `python -m http.server`."""
    handler = functools.partial(Quiet, directory=str(site.parents[1]))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def saved(page: Page, form: str) -> str:
    with page.expect_download() as download:
        page.click(f"[data-format={form}]")
    return download.value.path().read_text(encoding="utf-8")


@needs_browser
def test_the_page_answers_by_itself_and_offline(site: Path, server: ThreadingHTTPServer, browser: Browser) -> None:
    """One test, since Python takes seconds to start in a browser."""
    address = f"http://127.0.0.1:{server.server_port}/below/site/"
    with browser.new_context(locale="en-GB", viewport={"width": 1366, "height": 800}) as context:
        context.set_default_timeout(60_000)
        asked: list[str] = []
        wrong: list[str] = []
        context.on("request", lambda request: asked.append(request.url))
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        report = page.locator("#report")
        patience = {"timeout": PATIENCE_S * 1000}

        page.goto(f"{address}docs/index.html")
        page.click("text=Examples")
        assert violations(page) == []
        page.click("main a[href*='example=short.log']")  # of the gallery
        expect(report).to_contain_text("168.7 ms", **patience)
        assert violations(page) == []
        log = (ROOT / "examples" / "short.log").read_bytes()
        query = json.dumps([["gpu", "4070"], ["name", "short.log"], ["lang", "en"], ["format", "json"]])
        _, body = answer("explain", query, log, LIMIT)
        assert [*differences(json.loads(saved(page, "json")), json.loads(body))] == []
        assert saved(page, "md").startswith("#")
        assert "168.7" in saved(page, "html")

        page.select_option("#language", "de")
        expect(report).to_contain_text("Eine normale Iteration dauert", **patience)
        page.select_option("#language", "en")
        open_view(page, "estimate")
        page.click("#estimate .example")
        expect(report).to_contain_text("GeForce RTX 4070", **patience)

        open_view(page, "explain")
        page.evaluate(DROP, 300e6)
        expect(page.locator("#explain .error")).to_have_text(say(WORDS["too_large"], "en"))
        page.evaluate(DROP, 5e6)
        expect(page.locator("#status")).to_have_text(say(WORDS["done"], "en"), **patience)
        assert page.evaluate("ticks") > 10  # it was not frozen meanwhile

        page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        server.shutdown()
        server.server_close()
        page.goto("about:blank")
        page.goto(f"{address}?lang=fr#explain?example=resumed.log&gpu=4070")
        expect(report).to_contain_text("itération", **patience)
        assert wrong == []
        assert {url for url in asked if not url.startswith((address, "blob:", "data:", "about:"))} == set()
