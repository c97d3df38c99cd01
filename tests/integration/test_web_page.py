"""The page in a real browser: headless Chromium against a real server."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect
from tests.integration.browsing import needs_browser, open_view, put, violations
from tests.integration.serving import PATIENCE_S, Serving, iteration_lines, serving
from tools import ROOT

VIEWS = ("explain", "estimate", "advise", "compare", "gpus", "watch")
pytestmark = needs_browser
expect.set_options(timeout=PATIENCE_S * 1000)
LOG = (ROOT / "examples" / "nanogpt-4070.log").read_text(encoding="utf-8")
CONFIG = (ROOT / "examples" / "train_gpt2_small.py").read_text(encoding="utf-8")
OUT_OF_MEMORY = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB.
"""
ASK_TWICE = """
async (texts) => {
  const form = document.querySelector("#explain form");
  const answers = texts.map((text) => {
    form.elements.log.value = text;
    return submit(form);
  });
  const meanwhile = document.querySelector("#answer").className;
  await Promise.all(answers);
  return meanwhile;
}
"""
DROP = """
(files) => {
  const data = new DataTransfer();
  for (let at = 0; at < files.length; at += 2) {
    const bytes = Uint8Array.from(atob(files[at]), (letter) => letter.charCodeAt(0));
    data.items.add(new File([bytes], files[at + 1]));
  }
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
  const box = place.querySelector("svg").getBoundingClientRect();
  return [box.x + left + view.scale("x")(number), box.y + top + view.scale("y")(seconds)];
}
"""
PASTE = """
([text, place]) => {
  const target = document.querySelector(place);
  target.focus();
  const data = new DataTransfer();
  data.setData("text/plain", text);
  if (target.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }))) {
    document.execCommand("insertText", false, text);
  }
}
"""
IN_VIEW = """
(place) => {
  const box = document.querySelector(place).getBoundingClientRect();
  return box.height > 0 && box.top >= 0 && box.bottom <= innerHeight;
}
"""

# Of many rows, names of cards and marks, which are alike.
LEAVE_FIVE = """
document.querySelectorAll("tbody tr:nth-child(n+6), datalist option:nth-child(n+6), .mark-symbol > :nth-child(n+6)")
  .forEach((each) => each.remove())
"""


@pytest.fixture
def address(server: Serving) -> str:
    return server.address


@pytest.fixture(scope="module")
def other_server(served_directory: Path) -> Iterator[Serving]:
    """For the test of the token, and then for one that kills it."""
    with serving("--allow", str(served_directory), "--token", "a-token-of-some-length") as server:
        yield server


def opened(context: BrowserContext, address: str) -> tuple[Page, list[str]]:
    """Watched: nothing on it may fail or break the Content-Security-Policy."""
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if "Content Security Policy" in said.text else None)
    page.goto(address)
    return page, faults


@pytest.fixture(scope="module")
def tab_and_faults(browser: Browser, server: Serving) -> Iterator[tuple[Page, list[str]]]:
    """A tab of its own costs more than the page in it, which keeps nothing but its address."""
    with browser.new_context(locale="en-GB") as context:
        context.set_default_timeout(PATIENCE_S * 1000)
        yield opened(context, server.address)


@pytest.fixture
def page(tab_and_faults: tuple[Page, list[str]], address: str) -> Iterator[Page]:
    page, faults = tab_and_faults
    page.set_viewport_size({"width": 1000, "height": 800})
    page.emulate_media(color_scheme="light")
    faults.clear()
    page.goto(address)  # loaded anew, whatever view was open: this address names none
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
    change(page)
    if page.locator("#explain .take-away").is_visible():
        page.click("#explain .take-away")
    put(page, "#explain-text", text)
    page.click("#explain .main")
    drawn(page)


def change(page: Page) -> None:
    """Opens the form again, where it was folded."""
    if page.locator(".view:not([hidden]) .change").is_visible():
        page.click(".view:not([hidden]) .change")


def answered_at_all(page: Page) -> None:
    """By one selector: each time `expect` looks in vain, it describes the whole page for its message."""
    page.wait_for_selector("body:not([aria-busy=true]) #answer:not(.stale) #report article")


def drawn(page: Page) -> None:
    answered_at_all(page)
    page.wait_for_selector("figure.drawn svg")


