"""The ledger of a catalog as an Iceberg table: its columns, conversions to and from Arrow, and reads.

It keeps the stamps of every batch and every operator's answer beyond the expiry of their snapshots.
"""

# PyIceberg's conditions take a column and a value, which a type checker does not see.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, NotIn, NotNull, Or
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    BooleanType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from jobs.base.errors import FrazilError
from jobs.base.system.typed_json import decode_json
from jobs.config.settings.settings import Settings
from jobs.config.values.partitioning import PartitionExpr
from jobs.tables.commit.history.branch import existing_table
from jobs.tables.commit.stamp.errors import CommitRefusedError, HeadMovedError
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.ledger.ledger_row import WHOLE_TABLE, LedgerRow
from jobs.tables.write.partitioning import partition_spec
from jobs.tables.write.pyiceberg_files import arrow_schema_in_files
from jobs.tables.write.table_creation import create_table_properties, ensure_table

LEDGER_SCHEMA = Schema(
    NestedField(1, "stream", StringType(), required=True, doc="Id of the stream."),
    NestedField(2, "table_name", StringType(), required=True, doc="The table that was committed to."),
    NestedField(3, "table_uuid", StringType(), required=True, doc="Iceberg's identity of it."),
    NestedField(4, "anchor", BooleanType(), required=True, doc="The stream's table; false: its dead letters."),
    NestedField(5, "kind", StringType(), required=True, doc="batch, passed, again, removed, unknown or noted."),
    NestedField(6, "topic", StringType(), doc="Null in rows of the whole table."),
    NestedField(7, "partition", IntegerType()),
    NestedField(8, "start_offset", LongType(), doc="The table's position before; the next offset."),
    NestedField(9, "end_offset", LongType(), doc="Its position after; the next offset."),
    NestedField(10, "read", LongType(), doc="landed + dead + tombstones + filtered; null if not known per partition."),
    NestedField(11, "landed", LongType()),
    NestedField(12, "dead", LongType()),
    NestedField(13, "tombstones", LongType()),
    NestedField(14, "filtered", LongType()),
    NestedField(15, "epoch", LongType(), required=True, doc="Of the driver."),
    NestedField(16, "batch_id", LongType(), required=True, doc="Spark's batch."),
    NestedField(17, "sequence", LongType(), required=True, doc="Iceberg's sequence number of the commit."),
    NestedField(18, "snapshot_id", LongType(), doc="Null if the snapshot had expired."),
    NestedField(19, "committed_at", TimestamptzType(), required=True),
    NestedField(20, "config_hash", StringType(), required=True, doc="Of what makes rows."),
    NestedField(21, "generation", StringType(), doc="Of the configuration that the driver ran under."),
    NestedField(22, "answer", StringType(), doc="What an operator decided."),
    NestedField(23, "note", StringType(), doc="Who decided it, and why."),
    NestedField(24, "since", LongType(), doc="With removed: rows with a later sequence number, before this, are void."),
    NestedField(25, "elsewhere", LongType(), doc="Landed records without a row in the coordinator table."),
    NestedField(
        26, "late_rows", StringType(), doc="Late rows of the commit, by the begin of their hour or day, in ms."
    ),
)
# Columns that a ledger of an earlier release gets when something is filled in.
_LATER = ("elsewhere", "late_rows")
LEDGER_PARTITIONS = (PartitionExpr("identity", "stream", None),)

_COUNTS = ("read", "landed", "dead", "tombstones", "filtered")
_ARROW = arrow_schema_in_files(LEDGER_SCHEMA)


def ensure_ledger(catalog: Catalog, settings: Settings) -> Table:
    """The ledger with all its columns; creates it if it does not exist.

    Raises:
        HeadMovedError: Somebody else changed it at the same moment.
    """
    table = _checked(
        ensure_table(
            catalog,
            settings.ledger.table,
            LEDGER_SCHEMA,
            partition_spec(LEDGER_PARTITIONS, LEDGER_SCHEMA),
            create_table_properties({}),
        )
    )
    if lacks_columns(table):
        try:
            with table.update_schema() as update:
                for name in _LATER:
                    if name in table.schema().column_names:
                        continue
                    update.add_column(name, LEDGER_SCHEMA.find_type(name), LEDGER_SCHEMA.find_field(name).doc)
        except CommitFailedException as moved:
            raise HeadMovedError(f"the ledger was altered by somebody else: {moved}") from None
    return table


