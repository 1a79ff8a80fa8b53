"""Record parts from columns: the record's key and headers, and dropped headers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.columns.value_texts import texts
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.transforms.cast import cast_problem
from jobs.records.transforms.columns import Columns, TransformProblem
from jobs.records.transforms.frame import HEADERS
from jobs.records.transforms.nested import value_at
from jobs.records.transforms.path import value_field
from jobs.records.transforms.transform import Applied, PassingStep, Rows


@dataclass(frozen=True, slots=True)
class ToKey(PassingStep):
    """Set the record's key from a column: text in UTF-8, or the bytes of a binary one. Columns stay.

    Attributes:
        column: Path of the column.
    """

    name: ClassVar[str] = "to_key"
    column: str

    def output(self, columns: Columns) -> Columns:
        _single_value(columns, self.column, ("column",))
        return columns

    def apply(self, rows: Rows) -> Applied:
        """Set the key; it is null where the column is."""
        values = _bytes(rows, self.column)
        return Applied(Rows(rows.columns, rows.batch, rows.frame.with_part("key", values), rows.tombstones))


@dataclass(frozen=True, slots=True)
class ToHeaders(PassingStep):
    """Add headers from columns behind those that the record has: text in UTF-8, or bytes. Columns stay.

    Attributes:
        headers: Names of headers, each with the path of its column; a header whose column is null has no value.
    """

    name: ClassVar[str] = "to_headers"
    headers: tuple[tuple[str, str], ...]

    @property
    def asks(self) -> frozenset[str]:
        return frozenset({"headers"})

    def output(self, columns: Columns) -> Columns:
        for header, path in self.headers:
            _single_value(columns, path, (header,))
        return columns

    def apply(self, rows: Rows) -> Applied:
        """Add one header for each column, in their order."""
        values = [(header, _bytes(rows, path)) for header, path in self.headers]
        headers = with_headers(rows.frame.part("headers"), values)
        return Applied(Rows(rows.columns, rows.batch, rows.frame.with_part("headers", headers), rows.tombstones))


@dataclass(frozen=True, slots=True)
class DropHeaders(PassingStep):
    """Drop every header of some names.

    Attributes:
        headers: The names, exactly.
    """

    name: ClassVar[str] = "drop_headers"
    headers: tuple[str, ...]

    @property
    def asks(self) -> frozenset[str]:
        return frozenset({"headers"})

    def apply(self, rows: Rows) -> Applied:
        headers = rows.frame.part("headers")
        entries = headers.flatten()
        named = pc.is_in(pc.struct_field(entries, "key"), value_set=pa.array(self.headers, pa.string()))
        kept = np.flatnonzero(~named.to_numpy(zero_copy_only=False))
        of = pc.list_parent_indices(headers).to_numpy()[kept]
        left = _lists(headers, entries.take(pa.array(kept)), np.bincount(of, minlength=len(headers)))
        return Applied(Rows(rows.columns, rows.batch, rows.frame.with_part("headers", left), rows.tombstones))


def with_headers(headers: pa.Array, more: list[tuple[str, pa.Array]]) -> pa.Array:
    """Return headers with further ones behind those of each record.

    Args:
        headers: Headers of type `HEADERS`.
        more: Names, with a value for each record.
    """
    count, entries = len(headers), headers.flatten()
    lengths = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    added = [
        pa.StructArray.from_arrays(
            [pa.repeat(pa.scalar(name, pa.string()), count), values], fields=list(HEADERS.value_type)
        )
        for name, values in more
    ]
    # Each entry goes behind those of earlier records, and behind the earlier ones of its own record.
    starts = np.concatenate([[0], np.cumsum(lengths + len(more))[:-1]]).astype(np.int64)
    of = pc.list_parent_indices(headers).to_numpy()
    places = [np.arange(len(entries)) - np.concatenate([[0], np.cumsum(lengths)])[of] + starts[of]]
    places += [starts + lengths + number for number in range(len(more))]
    order = np.argsort(np.concatenate(places), kind="stable")
    together = pa.concat_arrays([_plain(entries), *added]).take(pa.array(order))
    offsets = np.concatenate([[0], np.cumsum(lengths + len(more))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), together, type=HEADERS)


def _plain(entries: pa.Array) -> pa.Array:
    return entries if entries.type == HEADERS.value_type else entries.cast(HEADERS.value_type)


def _lists(like: pa.Array, entries: pa.Array, lengths: np.ndarray) -> pa.Array:
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    mask = like.is_null() if like.null_count else None
    return pa.ListArray.from_arrays(offsets, _plain(entries), type=HEADERS, mask=mask)


def _single_value(columns: Columns, text: str, place: tuple[str, ...]) -> None:
    kind = value_field(columns, text, place)[1].field_type
    if not isinstance(kind, ice.BinaryType) and cast_problem(kind, ice.StringType()):
        raise TransformProblem(f"the column '{text}' is {schema_text(kind)}, and no text can be made of it", place)


def _bytes(rows: Rows, text: str) -> pa.Array:
    path, field = value_field(rows.columns, text)
    values = value_at(rows.batch.column(rows.columns.index(path[0])), path[1:])
    kind = field.field_type
    return values if isinstance(kind, ice.BinaryType) else texts(values, kind).cast(pa.binary())
