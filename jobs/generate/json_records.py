"""JSON records: objects with the columns that a stream declares, each written in the way that it says."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from jobs.errors import FrazilError
from jobs.generate.record import FIRST_TIME
from jobs.schema.declared import DeclaredType, Field, ListType, MapType, Primitive, StructType
from jobs.schema.tokens import ENCODINGS

_WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "harbour", "islet", "juniper")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ABSENT = 0.03
_NULL = 0.03
_UNITS = {"epoch_s": 1, "epoch_ms": 1_000, "epoch_us": 1_000_000, "epoch_ns": 1_000_000_000}
_UNITS_OF_DAY = {"millis_of_day": 1_000, "micros_of_day": 1_000_000, "nanos_of_day": 1_000_000_000}
_LARGEST = {"int": 2**31 - 1, "long": 2**63 - 1}


class JsonGenerator:
    """Makes JSON objects of declared columns.

    Args:
        declared: The columns.

    Raises:
        FrazilError: A column is written in a way that this does not know.
    """

    def __init__(self, declared: StructType) -> None:
        for path, kind in _leaves(declared, ""):
            try:
                _primitive(kind, random.Random(0), FIRST_TIME, "")
            except KeyError:
                raise FrazilError(f"column {path}: values of the type {kind} cannot be generated") from None
        self._declared: StructType = declared
        self._required: tuple[Field, ...] = tuple(field for field in declared.fields if field.required)
        self._bounded: tuple[Field, ...] = tuple(
            field
            for field in declared.fields
            if isinstance(field.type, Primitive) and field.type.name in _LARGEST and field.type.encoding != "text"
        )
        # Nothing is of a wrong type where any value is taken.
        self._typed: tuple[Field, ...] = tuple(
            field for field in declared.fields if not (isinstance(field.type, Primitive) and field.type.name == "json")
        )
        kinds = ["truncated_json", "not_an_object", "empty_value", "invalid_utf8"]
        kinds += ["wrong_type"] if self._typed else []
        kinds += ["missing_field", "null_in_required"] if self._required else []
        kinds += ["out_of_range"] if self._bounded else []
        self.bad_kinds: tuple[str, ...] = tuple(kinds)

    def good(self, rng: random.Random, at: datetime) -> bytes:
        """An object that lands; optional columns are now and then null or not there."""
        return _text(self._object(rng, at))

    def bad(self, kind: str, rng: random.Random, at: datetime) -> bytes:
        """A value that becomes a dead letter of this kind."""
        made = self._object(rng, at)
        match kind:
            case "empty_value":
                return b""
            case "not_an_object":
                return rng.choice((b"[1,2]", b"null", b'"text"', b"17"))
            case "truncated_json":
                value = _text(made)
                # Cut within the object, so that no prefix of it is JSON.
                return value[: rng.randrange(1, len(value))] if made else b"{"
            case "invalid_utf8":
                return b'{"\xff":' + _text(made) + b"}"
            case "wrong_type":
                field = rng.choice(self._typed)
                made[field.name] = [[]] if isinstance(field.type, (Primitive, StructType, MapType)) else {"a": 1}
            case "missing_field":
                made.pop(rng.choice(self._required).name)
            case "null_in_required":
                made[rng.choice(self._required).name] = None
            case _:
                field = rng.choice(self._bounded)
                made[field.name] = _LARGEST[field.type.name if isinstance(field.type, Primitive) else ""] + 1
        return _text(made)

    def _object(self, rng: random.Random, at: datetime) -> dict[str, Any]:
        return _struct(self._declared, rng, at)


def _struct(declared: StructType, rng: random.Random, at: datetime) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for field in declared.fields:
        chance = 1.0 if field.required else rng.random()
        if chance < _ABSENT:
            continue
        made[field.name] = None if chance < _ABSENT + _NULL else _value(field.type, rng, at, field.name)
    return made


def _value(declared: DeclaredType, rng: random.Random, at: datetime, name: str) -> Any:
    match declared:
        case StructType():
            return _struct(declared, rng, at)
        case ListType(element):
            return [_value(element, rng, at, name) for _ in range(rng.randrange(4))]
        case MapType(_, value):
            return {word: _value(value, rng, at, name) for word in rng.sample(_WORDS, rng.randrange(4))}
        case Primitive():
            return _primitive(declared, rng, at, name)


def _primitive(kind: Primitive, rng: random.Random, at: datetime, name: str) -> Any:
    match kind.name:
        case "boolean":
            return rng.random() < 0.5
        case "int" | "long" | "float" | "double":
            number = _number(kind.name, rng)
            return str(number) if kind.encoding == "text" else number
        case "json":
            return {"kind": rng.choice(_WORDS), "values": [rng.randrange(100) for _ in range(rng.randrange(3))]}
        case "decimal":
            return _decimal(kind, rng)
        case "string":
            return text_of(name, rng)
        case "uuid":
            return str(UUID(int=rng.getrandbits(128), version=4))
        case "binary" | "fixed":
            raw = rng.randbytes(kind.length or rng.randrange(1, 24))
            return raw.hex() if kind.encoding == "hex" else base64.b64encode(raw).decode()
        case "date":
            days = (at.date() - date(1970, 1, 1)).days
            return days if kind.encoding == "epoch_days" else at.date().isoformat()
        case "time":
            return _time(kind, at)
        case "timestamp" | "timestamptz":
            return _instant(kind, at)
        case other:
            raise KeyError(other)


def _number(name: str, rng: random.Random) -> float:
    match name:
        case "int":
            return rng.randrange(10_000)
        case "long":
            return rng.randrange(10**9)
        case "float":
            return rng.randrange(-4_000_000, 4_000_000) / 256
        case _:
            return round(rng.lognormvariate(3.5, 1.1), 6)


def _decimal(kind: Primitive, rng: random.Random) -> Any:
    precision, scale = kind.precision or 0, kind.scale or 0
    digits = rng.randrange(10 ** min(precision, scale + 5))
    value = Decimal(digits).scaleb(-scale)
    return f"{value:f}" if kind.encoding == "text" else msgspec.Raw(f"{value:f}".encode())


def _time(kind: Primitive, at: datetime) -> Any:
    if kind.encoding == ENCODINGS["time"][0]:
        return at.time().isoformat(timespec="milliseconds")
    micros = (at - at.replace(hour=0, minute=0, second=0, microsecond=0)) // datetime.resolution
    return micros * _UNITS_OF_DAY[kind.encoding or ""] // 1_000_000


def _instant(kind: Primitive, at: datetime) -> Any:
    if kind.encoding != ENCODINGS[kind.name][0]:
        micros = (at - _EPOCH) // datetime.resolution
        return micros * _UNITS[kind.encoding or ""] // 1_000_000
    if kind.name == "timestamp":
        return at.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def text_of(name: str, rng: random.Random) -> str:
    """A text for a column: digits for one that is called an id, else some words."""
    if name.lower() == "id" or name.lower().endswith(("_id", "uuid")):
        return f"{rng.getrandbits(128):032x}"
    return f"{rng.choice(_WORDS)}-{rng.randrange(100_000):05d}"


def _text(made: dict[str, Any]) -> bytes:
    return msgspec.json.encode(made)


def _leaves(declared: DeclaredType, path: str) -> Iterator[tuple[str, Primitive]]:
    match declared:
        case StructType(fields):
            for field in fields:
                yield from _leaves(field.type, f"{path}.{field.name}" if path else field.name)
        case ListType(element):
            yield from _leaves(element, f"{path}.element")
        case MapType(_, value):
            yield from _leaves(value, f"{path}.value")
        case Primitive():
            yield path, declared
