"""Protobuf records: rows of a message of a .proto text, written by Google's own messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message_factory import GetMessageClass
from pyiceberg import types as ice

from jobs.local.generate.json_encoding import micros, micros_of_day, unscaled
from jobs.local.generate.rows import (
    Entries,
    Items,
    Leaf,
    Member,
    Row,
    Shape,
    Struct,
)
from jobs.records.formats.interface.writer_schema import BadWriterSchema
from jobs.records.formats.protobuf.message_tree import (
    INTEGERS,
    Enum,
    Field,
    Json,
    Logical,
    Marker,
    Message,
    Scalar,
    Type,
    Union,
    Wrapper,
)
from jobs.records.formats.protobuf.options import rules_of
from jobs.records.formats.protobuf.schema import message_tree

_PLAIN: Mapping[str, ice.PrimitiveType] = {
    "float": ice.FloatType(),
    "double": ice.DoubleType(),
    "bool": ice.BooleanType(),
    "string": ice.StringType(),
    "bytes": ice.BinaryType(),
}
_LOGICAL: Mapping[str, ice.PrimitiveType] = {
    "timestamp": ice.TimestamptzType(),
    "date": ice.DateType(),
    "time": ice.TimeType(),
}
_SECOND = 1_000_000


class ProtobufEncoder:
    """Writes rows of a message.

    Args:
        message: Message of a schema (`jobs.records.formats.protobuf.compile`).
        options: Options of the stream's decoder, which decide the columns of the message's fields.

    Attributes:
        tree: The message.
        shape: Shape of the rows.

    Raises:
        BadWriterSchema: A message is recursive, or nested too deeply.
    """

    def __init__(self, message: Descriptor, options: Mapping[str, Any]) -> None:
        self.tree: Message = message_tree(message, rules_of(options))
        self.shape: Struct = _message_shape(self.tree, message)
        self._make: Any = GetMessageClass(message)

    def encode(self, row: Row) -> bytes:
        """The bytes of a row, without what names the schema and the message."""
        message = self._make()
        _fill(message, self.tree, row)
        return message.SerializeToString(deterministic=True)


def _message_shape(tree: Message, message: Descriptor) -> Struct:
    members: list[Member] = []
    for each in tree.members:
        if isinstance(each, Union):
            fields = tuple(Member(one.name, _shape(one, message), True) for one in each.fields)
            members.append(Member(each.name, Struct(fields, one=True), True))
        else:
            required = message.fields_by_number[each.number].is_required
            optional = each.absent == "null" and each.shape == "one" and not required
            members.append(Member(each.name, _shape(each, message), optional, each.oneof))
    return Struct(tuple(members))


def _shape(field: Field, message: Descriptor) -> Shape:
    within = message.fields_by_number[field.number].message_type
    if field.shape == "map" and within is not None:
        within = within.fields_by_number[2].message_type
    one = _type_shape(field.type, within)
    match field.shape:
        case "one":
            return one
        case "list":
            return Items(one)
        case "map":
            assert field.key is not None
            return Entries(_scalar_shape(field.key), one)


def _scalar_shape(kind: Scalar) -> Leaf:
    limits = INTEGERS.get(kind.kind)
    if limits is not None and limits[1] >= 2**63:
        return Leaf(ice.DecimalType(20, 0))
    if limits is None:
        return Leaf(_PLAIN[kind.kind])
    if limits[0] == 0:
        return Leaf(ice.LongType(), most=limits[1])
    return Leaf(ice.IntegerType() if limits[0] == -(2**31) else ice.LongType())


def _type_shape(kind: Type, message: Descriptor | None) -> Shape:
    match kind:
        case Scalar(message=name) if name:
            raise BadWriterSchema(f"a {name} that lies within itself, or too deep, is not generated")
        case Scalar():
            return _scalar_shape(kind)
        case Enum(names=names, as_number=True):
            return Leaf(ice.IntegerType(), tuple(names))
        case Enum(names=names):
            return Leaf(ice.StringType(), tuple(names.values()))
        case Logical(kind="decimal"):
            return Leaf(ice.DecimalType(kind.precision, kind.scale))
        case Logical():
            return Leaf(_LOGICAL[kind.kind])
        case Wrapper():
            return _type_shape(kind.value.type, None)
        case Json(name):
            return Leaf(ice.StringType(), json="list" if name.endswith("ListValue") else "object")
        case Marker():
            return Leaf(ice.BooleanType(), (True,))
        case Message():
            assert message is not None
            return _message_shape(kind, message)


def _fill(message: Any, tree: Message, row: Row) -> None:
    for each in tree.members:
        value = row.get(each.name)
        if value is None:
            continue
        if isinstance(each, Union):
            for one in each.fields:
                if value.get(one.name) is not None:
                    _set(message, one, value[one.name])
        else:
            _set(message, each, value)


def _set(message: Any, field: Field, value: Any) -> None:
    name = field.name
    match field.shape:
        case "one" if isinstance(field.type, Scalar | Enum):
            setattr(message, name, _scalar(field.type, value))
        case "one":
            getattr(message, name).SetInParent()
            _write(getattr(message, name), field.type, value)
        case "list" if isinstance(field.type, Scalar | Enum):
            getattr(message, name).extend(_scalar(field.type, each) for each in value)
        case "list":
            for each in value:
                _write(getattr(message, name).add(), field.type, each)
        case "map":
            assert field.key is not None
            entries = getattr(message, name)
            for key, each in value:
                at = _scalar(field.key, key)
                if isinstance(field.type, Scalar | Enum):
                    entries[at] = _scalar(field.type, each)
                else:
                    _write(entries[at], field.type, each)


def _scalar(kind: Scalar | Enum, value: Any) -> Any:
    if isinstance(kind, Enum):
        return value if kind.as_number else next(number for number, name in kind.names.items() if name == value)
    return int(value) if kind.kind in INTEGERS else value


def _write(message: Any, kind: Type, value: Any) -> None:
    """Fill a message that means one value, or that is a struct."""
    match kind:
        case Logical(kind="timestamp"):
            message.seconds, rest = divmod(micros(value), _SECOND)
            message.nanos = rest * 1_000
        case Logical(kind="date"):
            message.year, message.month, message.day = value.year, value.month, value.day
        case Logical(kind="time"):
            seconds, rest = divmod(micros_of_day(value), _SECOND)
            message.hours, message.minutes, message.seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
            message.nanos = rest * 1_000
        case Logical(precision=precision, scale=scale):
            message.value, message.precision, message.scale = unscaled(value, scale), precision, scale
        case Wrapper() if isinstance(kind.value.type, Scalar):
            message.value = _scalar(kind.value.type, value)
        case Json():
            json_format.Parse(value if isinstance(value, str) else json.dumps(value), message)
        case Message():
            _fill(message, kind, value)
        case _:
            pass
