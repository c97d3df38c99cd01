"""Every sentence of stepwatch, found by reading the source and never by running it.

A sentence is the first argument of `Message(...)`, with its plural, the third. The argument may be a literal, a
conditional of literals, a name bound to literals in the function or the module, an entry of a table of literals, or a
parameter, which is followed to the calls of its function. Anything else is reported: no catalogue could hold it.
"""

from __future__ import annotations

import ast
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "stepwatch"
HINT = (
    "give Message a literal, a conditional of literals, a local name bound to literals, or an entry of a module-level "
    "table of literals; for a table that this cannot follow, name it in TABLES of tests/house/sentences.py"
)

# Calls whose key cannot be followed: "file.py:function" -> the module-level names whose strings are the keys.
TABLES: dict[str, tuple[str, ...]] = {}

_DEEPEST = 8
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


@dataclass(slots=True)
class Sentence:
    key: str
    many: str | None
    places: list[tuple[str, int]] = field(default_factory=list)


class Sentences(NamedTuple):
    by_key: dict[str, Sentence]
    problems: list[str]


class Value(NamedTuple):
    """An expression and the module in which its names mean something."""

    node: ast.expr
    module: Module


class UnresolvedError(Exception):
    """The expression is not made of literals."""


class Module:
    """One parsed file, with the way up from every node."""

    def __init__(self, path: Path, source: Path) -> None:
        self.inside = path.relative_to(source).as_posix()
        self.place = path.relative_to(source.parent.parent).as_posix()
        self.name = ".".join(path.relative_to(source.parent).with_suffix("").parts).removesuffix(".__init__")
        self.tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        self.above = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self.imported = {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(self.tree) if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }  # fmt: skip

    def scopes(self, node: ast.AST) -> Iterator[ast.AST]:
        """Functions, comprehensions and at last the module around a node."""
        while node in self.above:
            node = self.above[node]
            if isinstance(node, _Function | _Comprehension | ast.Module):
                yield node

    def function_around(self, node: ast.AST) -> str:
        names = [scope.name for scope in self.scopes(node) if isinstance(scope, ast.FunctionDef)]
        return names[0] if names else "<module>"


def placeholders(template: str) -> set[str]:
    """`{cost:time}` as "cost:time"."""
    return {f"{name}:{kind}" for _, name, kind, _ in string.Formatter().parse(template) if name is not None}


def collect(source: Path = SOURCE) -> Sentences:
    """All sentences of the package, in the order of the files, and what could not be followed."""
    return _House([Module(path, source) for path in sorted(source.rglob("*.py"))]).sentences()


