"""Dictionaries read many at once, by the shape of the first of them."""

from __future__ import annotations

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.columns import Block
from stepwatch.readers.dictionaries import dictionaries

LOSS = Pattern(rb"""['"]loss['"]: """)


def field(key: str, value: str) -> str | None:
    return {"loss": "{loss+?}", "at": "{at+}/{last+}", "took": "{took;}"}.get(key)


def told(text: bytes) -> dict[int, dict[str, float]]:
    """What is told on each line."""
    block = Block.of(text)
    found = {}
    for lines, columns in dictionaries(text, block, np.arange(len(block.starts)), LOSS, field):
        for row, line in enumerate(lines.tolist()):
            found[line] = {name: float(column[row]) for name, column in columns.items()}
    return found


def test_values_of_the_wanted_keys_whatever_stands_between() -> None:
    text = (
        b"{'loss': '1.284', 'norm': '0.91', 'at': '3/500', 'took': '1h 2m 3s', 'left': '2h 1s', 'memory (GiB)': 8.1}\n"
        b"{'loss': '0.7', 'norm': 'nan', 'at': '10/500', 'took': '4s', 'left': '59m 1s', 'memory (GiB)': 12.13}\n"
    )
    assert told(text) == {
        0: {"loss": 1.284, "at": 3.0, "last": 500.0, "took": 3723.0},
        1: {"loss": 0.7, "at": 10.0, "last": 500.0, "took": 4.0},
    }


def test_plain_values_and_numbers_that_are_unknown() -> None:
    text = b'{"loss": 1.92089844, "lr": 4e-08}\n{"loss": NaN, "lr": 0.0}\n{"loss": nan, "lr": 1}'
    assert told(text) == {0: {"loss": 1.92089844}, 2: {"loss": np.inf}}


def test_each_shape_is_learned() -> None:
    text = b"{'eval_loss': 2.0}\n{'loss': 1.5}\n{'loss': 1.25, 'x': 1}\n{'loss': 1.0}\n{'x': 1, 'loss': 0.5}"
    assert {line: row["loss"] for line, row in told(text).items()} == {1: 1.5, 2: 1.25, 3: 1.0, 4: 0.5}


def test_what_is_no_dictionary_from_end_to_end_is_left() -> None:
    assert told(b"{'loss': 1.5} 10%|# | 1/10\n{'loss': [1, 2]}\n{'loss': 1.5, 'x': {'y': 1}}\n{'loss': 1.5\n") == {}
