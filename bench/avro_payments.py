"""Avro payments: the payments of the comparison with Kafka Connect as Avro records of a schema in a registry."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro

from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId, WriterSchema
from jobs.records.schema.declared import (
    DeclaredType,
    ListType,
    Primitive,
    StructType,
)

_DAY, _EPOCH = date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)
_LOGICAL = {
    "date": {"type": "int", "logicalType": "date"},
    "timestamptz": {"type": "long", "logicalType": "timestamp-millis"},
}


class AvroPayments:
    """A schema, and the records of payments.

    Args:
        declared: The columns of payments.
        schema_id: The registry's of the schema.
    """

    def __init__(self, declared: StructType, schema_id: int = 1) -> None:
        self._declared: StructType = declared
        schema = _type(declared, iter(range(1_000)))
        self.schema: WriterSchema = WriterSchema(json.dumps(schema))
        self._parsed: Any = fastavro.parse_schema(schema)
        self._prefix: bytes = b"\0" + schema_id.to_bytes(4)

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        """The schema, as a registry would find it."""
        return RegistrySchema("AVRO", self.schema)

    @property
    def unmet(self) -> frozenset[SchemaId]:
        """Empty set: every requested id is known here, or made up."""
        return frozenset()

    def learned(self) -> dict[SchemaId, RegistrySchema]:
        """Empty mapping: no registry is asked."""
        return {}

    def record(self, payment: bytes) -> bytes:
        """A payment as a topic has it, of its JSON."""
        written = io.BytesIO()
        value = _value(self._declared, json.loads(payment, parse_float=Decimal))
        fastavro.schemaless_writer(written, self._parsed, value)
        return self._prefix + written.getvalue()


def _type(kind: DeclaredType, numbers: Iterator[int]) -> Any:
    match kind:
        case StructType(fields):
            types = [(each, _type(each.type, numbers)) for each in fields]
            read = [{"name": each.name, "type": one if each.required else ["null", one]} for each, one in types]
            return {"type": "record", "name": f"Record{next(numbers)}", "fields": read}
        case ListType(element):
            return {"type": "array", "items": _type(element, numbers)}
        case Primitive("decimal", precision, scale):
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        case Primitive(name):
            return _LOGICAL.get(name, name)
        case _:
            raise ValueError(f"payments have no {kind}")


def _value(kind: DeclaredType, value: Any) -> Any:
    """Value in the schema's physical type, which fastavro writes without checking logical types."""
    if isinstance(kind, StructType):
        return {each.name: _value(each.type, value[each.name]) for each in kind.fields}
    match kind:
        case Primitive("decimal", _, int() as scale):
            number = int(Decimal(value).scaleb(scale))
            return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
        case Primitive("timestamptz"):
            return (datetime.fromisoformat(value) - _EPOCH) // timedelta(milliseconds=1)
        case Primitive("date"):
            return (date.fromisoformat(value) - _DAY).days
        case Primitive("double"):
            return float(value)
        case _:
            return value
