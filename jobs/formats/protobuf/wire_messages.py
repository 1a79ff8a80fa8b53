"""Wire messages: the descriptors by which records are parsed, made from the message tree.

They mean the same bytes as the schema's own, and let through what those would change or hide: an integer has 64 bits,
so that a number which is too large is seen and not cut; a text is bytes, so that bad UTF-8 is seen where it is; an enum
is its number; a map is the list of its entries, in their order; every field knows whether it is there.
"""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf import struct_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from jobs.formats.protobuf.message_tree import Enum, Field, Json, Marker, Message, Scalar, Type

_PACKAGE = "frazil"
_WIDE: Mapping[str, str] = {"int32": "int64", "uint32": "uint64", "sint32": "sint64", "string": "bytes"}


def name_of(field: Field) -> str:
    """The name of a field in its wire message."""
    return f"f{field.number}"


def wire_kind(kind: Scalar | Enum) -> str:
    """The kind of scalar that a field is parsed as."""
    return "int64" if isinstance(kind, Enum) else _WIDE.get(kind.kind, kind.kind)


def wire_message(tree: Message, *, nested: bool) -> Descriptor:
    """The wire message of a tree, on a pool of its own.

    Args:
        tree: The message.
        nested: Whether what becomes JSON is a message, and the fields of a oneof belong together; otherwise they are
            bytes and fields like any other, which is as much as ptars may know.
    """
    file = FileDescriptorProto(name="frazil.proto", package=_PACKAGE, syntax="proto2")
    pool = DescriptorPool()
    if nested:
        file.dependency.append(struct_pb2.DESCRIPTOR.name)
        pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    root = _Maker(file, nested).message(tree.parts)
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindMessageTypeByName(f"{_PACKAGE}.{root}")


class _Maker:
    def __init__(self, file: FileDescriptorProto, nested: bool) -> None:
        self._file: FileDescriptorProto = file
        self._nested: bool = nested

    def message(self, parts: tuple[Field, ...]) -> str:
        name = f"M{len(self._file.message_type)}"
        made: DescriptorProto = self._file.message_type.add(name=name)
        oneofs: dict[str, int] = {}
        for part in sorted(parts, key=lambda each: each.number):
            field = self._field(made, part)
            if self._nested and part.oneof is not None:
                if part.oneof not in oneofs:
                    oneofs[part.oneof] = len(oneofs)
                    made.oneof_decl.add(name=f"o{oneofs[part.oneof]}")
                field.oneof_index = oneofs[part.oneof]
        return name

    def _field(self, made: DescriptorProto, part: Field) -> FieldDescriptorProto:
        label = "LABEL_OPTIONAL" if part.shape == "one" else "LABEL_REPEATED"
        field = made.field.add(name=name_of(part), number=part.number, label=label)
        if part.shape == "map":
            assert part.key is not None
            entry = (Field(1, "key", part.key), Field(2, "value", part.type))
            field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{self.message(entry)}"
        else:
            self._set_type(field, part.type)
        if part.group:
            field.type = FieldDescriptorProto.TYPE_GROUP
        return field

    def _set_type(self, field: FieldDescriptorProto, kind: Type) -> None:
        match kind:
            case Scalar() | Enum():
                field.type = FieldDescriptorProto.Type.Value(f"TYPE_{wire_kind(kind).upper()}")
            case Json() if self._nested:
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{kind.name}"
            case Marker() if self._nested:
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{self.message(())}"
            case Json() | Marker():
                field.type = FieldDescriptorProto.TYPE_BYTES
            case _:
                name = self.message(kind.parts)
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{name}"
