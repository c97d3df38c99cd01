"""Finds faulty links in a folder of pages: dead ones, absolute ones, and anything loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = ("script", "link", "img", "iframe", "source", "object")


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name in ("href", "src", "data"):
                self.links.append((tag, value))
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)


def faults(place: Path) -> list[str]:
    place = place.resolve()  # links are resolved too
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(place.rglob("*.html"))}
    return [f"{path.relative_to(place)}: {what}" for path in pages for what in _faults(place, path, pages)]


def _faults(place: Path, path: Path, pages: dict[Path, _Page]) -> Iterator[str]:
    for tag, link in pages[path].links:
        address = urlsplit(link)
        if address.scheme == "data":
            continue
        if address.scheme or address.netloc:
            if tag in _LOADED:
                yield f"loads from elsewhere: {link}"
            continue
        if address.path.startswith("/"):
            yield f"not relative: {link}"
            continue
        target = (path.parent / unquote(address.path)).resolve() if address.path else path
        if target.is_dir():
            target /= "index.html"
        if place not in target.parents or not target.is_file():
            yield f"dead link: {link}"
        else:
            place_in_it = unquote(address.fragment)
            question = "?" in place_in_it  # a query for the page
            if target in pages and not question and place_in_it not in pages[target].anchors | {"", "top"}:
                yield f"no such place: {link}"
