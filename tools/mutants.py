"""Moves every numeric constant of some rooms, up and down, and reports the moves that no test notices.

A move changes one number, by a fifth or more, in a fresh process. The parent runs the tests of a room once, which
imports what they need from outside the room, and forks a child for each move; an import hook in the child changes the
number in the syntax tree of its module, and the child runs quick tests of that room until one fails: first those that
noticed neighbours of the number, then those of files that name its module, then the others. Results are kept, so that
a second run only repeats what changed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import gc
import hashlib
import importlib.util
import itertools
import json
import math
import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import click  # noqa: F401  (imported here, once, so that no child has to)
import jinja2  # noqa: F401
import numpy as np  # noqa: F401
import pytest
import rich.console  # noqa: F401
from hypothesis import Phase, settings, strategies  # noqa: F401

ROOT = Path.cwd()
SRC = ROOT / "src"
ROOMS = ("analysis", "advice", "estimator")
LATEST = 4  # how many tests that noticed other moves of the same module are tried first
FACTOR = 1.25
# In functions these are structure, not thresholds; so are guards against division by zero, indexes and exponents.
STRUCTURE = frozenset({0, 1, 2, 0.5})
GUARD = 1e-6
LEAST_SECONDS, TIMES_USUAL, WAITING = 20, 5, 20  # limits of a child; one that hangs has noticed the move
SLOW_TEST_S = 0.25  # slower tests notice little that quick ones do not, and take a third of the time
EXAMPLES = 25
KEEP_EVERY_S = 20


@dataclass(frozen=True, kw_only=True)
class Move:
    """One number in the source, and its new value."""

    path: str
    line: int
    column: int
    scope: str
    """The function or the assigned name that contains it, with its place among the numbers there."""
    text: str
    value: float
    up: bool

    @property
    def moved(self) -> float:
        if isinstance(self.value, int):
            step = max(1, math.ceil(abs(self.value) * (FACTOR - 1)))
            return self.value + step if self.up else self.value - step
        return self.value * FACTOR if self.up else self.value / FACTOR

    @property
    def key(self) -> str:
        return f"{self.path} {self.scope} {self.text} {'up' if self.up else 'down'}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.scope.rsplit(' ', 1)[0]}: {self.text} -> {self.moved:.6g}"


# --- the numbers ------------------------------------------------------------------------------------------------


def moves_in(path: Path) -> list[Move]:
    """Numbers at module level and in class bodies, and those in functions that are more than structure."""
    name, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    found: list[Move] = []
    counts: dict[str, int] = defaultdict(int)
    for scope, node in _numbers(ast.parse(text)):
        counts[scope] += 1
        place = f"{scope} {counts[scope]}"
        source = ast.get_source_segment(text, node) or str(node.value)
        for up in (True, False):
            found.append(
                Move(
                    path=name,
                    line=node.lineno,
                    column=node.col_offset,
                    scope=place,
                    text=source,
                    value=node.value,
                    up=up,
                )
            )
    return found


def _numbers(tree: ast.Module) -> Iterator[tuple[str, ast.Constant]]:
    def walk(node: ast.AST, scope: str, inside: bool) -> Iterator[tuple[str, ast.Constant]]:
        match node:
            case ast.Constant(value=value):
                if isinstance(value, (int, float)) and not isinstance(value, bool) and _matters(value, inside):
                    yield scope, node
                return
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                parts: Iterable[ast.AST] = [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body]
                scope, inside = scope if inside else f"{scope}.{name}".lstrip("."), True
            case ast.ClassDef(name=name):
                parts, scope = node.body, f"{scope}.{name}".lstrip(".")
            case ast.Assign(targets=[target], value=value) if not inside and not scope:
                parts, scope = [value], ast.unparse(target)
            case ast.AnnAssign(target=target, value=value):
                parts = [value] if value is not None else []
                scope = scope or ast.unparse(target)
            case ast.Subscript(value=value, slice=part):
                parts = [value] if _is_index(part) else [value, part]
            case ast.Dict(values=values):
                parts = values  # a key names something
            case ast.BinOp(left=left, op=ast.Pow()):
                parts = [left]
            case _:
                parts = ast.iter_child_nodes(node)
        for part in parts:
            yield from walk(part, scope, inside)

    return walk(tree, "", False)


def _matters(value: float, inside: bool) -> bool:
    if not inside:
        return value != 0
    return value not in STRUCTURE and abs(value) >= GUARD


def _is_index(node: ast.AST) -> bool:
    return all(isinstance(part, (ast.Slice, ast.Constant, ast.UnaryOp, ast.USub, ast.Tuple, ast.Load))
               for part in ast.walk(node))  # fmt: skip


# --- the tests --------------------------------------------------------------------------------------------------


class Tests:
    """Pytest plugin: runs the chosen tests in order, with few examples; records which failed, and their seconds."""

    def __init__(self, chosen: Iterable[str] | None = None) -> None:
        self._place = None if chosen is None else {nodeid: place for place, nodeid in enumerate(chosen)}
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._place is not None:
            items[:] = sorted(
                (item for item in items if item.nodeid in self._place), key=lambda item: self._place[item.nodeid]
            )
        for item in items:
            test = getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None))
            if hasattr(test, "_hypothesis_internal_use_settings"):
                chosen = test._hypothesis_internal_use_settings or settings()
                test._hypothesis_internal_use_settings = settings(
                    chosen,
                    max_examples=min(chosen.max_examples, EXAMPLES),
                    phases=[Phase.explicit, Phase.generate],
                )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        begun = time.process_time()
        result = yield
        self.seconds[item.nodeid] = time.process_time() - begun
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def run_tests(files: Iterable[str], tests: Tests, *options: str) -> int:
    quiet = ["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0", f"--rootdir={ROOT}"]
    quiet += ["-p", "_hypothesis_pytestplugin"]  # and no other installed plugin
    quiet += ["-p", "no:unraisableexception"]  # it collects garbage five times at the end of each run
    early = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis was imported before pytest started
    return int(pytest.main([*quiet, *early, *options, *files], plugins=[tests]))


def quick_tests(files: list[str]) -> dict[str, float]:
    """The seconds of each test, run in this process so that children find their logs read: no move is in a reader."""
    inner = {name.split(".")[1] for name in sys.modules if name.startswith("stepwatch.")}
    tests = Tests()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        run_tests(files, tests)
    for name in list(sys.modules):
        package, *rest = name.split(".")
        if package == "tests" or (package == "stepwatch" and rest and rest[0] not in inner):
            del sys.modules[name]
            parent = sys.modules.get(name.rpartition(".")[0])
            if hasattr(parent, rest[-1] if rest else ""):
                delattr(parent, rest[-1])
    gc.collect()
    gc.freeze()
    return {
        nodeid: seconds
        for nodeid, seconds in tests.seconds.items()
        if seconds < SLOW_TEST_S and nodeid not in tests.failed
    }


class Order:
    """The tests of a room, in the order in which they are tried on a move."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds
        self._noticed: dict[str, list[str]] = defaultdict(list)
        sources = {nodeid.split("::")[0] for nodeid in seconds}
        self._mentioned = {file: (ROOT / file).read_text(encoding="utf-8") for file in sources}

    def of(self, move: Move) -> tuple[list[str], ...]:
        """Tests that noticed neighbours of the move and those of files that name it or its module; then the others."""
        neighbours = [*self._noticed[_scope(move)], *self._noticed[move.path]]
        latest = [nodeid for nodeid in dict.fromkeys(neighbours) if nodeid in self.seconds][:LATEST]
        stem, room = Path(move.path).stem, Path(move.path).parts[2]
        names = [f"{room}.{stem} import", *re.findall(r"[A-Za-z_]\w{3,}", move.scope)]

        def own(nodeid: str) -> bool:
            file = nodeid.split("::")[0]
            return Path(file).stem == f"test_{stem}" or any(name in self._mentioned[file] for name in names)

        rest = sorted(set(self.seconds) - set(latest), key=self.seconds.__getitem__)
        return latest, list(filter(own, rest)), list(itertools.filterfalse(own, rest))

    def note(self, move: Move, nodeid: str) -> None:
        """Puts a test that noticed a move first for the next moves there."""
        for place in (move.path, _scope(move)):
            noticed = self._noticed[place]
            if nodeid in noticed:
                noticed.remove(nodeid)
            noticed.insert(0, nodeid)


