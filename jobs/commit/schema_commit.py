"""Schema commit: what a catalog is handed so that a table gets another schema, on exactly what was read.

The head is asserted although it stays: a driver that was taken over finds its successor's claim there, and cannot alter
the table any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
)

from jobs.commit.operations import ChangeSchema
from jobs.commit.prepared_commit import PreparedCommit
from jobs.commit.property_limit import property_limit
from jobs.schema.decoded_columns import properties_in_parts, whole_property


def schema_commit(table: Table, change: ChangeSchema) -> PreparedCommit:
    """The commit that gives a table another schema, asserting head, schema, partition spec and identity as read.

    Args:
        table: The table as loaded.
        change: The new schema.
    """
    metadata = table.metadata
    schema = change.schema.model_copy(update={"schema_id": max(each.schema_id for each in metadata.schemas) + 1})
    head = metadata.current_snapshot()

    def is_in(now: TableMetadata) -> bool:
        return any(change.token in _whole(now.properties, name) for name in change.properties)

    return PreparedCommit(
        (
            AddSchemaUpdate.model_validate({"schema": schema}),
            SetCurrentSchemaUpdate.model_validate({"schema-id": -1}),
            SetPropertiesUpdate(updates=properties_in_parts(change.properties, property_limit(table.catalog))),
        ),
        (
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": head.snapshot_id if head else None}),
            AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
            AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
        ),
        is_in,
        clean_up=lambda: None,
        id_in=lambda now: now.current_schema_id,
    )


def _whole(properties: Mapping[str, str], name: str) -> str:
    with contextlib.suppress(ValueError):
        return whole_property(properties, name) or ""
    return ""