def headline(page: Page) -> str:
    return page.locator("#report p.answer").first.inner_text().replace("\xa0", " ")


# --- a log ------------------------------------------------------------------------------------------------------


def test_a_pasted_log_is_explained_at_once(page: Page) -> None:
    page.evaluate(PASTE, [LOG, "#explain-text"])
    drawn(page)
    assert "168.5 ms" in headline(page)
    expect(page.locator("#status")).to_have_text("Answered.")
    expect(page.locator("#explain .what")).to_have_text("pasted text, 80 lines")
    expect(page.locator("#explain-text")).not_to_be_visible()


def test_another_paste_replaces_the_one_before(page: Page) -> None:
    """On the page, or into the field once it is open again."""
    page.evaluate(PASTE, [LOG, "#explain-text"])
    drawn(page)
    for place, time_ms in (("body", 321.0), ("#explain-text", 123.0)):
        if place != "body":
            change(page)
        page.evaluate(PASTE, [iteration_lines(100, time_ms), place])
        expect(page.locator("#report p.answer").first).to_contain_text(f"{time_ms} ms")
        assert page.input_value("#explain-text") == iteration_lines(100, time_ms)


def test_an_example_line_reads_an_unknown_format(page: Page) -> None:
    text = "".join(f"lap {n} | loss 3.1 | took 34{n % 7} ms\n" for n in range(60))
    put(page, "#explain-text", text)
    page.click("#explain .main")
    expect(page.locator("#explain-form")).to_contain_text("enter one as the example: lap 30")
    expect(page.locator("#explain-like")).to_have_attribute("aria-invalid", "true")
    page.fill("#explain-like", "lap 12 | loss 3.1 | took 340 ms")
    page.click("#explain .main")
    drawn(page)
    assert "343.0 ms" in headline(page)
    expect(page.locator("#report")).to_contain_text("is read as iteration 0")
    expect(page.locator("#explain .what")).to_contain_text("lap 12 | loss 3.1")


def test_one_of_several_runs_is_asked_for_by_its_number(page: Page) -> None:
    put(page, "#explain-text", iteration_lines(100, 321.0) + iteration_lines(200, 123.0))
    page.fill("#explain-run", "2")
    page.click("#explain .main")
    answered_at_all(page)
    expect(page.locator("#report p.answer").first).to_contain_text("123.0 ms")
    expect(page.locator("#explain .what")).to_contain_text("Number of the run: 2")
    change(page)
    page.fill("#explain-run", "9")
    page.click("#explain .main")
    expect(page.locator("#explain-form")).to_contain_text("it takes a number from 1 to 2")
    expect(page.locator("#explain-run")).to_have_attribute("aria-invalid", "true")


def test_text_that_is_added_by_hand_stays(page: Page) -> None:
    page.fill("#explain-text", "a line before it\n")
    page.evaluate(PASTE, [LOG, "#explain-text"])
    assert page.input_value("#explain-text").startswith("a line before it\n")
    expect(page.locator("#answer")).to_be_hidden()


def test_an_answer_belongs_to_its_input(page: Page) -> None:
    explain(page)
    for change_it, undo in (
        (lambda: page.fill("#explain-gpu", "3090"), lambda: page.fill("#explain-gpu", "")),
        (lambda: page.fill("#explain .key", "compile"), lambda: page.fill("#explain .key", "")),
        (lambda: put(page, "#explain-text", LOG + "x"), lambda: put(page, "#explain-text", LOG)),
    ):
        change(page)
        change_it()
        expect(page.locator("#answer")).to_have_class("stale")
        expect(page.locator("#stale")).to_have_text("Out of date: the input has changed since this answer.")
        assert page.evaluate("document.querySelector('#report').inert")
        assert page.locator("[data-format=html]").is_disabled()
        assert page.title() == "stepwatch"
        undo()
        expect(page.locator("#answer")).not_to_have_class("stale")
        expect(page.locator("#stale")).to_be_empty()
        assert "A normal iteration takes" in page.title()


def test_a_dropped_file_replaces_the_answer_to_a_paste(page: Page) -> None:
    explain(page)
    page.evaluate(DROP, [b64encode(iteration_lines(100, 321.0).encode()).decode(), "other.log"])
    expect(page.locator("#report p.answer").first).to_contain_text("321.0 ms")
    expect(page.locator("#explain .what")).to_have_text("other.log, 100 lines")
    assert page.title().startswith("other.log: A normal iteration takes 321.0")


