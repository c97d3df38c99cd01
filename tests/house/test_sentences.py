"""The search for sentences finds what a catalogue must hold, and reports what it cannot follow."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.house.sentences import Sentences, collect, placeholders


def collected(directory: Path, code: str, more: str = "") -> Sentences:
    source = directory / "src" / "stepwatch"
    source.mkdir(parents=True)
    (source / "one.py").write_text("from stepwatch.messages import Message\nfrom stepwatch.two import TABLE\n" + code)
    (source / "two.py").write_text(more or "TABLE = {'x': 'from a table', 'y': 'of another file'}\n")
    return collect(source)


@pytest.mark.parametrize(
    ("code", "keys"),
    [
        ("Message('plain')", {"plain"}),
        ("Message('in ' 'two parts')", {"in two parts"}),
        ("Message('one' if x else 'other')", {"one", "other"}),
        ("def f(x):\n    text = 'a'\n    if x: text = 'b'\n    return Message(text, {})", {"a", "b"}),
        ("NAMES = ('a', 'b')\nrows = [Message(name) for name in NAMES]", {"a", "b"}),
        ("ROWS = (('a', 1), ('b', 2))\nfor name, _ in ROWS:\n    Message(name)", {"a", "b"}),
        ("TEXTS = {1: 'a', 2: 'b'}\ndef f(x): return Message(TEXTS[x])", {"a", "b"}),
        ("TEXTS = {1: 'a'}\ndef f(x): return Message(TEXTS.get(x, 'z'))", {"a", "z"}),
        ("for key, text in {1: 'a', 2: 'b'}.items():\n    Message(text)", {"a", "b"}),
        ("def f(x): return Message(TABLE[x])", {"from a table", "of another file"}),
        ("def say(key, **facts): return Message(key, facts)\nsay('a')\nsay(key='b', n=1)", {"a", "b"}),
        ("class P:\n    def say(self, key): return Message(key)\n    def f(self): return self.say('a')", {"a"}),
    ],
)
def test_literals_are_followed(tmp_path: Path, code: str, keys: set[str]) -> None:
    found, problems = collected(tmp_path, code)
    assert problems == []
    assert set(found) == keys


@pytest.mark.parametrize(
    "code",
    [
        "def f(x): return Message(f'{x} is slow')",
        "def f(x): return Message(x)",
        "def f(x): return Message(x.text)",
        "def f(x):\n    text = 'a'\n    text = x()\n    return Message(text)",
        "def f(x): return Message('a' if x else 'b', {}, 'many', 2)",
        "Message('a', {}, 'many', 2)\nMessage('a')",
    ],
)
def test_what_cannot_be_followed_is_reported_with_its_place(tmp_path: Path, code: str) -> None:
    (problem,) = collected(tmp_path, code).problems
    assert problem.startswith("src/stepwatch/one.py:")


def test_plurals_stay_with_their_singular(tmp_path: Path) -> None:
    found = collected(tmp_path, "Message('{n:n} run', {}, '{n:n} runs', 2)").by_key
    assert found["{n:n} run"].many == "{n:n} runs"


def test_placeholders_are_read_with_their_kinds() -> None:
    assert placeholders("{cost:range} of {gpu:word}, 100 %") == {"cost:range", "gpu:word"}
