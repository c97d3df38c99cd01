"""The page in a real browser: headless Chromium against a real server."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from base64 import b64encode
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tests.integration.serving import PATIENCE_S, Serving, iteration_lines, serving
from tools import ROOT

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="NO BROWSER: the page is not tested; on Debian: apt-get install chromium"
)
expect.set_options(timeout=PATIENCE_S * 1000)
LOG = (ROOT / "examples" / "nanogpt-4070.log").read_text(encoding="utf-8")
CONFIG = (ROOT / "examples" / "train_gpt2_small.py").read_text(encoding="utf-8")
ASK_TWICE = """
(texts) => {
  const form = document.querySelector("#explain form");
  for (const text of texts) {
    form.elements.log.value = text;
    form.requestSubmit();
  }
}
"""
DROP = """
([text, name]) => {
  const data = new DataTransfer();
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  data.items.add(new File([bytes], name));
  for (const kind of ["dragenter", "dragover", "drop"]) {
    const event = new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true });
    document.querySelector("main").dispatchEvent(event);
  }
}
"""
PLACE_OF_MARK = """
([number, seconds]) => {
  const place = document.querySelector("[data-chart=times]");
  const view = stepwatchCharts.viewOf(place);
  const [left, top] = [view.origin()[0] + view.padding().left, view.origin()[1] + view.padding().top];
  const box = place.querySelector("canvas").getBoundingClientRect();
  return [box.x + left + view.scale("x")(number), box.y + top + view.scale("y")(seconds)];
}
"""
PASTE = """
(text) => {
  const area = document.querySelector("#explain-text");
  area.focus();
  const data = new DataTransfer();
  data.setData("text/plain", text);
  if (area.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }))) {
    document.execCommand("insertText", false, text);
  }
}
"""


@pytest.fixture
def address(server: Serving) -> str:
    return server.address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    with browser.new_context(locale="en-GB", viewport={"width": 1000, "height": 800}) as context:
        context.set_default_timeout(PATIENCE_S * 1000)
        yield context


def opened(context: BrowserContext, address: str) -> tuple[Page, list[str]]:
    """Watched: nothing on it may fail or break the Content-Security-Policy."""
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if "Content Security Policy" in said.text else None)
    page.goto(address)
    return page, faults


@pytest.fixture
def page(context: BrowserContext, address: str) -> Iterator[Page]:
    page, faults = opened(context, address)
    yield page
    assert faults == []


@pytest.fixture(scope="module")
def answer_and_faults(browser: Browser, server: Serving) -> Iterator[tuple[Page, list[str]]]:
    with browser.new_context(locale="en-GB", viewport={"width": 1000, "height": 800}) as context:
        context.set_default_timeout(PATIENCE_S * 1000)
        page, faults = opened(context, server.address)
        explain(page)
        yield page, faults


@pytest.fixture
def answered(answer_and_faults: tuple[Page, list[str]]) -> Iterator[Page]:
    """A page with an answer, for tests that change nothing on it."""
    page, faults = answer_and_faults
    yield page
    assert faults == []


def explain(page: Page, text: str = LOG) -> None:
    page.fill("#explain-text", text)
    page.click("#explain .main")
    drawn(page)


def drawn(page: Page) -> None:
    page.wait_for_selector("figure.drawn canvas")
    expect(page.locator("body")).not_to_have_attribute("aria-busy", "true")


def headline(page: Page) -> str:
    return page.locator("#report p.answer").first.inner_text().replace("\xa0", " ")


# --- a log ------------------------------------------------------------------------------------------------------


def test_a_pasted_log_is_explained_at_once(page: Page) -> None:
    page.evaluate(PASTE, LOG)
    drawn(page)
    assert "168.5 ms" in headline(page)
    expect(page.locator("#status")).to_have_text("Answered.")


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_dropped_file_is_explained_at_once(page: Page, packed: bool) -> None:
    content = gzip.compress(LOG.encode()) if packed else LOG.encode()
    page.evaluate(DROP, [b64encode(content).decode(), "train.log.gz" if packed else "train.log"])
    drawn(page)
    assert "168.5 ms" in headline(page)
    expect(page.locator("#report .source")).to_contain_text("train.log")
    page.click(".take-away")
    expect(page.locator("#explain-text")).to_be_enabled()


def test_a_chosen_file_is_explained(page: Page, served_directory: Path) -> None:
    (served_directory / "chosen.log").write_text(LOG, encoding="utf-8")
    with page.expect_file_chooser() as chooser:
        page.click("#explain .choose")
    chooser.value.set_files(served_directory / "chosen.log")
    drawn(page)
    expect(page.locator("#report .source")).to_contain_text("chosen.log")


def test_card_and_settings_count(page: Page) -> None:
    page.fill("#explain-gpu", "4070")
    page.fill("#explain .key", "max_iters")
    page.fill("#explain .value", "9000")
    page.click("#explain .add")
    page.keyboard.type("tokens_per_iter")
    page.locator("#explain .value").nth(1).fill("24576")
    explain(page)
    text = page.inner_text("#report")
    assert "GeForce RTX 4070" in text
    assert "tokens/s" in text
    assert "9,000" in text


def test_another_card_asks_again(page: Page) -> None:
    explain(page)
    page.fill("#explain-gpu", "3090")
    page.locator("#explain-gpu").blur()
    expect(page.locator("#report")).to_contain_text("RTX 3090")


def test_the_cards_can_be_searched(page: Page) -> None:
    assert page.locator("#cards option[value='GeForce RTX 4070']").count() == 1


@pytest.mark.parametrize(("form", "sign"), [("html", "<!doctype html>"), ("md", "# "), ("json", '{"schema"')])
def test_the_report_can_be_saved(answered: Page, form: str, sign: str, tmp_path: Path) -> None:
    with answered.expect_download() as download:
        answered.click(f"[data-format={form}]")
    assert download.value.suggested_filename == f"explain.{form}"
    download.value.save_as(tmp_path / "saved")
    assert (tmp_path / "saved").read_text(encoding="utf-8").lower().startswith(sign)


def test_only_the_latest_question_is_shown(page: Page) -> None:
    explain(page)
    page.evaluate(ASK_TWICE, [iteration_lines(50_000), iteration_lines(100, 321.0)])
    expect(page.locator("#report p.answer").first).to_contain_text("321.0 ms")


# --- charts -----------------------------------------------------------------------------------------------------


def test_hovering_tells_what_a_mark_is(answered: Page) -> None:
    answered.locator("[data-chart=times]").scroll_into_view_if_needed()
    (time_ms,) = re.findall(r"iter 2500: loss [\d.]+, time ([\d.]+)ms", LOG)
    x, y = answered.evaluate(PLACE_OF_MARK, [2500, float(time_ms) / 1000])
    answered.mouse.move(x - 3, y)
    answered.mouse.move(x, y)
    expect(answered.locator("#vg-tooltip-element.visible")).to_contain_text("2,500")


def test_a_chart_zooms_by_keyboard(answered: Page) -> None:
    domain = "stepwatchCharts.viewOf(document.querySelector('[data-chart=times]')).scale('x').domain()"
    whole = answered.evaluate(domain)
    answered.locator("[data-chart=times] ~ .tools [data-zoom=in]").focus()
    answered.keyboard.press("Enter")
    answered.wait_for_function(f"{domain}[1] - {domain}[0] < {0.6 * (whole[1] - whole[0])}")
    answered.locator("[data-chart=times] ~ .tools [data-zoom=all]").press("Enter")
    answered.wait_for_function(f"{domain}[1] === {whole[1]}")


def test_there_is_a_table_behind_each_chart(answered: Page) -> None:
    for figure in answered.locator("figure.chart").all():
        figure.locator("summary").press("Enter")
        expect(figure.locator("table")).to_be_visible()
        figure.locator("summary").press("Enter")


# --- language, light and size -----------------------------------------------------------------------------------


def test_the_language_is_switched_without_losing_anything(page: Page, address: str) -> None:
    explain(page)
    page.select_option("#language", "fr")
    expect(page.locator("#report article")).to_have_attribute("lang", "fr")
    assert page.input_value("#explain-text").splitlines() == LOG.splitlines()
    assert page.evaluate("document.documentElement.lang") == "fr"
    assert page.url == f"{address}/?lang=fr"
    page.reload()
    assert page.input_value("#language") == "fr"


def test_the_page_follows_the_dark(answered: Page) -> None:
    light = answered.evaluate("getComputedStyle(document.body).backgroundColor")
    answered.emulate_media(color_scheme="dark")
    dark = answered.evaluate("getComputedStyle(document.body).backgroundColor")
    answered.emulate_media(color_scheme="light")
    assert sum(map(int, re.findall(r"\d+", dark))) < 150 < sum(map(int, re.findall(r"\d+", light)))


@pytest.mark.parametrize("view", ["explain", "estimate", "watch"])
@pytest.mark.parametrize("language", ["en", "de"])
def test_nothing_is_wider_than_a_phone(page: Page, address: str, view: str, language: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{address}/?lang={language}#{view}")
    if view == "explain":
        explain(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_everything_is_reached_by_keyboard(page: Page) -> None:
    page.locator("#explain-text").focus()
    page.keyboard.insert_text(LOG)
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.main')"):
            break
    page.keyboard.press("Enter")
    drawn(page)
    assert page.evaluate("document.activeElement.id") == "answer"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.format") == "html"


# --- estimate ---------------------------------------------------------------------------------------------------


def test_a_config_is_estimated_and_a_claim_judged(page: Page) -> None:
    page.click("text=Estimate a run")
    page.evaluate(DROP, [b64encode(CONFIG.encode()).decode(), "train.py"])
    expect(page.locator("#estimate .file-name")).to_have_text("train.py")  # and it waits for the card
    expect(page.locator("#problem")).to_be_empty()
    page.fill("#estimate-gpu", "4070")
    page.fill("#estimate-claim", "1ms")
    page.click("#estimate .main")
    drawn(page)
    assert headline(page).startswith("Impossible")
    with page.expect_download() as download:
        page.click("[data-format=json]")
    assert json.loads(Path(download.value.path()).read_text(encoding="utf-8"))["claim"]["verdict"] == "impossible"


# --- a growing log ----------------------------------------------------------------------------------------------


def test_a_growing_log_is_watched(page: Page, served_directory: Path) -> None:
    log = served_directory / "growing.log"
    page.click("text=Watch a log")
    page.fill("#watch-path", "growing.log")
    page.click("#watch .main")
    expect(page.locator("#problem")).to_contain_text("there is no file “growing.log”", ignore_case=True)
    log.write_text(iteration_lines(60), encoding="utf-8")
    expect(page.locator("#report p.answer").first).to_contain_text("100 ms")
    expect(page.locator("#problem")).to_be_empty()
    page.locator("#report summary").first.press("Enter")
    log.write_text(iteration_lines(60, 250.0), encoding="utf-8")
    expect(page.locator("#report p.answer").first).to_contain_text("250.0 ms")
    expect(page.locator("#report details").first).to_have_attribute("open", "")  # kept as it was
    page.click("#watch .stop")
    expect(page.locator("#status")).to_have_text("Stopped.")


# --- mistakes ---------------------------------------------------------------------------------------------------


def test_mistakes_are_told_on_the_page(page: Page) -> None:
    for text, gpu, said in (
        ("", "", "Paste a log or choose a file first."),
        ("no such thing", "", "no iteration found in the log"),
        (LOG, "nonsense", "there is no card “nonsense” in the catalogue"),
    ):
        page.fill("#explain-text", text)
        page.fill("#explain-gpu", gpu)
        page.click("#explain .main")
        expect(page.locator("#problem p").first).to_have_text(said, ignore_case=True)
    page.fill("#explain-gpu", "")
    explain(page)
    expect(page.locator("#problem")).to_be_empty()


def test_a_path_outside_is_refused_on_the_page(page: Page) -> None:
    page.click("text=Watch a log")
    page.fill("#watch-path", "/etc/passwd")
    page.click("#watch .main")
    expect(page.locator("#problem")).to_contain_text("is not in a directory that may be read")


def test_hostile_text_stays_text(page: Page) -> None:
    page.fill("#explain-gpu", "<img src=x onerror=document.title='taken'>")
    page.fill("#explain-text", LOG)
    page.click("#explain .main")
    expect(page.locator("#problem")).to_contain_text("<img src=x")
    assert page.title() == "stepwatch"


def test_a_server_that_is_gone_is_told(page: Page, context: BrowserContext) -> None:
    page.fill("#explain-text", LOG)
    context.set_offline(True)
    page.click("#explain .main")
    expect(page.locator("#problem")).to_contain_text("The server does not answer")


def test_the_token_is_given_once_and_leaves_the_address(context: BrowserContext) -> None:
    with serving("--token", "a-token-of-some-length") as server:
        page = context.new_page()
        page.goto(server.address)
        page.wait_for_function("!location.search.includes('token')")
        explain(page)  # by the cookie
        page.reload()
        explain(page)
        assert page.evaluate("document.cookie") == ""  # which no script sees


# --- accessibility ----------------------------------------------------------------------------------------------


COLOURS = ["color-contrast", "link-in-text-block"]  # axe's rules whose answer depends on the scheme


def violations(page: Page, rules: list[str] | None) -> list[str]:
    """What axe-core finds that is serious or worse; its script comes with the package axe-playwright-python."""
    spec = find_spec("axe_playwright_python")
    assert spec is not None
    assert spec.origin is not None
    page.evaluate(Path(spec.origin).with_name("axe.min.js").read_text(encoding="utf-8"))
    options = {"resultTypes": ["violations"]} | ({"runOnly": rules} if rules else {})
    found = page.evaluate("(options) => axe.run(document, options)", options)["violations"]
    return [
        f"{each['impact']}: {each['id']}: {node['html'][:200]}"
        for each in found if each["impact"] in ("serious", "critical") for node in each["nodes"]
    ]  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_shuts_anybody_out(page: Page, served_directory: Path, scheme: str) -> None:
    (served_directory / "axe.log").write_text(LOG, encoding="utf-8")
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    rules = COLOURS if scheme == "dark" else None
    assert violations(page, rules) == []
    explain(page)
    assert violations(page, rules) == []
    page.fill("#explain-gpu", "nonsense")
    page.click("#explain .main")
    expect(page.locator("#problem")).not_to_be_empty()
    assert violations(page, rules) == []
    page.click("text=Estimate a run")
    page.fill("#estimate-gpu", "4070")
    page.click("#estimate .main")
    drawn(page)
    assert violations(page, rules) == []
    page.click("text=Watch a log")
    page.fill("#watch-path", "axe.log")
    page.click("#watch .main")
    drawn(page)
    assert violations(page, rules) == []