def test_an_example_is_one_click_away(page: Page) -> None:
    page.click("#explain .example")
    drawn(page)
    expect(page.locator("#explain .what")).to_have_text("example.log, 80 lines, GeForce RTX 4070")
    assert (ROOT / "src/stepwatch/web/page/example.log").read_text() == LOG  # of our own examples


def test_a_click_before_the_script_puts_nothing_into_the_address(page: Page, address: str) -> None:
    held: list[Route] = []
    page.route("**/page/page.js*", lambda route: held.append(route), times=1)
    page.goto(address, wait_until="commit")
    put(page, "#explain-text", LOG)
    for button in page.locator("#explain button").all():
        assert button.is_disabled() or not button.is_visible()
    page.press("#explain-gpu", "Enter")
    page.locator("#explain .main").click(force=True)
    assert page.url == f"{address}/"
    assert page.eval_on_selector_all("form", "forms => forms.every((form) => form.method === 'post')")
    held[0].continue_()
    page.locator("#explain .main").click()
    drawn(page)
    assert page.url == f"{address}/"


def test_a_dropped_file_is_explained_at_once_also_a_packed_one(page: Page) -> None:
    packed = gzip.compress(iteration_lines(100, 321.0).encode())
    page.evaluate(DROP, [b64encode(packed).decode(), "packed.log.gz"])
    drawn(page)
    assert "321.0 ms" in headline(page)
    expect(page.locator("#report .source")).to_contain_text("packed.log")
    page.evaluate(DROP, [b64encode(LOG.encode()).decode(), "train.log"])
    expect(page.locator("#report .source")).to_contain_text("train.log")
    drawn(page)
    assert "168.5 ms" in headline(page)
    change(page)
    page.click("#explain .take-away")
    expect(page.locator("#explain-text")).to_be_editable()
    expect(page.locator("#answer")).to_have_class("stale")


def test_several_dropped_files_are_explained_together(page: Page) -> None:
    resumed = (ROOT / "examples" / "resumed.log").read_bytes()
    files = [(LOG.encode(), "one.log"), (resumed, "two.log"), (b"nothing", "notes.txt")]
    page.evaluate(DROP, [part for data, name in files for part in (b64encode(data).decode(), name)])
    expect(page.locator("#report")).to_contain_text("one.log")
    expect(page.locator("#report")).to_contain_text("two.log")
    expect(page.locator("#status")).to_contain_text("notes.txt: no iteration found")
    expect(page.locator("#explain .folded .what")).to_contain_text("one.log, two.log, notes.txt")


def test_the_catalogue_is_there_without_asking(page: Page) -> None:
    page.click("nav.views a[href='#gpus']")
    expect(page.locator("#report tbody tr")).not_to_have_count(0)
    assert page.locator("#report tbody tr").count() > 100
    page.click("#gpus .change")
    page.fill("#gpus-gpu", "4090")
    page.click("#gpus .main")
    expect(page.locator("#report h1")).to_have_text("GeForce RTX 4090")
    expect(page.locator("#report")).to_contain_text("1,008")


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
    text = str(page.text_content("#report"))  # also what is folded
    assert "GeForce RTX 4070" in text
    assert "tokens/s" in text
    assert "9,000" in text


def test_ctrl_enter_asks_and_enter_asks_for_another_card(page: Page) -> None:
    put(page, "#explain-text", LOG)
    page.press("#explain-text", "Control+Enter")
    drawn(page)
    change(page)
    page.fill("#explain-gpu", "3090")
    page.press("#explain-gpu", "Enter")
    expect(page.locator("#report")).to_contain_text("RTX 3090")
    expect(page.locator("#explain .what")).to_have_text("pasted text, 80 lines, 3090")


def test_the_cards_can_be_searched(answered: Page) -> None:
    assert answered.locator("#cards option[value='GeForce RTX 4070']").count() == 1


