"""Reference decoder of Avro, which decodes one record at a time."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.records.formats.avro.nodes import (
    Array,
    Enum,
    Fixed,
    Json,
    Map,
    Node,
    Null,
    Plain,
    Record,
    Union,
    Within,
)
from jobs.records.formats.avro.options import AvroOptions
from jobs.records.formats.avro.schema import (
    VALUE,
    avro_schema,
    is_null,
    is_struct,
    leaf_type,
    top_node,
)
from jobs.records.formats.avro.values import exact
from jobs.records.formats.columns.unscaled import exact_scaled
from jobs.records.formats.interface.decoder import DECODE_VALUE, Decoded, Failure
from jobs.records.formats.interface.problems import (
    EMPTY_VALUE,
    INVALID_UTF8,
    MALFORMED_AVRO,
    OUT_OF_RANGE,
    TOO_DEEP,
    WRONG_TYPE,
    ValueProblem,
    shown_key,
)
from jobs.records.formats.interface.writer_schema import WriterSchema
from jobs.records.formats.json_texts import json_texts
from jobs.records.schema.arrow_schema import rows_arrow_schema, rows_arrow_type

MOST_WITHOUT_BYTES = 65_536
"""Limit of list elements without bytes in a record with fewer bytes."""

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


class Cursor:
    """The bytes of one record, with the position of reading.

    Args:
        data: The bytes.

    Attributes:
        at: Number of bytes read.
        spare: Remaining number of list elements without bytes.
    """

    __slots__ = ("at", "data", "spare")

    def __init__(self, data: bytes) -> None:
        self.data: bytes = data
        self.at: int = 0
        self.spare: int = max(len(data), MOST_WITHOUT_BYTES)

    def take(self, size: int, needed: str) -> bytes:
        """Read the next bytes."""
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise ValueProblem(MALFORMED_AVRO, f"needs {needed}, found the end of the record")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def number(self, needed: str) -> int:
        """Read the next number, in zig-zag coding with groups of seven bits."""
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
"""Function that reads a value; raises `ValueProblem` with the path below the value."""


def reads(node: Node, named: dict[str, Read] | None = None) -> Read:
    """Return the reader of a node's values: records and unions of several types become dicts, maps lists of pairs.

    Args:
        node: The type.
        named: Readers of the records that contain it; added to.
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
    """Read the number of values in the next block of a list or a map; 0 at its end.

    Args:
        cursor: Cursor after the block before.
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


_ENCODER = msgspec.json.Encoder(order="sorted")
_Members = Callable[[Any], Any]


def json_of(node: Node, within: tuple[Record, ...]) -> Callable[[Any], str | None]:
    """Return a function that converts a node's values to canonical JSON; null stays null.

    Args:
        node: The type; its values are those of the readers here.
        within: The records that contain it, and the others that it names.
    """
    named: dict[str, _Members] = {}
    for each in within:
        _members(each, named)
    made = _members(node, named)

    def text(value: Any) -> str | None:
        return None if value is None else _ENCODER.encode(made(value)).decode()

    return text


def _members(node: Node, named: dict[str, _Members]) -> _Members:
    """Return a function that converts values, except null, to values that msgspec can write."""
    match node:
        case Array(items):
            item = _or_null(items, named)
            return lambda values: [item(each) for each in values]
        case Map(values):
            value = _or_null(values, named)
            return lambda pairs: {key: value(each) for key, each in pairs}
        case Union(branches, None):
            kinds = {each.name: _or_null(each.node, named) for each in branches}
            return lambda value: {name: kinds[name](each) for name, each in value.items()}
        case Union(_, only) if only is not None:
            return _members(only, named)
        case Record(name, fields, None):
            parts = [(each.name, _or_null(each.node, named)) for each in fields]
            named[name] = lambda value: {key: one(value[key]) for key, one in parts if value[key] is not None}
            return named[name]
        case Within(name):
            return lambda value: named[name](value)
        case Plain("string" | "int" | "long" | "boolean", None) | Enum() | Null():
            return lambda value: value
        case Record(scaled=scaled) if scaled is not None:
            return _typed(scaled)
        case Plain() | Fixed():
            return _typed(leaf_type(node))
        case _:
            raise AssertionError("it has no values")


def _typed(kind: ice.PrimitiveType) -> _Members:
    arrow = rows_arrow_type(kind)
    return lambda value: msgspec.Raw(json_texts(pa.array([value], arrow), kind)[0] or b"null")


def _or_null(node: Node, named: dict[str, _Members]) -> _Members:
    one = _members(node, named)
    return lambda value: None if value is None else one(value)


class AvroReferenceDecoder:
    """Decodes records of one writer schema, one by one.

    Args:
        node: The schema.
    """

    def __init__(self, node: Node) -> None:
        self._schema: Schema = avro_schema(node)
        self._arrow: pa.Schema = rows_arrow_schema(self._schema)
        self._read: Read = reads(node)
        self._struct: bool = is_struct(node)

    @property
    def schema(self) -> Schema:
        """The fields of the records."""
        return self._schema

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises."""
        found: list[dict[str, Any]] = []
        positions: list[int] = []
        failures: list[Failure] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                found.append(self._record(value))
            except ValueProblem as problem:
                failures.append(Failure(row, DECODE_VALUE, problem.error_class, problem.message, problem.field))
            else:
                positions.append(row)
        columns = [pa.array([each.get(field.name) for each in found], field.type) for field in self._arrow]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._arrow)
        return Decoded(rows, np.array(positions, np.int64), failures, np.zeros(0, np.int64), {})

    def _record(self, data: bytes) -> dict[str, Any]:
        if not data:
            raise ValueProblem(EMPTY_VALUE, "needs an Avro record, found nothing")
        cursor = Cursor(data)
        try:
            found = self._read(cursor)
        except ValueProblem as problem:
            field = f"$.{VALUE}" if not self._struct else "$"
            raise ValueProblem(problem.error_class, problem.message, f"{field}{problem.field or ''}") from None
        except RecursionError:
            raise ValueProblem(TOO_DEEP, "needs a record that is nested less deep") from None
        if cursor.at < len(data):
            raise ValueProblem(MALFORMED_AVRO, "needs the end of the record, found more")
        return found if self._struct else {VALUE: found}


def make_reference(schema: WriterSchema, options: Mapping[str, Any]) -> AvroReferenceDecoder:
    """Return the reference decoder of a writer schema.

    Raises:
        BadWriterSchema: The schema cannot be read, or no column can hold its records.
    """
    return AvroReferenceDecoder(top_node(schema, AvroOptions.of(options)))
