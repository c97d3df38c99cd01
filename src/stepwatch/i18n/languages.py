"""The languages. Each is a row here and a folder in `locales`; English has no folder, since it is the key."""

from __future__ import annotations

from typing import NamedTuple


class Language(NamedTuple):
    """How a language calls itself, and how it writes numbers and units.

    The separators are CLDR's, as Babel has them; they stand here because loading a locale's data takes longer than
    explaining a log. A test compares every one with Babel.
    """

    name: str
    decimal: str
    group: str
    space: str  # between a figure and its unit
    epochs: tuple[tuple[str, str], ...]  # what replaces “iteration” where an epoch is meant: of the same gender in all
    least_digits: int = 1  # before the first separator: Spanish writes 1234 but 12.345
    day: str = "d"
    byte: str = "B"


TABLE = {
    "en": Language(
        "English", decimal=".", group=",", space=" ", epochs=(("iteration", "epoch"), ("Iteration", "Epoch"))
    ),
    "fr": Language(
        "Français", decimal=",", group="\u202f", space="\u202f", day="j", byte="o",
        epochs=(("itération", "époque"), ("Itération", "Époque")),
    ),
    "de": Language(
        "Deutsch", decimal=",", group=".", space="\u00a0",
        epochs=(("Iterationen", "Epochen"), ("Iteration", "Epoche")),
    ),
    "es": Language(
        "Español", decimal=",", group=".", space="\u00a0", least_digits=2,
        epochs=(
            ("iteraciones", "épocas"), ("iteración", "época"), ("Iteraciones", "Épocas"), ("Iteración", "Época"),
        ),
    ),
}  # fmt: skip