@pytest.mark.parametrize(("form", "sign"), [("html", "<!doctype html>"), ("md", "# "), ("json", '{"schema"')])
def test_the_report_can_be_saved(answered: Page, form: str, sign: str, tmp_path: Path) -> None:
    with answered.expect_download() as download:
        answered.click(f"[data-format={form}]")
    assert download.value.suggested_filename == f"A normal iteration takes 168 5 ms.{form}"
    download.value.save_as(tmp_path / "saved")
    assert (tmp_path / "saved").read_text(encoding="utf-8").lower().startswith(sign)


def test_only_the_latest_question_is_shown(page: Page) -> None:
    explain(page)
    # The first takes longer to answer, and both are waited for.
    assert page.evaluate(ASK_TWICE, [iteration_lines(20_000), iteration_lines(100, 321.0)]) == "stale"
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
    answered.eval_on_selector_all("#report section > details", "parts => parts.forEach((part) => (part.open = true))")
    expect(answered.locator("figure.chart:not(.drawn)")).to_have_count(0)  # what was folded is drawn when it is opened
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


def answer_in(page: Page, view: str, directory: Path) -> None:
    """An answer in that view."""
    if view == "watch":
        (directory / "any.log").write_text(iteration_lines(61), encoding="utf-8")
        page.fill("#watch-path", "any.log")
        page.click("#watch .main")
        expect(page.locator("#monitor")).to_be_visible()
    elif view == "compare":
        put(page, "#compare-before", LOG)
        put(page, "#compare-after", iteration_lines(100, 321.0))
        page.click("#compare .main")
    elif view != "gpus":  # which is there by itself
        page.click(f"#{view} .example")
    answered_at_all(page)


def without_command_line(page: Page) -> bool:
    """What is to be pasted into a file stands in a `pre`."""
    show = "(display) => document.querySelectorAll('pre').forEach((lines) => { lines.style.display = display })"
    page.evaluate(show, "none")
    text = page.inner_text("body").replace("\xa0", " ")
    page.evaluate(show, "")
    return not re.search(r"(?<![\w-])--[a-z]|stepwatch (?:explain|estimate|advise|compare|watch|gpus|-)\b", text)


def test_every_view_fits_a_phone_and_speaks_the_language(page: Page, address: str, served_directory: Path) -> None:
    """In German, whose words are the longest; the words themselves are tested by tests/house."""
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{address}/?lang=de#advise")
    expect(page.locator("#advise-form")).to_be_visible()
    said = set()
    for view in VIEWS:
        open_view(page, view)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        answer_in(page, view, served_directory)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert without_command_line(page)
        said.add(page.locator(f"#{view}-title").text_content())
    assert len(said) == len(VIEWS)
    assert "Explain a log" not in said


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
    for _ in range(5):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.matches('.change')"):
            break
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "explain-text"
    for _ in range(5):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.hash") == "#compare":
            break
    page.keyboard.press("Enter")
    expect(page.locator("#compare-form")).to_be_visible()


# --- estimate ---------------------------------------------------------------------------------------------------


def test_a_config_is_estimated_and_a_claim_judged(page: Page) -> None:
    open_view(page, "estimate")
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


# --- advise and compare -------------------------------------------------------------------------------------------


def test_a_log_gets_advice_and_an_empty_form_a_config(page: Page) -> None:
    open_view(page, "advise")
    page.fill("#advise-gpu", "4070")
    page.click("#advise .main")
    answered_at_all(page)
    assert "GeForce RTX 4070" in headline(page)
    expect(page.locator("#report pre").first).to_contain_text("batch_size")
    change(page)
    put(page, "#advise-text", LOG)
    page.click("#advise .main")
    expect(page.locator("#report p.answer").first).to_contain_text("worth changing")


@pytest.mark.parametrize("way", ["pasted", "chosen"])
def test_two_logs_are_compared(page: Page, served_directory: Path, way: str) -> None:
    open_view(page, "compare")
    texts = {"before": iteration_lines(100, 100.0), "after": iteration_lines(100, 150.0)}
    for side, text in texts.items():
        if way == "pasted":
            put(page, f"#compare-{side}", text)
            continue
        (served_directory / f"{side}.log.gz").write_bytes(gzip.compress(text.encode()))
        with page.expect_file_chooser() as chooser:
            page.click(f".drop:has(#compare-{side}) .choose")
        chooser.value.set_files(served_directory / f"{side}.log.gz")
    if way == "pasted":
        page.click("#compare .main")
    answered_at_all(page)
    assert "50.0 % more time per step" in headline(page)
    named = ("“After” is slower", "“after.log.gz” is slower")[way == "chosen"]
    assert page.title().startswith(named)


