"""README and docs say what is so: every command has its page, and every help text and answer in them is real."""

from __future__ import annotations

import re

import pytest
from tools import ROOT
from tools.pages import READMES, Block, blocks, counted, fresh_body, page_path

from stepwatch.cli import COMMANDS
from stepwatch.readers.formats import FORMATS

_LINK = re.compile(r"\]\((?!https?:|#|mailto:)(?P<target>[^)#\s]+)")
_FENCED = re.compile(r"(?s)^```.*?^```", re.MULTILINE)


PAGE_OF = {"advise": "advice"}  # named for its subject: each rule has a section there


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_a_page_with_its_help(command: str) -> None:
    page = f"docs/{PAGE_OF.get(command, command)}.md"
    assert page_path(page).is_file()
    assert (page, "help", command) in [block[:3] for block in blocks()]


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.page}-{block.kind}-{block.name}")
def test_what_a_page_shows_is_what_stepwatch_prints(block: Block) -> None:
    assert block.body == fresh_body(block), f"{block.page} is out of date: run `make pages`"


def test_the_readme_shows_a_real_answer_on_its_first_screen() -> None:
    text = page_path("README.md").read_text(encoding="utf-8")
    assert text[: text.index("<!-- output:short -->")].count("\n") <= 25


def test_the_readme_counts_the_formats() -> None:
    text = page_path("README.md").read_text(encoding="utf-8")
    assert f"[{len(FORMATS) - 1} other formats](docs/formats.md)" in text  # other than nanoGPT's


@pytest.mark.parametrize("page", READMES)
def test_make_pages_counts_the_formats_in_every_readme(page: str) -> None:
    text = page_path(page).read_text(encoding="utf-8")
    stale = text.replace(str(len(FORMATS) - 1), "7", 1)
    assert stale != text == counted(stale)


@pytest.mark.parametrize("page", [page for page in READMES if page != "README.md"])
def test_a_readme_in_another_language_has_the_commands_links_and_figures_of_the_english_one(page: str) -> None:
    one, other = (page_path(name).read_text(encoding="utf-8") for name in ("README.md", page))
    commands = [re.findall(r"^\$ (?:stepwatch|make|kubectl).*?(?= +#|$)", text, re.MULTILINE) for text in (one, other)]
    spoken = re.compile(r" --lang \w+")
    assert [spoken.sub("", command) for command in commands[1]] == [spoken.sub("", command) for command in commands[0]]
    links = [{target for target in _LINK.findall(text) if "README" not in target} for text in (one, other)]
    assert links[1] == links[0]
    formats = [re.findall(r"\[\D*(\d+)\D*\]\(docs/formats.md\)", text) for text in (one, other)]
    assert formats[1] == formats[0]


@pytest.mark.parametrize(
    "page", sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    targets = _LINK.findall(_FENCED.sub("", page_path(page).read_text(encoding="utf-8")))  # a log has brackets too
    assert [target for target in targets if not (page_path(page).parent / target).exists()] == []


def test_the_page_of_the_store_has_every_table() -> None:
    from stepwatch.fleet.schema import TABLES

    assert [block.name for block in blocks() if block.kind == "store"] == list(TABLES)
