"""Rebuilding of an empty table: checks that frazil created it for one stream, and that nobody has changed it since.

Such a table follows the stream's declaration, so a first mistake in a schema costs nothing, as a refused run leaves an
empty table behind. `jobs.tables.commit.protocol.table_remake` alters it in place.
"""

from __future__ import annotations

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.records.schema.identifier_fields import identifier_names
from jobs.tables.write.table_sort_order import sort_order_of

_AS_MADE = "frazil.as-made"
_LATE_ROWS = "frazil.late-rows"
_ADOPTED = "frazil.adopted"
_OWN_PREFIX = "frazil."
_STAMP_PREFIX = "frazil.stamp."


def as_made_property(stream: str, schema_id: int = 0, spec_id: int = 0) -> dict[str, str]:
    """Property of a new table: the stream it was created for, and its first schema and partition spec."""
    return {_AS_MADE: f"{stream} {schema_id}/{spec_id}"}


def made_for(metadata: TableMetadata, stream: str) -> bool:
    """Whether the table was created for the stream, or given to it, whatever happened to it since."""
    return maker_of(metadata) == stream


def maker_of(metadata: TableMetadata) -> str | None:
    """Stream that the table was created for or given to; None if frazil did not create it."""
    made = metadata.properties.get(_AS_MADE)
    return metadata.properties.get(_ADOPTED) if made is None else made.rpartition(" ")[0]


def is_made_by_frazil(metadata: TableMetadata) -> bool:
    """Whether frazil created the table, for any stream."""
    return _AS_MADE in metadata.properties


def adopted_property(stream: str) -> dict[str, str]:
    """Property of a table that others created and that an operator has given to a stream."""
    return {_ADOPTED: stream}


def is_unknown_to_frazil(metadata: TableMetadata) -> bool:
    """Whether frazil has neither created, written nor altered the table."""
    return not any(key.startswith(_OWN_PREFIX) for key in metadata.properties)


def made_schema_id(metadata: TableMetadata, stream: str) -> int | None:
    """Id of the schema with which the table was created for the stream; None if it was not."""
    schema_id = metadata.properties.get(_AS_MADE, "").rpartition(" ")[2].partition("/")[0]
    return int(schema_id) if made_for(metadata, stream) and schema_id.isdecimal() else None


def late_rows_property(stream: str, timely: str) -> dict[str, str]:
    """Property of a table that was created for late rows: the stream, and the table with the timely rows."""
    return {_LATE_ROWS: f"{stream} {timely}"}


def made_for_late_rows(metadata: TableMetadata, stream: str, timely: str) -> bool:
    """Whether the table was created for the late rows of one of the stream's tables."""
    return late_rows_property(stream, timely).items() <= metadata.properties.items()


def is_as_made(metadata: TableMetadata, stream: str) -> bool:
    """Whether the table was created for the stream, nobody else claimed or changed it, and no snapshot has files."""
    told = as_made_property(stream, metadata.current_schema_id, metadata.default_spec_id)
    if not told.items() <= metadata.properties.items():
        return False
    if sort_order_of(metadata).fields or set(metadata.refs) - {MAIN_BRANCH}:
        return False
    stamped = (key.removeprefix(_STAMP_PREFIX) for key in metadata.properties if key.startswith(_STAMP_PREFIX))
    if any(each.partition("~")[0] != stream for each in stamped):
        return False
    return all(
        snapshot.summary is not None
        and snapshot.summary["total-data-files"] == "0"
        and snapshot.summary["total-delete-files"] == "0"
        for snapshot in metadata.snapshots
    )


def differs(metadata: TableMetadata, schema: Schema, spec: PartitionSpec) -> bool:
    """Whether a table has other columns or partitions than a new one would have; ids do not count."""
    return _told(metadata.schema(), metadata.spec()) != _told(schema, spec)


def _told(schema: Schema, spec: PartitionSpec) -> tuple[object, ...]:
    columns = [(field.name, field.required, field.field_type) for field in assign_fresh_schema_ids(schema).fields]
    fields = [(field.name, str(field.transform), schema.find_column_name(field.source_id)) for field in spec.fields]
    return columns, fields, identifier_names(schema)
