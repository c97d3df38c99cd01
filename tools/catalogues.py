"""The message catalogues of the languages.

    python -m tools.catalogues extract   # bring every sentence of the source into the .po files
    python -m tools.catalogues compile   # write the .mo files

Babel does the work, with an extraction method of ours: Babel's own for Python confuses the commas of a dict with those
of the call, and so does not know which argument is the plural. `pybabel compile` is not used because it takes “100 %
of” for a placeholder, and writes untranslated plurals.
"""

from __future__ import annotations

import argparse
import ast
import gettext
import io
import string
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_file
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

import stepwatch
from stepwatch.i18n import LANGUAGES
from tools import SOURCE

TRANSLATED = tuple(sorted(set(LANGUAGES) - {"en"}))  # English is the key
LOCALES = SOURCE / "i18n" / "locales"
KEYWORDS = {"Message": {1: (1,), 2: (1,), 3: (1, 3), 4: (1, 3)}}  # by the number of arguments: a third is the plural
COMMENT = """\
# The sentences of stepwatch.
# Copyright (c) The stepwatch authors; MIT, as the rest of stepwatch.
#
# Placeholders keep their name and their kind: {cost:range} stays {cost:range}; they may change places.
# Kinds: word (text), n (integer), ints (list of integers), x (factor), ratio, pct (share), time and range and high
# (durations), tflops, rate (tokens/s), size (bytes), big (parameter counts). Units and separators come with them."""
WIDTH = 110


def po_path(language: str) -> Path:
    return LOCALES / language / "LC_MESSAGES" / "stepwatch.po"


def read_catalogue(language: str) -> Catalog:
    with po_path(language).open("rb") as file:
        return read_po(file, locale=language, domain="stepwatch")


def extracted(source: Path = SOURCE) -> Catalog:
    """Every sentence of the source with its places; a plural stays with its singular."""
    catalogue = Catalog(project="stepwatch", domain="stepwatch")
    for path in sorted(source.rglob("*.py")):
        for line, key, _, _ in extract_from_file(calls_in, path, keywords=KEYWORDS):
            catalogue.add(key, locations=[(path.relative_to(source).as_posix(), line)])
    return catalogue


def calls_in(
    file: IO[bytes], keywords: Mapping[str, object], comment_tags: object, options: object
) -> Iterator[tuple[int, str, tuple[str | None, ...], list[str]]]:
    """The extraction method: each call of a keyword with its arguments, None for arguments that are no text."""
    calls = [node for node in ast.walk(ast.parse(file.read())) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        match call.func:
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in keywords:
                values = [argument.value if isinstance(argument, ast.Constant) else None for argument in call.args]
                yield call.lineno, name, tuple(value if isinstance(value, str) else None for value in values), []


def placeholders(template: str) -> set[str]:
    """`{cost:time}` as "cost:time"."""
    return {f"{name}:{kind}" for _, name, kind, _ in string.Formatter().parse(template) if name is not None}


def forms(message: Message) -> tuple[str, ...]:
    """The translation, or each of its plural forms."""
    return (message.string,) if isinstance(message.string, str) else tuple(message.string or ("",))


def untranslated(catalogue: Catalog) -> list[Message]:
    return [message for message in catalogue if message.id and not all(forms(message))]


def merged(language: str, fresh: Catalog) -> Catalog:
    """Adds new sentences with an empty translation, removes vanished ones, and keeps translated ones as they are."""
    if po_path(language).exists():
        catalogue = read_catalogue(language)
    else:
        catalogue = Catalog(locale=language, project="stepwatch", domain="stepwatch", revision_date=datetime.now(UTC))
    catalogue.update(fresh, no_fuzzy_matching=True, update_creation_date=False)
    catalogue.header_comment = COMMENT
    catalogue.copyright_holder = catalogue.last_translator = catalogue.language_team = "The stepwatch authors"
    catalogue.msgid_bugs_address = ""
    catalogue.version = stepwatch.__version__
    catalogue.fuzzy = False
    return catalogue


def compiled(language: str) -> bytes:
    """The .mo file for the .po file; untranslated messages are left out, and then shown in English."""
    catalogue, buffer = read_catalogue(language), io.BytesIO()
    for message in untranslated(catalogue):
        catalogue.delete(message.id)
    write_mo(buffer, catalogue)
    return buffer.getvalue()


def sayings(mo: bytes) -> dict[Any, str]:
    """The messages that gettext finds in a compiled catalogue, without the header, which names the compiler."""
    found: dict[Any, str] = dict(gettext.GNUTranslations(io.BytesIO(mo))._catalog)  # type: ignore[attr-defined]
    found.pop("", None)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=("extract", "compile"))
    action = parser.parse_args().action
    fresh = extracted()
    for language in TRANSLATED:
        path = po_path(language)
        if action == "extract":
            catalogue = merged(language, fresh)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                write_po(file, catalogue, width=WIDTH, no_location=True, sort_output=True, ignore_obsolete=True)
            print(f"{language}: {len(catalogue)} sentences, {len(untranslated(catalogue))} to translate")
        else:
            path.with_suffix(".mo").write_bytes(compiled(language))
            print(f"{language}: compiled {len(sayings(compiled(language)))} sentences")


if __name__ == "__main__":
    main()
