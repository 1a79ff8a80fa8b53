"""Container blocks: many Avro records of one schema, which DataFusion reads into Arrow at once or not at all.

Records carry no length: one that is too short or too long shifts all later ones, possibly without an error. So each
record is followed by a marker of eight random bytes, which the reading schema declares as its last field. If every row
ends with the marker, every record was read from its first byte to its last: a record that ends elsewhere meets other
bytes there, or the marker of a later record, and then some row has no marker. No writer can know the marker.

The block is in a memory file without a name, which ends with the process; the next block overwrites it. Its header
claims more records than there are, and DataFusion is asked for the real number: at the end of a block with bytes left,
it would search for the next record for ever.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

import datafusion
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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

MARKER = "marker"
"""Name of the last field in a reading schema."""
MARKER_SIZE = 8

LARGEST_BLOCK = 1 << 30
"""Limit of bytes in a block."""

LARGEST_SPARE = 32 << 20
"""Limit of bytes of a file that is kept for the next block."""

_BEYOND = bytes(64)
_spare: list[tuple[int, int]] = []


class UnreadableBlock(Exception):
    """Some record of a block does not fit the schema, or DataFusion cannot read the block."""


def read_block(schema: dict[str, Any], arrow: pa.Schema, values: pa.BinaryArray) -> pa.RecordBatch:
    """Read the records of a block with DataFusion.

    Args:
        schema: Avro schema of a record whose last field is MARKER, a fixed of MARKER_SIZE bytes.
        arrow: Arrow schema of DataFusion's result.
        values: At least one value, none of them null, at most LARGEST_BLOCK bytes.

    Returns:
        One row for each value, without the marker.

    Raises:
        UnreadableBlock: At least one value is not exactly a record of the schema.
        OSError: The block cannot be written.
    """
    marker = secrets.token_bytes(MARKER_SIZE)
    joined = pc.binary_join_element_wise(  # pyright: ignore[reportAttributeAccessIssue]
        values, pa.scalar(marker, pa.binary()), pa.scalar(b"", pa.binary())
    )
    file = _new_file()
    try:
        _write(file, schema, joined)
        rows = _read(file, arrow, len(values))
    except BaseException:
        os.close(file)
        raise
    _keep(file)
    if rows.num_rows != len(values) or not _all_are(rows.column(rows.num_columns - 1), marker):
        raise UnreadableBlock
    return rows.select(list(range(rows.num_columns - 1)))


def _new_file() -> int:
    """Return a file in memory; if possible that of a former block, whose pages are allocated already."""
    with suppress(IndexError):
        process, file = _spare.pop()
        if process == os.getpid():
            return file
        # The parent process of this fork still uses the file.
        os.close(file)
    return os.memfd_create("frazil-avro", os.MFD_CLOEXEC)


def _keep(file: int) -> None:
    if _spare or os.fstat(file).st_size > LARGEST_SPARE:
        os.close(file)
    else:
        _spare.append((os.getpid(), file))


def _write(file: int, schema: dict[str, Any], records: pa.BinaryArray) -> None:
    _, offsets, data = records.buffers()
    ends = np.frombuffer(offsets, np.int32)[records.offset : records.offset + len(records) + 1]
    body = memoryview(data)[int(ends[0]) : int(ends[-1])]
    size = len(body) + len(_BEYOND)
    sync = secrets.token_bytes(16)
    head = b"Obj\x01" + _header(json.dumps(schema)) + sync + _number(size) + _number(size)
    os.lseek(file, 0, os.SEEK_SET)
    for part in (head, body, _BEYOND, sync):
        left = memoryview(part)
        while left:
            left = left[os.write(file, left) :]
    os.ftruncate(file, os.lseek(file, 0, os.SEEK_CUR))


def _read(file: int, arrow: pa.Schema, count: int) -> pa.RecordBatch:
    try:
        frame = _context(count).read_avro(f"/proc/self/fd/{file}", arrow, file_extension="")
        batches = frame.limit(count).collect()
    except Exception as error:
        raise UnreadableBlock(str(error)) from error
    except BaseException as error:
        # A panic in DataFusion is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        raise UnreadableBlock(str(error)) from error
    if len(batches) != 1:
        raise UnreadableBlock
    return batches[0]


@lru_cache(maxsize=4)
def _context(count: int) -> datafusion.SessionContext:
    """Return a context that reads `count` rows at once, and no further."""
    return datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1).with_batch_size(count))


@lru_cache(maxsize=64)
def _header(schema: str) -> bytes:
    pairs = (b"avro.schema", schema.encode(), b"avro.codec", b"null")
    return _number(2) + b"".join(_number(len(each)) + each for each in pairs) + _number(0)


def _number(number: int) -> bytes:
    """Encode a non-negative number in Avro's form."""
    number, found = number << 1, bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def _all_are(markers: pa.FixedSizeBinaryArray, marker: bytes) -> bool:
    data = np.frombuffer(markers.buffers()[1], np.uint64)[markers.offset : markers.offset + len(markers)]
    return markers.null_count == 0 and bool((data == np.frombuffer(marker, np.uint64)).all())


