"""Moves every numeric constant of some rooms, up and down, and reports the moves that no test notices.

A move is one number, changed by a fifth or more, in a fresh process: the parent has imported what the tests need from
outside the project and forks a child for each move; an import hook in the child changes the number in the syntax tree
of its module, and the child runs the tests that call the functions which use it, until one fails. Results are kept, so
that a second run redoes only what changed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import gc
import hashlib
import importlib.util
import json
import math
import os
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
from types import CodeType, FrameType
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
TESTS = tuple(f"tests/unit/{room}" for room in ROOMS)
LATEST = 8  # so many tests that noticed other moves of the same module are tried first
FACTOR = 1.25
# Inside functions these are structure, not thresholds; so are guards against a division by zero, indexes, exponents.
STRUCTURE = frozenset({0, 1, 2, 0.5})
GUARD = 1e-6
LEAST_SECONDS, TIMES_USUAL, WAITING = 20, 5, 20  # a child may take so long; one that hangs has noticed the move
SLOW_TEST_S = 0.2  # while its calls are noted; slower ones notice little that quick ones do not, and cost half of all
EXAMPLES = 25
KEEP_EVERY_S = 20


@dataclass(frozen=True, kw_only=True)
class Move:
    """One number in the source, and what it becomes."""

    path: str
    line: int
    column: int
    scope: str
    """The function or the assigned name that holds it, with its place among the numbers there."""
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
    """Numbers at module level and in class bodies, and those in functions that are not mere structure."""
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


class Uses:
    """Which functions depend on a name at module level, by the names alone."""

    def __init__(self) -> None:
        self._functions: dict[str, set[str]] = defaultdict(set)
        self._names: dict[str, set[str]] = defaultdict(set)
        for path in sorted((SRC / "stepwatch").rglob("*.py")):
            name = str(path.relative_to(ROOT))
            for statement in ast.parse(path.read_text(encoding="utf-8")).body:
                self._add(name, "", statement)

    def _add(self, path: str, scope: str, node: ast.stmt) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for name in _mentioned(node):
                self._functions[name].add(f"{path}::{scope}{node.name}")
        elif isinstance(node, ast.ClassDef):
            for name in _mentioned(node):
                self._names[name].add(node.name)
            for part in node.body:
                self._add(path, f"{scope}{node.name}.", part)
                if isinstance(part, ast.FunctionDef):
                    self._functions[node.name].add(f"{path}::{scope}{node.name}.{part.name}")
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            made = {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
            for name in _mentioned(node) - made:
                self._names[name] |= made

    def of(self, names: Iterable[str]) -> set[str]:
        waiting, seen = list(names), set()
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += self._names[name]
        return {function for name in seen for function in self._functions[name]}


def _mentioned(node: ast.AST) -> set[str]:
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


# --- which test calls which function ----------------------------------------------------------------------------


class Calls:
    """Pytest plugin: the functions of the package that each test calls, and how long it takes.

    What runs while a test module is imported or a fixture is set up counts for all tests of the file.
    """

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self._shared: dict[str, set[str]] = defaultdict(set)
        self._seen: set[CodeType] = set()
        self._failed: set[str] = set()

    def trace(self, frame: FrameType, event: str, argument: object) -> None:
        self._seen.add(frame.f_code)

    def _taken(self) -> set[str]:
        codes, self._seen = self._seen, set()
        inside = tuple(str(SRC / "stepwatch" / room) + os.sep for room in ROOMS)
        return {
            f"{os.path.relpath(code.co_filename, ROOT)}::{code.co_qualname.split('.<locals>')[0]}"
            for code in codes
            if code.co_filename.startswith(inside)
        }

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        sys.settrace(self.trace)
        report = yield
        self._shared[collector.nodeid.split("::")[0]] |= self._taken()
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        for name, module in list(sys.modules.items()):
            if name.startswith("stepwatch"):
                for value in list(vars(module).values()):
                    if hasattr(value, "cache_clear"):
                        value.cache_clear()
        sys.settrace(self.trace)
        begun = time.process_time()
        result = yield
        self.tests[item.nodeid] = {"calls": self._taken(), "seconds": time.process_time() - begun}
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        result = yield
        self._shared[item.nodeid.split("::")[0]] |= self._taken()
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)

    def result(self) -> dict[str, Any]:
        sys.settrace(None)
        return {
            nodeid: {"calls": sorted(test["calls"] | self._shared[nodeid.split("::")[0]]), "seconds": test["seconds"]}
            for nodeid, test in self.tests.items()
            if nodeid not in self._failed and test["seconds"] < SLOW_TEST_S
        }


def calls_of(file: str, target: Path) -> None:
    """In a child: runs a test file and writes which of its tests call what."""
    calls = Calls()
    run_tests([file], plugins=[calls, FewExamples()])
    target.write_text(json.dumps(calls.result()), encoding="utf-8")


def run_tests(names: list[str], *options: str, plugins: list[object]) -> int:
    quiet = ["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0", f"--rootdir={ROOT}"]
    quiet += ["-p", "_hypothesis_pytestplugin"]  # and no other plugin that happens to be installed
    quiet += ["-p", "no:unraisableexception"]  # it collects garbage five times at the end of each run
    early = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis was imported before pytest began
    return int(pytest.main([*quiet, *early, *options, *names], plugins=plugins))


class FewExamples:
    """Pytest plugin: properties are tried on few examples, always the same."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            test = getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None))
            if hasattr(test, "_hypothesis_internal_use_settings"):
                chosen = test._hypothesis_internal_use_settings or settings()
                phases = [Phase.explicit, Phase.generate]
                test._hypothesis_internal_use_settings = settings(
                    chosen, max_examples=min(chosen.max_examples, EXAMPLES), phases=phases
                )


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


