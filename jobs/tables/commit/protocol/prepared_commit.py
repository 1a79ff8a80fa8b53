"""Prepared commit: the updates and requirements for the catalog, and the check whether they landed."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSortOrderUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from jobs.records.schema.decoded_columns import properties_in_parts, whole_property
from jobs.tables.commit.protocol.refusals import is_denied, is_forbidden
from jobs.tables.commit.schema.operations import ChangeSchema, property_limit
from jobs.tables.commit.stamp.errors import CommitUnknownError

log = logging.getLogger(__name__)

UNKNOWN_DEADLINE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A commit before it is sent to the catalog.

    Attributes:
        is_in: Whether given metadata of the table contains the commit.
        id_in: Id of the committed snapshot or schema in metadata that contains it.
    """

    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    is_in: Callable[[TableMetadata], bool]
    clean_up: Callable[[], None]
    id_in: Callable[[TableMetadata], int]


def landed(table: Table, is_in: Callable[[TableMetadata], bool], problem: Exception) -> bool:
    """Ask the catalog whether a commit is in the table, whatever the answer was; updates the table's metadata.

    A plain refusal is checked, too: it may answer a repeated request whose first copy has landed.

    Args:
        is_in: Whether given metadata of the table contains the commit.
        problem: The error that answered the commit.

    Raises:
        CommitUnknownError: The catalog could not be asked for a minute.
    """
    deadline = time.monotonic() + UNKNOWN_DEADLINE_SECONDS
    pause = 0.05
    while True:
        try:
            fresh = table.catalog.load_table(table.name())
            break
        except NoSuchTableError:
            return False
        except Exception as again:
            if is_forbidden(again) and is_denied(problem):
                # This user may not load the table. The manifests stay, so that does no harm.
                return False
            if time.monotonic() > deadline:
                raise CommitUnknownError(
                    f"table {'.'.join(table.name())}: the catalog did not say whether a commit landed ({problem}), "
                    f"and cannot be asked ({again}). Its files are kept; the next start looks for them.",
                    fix="frazil status, once the catalog answers",
                ) from problem
            time.sleep(pause)
            pause = min(pause * 2, 2.0)
    there = is_in(fresh.metadata)
    if there:
        log.warning("commit on %s was answered with %r but had landed", ".".join(table.name()), problem)
    elif not isinstance(problem, CommitFailedException):
        log.warning("commit on %s failed with %r and had not landed", ".".join(table.name()), problem)
    table.metadata = fresh.metadata
    table.metadata_location = fresh.metadata_location
    return there


def schema_commit(table: Table, change: ChangeSchema) -> PreparedCommit:
    """The commit that gives a table another schema, asserting head, schema, partition spec and identity as read."""
    metadata = table.metadata
    schema = change.schema.model_copy(update={"schema_id": max(each.schema_id for each in metadata.schemas) + 1})
    head = metadata.current_snapshot()

    def is_in(now: TableMetadata) -> bool:
        return any(change.token in _whole(now.properties, name) for name in change.properties)

    return PreparedCommit(
        (
            AddSchemaUpdate.model_validate({"schema": schema}),
            SetCurrentSchemaUpdate.model_validate({"schema-id": -1}),
            *order_updates(metadata, change.order),
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


def order_updates(metadata: TableMetadata, order: SortOrder | None) -> tuple[TableUpdate, ...]:
    """Updates that give a table another sort order; none without one.

    Args:
        metadata: The table's metadata, as it was read.
        order: The sort order; its source ids are those of the schema of the same commit.
    """
    if order is None:
        return ()
    known = next((each.order_id for each in metadata.sort_orders if each.fields == order.fields), None)
    if known is not None:
        return (SetDefaultSortOrderUpdate.model_validate({"sort-order-id": known}),)
    number = max((each.order_id for each in metadata.sort_orders), default=0) + 1
    return (
        AddSortOrderUpdate.model_validate({"sort-order": SortOrder(*order.fields, order_id=number)}),
        SetDefaultSortOrderUpdate.model_validate({"sort-order-id": -1}),
    )


def _whole(properties: Mapping[str, str], name: str) -> str:
    with contextlib.suppress(ValueError):
        return whole_property(properties, name) or ""
    return ""
