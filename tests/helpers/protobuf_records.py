"""Protobuf schemas and records for tests: descriptors made at random, messages of them, and what spoils these."""

from __future__ import annotations

from typing import Any

from google.protobuf import any_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.type import date_pb2, timeofday_pb2
from hypothesis import strategies as st

SCALARS = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32"),
    *("sfixed32", "sfixed64", "sint32", "sint64"),
)
KEYS = tuple(each for each in SCALARS if each not in ("double", "float", "bytes"))
KNOWN = (
    *(".google.protobuf.Timestamp", ".google.protobuf.Duration", ".google.protobuf.Any", ".google.protobuf.Empty"),
    *(".google.protobuf.Struct", ".google.protobuf.Value", ".google.protobuf.ListValue"),
    *(".google.protobuf.Int64Value", ".google.protobuf.StringValue", ".google.protobuf.BoolValue"),
    *(".google.protobuf.UInt64Value", ".google.type.Date", ".google.type.TimeOfDay", ".confluent.type.Decimal"),
)
_FILES = (timestamp_pb2, duration_pb2, any_pb2, empty_pb2, struct_pb2, wrappers_pb2, date_pb2, timeofday_pb2)
_INT32 = st.one_of(st.integers(-3, 3), st.sampled_from([2**31 - 1, -(2**31), 255, 300]))
_UINT32 = st.one_of(st.integers(0, 3), st.sampled_from([2**32 - 1, 2**31, 128]))
_INT64 = st.one_of(_INT32, st.sampled_from([2**63 - 1, -(2**63), 2**31, 2**53 + 1]))
_UINT64 = st.one_of(_UINT32, st.sampled_from([2**64 - 1, 2**63, 2**32]))
_FLOAT = st.one_of(st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf")]), st.floats(width=32))
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), _INT32),
    **dict.fromkeys(("uint32", "fixed32"), _UINT32),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), _INT64),
    **dict.fromkeys(("uint64", "fixed64"), _UINT64),
    **dict.fromkeys(("float", "double"), _FLOAT),
    "bool": st.booleans(),
    "string": st.one_of(st.sampled_from(["", "a", "é\0", "𝄞"]), st.text(max_size=5)),
    "bytes": st.binary(max_size=4),
}


def decimal_file() -> FileDescriptorProto:
    """confluent/type/decimal.proto."""
    file = FileDescriptorProto(name="confluent/type/decimal.proto", package="confluent.type", syntax="proto3")
    message = file.message_type.add(name="Decimal")
    for number, (name, kind) in enumerate((("value", "BYTES"), ("precision", "UINT32"), ("scale", "INT32")), 1):
        message.field.add(
            name=name, number=number, label="LABEL_OPTIONAL", type=FieldDescriptorProto.Type.Value(f"TYPE_{kind}")
        )
    return file