class Failure:
    """Pytest plugin: the first test that fails."""

    name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid


def warm_up(files: list[str]) -> None:
    """Runs the tests once in this process, so that every child finds their logs read: no reader is moved."""
    from stepwatch import gpus, readers  # noqa: F401
    from stepwatch.readers import reading

    reading._read_text = functools.cache(reading._read_text)
    inner = {name.split(".")[1] for name in sys.modules if name.startswith("stepwatch.")}
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        run_tests(files, plugins=[FewExamples()])
    for name in list(sys.modules):
        package, *rest = name.split(".")
        if package == "tests" or (package == "stepwatch" and rest and rest[0] not in inner):
            del sys.modules[name]
            parent = sys.modules.get(name.rpartition(".")[0])
            if hasattr(parent, rest[-1] if rest else ""):
                delattr(parent, rest[-1])
    gc.collect()
    gc.freeze()


def try_move(move: Move, files: list[list[str]], target: Path) -> None:
    """In a child: the tests, file by file, until one fails; its name is the result."""
    sys.meta_path.insert(0, Finder(move))  # type: ignore[arg-type]
    failure = Failure()
    for names in files:
        if run_tests(names, "-x", plugins=[failure, FewExamples()]) not in (0, 5):
            target.write_text(failure.name or names[0], encoding="utf-8")
            return
    target.write_text("", encoding="utf-8")


# --- all of them ------------------------------------------------------------------------------------------------


class Children:
    """Runs functions in forked processes, some at a time, each with a time limit."""

    def __init__(self, jobs: int, keep: Callable[[], object]) -> None:
        self._jobs, self._keep, self._kept_at = jobs, keep, time.monotonic()
        self._running: dict[int, tuple[Path, Callable[[str | None], None]]] = {}
        self._place = Path(tempfile.mkdtemp(prefix="mutants-"))
        self._count = 0

    def start(self, work: Callable[[Path], None], limit_s: float, done: Callable[[str | None], None]) -> None:
        """`done` gets what the child wrote, or None where it died or hung."""
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
            signal.alarm(limit * WAITING)  # what sleeps takes no processor time
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


def test_files(places: Iterable[str]) -> list[str]:
    found = [
        path
        for place in places
        for path in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("test_*.py"))
    ]
    return sorted(str(path.relative_to(ROOT)) for path in found)


@functools.cache
def digest(path: str) -> str:
    return hashlib.sha256((ROOT / path).read_bytes()).hexdigest()[:16]


def shared_digest() -> str:
    """Of what all tests share."""
    files = [*sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("*.py"))]
    return hashlib.sha256("".join(map(digest, files)).encode()).hexdigest()[:16]


def find_calls(files: list[str], kept: dict[str, Any], children: Children) -> dict[str, Any]:
    """Tests with the functions that they call. A test file is run again when it changed, not when the package did."""
    known = kept.setdefault("calls", {})
    for file in files:
        if known.get(file, {}).get("digest") == digest(file):
            continue

        def done(written: str | None, file: str = file) -> None:
            print(f"  {file}" + ("" if written else ": cannot be run"), file=sys.stderr)
            known[file] = {"digest": digest(file), "tests": json.loads(written) if written else {}}

        children.start(functools.partial(calls_of, file), 600, done)
    children.finish()
    return {nodeid: test for file in files for nodeid, test in known.get(file, {}).get("tests", {}).items()}


