"""Python for a browser: Pyodide and numpy from npm, pinned; Jinja2 and its like as installed here; our own wheel.

Every module is compiled here: the browser would need as long for that as for the rest of its start.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.metadata import files
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tools import ROOT, SOURCE

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stepwatch-site"


class Pinned(NamedTuple):
    """A package of npm; its archive is taken only if it has this hash."""

    name: str
    version: str
    integrity: str

    @property
    def file(self) -> str:
        return f"{self.name.lstrip('@').replace('/', '-')}-{self.version}.tgz"


# The newest Pyodide for which npm holds a numpy: both are of Python 3.12 and Emscripten 3.1.58.
PYODIDE = Pinned(
    "pyodide",
    "0.27.7",
    "sha512-RUSVJlhQdfWfgO9hVHCiXoG+nVZQRS5D9FzgpLJ/VcgGBLSAKoPL8kTiOikxbHQm1kRISeWUBdulEgO26qpSRA==",
)
NUMPY = Pinned(
    "@emscripten-forge/numpy",
    "2.0.1-py312h4e66579-0",
    "sha512-64iP3tolNhBnKJBHs2b5Mg9s17BL8Bp9Ev2+U0fSCO3/zQlWQRCrExw2MgmfwjhNz+mwbKPG2eBsBcpBWV2xbA==",
)
LIBRARY = "python_stdlib.zip"
PYODIDE_FILES = ("pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm", LIBRARY)
# Files and folders of the library and of numpy that a page has no use for.
UNUSED = frozenset(
    ("_pyio.py", "aifc.py", "bdb.py", "cgi.py", "doctest.py", "ftplib.py", "imaplib.py", "mailbox.py",
     "multiprocessing", "nntplib.py", "optparse.py", "pdb.py", "pickletools.py", "pstats.py", "pydoc.py",
     "smtplib.py", "trace.py", "unittest", "wsgiref", "xml", "xmlrpc",
     "f2py", "fft", "polynomial", "random", "testing", "tests")
)  # fmt: skip
WITH_STEPWATCH = ("Jinja2", "MarkupSafe", "PyYAML")
_BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"


class Unavailable(Exception):
    """npm is not there, does not answer, or gives something else than what was pinned."""


def fetched(package: Pinned) -> bytes:
    """The archive of a package; npm is asked for it once."""
    kept = CACHE / package.file
    if not kept.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise Unavailable("npm is missing (on Debian: apt-get install npm)")
        with tempfile.TemporaryDirectory() as place:
            asked = [npm, "pack", "--silent", f"{package.name}@{package.version}"]
            done = subprocess.run(asked, cwd=place, capture_output=True, text=True)
            if done.returncode:
                raise Unavailable(f"npm cannot fetch {package.name}: {done.stderr.strip()[-200:]}")
            CACHE.mkdir(parents=True, exist_ok=True)
            (packed,) = Path(place).glob("*.tgz")
            arrived = kept.with_suffix(f".{os.getpid()}")
            shutil.move(packed, arrived)
            arrived.replace(kept)
    data = kept.read_bytes()
    algorithm, _, wanted = package.integrity.partition("-")
    if base64.b64encode(hashlib.new(algorithm, data).digest()).decode() != wanted:
        kept.unlink()
        raise Unavailable(f"{package.name} {package.version} is not what was pinned")
    return data


def write(place: Path, *, without: Collection[str] = UNUSED) -> None:
    """Pyodide with its library, and one archive with all packages; without the files and folders named so."""
    place.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(fetched(PYODIDE))) as archive:
        for name in PYODIDE_FILES:
            (place / name).write_bytes(_member(archive, f"package/{name}"))
        lock = json.loads(_member(archive, "package/pyodide-lock.json"))
    # Nothing may be looked for elsewhere: what there is, is in our archive.
    (place / "pyodide-lock.json").write_text(json.dumps({"info": lock["info"], "packages": {}}))
    with zipfile.ZipFile(place / LIBRARY) as archive:
        library = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    _pack(place / LIBRARY, _used(library, without), place)
    packages = {**dict(_numpy()), **dict(_installed()), **dict(_wheel())}
    _pack(place / "packages.zip", _used(packages, without), place)


def _used(files: Mapping[str, bytes], without: Collection[str]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if not {*PurePosixPath(name).parts} & {*without}}


def _pack(archive: Path, files: Mapping[str, bytes], python: Path) -> None:
    ready = compiled(files, python)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, data in sorted(ready.items()):
            packed.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)


def compiled(sources: Mapping[str, bytes], python: Path) -> dict[str, bytes]:
    """Modules as bytecode, the rest as it is. Each module is compiled once, by the Python in this folder, and kept."""
    kept = CACHE / "bytecode"
    kept.mkdir(parents=True, exist_ok=True)
    modules = {name: _hash(name, data) for name, data in sources.items() if name.endswith(".py")}
    if missing := {module: name for name, module in modules.items() if not (kept / module).exists()}:
        node = shutil.which("node")
        if node is None:
            raise Unavailable("node is missing (on Debian: apt-get install nodejs)")
        with tempfile.TemporaryDirectory() as place:
            for module, name in missing.items():
                (Path(place) / module).write_bytes(sources[name])
            command = [node, str(Path(__file__).with_name("bytecode.cjs")), str(python.resolve()), place, str(kept)]
            done = subprocess.run(command, input=json.dumps(missing), capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stderr)
    bytecode = {f"{name}c": (kept / module).read_bytes() for name, module in modules.items()}
    return {name: data for name, data in sources.items() if name not in modules} | bytecode


def _hash(name: str, data: bytes) -> str:
    return hashlib.sha256(b"\0".join((PYODIDE.integrity.encode(), name.encode(), data))).hexdigest()


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    found = archive.extractfile(name)
    assert found is not None
    return found.read()


def _numpy() -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(fetched(NUMPY))) as outer:
        (name,) = (name for name in outer.getnames() if name.endswith(".tar.gz"))
        inner = _member(outer, name)
    with tarfile.open(fileobj=io.BytesIO(inner)) as archive:
        for member in archive:
            _, packages, path = member.name.partition("/site-packages/")
            used = path.endswith((".py", ".so", "LICENSE.txt", "METADATA"))
            if packages and member.isfile() and used:
                yield path, _member(archive, member.name)


def _installed() -> Iterator[tuple[str, bytes]]:
    """The packages that an answer needs, as far as they are Python."""
    for package in WITH_STEPWATCH:
        for file in files(package) or ():
            if file.suffix == ".py" or file.name == "METADATA" or "licenses" in file.parts:
                yield file.as_posix(), Path(str(file.locate())).read_bytes()


@cache
def _wheel() -> tuple[tuple[str, bytes], ...]:
    """Built once for all that is written by one process."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "stepwatch"
        shutil.copytree(SOURCE.parent, copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, copy / name)
        built = subprocess.run(
            [sys.executable, "-c", _BUILD, place], cwd=copy, capture_output=True, text=True, check=True
        )
        with zipfile.ZipFile(Path(place) / built.stdout.split()[-1]) as wheel:
            return tuple((name, wheel.read(name)) for name in wheel.namelist())