class _Schemas:
    """Draws the messages of one file."""

    def __init__(self, draw: Any, syntax: str, shapes: tuple[str, ...]) -> None:
        self.draw = draw
        self.shapes = shapes
        self.syntax = syntax
        self.file = FileDescriptorProto(name="drawn.proto", package="drawn", syntax=syntax)
        self.file.dependency.extend([*(each.DESCRIPTOR.name for each in _FILES), "confluent/type/decimal.proto"])
        first = 0 if syntax == "proto3" else draw(st.sampled_from([0, 2]))
        kinds = self.file.enum_type.add(name="Kind")
        for name, number in (("ZERO", first), ("MINUS", -1), ("MANY", 70_000)):
            kinds.value.add(name=name, number=number)

    def message(self, depth: int) -> str:
        made = DescriptorProto(name=f"Drawn{len(self.file.message_type)}")
        self.file.message_type.append(made)
        made = self.file.message_type[-1]
        numbers = self.draw(st.lists(st.integers(1, 20), min_size=1, max_size=5, unique=True))
        oneof = self.draw(st.integers(0, 3))
        if oneof:
            made.oneof_decl.add(name="either")
        for place, number in enumerate(numbers):
            if place < oneof and self._one(made, number, depth, oneof=0):
                continue
            match self.draw(st.sampled_from(self.shapes)):
                case "one":
                    self._one(made, number, depth)
                case "list":
                    field = self._field(made, f"field{number}", number, "LABEL_REPEATED")
                    self._type(field, depth)
                    if field.type not in (9, 11, 12) and self.draw(st.booleans()):
                        field.options.packed = self.draw(st.booleans())
                case _:
                    self._map(made, number, depth)
        synthetic = [each for each in made.field if each.proto3_optional]
        for each in synthetic:
            each.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{each.name}")
        if oneof and not any(each.HasField("oneof_index") and each.oneof_index == 0 for each in made.field):
            del made.oneof_decl[:]
            for place, each in enumerate(synthetic):
                each.oneof_index = place
                made.oneof_decl.add(name=f"_{each.name}")
        return f".drawn.{made.name}"

    def _field(self, made: DescriptorProto, name: str, number: int, label: str) -> FieldDescriptorProto:
        return made.field.add(name=name, number=number, label=FieldDescriptorProto.Label.Value(label))

    def _one(self, made: DescriptorProto, number: int, depth: int, oneof: int | None = None) -> bool:
        required = self.syntax == "proto2" and oneof is None and self.draw(st.integers(0, 5)) == 0
        field = self._field(made, f"field{number}", number, "LABEL_REQUIRED" if required else "LABEL_OPTIONAL")
        self._type(field, depth)
        if oneof is not None:
            field.oneof_index = oneof
        elif self.syntax == "proto3" and field.type != 11 and self.draw(st.booleans()):
            field.proto3_optional = True
        elif self.syntax == "proto2" and field.type in (3, 5, 9) and not required and self.draw(st.booleans()):
            field.default_value = "7"
        return True

    def _type(self, field: FieldDescriptorProto, depth: int) -> None:
        match self.draw(st.sampled_from(["scalar", "scalar", "enum", "known", "message" if depth else "scalar"])):
            case "scalar":
                field.type = FieldDescriptorProto.Type.Value(f"TYPE_{self.draw(st.sampled_from(SCALARS)).upper()}")
            case "enum":
                field.type, field.type_name = FieldDescriptorProto.TYPE_ENUM, ".drawn.Kind"
            case "known":
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, self.draw(st.sampled_from(KNOWN))
            case _:
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, self.message(depth - 1)

    def _map(self, made: DescriptorProto, number: int, depth: int) -> None:
        entry = DescriptorProto(name=f"Field{number}Entry")
        entry.options.map_entry = True
        key = self._field(entry, "key", 1, "LABEL_OPTIONAL")
        key.type = FieldDescriptorProto.Type.Value(f"TYPE_{self.draw(st.sampled_from(KEYS)).upper()}")
        value = self._field(entry, "value", 2, "LABEL_OPTIONAL")
        self._type(value, depth)
        if value.type == FieldDescriptorProto.TYPE_ENUM and self.file.enum_type[0].value[0].number:
            value.type = FieldDescriptorProto.TYPE_INT32
            value.ClearField("type_name")
        made.nested_type.append(entry)
        field = self._field(made, f"field{number}", number, "LABEL_REPEATED")
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".drawn.{made.name}.{entry.name}"


