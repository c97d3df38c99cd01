"""Markdown says what a document says, and nothing empty."""

from __future__ import annotations

from tools import ROOT

from stepwatch import explain, render


def test_no_heading_stands_alone() -> None:
    lines = [line for line in render(explain(str(ROOT / "examples" / "short.log")), "md", "en").splitlines() if line]
    headings = [place for place, line in enumerate(lines) if line.startswith("#")]
    assert headings
    assert not any(lines[place + 1].startswith(lines[place].split()[0] + " ") for place in headings[:-1])
    assert not lines[-1].startswith("#")


def test_french_puts_a_space_before_the_colon_of_a_label() -> None:
    assert "- **Pas\u00a0:** 168,7" in render(explain(str(ROOT / "examples" / "short.log")), "md", "fr")