def test_of_two_logs_the_missing_one_is_pointed_at(page: Page) -> None:
    open_view(page, "compare")
    put(page, "#compare-before", LOG)
    page.click("#compare .main")
    expect(page.locator("#compare-after-error")).to_have_text("Paste a log or choose a file first.")
    page.fill("#compare-after", "no such thing")
    page.click("#compare .main")
    expect(page.locator("#compare-after-error")).to_contain_text("no iteration found")
    put(page, "#compare-after", LOG)
    page.fill("#compare-after-gpu", "nonsense")
    page.click("#compare .main")
    expect(page.locator("#compare-after-gpu-error")).to_contain_text("there is no card")


# --- a growing log ----------------------------------------------------------------------------------------------


def watch(page: Page, name: str, iterations: int | None = None) -> None:
    open_view(page, "watch")
    page.fill("#watch-path", name)
    if iterations is not None:
        page.fill("#watch .key", "max_iters")
        page.fill("#watch .value", str(iterations))
    page.click("#watch .main")


def stall(log: Path) -> None:
    """At iteration 61; then it goes on."""
    with log.open("a", encoding="utf-8") as file:
        file.write("iter 61: loss 4.2000, time 9000.00ms, mfu 9.00%\n")
        file.write("".join(iteration_lines(75).splitlines(keepends=True)[62:]))


def test_a_growing_log_is_watched(page: Page, served_directory: Path) -> None:
    log = served_directory / "growing.log"
    watch(page, "growing.log", iterations=120)
    expect(page.locator("#monitor .where")).to_have_text("Waiting for “growing.log”, which does not exist yet.")
    log.write_text(iteration_lines(61), encoding="utf-8")
    expect(page.locator("#monitor .where")).to_have_text("Iteration 60 of 120, 50.0 %.")
    assert page.eval_on_selector("#monitor progress", "bar => bar.value") == 0.5
    expect(page.locator("#monitor .left")).to_contain_text(re.compile(r"left.*Ends at \d?\d:\d\d"))
    expect(page.locator("#monitor .badge")).to_have_text("Running")
    expect(page.locator("#monitor .figures")).to_contain_text("100.0 ms per iteration, which is normal.")
    expect(page.locator("#report p.answer").first).to_contain_text("100.0 ms")
    expect(page).to_have_title(re.compile("^50 % – growing.log: "))
    page.locator("#report summary").first.press("Enter")
    stall(log)
    expect(page.locator("#alarm")).to_contain_text("Iteration 61")
    expect(page).to_have_title(re.compile("^⚠ Running – growing.log: "))
    expect(page.locator("#monitor .events li")).to_have_class(["warned"])
    expect(page.locator("#report")).to_contain_text("9.00 s")
    expect(page.locator("#report details").first).to_have_attribute("open", "")  # kept as it was
    with log.open("a", encoding="utf-8") as file:
        file.write("".join(iteration_lines(121).splitlines(keepends=True)[75:]))
    expect(page.locator("#monitor .badge")).to_have_text("Finished")
    expect(page.locator("#monitor .events")).to_contain_text("The run reached its last iteration, 120.")
    page.click("#watch .change")
    expect(page.locator("#status")).to_have_text("Stopped.")
    expect(page.locator("#monitor")).to_be_hidden()
    assert page.title() == "stepwatch"


def test_a_crash_is_said_as_it_happens(page: Page, served_directory: Path) -> None:
    log = served_directory / "crashing.log"
    log.write_text(iteration_lines(60), encoding="utf-8")
    watch(page, "crashing.log", iterations=120)
    expect(page.locator("#monitor .badge")).to_have_text("Running")
    with log.open("a", encoding="utf-8") as file:
        file.write(OUT_OF_MEMORY)
    expect(page.locator("#monitor .badge")).to_have_text("Crashed")
    expect(page.locator("#monitor .verdict")).to_contain_text("ran out of GPU memory after iteration 59")
    expect(page.locator("#alarm")).to_contain_text("ran out of GPU memory")
    expect(page.locator("#monitor .left")).to_be_empty()  # there is no end to wait for
    expect(page).to_have_title(re.compile("^⚠ Crashed – crashing.log: "))