class _House:
    def __init__(self, modules: list[Module]) -> None:
        self.modules = {module.name: module for module in modules}

    def sentences(self) -> Sentences:
        found: dict[str, Sentence] = {}
        problems: list[str] = []
        for module in self.modules.values():
            for call in sorted(self._calls_of_message(module), key=lambda call: (call.lineno, call.col_offset)):
                place = (module.place, call.lineno)
                try:
                    pairs = self._pairs(call, module)
                except (UnresolvedError, RecursionError):
                    problems.append(f"{place[0]}:{place[1]}: {ast.unparse(call)[:100]}\n    {HINT}")
                    continue
                for key, many in pairs:
                    sentence = found.setdefault(key, Sentence(key, many))
                    if sentence.many != many:
                        problems.append(f"{place[0]}:{place[1]}: {key!r} is used with and without its plural")
                    sentence.places.append(place)
        return Sentences(found, problems)

    def _calls_of_message(self, module: Module) -> Iterator[ast.Call]:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if module.imported.get(node.func.id) == ("stepwatch.messages", "Message"):
                    yield node
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "Message":
                yield node

    def _pairs(self, call: ast.Call, module: Module) -> list[tuple[str, str | None]]:
        key, many = _argument(call, 0, "key"), _argument(call, 2, "many")
        if key is None:
            raise UnresolvedError
        keys = self._strings(key, call, module)
        plurals = [None] if many is None else self._strings(many, call, module)
        if len(plurals) > 1 or (plurals != [None] and len(keys) > 1):
            raise UnresolvedError  # which plural belongs to which singular could not be told
        return [(text, plurals[0]) for text in keys]

    def _strings(self, node: ast.expr, call: ast.Call, module: Module) -> list[str]:
        table = TABLES.get(f"{module.inside}:{module.function_around(call)}")
        if table is not None:
            values = [value for name in table for value in self._named(name, module.tree, module, 0)]
            strings = [
                part.value for value in values for part in ast.walk(value.node)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]  # fmt: skip
        else:
            strings = [self._string(value) for value in self._values(Value(node, module), 0)]
        if not strings:
            raise UnresolvedError
        return list(dict.fromkeys(strings))

    def _string(self, value: Value) -> str:
        match value.node:
            case ast.Constant(value=str(text)):
                return text
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._string(Value(left, value.module)) + self._string(Value(right, value.module))
        raise UnresolvedError

    # --- what an expression may be ----------------------------------------------------------------------------------

    def _values(self, value: Value, depth: int) -> list[Value]:
        """The literals (strings, tuples, lists, dicts) that an expression may stand for."""
        if depth > _DEEPEST:
            raise UnresolvedError
        node, module = value
        match node:
            case ast.IfExp(body=body, orelse=orelse):
                return self._all([body, orelse], module, depth)
            case ast.BoolOp(values=parts):
                return self._all(parts, module, depth)
            case ast.NamedExpr(value=inner):
                return self._values(Value(inner, module), depth + 1)
            case ast.Name(id=name):
                return self._named(name, node, module, depth + 1)
            case ast.Subscript(value=table):
                entries = self._entries(Value(table, module), depth)
                return [found for entry in entries for found in self._values(entry, depth + 1)]
            case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[_, *default]):
                entries = [*self._entries(Value(table, module), depth), *(Value(each, module) for each in default)]
                return [found for entry in entries for found in self._values(entry, depth + 1)]
            case ast.Constant(value=None):
                return []
        return [value]

    def _all(self, nodes: list[ast.expr], module: Module, depth: int) -> list[Value]:
        return [found for node in nodes for found in self._values(Value(node, module), depth + 1)]

    def _entries(self, table: Value, depth: int) -> list[Value]:
        """What indexing a table of literals may give."""
        entries: list[Value] = []
        for node, module in self._values(table, depth + 1):
            match node:
                case ast.Dict(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
                    entries.extend(Value(part, module) for part in parts)
                case _:
                    raise UnresolvedError
        return entries

    def _elements(self, iterable: Value, depth: int) -> list[Value]:
        """What looping over a literal gives; a pair of a dict as a tuple."""
        node, module = iterable
        match node:
            case ast.Call(func=ast.Attribute(value=table, attr="items"), args=[]):
                tables = self._values(Value(table, module), depth + 1)
                return [
                    Value(ast.Tuple(elts=[key, entry]), inner)
                    for literal, inner in tables if isinstance(literal, ast.Dict)
                    for key, entry in zip(literal.keys, literal.values, strict=True) if key is not None
                ]  # fmt: skip
            case ast.Call(func=ast.Attribute(value=table, attr="values"), args=[]):
                return self._entries(Value(table, module), depth)
            case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
                return [
                    Value(ast.Tuple(elts=[ast.Constant(0), each.node]), each.module)
                    for each in self._elements(Value(inner, module), depth + 1)
                ]
        found: list[Value] = []
        for literal, inside in self._values(iterable, depth + 1):
            match literal:
                case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                    found.extend(Value(part, inside) for part in parts)
                case ast.Dict(keys=keys):
                    found.extend(Value(key, inside) for key in keys if key is not None)
                case _:
                    raise UnresolvedError
        return found

    # --- what a name may be -----------------------------------------------------------------------------------------

    def _named(self, name: str, at: ast.AST, module: Module, depth: int) -> list[Value]:
        for scope in [*module.scopes(at), *([module.tree] if at is module.tree else [])]:
            if isinstance(scope, _Function) and name in _parameters(scope):
                return self._passed(scope, name, module, depth)
            bound = list(self._bound(scope, name, module, depth))
            if bound:
                return [found for value in bound for found in self._values(value, depth + 1)]
        if name in module.imported:
            home, original = module.imported[name]
            if home in self.modules:
                other = self.modules[home]
                return self._named(original, other.tree, other, depth + 1)
        raise UnresolvedError

    def _bound(self, scope: ast.AST, name: str, module: Module, depth: int) -> Iterator[Value]:
        """Everything that a scope binds to a name."""
        for node in _own_nodes(scope):
            match node:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        yield from self._unpacked(target, Value(value, module), name, depth)
                case ast.AnnAssign(target=target, value=value) if value is not None:
                    yield from self._unpacked(target, Value(value, module), name, depth)
                case ast.NamedExpr(target=target, value=value):
                    yield from self._unpacked(target, Value(value, module), name, depth)
                case ast.For(target=target, iter=loop) | ast.comprehension(target=target, iter=loop):
                    for element in self._elements(Value(loop, module), depth + 1) if _binds(target, name) else ():
                        yield from self._unpacked(target, element, name, depth)

    def _unpacked(self, target: ast.expr, value: Value, name: str, depth: int) -> Iterator[Value]:
        match target:
            case ast.Name(id=bound) if bound == name:
                yield value
            case ast.Tuple(elts=parts) if _binds(target, name):
                for literal, module in self._values(value, depth + 1):
                    if not isinstance(literal, ast.Tuple) or len(literal.elts) != len(parts):
                        raise UnresolvedError
                    for part, element in zip(parts, literal.elts, strict=True):
                        yield from self._unpacked(part, Value(element, module), name, depth)

    def _passed(self, function: _Function, name: str, module: Module, depth: int) -> list[Value]:
        """What the calls of a function pass for one of its parameters."""
        if isinstance(function, ast.Lambda):
            raise UnresolvedError
        names = _parameters(function)
        method = names[:1] in (["self"], ["cls"])
        found: list[Value] = []
        for other in self.modules.values():
            for call in ast.walk(other.tree):
                if not isinstance(call, ast.Call) or not self._is_call_of(call, function.name, method, module, other):
                    continue
                given = _argument(call, names.index(name) - method, name) or _default(function, name)
                if given is None:
                    raise UnresolvedError
                found.extend(self._values(Value(given, other), depth + 1))
        if not found:
            raise UnresolvedError
        return found

    def _is_call_of(self, call: ast.Call, name: str, method: bool, home: Module, module: Module) -> bool:
        match call.func:
            case ast.Attribute(attr=attr):
                return method and attr == name
            case ast.Name(id=called):
                return not method and (
                    (called == name and module is home) or module.imported.get(called) == (home.name, name)
                )
        return False


def _parameters(function: _Function) -> list[str]:
    arguments = function.args
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _default(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip([each.arg for each in reversed(plain)], reversed(arguments.defaults), strict=False))
    defaults |= {
        each.arg: value for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value
    }
    return defaults.get(name)


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[position] if 0 <= position < len(call.args) else None


def _binds(target: ast.expr, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(target))


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope without those of the scopes inside it."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, _Function | _Comprehension | ast.ClassDef):
            waiting[:0] = ast.iter_child_nodes(node)
