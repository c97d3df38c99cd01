"""Names of the pieces of a rotated log: train.log.2.gz, train.1.log, train.log-20240101."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stepwatch.patterns import Pattern

_DATE = r"\d{4}-?[01]\d-?[0-3]\d(?:[-_T.]?\d\d[-:.]?\d\d(?:[-:.]?\d\d)?)?"
_INDEX = rf"(?:[.-](?P<date>{_DATE})|\.(?P<number>\d{{1,4}}))"
_PACKED = r"(?:\.(?:gz|xz|bz2|zst))?"
_BEHIND = Pattern(rf"(?P<base>.+?){_INDEX}?(?P<suffix>){_PACKED}")
_BEFORE = Pattern(rf"(?P<base>.+?){_INDEX}(?P<suffix>\.[A-Za-z]{{2,6}}){_PACKED}")


class Name(NamedTuple):
    base: str
    """What the pieces of a log have in common: the name of its newest."""
    date: str = ""
    number: int | None = None

    @property
    def age(self) -> tuple[bool, str, int]:
        """Sorts the oldest first: dates rise, numbers fall, and what has neither is the newest."""
        return not self.date and self.number is None, self.date, -(self.number or 0)


def name_of(name: str) -> Name:
    """By the number or date behind the name, which is usual, else by one before its ending."""
    behind = _BEHIND.fullmatch(name)
    found = behind if behind is not None and (behind["date"] or behind["number"]) else _BEFORE.fullmatch(name) or behind
    if found is None:
        return Name(name)
    date = "".join(letter for letter in found["date"] or "" if letter.isdigit())
    return Name(found["base"] + found["suffix"], date, int(found["number"]) if found["number"] else None)


def groups_of(names: Iterable[str]) -> list[list[tuple[Name, str]]]:
    """Names that may be pieces of one log, the oldest first; whether they are, only their content tells."""
    known = {name: name_of(name) for name in names}
    bases = {found.base for name, found in known.items() if name.startswith(found.base)}
    groups: dict[str, list[tuple[Name, str]]] = {}
    for name, found in known.items():
        own = found if name.startswith(found.base) or name not in bases else Name(name)  # a.1.log, beside a.1.log.2
        groups.setdefault(own.base, []).append((own, name))
    return [sorted(members, key=lambda member: member[0].age) for members in groups.values()]
