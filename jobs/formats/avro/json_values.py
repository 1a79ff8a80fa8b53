"""JSON of Avro values of types that no column has, such as a record that lies within itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
from pyiceberg import types as ice

from jobs.formats.avro.nodes import Array, Enum, Fixed, Map, Node, Null, Plain, Record, Union, Within
from jobs.formats.avro.schema import leaf_type
from jobs.formats.json_texts import json_texts
from jobs.schema.arrow_schema import rows_arrow_type

_ENCODER = msgspec.json.Encoder(order="sorted")
_Members = Callable[[Any], Any]


def json_of(node: Node, within: tuple[Record, ...]) -> Callable[[Any], str | None]:
    """What makes the canonical JSON of a node's values; null is null.

    Args:
        node: The type; its values are those that `jobs.formats.avro.reading` gives.
        within: The records that it lies in, and the others that it names.
    """
    named: dict[str, _Members] = {}
    for each in within:
        _members(each, named)
    made = _members(node, named)

    def text(value: Any) -> str | None:
        return None if value is None else _ENCODER.encode(made(value)).decode()

    return text


def _members(node: Node, named: dict[str, _Members]) -> _Members:
    """What makes, of values that are not null, what msgspec writes."""
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
