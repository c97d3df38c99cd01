"""Pickles by strangers: numbers, text and containers are read, and nothing is ever imported or called.

Python's own unpickler runs whatever a file names. This one knows no way to do so: it goes through the opcodes itself
and stops at the first that is more than data, so that the reason can name what was asked for.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any

LARGEST = 32_000_000  # bytes; a vocabulary of 65,536 characters takes two million
_KEYS = (str, int, float, bytes, type(None))


class Refused(ValueError):
    """The pickle asks for more than plain data, and `asked` names it; None where it is damaged or no pickle at all."""

    def __init__(self, asked: str | None = None) -> None:
        super().__init__(asked)
        self.asked = asked


def plain(data: bytes) -> Any:
    """The value in a pickle of numbers, text, bytes, lists, tuples and dicts; Refused for all else."""
    if len(data) > LARGEST:
        raise Refused
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            machine.do(opcode.name, argument)
        return machine.result()
    except Refused:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise Refused from error


class _Machine:
    """The stack, the marks on it and the memo, as the pickle protocol describes them."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def do(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _MOVES:
            _MOVES[name](self, argument)
        elif name not in _NOTHING_TO_DO:
            raise Refused(self.request(name, argument))

    def request(self, name: str, argument: Any) -> str:
        """What an opcode beyond plain data asks for, as a person would name it."""
        if name in ("GLOBAL", "INST"):
            return str(argument).replace(" ", ".")
        if name == "STACK_GLOBAL":
            return ".".join(str(part) for part in self.stack[-2:])
        return name

    def result(self) -> Any:
        (value,) = self.stack
        return value

    def since_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def last(self, count: int) -> tuple[Any, ...]:
        if count > len(self.stack):
            raise IndexError(count)
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        return items

    def remember(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def add_to_list(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            raise Refused
        target.extend(items)

    def add_to_dict(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict:
            raise Refused
        target.update(_pairs(items))


def _pairs(items: list[Any]) -> dict[Any, Any]:
    """Keys are single values: the hash of tuples within tuples could take for ever."""
    for key in items[::2]:
        if not isinstance(key, _KEYS):
            raise Refused
    return dict(zip(items[::2], items[1::2], strict=True))


_VALUES = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8",
}  # fmt: skip
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}
_NOTHING_TO_DO = frozenset(("PROTO", "FRAME", "STOP"))
_MOVES: dict[str, Callable[[_Machine, Any], object]] = {
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "LIST": lambda machine, _: machine.stack.append(machine.since_mark()),
    "DICT": lambda machine, _: machine.stack.append(_pairs(machine.since_mark())),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.stack.append(machine.last(1)),
    "TUPLE2": lambda machine, _: machine.stack.append(machine.last(2)),
    "TUPLE3": lambda machine, _: machine.stack.append(machine.last(3)),
    "APPEND": lambda machine, _: machine.add_to_list(list(machine.last(1))),
    "APPENDS": lambda machine, _: machine.add_to_list(machine.since_mark()),
    "SETITEM": lambda machine, _: machine.add_to_dict(list(machine.last(2))),
    "SETITEMS": lambda machine, _: machine.add_to_dict(machine.since_mark()),
    "MEMOIZE": lambda machine, _: machine.remember(len(machine.memo)),
    "PUT": lambda machine, place: machine.remember(int(place)),
    "BINPUT": lambda machine, place: machine.remember(place),
    "LONG_BINPUT": lambda machine, place: machine.remember(place),
    "GET": lambda machine, place: machine.stack.append(machine.memo[int(place)]),
    "BINGET": lambda machine, place: machine.stack.append(machine.memo[place]),
    "LONG_BINGET": lambda machine, place: machine.stack.append(machine.memo[place]),
}
