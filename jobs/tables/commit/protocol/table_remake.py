"""Rebuild of an empty table in one commit: it keeps its identity, its stamps and the stream's position.

Another stream may be about to commit its first rows to a branch, which leaves main's head, schema and partitions as
they were. Those rows would have columns that no longer exist. So the commit adds a snapshot without files. Its sequence
number is the next after those that were read, and catalogs refuse it once a commit on any branch has taken it.
"""

from __future__ import annotations

import itertools
import logging

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    RemovePartitionSpecsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    TableUpdate,
)

from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.errors import HeadMovedError
from jobs.tables.write.table_creation import refuse_names, uuid_properties
from jobs.tables.write.table_remaking import as_made_property, is_as_made

log = logging.getLogger(__name__)


def remade_table(table: Table, stream: str, schema: Schema, spec: PartitionSpec) -> Table:
    """Give an empty table these columns and partitions.

    Args:
        table: An empty table, as it was created for the stream.

    Returns:
        The current table; unchanged if somebody else committed meanwhile.
    """
    name = ".".join(table.name())
    refuse_names(name, schema, spec)
    try:
        if table.metadata.current_snapshot() is None:
            # Catalogs compare the number of a snapshot only if it has a parent.
            made = as_made_property(stream, table.metadata.current_schema_id, table.metadata.default_spec_id)
            commit_once(table, Append(), summary=made, properties={})
        if is_as_made(table.metadata, stream):
            updates, made, uuids = _changes(table.metadata, stream, schema, spec)
            commit_once(table, Append(alter=updates), summary=made, properties=made | uuids)
            log.warning("table %s is empty, and has been made as the stream declares now", name)
    except HeadMovedError as refused:
        log.info("table %s is not rebuilt, because somebody committed to it: %s", name, refused)
    return table.catalog.load_table(table.name())


def _changes(
    metadata: TableMetadata, stream: str, schema: Schema, spec: PartitionSpec
) -> tuple[tuple[TableUpdate, ...], dict[str, str], dict[str, str]]:
    """Updates of the table's columns and partitions, and of the properties about them."""
    ids = itertools.count(metadata.last_column_id + 1)
    # New ids, as the types of one id may differ only by Iceberg's promotions.
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
        # The former specs are of dropped columns, which Java readers refuse. No file uses them.
        updates += (
            AddPartitionSpecUpdate(spec=PartitionSpec(*fields, spec_id=spec_id)),
            SetDefaultSpecUpdate.model_validate({"spec-id": -1}),
            RemovePartitionSpecsUpdate.model_validate(
                {"spec-ids": [each.spec_id for each in metadata.partition_specs]}
            ),
        )
    return updates, as_made_property(stream, fresh.schema_id, spec_id), uuid_properties(fresh)
