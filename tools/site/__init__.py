"""The site: `python -m tools.site FOLDER`. The page with Python in the browser, the documentation, examples, answers.

All links are relative, so that the folder can be published anywhere; nothing in it contacts another host.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from stepwatch.i18n import LANGUAGES
from stepwatch.web.limits import Limits
from stepwatch.web.page_text import InBrowser, addresses, page_text, texts, words
from tools.site import manual, runtime, standing

POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self' blob:; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'none'; base-uri 'none'"
)


def build(place: Path, *, documentation: bool = True) -> None:
    """Builds the site; without the documentation it is much faster, for tests of the page."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if documentation:
        manual.write(place)
    runtime.write(place / "python")
    write_page(place)
    standing.write(place)
    kept = [path for path in sorted(place.rglob("*")) if path.is_file() and _is_of_the_page(path.relative_to(place))]
    version = hashlib.sha256(b"".join(path.read_bytes() for path in kept)).hexdigest()[:16]
    files = ["./", *(path.relative_to(place).as_posix() for path in kept)]
    script = (Path(__file__).parent / "offline.js").read_text(encoding="utf-8")
    (place / "offline.js").write_text(
        f"const VERSION = {json.dumps(version)};\nconst FILES = {json.dumps(files)};\n{script}", encoding="utf-8"
    )


def write_page(place: Path) -> None:
    files = addresses()
    links = {"examples": "examples/index.html", "documentation": "docs/index.html"}
    own = InBrowser(worker=files["worker.js"], python="python/", examples="examples/", links=links, policy=POLICY)
    text = page_text("en", limit=Limits().body_bytes, in_browser=own)
    (place / "index.html").write_text(text, encoding="utf-8")
    (place / "page" / "words").mkdir(parents=True)
    for name, content in texts().items():
        (place / "page" / name).write_text(content, encoding="utf-8")
    for language in LANGUAGES:
        spoken = json.dumps(words(language), ensure_ascii=False)
        (place / "page" / "words" / f"{language}.json").write_text(spoken, encoding="utf-8")


def _is_of_the_page(path: Path) -> bool:
    return path.parts[0] in ("page", "python", "index.html") or path.suffix == ".log"
