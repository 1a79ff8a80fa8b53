"""Payments in the envelope of Connect's JsonConverter, as a connector with `schemas.enable` writes them.

Each carries its schema. Amounts are Connect's Decimal, the base64 of their cents; times its Timestamp, milliseconds.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

from jobs.records.schema.declared import (
    DeclaredType,
    ListType,
    Primitive,
    StructType,
)

_CONNECT = "org.apache.kafka.connect.data."
_TYPES: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "int": {"type": "int32"},
    "long": {"type": "int64"},
    "double": {"type": "double"},
    "boolean": {"type": "boolean"},
    "timestamptz": {"type": "int64", "name": _CONNECT + "Timestamp", "version": 1},
    "date": {"type": "int32", "name": _CONNECT + "Date", "version": 1},
}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001


def enveloped(declared: StructType, values: Iterable[bytes]) -> list[bytes]:
    """Wrap plain payments in envelopes with their schema.

    Args:
        declared: Schema of the payments.
        values: JSON of the payments, from `bench.versus.records`.
    """
    schema = {**_schema(declared), "optional": False, "name": "payment"}
    before = b'{"schema":' + json.dumps(schema, separators=(",", ":")).encode() + b',"payload":'
    patterns = _patterns(declared)
    found: list[bytes] = []
    for value in values:
        record = value
        for pattern, written in patterns:
            record = pattern.sub(written, record)
        found.append(before + record + b"}")
    return found


def _schema(declared: DeclaredType) -> dict[str, Any]:
    match declared:
        case StructType(fields):
            inner = [{**_schema(one.type), "optional": not one.required, "field": one.name} for one in fields]
            return {"type": "struct", "fields": inner}
        case ListType(element):
            return {"type": "array", "items": {**_schema(element), "optional": True}}
        case Primitive("decimal", _, scale):
            return {
                "type": "bytes",
                "name": _CONNECT + "Decimal",
                "version": 1,
                "parameters": {"scale": str(scale)},
            }
        case Primitive(name):
            return dict(_TYPES[name])
        case _:
            raise TypeError(f"no payment has {declared}")


def _patterns(declared: StructType) -> list[tuple[re.Pattern[bytes], Any]]:
    """Finds the values at the top of a payment that Connect writes in another way, and writes them."""
    found: list[tuple[re.Pattern[bytes], Any]] = []
    for one in declared.fields:
        key = b'("' + one.name.encode() + b'":)'
        match one.type:
            case Primitive("decimal", _, scale):
                found.append((re.compile(key + rb"([-0-9.]+)"), partial(_decimal, scale or 0)))
            case Primitive("timestamptz"):
                found.append((re.compile(key + rb'"([^"]+)Z"'), _milliseconds))
            case Primitive("date"):
                found.append((re.compile(key + rb'"([^"]+)"'), _days))
            case _:
                pass
    return found


def _decimal(scale: int, match: re.Match[bytes]) -> bytes:
    number = int(Decimal(match[2].decode()).scaleb(scale))
    return match[1] + b'"' + b64encode(number.to_bytes(number.bit_length() // 8 + 1, signed=True)) + b'"'


def _milliseconds(match: re.Match[bytes]) -> bytes:
    since = datetime.fromisoformat(match[2].decode()) - _EPOCH
    return match[1] + str((since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000).encode()


def _days(match: re.Match[bytes]) -> bytes:
    return match[1] + str((datetime.fromisoformat(match[2].decode()) - _EPOCH).days).encode()
