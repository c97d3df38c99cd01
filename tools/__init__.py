"""Tools for developers: they generate pages and catalogues, compare versions and measure the code."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "stepwatch"
