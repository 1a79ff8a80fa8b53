"""Connect schemas in the short notation of the case files, as the JSON that Connect's converter reads.

A mapping is a struct, a list of one is an array, `{$map: [string, int32]}` a map. A name is a type of Connect, or one
of `timestamp`, `date`, `time`, `debezium_time`, `decimal(SCALE)`; `optional` may stand before it, and `=` begins a
default. A field whose key ends in `?` is optional, and `$name` in a mapping is the name of the struct.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_LOGICAL = {
    "timestamp": ("int64", "org.apache.kafka.connect.data.Timestamp"),
    "date": ("int32", "org.apache.kafka.connect.data.Date"),
    "time": ("int32", "org.apache.kafka.connect.data.Time"),
    "debezium_time": ("int64", "io.debezium.time.Timestamp"),
}
_DECIMAL = re.compile(r"decimal\((\d+)\)")


def connect_schema(notation: Any) -> dict[str, Any]:
    """The schema of the envelope for a notation."""
    match notation:
        case {"$map": [keys, values]}:
            return {"type": "map", "keys": connect_schema(keys), "values": connect_schema(values), "optional": False}
        case {}:
            fields = [_field(str(key), each) for key, each in notation.items() if not key.startswith("$")]
            name = {"name": notation["$name"]} if "$name" in notation else {}
            return {"type": "struct", "fields": fields, "optional": False, **name}
        case [items]:
            return {"type": "array", "items": connect_schema(items), "optional": False}
        case str():
            return _named(notation)
        case _:
            raise ValueError(f"no notation of a schema: {notation}")


def _field(key: str, notation: Any) -> dict[str, Any]:
    found = {**connect_schema(notation), "field": key.removesuffix("?")}
    return {**found, "optional": True} if key.endswith("?") else found


def _named(text: str) -> dict[str, Any]:
    text, equals, default = text.partition("=")
    optional = text.startswith("optional ")
    text = text.removeprefix("optional ")
    found: dict[str, Any] = {"type": text, "optional": optional}
    if text in _LOGICAL:
        found["type"], found["name"] = _LOGICAL[text]
        found["version"] = 1
    elif match := _DECIMAL.fullmatch(text):
        found |= {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1}
        found["parameters"] = {"scale": match.group(1)}
    if equals:
        found["default"] = yaml.safe_load(default)
    return found