def test_what_is_watched_survives_a_reload(page: Page, served_directory: Path) -> None:
    (served_directory / "kept.log").write_text(iteration_lines(61), encoding="utf-8")
    watch(page, "kept.log", iterations=120)
    page.locator("#monitor").wait_for()
    page.reload()
    expect(page.locator("#monitor .where")).to_have_text("Iteration 60 of 120, 50.0 %.")
    expect(page.locator("#watch .what")).to_have_text("kept.log, max_iters=120")
    page.click("#watch .change")
    page.reload()
    expect(page.locator("#watch-form")).to_be_visible()
    expect(page.locator("#monitor")).to_be_hidden()


# --- mistakes ---------------------------------------------------------------------------------------------------


MISTAKES: tuple[tuple[str, dict[str, str], str, str], ...] = (
    ("", {}, "explain-text", "Paste a log or choose a file first."),
    ("no such thing", {}, "explain-text", "no iteration found in the log"),
    (LOG, {"#explain-gpu": "nonsense"}, "explain-gpu", "there is no card “nonsense” in the catalogue"),
    (LOG, {"#explain .key": "max_iter", "#explain .value": "3"}, "explain-form-settings", "no setting “max_iter”"),
    (LOG, {"#explain .key": "max_iters"}, "explain-form-settings", "is not a value for max_iters"),
)


def test_a_mistake_is_said_at_its_field_in_view(page: Page) -> None:
    page.set_viewport_size({"width": 1366, "height": 650})
    explain(page)
    change(page)
    for text, fields, at, said in MISTAKES:
        put(page, "#explain-text", text)
        for place, value in fields.items():
            page.fill(place, value)
        page.press("#explain-gpu", "Enter")
        expect(page.locator(f"#{at}-error p").first).to_contain_text(said, ignore_case=True)
        expect(page.locator(".error")).to_have_count(1)  # not those of the mistake before
        assert page.evaluate("document.activeElement.id") == at
        assert page.eval_on_selector_all("[aria-invalid]", "fields => fields.map(({ id }) => id)") == [at]
        assert page.get_attribute(f"#{at}", "aria-invalid") == "true"
        assert f"{at}-error" in str(page.get_attribute(f"#{at}", "aria-describedby")).split()
        assert page.evaluate(IN_VIEW, f"#{at}-error")
        expect(page.locator("#answer")).to_have_class("stale")
        page.fill("#explain-gpu", "")
        for place in fields:
            page.fill(place, "")
    explain(page)
    expect(page.locator(".error, [aria-invalid]")).to_have_count(0)


def test_a_wrong_path_is_pointed_at_and_a_wrong_card_ends_the_watching(page: Page, served_directory: Path) -> None:
    for path, said in (("/etc/passwd", "may be read"), ("", "path of a log first")):
        watch(page, path)
        expect(page.locator("#watch-path-error")).to_contain_text(said)
        assert page.evaluate("document.activeElement.id") == "watch-path"
        page.locator("#watch .main").focus()
    (served_directory / "card.log").write_text(iteration_lines(60), encoding="utf-8")
    open_view(page, "watch")
    page.fill("#watch-gpu", "nonsense")
    watch(page, "card.log")
    expect(page.locator("#watch-gpu-error")).to_contain_text("there is no card", ignore_case=True)


def test_hostile_text_stays_text(page: Page) -> None:
    page.fill("#explain-gpu", "<img src=x onerror=document.title='taken'>")
    put(page, "#explain-text", LOG)
    page.click("#explain .main")
    expect(page.locator("#explain-gpu-error")).to_contain_text("<img src=x")
    assert page.title() == "stepwatch"


def test_the_token_is_given_once_and_leaves_the_address(page: Page, other_server: Serving) -> None:
    page.context.clear_cookies()
    page.goto(other_server.address)
    page.wait_for_function("!location.search.includes('token')")
    explain(page)  # by the cookie
    page.reload()
    expect(page.locator("#explain .main")).to_be_enabled()  # by a script, which needs it too
    assert page.evaluate("document.cookie") == ""  # which no script sees


