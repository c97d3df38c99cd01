"""The Markdown of docs/ as a site, built by Sphinx: with navigation, search, light and dark mode."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools import ROOT
from tools.pages import READMES

BESIDE = (*READMES, "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")
_LINK = re.compile(r"\]\(([^)#:\s]+)")
_ROW = re.compile(r"^\| \[[\w-]+\]\(([\w-]+)\.md\)", re.MULTILINE)


def write(place: Path) -> None:
    """Each page has the path of its file in the repository, with .html."""
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary).resolve()
        for name in ("docs", "examples"):
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in BESIDE:
            shutil.copy(ROOT / name, source / name)
        for page in [*source.rglob("*.md")]:
            for link in _LINK.findall(page.read_text(encoding="utf-8")):
                linked = (page.parent / link).resolve()
                file = ROOT / linked.relative_to(source) if linked.is_relative_to(source) else ROOT
                if file.is_file() and not linked.exists():
                    linked.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, linked)
        index = source / "docs" / "index.md"
        text = index.read_text(encoding="utf-8")
        others = {path.stem for path in (source / "docs").glob("*.md")} - {"index", *_ROW.findall(text)}
        pages = [*_ROW.findall(text), *sorted(others), *(f"../{name[:-3]}" for name in BESIDE if name.endswith(".md"))]
        index.write_text("\n".join((text, "```{toctree}", ":hidden:", "", *pages, "```", "")), encoding="utf-8")
        made = source / "made"
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", str(Path(__file__).parent)]
        done = subprocess.run([*command, str(source), str(made)], capture_output=True, text=True, cwd=ROOT)
        if done.returncode:
            raise SystemExit(done.stderr)
        left_out = shutil.ignore_patterns(".doctrees", ".buildinfo", "objects.inv", "*.map")
        shutil.copytree(made, place, ignore=left_out, dirs_exist_ok=True)
