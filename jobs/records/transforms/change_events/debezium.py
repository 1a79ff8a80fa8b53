"""Debezium's envelope: change events become rows of a changelog."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.interface.problems import BAD_ENVELOPE
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
from jobs.records.transforms.change_events.debezium_events import (
    Events,
    SourceBlock,
    checked_source,
    event_problem,
    events_of,
    lacking_rows,
    times_of,
    transactions_of,
)
from jobs.records.transforms.change_events.positions import source_positions
from jobs.records.transforms.change_events.row_changes import (
    RowChanges,
    old_keys,
    with_key_values,
    without_placeholders,
)
from jobs.records.transforms.columns import Columns
from jobs.records.transforms.smt.debezium_envelope import (
    as_either,
    kind_at,
    row_fields,
    struct_of,
)
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    settled,
)

_NAME = RowChanges.name
_NEGATIVE = (
    "a negative one, as newer connectors send it of a compressed transaction: set binlog_transaction_compression to "
    "OFF in MySQL, and let the connector take a new snapshot"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DebeziumChanges(RowChanges):
    """Convert each event to its row, with the facts of its change.

    The row is that after the change; for a deletion, the one before it. Events that are about no row are filtered.

    Attributes:
        before: Whether the row before the change is kept as well.
    """

    before: bool = False

    def output(self, columns: Columns) -> Columns:
        """Return the row's columns, those beside it, and the changelog's own."""
        event_problem(columns)
        checked_source(kind_at(columns, ("source",)))
        fields = row_fields(columns, _NAME, deleted=True)
        beside = tuple(each for each in columns if each.name in self.beside)
        return Shape(fields, beside, key_struct(columns, self.key), fields if self.before else None).columns

    def apply(self, rows: Rows) -> Applied:
        into = rows.columns.behind(self)
        events = events_of(rows)
        keys = key_values(rows, into.arrow.field(KEY).type if KEY in into.names else None)
        failures = [*events.failures, *lacking_rows(rows, events, keyed=keys is not None)]
        fields = list(into.arrow)[: len(row_fields(rows.columns, _NAME, deleted=True))]
        row, before = self._row(rows, events, fields, keys)
        row, unavailable = without_placeholders(
            [each.name for each in fields], row, self.unavailable, events.of(CREATE, UPDATE)
        )
        source = SourceBlock(rows.batch.column(rows.columns.index("source")), events.of(READ))
        positions = source_positions(source)
        times, late = times_of(rows)
        failures += late
        for field, lacking in positions.lacking.items():
            said = (
                f"needs the position of the change in source.{field}, found {_NEGATIVE if field == 'pos' else 'none'}"
            )
            places = np.flatnonzero(lacking & events.changes)
            failures += [RowFailure(int(at), BAD_ENVELOPE, said, "$.source") for at in places]
        old = None
        if keys is not None and OLD_KEY in into.names:
            old, wrong = self._old_keys(rows, into)
            failures += wrong
        changes = Changes(
            row,
            events.ops,
            [rows.batch.column(rows.columns.index(name)) for name in into.names if name in self.beside],
            times,
            positions.texts,
            positions.lineages,
            transactions_of(rows, source),
            unavailable,
            keys,
            old,
            before,
        )
        return settled(changes.rows(rows, into), failures, events.filtered)

    def _row(
        self, rows: Rows, events: Events, fields: list[pa.Field], keys: pa.Array | None
    ) -> tuple[list[pa.Array], pa.Array | None]:
        """Return the columns of the row, and the row before it, if that is kept."""
        deleted = events.of(DELETE)
        after = rows.batch.column(rows.columns.index("after"))
        names = rows.columns.names
        before = rows.batch.column(rows.columns.index("before")) if "before" in names else None
        kept = struct_of(before, fields) if self.before and before is not None else None
        if not deleted.any():
            return [_field(after, each) for each in fields], kept
        gone = pa.array(deleted)
        made: list[pa.Array] = []
        for each in fields:
            former = pa.nulls(rows.count, each.type) if before is None else _field(before, each)
            made.append(pc.if_else(gone, former, _field(after, each)))
        return with_key_values([each.name for each in fields], made, keys, deleted), kept

    def _old_keys(self, rows: Rows, into: Columns) -> tuple[pa.Array | None, list[RowFailure]]:
        kind = into.field(OLD_KEY).field_type
        assert isinstance(kind, ice.StructType)
        return old_keys(rows, kind, self.keys)


def _field(struct: pa.StructArray, field: pa.Field) -> pa.Array:
    at = struct.type.get_field_index(field.name)
    if at < 0:
        return pa.nulls(len(struct), field.type)
    return as_either(pc.struct_field(struct, [at]), field.type)
