"""Events of Debezium: which of a block's records are changes of a row, which say something else, and which are neither.

An event is known by its structure: `op` with `before`, `after` and `source`. Heartbeats, the ends of transactions and
changes of a schema have no `op` and no row; a message that somebody wrote to the log has the op `m`.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.formats.problems import BAD_ENVELOPE, NULL_IN_REQUIRED, shown
from jobs.transform.changes.changelog import DELETE, OPS, TRUNCATE
from jobs.transform.changes.source_block import SourceBlock
from jobs.transform.columns import Columns, TransformProblem
from jobs.transform.masks import Mask, mask_of
from jobs.transform.smt.debezium_envelope import kind_at
from jobs.transform.timestamps import instants_of
from jobs.transform.transform import RowFailure, Rows

_MESSAGE = "m"
_KINDS = "c, u, d, r, t or m"
_STAMPED = ("ts_us", "ts_ms")
_TRANSACTION = ("transaction", "id")
_OF_SOURCE = ("txId", "gtid", "lsid")


@dataclass(frozen=True, slots=True)
class Events:
    """What the records of a block are.

    Attributes:
        ops: Of changes, as `_change_op` has them; of others anything.
        changes: Which are changes of a row or a table.
        filtered: Which say nothing of a row, ascending.
        failures: Of those that are neither.
    """

    ops: pa.Array
    changes: Mask
    filtered: npt.NDArray[np.int64]
    failures: list[RowFailure]

    def of(self, *ops: str) -> Mask:
        """Which are changes of these kinds."""
        return self.changes & mask_of(pc.is_in(self.ops, value_set=pa.array(ops, pa.string())))


def events_of(rows: Rows) -> Events:
    """What the records are, by the columns that they were decoded to."""
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
    """The changes without the row that they are about.

    Args:
        rows: The events.
        keyed: Whether the key says which row a deletion is about.
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
    """When the changes happened: by the source's clock, or else by the connector's; null where neither says so."""
    found = pa.nulls(rows.count, pa.timestamp("us", tz="UTC"))
    failures: list[RowFailure] = []
    source = rows.batch.column(rows.columns.index("source"))
    of_source = {each.name: pc.struct_field(source, each.name) for each in source.type if each.name in _STAMPED}
    of_event = {name: rows.batch.column(rows.columns.index(name)) for name in _STAMPED if name in rows.columns.names}
    for place, values in (("$.source", of_source), ("$", of_event)):
        for name in _STAMPED:
            if found.null_count and name in values:
                times, odd = instants_of(values[name], f"{place}.{name}", "us" if name == "ts_us" else "ms")
                # If a record has a time already, no other one counts, whatever the records beside it have.
                lacking = mask_of(found.is_null())
                failures += [failure for failure in odd if lacking[failure.row]]
                found = pc.coalesce(found, times)
    return found, failures


def transactions_of(rows: Rows, source: SourceBlock) -> pa.Array:
    """The transactions' names: as Debezium names them, or else as the source does."""
    found = pa.nulls(rows.count, pa.string())
    if isinstance(kind_at(rows.columns, _TRANSACTION), ice.StringType):
        found = pc.struct_field(rows.batch.column(rows.columns.index(_TRANSACTION[0])), _TRANSACTION[1])
    for name in _OF_SOURCE:
        if found.null_count and source.has(name):
            found = pc.coalesce(found, source.texts(name))
    return found


def event_problem(columns: Columns, *, documents: bool = False) -> None:
    """Refuse columns that events of Debezium are not decoded to.

    Args:
        columns: Of the events.
        documents: Whether their rows are documents of MongoDB, as texts.

    Raises:
        TransformProblem: They lack `op`, `after` or one of them is of another type.
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
