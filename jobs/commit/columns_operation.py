"""Columns operation: the one commit that makes of a table what records need of its columns, or of the decoded ones."""

from __future__ import annotations

from typing import Any

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.metadata import TableMetadata

from jobs.commit.opening_columns import stamped_digest
from jobs.commit.operations import ChangeSchema
from jobs.commit.schema_operation import schema_operation
from jobs.schema.decoded_columns import decoded_properties
from jobs.schema.schema_change import SchemaChange
from jobs.spec.models import StreamSpec
from jobs.spec.transform.shaping import changed_columns, evolving_schema


def columns_operation(
    spec: StreamSpec,
    metadata: TableMetadata,
    changes: tuple[SchemaChange, ...],
    decided: str | None = None,
    **whose: Any,
) -> ChangeSchema:
    """The change of a table's schema, with what its properties say from then on.

    Args:
        spec: The stream.
        metadata: The table's, as it was judged.
        changes: Judged before, of the columns that `evolving_schema` gives.
        decided: The digest of the decoded columns that the coordinator's newest stamp names of a table that has columns
            of its own: they stay with the table, as those of its own newest stamp do.
        whose: Epoch, batch and example of a driver, or by whom, for the table's history.
    """
    before, made = metadata.schema(), changed_columns(spec, metadata, changes)
    grown = (made.decoded.rows, evolving_schema(spec, metadata)) if made.decoded else (made.schema, before)
    properties: dict[str, str] = {}
    if made.decoded is not None:
        stamped = (stamped_digest(metadata.properties, spec.stream), decided)
        known, under_way = (metadata.properties, spec.stream, made.decoded), "by" in whose
        properties = decoded_properties(*known, *stamped, under_way=under_way)
    return schema_operation(
        spec.stream,
        metadata,
        made.schema,
        made.changes,
        made.told,
        properties=properties,
        same_schema=not made.changes,
        added=_size(grown[0]) - _size(grown[1]),
        **whose,
    )


def _size(schema: Schema) -> int:
    """How many columns there are, nested ones counted."""
    return len(index_by_id(schema))
