"""Every sentence is in every catalogue, with its placeholders, and the compiled catalogues are current."""

from __future__ import annotations

import pytest
from tests.house.catalogues import LANGUAGES, compiled, forms, po_path, read_catalogue, sayings
from tests.house.sentences import Sentence, collect, placeholders

from stepwatch.i18n import KIND_NAMES
from stepwatch.i18n import LANGUAGES as SPOKEN

SENTENCES, PROBLEMS = collect()


def test_every_key_can_be_read_from_the_source() -> None:
    assert not PROBLEMS, "\n".join(PROBLEMS)
    assert len(SENTENCES) > 50


def test_every_placeholder_has_a_kind_that_can_be_said() -> None:
    wrong = {
        f"{sentence.places[0][0]}:{sentence.places[0][1]}: {{{placeholder}}}"
        for sentence in SENTENCES.values()
        for placeholder in placeholders(sentence.key) | placeholders(sentence.many or "")
        if placeholder.partition(":")[2] not in KIND_NAMES
    }
    assert not wrong, "placeholders without a known kind (write {name:word}):\n" + "\n".join(sorted(wrong))


def test_every_spoken_language_has_a_catalogue() -> None:
    assert sorted(SPOKEN) == sorted(["en", *LANGUAGES])


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_catalogue_holds_every_sentence(language: str) -> None:
    assert po_path(language).is_file(), "no catalogue: run `make catalogues-extract`, then translate"
    catalogue = read_catalogue(language)
    faults = [
        fault
        for sentence in SENTENCES.values()
        for fault in _faults(catalogue.get(sentence.key), sentence, catalogue.num_plurals)
    ]
    assert not faults, f"{len(faults)} faults in {po_path(language).name} ({language}):\n" + "\n".join(faults[:20])


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_catalogue_holds_nothing_else(language: str) -> None:
    keys = {
        message.id if isinstance(message.id, str) else message.id[0]
        for message in read_catalogue(language)
        if message.id
    }
    assert keys <= set(SENTENCES), "run `make catalogues-extract`"


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_compiled_catalogue_is_current(language: str) -> None:
    mo = po_path(language).with_suffix(".mo")
    assert mo.is_file(), "run `make catalogues`"
    assert sayings(mo.read_bytes()) == sayings(compiled(language)), "run `make catalogues`"


def _faults(message: object, sentence: Sentence, plurals: int) -> list[str]:
    from babel.messages.catalog import Message

    name = repr(sentence.key[:70])
    if not isinstance(message, Message):
        return [f"missing: {name} (run `make catalogues-extract`)"]
    said = forms(message)
    if message.fuzzy:
        return [f"fuzzy: {name}"]
    if message.pluralizable != (sentence.many is not None) or (message.pluralizable and message.id[1] != sentence.many):
        return [f"plural differs: {name} (run `make catalogues-extract`)"]
    if len(said) != (plurals if sentence.many is not None else 1) or not all(said):
        return [f"not translated: {name}"]
    one, many = placeholders(sentence.key), placeholders(sentence.many or sentence.key)
    # The form for one may name the count or leave it out, as the English one does.
    wanted = [(one, one | many), *[(many, many)] * (len(said) - 1)]
    return [
        f"placeholders differ: {name}: {sorted(placeholders(text) ^ least)}"
        for text, (least, most) in zip(said, wanted, strict=True)
        if not least <= placeholders(text) <= most
    ]
