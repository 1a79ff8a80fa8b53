"""The dead-letter table: its columns and types, a check of them, and the addition of new columns.

Its rows are the records that could not be landed (`jobs.tables.dead_letter_table.rows`), with their replay state.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from jobs.base.errors import FrazilError
from jobs.config.values.partitioning import PartitionExpr
from jobs.records.schema.compatibility import holds
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap, conflicts_as_moved_head
from jobs.tables.commit.stamp.errors import HeadMovedError

STATES = ("new", "replayed", "failed_again", "parked", "dismissed")
# Columns that replays and people set. The stream that writes a dead letter leaves them null: new, and never replayed.
REPLAY_STATE_FIELDS = (
    NestedField(
        21, "state", StringType(), False, "new, replayed, failed_again, parked (exhausted) or dismissed; null is new."
    ),
    NestedField(22, "attempts", IntegerType(), False, "Replays that tried it."),
    NestedField(23, "state_at", TimestamptzType(), False, "When the state was set."),
    NestedField(24, "replay", StringType(), False, "Id of the replay that set it."),
    NestedField(25, "run_id", StringType(), False, "Dagster's run of that replay."),
    NestedField(26, "replay_snapshot_id", LongType(), False, "Snapshot of the stream's table that holds its row."),
    NestedField(27, "replay_error_class", StringType(), False, "The reason of the last replay that failed."),
    NestedField(28, "replay_message", StringType(), False, "That reason as a sentence."),
    NestedField(29, "correction", StringType(), False, "YAML that the spec was corrected with for the replay."),
    NestedField(30, "changed_by", StringType(), False, "Who set the state."),
    NestedField(31, "note", StringType(), False, "Why, where a person set it."),
    NestedField(32, "masked", StringType(), False, "What is not kept: value, field:path, key, headers."),
    NestedField(33, "row_before", StringType(), False, "The row as the step met it that refused it, as JSON, cut."),
    NestedField(34, "target", StringType(), False, "Suspended table, of a dead letter that waits for it alone."),
)
DEAD_LETTER_SCHEMA = Schema(
    NestedField(1, "stream", StringType(), required=True, doc="Id of the stream."),
    NestedField(2, "topic", StringType(), required=True),
    NestedField(3, "partition", IntegerType(), required=True),
    NestedField(4, "offset", LongType(), required=True),
    NestedField(5, "timestamp", TimestamptzType(), doc="The record's timestamp in Kafka."),
    NestedField(6, "timestamp_type", StringType(), doc="CreateTime or LogAppendTime."),
    NestedField(7, "key", BinaryType(), doc="The record's key, byte for byte."),
    NestedField(8, "value", BinaryType(), doc="The record's value, byte for byte."),
    NestedField(
        9,
        "headers",
        ListType(18, StructType(NestedField(19, "key", StringType()), NestedField(20, "value", BinaryType())), False),
    ),
    NestedField(10, "stage", StringType(), required=True, doc="The stage that failed first."),
    NestedField(11, "error_class", StringType(), required=True, doc="Stable name of the reason."),
    NestedField(12, "message", StringType(), doc="The reason as a sentence."),
    NestedField(13, "field", StringType(), doc="Where in the record, such as $.a.b[2]."),
    NestedField(14, "config_hash", StringType(), doc="Hash of the configuration under which the record failed."),
    NestedField(15, "batch_id", LongType()),
    NestedField(16, "epoch", LongType()),
    NestedField(17, "first_seen", TimestamptzType(), required=True, doc="When the batch that met it was made."),
    *REPLAY_STATE_FIELDS,
)
DEAD_LETTER_PARTITIONS = (PartitionExpr("day", "first_seen", None),)

_ARROW = {
    StringType: pa.string(),
    BinaryType: pa.binary(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    TimestamptzType: pa.timestamp("us", tz="UTC"),
    ListType: pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
}


def _arrow_schema(fields: Sequence[NestedField]) -> pa.Schema:
    return pa.schema([pa.field(each.name, _ARROW[type(each.field_type)], nullable=each.optional) for each in fields])


OF_THE_RECORD = ("masked", "row_before", "target")
"""Later columns that are written with the dead letter if they apply; replays leave them."""
REPLAY_STATE_ARROW = _arrow_schema([field for field in REPLAY_STATE_FIELDS if field.name not in OF_THE_RECORD])
# Columns without the replay state and those of `OF_THE_RECORD`.
ARROW_SCHEMA = _arrow_schema(DEAD_LETTER_SCHEMA.fields[: -len(REPLAY_STATE_FIELDS)])
_LATER = frozenset(field.name for field in REPLAY_STATE_FIELDS)


class AlteredTableError(FrazilError):
    """A dead-letter table was altered: a column is missing or has another type.

    Safe: Nothing was changed.
    Next: alter the table back, or name another one in `errors.dead_letters.table`
    """


def ensure_replay_state_columns(catalog: Catalog, name: str) -> Table:
    """The dead-letter table with the columns of the replay state; concurrent additions all succeed.

    Raises:
        AlteredTableError: The table lacks a column of dead letters, or has one with another type.
    """

    def attempt() -> Table:
        table = catalog.load_table(name)
        check_dead_letter_table(table)
        has = set(table.schema().column_names)
        missing = [field for field in REPLAY_STATE_FIELDS if field.name not in has]
        if not missing:
            return table
        # A refusal means that somebody changed the table, perhaps by adding the same columns.
        with conflicts_as_moved_head():
            try:
                with table.update_schema() as update:
                    for field in missing:
                        update.add_column(field.name, field.field_type, doc=field.doc)
            except ValueError as again:
                # PyIceberg's own retry meets columns that another process has added.
                if "exists" not in str(again):
                    raise
                raise HeadMovedError(str(again)) from again
        return table

    def given_up(said: str) -> FrazilError:
        return FrazilError(
            f"the columns of a dead letter's state could not be added: {said}.",
            fix="let the other writer finish, then run this again",
        )

    return compare_and_swap(name, attempt, given_up)


def check_dead_letter_table(table: Table) -> None:
    """Check that dead letters can be written to the table and read from it.

    Raises:
        AlteredTableError: A column is missing or has another type; the message names each.
    """
    columns = {field.name: field for field in table.schema().fields}
    problems = [said for wanted in DEAD_LETTER_SCHEMA.fields for said in _problems(wanted, columns.get(wanted.name))]
    known = {field.name for field in DEAD_LETTER_SCHEMA.fields}
    problems += [
        f"column {name} is required, and dead letters have no such column"
        for name, field in columns.items()
        if field.required and name not in known
    ]
    if problems:
        name = ".".join(table.name())
        raise AlteredTableError(
            f"dead-letter table {name} was altered: {'; '.join(problems)}. Nothing was changed in it.",
            fix=f"alter {name} back, or name another table in errors.dead_letters.table",
        )


def _problems(wanted: NestedField, column: NestedField | None) -> list[str]:
    if column is None:
        return [] if wanted.name in _LATER else [f"column {wanted.name} is missing"]
    if not _holds(wanted.field_type, column.field_type):
        return [f"column {wanted.name} is {column.field_type}, where {wanted.field_type} is needed"]
    if column.required and not wanted.required:
        return [f"column {wanted.name} is required, and dead letters may lack it"]
    return []


def _holds(wanted: IcebergType, column: IcebergType) -> bool:
    match wanted, column:
        case ListType(), ListType():
            return _holds(wanted.element_type, column.element_type)
        case StructType(), StructType():
            theirs = {field.name: field for field in column.fields}
            return all(
                field.name in theirs and _holds(field.field_type, theirs[field.name].field_type)
                for field in wanted.fields
            ) and len(theirs) == len(wanted.fields)
        case _:
            return holds(wanted, column)
