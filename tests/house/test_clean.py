"""The project speaks of itself alone: no paths of a machine, no hosts of a registry, in any file of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tools import ROOT

# Written so that this file does not find itself.
FORBIDDEN = {
    "a path of a machine": re.compile(r"(?<![\w.])/(?:work/(?:main|shared|venv)|roo[t]/|opt/pyp[i]|tmp/bas[h])"),
    "a host of a registry": re.compile(
        r"pypi\.[o]rg|pythonhosted\.[o]rg|index-ur[l]|artifactor[y]|jfro[g]|npmjs\.[o]rg", re.IGNORECASE
    ),
}
PASSING = {
    ".git",
    ".venv",
    ".hypothesis",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    "__pycache__",
    "build",
    "dist",
}


def project_files() -> list[Path]:
    """What git tracks or would track; without git, everything that is not made by a tool."""
    listing = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(listing, capture_output=True, text=True, check=False) if (ROOT / ".git").exists() else None
    if done is not None and done.returncode == 0:
        paths = [ROOT / name for name in done.stdout.split("\0") if name]
    else:
        paths = [
            path
            for path in ROOT.rglob("*")
            if not any(part in PASSING or part.endswith(".egg-info") for part in path.relative_to(ROOT).parts)
        ]
    return [path for path in paths if path.is_file() and path.suffix != ".mo"]


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {what}: {line.strip()[:100]}"
        for path in project_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        for what, pattern in FORBIDDEN.items()
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)
