"""Protobuf payments: the payments of the comparison with Kafka Connect as messages of a schema in a registry."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId, WriterSchema
from jobs.records.formats.protobuf.compile import message_of
from jobs.records.schema.declared import (
    DeclaredType,
    Field,
    ListType,
    Primitive,
    StructType,
)

_SCALARS = {"string": "string", "int": "int32", "long": "int64", "double": "double", "boolean": "bool"}
_IMPORTS = (
    *("confluent/meta.proto", "confluent/type/decimal.proto"),
    *("google/protobuf/timestamp.proto", "google/type/date.proto"),
)


class ProtobufPayments:
    """A schema, and the messages of payments.

    Args:
        declared: The columns of payments.
        schema_id: The registry's of the schema.
    """

    def __init__(self, declared: StructType, schema_id: int = 1) -> None:
        imports = "".join(f'import "{each}"; ' for each in _IMPORTS)
        text = f'syntax = "proto3"; package shop; {imports}{_message("Payment", declared)}'
        self._declared: StructType = declared
        self.schema: WriterSchema = WriterSchema(text)
        # Behind the id: that it is the first message of its file.
        self._prefix: bytes = b"\0" + schema_id.to_bytes(4) + b"\0"
        self._class: Any = GetMessageClass(message_of(self.schema))

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        """The schema, as a registry would find it, whatever the id."""
        return RegistrySchema("PROTOBUF", self.schema)

    @property
    def unmet(self) -> frozenset[SchemaId]:
        """Empty set: every requested id is known here, or made up."""
        return frozenset()

    def learned(self) -> dict[SchemaId, RegistrySchema]:
        """Empty mapping: no registry is asked."""
        return {}

    def record(self, payment: bytes) -> bytes:
        """A payment as a topic has it, of its JSON."""
        message = self._class()
        _fill(message, self._declared, json.loads(payment, parse_float=Decimal))
        return self._prefix + message.SerializeToString()


def _message(name: str, declared: StructType) -> str:
    structs = [(_type_name(each), each.type) for each in declared.fields if isinstance(each.type, StructType)]
    inner = "".join(_message(*each) for each in structs)
    fields = "".join(_field(each, number) for number, each in enumerate(declared.fields, 1))
    return f"message {name} {{ {inner}{fields}}} "


def _type_name(field: Field) -> str:
    return field.name.title()


def _field(field: Field, number: int) -> str:
    match field.type:
        case ListType(Primitive(name)):
            return f"repeated {_SCALARS[name]} {field.name} = {number}; "
        case StructType():
            return f"{_type_name(field)} {field.name} = {number}; "
        case Primitive("decimal", precision, scale):
            said = ", ".join(
                f'(confluent.field_meta).params = {{key: "{key}" value: "{value}"}}'
                for key, value in (("precision", precision), ("scale", scale))
            )
            return f"confluent.type.Decimal {field.name} = {number} [{said}]; "
        case Primitive("timestamptz"):
            return f"google.protobuf.Timestamp {field.name} = {number}; "
        case Primitive("date"):
            return f"google.type.Date {field.name} = {number}; "
        case Primitive(name):
            return f"{'' if field.required else 'optional '}{_SCALARS[name]} {field.name} = {number}; "
        case _:
            raise ValueError(f"payments have no {field.type}")


def _fill(message: Any, declared: StructType, record: dict[str, Any]) -> None:
    for field in declared.fields:
        value, kind = record[field.name], field.type
        if isinstance(kind, StructType):
            _fill(getattr(message, field.name), kind, value)
        elif isinstance(kind, ListType):
            getattr(message, field.name).extend(value)
        else:
            _set(message, field.name, kind, value)


def _set(message: Any, name: str, kind: DeclaredType, value: Any) -> None:
    match kind:
        case Primitive("decimal", _, int() as scale):
            number = int(Decimal(value).scaleb(scale))
            getattr(message, name).value = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
            getattr(message, name).scale = scale
        case Primitive("timestamptz"):
            getattr(message, name).FromDatetime(datetime.fromisoformat(value))
        case Primitive("date"):
            day = date.fromisoformat(value)
            getattr(message, name).year = day.year
            getattr(message, name).month = day.month
            getattr(message, name).day = day.day
        case Primitive("double"):
            setattr(message, name, float(value))
        case _:
            setattr(message, name, value)
