"""What is handed out: the wheel and the archive of the sources hold what they must, and the pinned packages are all."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools import ROOT, SOURCE

from stepwatch.i18n import LANGUAGES

BUILD = """
import os, sys
from setuptools import build_meta
os.chdir(sys.argv[1])
print(getattr(build_meta, "build_" + sys.argv[2])(sys.argv[3]))
"""


def built(place: Path, kind: str, into: Path) -> Path:
    into.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(place), kind, str(into)], capture_output=True, text=True, check=True
    )
    return into / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sources") / "stepwatch"
    place.mkdir()
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(SOURCE.parent, place / "src", ignore=left_out)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place / name)
    return built(place, "sdist", place.parent / "dist")


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made of the archive, as whoever installs from it does."""
    place = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(place, filter="data")
    (unpacked,) = place.iterdir()
    return built(unpacked, "wheel", place / "dist")


def test_the_wheel_holds_every_file_but_the_sources_of_the_catalogues(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.startswith("stepwatch/")}
        licences = [name for name in archive.namelist() if "/licenses/" in name]
    files = (path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    wanted = {path.relative_to(SOURCE.parent).as_posix() for path in files if path.suffix != ".po"}
    assert held == wanted
    assert [os.path.basename(name) for name in licences] == ["LICENSE", "vega-licences.txt"]


EVERY_LANGUAGE = """
import sys
import stepwatch
from stepwatch.cli import main
for language in sys.argv[2:]:
    main([sys.argv[1], "--lang", language], standalone_mode=False)
    print(end="\\f", flush=True)
print(stepwatch.__file__)
"""


def test_what_was_installed_from_the_archive_answers_in_every_language(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    command = [sys.executable, "-P", "-c", EVERY_LANGUAGE, str(ROOT / "examples" / "short.log"), *LANGUAGES]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True, cwd=tmp_path)
    *said, place = done.stdout.split(b"\f")
    assert place.decode().startswith(str(tmp_path))
    assert len(set(said)) == len(said) == len(LANGUAGES)
    assert all(said)


def misfits() -> list[str]:
    """As `pip check` finds them, which takes six times as long: what is missing, or has another version."""
    here = [*distributions()]
    versions = {canonicalize_name(each.metadata["Name"]): each.version for each in here}
    wanted = ((each, Requirement(text)) for each in here for text in each.requires or ())
    return [
        f"{each.metadata['Name']} needs {needed}, here is {versions.get(canonicalize_name(needed.name))}"
        for each, needed in wanted
        if needed.marker is None or needed.marker.evaluate({"extra": ""})
        if (found := versions.get(canonicalize_name(needed.name))) is None
        or not needed.specifier.contains(found, prereleases=True)
    ]


def test_the_packages_here_fit_together() -> None:
    assert misfits() == []


def test_packages_that_do_not_fit_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = tmp_path / "other-1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Name: other\nVersion: 1.0\nRequires-Dist: nowhere-to-be-had\nRequires-Dist: numpy<1\n")
    monkeypatch.syspath_prepend(tmp_path)
    missing, old = "other needs nowhere-to-be-had, here is None", f"other needs numpy<1, here is {version('numpy')}"
    assert misfits() == [missing, old]


def test_every_package_of_a_plain_install_is_pinned_with_hashes() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    hashes = r"(?:    --hash=sha256:[0-9a-f]{64}.*\n)+"
    pinned = set(re.findall(rf"^([a-z0-9-]+)==[^ ]+(?: ;[^\\]*)? \\\n{hashes}", text, re.M))
    assert len(pinned) == len(set(re.findall(r"^([a-z0-9-]+)==", text, re.M)))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[<>=~]", each)[0].lower() for each in project["dependencies"]}
    assert wanted <= pinned
    assert "://" not in text
