"""Words that are searched for all at once are found where a search for each would find them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from stepwatch.readers.columns import Block
from stepwatch.readers.words import Words

WORDS = (b"%|", b"loss: ", b"lost", b"Epoch ", b"Epilogue", b" ERROR] at", b"\xe2\x96\xbc", b"x")


@pytest.mark.parametrize("size", [0, 40, 5000])
def test_each_word_is_found_wherever_it_begins(size: int) -> None:
    text = b"." * size + b"lossloss: lost 12%|Epoch \nEpilogue ERROR] at \xe2\x96\xbc Ep %| los" + b"-" * size + b"x"
    wanted = sorted(found.start() for word in WORDS for found in re.finditer(re.escape(word), text))
    assert [match.start() for match in Words(WORDS).found(text)] == wanted


@pytest.mark.parametrize("size", [1, 5000])
def test_only_the_lines_that_are_asked_for_are_looked_at(size: int) -> None:
    noise = b"." * size
    text = b"\n".join((b"Epoch 1", noise, b"lost", b"", b"a loss: 1 loss: 2", noise, b"Epoch 2")) + b"\n"
    block = Block.of(text)
    assert Words(WORDS).among(text, block, np.array([0, 1, 4, 5, 6])) == [0, 4, 6]
    assert Words(WORDS).among(text, block, np.array([1, 2])) == [2]
    assert Words(WORDS).among(text, block, np.array([], np.int64)) == []