@st.composite
def messages(draw: Any) -> Descriptor:
    """A message of one to five fields, nested twice at most, of any type that is read."""
    # Messages without lists and maps are read in another way.
    shapes = draw(st.sampled_from([("one",), ("one", "one", "list", "map")]))
    schemas = _Schemas(draw, draw(st.sampled_from(["proto2", "proto3", "proto3"])), shapes)
    root = schemas.message(2)
    pool = DescriptorPool()
    for each in _FILES:
        pool.AddSerializedFile(each.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(decimal_file().SerializeToString())
    pool.AddSerializedFile(schemas.file.SerializeToString())
    return pool.FindMessageTypeByName(root[1:])


@st.composite
def filled(draw: Any, message: Descriptor, depth: int = 5) -> Any:
    """A message with some of its fields."""
    made = GetMessageClass(message)()
    for field in message.fields:
        if not field.is_required and draw(st.integers(0, 3)) == 0:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            for key in draw(st.lists(_scalar(field.message_type.fields_by_name["key"]), max_size=2)):
                if value.message_type is None:
                    getattr(made, field.name)[key] = draw(_scalar(value))
                else:
                    getattr(made, field.name)[key].CopyFrom(draw(_message(value.message_type, depth - 1)))
        elif field.is_repeated:
            one = _scalar(field) if field.message_type is None else _message(field.message_type, depth - 1)
            getattr(made, field.name).extend(draw(st.lists(one, max_size=3)))
        elif field.message_type is None:
            setattr(made, field.name, draw(_scalar(field)))
        else:
            getattr(made, field.name).CopyFrom(draw(_message(field.message_type, depth - 1)))
    return made


def _scalar(field: Any) -> st.SearchStrategy[Any]:
    if field.enum_type is not None:
        return st.sampled_from([each.number for each in field.enum_type.values])
    return _VALUES[FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()]


def _message(message: Descriptor, depth: int) -> st.SearchStrategy[Any]:
    kind = GetMessageClass(message)
    if depth <= 0 and not any(each.is_required for each in message.fields):
        return st.builds(kind)
    match message.full_name:
        case "google.protobuf.Timestamp":
            seconds = st.sampled_from([0, -1, -62_135_596_800, 253_402_300_799, 253_402_300_800, 2**62])
            return st.builds(kind, seconds=seconds, nanos=st.sampled_from([0, 1000, 999_999_000, 1, -1, 10**9]))
        case "google.type.Date":
            parts = st.sampled_from([(2024, 2, 29), (2023, 2, 29), (1, 1, 1), (9999, 12, 31), (0, 1, 1), (2024, 0, 1)])
            return parts.map(lambda each: kind(year=each[0], month=each[1], day=each[2]))
        case "google.type.TimeOfDay":
            parts = st.sampled_from([(0, 0, 0), (23, 59, 999_999_000), (24, 0, 0), (1, 60, 0), (1, 1, 1)])
            return parts.map(lambda each: kind(hours=each[0], minutes=each[1], seconds=each[1] % 60, nanos=each[2]))
        case "confluent.type.Decimal":
            numbers = st.sampled_from([0, 1, -1, 255, -128, 10**37, -(10**38), 10**38 - 1, 10**17])
            return st.builds(
                lambda number, length, scale: kind(
                    value=number.to_bytes(length + (number.bit_length() + 8) // 8, "big", signed=True), scale=scale
                ),
                *(numbers, st.sampled_from([0, 0, 1]), st.sampled_from([0, 0, 1, -1, -1000])),
            )
        case _:
            return filled(message, depth)


@st.composite
def spoilt(draw: Any, value: bytes, other: bytes) -> bytes:
    """A record that is cut, goes on, has a byte changed, is repeated, or is of another type, if it is one still."""
    place = draw(st.integers(0, len(value)))
    match draw(st.integers(0, 7)):
        case 0:
            return value[:place]
        case 1:
            return value + draw(st.binary(max_size=3))
        case 2:
            return value[:place] + draw(st.binary(min_size=1, max_size=1)) + value[place + 1 :]
        case 3:
            return value + value
        case 4:
            return value + other
        case 5:
            number, wire = draw(st.integers(1, 30)), draw(st.integers(0, 7))
            tail = draw(st.sampled_from([b"\x01", b"\0", b"\0" * 8, b"\xff" * 9 + b"\x01", b"\xff\xff\xff\xff\x0f"]))
            return value + _varint(number << 3 | wire) + tail
        case 6:
            return other
        case _:
            return draw(st.binary(max_size=20))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
