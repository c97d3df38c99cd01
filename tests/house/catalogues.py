"""The catalogues: where they are, and compiling them: `python -m tests.house.catalogues`.

This is `pybabel compile` without its check of `%` formats, which takes “100 % of” for a placeholder, and without its
habit of writing empty plurals.
"""

from __future__ import annotations

import gettext
import io
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog, Message
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from tests.house.sentences import SOURCE

LANGUAGES = ("de", "es", "fr")
LOCALES = SOURCE / "i18n" / "locales"


def po_path(language: str) -> Path:
    return LOCALES / language / "LC_MESSAGES" / "stepwatch.po"


def read_catalogue(language: str) -> Catalog:
    with po_path(language).open("rb") as file:
        return read_po(file, locale=language, domain="stepwatch")


def forms(message: Message) -> tuple[str, ...]:
    """The translation, or each of its plural forms."""
    return (message.string,) if isinstance(message.string, str) else tuple(message.string or ("",))


def compiled(language: str) -> bytes:
    """The .mo that belongs to the .po; what is not translated is left out, and is then said in English."""
    catalogue, buffer = read_catalogue(language), io.BytesIO()
    for message in [message for message in catalogue if message.id and not all(forms(message))]:
        catalogue.delete(message.id)
    write_mo(buffer, catalogue)
    return buffer.getvalue()


def sayings(mo: bytes) -> dict[Any, str]:
    """What gettext finds in a compiled catalogue; the header, which names the compiler's version, apart."""
    found: dict[Any, str] = dict(gettext.GNUTranslations(io.BytesIO(mo))._catalog)  # type: ignore[attr-defined]
    found.pop("", None)
    return found


def main() -> None:
    for language in LANGUAGES:
        po_path(language).with_suffix(".mo").write_bytes(compiled(language))
        print(f"compiled {language}: {len(sayings(compiled(language)))} sentences")


if __name__ == "__main__":
    main()
