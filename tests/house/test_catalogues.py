"""Every sentence is in every catalogue, with its placeholders, and the compiled catalogues are current."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from babel.messages.catalog import Message
from tests.house.trees import FILES, nodes_of
from tools import ROOT
from tools.catalogues import (
    LOCALES,
    TRANSLATED,
    compiled,
    extracted,
    forms,
    placeholders,
    po_path,
    read_catalogue,
    sayings,
)

from stepwatch.i18n import KIND_NAMES
from stepwatch.i18n.languages import TABLE

# What an engineer leaves as it is in any script.
NAMES = re.compile(
    r"pip install .*|%%stepwatch|\b(GB/s|tokens/s|TFLOPS|MHz|C|W|MFU|CPU|GPU|VRAM|rank|bf16|fp16|fp32|torch\.\w+)\b"
)
ENGLISH = re.compile(r"(?<![\w-])(the|of|is|are|and|or|to|in|for|not|with|no)(?![\w-])")


@cache
def sentences() -> list[Message]:
    return [message for message in extracted() if message.id]


def key_of(message: Message) -> str:
    return message.id if isinstance(message.id, str) else message.id[0]


def test_sentences_are_found_with_their_plurals(tmp_path: Path) -> None:
    one = "Message('in ' 'two parts', {'a': 1, 'b': 'x'})\n"
    several = "m.Message('{n:n} run', {'n': Message('inner')}, '{n:n} runs', 2)\n"
    (tmp_path / "one.py").write_text(one + several)
    assert [message.id for message in extracted(tmp_path) if message.id] == [
        "in two parts",
        ("{n:n} run", "{n:n} runs"),
        "inner",
    ]


def test_every_message_begins_with_a_literal() -> None:
    """Otherwise no catalogue could hold it. Texts to choose from are Messages, not strings."""
    for path in FILES:
        for node in nodes_of(path):
            match node:
                case ast.Call(func=ast.Name(id="Message") | ast.Attribute(attr="Message"), args=arguments):
                    texts = [arguments[place] for place in (0, 2) if place < len(arguments)]
                    literal = all(isinstance(text, ast.Constant) for text in texts) and texts and not node.keywords
                    assert literal, f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)[:100]}"


def test_a_sentence_has_a_plural_everywhere_or_nowhere() -> None:
    plurals = {key_of(message) for message in sentences() if message.pluralizable}
    for path in FILES:
        for node in nodes_of(path):
            match node:
                case ast.Call(func=ast.Name(id="Message"), args=[ast.Constant(value=key), *rest]) if key in plurals:
                    assert len(rest) > 1, f"{path.relative_to(ROOT)}:{node.lineno}: {key!r} without its plural"


def test_every_placeholder_has_a_kind_that_can_be_said() -> None:
    wrong = {
        f"{message.locations[0]}: {{{placeholder}}}"
        for message in sentences()
        for text in ([message.id] if isinstance(message.id, str) else message.id)
        for placeholder in placeholders(text)
        if placeholder.partition(":")[2] not in KIND_NAMES
    }
    assert not wrong, "placeholders without a known kind (write {name:word}):\n" + "\n".join(sorted(wrong))


def test_a_language_is_a_row_and_a_folder() -> None:
    assert tuple(sorted(path.name for path in LOCALES.iterdir())) == TRANSLATED


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_catalogue_holds_every_sentence(language: str) -> None:
    assert po_path(language).is_file(), "no catalogue: run `make catalogues-extract`, then translate"
    catalogue = read_catalogue(language)
    faults = [
        fault
        for message in sentences()
        for fault in _faults(catalogue.get(key_of(message)), message, catalogue.num_plurals)
    ]
    assert not faults, f"{len(faults)} faults in {po_path(language).name} ({language}):\n" + "\n".join(faults[:20])


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_catalogue_holds_nothing_else(language: str) -> None:
    keys = {key_of(message) for message in read_catalogue(language) if message.id}
    assert keys <= set(map(key_of, sentences())), "run `make catalogues-extract`"


@pytest.mark.parametrize("language", [code for code in TRANSLATED if not TABLE[code].name[0].isascii()])
def test_a_language_with_a_script_of_its_own_has_no_english_left_over(language: str) -> None:
    said = {text for message in read_catalogue(language) if message.id for text in forms(message)}
    texts = {re.sub(r"\{[^}]*\}|\"[^\"]*\"", "", text) for text in said}  # what is typed is not said
    latin = {text for text in texts if not re.search(r"[\u3040-\u30ff\u4e00-\u9fff]", text)}
    assert {text for text in latin if re.search("[A-Za-z]", NAMES.sub("", text))} == set()
    assert {text for text in texts if ENGLISH.search(text)} == set()


@pytest.mark.parametrize("language", TRANSLATED)
def test_the_compiled_catalogue_is_current(language: str) -> None:
    mo = po_path(language).with_suffix(".mo")
    assert mo.is_file(), "run `make catalogues`"
    assert sayings(mo.read_bytes()) == sayings(compiled(language)), "run `make catalogues`"


def test_placeholders_are_read_with_their_kinds() -> None:
    assert placeholders("{cost:range} of {gpu:word}, 100 %") == {"cost:range", "gpu:word"}


def _faults(translated: Message | None, sentence: Message, plurals: int) -> list[str]:
    name = repr(key_of(sentence)[:70])
    if translated is None:
        return [f"missing: {name} (run `make catalogues-extract`)"]
    if translated.fuzzy:
        return [f"fuzzy: {name}"]
    if translated.id != sentence.id:
        return [f"plural differs: {name} (run `make catalogues-extract`)"]
    said = forms(translated)
    if len(said) != (plurals if sentence.pluralizable else 1) or not all(said):
        return [f"not translated: {name}"]
    texts = (sentence.id,) if isinstance(sentence.id, str) else sentence.id
    one, many = placeholders(texts[0]), placeholders(texts[-1])
    # The form for one may name the count or leave it out, as the English one does; a language with one form has to.
    wanted = [(one, one | many)] * (len(said) > 1) + [(many, many)] * max(len(said) - 1, 1)
    return [
        f"placeholders differ: {name}: {sorted(placeholders(text) ^ least)}"
        for text, (least, most) in zip(said, wanted, strict=True)
        if not least <= placeholders(text) <= most
    ]
