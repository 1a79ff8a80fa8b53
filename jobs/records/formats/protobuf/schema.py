"""Schema of a Protobuf message: the tree of its fields, and its columns."""

from __future__ import annotations

from itertools import count
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.records.formats.interface.writer_schema import BadWriterSchema
from jobs.records.formats.protobuf.bundled import FIELD_META
from jobs.records.formats.protobuf.message_tree import (
    DEFAULTS,
    Absent,
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
from jobs.records.formats.protobuf.options import ProtobufRules
from jobs.records.schema.iceberg_schema import JsonText, Presence

MAX_DEPTH = 32
MOST_COLUMNS = 10_000
MOST_DIGITS = 38

_KINDS: dict[int, str] = {
    number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()
}
_WRAPPERS = {
    f"google.protobuf.{name}Value": kind
    for name, kind in (
        *(("Double", "double"), ("Float", "float"), ("Int64", "int64"), ("UInt64", "uint64"), ("Int32", "int32")),
        *(("UInt32", "uint32"), ("Bool", "bool"), ("String", "string"), ("Bytes", "bytes")),
    )
}
_JSON = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
_LOGICAL = {
    "google.protobuf.Timestamp": ("timestamp", ("int64", "int32")),
    "google.type.Date": ("date", ("int32", "int32", "int32")),
    "google.type.TimeOfDay": ("time", ("int32", "int32", "int32", "int32")),
    "confluent.type.Decimal": ("decimal", ("bytes", "uint32", "int32")),
}
_ICEBERG: dict[str, ice.PrimitiveType] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), ice.IntegerType()),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), ice.LongType()),
    # A long cannot hold the upper half of their values.
    **dict.fromkeys(("uint64", "fixed64"), ice.DecimalType(20, 0)),
    "float": ice.FloatType(),
    "double": ice.DoubleType(),
    "bool": ice.BooleanType(),
    "string": ice.StringType(),
    "bytes": ice.BinaryType(),
}


def message_tree(message: Descriptor, rules: ProtobufRules) -> Message:
    """Return the types that a message's fields are converted to.

    Raises:
        BadWriterSchema: The message has no fields, more than MOST_COLUMNS columns, or a decimal that no column takes.
    """
    tree = _Reader(rules).message(message, "$", ())
    if not tree.members:
        raise BadWriterSchema(f"the message {message.full_name} has no fields, so its records have no columns")
    return tree


def columns_of(tree: Message) -> Schema:
    """Return the columns of a message; the ids of its fields only differ from each other."""
    ids = count(1)
    return Schema(*(_column(each, ids) for each in tree.members))


def _column(member: Field | Union, ids: count[int]) -> ice.NestedField:
    number = next(ids)
    if isinstance(member, Union):
        inner = ice.StructType(*(_column(each, ids) for each in member.fields))
        return ice.NestedField(number, member.name, inner, required=False)
    kind = _iceberg(member.type, ids)
    match member.shape:
        case "list":
            kind = ice.ListType(next(ids), kind, element_required=member.required)
        case "map":
            key = member.key
            assert key is not None
            kind = ice.MapType(next(ids), _ICEBERG[key.kind], next(ids), kind, value_required=member.required)
        case "one":
            pass
    return ice.NestedField(number, member.name, kind, required=member.required and member.shape == "one")


def _iceberg(kind: Type, ids: count[int]) -> ice.IcebergType:
    match kind:
        case Scalar():
            return _ICEBERG[kind.kind]
        case Enum():
            return ice.IntegerType() if kind.as_number else ice.StringType()
        case Logical(kind="timestamp"):
            return ice.TimestamptzType()
        case Logical(kind="date"):
            return ice.DateType()
        case Logical(kind="time"):
            return ice.TimeType()
        case Logical():
            return ice.DecimalType(kind.precision, kind.scale)
        case Wrapper():
            return _iceberg(kind.value.type, ids)
        case Json():
            return JsonText()
        case Marker():
            return Presence()
        case Message():
            return ice.StructType(*(_column(each, ids) for each in kind.members))


