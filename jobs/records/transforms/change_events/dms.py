"""AWS DMS: its records of changes become rows of a changelog.

A record has the row in `data`, and the facts of its change in `metadata`. Changes of tables are records of the type
`control`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.interface.problems import BAD_ENVELOPE, NULL_IN_REQUIRED, shown
from jobs.records.transforms.cast import cast_problem, cast_values
from jobs.records.transforms.change_events.changelog import (
    CREATE,
    DELETE,
    KEY,
    READ,
    TRUNCATE,
    UPDATE,
    Changes,
    Shape,
    key_struct,
    key_values,
)
from jobs.records.transforms.change_events.row_changes import with_key_values
from jobs.records.transforms.columns import Columns, TransformProblem
from jobs.records.transforms.masks import Mask, mask_of
from jobs.records.transforms.smt.debezium_envelope import kind_at, struct_of, value_of
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)

_OPS: Mapping[str, str] = {
    "insert": CREATE,
    "load": READ,
    "update": UPDATE,
    "delete": DELETE,
    "truncate-table": TRUNCATE,
}
_OPERATION = ("metadata", "operation")
_TYPE = ("metadata", "record-type")
_TIMES = (("metadata", "commit-timestamp"), ("metadata", "timestamp"))
_TRANSACTION = ("metadata", "transaction-id")
_BEFORE = "before-image"
_INSTANT = ice.TimestamptzType()


@dataclass(frozen=True, slots=True)
class DmsChanges(Transform):
    """Convert each record to its row, with the facts of its change; other control records are filtered.

    Attributes:
        before: Whether the row before the change is kept as well.
        key: Name in the row for a key that is a single value.
        beside: Columns that records have beside the envelope.
    """

    name: ClassVar[str] = "changes"
    before: bool = False
    key: str | None = None
    beside: tuple[str, ...] = ()

    def output(self, columns: Columns) -> Columns:
        """Return the row's columns, those beside it, and the changelog's own."""
        dms_problem(columns)
        fields = _fields(columns, "data")
        beside = tuple(each for each in columns if each.name in self.beside)
        before = (_fields(columns, _BEFORE) or fields) if self.before else None
        return Shape(fields, beside, key_struct(columns, self.key), before).columns

    def apply(self, rows: Rows) -> Applied:
        into = rows.columns.behind(self)
        ops, aside, failures = dms_ops(rows)
        data = value_of(rows, ("data",))
        keys = key_values(rows, into.arrow.field(KEY).type if KEY in into.names else None)
        there = mask_of(data.is_valid()) | mask_of(pc.equal(ops, TRUNCATE))
        if keys is not None:
            there |= mask_of(pc.equal(ops, DELETE)) & mask_of(keys.is_valid())
        lacking = np.flatnonzero(~there & mask_of(ops.is_valid()))
        failures += [RowFailure(int(row), NULL_IN_REQUIRED, "needs a row, found null", "$.data") for row in lacking]
        times, odd = _times(rows)
        failures += odd
        fields = _fields(rows.columns, "data")
        names = [each.name for each in fields]
        row = [pc.struct_field(data, [at]) for at in range(len(fields))]
        row = with_key_values(names, row, keys, mask_of(pc.equal(ops, DELETE)))
        before = None
        if self.before and _BEFORE in rows.columns.names:
            found = rows.batch.column(rows.columns.index(_BEFORE))
            before = struct_of(found, [found.type.field(at).with_nullable(True) for at in range(found.type.num_fields)])
        transactions = None
        if kind_at(rows.columns, _TRANSACTION) is not None:
            transactions = value_of(rows, _TRANSACTION).cast(pa.string())
        beside = [rows.batch.column(rows.columns.index(name)) for name in into.names if name in self.beside]
        made = Changes(row, ops, beside, times, None, None, transactions, None, keys, None, before)
        return settled(made.rows(rows, into), failures, np.flatnonzero(aside))


@dataclass(frozen=True, slots=True)
class DmsRecordsOnly(Transform):
    """Filter control records that are about no row, whose keys are other ones."""

    name: ClassVar[str] = "changes"

    def output(self, columns: Columns) -> Columns:
        dms_problem(columns)
        return columns

    def apply(self, rows: Rows) -> Applied:
        _, aside, failures = dms_ops(rows)
        return settled(rows, failures, np.flatnonzero(aside))


def dms_problem(columns: Columns) -> None:
    """Refuse columns that are not decoded from records of DMS.

    Raises:
        TransformProblem: Columns are missing, as the message says.
    """
    if not isinstance(kind_at(columns, ("data",)), ice.StructType):
        there = ", ".join(columns.names)
        said = f"takes records of AWS DMS, with the structs data and metadata; there are {there}"
        raise TransformProblem(said, ("envelope",))
    if not isinstance(kind_at(columns, _OPERATION), ice.StringType):
        raise TransformProblem("needs metadata.operation as string", ("envelope",))
    for path in _TIMES:
        kind = kind_at(columns, path)
        if kind is not None and cast_problem(kind, _INSTANT):
            raise TransformProblem(f"needs {'.'.join(path)} as string or timestamptz, found {kind}", ("envelope",))


def dms_ops(rows: Rows) -> tuple[pa.Array, Mask, list[RowFailure]]:
    """Return the operations, null for other records; the records that are about no row; and the failures of others."""
    found = value_of(rows, _OPERATION)
    encoded = found.dictionary_encode()
    ops = pa.array([_OPS.get(each) for each in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)
    aside = np.zeros(rows.count, bool)
    if kind_at(rows.columns, _TYPE) is not None:
        aside = mask_of(pc.equal(value_of(rows, _TYPE), "control")) & mask_of(ops.is_null())
    odd = np.flatnonzero(mask_of(ops.is_null()) & ~aside)
    failures = [_odd(found[int(row)].as_py(), int(row)) for row in odd]
    return ops, aside, failures


def _odd(found: str | None, row: int) -> RowFailure:
    said = "null" if found is None else shown(found)
    return RowFailure(row, BAD_ENVELOPE, f"needs {', '.join(_OPS)}, found {said}", "$.metadata.operation")


def _fields(columns: Columns, name: str) -> tuple[ice.NestedField, ...]:
    kind = kind_at(columns, (name,))
    return kind.fields if isinstance(kind, ice.StructType) else ()


def _times(rows: Rows) -> tuple[pa.Array, list[RowFailure]]:
    """Return the times when the changes were committed, or else when their records were made."""
    found, failures = pa.nulls(rows.count, pa.timestamp("us", tz="UTC")), list[RowFailure]()
    for path in _TIMES:
        kind = kind_at(rows.columns, path)
        if kind is not None and found.null_count:
            times, bad = cast_values(value_of(rows, path), kind, _INSTANT)
            # Each record's own first time counts, whatever the records beside it have.
            lacking = mask_of(found.is_null())
            odd = (each for each in bad if lacking[each.index])
            failures += [RowFailure(each.index, each.error_class, each.message, f"$.{'.'.join(path)}") for each in odd]
            found = pc.coalesce(found, times)
    return found, failures
