"""JSON of values by a writer schema: the canonical text of each, by its type.

Each type has the JSON that the JSON decoders read by default for a column of that type. Whole numbers and decimals are
exact numbers; a float is the shortest number of the equal double, NaN and the infinities are texts; dates and times are
ISO texts with microseconds, an instant with `Z`; uuids are texts; bytes are base64; maps are objects, with the JSON of
other keys than texts as text. A null field is left out, a null element is not. A message without fields is an empty
object.
"""

from __future__ import annotations

import base64
import itertools
import json
import uuid
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg import types as ice

from jobs.records.formats.conform_place import own_offsets
from jobs.records.schema.iceberg_schema import Presence

Texts: TypeAlias = list[bytes | None]
"""The JSON of each value; None for null."""

T = TypeVar("T")


def json_texts(values: pa.Array, kind: ice.IcebergType) -> Texts:
    """Return the JSON of each value of a writer schema's field; None for null.

    Args:
        values: Values from a decoder of writer schemas.
        kind: Their type.
    """
    match kind:
        case ice.StructType():
            children = zip(kind.fields, values.flatten(), strict=True)
            made = objects([(each.name, json_texts(child, each.field_type)) for each, child in children], len(values))
            return _where_valid([each or b"{}" for each in made], values)
        case ice.ListType():
            offsets, start, end = own_offsets(values)
            inner = json_texts(values.values.slice(start, end - start), kind.element_type)
            return _where_valid([array_text(part) for part in parts(inner, offsets)], values)
        case ice.MapType():
            offsets, start, end = own_offsets(values)
            keys = key_texts(values.keys.slice(start, end - start), kind.key_type)
            items = [each or b"null" for each in json_texts(values.items.slice(start, end - start), kind.value_type)]
            both = zip(parts(keys, offsets), parts(items, offsets), strict=True)
            return _where_valid([object_text(zip(*each, strict=True)) or b"{}" for each in both], values)
        case ice.DateType():
            return _times(values, pa.int32(), "D", b'"%s"')
        case ice.TimestampType():
            return _times(values, pa.int64(), "us", b'"%s"')
        case ice.TimestamptzType():
            return _times(values, pa.int64(), "us", b'"%sZ"')
        case ice.TimeType():
            texts = _times(values, pa.int64(), "us", b"%s")
            return [None if each is None else b'"' + each.split(b"T")[1] + b'"' for each in texts]
        case Presence():
            return _where_valid([b"{}"] * len(values), values)
        case _:
            return [None if each is None else _primitive(each, kind) for each in values.to_pylist()]


def _primitive(value: object, kind: ice.IcebergType) -> bytes:
    match value:
        case float() if not np.isfinite(value):
            return b'"NaN"' if np.isnan(value) else b'"Infinity"' if value > 0 else b'"-Infinity"'
        case bytes() if isinstance(kind, ice.UUIDType):
            return b'"' + str(uuid.UUID(bytes=value)).encode() + b'"'
        case bytes():
            return b'"' + base64.b64encode(value) + b'"'
        case str() | bool():
            return msgspec.json.encode(value)
        case float():
            return repr(value).encode()
        case _:
            # A whole number, or a decimal with all digits of its scale.
            return f"{value:f}".encode() if isinstance(kind, ice.DecimalType) else str(value).encode()


def _times(values: pa.Array, storage: pa.DataType, unit: Literal["D", "us"], form: bytes) -> Texts:
    numbers = values.view(storage).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    texts = np.datetime_as_string(numbers.view(f"datetime64[{unit}]"), unit=unit).tolist()
    return _where_valid([form % text.encode() for text in texts], values)


def key_texts(keys: pa.Array, kind: ice.IcebergType) -> list[str]:
    """Return the keys of an object for the keys of maps."""
    if isinstance(kind, ice.StringType):
        return keys.to_pylist()
    return [(each or b"null").decode().strip('"') for each in json_texts(keys, kind)]


def parts(every: Sequence[T], offsets: npt.NDArray[np.int32]) -> list[Sequence[T]]:
    """Return the items between each offset and the next."""
    return [every[start:end] for start, end in itertools.pairwise(offsets.tolist())]


def _where_valid(texts: Sequence[bytes], values: pa.Array) -> Texts:
    if not values.null_count:
        return list(texts)
    return [text if there else None for text, there in zip(texts, values.is_valid().to_pylist(), strict=True)]


def objects(members: Sequence[tuple[str, Texts]], count: int) -> Texts:
    """Return objects of members, each with a text for every object."""
    ordered = sorted(members, key=itemgetter(0))
    names = [msgspec.json.encode(name) for name, _ in ordered]
    if not ordered:
        return [None] * count
    made: Texts = []
    for row in zip(*(texts for _, texts in ordered), strict=True):
        there = [name + b":" + text for name, text in zip(names, row, strict=True) if text is not None]
        made.append(b"{" + b",".join(there) + b"}" if there else None)
    return made


def object_text(members: Iterable[tuple[str, bytes | None]]) -> bytes | None:
    """Return an object of the members that are not null; None without any."""
    there = sorted((name, text) for name, text in members if text is not None)
    if not there:
        return None
    return b"{" + b",".join(msgspec.json.encode(name) + b":" + text for name, text in there) + b"}"


def array_text(elements: Sequence[bytes | None]) -> bytes:
    """Return an array of elements."""
    return b"[" + b",".join(each or b"null" for each in elements) + b"]"


_ENCODER = msgspec.json.Encoder(order="sorted")


def canonical(value: bytes) -> bytes:
    """Return the canonical text of a JSON value.

    Args:
        value: One JSON value as it was sent, accepted by a strict parser: UTF-8, no halves of surrogate pairs.

    Raises:
        ValueError: The value is no JSON.
        RecursionError: The value is nested too deep.
    """
    return _ENCODER.encode(_DECODER.decode(value.decode()))


def _number(text: str) -> Any:
    return msgspec.Raw(text.encode())


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON value")


_DECODER = json.JSONDecoder(parse_float=_number, parse_int=_number, parse_constant=_refuse)
