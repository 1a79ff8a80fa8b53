"""Stored rows of a record in a stream's tables, and the records of rows that match a filter."""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo
from pyiceberg.table import DataScan

from jobs.base.errors import FrazilError, first_line
from jobs.proof.lookup.reading import Condition
from jobs.proof.lookup.stream_tables import LookedAt, StreamTables
from jobs.records.schema.row_filters import filter_advice, filter_problem
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.dead_letter_table.parked_letters import TARGET
from jobs.tables.write.data_file_rows import equality_deletes_named

# Columns of a dead letter with its failure and state; never its value.
_LETTER = (
    *("error_class", "stage", "field", "epoch", "batch_id", "first_seen"),
    *("state", "replay", "run_id", "replay_snapshot_id", TARGET),
)


def count_rows(looked_at: LookedAt, conditions: Sequence[Condition], snapshot_id: int) -> int:
    """Number of rows in a snapshot that match the conditions."""
    scan = looked_at.table.scan(
        row_filter=_all(conditions), snapshot_id=snapshot_id, selected_fields=looked_at.target.coordinates
    )
    return _read(looked_at, scan).num_rows


def letters_at(tables: StreamTables, partition: TopicPartition, offset: int) -> list[dict[str, Any]]:
    """Present dead letters at the coordinates."""
    dead = tables.dead
    head = dead.metadata.snapshot_by_id(dead.metadata.current_snapshot_id or 0) if dead is not None else None
    if dead is None or head is None:
        return []
    names = tuple(name for name in _LETTER if name in dead.table.schema().column_names) or ("offset",)
    wanted = _all(dead.conditions(tables.spec.stream, *partition, offset))
    scan = dead.table.scan(row_filter=wanted, snapshot_id=head.snapshot_id, selected_fields=names)
    return _read(dead, scan).to_pylist()


def rows_at(
    tables: StreamTables, asked: LookedAt, row_filter: str, most: int
) -> list[tuple[TopicPartition, int, datetime | None]]:
    """Records of rows that match a filter: topic, partition, offset, and the record's timestamp if rows have it.

    Args:
        asked: Table of the rows.
        row_filter: Filter in PyIceberg's syntax, such as `id = 'p-17'`.
        most: Most records.

    Raises:
        FrazilError: The filter is invalid, or rows lack coordinates.
    """
    names = asked.target.coordinates
    columns = asked.table.schema().column_names
    if not set(names) <= set(columns):
        raise FrazilError(
            f"the rows of table {asked.target.name} do not say which records they are of: it has no columns "
            f"{', '.join(names)}.",
            fix=f"name the record: frazil at {tables.spec.stream} --topic T --partition P --offset N",
        )
    stamp = "timestamp" if asked.target.role == "dead_letters" else tables.spec.kafka_columns.instant_coordinates[3]
    wanted = (*names, stamp) if stamp in columns else names
    head = asked.metadata.current_snapshot_id
    if head is None or head < 0:
        return []
    try:
        scan = asked.table.scan(row_filter=row_filter, selected_fields=wanted, snapshot_id=head, limit=most)
        found = _read(asked, scan).to_pylist()
    except FrazilError:
        raise
    except Exception as problem:
        why = filter_problem(row_filter, asked.table.schema()) or first_line(problem)
        raise FrazilError(
            f"--row: '{row_filter}' cannot be asked of table {asked.target.name}: {why}",
            fix=filter_advice("id = 'p-17' and amount > 5", columns),
        ) from None
    return [
        (TopicPartition(each[names[0]], each[names[1]]), each[names[2]], each.get(stamp))
        for each in found
        if each[names[2]] is not None
    ]


def _read(looked_at: LookedAt, scan: DataScan) -> pa.Table:
    try:
        with equality_deletes_named(looked_at.target.name):
            return scan.to_arrow()
    except OSError as problem:
        raise FrazilError(
            f"table {looked_at.target.name}: a file of snapshot {scan.snapshot_id} cannot be read: "
            f"{first_line(problem)}",
            fix=f"read a later snapshot of {looked_at.target.name}",
        ) from problem


def _all(conditions: Sequence[Condition]) -> BooleanExpression:
    wanted: BooleanExpression = AlwaysTrue()
    for column, value in conditions:
        wanted = And(wanted, EqualTo(column, value))
    return wanted