def _scope(move: Move) -> str:
    return f"{move.path} {move.scope.rsplit(' ', 1)[0]}"


# --- one move ---------------------------------------------------------------------------------------------------


class Moved(SourceFileLoader):
    """Imports a module with one of its numbers changed."""

    def __init__(self, name: str, move: Move) -> None:
        super().__init__(name, str(ROOT / move.path))
        self._move = move

    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(Path(self.path).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and (node.lineno, node.col_offset) == (
                self._move.line,
                self._move.column,
            ):
                node.value = self._move.moved
        return compile(tree, self.path, "exec")


class Finder:
    def __init__(self, move: Move) -> None:
        self._name = ".".join(Path(move.path).relative_to("src").with_suffix("").parts).removesuffix(".__init__")
        self._move = move

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, ROOT / self._move.path, loader=Moved(name, self._move))


def try_move(move: Move, stages: Iterable[list[str]], target: Path) -> None:
    """Runs the tests in a child until one fails; its name is the result."""
    sys.meta_path.insert(0, Finder(move))  # type: ignore[arg-type]
    by = ""
    for stage in filter(None, stages):
        tests = Tests(stage)
        files = dict.fromkeys(nodeid.split("::")[0] for nodeid in stage)
        if run_tests(files, tests, "-x") != 0:
            by = tests.failed[0] if tests.failed else stage[0]
            break
    target.write_text(by, encoding="utf-8")


