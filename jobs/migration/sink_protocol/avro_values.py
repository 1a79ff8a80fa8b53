"""Decoder of Avro values by the schema that an event of the Iceberg sink carries, without a library.

Values come in Iceberg's internal forms: days, micros and other logical numbers as they are, decimals as `Decimal`, and
fixed bytes as bytes, those of UUIDs included.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

Schema = str | Mapping[str, Any] | list[Any]

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


class AvroError(ValueError):
    """Bytes that are no value of their schema, or a schema that Avro does not know."""


class AvroReader:
    """Reader of one value.

    Args:
        data: The encoded value, from its first to its last byte.
    """

    def __init__(self, data: bytes) -> None:
        self._data: bytes = data
        self._at: int = 0
        self._named: dict[str, Schema] = {}

    def read_whole(self, schema: Schema) -> Any:
        """The value.

        Args:
            schema: Avro schema, as JSON decodes it.

        Raises:
            AvroError: The bytes are no value of the schema, or more than one.
        """
        value = self._read(schema, "")
        if self._at != len(self._data):
            raise AvroError(f"{len(self._data) - self._at} bytes follow the value")
        return value

    def _read(self, schema: Schema, space: str) -> Any:
        if isinstance(schema, list):
            branch = self._read_long()
            if not 0 <= branch < len(schema):
                raise AvroError(f"a union has no branch {branch}")
            return self._read(schema[branch], space)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return self._read_primitive(schema)
            named = self._named.get(schema if "." in schema else _full_name(schema, space), self._named.get(schema))
            if named is None:
                raise AvroError(f"there is no type {schema}")
            return self._read(named, space)
        avro_type = schema.get("type")
        if isinstance(avro_type, list | Mapping):
            return self._read(avro_type, space)
        if avro_type in ("record", "fixed", "enum"):
            space = str(schema.get("namespace", space))
            name = _full_name(str(schema.get("name", "")), space)
            self._named[name] = schema
            space = name.rpartition(".")[0]
        match avro_type:
            case "record":
                return {field["name"]: self._read(field["type"], space) for field in schema["fields"]}
            case "fixed":
                return _apply_logical_type(schema, self._take(int(schema["size"])))
            case "enum":
                return schema["symbols"][self._read_long()]
            case "array":
                items = self._read_blocks(lambda: self._read(schema["items"], space))
                # Iceberg writes maps whose keys are not strings as arrays of pairs.
                return {item["key"]: item["value"] for item in items} if schema.get("logicalType") == "map" else items
            case "map":
                return dict(
                    self._read_blocks(lambda: (self._read_primitive("string"), self._read(schema["values"], space)))
                )
            case str() if avro_type in _PRIMITIVES:
                return _apply_logical_type(schema, self._read_primitive(avro_type))
            case _:
                return self._read(str(avro_type), space)

    def _read_primitive(self, primitive: str) -> Any:
        match primitive:
            case "null":
                return None
            case "boolean":
                return self._take(1) != b"\0"
            case "int" | "long":
                return self._read_long()
            case "float":
                return struct.unpack("<f", self._take(4))[0]
            case "double":
                return struct.unpack("<d", self._take(8))[0]
            case "string":
                return self._take(self._read_long()).decode()
            case _:
                return self._take(self._read_long())

    def _read_blocks(self, read: Callable[[], Any]) -> list[Any]:
        items: list[Any] = []
        while count := self._read_long():
            if count < 0:
                self._read_long()
            items.extend(read() for _ in range(abs(count)))
        return items

    def _take(self, count: int) -> bytes:
        if count < 0 or self._at + count > len(self._data):
            raise AvroError("the value ends too early")
        self._at += count
        return self._data[self._at - count : self._at]

    def _read_long(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            if shift > 63:
                raise AvroError("a number has too many bytes")


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _apply_logical_type(schema: Mapping[str, Any], value: Any) -> Any:
    if schema.get("logicalType") == "decimal" and isinstance(value, bytes):
        return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-int(schema.get("scale", 0)))
    return value
