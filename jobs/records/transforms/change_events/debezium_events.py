"""Events of Debezium: which of a block's records are changes of a row, other events, or neither.

An event is recognised by its structure: `op` with `before`, `after` and `source`. Heartbeats, the ends of transactions
and changes of a schema have no `op` and no row; a message that somebody wrote to the log has the op `m`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.interface.problems import BAD_ENVELOPE, NULL_IN_REQUIRED, shown
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.transforms.change_events.changelog import DELETE, OPS, TRUNCATE
from jobs.records.transforms.columns import Columns, TransformProblem
from jobs.records.transforms.masks import Mask, mask_of
from jobs.records.transforms.smt.debezium_envelope import kind_at
from jobs.records.transforms.timestamps import instants_of
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)

_MESSAGE = "m"
_KINDS = "c, u, d, r, t or m"
_STAMPED = ("ts_us", "ts_ms")
_TRANSACTION = ("transaction", "id")
_OF_SOURCE = ("txId", "gtid", "lsid")


@dataclass(frozen=True, slots=True)
class Events:
    """The records of a block by kind.

    Attributes:
        ops: Operations of changes, as `_change_op` has them; arbitrary for other records.
        changes: Mask of the changes of a row or a table.
        filtered: Records that are about no row, ascending.
        failures: Failures of records that are neither.
    """

    ops: pa.Array
    changes: Mask
    filtered: npt.NDArray[np.int64]
    failures: list[RowFailure]

    def of(self, *ops: str) -> Mask:
        """Return a mask of the changes of these kinds."""
        return self.changes & mask_of(pc.is_in(self.ops, value_set=pa.array(ops, pa.string())))


def events_of(rows: Rows) -> Events:
    """Return the kinds of the records, from their decoded columns."""
    ops = _column(rows, "op", pa.string())
    known = pc.is_in(ops, value_set=pa.array(OPS, pa.string()))
    changes = mask_of(known)
    if changes.all():
        return Events(ops, changes, np.zeros(0, np.int64), [])
    message = mask_of(pc.equal(ops, _MESSAGE))
    without = mask_of(ops.is_null())
    empty = without & ~_there(rows, "before") & ~_there(rows, "after")
    aside = message | (empty & (_there(rows, "source") | _there(rows, "ts_ms")))
    failures = [_no_event(ops, int(row)) for row in np.flatnonzero(~changes & ~aside)]
    return Events(ops, changes, np.flatnonzero(aside), failures)


def lacking_rows(rows: Rows, events: Events, *, keyed: bool) -> list[RowFailure]:
    """Return the changes that lack their row.

    Args:
        rows: The events.
        keyed: Whether the key identifies the row of a deletion.
    """
    after, before = _there(rows, "after"), _there(rows, "before")
    deleted = events.of(DELETE)
    written = events.changes & ~deleted & ~events.of(TRUNCATE)
    if keyed:
        before |= _there(rows, "_change_key")
    said = "needs the row behind the change, found null"
    failures = [RowFailure(int(row), NULL_IN_REQUIRED, said, "$.after") for row in np.flatnonzero(written & ~after)]
    said = "needs the row before the deletion, or a key that decode.key puts into _change_key, found neither"
    failures += [RowFailure(int(row), NULL_IN_REQUIRED, said, "$.before") for row in np.flatnonzero(deleted & ~before)]
    return failures


def times_of(rows: Rows) -> tuple[pa.Array, list[RowFailure]]:
    """Return the times of changes: by the source's clock, or else by the connector's; null if neither is given."""
    found = pa.nulls(rows.count, pa.timestamp("us", tz="UTC"))
    failures: list[RowFailure] = []
    source = rows.batch.column(rows.columns.index("source"))
    of_source = {each.name: pc.struct_field(source, each.name) for each in source.type if each.name in _STAMPED}
    of_event = {name: rows.batch.column(rows.columns.index(name)) for name in _STAMPED if name in rows.columns.names}
    for place, values in (("$.source", of_source), ("$", of_event)):
        for name in _STAMPED:
            if found.null_count and name in values:
                times, odd = instants_of(values[name], f"{place}.{name}", "us" if name == "ts_us" else "ms")
                # Each record's own first time counts, whatever the records beside it have.
                lacking = mask_of(found.is_null())
                failures += [failure for failure in odd if lacking[failure.row]]
                found = pc.coalesce(found, times)
    return found, failures


def transactions_of(rows: Rows, source: SourceBlock) -> pa.Array:
    """Return the transactions' names: as Debezium names them, or else as the source does."""
    found = pa.nulls(rows.count, pa.string())
    if isinstance(kind_at(rows.columns, _TRANSACTION), ice.StringType):
        found = pc.struct_field(rows.batch.column(rows.columns.index(_TRANSACTION[0])), _TRANSACTION[1])
    for name in _OF_SOURCE:
        if found.null_count and source.has(name):
            found = pc.coalesce(found, source.texts(name))
    return found


def event_problem(columns: Columns, *, documents: bool = False) -> None:
    """Refuse columns that are not decoded from events of Debezium.

    Args:
        columns: Columns of the events.
        documents: Whether their rows are documents of MongoDB, as texts.

    Raises:
        TransformProblem: They lack `op` or `after`, or one of them is of another type.
    """
    kinds = {each.name: each.field_type for each in columns}
    row, kind = ("string", ice.StringType) if documents else ("struct", ice.StructType)
    if not isinstance(kinds.get("op"), ice.StringType) or not isinstance(kinds.get("after"), kind):
        there = ", ".join(columns.names) or "none"
        said = f"takes events of Debezium, with the columns op (string), after ({row}) and source (struct)"
        hint = "for rows that the connector has unwrapped write envelope: columns"
        raise TransformProblem(f"{said}; there are {there}; {hint}", ("envelope",))
    for name in _STAMPED:
        kind = kinds.get(name)
        if kind is not None and not isinstance(kind, ice.LongType | ice.TimestamptzType | ice.TimestampType):
            raise TransformProblem(f"needs {name} as long, or as timestamptz, found {kind}", ("envelope",))


