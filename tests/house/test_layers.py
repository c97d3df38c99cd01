"""The law of the arrows: a room imports only the rooms that docs/architecture.md allows it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.trees import FILES, nodes_of, tree_of
from tools import ROOT, SOURCE

GROUND = {"patterns", "messages", "errors", "units", "bounds", "platforms"}
# Inner rooms first; each may import the ground floor and what is named here, all of it further up in this table.
MAY_IMPORT: dict[str, set[str]] = {
    "patterns": set(),
    "messages": set(),
    "platforms": {"patterns"},
    "errors": {"messages", "platforms"},
    "units": {"errors", "messages"},
    "bounds": {"units"},
    "settings": set(),
    "gpus": {"settings"},
    "run": {"settings"},
    "samples": {"run"},
    "sources": {"run", "samples"},
    "readers": {"run", "settings", "sources"},
    "estimator": {"gpus", "settings"},
    "analysis": {"estimator", "gpus", "run", "samples", "settings"},
    "advice": {"analysis", "estimator", "gpus", "run", "settings"},
    "verdict": {"advice", "analysis", "run", "settings"},
    "report": {"advice", "analysis", "estimator", "run", "settings", "verdict"},
    "fleet_report": set(),
    "answers": {
        "advice",
        "analysis",
        "estimator",
        "gpus",
        "readers",
        "report",
        "run",
        "samples",
        "settings",
        "sources",
        "verdict",
    },
    "watch": {"analysis", "readers", "run", "samples", "sources", "verdict"},
    "sampler": {"gpus", "samples"},
    "recorder": {"samples"},
    "i18n": set(),
    "trainer": {"gpus", "recorder", "settings"},
    "options": {"i18n", "settings", "sources"},
    "presenters": {
        "advice",
        "analysis",
        "estimator",
        "fleet_report",
        "gpus",
        "i18n",
        "report",
        "run",
        "settings",
        "verdict",
        "watch",
    },
    "notebook": {"answers", "i18n", "options", "presenters", "report", "sources"},
    "verbs": {"analysis", "answers", "estimator", "gpus", "notebook", "readers", "run", "settings", "sources"},
    "fleet": {
        "analysis",
        "answers",
        "estimator",
        "fleet_report",
        "gpus",
        "i18n",
        "presenters",
        "readers",
        "report",
        "run",
        "samples",
        "settings",
        "sources",
        "verdict",
    },
    "web": {"answers", "fleet", "i18n", "options", "presenters", "samples", "settings", "sources", "watch"},
    "cli": {
        "answers",
        "fleet",
        "fleet_report",
        "gpus",
        "i18n",
        "options",
        "presenters",
        "sampler",
        "samples",
        "settings",
        "trainer",
        "watch",
        "web",
    },
}
FACADE = {"__init__", "__main__"}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported_rooms(path: Path) -> Iterator[tuple[int, str]]:
    """The rooms that a file imports, wherever in it and for whatever purpose."""
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno}: relative import"
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "stepwatch"
                else [node.module or ""]
            )
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "stepwatch":
                yield node.lineno, [*name.split("."), "__init__"][1]


def test_every_room_is_in_the_table() -> None:
    assert {room_of(path) for path in FILES} - FACADE == set(MAY_IMPORT)


def test_the_page_shows_the_same_table() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| `([a-z]\w+)` \|.*\| ([^|]+) \|$", page)
    assert {room: set(re.findall(r"\w+", inner)) for room, inner in rows} == MAY_IMPORT


def test_arrows_point_inwards() -> None:
    rooms = list(MAY_IMPORT)
    for room, inner in MAY_IMPORT.items():
        assert inner <= set(rooms[: rooms.index(room)]), room


def test_a_room_imports_only_inner_rooms() -> None:
    for path in (path for path in FILES if room_of(path) not in FACADE):
        room = room_of(path)
        allowed = {room} | MAY_IMPORT[room] | (GROUND if room not in GROUND else set())
        wrong = [f"line {line}: {room} imports {other}" for line, other in imported_rooms(path) if other not in allowed]
        assert not wrong, (path, wrong)


def test_only_the_command_line_and_the_page_load_the_fleet() -> None:
    """It needs packages that a plain install does not have: nothing loads it before it is asked for."""
    outside = [path for path in FILES if room_of(path) not in ("fleet", *FACADE)]
    at_once = [
        f"{path.name}:{node.lineno}"
        for path in outside
        for node in tree_of(path).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[:2] == ["stepwatch", "fleet"]
    ]
    assert at_once == []