def test_a_killed_server_is_said_and_nothing_is_lost(page: Page, other_server: Serving, served_directory: Path) -> None:
    """In a view that watches a log, and in one that asks then."""
    (served_directory / "left.log").write_text(iteration_lines(60), encoding="utf-8")
    watching, _ = opened(page.context, other_server.address)
    watch(watching, "left.log")
    expect(watching.locator("#report article")).to_be_visible()
    page.goto(other_server.address)
    page.set_viewport_size({"width": 1366, "height": 650})
    explain(page)
    change(page)
    page.fill("#explain-gpu", "4070")
    other_server.process.kill()
    page.click("#explain .main")
    expect(page.locator("#problem")).to_contain_text("The server does not answer")
    assert page.evaluate(IN_VIEW, "#problem")
    assert page.evaluate("document.activeElement.id") == "problem"
    assert page.input_value("#explain-text").splitlines() == LOG.splitlines()
    assert page.input_value("#explain-gpu") == "4070"
    expect(page.locator("#answer")).to_have_class("stale")
    expect(watching.locator("#status")).to_have_text("The connection broke; trying again …")
    expect(watching.locator("#monitor")).to_have_class("stale")
    expect(watching.locator("#answer")).to_have_class("stale")
    watching.close()


# --- accessibility ----------------------------------------------------------------------------------------------


def unlawful(page: Page, place: str = "html") -> list[str]:
    """On a phone in the light by every rule; then on a desktop in the dark what depends on colour and width."""
    page.set_viewport_size({"width": 390, "height": 650})
    page.emulate_media(color_scheme="light")
    found = violations(page, place=place)
    page.set_viewport_size({"width": 1366, "height": 650})
    page.emulate_media(color_scheme="dark")
    return [*found, *violations(page, "color-contrast", "scrollable-region-focusable", place=place)]


def test_no_view_shuts_anybody_out(page: Page, served_directory: Path) -> None:
    """Each view with its form and an answer at once: axe looks at every element, and takes its time."""
    said = set()
    for view in VIEWS:
        open_view(page, view)
        if view == "watch":  # whose form ends what is watched
            assert unlawful(page) == []
        answer_in(page, view, served_directory)
        if view == "watch":
            stall(served_directory / "any.log")
            expect(page.locator("#alarm")).to_contain_text("Iteration 61")
        else:
            change(page)
        page.evaluate(LEAVE_FIVE)
        assert unlawful(page) == []
        assert without_command_line(page)
        said.add(page.locator(f"#{view}-title").text_content())
    assert len(said) == len(VIEWS)
    assert "Explain a log" in said
    with (served_directory / "any.log").open("a", encoding="utf-8") as log:
        log.write(OUT_OF_MEMORY)
    expect(page.locator("#monitor .badge")).to_have_text("Crashed")
    assert unlawful(page, "#monitor") == []
    open_view(page, "explain")
    explain(page)
    change(page)
    page.fill("#explain-gpu", "nonsense")
    page.click("#explain .main")
    expect(page.locator(".error")).to_be_visible()
    expect(page.locator("#answer")).to_have_class("stale")
    assert unlawful(page) == []


# --- what is transferred ----------------------------------------------------------------------------------------


def test_little_is_transferred_before_the_first_chart(page: Page, address: str) -> None:
    """150 kB are what a slow connection of 1.6 Mbit/s carries in three quarters of a second."""
    network = page.context.new_cdp_session(page)
    network.send("Network.enable")
    network.send("Network.setCacheDisabled", {"cacheDisabled": True})  # as on a first visit
    names: dict[str, str] = {}
    bytes_of: dict[str, int] = {}
    network.on("Network.requestWillBeSent", lambda event: names.update({event["requestId"]: event["request"]["url"]}))
    network.on(
        "Network.loadingFinished",
        lambda event: bytes_of.update({names[event["requestId"]]: event["encodedDataLength"]}),
    )
    page.goto(address)
    expect(page.locator("#explain .main")).to_be_enabled()
    page.wait_for_load_state("networkidle")
    assert not any("engine.js" in name for name in names.values())
    assert 5_000 < sum(bytes_of.values()) < 60_000
    page.click("#explain .example")
    drawn(page)
    assert any("engine.js" in name for name in bytes_of)
    assert sum(size for name, size in bytes_of.items() if "engine.js" not in name) < 150_000
    network.detach()