# DataFusion has such a field, although Arrow creates none.
_NULL = pa.field("null", pa.null()).with_nullable(False)
_ARROW: Mapping[str, pa.DataType] = {
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}


class NoBlocks(Exception):
    """Records of a schema cannot be read in blocks."""


def reading_schema(node: Node) -> tuple[dict[str, Any], pa.Schema]:
    """Return the Avro schema for reading a block of records, and the Arrow schema of the result.

    The Avro record has one field for the whole value, or the fields of a record at the top in their order; then the
    marker.

    Raises:
        NoBlocks: Some values become JSON.
    """
    maker = _Maker()
    fields = top_members(node)
    made = [maker.made(each) for each in fields]
    avro = [{"name": f"f{n}", "type": each} for n, (each, _) in enumerate(made)]
    arrow = [field.with_name(f"f{n}") for n, (_, field) in enumerate(made)]
    avro.append({"name": MARKER, "type": {"type": "fixed", "name": MARKER, "size": MARKER_SIZE}})
    arrow.append(_named(pa.binary(MARKER_SIZE), MARKER))
    return {"type": "record", "name": "block", "fields": avro}, pa.schema(arrow)


def top_members(node: Node) -> tuple[Node, ...]:
    """Return the nodes of a block's columns: a record's fields that take bytes, or the whole value."""
    return members(node) if isinstance(node, Record) and node.scaled is None else (node,)


def members(record: Record) -> tuple[Node, ...]:
    """Return a record's fields that take bytes."""
    return tuple(each.node for each in record.fields if not isinstance(each.node, Null))


_SPARE = "spare"


class _Maker:
    """Maker of the schemas, which names each named type at its first use."""

    def __init__(self) -> None:
        self._known: dict[Node, tuple[str, pa.Field]] = {}

    def made(self, node: Node) -> tuple[Any, pa.Field]:
        """Return the Avro schema of a node, and the Arrow field of its values, with its name in a union."""
        match node:
            case Null():
                return "null", _NULL
            case Plain("boolean"):
                return self._once(node, lambda name: _fixed(1, name))
            case Plain(kind):
                return kind, pa.field(kind, _ARROW[kind], nullable=False)
            case Fixed(_, size):
                return self._once(node, lambda name: _fixed(size, name))
            case Enum(_, symbols):
                return self._once(node, lambda name: _enum(len(symbols), name))
            case Array(items):
                avro, field = self.made(items)
                return {"type": "array", "items": avro}, pa.field("array", pa.list_(field.with_name("item")), False)
            case Map(values):
                avro, field = self.made(values)
                key = pa.field("key", pa.string(), nullable=False)
                return {"type": "map", "values": avro}, pa.field("map", pa.map_(key, field.with_name("value")), False)
            case Record():
                return self._once(node, lambda name: self._record(node, name))
            case Union():
                return self._union(node)
            case Json() | Within():
                raise NoBlocks

    def _once(self, node: Node, make: Any) -> tuple[Any, pa.Field]:
        if node in self._known:
            return self._known[node]
        name = f"t{len(self._known)}"
        self._known[node] = (name, pa.field(name, pa.null()))
        avro, field = make(name)
        self._known[node] = (name, field)
        return {**avro, "name": name}, field

    def _record(self, node: Record, name: str) -> tuple[Any, pa.Field]:
        made = [self.made(each) for each in members(node)]
        avro = [{"name": f"f{n}", "type": each} for n, (each, _) in enumerate(made)]
        fields = [field.with_name(f"f{n}") for n, (_, field) in enumerate(made)]
        return {"type": "record", "fields": avro}, _named(pa.struct(fields), name)

    def _union(self, node: Union) -> tuple[Any, pa.Field]:
        if not node.filled:
            return self._once(Enum("", ("null",) * len(node.branches)), lambda name: _enum(len(node.branches), name))
        made = [self.made(each.node) for each in node.branches]
        avro = [each for each, _ in made]
        if node.nullable and len(made) == 2:
            # In a union of null and one other type, any number except 0 would count as 1. With a third type, it is
            # refused.
            spare, field = self._once(Fixed(_SPARE, 1), lambda name: _fixed(1, name))
            avro, made = [*avro, spare], [*made, (spare, field)]
        return avro, pa.field("union", pa.dense_union([field for _, field in made]), nullable=node.nullable)


def _fixed(size: int, name: str) -> tuple[Any, pa.Field]:
    return {"type": "fixed", "size": size}, _named(pa.binary(size), name)


def _enum(symbols: int, name: str) -> tuple[Any, pa.Field]:
    texts = [f"s{n}" for n in range(symbols)]
    symbols_text = json.dumps(texts, separators=(",", ":"))
    field = _named(pa.dictionary(pa.int32(), pa.string()), name, {"avro.enum.symbols": symbols_text})
    return {"type": "enum", "symbols": texts}, field


def _named(kind: pa.DataType, name: str, more: Mapping[str, str] | None = None) -> pa.Field:
    return pa.field(name, kind, nullable=False, metadata={"avro.name": name, **(more or {})})
