"""Reads pickles from strangers: numbers, text and containers only; nothing is ever imported or called.

Python's own unpickler runs whatever a file names. Here each opcode that is more than data is refused, and the error
names what was asked for.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
from collections.abc import Callable
from typing import Any, ClassVar

LARGEST = 32_000_000  # bytes; a vocabulary of 65,536 characters takes two million
_KEYS = (str, int, float, bytes, type(None))
_KEYS_OF = {"SETITEM": slice(-2, -1), "SETITEMS": slice(None, None, 2), "DICT": slice(None, None, 2)}  # on the stack
_DAMAGED = (ArithmeticError, AttributeError, EOFError, LookupError, RecursionError, TypeError, ValueError)
_DATA = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "NONE", "NEWTRUE", "NEWFALSE"),
    *("MARK", "EMPTY_LIST", "LIST", "APPEND", "APPENDS", "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    *("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET", "PROTO", "FRAME", "STOP"),
    *("GLOBAL", "INST", "STACK_GLOBAL"),  # these three go through find_class, which refuses
}


class Refused(ValueError):
    """The pickle asks for more than plain data, named by `asked`; None if it is damaged or not a pickle at all."""

    def __init__(self, asked: str | None = None) -> None:
        super().__init__(asked)
        self.asked = asked


def plain(data: bytes) -> Any:
    """The value in a pickle of numbers, text, bytes, lists, tuples and dicts; raises Refused for everything else."""
    if len(data) > LARGEST:
        raise Refused
    try:
        unpickler: Any = _PlainUnpickler(io.BytesIO(data), encoding="latin-1")
        value = unpickler.load()
        if unpickler.stack or unpickler.metastack:
            raise Refused
        return value
    except Refused:
        raise
    except (*_DAMAGED, pickle.UnpicklingError, struct.error) as error:
        raise Refused from error


def _loader(name: str, code: int) -> Callable[[Any], None]:
    """What an opcode does, if it is plain data. Keys are single values: hashing nested tuples could take for ever."""

    def load(unpickler: Any) -> None:
        if name not in _DATA:
            raise Refused(name)
        keys = unpickler.stack[_KEYS_OF[name]] if name in _KEYS_OF else ()
        if not all(isinstance(key, _KEYS) for key in keys):
            raise Refused
        pickle._Unpickler.dispatch[code](unpickler)

    return load


class _PlainUnpickler(pickle._Unpickler):  # the one written in Python, whose table of opcodes can be replaced
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        ord(opcode.code): _loader(opcode.name, ord(opcode.code)) for opcode in pickletools.opcodes
    }

    def find_class(self, module: str, name: str) -> Any:
        raise Refused(f"{module}.{name}")
