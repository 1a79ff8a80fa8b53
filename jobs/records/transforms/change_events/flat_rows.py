"""Flat rows of changes: records that are rows, with columns for the facts of their change.

Connectors that unwrap rows send them so (`__op`, `__deleted`, `__source_lsn`), and so do tables of changes that
somebody else has written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.interface.problems import (
    BAD_ENVELOPE,
    NULL_IN_REQUIRED,
    WRONG_TYPE,
    shown,
)
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.transforms.change_events.changelog import (
    CREATE,
    DELETE,
    KEY,
    OLD_KEY,
    READ,
    UPDATE,
    Changes,
    Shape,
    key_struct,
    key_values,
)
from jobs.records.transforms.change_events.fixed_text import (
    Digits,
    joined_digits,
    number_digits,
    signed_digits,
)
from jobs.records.transforms.change_events.positions import null_unless, sequence_numbers
from jobs.records.transforms.change_events.row_changes import (
    RowChanges,
    old_keys,
    own_fields,
    with_key_values,
    without_placeholders,
)
from jobs.records.transforms.columns import Columns, TransformProblem
from jobs.records.transforms.masks import Mask, mask_of
from jobs.records.transforms.timestamps import instants_of
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    settled,
)

_TIMES = (ice.TimestamptzType, ice.TimestampType, ice.LongType)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatChanges(RowChanges):
    """Read rows that have the operation of their change in a column.

    Attributes:
        op: The column of the operation; it is not one of the changelog.
        words: Its values, each with its meaning as `_change_op`.
        order_by: Columns by which the source orders its changes, the most significant first.
        at: The column with the time of a change; None for Kafka's time.
    """

    op: str
    words: tuple[tuple[str, str], ...]
    order_by: tuple[str, ...] = ()
    at: str | None = None

    def output(self, columns: Columns) -> Columns:
        """Return the row's columns without the operation's, those beside it, and the changelog's own."""
        kind = columns.field(self.op, ("op", "column")).field_type
        if not isinstance(kind, ice.StringType | ice.BooleanType | ice.IntegerType | ice.LongType):
            said = f"the column '{self.op}' is {schema_text(kind)}, and operations are texts, numbers or truths"
            raise TransformProblem(said, ("op", "column"))
        for at, each in enumerate(self.order_by):
            if problem := order_problem(columns.field(each, ("order_by", at))):
                raise TransformProblem(problem, ("order_by", at))
        time_problem(columns, self.at)
        row = own_fields(columns, (self.op, *self.beside))
        beside = tuple(each for each in columns if each.name in self.beside)
        return Shape(row, beside, key_struct(columns, self.key)).columns

    def apply(self, rows: Rows) -> Applied:
        ops, failures = self._ops(rows)
        reads = mask_of(pc.equal(ops, READ))
        positions, lineages, lacking = order_positions(rows, self.order_by, reads)
        failures += lacking
        return flat_changes(self, rows, ops, failures, positions=positions, lineages=lineages)

    def _ops(self, rows: Rows) -> tuple[pa.Array, list[RowFailure]]:
        """Return the operations, and the rows with an unknown word; each distinct word is looked up once."""
        found = rows.batch.column(rows.columns.index(self.op))
        encoded = found.cast(pa.string()).dictionary_encode()
        known, texts = dict(self.words), encoded.dictionary.to_pylist()
        ops = pa.array([known.get(each) for each in texts], pa.string()).take(encoded.indices)
        said = f"needs {', '.join(known)}, found"
        return ops, [
            RowFailure(int(row), WRONG_TYPE, f"{said} {_shown(found[int(row)].as_py())}", f"$.{self.op}")
            for row in np.flatnonzero(~mask_of(ops.is_valid()))
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertChanges(RowChanges):
    """Read rows that each replace the former one of their key; a record without a value deletes it.

    Attributes:
        at: The column with the time of a change; None for Kafka's time, which a deletion has in any case.
    """

    at: str | None = None

    def output(self, columns: Columns) -> Columns:
        """Return the row's columns, those beside it, and the changelog's own."""
        struct = key_struct(columns, self.key)
        if struct is None:
            said = f"needs decode.key with into: {KEY}: a record without a value identifies the deleted row by its key"
            raise TransformProblem(said, ("envelope",))
        time_problem(columns, self.at)
        beside = tuple(each for each in columns if each.name in self.beside)
        return Shape(own_fields(columns, self.beside), beside, struct).columns

    def apply(self, rows: Rows) -> Applied:
        """Convert all rows at once; those without a value become rows of deletions."""
        gone = np.zeros(rows.count, bool) if rows.tombstones is None else mask_of(rows.tombstones)
        ops = pa.array(np.where(gone, DELETE, UPDATE), pa.string())
        keyless = gone & mask_of(rows.batch.column(rows.columns.index(KEY)).is_null())
        said = "needs a key, as a record without a value deletes the row of its key, found null"
        failures = [RowFailure(int(row), WRONG_TYPE, said, f"$.{KEY}") for row in np.flatnonzero(keyless)]
        return flat_changes(self, rows, ops, failures)


def flat_changes(
    step: FlatChanges | UpsertChanges,
    rows: Rows,
    ops: pa.Array,
    failures: list[RowFailure],
    *,
    positions: pa.Array | None = None,
    lineages: pa.Array | None = None,
) -> Applied:
    """Convert rows to those of a changelog.

    Args:
        step: The step that reads them.
        rows: Decoded rows.
        ops: Their operations.
        failures: Failures of rows without an operation.
        positions: Positions of their changes, if they have any.
        lineages: Source timelines of the positions, if they have any.
    """
    into = rows.columns.behind(step)
    keys = key_values(rows, into.arrow.field(KEY).type if KEY in into.names else None)
    op = step.op if isinstance(step, FlatChanges) else None
    fields = own_fields(rows.columns, (*step.beside, *((op,) if op else ())))
    names = [each.name for each in fields]
    row = with_key_values(names, [rows.batch.column(name) for name in names], keys, mask_of(pc.equal(ops, DELETE)))
    changed = mask_of(pc.is_in(ops, value_set=pa.array([CREATE, UPDATE])))
    row, unavailable = without_placeholders(names, row, step.unavailable, changed)
    old = None
    if keys is not None:
        kind = into.field(OLD_KEY).field_type
        assert isinstance(kind, ice.StructType)
        old, wrong = old_keys(rows, kind, step.keys)
        failures += wrong
    beside = [rows.batch.column(name) for name in into.names if name in step.beside]
    times, odd = _times(rows, step.at)
    failures += odd
    made = Changes(row, ops, beside, times, positions, lineages, None, unavailable, keys, old)
    return settled(made.rows(rows, into), failures)


def time_problem(columns: Columns, at: str | None) -> None:
    """Refuse a column that is no time.

    Raises:
        TransformProblem: The column is no time, or does not exist.
    """
    if at is not None and not isinstance(kind := columns.field(at, ("at",)).field_type, _TIMES):
        said = f"the column '{at}' is {schema_text(kind)}; a change's time is a timestamptz, or milliseconds as long"
        raise TransformProblem(said, ("at",))


def _times(rows: Rows, at: str | None) -> tuple[pa.Array, list[RowFailure]]:
    kafka = rows.frame.part("timestamp")
    if at is None:
        return kafka, []
    found, failures = instants_of(rows.batch.column(rows.columns.index(at)), f"$.{at}")
    return pc.coalesce(found, kafka), failures


def _shown(value: object) -> str:
    return "null" if value is None else shown(str(value))


_KINDS = (ice.IntegerType, ice.LongType, ice.DateType, ice.TimestampType, ice.TimestamptzType, ice.StringType)
_LINEAGE = "columns"


def order_problem(field: ice.NestedField) -> str | None:
    """Return why changes cannot be ordered by a column; None if they can."""
    if isinstance(field.field_type, _KINDS):
        return None
    kind = schema_text(field.field_type)
    return f"the column '{field.name}' is {kind}; changes are ordered by whole numbers, dates and times"


def order_positions(
    rows: Rows, names: Sequence[str], reads: Mask
) -> tuple[pa.Array | None, pa.Array | None, list[RowFailure]]:
    """Return the positions of rows and their source timelines, and the rows without a position.

    A number or a time has 16 digits. A text must be a sequence of Debezium's connector for PostgreSQL.

    Args:
        rows: The rows.
        names: Names of the columns, the most significant first; without any there is no position.
        reads: Mask of the rows that are read for a snapshot.
    """
    if not names:
        return None, None, []
    parts: list[Digits] = []
    valid, failures = np.ones(rows.count, bool), list[RowFailure]()
    for name in names:
        values = rows.batch.column(rows.columns.index(name))
        digits, there = _digits(values, reads)
        parts += digits
        for row in np.flatnonzero(valid & ~there).tolist():
            null = not values[row].is_valid
            said = "found null" if null else 'found no text such as ["24023119","24023128"]'
            error = NULL_IN_REQUIRED if null else BAD_ENVELOPE
            failures.append(RowFailure(row, error, f"needs a value, by which changes are ordered, {said}", f"$.{name}"))
        valid &= there
    lineages = pa.repeat(pa.scalar(_LINEAGE), rows.count)
    return joined_digits(parts, valid), null_unless(lineages, valid), failures


def _digits(values: pa.Array, reads: Mask) -> tuple[list[Digits], Mask]:
    if pa.types.is_string(values.type):
        commit, place = sequence_numbers(values, reads)
        return [number_digits(commit), number_digits(place)], mask_of(place.is_valid())
    numbers = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
    return [signed_digits(numbers.cast(pa.int64()))], mask_of(values.is_valid())
