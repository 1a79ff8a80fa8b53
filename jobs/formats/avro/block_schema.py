"""Reading schema of blocks: a writer schema in the form in which a block's records are read, and what Arrow it gives.

The same bytes, under names of its own, and without logical types: these are converted afterwards, exactly. A boolean is
read as one byte, of which any would pass for true, and a union of null and another type as one of three. What is
always null takes no bytes and is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from jobs.formats.avro.container import MARKER, MARKER_SIZE
from jobs.formats.avro.nodes import Array, Enum, Fixed, Json, Map, Node, Null, Plain, Record, Union, Within

# Arrow makes no such field, but DataFusion has one.
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
    """A schema whose records are not read in blocks."""


def reading_schema(node: Node) -> tuple[dict[str, Any], pa.Schema]:
    """The schema with which a block of records is read, and the one in Arrow of what comes.

    The record has one field, of the whole value, or those of a record at the top, in their order; then the marker.

    Raises:
        NoBlocks: Some of its values become JSON.
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
    """What a block's columns hold, as read: a record's fields that take bytes, or the whole value."""
    return members(node) if isinstance(node, Record) and node.scaled is None else (node,)


def members(record: Record) -> tuple[Node, ...]:
    """A record's fields that take bytes."""
    return tuple(each.node for each in record.fields if not isinstance(each.node, Null))


_SPARE = "spare"


class _Maker:
    """Makes the schemas, and names the named types, each the first time that it is met."""

    def __init__(self) -> None:
        self._known: dict[Node, tuple[str, pa.Field]] = {}

    def made(self, node: Node) -> tuple[Any, pa.Field]:
        """Avro's schema of a node, and the field that Arrow has for its values, with the name of a union's type."""
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
            # Of null and one other type any number but 0 would pass for 1; of three types no number but theirs does.
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
