"""Measures the code of stepwatch: how much there is, and how far one has to walk to follow a thought.

    python tools/house.py                    # the figures
    python tools/house.py --by-room          # for each room of src/stepwatch
    python tools/house.py --list helpers     # the names and places behind a figure
    python tools/house.py --walk             # the functions that one answer visits

What is counted, in the Python files of `src`:

files, lines   all of them, including empty lines and comments
functions      `def` and `async def`, including methods and inner functions
helpers        private functions (one leading underscore, including methods) whose name occurs exactly once outside
               their own definition, in a name, an attribute or an import anywhere in `src`
constants      names that a module binds to a number at its top level, including arithmetic on numbers and a tuple of
               names bound to a tuple of numbers
patterns       regular expressions: calls of `re.compile`, `re.match` and similar functions, and of `Pattern`
skips          comments that switch off the formatter for a line
lazy           import statements inside a function
names          module names that occur more than once (except `__init__` and `__main__`)
formats        comparisons of an attribute `format` outside `readers`

The walk runs `stepwatch examples/short.log --gpu 4070` and counts the functions of stepwatch that it enters, each once,
without lambdas and comprehensions, and the files that contain them. The body of a class counts as a function when the
call loads its module; the figures without these are in brackets.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import io
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

MEASURES = ("files", "lines", "functions", "helpers", "constants", "patterns", "skips", "lazy", "names", "formats")
WALK = ("examples/short.log", "--gpu", "4070")
_COMPILING = {"compile", "match", "search", "fullmatch", "findall", "finditer", "sub", "subn", "split"}
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


class Found(NamedTuple):
    """One thing that a measure counts."""

    measure: str
    room: str
    place: str
    name: str


class Module(NamedTuple):
    path: Path
    room: str
    shown: str
    text: str
    tree: ast.Module


def modules(tree: Path) -> list[Module]:
    package = tree / "src" / "stepwatch"
    found = []
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        inner = path.relative_to(package)
        room = inner.parts[0].removesuffix(".py")
        found.append(Module(path, room, str(path.relative_to(tree)), text, ast.parse(text)))
    return found


def measure(read: list[Module]) -> Iterator[Found]:
    references = Counter(name for module in read for name in _references(module.tree))
    stems = Counter(module.path.stem for module in read)
    for module in read:
        yield Found("files", module.room, module.shown, module.path.name)
        for number, line in enumerate(module.text.splitlines(), 1):
            yield Found("lines", module.room, f"{module.shown}:{number}", "")
            if "# fmt: skip" in line:
                yield Found("skips", module.room, f"{module.shown}:{number}", line.strip())
        if stems[module.path.stem] > 1 and not module.path.stem.startswith("__"):
            yield Found("names", module.room, module.shown, module.path.stem)
        for kind, node, name in _nodes(module, references):
            yield Found(kind, module.room, f"{module.shown}:{node.lineno}", name)


def _nodes(module: Module, references: Counter[str]) -> Iterator[tuple[str, ast.stmt | ast.expr, str]]:
    for statement in module.tree.body:
        for name in _numbers(statement):
            yield "constants", statement, name
    lazy: set[ast.stmt] = set()
    for node in ast.walk(module.tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield "functions", node, name
                if name.startswith("_") and not name.startswith("__"):
                    own = Counter(_references(node))[name]
                    if references[name] - own == 1:
                        yield "helpers", node, name
                lazy.update(part for part in ast.walk(node) if isinstance(part, ast.Import | ast.ImportFrom))
            case ast.Call() if _is_pattern(node):
                yield "patterns", node, ast.unparse(node)[:80]
            case ast.Compare() if module.room != "readers":
                if any(
                    isinstance(part, ast.Attribute) and part.attr == "format" for part in (node.left, *node.comparators)
                ):
                    yield "formats", node, ast.unparse(node)
    for statement in lazy:
        yield "lazy", statement, ast.unparse(statement)


def _references(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
            case ast.ImportFrom(names=names):
                yield from (alias.name for alias in names)


def _numbers(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=value)
        ):
            if value is not None and _is_number(value):
                yield name
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            for target, value in zip(names, values, strict=False):
                if _is_number(value):
                    yield ast.unparse(target)


def _is_number(value: ast.expr) -> bool:
    match value:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float()):
            return True
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
    return False


def _is_pattern(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id="re"), attr=name):
            return name in _COMPILING
        case ast.Name(id="Pattern"):
            return True
    return False


# --- the walk ---------------------------------------------------------------------------------------------------


def walk(tree: Path) -> list[CodeType]:
    """The functions of stepwatch, and the bodies of its classes, that the first example visits."""
    source = str(tree / "src")
    sys.path.insert(0, source)
    sys.dont_write_bytecode = True
    os.chdir(tree)
    from stepwatch.cli import main

    visited: set[CodeType] = set()

    def enter(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            visited.add(frame.f_code)

    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        sys.setprofile(enter)
        try:
            main(list(WALK), prog_name="stepwatch")
        finally:
            sys.setprofile(None)
    inside = [code for code in visited if code.co_filename.startswith(source) and not code.co_name.startswith("<")]
    return sorted(inside, key=lambda code: (code.co_filename, code.co_firstlineno))


def _in_files(codes: list[CodeType]) -> str:
    return f"{len(codes)} functions in {len({code.co_filename for code in codes})} files"


# --- what is shown ----------------------------------------------------------------------------------------------


def _row(name: str, counts: Counter[str]) -> str:
    share = counts["helpers"] / counts["functions"] if counts["functions"] else 0.0
    cells = [f"{counts[measure]:>10,}" for measure in MEASURES]
    return f"{name:14}" + "".join(cells) + f"{share:>9.1%}"


def _table(found: Iterable[Found], *, by_room: bool) -> None:
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for one in found:
        rooms[one.room][one.measure] += 1
    print(" " * 14 + "".join(f"{measure:>10}" for measure in MEASURES) + f"{'helpers':>9}")
    if by_room:
        for room, counts in sorted(rooms.items()):
            print(_row(room, counts))
    print(_row("all", sum(rooms.values(), Counter())))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tree", nargs="?", default=".", help="the repository (default: this directory)")
    parser.add_argument("--by-room", action="store_true", help="a row for each room")
    parser.add_argument("--list", choices=MEASURES, help="what this figure counts, one by one")
    parser.add_argument("--room", help="only this room")
    parser.add_argument("--walk", action="store_true", help="the functions that the first example visits")
    parser.add_argument("--names", action="store_true", help="with --walk: which ones")
    options = parser.parse_args()
    tree = Path(options.tree).resolve()
    if options.walk:
        visited = walk(tree)
        for code in visited if options.names else ():
            print(f"{os.path.relpath(code.co_filename, tree)}:{code.co_firstlineno}: {code.co_qualname}")
        called = [code for code in visited if code.co_flags & inspect.CO_OPTIMIZED]
        print(f"{_in_files(visited)} ({_in_files(called)})")
        return
    found = [one for one in measure(modules(tree)) if options.room in (None, one.room)]
    if options.list:
        print("\n".join(f"{one.place}: {one.name}" for one in found if one.measure == options.list))
    else:
        _table(found, by_room=options.by_room)


if __name__ == "__main__":
    main()