class Selection:
    """The tests for a move, of its own room: those that noticed its neighbours, its module's, then the others."""

    def __init__(self, tests: dict[str, Any]) -> None:
        self._seconds = {nodeid: test["seconds"] for nodeid, test in tests.items()}
        self._callers: dict[str, set[str]] = defaultdict(set)
        for nodeid, test in tests.items():
            for function in test["calls"]:
                self._callers[function].add(nodeid)
        self._uses = Uses()
        files = {nodeid.split("::")[0] for nodeid in tests}
        self._mentioned = {file: _mentioned(ast.parse((ROOT / file).read_text(encoding="utf-8"))) for file in files}
        self._noticed: dict[str, list[str]] = defaultdict(list)

    def of(self, move: Move) -> list[str]:
        name = move.scope.rsplit(" ", 1)[0]
        found = set(self._callers[f"{move.path}::{name}"])
        if not found:  # a constant: functions that depend on it, else any of its module
            names = [part.strip(" ()*") for part in name.replace(".", ",").split(",")]
            functions = self._uses.of(names)
            found = {nodeid for function in functions for nodeid in self._callers[function]}
            direct = {file for file, mentioned in self._mentioned.items() if mentioned & set(names)}
            found |= {nodeid for nodeid in self._seconds if nodeid.split("::")[0] in direct}
        if not found:
            inside = [function for function in self._callers if function.startswith(f"{move.path}::")]
            found = {nodeid for function in inside for nodeid in self._callers[function]}
        room = Path(move.path).parent.name
        return sorted({nodeid for nodeid in found if Path(nodeid.split("::")[0]).parent.name == room} or found)

    def ordered(self, move: Move) -> list[list[str]]:
        files: dict[str, list[str]] = defaultdict(list)
        for nodeid in self.of(move):
            files[nodeid.split("::")[0]].append(nodeid)

        def distance(file: str) -> tuple[bool, float]:
            seconds = sum(self._seconds[nodeid] for nodeid in files[file])
            return Path(file).stem != f"test_{Path(move.path).stem}", seconds

        scope = move.scope.rsplit(" ", 1)[0]
        neighbours = [*self._noticed[f"{move.path} {scope}"], *self._noticed[move.path]]
        latest = [nodeid for nodeid in dict.fromkeys(neighbours) if nodeid in self._seconds][:LATEST]
        rest = [sorted(files[file], key=self._seconds.__getitem__) for file in sorted(files, key=distance)]
        return [latest, *rest] if latest else rest

    def note(self, move: Move, nodeid: str) -> None:
        """A test that noticed a move is the first to be tried on the next ones there."""
        for place in (move.path, f"{move.path} {move.scope.rsplit(' ', 1)[0]}"):
            noticed = self._noticed[place]
            if nodeid in noticed:
                noticed.remove(nodeid)
            noticed.insert(0, nodeid)

    def seconds(self, files: list[list[str]]) -> float:
        return sum(self._seconds[nodeid] for names in files for nodeid in names)


def run(moves: list[Move], tests: dict[str, Any], kept: dict[str, Any], children: Children) -> dict[str, str]:
    """For each move the test that noticed it, "" where none did."""
    selection, results = Selection(tests), kept.setdefault("results", {})
    shared = shared_digest()
    found: dict[str, str] = {}
    for number, move in enumerate(moves, 1):
        old = results.get(move.key, {})
        if old.get("by"):
            selection.note(move, old["by"])
        files = selection.ordered(move)
        by = old.get("by", "").split("::")[0]
        state = [digest(move.path), shared]
        relevant = [by] if by and (ROOT / by).exists() else sorted({names[0].split("::")[0] for names in files})
        if old and old["state"] == [*state, *map(digest, relevant)]:
            found[move.key] = old["by"]
            continue

        def done(
            written: str | None, move: Move = move, files: Any = files, state: Any = state, number: int = number
        ) -> None:
            by = "does not end" if written is None else written
            file = by.split("::")[0]
            found[move.key] = by
            if by:
                selection.note(move, by)
            known = file if (ROOT / file).is_file() else ""
            used = [known] if known else sorted({names[0].split("::")[0] for names in files})
            results[move.key] = {"by": by, "state": [*state, *map(digest, used)]}
            print(f"{number}/{len(moves)} {'noticed' if by else 'SURVIVES'}  {move}  {by}", file=sys.stderr)

        limit = LEAST_SECONDS + TIMES_USUAL * selection.seconds(files)
        children.start(functools.partial(try_move, move, files), limit, done)
    children.finish()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "places", nargs="*", help="files or directories; src/stepwatch/{analysis,advice,estimator} if none"
    )
    parser.add_argument("--tests", nargs="*", default=TESTS, help="test files or directories to notice by")
    parser.add_argument("--json", type=Path, help="write the results of all moves to this file")
    parser.add_argument("--cache", type=Path, default=ROOT / ".mutants.json", help="where results are kept")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="only list the moves")
    options = parser.parse_args()
    places = options.places or [f"src/stepwatch/{room}" for room in ROOMS]
    paths = [
        path
        for place in places
        for path in ([Path(place)] if place.endswith(".py") else sorted(Path(place).rglob("*.py")))
    ]
    moves = [move for path in paths for move in moves_in(ROOT / path)]
    if options.list:
        print(*moves, sep="\n")
        return 0
    kept: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads(options.cache.read_text(encoding="utf-8"))
    sys.path[:0] = [str(SRC), str(ROOT)]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = False  # else every child compiles all modules again
    sys.pycache_prefix = tempfile.mkdtemp(prefix="mutants-pyc-")
    children = Children(options.jobs, lambda: options.cache.write_text(json.dumps(kept), encoding="utf-8"))
    tests = find_calls(test_files(options.tests), kept, children)
    rooms = {Path(path).parts[2] for path in paths}
    own = test_files(place for place in options.tests if rooms & {*Path(place).parts})
    if rooms <= set(ROOMS) and own:  # without a name pytest would run every test there is
        warm_up(own)
    found = run(moves, tests, kept, children)
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
