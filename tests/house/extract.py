"""Brings every sentence of the source into the catalogues: `python -m tests.house.extract`.

New sentences come with an empty translation, vanished ones go, translated ones stay as they are.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from babel.messages.catalog import Catalog
from babel.messages.pofile import write_po
from tests.house.catalogues import LANGUAGES, LOCALES, forms, po_path, read_catalogue
from tests.house.sentences import Sentence, collect

import stepwatch

COMMENT = """\
The sentences of stepwatch.
Copyright (c) The stepwatch authors; MIT, as the rest of stepwatch.

Placeholders keep their name and their kind: {cost:range} stays {cost:range}; they may change places.
Kinds: word (text), n (integer), ints (list of integers), x (factor), ratio, pct (share), time and range and high
(durations), tflops, rate (tokens/s), size (bytes), big (parameter counts). Units and separators come with them."""
WIDTH = 110


def template(sentences: dict[str, Sentence]) -> Catalog:
    catalog = _dressed(Catalog(project="stepwatch", domain="stepwatch"))
    for sentence in sentences.values():
        key = sentence.key if sentence.many is None else (sentence.key, sentence.many)
        catalog.add(key)
    return catalog


def _dressed(catalog: Catalog) -> Catalog:
    """A header that says what is needed and no more."""
    catalog.header_comment = "\n".join(f"# {line}".rstrip() for line in COMMENT.splitlines())
    catalog.copyright_holder = catalog.last_translator = catalog.language_team = "The stepwatch authors"
    catalog.msgid_bugs_address = ""
    catalog.version = stepwatch.__version__
    catalog.fuzzy = False
    return catalog


def _merged(language: str, fresh: Catalog) -> Catalog:
    if not po_path(language).exists():
        merged = Catalog(locale=language, project="stepwatch", domain="stepwatch", revision_date=datetime.now(UTC))
    else:
        merged = read_catalogue(language)
    created = merged.creation_date  # kept, so that an extraction without news changes nothing
    merged.update(fresh, no_fuzzy_matching=True, update_creation_date=False)
    merged.creation_date = created
    return _dressed(merged)


def _write(catalog: Catalog, path: str) -> None:
    target = LOCALES / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        write_po(file, catalog, width=WIDTH, ignore_obsolete=True, include_lineno=False)


def main() -> None:
    sentences, problems = collect()
    fresh = template(sentences)
    for language in LANGUAGES:
        merged = _merged(language, fresh)
        _write(merged, f"{language}/LC_MESSAGES/stepwatch.po")
        missing = sum(not all(forms(message)) for message in merged if message.id)
        print(f"{language}: {len(merged)} sentences, {missing} to translate")
    if problems:
        sys.exit("\n".join(["these keys cannot be extracted:", *problems]))


if __name__ == "__main__":
    main()
