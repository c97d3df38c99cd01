"""Whether a machine has letters to draw with."""

from __future__ import annotations

import pytest

from stepwatch.presenters.pictures import has_no_font

pytest.importorskip("vl_convert")


@pytest.mark.parametrize(("letter", "missing"), [("a", False), ("é", False), ("\U0010fffc", True)])
def test_letters_that_no_font_has_are_known(letter: str, missing: bool) -> None:
    assert has_no_font(letter) is missing
