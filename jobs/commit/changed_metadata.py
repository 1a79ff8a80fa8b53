"""Changed metadata: a table's as a change of its schema would leave them; nothing is committed."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata

from jobs.commit.operations import ChangeSchema


def with_operation(metadata: TableMetadata, operation: ChangeSchema) -> TableMetadata:
    """Metadata of a table with a change of its schema made."""
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
