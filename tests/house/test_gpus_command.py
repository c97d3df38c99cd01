"""`stepwatch gpus`: the table, one card, JSON, and an unknown card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stepwatch.cli import main
from stepwatch.gpus import gpus
from stepwatch.i18n import LANGUAGES


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["gpus", *arguments], prog_name="stepwatch")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_table_has_the_figures_of_each_card_on_a_line_and_fits_80_columns(language: str) -> None:
    lines = ask("--lang", language).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line for line in lines if line.endswith(("  A", "  B", "  C"))]
    assert len(rows) == len(gpus())
    assert all(gpu.name.startswith(row.split("  ")[0]) for gpu, row in zip(gpus(), rows, strict=True))


def test_figures_carry_no_idle_zeros() -> None:
    row = next(line for line in ask("--lang", "en").stdout.splitlines() if line.startswith("GeForce RTX 4070  "))
    assert row.split()[3:] == ["12", "504", "58.3", "58.3", "29.1", "200", "A"]


def test_markdown_tables_are_whole() -> None:
    rows = [line for line in ask("--md").stdout.splitlines() if line.startswith("|")]
    assert len(rows) == len(gpus()) + 2
    assert {row.replace("\\|", "").count("|") for row in rows} == {9}


def test_one_card_is_shown_with_its_sources() -> None:
    said = ask("rtx4070", "--lang", "en").stdout
    assert said.startswith("GeForce RTX 4070\n")
    assert "bf16, dense TFLOPS" in said
    assert "[GM]" in said


def test_json_holds_every_card_or_the_one_asked_for() -> None:
    everything = json.loads(ask("--json").stdout)
    assert everything["schema"] == "stepwatch.gpus/1"
    assert [card["name"] for card in everything["gpus"]] == [gpu.name for gpu in gpus()]
    (card,) = json.loads(ask("4070", "--json").stdout)["gpus"]
    assert (card["bf16_flops"], card["peak_dtype"], card["compute_capability"]) == (58.3e12, "bfloat16", "8.9")


def test_unknown_figures_stay_unknown() -> None:
    (card,) = json.loads(ask("cpu", "--json").stdout)["gpus"]
    assert card["bf16_flops"] is None
    assert "–" in ask("cpu").stdout


def test_the_answer_can_go_to_a_file(tmp_path: Path) -> None:
    assert ask("4070", "--md", "-o", str(tmp_path / "card.md")).stdout == ""
    assert (tmp_path / "card.md").read_text(encoding="utf-8").startswith("# GeForce RTX 4070")


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_unknown_card_is_refused_with_the_nearest_names(language: str) -> None:
    result = ask("rtx 4071", "--lang", language)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 2
    assert "GeForce RTX 4070" in result.stderr
