"""The syntax tree of an expression, and how it is read from what the CEL library serialises.

The library gives the tree in the published format of CEL (cel/expr/syntax.proto, message ParsedExpr in an Any). A macro
stands there as the loop that it expands to; here it is a macro again, so that nothing else can loop.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

WireFields: TypeAlias = dict[int, list["int | bytes"]]

# Fields of the messages in cel/expr/syntax.proto
_ANY_VALUE = 2
_PARSED_EXPR, _PARSED_SOURCE = 2, 3
_SOURCE_POSITIONS = 4
_ID, _CONST, _IDENT, _SELECT, _CALL, _LIST, _STRUCT, _LOOP = 2, 3, 4, 5, 6, 7, 8, 9
_NULL, _BOOL, _INT, _UINT, _DOUBLE, _STRING, _BYTES = 1, 2, 3, 4, 5, 6, 7


class Const(NamedTuple):
    at: int
    value: bool | int | float | str | bytes | None


class NameRead(NamedTuple):
    at: int
    name: str


class Select(NamedTuple):
    """`operand.field`, or `has(operand.field)` with `test`."""

    at: int
    operand: Node
    field: str
    test: bool


class Call(NamedTuple):
    """An operator (`_+_`, `_[_]`, `@in`) or a function; `target` is what a method is called on."""

    at: int
    function: str
    target: Node | None
    args: tuple[Node, ...]


class ListOf(NamedTuple):
    at: int
    items: tuple[Node, ...]


class MapOf(NamedTuple):
    at: int
    entries: tuple[tuple[Node, Node], ...]


class MessageOf(NamedTuple):
    """`name{…}`, a message of protocol buffers: nothing that an expression may make."""

    at: int
    name: str


class Macro(NamedTuple):
    """`over.kind(variable, condition, body)`: `all`, `exists` and `exists_one` have a condition, `map` has a body and
    perhaps a condition; `filter` is a map whose body is the variable."""

    at: int
    kind: str
    variable: str
    over: Node
    condition: Node | None
    body: Node | None


Node: TypeAlias = Const | NameRead | Select | Call | ListOf | MapOf | MessageOf | Macro
"""`at` is the place in the text, in characters from 0."""


def children(node: Node) -> list[Node]:
    """What stands directly below a node, in the order of the text."""
    match node:
        case Select():
            return [node.operand]
        case Call():
            return [*([] if node.target is None else [node.target]), *node.args]
        case ListOf():
            return list(node.items)
        case MapOf():
            return [part for entry in node.entries for part in entry]
        case Macro():
            return [part for part in (node.over, node.condition, node.body) if part is not None]
        case _:
            return []


def read_tree(serialized: bytes) -> Node:
    """The tree of a serialised ParsedExpr."""
    parsed = _fields(_bytes(_fields(serialized), _ANY_VALUE))
    source = _fields(_bytes(parsed, _PARSED_SOURCE))
    pairs = (_fields(entry) for entry in source.get(_SOURCE_POSITIONS, []) if isinstance(entry, bytes))
    places = {_int(pair, 1): _int(pair, 2) for pair in pairs}
    return _Reader(places).node(_bytes(parsed, _PARSED_EXPR))


class _Reader:
    """Reads one tree; knows the places of its nodes."""

    __slots__ = ("_places",)

    def __init__(self, places: dict[int, int]) -> None:
        self._places = places

    def node(self, data: bytes) -> Node:
        fields = _fields(data)
        at = self._places.get(_int(fields, _ID), 0)
        for kind, read in _READ.items():
            if kind in fields:
                return read(self, at, _fields(_bytes(fields, kind)))
        raise ValueError(f"a node of a kind that CEL does not have: {sorted(fields)}")

    def nodes(self, fields: WireFields, number: int) -> tuple[Node, ...]:
        return tuple(self.node(part) for part in fields.get(number, []) if isinstance(part, bytes))

    def const(self, at: int, fields: WireFields) -> Node:
        for kind, read in _CONSTANTS.items():
            if kind in fields:
                return Const(at, read(fields[kind][-1]))
        raise ValueError("a constant of a type that CEL does not have")

    def name(self, at: int, fields: WireFields) -> Node:
        return NameRead(at, _text(fields, 1).removeprefix("."))

    def select(self, at: int, fields: WireFields) -> Node:
        return Select(at, self.node(_bytes(fields, 1)), _text(fields, 2), bool(_int(fields, 3)))

    def call(self, at: int, fields: WireFields) -> Node:
        target = self.node(_bytes(fields, 1)) if 1 in fields else None
        return Call(at, _text(fields, 2), target, self.nodes(fields, 3))

    def list_of(self, at: int, fields: WireFields) -> Node:
        return ListOf(at, self.nodes(fields, 1))

    def map_of(self, at: int, fields: WireFields) -> Node:
        if 1 in fields:
            return MessageOf(at, _text(fields, 1))
        entries = [_fields(entry) for entry in fields.get(2, []) if isinstance(entry, bytes)]
        return MapOf(at, tuple((self.node(_bytes(each, 3)), self.node(_bytes(each, 4))) for each in entries))

    def macro(self, at: int, fields: WireFields) -> Node:
        start, step = self.node(_bytes(fields, 4)), self.node(_bytes(fields, 6))
        variable, over = _text(fields, 1), self.node(_bytes(fields, 2))
        match start, step:
            case Const(value=True), Call(function="_&&_", args=(_, condition)):
                return Macro(at, "all", variable, over, condition, None)
            case Const(value=False), Call(function="_||_", args=(_, condition)):
                return Macro(at, "exists", variable, over, condition, None)
            case Const(value=0), Call(function="_?_:_", args=(condition, _, _)):
                return Macro(at, "exists_one", variable, over, condition, None)
            case ListOf(), Call(function="_?_:_", args=(condition, Call(args=(_, ListOf(items=(body,)))), _)):
                return Macro(at, "map", variable, over, condition, body)
            case ListOf(), Call(function="_+_", args=(_, ListOf(items=(body,)))):
                return Macro(at, "map", variable, over, None, body)
            case _:
                raise ValueError("a loop that is none of the macros of CEL")


_READ: dict[int, Callable[[_Reader, int, WireFields], Node]] = {
    _CONST: _Reader.const,
    _IDENT: _Reader.name,
    _SELECT: _Reader.select,
    _CALL: _Reader.call,
    _LIST: _Reader.list_of,
    _STRUCT: _Reader.map_of,
    _LOOP: _Reader.macro,
}


def _signed(value: int | bytes) -> int:
    assert isinstance(value, int)
    return value - (1 << 64) if value >> 63 else value


def _double(value: int | bytes) -> float:
    assert isinstance(value, bytes)
    return float(struct.unpack("<d", value)[0])


def _string(value: int | bytes) -> str:
    assert isinstance(value, bytes)
    return value.decode()


def _null(_value: int | bytes) -> None:
    return None


_CONSTANTS: dict[int, Callable[[int | bytes], bool | int | float | str | bytes | None]] = {
    _NULL: _null,
    _BOOL: bool,
    _INT: _signed,
    _UINT: int,
    _DOUBLE: _double,
    _STRING: _string,
    _BYTES: bytes,
}


def _fields(data: bytes) -> WireFields:
    """The fields of one message: integers as such, anything else as its bytes."""
    found: WireFields = {}
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        value: int | bytes
        if wire == 0:
            value, place = _varint(data, place)
        else:
            size, place = _varint(data, place) if wire == 2 else ({1: 8, 5: 4}[wire], place)
            value, place = data[place : place + size], place + size
        found.setdefault(number, []).append(value)
    return found


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        shift, place = shift + 7, place + 1
        if byte < 0x80:
            return value, place


def _bytes(fields: WireFields, number: int) -> bytes:
    value = fields[number][-1]
    assert isinstance(value, bytes)
    return value


def _text(fields: WireFields, number: int) -> str:
    return _bytes(fields, number).decode()


def _int(fields: WireFields, number: int) -> int:
    value = fields.get(number, [0])[-1]
    assert isinstance(value, int)
    return value
