"""Remaking of an empty table that frazil made, and that nobody has altered since: it follows what its stream declares.

So a first mistake in a schema costs nothing: a run that was refused leaves a table without rows behind. It is altered
in place, in one commit, and keeps its identity, its stamps and with them the stream's position.
"""

from __future__ import annotations

import itertools
import logging

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionSpecsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from jobs.schema.identifier_fields import identifier_names
from jobs.write.table_sort_order import sort_order_of
from jobs.write.uuid_columns import uuid_properties

log = logging.getLogger(__name__)

_AS_MADE = "frazil.as-made"


def as_made_property(stream: str, schema_id: int = 0, spec_id: int = 0) -> dict[str, str]:
    """The property for remaking a table: for which stream it was made, with which schema and partition spec."""
    return {_AS_MADE: f"{stream} {schema_id}/{spec_id}"}


def made_for(metadata: TableMetadata, stream: str) -> bool:
    """Whether the table was made for the stream, whatever has become of it since."""
    return metadata.properties.get(_AS_MADE, "").rpartition(" ")[0] == stream


def is_as_made(metadata: TableMetadata, stream: str) -> bool:
    """Whether the table was made for the stream, nobody altered it, and no snapshot of it has a file."""
    told = as_made_property(stream, metadata.current_schema_id, metadata.default_spec_id)
    if not told.items() <= metadata.properties.items():
        return False
    if sort_order_of(metadata).fields or set(metadata.refs) - {MAIN_BRANCH}:
        return False
    return all(
        snapshot.summary is not None
        and snapshot.summary["total-data-files"] == "0"
        and snapshot.summary["total-delete-files"] == "0"
        for snapshot in metadata.snapshots
    )


def differs(metadata: TableMetadata, schema: Schema, spec: PartitionSpec) -> bool:
    """Whether a table has other columns or partitions than a new one would get; their ids do not count.

    Args:
        schema: Of a new table.
        spec: Of a new table, by the ids of `schema`.
    """
    return _told(metadata.schema(), metadata.spec()) != _told(schema, spec)


def _told(schema: Schema, spec: PartitionSpec) -> tuple[object, ...]:
    columns = [(field.name, field.required, field.field_type) for field in assign_fresh_schema_ids(schema).fields]
    fields = [(field.name, str(field.transform), schema.find_column_name(field.source_id)) for field in spec.fields]
    return columns, fields, identifier_names(schema)


def remade_table(table: Table, stream: str, schema: Schema, spec: PartitionSpec) -> Table:
    """The table with these columns and partitions.

    Args:
        table: One that is as made for the stream.
        schema: Of a new table.
        spec: Of a new table, by the ids of `schema`.

    Returns:
        The table as it is now: if somebody committed meanwhile, as he left it.
    """
    metadata = table.metadata
    ids = itertools.count(metadata.last_column_id + 1)
    # Other ids than any column had: the types of one id may differ only by Iceberg's promotions.
    fresh = assign_fresh_schema_ids(schema, lambda: next(ids))
    fresh = fresh.model_copy(update={"schema_id": max(each.schema_id for each in metadata.schemas) + 1})
    updates: tuple[TableUpdate, ...] = (
        AddSchemaUpdate.model_validate({"schema": fresh}),
        SetCurrentSchemaUpdate.model_validate({"schema-id": -1}),
    )
    spec_id = metadata.default_spec_id
    if spec.fields or metadata.spec().fields:
        spec_id = max(each.spec_id for each in metadata.partition_specs) + 1
        numbers = itertools.count((metadata.last_partition_id or 999) + 1)
        fields = [
            PartitionField(
                fresh.find_field(schema.find_column_name(field.source_id) or "").field_id,
                next(numbers),
                field.transform,
                field.name,
            )
            for field in spec.fields
        ]
        # The former ones are of columns that are gone, which Java's readers do not take. No file is of them.
        updates += (
            AddPartitionSpecUpdate(spec=PartitionSpec(*fields, spec_id=spec_id)),
            SetDefaultSpecUpdate.model_validate({"spec-id": -1}),
            RemovePartitionSpecsUpdate.model_validate(
                {"spec-ids": [each.spec_id for each in metadata.partition_specs]}
            ),
        )
    head = metadata.current_snapshot()
    requirements: tuple[TableRequirement, ...] = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": head.snapshot_id if head else None}),
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
    )
    note = SetPropertiesUpdate(updates=uuid_properties(fresh) | as_made_property(stream, fresh.schema_id, spec_id))
    name = ".".join(table.name())
    try:
        table.catalog.commit_table(table, requirements, (*updates, note))
        log.warning("table %s is empty, and has been made as the stream declares now", name)
    except CommitFailedException as refused:
        log.info("table %s is not made anew, as somebody committed to it: %s", name, refused)
    return table.catalog.load_table(table.name())