def lacks_columns(ledger: Table | TableMetadata) -> bool:
    """Whether the ledger is of an earlier release and lacks columns, which `ensure_ledger` adds."""
    return not set(_LATER) <= set(ledger.schema().column_names)


def find_ledger(catalog: Catalog, settings: Settings) -> Table | None:
    """The ledger; None if nothing was ever filled in."""
    found = existing_table(catalog, settings.ledger.table)
    return _checked(found) if found is not None else None


def _checked(table: Table) -> Table:
    """The table, if it has a ledger's columns.

    Raises:
        FrazilError: Columns are missing, so another table has the ledger's name.
    """
    has = set(table.schema().column_names)
    lacking = [each.name for each in LEDGER_SCHEMA.fields if each.name not in has and each.name not in _LATER]
    if lacking:
        raise FrazilError(
            f"table {'.'.join(table.name())} is no ledger: it has no column {', '.join(lacking)}",
            fix="name another table in ledger.table of frazil.yaml",
        )
    return table


def read_ledger(
    catalog: Catalog,
    settings: Settings,
    stream: str,
    table: str | None = None,
    after_sequence: int | None = None,
    uuid: str | None = None,
) -> list[LedgerRow]:
    """Rows of a stream, ordered by table, sequence and effect; see `jobs.tables.ledger.ledger_row`.

    Args:
        table: Only rows of tables that have or had this name.
        after_sequence: Only rows of later commits.
        uuid: With `table`, rows of the table with this uuid as well, under any name.
    """
    ledger = find_ledger(catalog, settings)
    if ledger is None:
        return []
    return ledger_from_arrow(ledger.scan(row_filter=_rows_wanted(stream, table, after_sequence, uuid)).to_arrow())


def ledger_tables(catalog: Catalog, settings: Settings, stream: str) -> list[str]:
    """Names of tables beside the stream's coordinators that have rows in the ledger, ascending."""
    ledger = find_ledger(catalog, settings)
    if ledger is None:
        return []
    found = ledger.scan(row_filter=EqualTo("stream", stream), selected_fields=("table_name", "anchor")).to_arrow()
    pairs = found.group_by(["table_name", "anchor"]).aggregate([]).to_pylist()
    coordinators = {each["table_name"] for each in pairs if each["anchor"]}
    return sorted({each["table_name"] for each in pairs} - coordinators)


def former_ends(catalog: Catalog, settings: Settings, stream: str, uuids: Collection[str]) -> dict[TopicPartition, int]:
    """End offset up to which other tables than these received records of a stream, by partition.

    Args:
        uuids: Uuids of the tables that the stream has.
    """
    ledger = find_ledger(catalog, settings)
    if ledger is None:
        return {}
    others = And(EqualTo("stream", stream), EqualTo("kind", "batch"), NotIn("table_uuid", set(uuids)))
    found = ledger.scan(row_filter=others, selected_fields=("topic", "partition", "end_offset")).to_arrow()
    ends = found.group_by(["topic", "partition"]).aggregate([("end_offset", "max")]).to_pylist()
    return {
        TopicPartition(each["topic"], each["partition"]): each["end_offset_max"]
        for each in ends
        if each["topic"] is not None
    }


def read_late_rows(catalog: Catalog, settings: Settings, stream: str, table: Table, since: datetime) -> list[LedgerRow]:
    """Rows about late rows of a stream in a table, and the rollbacks that make them void.

    Args:
        since: Only rows of commits from this instant on.
    """
    ledger = find_ledger(catalog, settings)
    if ledger is None or "late_rows" not in ledger.schema().column_names:
        return []
    telling: BooleanExpression = Or(NotNull("late_rows"), EqualTo("kind", "removed"))
    mine = And(EqualTo("stream", stream), EqualTo("table_uuid", str(table.metadata.table_uuid)))
    wanted = And(And(mine, GreaterThanOrEqual("committed_at", since.isoformat())), telling)
    return ledger_from_arrow(ledger.scan(row_filter=wanted).to_arrow())


