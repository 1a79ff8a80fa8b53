"""Writer schemas made of columns, for topics whose producers have not registered any: the columns, each in the type of
its format that a decoder brings back to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from pyiceberg import types as ice

from jobs.base.errors import FrazilError
from jobs.records.formats.connect_types import DECIMAL
from jobs.records.schema.iceberg_schema import schema_text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN_AVRO: Mapping[type[ice.PrimitiveType], Any] = {
    ice.BooleanType: "boolean",
    ice.IntegerType: "int",
    ice.LongType: "long",
    ice.FloatType: "float",
    ice.DoubleType: "double",
    ice.StringType: "string",
    ice.BinaryType: "bytes",
    ice.UUIDType: {"type": "string", "logicalType": "uuid"},
    ice.DateType: {"type": "int", "logicalType": "date"},
    ice.TimeType: {"type": "long", "logicalType": "time-micros"},
    ice.TimestampType: {"type": "long", "logicalType": "local-timestamp-micros"},
    ice.TimestamptzType: {"type": "long", "logicalType": "timestamp-micros"},
}
_DATA, _TIME = "org.apache.kafka.connect.data.", "io.debezium.time."
_CONNECT: Mapping[type[ice.PrimitiveType], tuple[str, str | None]] = {
    ice.BooleanType: ("boolean", None),
    ice.IntegerType: ("int32", None),
    ice.LongType: ("int64", None),
    ice.FloatType: ("float", None),
    ice.DoubleType: ("double", None),
    ice.StringType: ("string", None),
    ice.BinaryType: ("bytes", None),
    ice.UUIDType: ("string", "io.debezium.data.Uuid"),
    ice.DateType: ("int32", _DATA + "Date"),
    ice.TimeType: ("int64", _TIME + "MicroTime"),
    ice.TimestampType: ("int64", _TIME + "MicroTimestamp"),
    ice.TimestamptzType: ("int64", _DATA + "Timestamp"),
}
"""Connect's type, and the name of its logical type. Without a zone or a uuid of its own it takes Debezium's."""
_JSON_TYPES = {"boolean": "boolean", "string": "string", "bytes": "string", "float": "number", "double": "number"}
_JSON_WORDS = {"float": "float32", "double": "float64"}


def derived_schema(format_: str, columns: Iterable[ice.NestedField], name: str) -> str:
    """Text of a writer schema with these columns.

    Args:
        format_: `avro`, `json_schema` or `connect_json`; of `protobuf` none is made.
        columns: Columns of the records.
        name: Made to the record's name.

    Raises:
        FrazilError: The format has no such type, or no such name.
    """
    fields = tuple(columns)
    title = "".join(part.capitalize() for part in re.split(r"[^A-Za-z0-9]+", name)) or "Record"
    title = title if not title[0].isdigit() else f"Record{title}"
    match format_:
        case "avro":
            return json.dumps(_avro_record(title, fields, count(1), ""))
        case "protobuf":
            raise FrazilError(
                "no schema is made of columns for Protobuf.", fix="register one, then name its subject with --subject"
            )
        case "json_schema":
            return json.dumps({"title": title, **_json_struct(fields)})
        case _:
            return json.dumps({**_connect_struct(fields), "optional": False, "name": title}, separators=(",", ":"))


def _avro_record(name: str, fields: Iterable[ice.NestedField], numbers: Iterator[int], path: str) -> Any:
    made: list[Any] = []
    for each in fields:
        at = _below(path, each.name)
        if not _NAME.fullmatch(each.name):
            raise _cannot(at, "Avro has no such name")
        kind = _avro(each.field_type, numbers, at)
        one = {"name": each.name, "type": kind if each.required else ["null", kind]}
        made.append(one if each.required else {**one, "default": None})
    return {"type": "record", "name": name, "fields": made}


def _avro(kind: ice.IcebergType, numbers: Iterator[int], path: str) -> Any:
    match kind:
        case ice.StructType(fields=fields):
            return _avro_record(f"Record{next(numbers)}", fields, numbers, path)
        case ice.ListType():
            items = _avro(kind.element_type, numbers, _below(path, "element"))
            return {"type": "array", "items": items if kind.element_required else ["null", items]}
        case ice.MapType(key_type=ice.StringType()):
            values = _avro(kind.value_type, numbers, _below(path, "value"))
            return {"type": "map", "values": values if kind.value_required else ["null", values]}
        case ice.DecimalType(precision=precision, scale=scale):
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        case ice.FixedType():
            return {"type": "fixed", "name": f"Fixed{next(numbers)}", "size": len(kind)}
        case _ if type(kind) in _PLAIN_AVRO:
            return _PLAIN_AVRO[type(kind)]  # pyright: ignore[reportArgumentType]
        case _:
            raise _cannot(path, f"Avro has no type for {schema_text(kind)}")


def _connect_struct(fields: Iterable[ice.NestedField], path: str = "") -> dict[str, Any]:
    made = [
        {**_connect(each.field_type, _below(path, each.name)), "optional": not each.required, "field": each.name}
        for each in fields
    ]
    return {"type": "struct", "fields": made}


def _connect(kind: ice.IcebergType, path: str) -> dict[str, Any]:
    match kind:
        case ice.StructType(fields=fields):
            return _connect_struct(fields, path)
        case ice.ListType():
            element = _connect(kind.element_type, _below(path, "element"))
            return {"type": "array", "items": {**element, "optional": not kind.element_required}}
        case ice.MapType(key_type=ice.StringType()):
            values = _connect(kind.value_type, _below(path, "value"))
            return {
                "type": "map",
                "keys": {"type": "string", "optional": False},
                "values": {**values, "optional": not kind.value_required},
            }
        case ice.DecimalType(scale=scale):
            return {"type": "bytes", "name": DECIMAL, "version": 1, "parameters": {"scale": str(scale)}}
        case _ if type(kind) in _CONNECT:
            word, name = _CONNECT[type(kind)]  # pyright: ignore[reportArgumentType]
            return {"type": word} if name is None else {"type": word, "name": name, "version": 1}
        case _:
            raise _cannot(path, f"Connect has no type for {schema_text(kind)}")


def _json_struct(fields: Iterable[ice.NestedField], path: str = "") -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for index, each in enumerate(fields):
        one = _json(each.field_type, _below(path, each.name))
        required += [each.name] if each.required else []
        typed = one if each.required else {"oneOf": [{"type": "null"}, one]}
        properties[each.name] = {"connect.index": index, **typed}
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _json(kind: ice.IcebergType, path: str) -> dict[str, Any]:
    match kind:
        case ice.StructType(fields=fields):
            return _json_struct(fields, path)
        case ice.ListType():
            element = _json(kind.element_type, _below(path, "element"))
            return {"type": "array", "items": element if kind.element_required else _or_null(element)}
        case ice.MapType(key_type=ice.StringType()):
            value = _json(kind.value_type, _below(path, "value"))
            value = value if kind.value_required else _or_null(value)
            return {"type": "object", "connect.type": "map", "additionalProperties": value}
        case ice.DecimalType(scale=scale):
            parameters = {"scale": str(scale)}
            return {"type": "number", "title": DECIMAL, "connect.type": "bytes", "connect.parameters": parameters}
        case _ if type(kind) in _CONNECT:
            word, name = _CONNECT[type(kind)]  # pyright: ignore[reportArgumentType]
            made = {"type": _JSON_TYPES.get(word, "integer"), "connect.type": _JSON_WORDS.get(word, word)}
            return made if name is None else {**made, "title": name}
        case _:
            raise _cannot(path, f"JSON Schema has no type for {schema_text(kind)}")


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, schema]}


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _cannot(path: str, why: str) -> FrazilError:
    return FrazilError(
        f"no schema can be made of column {path}: {why}.",
        fix="register one, then name its subject with --subject",
    )
