"""What developers run: it generates pages and catalogues, compares versions and measures the code."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "stepwatch"
