"""Commit operation that gives a table another schema, with its history and its name mapping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import (
    MappedField,
    NameMapping,
    create_mapping_from_schema,
    parse_mapping_from_json,
    update_mapping,
)
from pyiceberg.types import NestedField

from jobs.records.schema.difference import RenamedColumn, renamed_schema
from jobs.records.schema.name_matching import NAME_MAPPING
from jobs.records.schema.schema_change import SchemaChange, columns_of
from jobs.tables.commit.schema.operations import ChangeSchema
from jobs.tables.commit.schema.schema_history import new_record, with_record
from jobs.tables.write.table_creation import uuid_properties

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
    """Operation for a table as it was read.

    Args:
        stream: Stream whose records, file or operator need the change.
        sentences: The changes in words, for the table's history.
        properties: Further table properties, set in the same commit.
        same_schema: Whether the table keeps its schema, and only properties are set.
        added: Number of added columns, nested ones counted; None: count them in the schemas.
        whose: Epoch, batch and example of a driver, or the author, for the table's history.
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


_TOP = -1


def changed_mapping(
    properties: Mapping[str, str],
    before: Schema,
    after: Schema,
    changes: Sequence[SchemaChange],
    renames: Sequence[RenamedColumn] = (),
) -> dict[str, str]:
    """The name mapping property after a change of the schema; empty if it stays.

    A table without a mapping gets one when a column is renamed, so that records with its former name still land.
    """
    text, columns = properties.get(NAME_MAPPING), dict(columns_of(after))
    added: dict[int, list[NestedField]] = {}
    for each in changes:
        if each.change == "add":
            parent = columns[each.path[:-1]].field_id if each.path[1:] else _TOP
            added.setdefault(parent, []).append(columns[each.path])
    if not renames and (text is None or not added):
        return {}
    mapping = create_mapping_from_schema(before) if text is None else parse_mapping_from_json(text)
    for rename in renames:
        known = dict(columns_of(before))
        chain = [known[rename.old[: depth + 1]] for depth in range(len(rename.old))]
        mapping = NameMapping(_with_entry(mapping.root, chain))
        before = renamed_schema(before, [rename])
        column = before.find_field(chain[-1].field_id)
        mapping = update_mapping(mapping, {column.field_id: column}, {})
    return {NAME_MAPPING: update_mapping(mapping, {}, added).model_dump_json()}


def _with_entry(fields: Sequence[MappedField], chain: Sequence[NestedField]) -> list[MappedField]:
    """The entries with one for each column of a chain from the top, which lists the column's name."""
    column, *rest = chain
    entry = next((each for each in fields if each.field_id == column.field_id), None)
    names = [] if entry is None else entry.names
    inner = [] if entry is None else entry.fields
    # PyIceberg's model has an alias; type checkers see its keyword only.
    made = MappedField.model_validate(
        {
            "field-id": column.field_id,
            "names": names if column.name in names else [*names, column.name],
            "fields": _with_entry(inner, rest) if rest else inner,
        }
    )
    if entry is None:
        return [*fields, made]
    return [made if each is entry else each for each in fields]


def with_operation(metadata: TableMetadata, operation: ChangeSchema) -> TableMetadata:
    """Metadata of a table after a change of its schema."""
    properties = {**metadata.properties, **operation.properties}
    if operation.schema == metadata.schema():
        return metadata.model_copy(update={"properties": properties})
    number = max(each.schema_id for each in metadata.schemas) + 1
    after = operation.schema.model_copy(update={"schema_id": number})
    return metadata.model_copy(
        update={
            "schemas": [*metadata.schemas, after],
            "current_schema_id": number,
            "last_column_id": max(after.highest_field_id, metadata.last_column_id),
            "properties": properties,
        }
    )
