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
    least_digits: int = 1  # before the first separator: Spanish writes 1234 but 12.345
    day: str = "d"
    byte: str = "B"


TABLE = {
    "en": Language("English", decimal=".", group=",", space=" "),
    "fr": Language("Français", decimal=",", group="\u202f", space="\u202f", day="j", byte="o"),
    "de": Language("Deutsch", decimal=",", group=".", space="\u00a0"),
    "es": Language("Español", decimal=",", group=".", space="\u00a0", least_digits=2),
}