class _Reader:
    def __init__(self, rules: ProtobufRules) -> None:
        self._rules: ProtobufRules = rules
        self._columns: int = 0

    def message(self, message: Descriptor, path: str, within: tuple[str, ...]) -> Message:
        within = (*within, name := message.full_name)
        declared = DescriptorProto()
        message.CopyToProto(declared)
        proto2 = _is_proto2(message)
        members: list[Field | Union] = []
        unions: dict[str, list[Field]] = {}
        # `optional` of proto3 adds a oneof of its own, which nobody declared.
        alone = {each.number for each in declared.field if each.proto3_optional}
        for one in message.fields:
            oneof = None if one.number in alone else one.containing_oneof
            field = self._field(one, f"{path}.{one.name}", within, proto2, oneof and oneof.name)
            if oneof is None or self._rules.flatten_unions:
                members.append(field)
                continue
            column = f"{oneof.name}_{oneof.index}" if self._rules.generate_index_for_unions else oneof.name
            if column not in unions:
                unions[column] = []
                members.append(Union(column, ()))
            unions[column].append(field)
        whole = [Union(each.name, tuple(unions[each.name])) if isinstance(each, Union) else each for each in members]
        names = [each.name for each in whole]
        if twice := next((each for each in names if names.count(each) > 1), None):
            raise BadWriterSchema(f"the oneof and the field {path}.{twice} would be one column")
        return Message(name, tuple(whole))

    def _field(
        self,
        one: FieldDescriptor,
        path: str,
        within: tuple[str, ...],
        proto2: bool,
        oneof: str | None,
    ) -> Field:
        self._columns += 1
        if self._columns > MOST_COLUMNS:
            raise BadWriterSchema(f"the schema has more than {MOST_COLUMNS} columns")
        rules = self._rules
        group = one.type == FieldDescriptor.TYPE_GROUP
        if one.is_repeated:
            required = rules.optional_for_nullables
            if one.message_type is not None and one.message_type.GetOptions().map_entry:
                key, value = one.message_type.fields_by_number[1], one.message_type.fields_by_number[2]
                kind = self._type(value, f"{path}{{}}", within)
                default = None if isinstance(kind, Message) else _default(value, kind)
                return Field(one.number, one.name, kind, "map", Scalar(_KINDS[key.type]), "default", default, required)
            element = self._type(one, f"{path}[]", within)
            return Field(one.number, one.name, element, "list", required=required, group=group)
        kind = self._type(one, path, within)
        absent: Absent = "null"
        if one.message_type is not None:
            if isinstance(kind, Message) and rules.generate_struct_for_nulls and oneof is None:
                absent = "default"
        elif oneof is None:
            if not one.has_presence or (proto2 and not rules.optional_for_proto2):
                absent = "default"
            if one.is_required:
                absent = "refused"
        never = absent != "null" and isinstance(kind, Scalar | Enum)
        required = rules.optional_for_nullables and never
        return Field(
            one.number,
            one.name,
            kind,
            absent=absent,
            default=_default(one, kind),
            required=required,
            oneof=oneof,
            group=group,
        )

    def _type(self, one: FieldDescriptor, path: str, within: tuple[str, ...]) -> Type:
        if one.enum_type is not None:
            names: dict[int, str] = {}
            for each in one.enum_type.values:
                names.setdefault(each.number, each.name)
            return Enum(one.enum_type.full_name, names, self._rules.int_for_enums)
        message = one.message_type
        if message is None:
            return Scalar(_KINDS[one.type])
        name = message.full_name
        if name in _WRAPPERS and self._rules.wrapper_for_nullables:
            return Wrapper(_parts((_WRAPPERS[name],)))
        if name in _JSON:
            return Json(name)
        if name in _LOGICAL:
            kind, parts = _LOGICAL[name]
            if kind == "decimal":
                return Logical(kind, _parts(parts), *_digits(one, path))
            return Logical(kind, _parts(parts))
        if name in within or len(within) >= MAX_DEPTH:
            if one.type == FieldDescriptor.TYPE_GROUP:
                raise BadWriterSchema(f"the field {path} is a group that lies more than {MAX_DEPTH} messages deep")
            return Scalar("bytes", name)
        return self.message(message, path, within) if message.fields else Marker()


def _parts(kinds: tuple[str, ...]) -> tuple[Field, ...]:
    return tuple(
        Field(number, f"f{number}", Scalar(kind), absent="default", default=DEFAULTS[kind])
        for number, kind in enumerate(kinds, 1)
    )


def _default(one: FieldDescriptor, kind: Type) -> Any:
    if isinstance(kind, Scalar) and kind.message:
        return b""
    return one.default_value if isinstance(kind, Scalar | Enum) else None


def _is_proto2(message: Descriptor) -> bool:
    file = FileDescriptorProto()
    message.file.CopyToProto(file)
    return file.syntax in ("", "proto2")


def _digits(one: FieldDescriptor, path: str) -> tuple[int, int]:
    """Return precision and scale of a decimal from the field's `confluent.field_meta`."""
    said: dict[str, str] = {}
    for option in UnknownFieldSet(one.GetOptions()):
        if option.field_number == FIELD_META:
            said |= _parameters(one, option.data)
    try:
        precision, scale = int(said.get("precision", MOST_DIGITS)), int(said.get("scale", 0))
    except ValueError:
        precision = scale = -1
    if not 0 <= scale <= precision or precision == 0 or scale > MOST_DIGITS:
        raise BadWriterSchema(
            f"the field {path} needs a precision from 1 on and a scale from 0 to it, {MOST_DIGITS} at most, "
            f"found {said.get('precision')!r} and {said.get('scale')!r}"
        )
    return min(precision, MOST_DIGITS), scale


def _parameters(one: FieldDescriptor, meta: bytes) -> dict[str, str]:
    """Return the entries of the map `params` of a serialized `confluent.Meta`."""
    assert one.containing_type is not None
    kind: Any = GetMessageClass(one.containing_type.file.pool.FindMessageTypeByName("confluent.Meta"))
    return dict(kind.FromString(meta).params)
