"""Reading of Avro's binary encoding: what makes Python values of the bytes of a record, strictly.

A function for each node of a schema, made once. The bytes have to be as the schema says from the first to the last.
What Avro leaves open is taken as its readers do: numbers may have more bytes than they need, up to ten; the size of a
block of a list or a map is not looked at; a key of a map that comes twice has its last value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from jobs.formats.avro.json_values import json_of
from jobs.formats.avro.nodes import Array, Enum, Fixed, Json, Map, Node, Null, Plain, Record, Union, Within
from jobs.formats.avro.schema import is_null
from jobs.formats.avro.values import exact
from jobs.formats.columns.unscaled import exact_scaled
from jobs.formats.problems import (
    INVALID_UTF8,
    MALFORMED_AVRO,
    OUT_OF_RANGE,
    WRONG_TYPE,
    ValueProblem,
    shown_key,
)

MOST_WITHOUT_BYTES = 65_536
"""Values of lists that take no bytes, of a record that has fewer bytes than these."""

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


class Cursor:
    """The bytes of one record, and how far they are read.

    Args:
        data: The bytes.

    Attributes:
        at: How many are read.
        spare: How many values without bytes its lists may still have.
    """

    __slots__ = ("at", "data", "spare")

    def __init__(self, data: bytes) -> None:
        self.data: bytes = data
        self.at: int = 0
        self.spare: int = max(len(data), MOST_WITHOUT_BYTES)

    def take(self, size: int, needed: str) -> bytes:
        """The next bytes."""
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise ValueProblem(MALFORMED_AVRO, f"needs {needed}, found the end of the record")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def number(self, needed: str) -> int:
        """The next number, zig-zag and in groups of seven bits."""
        data, at, shift, found = self.data, self.at, 0, 0
        while at < len(data):
            byte = data[at]
            at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                if found >> 64:
                    break
                self.at = at
                return (found >> 1) ^ -(found & 1)
            shift += 7
            if shift > 63:
                break
        else:
            raise ValueProblem(MALFORMED_AVRO, f"needs {needed}, found the end of the record")
        raise ValueProblem(MALFORMED_AVRO, f"needs {needed}, found a number of more than 64 bits")


Read: TypeAlias = Callable[[Cursor], Any]
"""Reads a value; raises `ValueProblem` with the path below it."""


def reads(node: Node, named: dict[str, Read] | None = None) -> Read:
    """What reads values of a node: records and unions of several types as dicts, maps as lists of pairs.

    Args:
        node: The type.
        named: What reads the records that it lies in; added to.
    """
    named = {} if named is None else named
    match node:
        case Null():
            return lambda _: None
        case Plain(name, logical):
            return _then(_PLAIN[name], exact(logical) if logical else None)
        case Fixed(_, size, logical):
            return _then(_fixed(size), exact(logical) if logical else None)
        case Enum(_, symbols):
            return _enum(symbols)
        case Array(items):
            return _array(reads(items, named), empty=_takes_no_bytes(items))
        case Map(values):
            return _map(reads(values, named))
        case Union():
            return _union(node, named)
        case Record(name, scaled=kind):
            named[name] = read = _record(node, named)
            return (
                read if kind is None else _then(read, lambda value: exact_scaled(value["scale"], value["value"], kind))
            )
        case Within(name):
            return lambda cursor: named[name](cursor)
        case Json(inner, within):
            raw: dict[str, Read] = {}
            for each in within:
                reads(each, raw)
            return _then(reads(inner, raw), json_of(inner, within))


def _then(read: Read, convert: Callable[[Any], Any] | None) -> Read:
    return read if convert is None else lambda cursor: convert(read(cursor))


def _boolean(cursor: Cursor) -> bool:
    byte = cursor.take(1, "boolean")[0]
    if byte > 1:
        raise ValueProblem(WRONG_TYPE, f"needs the byte 0x00 or 0x01, found 0x{byte:02x}")
    return byte == 1


def _int(cursor: Cursor) -> int:
    number = cursor.number("int")
    if not -(2**31) <= number < 2**31:
        raise ValueProblem(OUT_OF_RANGE, "needs int, found a number beyond its range")
    return number


def _bytes(cursor: Cursor) -> bytes:
    return cursor.take(cursor.number("bytes"), "bytes")


def _string(cursor: Cursor) -> str:
    text = cursor.take(cursor.number("string"), "string")
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        found = f"0x{text[error.start]:02x} at byte {error.start} ({error.reason})"
        raise ValueProblem(INVALID_UTF8, f"needs UTF-8, found {found}") from None


_PLAIN: Mapping[str, Read] = {
    "boolean": _boolean,
    "int": _int,
    "long": lambda cursor: cursor.number("long"),
    "float": lambda cursor: _FLOAT.unpack(cursor.take(4, "float"))[0],
    "double": lambda cursor: _DOUBLE.unpack(cursor.take(8, "double"))[0],
    "bytes": _bytes,
    "string": _string,
}


def _fixed(size: int) -> Read:
    return lambda cursor: cursor.take(size, f"{size} bytes")


def _enum(symbols: tuple[str, ...]) -> Read:
    def read(cursor: Cursor) -> str:
        return symbols[_numbered(cursor, len(symbols), "symbols")]

    return read


def _numbered(cursor: Cursor, count: int, what: str) -> int:
    number = cursor.number(f"one of {count} {what}")
    if not 0 <= number < count:
        raise ValueProblem(MALFORMED_AVRO, f"needs one of {count} {what}, found number {number}")
    return number


def _takes_no_bytes(node: Node) -> bool:
    return isinstance(node, Null) or (
        isinstance(node, Record) and all(_takes_no_bytes(each.node) for each in node.fields)
    )


def _count(cursor: Cursor, *, empty: bool = False) -> int:
    """How many values the next block of a list or a map has; 0 at its end.

    Args:
        cursor: Behind the block before.
        empty: Whether the values take no bytes.
    """
    count = cursor.number("the number of values")
    if count < 0:
        cursor.number("the size of values")
        count = -count
    if empty:
        cursor.spare -= count
        if cursor.spare < 0:
            most = max(len(cursor.data), MOST_WITHOUT_BYTES)
            raise ValueProblem(MALFORMED_AVRO, f"needs at most {most:,} values without bytes in a record, found more")
    elif count > len(cursor.data) - cursor.at:
        raise ValueProblem(MALFORMED_AVRO, f"needs {count} values, found the end of the record")
    return count


def _array(item: Read, *, empty: bool) -> Read:
    def read(cursor: Cursor) -> list[Any]:
        found: list[Any] = []
        while count := _count(cursor, empty=empty):
            for _ in range(count):
                try:
                    found.append(item(cursor))
                except ValueProblem as problem:
                    raise _within(problem, f"[{len(found)}]") from None
        return found

    return read


def _map(value: Read) -> Read:
    def read(cursor: Cursor) -> list[tuple[str, Any]]:
        found: dict[str, Any] = {}
        while count := _count(cursor):
            for _ in range(count):
                try:
                    key = _string(cursor)
                    found[key] = value(cursor)
                except ValueProblem as problem:
                    raise _within(problem, "[...]") from None
        return list(found.items())

    return read


def _union(node: Union, named: dict[str, Read]) -> Read:
    branches = tuple((each.name, reads(each.node, named), is_null(each.node)) for each in node.branches)
    if node.only is not None or not node.filled:
        return lambda cursor: branches[_numbered(cursor, len(branches), "types")][1](cursor)

    def read(cursor: Cursor) -> dict[str, Any] | None:
        name, one, null = branches[_numbered(cursor, len(branches), "types")]
        if null:
            return None
        try:
            return {name: one(cursor)}
        except ValueProblem as problem:
            raise _within(problem, _member(name)) from None

    return read


def _record(node: Record, named: dict[str, Read]) -> Read:
    fields = tuple((each.name, reads(each.node, named)) for each in node.fields)

    def read(cursor: Cursor) -> dict[str, Any]:
        found: dict[str, Any] = {}
        name = ""
        try:
            for name, field in fields:
                found[name] = field(cursor)
        except ValueProblem as problem:
            raise _within(problem, _member(name)) from None
        return found

    return read


def _member(name: str) -> str:
    return f".{shown_key(name)}"


def _within(problem: ValueProblem, step: str) -> ValueProblem:
    return ValueProblem(problem.error_class, problem.message, f"{step}{problem.field or ''}")
