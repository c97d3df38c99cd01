"""The units whose numbers may be too wide for 32 bits pass in the Python of a browser, which has no more."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from tests.one_of_each import NUMBERS
from tools import ROOT, SOURCE
from tools.site import runtime

# Of the readers those that use numpy, whose integers are narrower there, with one case of most tests; of other rooms
# the files named in tests/one_of_each.py: the rest calculates with floats and indexes. Whole answers are compared by
# test_site.
UNITS = ROOT / "tests" / "unit"
READERS = UNITS / "readers"
# What a browser does not have, or what its Python comes without.
_BEYOND = re.compile(
    r"^ *(?:import|from) (?:stepwatch\.)?(?:hypothesis|subprocess|multiprocessing|threading|sqlite3|lzma|zstandard"
    r"|torch|psutil|rich|click|starlette|pyarrow|vl_convert|IPython|pyte|recorder|watch)\b|import Recorder\b",
    re.MULTILINE,
)
# What is about time and size is the same on every machine, and slow on this one.
LEFT_OUT = ("time_grows", "as_fast_as", "megabytes")
PATIENCE_S = 1800


def of_numpy(path: Path) -> bool:
    """Whether the module that it tests uses numpy."""
    room = SOURCE / path.parent.relative_to(UNITS)
    module = room / f"{path.stem.removeprefix('test_')}.py"
    return "import numpy" in (module if module.is_file() else room / "__init__.py").read_text(encoding="utf-8")


def test_units_pass_in_the_python_of_a_browser(tmp_path: Path, cache: pytest.Cache) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("NO NODE: Python for browsers is not tested; on Debian: apt-get install nodejs")
    try:
        runtime.write(tmp_path / "python", without=("tests",))
    except runtime.Unavailable as problem:
        pytest.skip(f"NO SITE: {problem}")
    readers = filter(of_numpy, READERS.rglob("test_*.py"))
    possible = {path for path in readers if not _BEYOND.search(path.read_text(encoding="utf-8"))}
    assert len(possible) > 30
    chosen = sorted(possible | {UNITS / name for name in NUMBERS})
    script = ROOT / "tests" / "integration" / "units_in_node.cjs"
    packages = sysconfig.get_path("purelib")
    bytecode = cache.mkdir("units-in-browser")  # pytest and the tests, compiled once
    wanted = " and ".join(f"not {name}" for name in LEFT_OUT)
    asked = ["-q", "--tb=short", "-p", "tests.one_of_each", "-k", wanted]
    asked += [path.relative_to(ROOT).as_posix() for path in chosen]
    command = [node, str(script), str(tmp_path / "python"), str(ROOT), packages, str(bytecode), *asked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