# --- all of them ------------------------------------------------------------------------------------------------


class Children:
    """Runs functions in forked processes, several at a time, each with a time limit."""

    def __init__(self, jobs: int, keep: Callable[[], object]) -> None:
        self._jobs, self._keep, self._kept_at = jobs, keep, time.monotonic()
        self._running: dict[int, tuple[Path, Callable[[str | None], None]]] = {}
        self._place = Path(tempfile.mkdtemp(prefix="mutants-"))
        self._count = 0

    def start(self, work: Callable[[Path], None], limit_s: float, done: Callable[[str | None], None]) -> None:
        """`done` gets what the child wrote, or None if it died or hung."""
        while len(self._running) >= self._jobs:
            self._wait()
        self._count += 1
        target = self._place / str(self._count)
        sys.stdout.flush()
        child = os.fork()
        if child:
            self._running[child] = target, done
            return
        try:
            limit = math.ceil(limit_s)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            signal.alarm(limit * WAITING)  # a sleeping child uses no processor time
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            work(target)
        finally:
            os._exit(0)

    def finish(self) -> None:
        while self._running:
            self._wait()

    def _wait(self) -> None:
        child, _ = os.wait()
        target, done = self._running.pop(child)
        done(target.read_text(encoding="utf-8") if target.exists() else None)
        target.unlink(missing_ok=True)
        if not self._running or time.monotonic() > self._kept_at + KEEP_EVERY_S:
            self._keep()
            self._kept_at = time.monotonic()


@functools.cache
def digest(*paths: str) -> str:
    return hashlib.sha256(b"".join((ROOT / path).read_bytes() for path in paths)).hexdigest()[:16]


def run(moves: list[Move], kept: dict[str, Any], children: Children) -> dict[str, str]:
    """For each move of a room, the test that noticed it, or "" for none. Unchanged moves are not tried again."""
    room = Path(moves[0].path).parts[2]
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests/unit" / room).rglob("test_*.py"))
    shared = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("*.py"))

    def state(move: Move, by: str) -> str:
        file = by.split("::")[0]
        return digest(move.path, *shared, *([file] if (ROOT / file).is_file() else files))

    found: dict[str, str] = {}
    for move in moves:
        old = kept.get(move.key)
        if old and old["state"] == state(move, old["by"]):
            found[move.key] = old["by"]
    order = Order(quick_tests(files)) if len(found) < len(moves) else Order({})
    limit = LEAST_SECONDS + TIMES_USUAL * sum(order.seconds.values())
    for number, move in enumerate(moves, 1):
        if kept.get(move.key, {}).get("by"):
            order.note(move, kept[move.key]["by"])
        if move.key in found:
            continue

        def done(written: str | None, move: Move = move, number: int = number) -> None:
            by = found[move.key] = "does not end" if written is None else written
            if by:
                order.note(move, by)
            kept[move.key] = {"by": by, "state": state(move, by)}
            print(f"{number}/{len(moves)} {'noticed' if by else 'SURVIVES'}  {move}  {by}", file=sys.stderr)

        children.start(functools.partial(try_move, move, order.of(move)), limit, done)
    children.finish()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "places", nargs="*", help="files or directories; src/stepwatch/{analysis,advice,estimator} if none"
    )
    parser.add_argument("--json", type=Path, help="write the results of all moves to this file")
    parser.add_argument("--cache", type=Path, default=ROOT / ".mutants.json", help="where results are kept")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="only list the moves")
    options = parser.parse_args()
    places = options.places or [f"src/stepwatch/{room}" for room in ROOMS]
    rooms: dict[str, list[Move]] = defaultdict(list)
    for place in places:
        for path in [Path(place)] if place.endswith(".py") else sorted(Path(place).rglob("*.py")):
            rooms[path.parts[2]] += moves_in(ROOT / path)
    moves = [move for room in rooms.values() for move in room]
    if options.list:
        print(*moves, sep="\n")
        return 0
    kept: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads(options.cache.read_text(encoding="utf-8"))
    sys.path[:0] = [str(SRC), str(ROOT)]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = False  # otherwise every child compiles all modules again
    sys.pycache_prefix = tempfile.mkdtemp(prefix="mutants-pyc-")
    from stepwatch import gpus, readers  # noqa: F401  (stays imported: no move touches it)
    from stepwatch.readers import reading

    reading._read_text = functools.cache(reading._read_text)
    children = Children(options.jobs, lambda: options.cache.write_text(json.dumps(kept), encoding="utf-8"))
    found: dict[str, str] = {}
    for room in rooms.values():
        if room:
            found |= run(room, kept, children)
    for move in moves:
        if not found[move.key]:
            print(move)
    noticed = sum(bool(by) for by in found.values())
    print(f"{noticed} of {len(moves)} moves noticed ({100 * noticed / max(len(moves), 1):.0f} %)")
    if options.json:
        rows = [{"place": str(move), "key": move.key, "noticed_by": found[move.key]} for move in moves]
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
