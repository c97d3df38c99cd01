"""docs/formats.md is what the readers say, and each reader understands its own example."""

from __future__ import annotations

import pytest
from tools.formats_page import PAGE, example_of, page
from tools.pages import page_path

from stepwatch.readers import detect, read
from stepwatch.readers.formats import FORMATS, all_readers, reader_of
from stepwatch.sources import from_bytes, from_text

BINARY = {"tensorboard", "wandb-file", "trackio"}  # these have no lines to show


def test_the_page_of_formats_is_what_the_readers_say() -> None:
    assert page_path(PAGE).read_text(encoding="utf-8") == page(), "docs/formats.md is out of date: run `make pages`"


@pytest.mark.parametrize("name", sorted(set(FORMATS) - BINARY))
def test_a_reader_knows_its_own_example(name: str) -> None:
    source = from_bytes(example_of(name).encode())
    assert detect(source) == name
    assert len(read(source)[0].iterations)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_reader_takes_no_other_s_example_for_its_own(name: str) -> None:
    own = reader_of(name)
    for other in all_readers().values():
        if other.name != name and other.name not in BINARY:
            head = from_text(example_of(other.name)).text
            assert own.sniff(head) < max(other.sniff(head), 1), other.name