def _rows_wanted(stream: str, table: str | None, after_sequence: int | None, uuid: str | None) -> BooleanExpression:
    """Filter for rows of a stream; of a table by name, or by uuid under any name; after a sequence number."""
    first = 0 if after_sequence is None else after_sequence + 1
    wanted: BooleanExpression = And(EqualTo("stream", stream), GreaterThanOrEqual("sequence", first))
    if table is None:
        return wanted
    # A renamed table has rows under its former name; it keeps its uuid.
    named: BooleanExpression = EqualTo("table_name", table)
    return And(wanted, named if uuid is None else Or(named, EqualTo("table_uuid", uuid)))


def ledger_to_arrow(rows: Sequence[LedgerRow]) -> pa.RecordBatch:
    """Rows of the ledger, at least one, as the table's columns."""
    columns = zip(*map(_values, rows), strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, _ARROW, strict=True)], schema=_ARROW
    )


def _values(row: LedgerRow) -> tuple[Any, ...]:
    whole, counts = row.partition == WHOLE_TABLE, row.counts
    return (
        *(row.stream, row.table, row.table_uuid, row.anchor, row.kind),
        *((None,) * 4 if whole else (*row.partition, *row.range)),
        *(None if counts is None else getattr(counts, name) for name in _COUNTS),
        *(row.epoch, row.batch, row.sequence, row.snapshot_id or None, row.committed_at),
        *(row.config, row.generation, row.answer, row.note, row.since, row.elsewhere or None, _late_text(row.late)),
    )


def ledger_from_arrow(table: pa.Table) -> list[LedgerRow]:
    """The inverse of `ledger_to_arrow`, in the ledger's order."""
    there = set(table.column_names)
    columns = [table[field.name].to_pylist() if field.name in there else [None] * table.num_rows for field in _ARROW]
    # A ledger has millions of rows with the same few names: each name is stored once.
    kept: dict[Any, Any] = {}
    return sorted((_row(kept, *values) for values in zip(*columns, strict=True)), key=lambda row: row.place)


def _row(
    kept: dict[Any, Any],
    stream: str,
    name: str,
    uuid: str,
    anchor: bool,
    kind: Any,
    topic: str | None,
    partition: int | None,
    start: int | None,
    end: int | None,
    *rest: Any,
) -> LedgerRow:
    counts, others = rest[: len(_COUNTS)], rest[len(_COUNTS) :]
    epoch, batch, sequence, snapshot_id, committed_at, config, generation, answer, note, since, elsewhere, late = others
    source = WHOLE_TABLE if topic is None else TopicPartition(topic, partition or 0)
    stream, name, uuid, kind, source, config, generation, answer, note = (
        kept.setdefault(each, each) for each in (stream, name, uuid, kind, source, config, generation, answer, note)
    )
    return LedgerRow(
        stream,
        name,
        uuid,
        anchor,
        kind,
        source,
        OffsetRange(start or 0, end or 0),
        epoch,
        batch,
        sequence,
        snapshot_id or 0,
        committed_at,
        config,
        generation or "",
        None if counts[0] is None else Counts(*counts),
        answer,
        note,
        since,
        elsewhere or 0,
        decode_json(late, dict[int, int]) if late else None,
    )


def _late_text(late: Mapping[int, int] | None) -> str | None:
    return msgspec.json.encode(dict(sorted(late.items()))).decode() if late else None


def ledger_crowded(said: str) -> CommitRefusedError:
    """Error of a commit to the ledger that lost to other commits in every attempt."""
    return CommitRefusedError(f"the ledger: {said}", fix="nothing is lost: do it again once fewer others write to it")