def _no_event(ops: pa.Array, row: int) -> RowFailure:
    found = ops[row].as_py()
    if found is None:
        said = f"needs an event of Debezium with op {_KINDS}, found a record without op"
        return RowFailure(row, BAD_ENVELOPE, said, "$.op")
    return RowFailure(row, BAD_ENVELOPE, f"needs op {_KINDS}, found {shown(found)}", "$.op")


def _column(rows: Rows, name: str, kind: pa.DataType) -> pa.Array:
    return rows.batch.column(rows.columns.index(name)) if name in rows.columns.names else pa.nulls(rows.count, kind)


def _there(rows: Rows, name: str) -> Mask:
    return mask_of(_column(rows, name, pa.null()).is_valid())


NUMBERS = ("lsn", "pos", "row", "server_id", "event_serial_no", "txId", "ts_ms", "ts_us")
TEXTS = ("connector", "name", "db", "sequence", "file", "gtid", "change_lsn", "commit_lsn", "lsid")
_WHOLE = r"^[0-9]{1,18}$"


@dataclass(frozen=True, slots=True)
class SourceBlock:
    """The field `source` of some events.

    Attributes:
        values: A struct for each event; null for other records.
        reads: Mask of the events that read a row for a snapshot.
    """

    values: pa.StructArray
    reads: Mask

    @property
    def count(self) -> int:
        """Return the number of events."""
        return len(self.values)

    def has(self, *names: str) -> bool:
        """Return whether fields of these names exist."""
        return all(self.values.type.get_field_index(each) >= 0 for each in names)

    def texts(self, name: str) -> pa.Array:
        """Return a field as text; null if the field does not exist."""
        if not self.has(name):
            return pa.nulls(self.count, pa.string())
        found = pc.struct_field(self.values, name)
        return found if found.type == pa.string() else found.cast(pa.string())

    def numbers(self, name: str) -> pa.Array:
        """Return a field as whole numbers of 64 bits from 0 on, also from digits in a text; null for other values."""
        found = self.signed(name)
        return pc.if_else(pc.less(found, 0), pa.scalar(None, pa.int64()), found)

    def signed(self, name: str) -> pa.Array:
        """Return a field as `numbers` does, with numbers below 0."""
        if not self.has(name):
            return pa.nulls(self.count, pa.int64())
        found = pc.struct_field(self.values, name)
        if pa.types.is_string(found.type):
            whole = pc.match_substring_regex(found, _WHOLE)
            return pc.if_else(whole, found, pa.scalar(None, pa.string())).cast(pa.int64())
        return found if found.type == pa.int64() else found.cast(pa.int64())

    def there(self, *names: str) -> Mask:
        """Return a mask of the events that have a value in each of these fields."""
        found = mask_of(self.values.is_valid())
        for each in names:
            values = self.texts(each) if each in TEXTS else self.numbers(each)
            found = found & mask_of(values.is_valid())
        return found

    def joined(self, *parts: pa.Array | str) -> pa.Array:
        """Return texts with "/" between them; a part that is null is empty."""
        arrays = [pc.fill_null(each, "") if isinstance(each, pa.Array) else each for each in parts]
        return pc.binary_join_element_wise(*arrays, "/")


def source_problem(source: ice.StructType) -> str | None:
    """Return why a struct cannot be the source block of events; None if it can."""
    for each in source.fields:
        kind = each.field_type
        if each.name in TEXTS and not isinstance(kind, ice.StringType):
            return f"source.{each.name} is a text in Debezium's events, and {schema_text(kind)} here"
        if each.name in NUMBERS and not isinstance(kind, _NUMBER_TYPES):
            timed = each.name.startswith("ts_") and isinstance(kind, ice.TimestampType | ice.TimestamptzType)
            if not timed:
                return f"source.{each.name} is a whole number in Debezium's events, and {schema_text(kind)} here"
    return None


def checked_source(source: ice.IcebergType | None) -> ice.StructType:
    """Return the struct `source` of events.

    Raises:
        TransformProblem: It is no such struct.
    """
    if not isinstance(source, ice.StructType):
        said = "needs 'source', the struct of Debezium's events with place and time of a change"
        raise TransformProblem(f"{said}: declare it, such as source struct<connector: string, ts_ms: long, lsn: long>")
    if problem := source_problem(source):
        raise TransformProblem(problem)
    return source


_NUMBER_TYPES = (ice.IntegerType, ice.LongType, ice.StringType)


@dataclass(frozen=True, slots=True)
class EventsOnly(Transform):
    """Filter Debezium's records that are about no row, whose keys are other ones; a record that is no event fails.

    Attributes:
        documents: Whether rows are documents of MongoDB.
    """

    name: ClassVar[str] = "changes"
    documents: bool = False

    def output(self, columns: Columns) -> Columns:
        event_problem(columns, documents=self.documents)
        return columns

    def apply(self, rows: Rows) -> Applied:
        events = events_of(rows)
        return settled(rows, events.failures, events.filtered)
