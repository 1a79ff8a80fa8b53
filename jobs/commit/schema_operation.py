"""Schema operation: the commit operation that gives a table another schema, with its history and its name mapping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.metadata import TableMetadata

from jobs.commit.name_mapping import changed_mapping
from jobs.commit.operations import ChangeSchema
from jobs.commit.schema_history import new_record, with_record
from jobs.schema.difference import RenamedColumn
from jobs.schema.schema_change import SchemaChange
from jobs.write.uuid_columns import uuid_properties

_NONE: Mapping[str, str] = MappingProxyType({})


def schema_operation(
    stream: str,
    metadata: TableMetadata,
    after: Schema,
    changes: Sequence[SchemaChange],
    sentences: Sequence[str],
    *,
    renames: Sequence[RenamedColumn] = (),
    properties: Mapping[str, str] = _NONE,
    same_schema: bool = False,
    added: int | None = None,
    **whose: Any,
) -> ChangeSchema:
    """The operation for a table as it was read.

    Args:
        stream: Whose records, file or operator need it.
        metadata: The table's.
        after: The schema with renames and changes made.
        changes: What is changed, after the renames.
        sentences: The changes in words, for the table's history.
        renames: Columns that are called otherwise.
        properties: More properties of the table, set in the same commit.
        same_schema: Whether the table keeps its schema, and properties alone are set.
        added: How many columns come, nested ones counted; None: as the schemas say.
        whose: Epoch, batch and example of a driver, or by whom, for the table's history.
    """
    before, head = metadata.schema(), metadata.current_snapshot()
    record = new_record(
        stream,
        sentences,
        schema_id=metadata.current_schema_id if same_schema else max(each.schema_id for each in metadata.schemas) + 1,
        snapshot_id=head.snapshot_id if head else None,
        added=len(index_by_id(after)) - len(index_by_id(before)) if added is None else added,
        **whose,
    )
    mapping = changed_mapping(metadata.properties, before, after, changes, renames)
    kept = with_record(metadata.properties, record) | uuid_properties(after, metadata.properties)
    return ChangeSchema(after, kept | mapping | dict(properties), record.id)
