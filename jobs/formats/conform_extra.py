"""Kept fields of a writer schema: values that no column takes, as canonical JSON in the shape of their record.

The JSON of each type is what the JSON decoders read by default for a column of that type, so that a kept field can
become a column. Whole numbers and decimals are numbers, exact; floats the shortest number of the equal double, NaN and
the infinities texts; dates and times ISO texts with microseconds, an instant with `Z`; uuids texts; bytes base64; maps
objects, with the JSON of keys that are no texts as texts. A field that is null is left out, an element is not.
"""

from __future__ import annotations

import base64
import itertools
import uuid
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Literal, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.formats.conform_place import own_offsets
from jobs.formats.conform_plan import ColumnPlan, ListPlan, MapPlan, Node, StructPlan
from jobs.formats.decoder_spec import DecoderSpec, rows_of
from jobs.schema.kept_fields import EXTRA_COLUMN, with_extra_column

Texts: TypeAlias = list[bytes | None]
"""The JSON of each value; None of one that is null, or of which nothing is kept."""

T = TypeVar("T")


def conformed_rows(spec: DecoderSpec) -> Schema:
    """The columns that a decoder of writer schemas gives, with the one for kept fields, if the stream has it."""
    rows = rows_of(spec)
    if spec.options.get("unknown_fields") != "keep":
        return rows
    return with_extra_column(rows) if spec.options.get("extra_column", True) else without_extra_column(rows)


def without_extra_column(rows: Schema) -> Schema:
    """The columns that a writer schema's fields may fill."""
    return Schema(*(each for each in rows.fields if each.name != EXTRA_COLUMN))


def kept_fields(plan: StructPlan, rows: pa.RecordBatch) -> list[str | None]:
    """What each row has beside the columns, as a canonical JSON object; None without any.

    Args:
        plan: Of the writer schema's fields and the columns.
        rows: By a decoder of the writer schema.
    """
    found = _of_struct(plan, rows.columns, rows.num_rows)
    return [None] * rows.num_rows if found is None else [each.decode() if each is not None else None for each in found]


def _of_struct(plan: StructPlan, values: Sequence[pa.Array], count: int) -> Texts | None:
    members = [(field.name, json_texts(values[index], field.field_type)) for index, field in plan.extra]
    for each in plan.columns:
        found: Texts | None = None
        for part in each.several or (each,):
            texts = None if part.index is None else _of(part.node, values[part.index])
            # Of several fields for one column a record has a value in one of them.
            found = (
                [one or other for one, other in zip(found, texts, strict=True)] if found and texts else found or texts
            )
        if found is not None:
            members.append((each.column.name, found))
    return _objects(members, count) if members else None


def _of(node: Node, values: pa.Array) -> Texts | None:
    """What is kept of each value; None if it never is."""
    match node:
        case StructPlan():
            return _of_struct(node, values.flatten(), len(values))
        case ListPlan(ColumnPlan(node=inner)):
            offsets, start, end = own_offsets(values)
            found = _of(inner, values.values.slice(start, end - start))
            return found and [_array(part) if any(part) else None for part in _parts(found, offsets)]
        case MapPlan(ColumnPlan(column=key), ColumnPlan(node=inner)):
            offsets, start, end = own_offsets(values)
            found = _of(inner, values.items.slice(start, end - start))
            if found is None:
                return None
            keys = _keys(values.keys.slice(start, end - start), key.field_type)
            return [
                _object(zip(*each, strict=True))
                for each in zip(_parts(keys, offsets), _parts(found, offsets), strict=True)
            ]
        case _:
            return None


def json_texts(values: pa.Array, kind: ice.IcebergType) -> Texts:
    """The JSON of each value of a writer schema's field; None of null.

    Args:
        values: As a decoder of writer schemas gives them.
        kind: Their type.
    """
    match kind:
        case ice.StructType():
            children = zip(kind.fields, values.flatten(), strict=True)
            made = _objects([(each.name, json_texts(child, each.field_type)) for each, child in children], len(values))
            return _where_valid([each or b"{}" for each in made], values)
        case ice.ListType():
            offsets, start, end = own_offsets(values)
            inner = json_texts(values.values.slice(start, end - start), kind.element_type)
            return _where_valid([_array(part) for part in _parts(inner, offsets)], values)
        case ice.MapType():
            offsets, start, end = own_offsets(values)
            keys = _keys(values.keys.slice(start, end - start), kind.key_type)
            items = [each or b"null" for each in json_texts(values.items.slice(start, end - start), kind.value_type)]
            both = zip(_parts(keys, offsets), _parts(items, offsets), strict=True)
            return _where_valid([_object(zip(*each, strict=True)) or b"{}" for each in both], values)
        case ice.DateType():
            return _times(values, pa.int32(), "D", b'"%s"')
        case ice.TimestampType():
            return _times(values, pa.int64(), "us", b'"%s"')
        case ice.TimestamptzType():
            return _times(values, pa.int64(), "us", b'"%sZ"')
        case ice.TimeType():
            texts = _times(values, pa.int64(), "us", b"%s")
            return [None if each is None else b'"' + each.split(b"T")[1] + b'"' for each in texts]
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


def _keys(keys: pa.Array, kind: ice.IcebergType) -> list[str]:
    if isinstance(kind, ice.StringType):
        return keys.to_pylist()
    return [(each or b"null").decode().strip('"') for each in json_texts(keys, kind)]


def _parts(every: Sequence[T], offsets: npt.NDArray[np.int32]) -> list[Sequence[T]]:
    return [every[start:end] for start, end in itertools.pairwise(offsets.tolist())]


def _where_valid(texts: Sequence[bytes], values: pa.Array) -> Texts:
    if not values.null_count:
        return list(texts)
    return [text if there else None for text, there in zip(texts, values.is_valid().to_pylist(), strict=True)]


def _objects(members: Sequence[tuple[str, Texts]], count: int) -> Texts:
    """The objects of members, each with a text for every object."""
    ordered = sorted(members, key=itemgetter(0))
    names = [msgspec.json.encode(name) for name, _ in ordered]
    if not ordered:
        return [None] * count
    made: Texts = []
    for row in zip(*(texts for _, texts in ordered), strict=True):
        there = [name + b":" + text for name, text in zip(names, row, strict=True) if text is not None]
        made.append(b"{" + b",".join(there) + b"}" if there else None)
    return made


def _object(members: Iterable[tuple[str, bytes | None]]) -> bytes | None:
    there = sorted((name, text) for name, text in members if text is not None)
    if not there:
        return None
    return b"{" + b",".join(msgspec.json.encode(name) + b":" + text for name, text in there) + b"}"


def _array(elements: Sequence[bytes | None]) -> bytes:
    return b"[" + b",".join(each or b"null" for each in elements) + b"]"
