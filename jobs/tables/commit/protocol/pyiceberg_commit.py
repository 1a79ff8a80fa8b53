"""Commit of an operation through PyIceberg, once. This module and `snapshot_producers` alone use its commit path.

PyIceberg's public append rebases onto whatever head it finds. So updates and requirements are taken from its snapshot
producer and handed to the catalog once. Relied upon, and pinned by `tests/unit/tables/commit/test_pyiceberg_commit.py`:
the snapshot stands in an `AddSnapshotUpdate`; `Catalog.commit_table(table, requirements, updates)`;
`Catalog._delete_old_metadata`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation as Operations
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from jobs.records.schema.decoded_columns import properties_in_parts
from jobs.tables.commit.history.branch import (
    line_property,
    ref_on,
    seen_on,
    to_branch,
)
from jobs.tables.commit.history.lineage import (
    LINE_PROPERTY,
    Line,
    extended_line,
    last_sequence,
    line_of,
    stands_on,
)
from jobs.tables.commit.protocol.prepared_commit import PreparedCommit, landed, order_updates, schema_commit
from jobs.tables.commit.protocol.refusals import missing_manifest, refusal
from jobs.tables.commit.protocol.snapshot_producers import (
    ExactMergeAppend,
    UnchangedTransaction,
    producer_of,
)
from jobs.tables.commit.schema.operations import (
    Append,
    ChangeSchema,
    Operation,
    PublishBranch,
    RemakeBranch,
    ReplaceFiles,
    RowDelta,
    property_limit,
)
from jobs.tables.commit.stamp.stamps import SUMMARY_KEY

_COLUMNS_KEY = "frazil.columns"


def commit_once(
    table: Table,
    operation: Operation,
    *,
    summary: Mapping[str, str],
    properties: Mapping[str, str],
    on_written: Callable[[], None] = lambda: None,
) -> int:
    """Commit an operation on exactly the head, schema and partition spec that `table` has in memory.

    Args:
        table: The table as loaded, or as seen from a branch; on success its metadata is replaced by the new version.
        operation: The change of the table's files or schema.
        summary: Entries of the snapshot's summary; unused by a change of the schema, which makes no snapshot.
        on_written: Called after the manifests are written and before the catalog is asked.

    Returns:
        Id of the new snapshot, or of the new schema if the schema changed.

    Raises:
        HeadMovedError: Head, schema, spec or table changed, or the table was dropped; nothing landed.
        CatalogFailedError: The catalog failed for another reason; nothing has landed so far.
        CommitDeniedError: The catalog refuses such a commit, or this user; nothing has landed so far.
        CommitUnknownError: The catalog answered neither yes nor no within a minute; nothing is removed.
    """
    metadata = table.metadata
    try:
        if isinstance(operation, ChangeSchema) and operation.schema == metadata.schema():
            # This makes a snapshot without files, so commits based on the former properties find another head.
            alone = Append(alter=order_updates(metadata, operation.order))
            commit = _file_commit(table, alone, {**summary, _COLUMNS_KEY: "decoded"}, operation.properties)
            commit = replace(commit, id_in=lambda now: now.current_schema_id)
        elif isinstance(operation, ChangeSchema):
            commit = schema_commit(table, operation)
        elif isinstance(operation, RemakeBranch):
            commit = _remake_commit(table, operation, properties)
        elif isinstance(operation, PublishBranch):
            commit = _publish_commit(table, operation, summary, properties)
        elif isinstance(operation, RowDelta):
            commit = _delta_commit(table, operation, summary, properties)
        else:
            commit = _file_commit(table, operation, summary, properties)
    except FileNotFoundError as missing:
        raise missing_manifest(table, missing) from missing
    updates, requirements = to_branch(table, commit.updates, commit.requirements)
    on_written()
    try:
        response = table.catalog.commit_table(table, requirements, updates)
    except Exception as problem:
        if landed(table, commit.is_in, problem):
            return commit.id_in(table.metadata)
        sequence = last_sequence(metadata)
        raise refusal(table, requirements, problem, commit.clean_up, after_sequence=sequence) from problem
    with contextlib.suppress(Exception):
        table.catalog._delete_old_metadata(table.io, metadata, response.metadata)
    table.metadata = response.metadata
    table.metadata_location = response.metadata_location
    return commit.id_in(table.metadata)


def _file_commit(
    table: Table, operation: Append | ReplaceFiles | RowDelta, summary: Mapping[str, str], properties: Mapping[str, str]
) -> PreparedCommit:
    producer = producer_of(operation, table, summary)
    beside, alter = (operation.beside, operation.alter) if isinstance(operation, Append) else ({}, ())
    try:
        updates, requirements = producer._commit()
    except Exception:
        producer._clean_all_uncommitted()
        raise
    metadata = table.metadata
    line = extended_line(metadata, producer.snapshot_id) if SUMMARY_KEY in summary else None
    others = (AssertRefSnapshotId.model_validate({"ref": each, "snapshot-id": head}) for each, head in beside.items())
    return PreparedCommit(
        (
            *(_not_before(_latest_ms(metadata), update) for update in updates),
            *alter,
            SetPropertiesUpdate(
                updates=properties_in_parts(properties, property_limit(table.catalog))
                | ({LINE_PROPERTY: line.text()} if line else {})
            ),
        ),
        _as_read(metadata, *requirements, *others),
        is_in=lambda now: now.snapshot_by_id(producer.snapshot_id) is not None,
        clean_up=producer._clean_all_uncommitted,
        id_in=lambda _: producer.snapshot_id,
    )


def _as_read(metadata: TableMetadata, *heads: TableRequirement) -> tuple[TableRequirement, ...]:
    """Requirements that table, schema, partition spec and heads are those that were read."""
    return (
        AssertTableUUID(uuid=metadata.table_uuid),
        *heads,
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
    )


def _remake_commit(table: Table, operation: RemakeBranch, properties: Mapping[str, str]) -> PreparedCommit:
    """Commit that rebases a branch: all snapshots at once, the first one on main's head.

    Args:
        table: The whole table, not seen from a branch.
    """
    metadata, branch = table.metadata, operation.branch
    producers: list[ExactMergeAppend] = []
    added: list[AddSnapshotUpdate] = []
    ref: SetSnapshotRefUpdate | None = None

    def clean_up() -> None:
        for each in producers:
            each._clean_all_uncommitted()

    try:
        at = head_alone(metadata)
        for each in operation.snapshots:
            seen = Table(table.name(), at, table.metadata_location, table.io, table.catalog)
            producer = ExactMergeAppend(
                Operations.APPEND, UnchangedTransaction(seen), table.io, snapshot_properties=dict(each.summary)
            )
            producers.append(producer)
            for file in each.files:
                producer.append_data_file(file)
            updates, _ = producer._commit()
            for update in (_not_before(_latest_ms(metadata), update) for update in updates):
                if isinstance(update, AddSnapshotUpdate):
                    added.append(update)
                elif isinstance(update, SetSnapshotRefUpdate):
                    ref = update
            at = _with_next(at, added[-1].snapshot)
    except Exception:
        clean_up()
        raise
    assert ref is not None
    last, on_branch = added[-1].snapshot, seen_on(metadata, branch)
    before = line_of(on_branch.properties)
    since = before.since if before and stands_on(on_branch, before.snapshot_id) else operation.since
    line = {line_property(branch): Line(since, last.sequence_number or 0, last.snapshot_id).text()}
    heads = (
        AssertRefSnapshotId.model_validate({"ref": each, "snapshot-id": metadata.refs[each].snapshot_id})
        for each in (MAIN_BRANCH, branch)
    )
    told = properties_in_parts(properties, property_limit(table.catalog)) | line
    return PreparedCommit(
        (*added, ref_on(metadata, branch, ref), SetPropertiesUpdate(updates=told)),
        _as_read(metadata, *heads),
        is_in=lambda now: now.snapshot_by_id(last.snapshot_id) is not None,
        clean_up=clean_up,
        id_in=lambda _: last.snapshot_id,
    )


def _publish_commit(
    table: Table, operation: PublishBranch, summary: Mapping[str, str], properties: Mapping[str, str]
) -> PreparedCommit:
    """Commit of an empty snapshot on a branch's head, which becomes main's head; it removes the branch as well.

    Args:
        table: The whole table, not seen from a branch.
    """
    metadata, branch = table.metadata, operation.branch
    commit = _file_commit(_main_at(table, branch), Append(), summary, properties)
    heads = {MAIN_BRANCH: operation.base, branch: operation.merged}
    asserted = (AssertRefSnapshotId.model_validate({"ref": each, "snapshot-id": head}) for each, head in heads.items())
    return replace(
        commit,
        updates=(*commit.updates, RemoveSnapshotRefUpdate.model_validate({"ref-name": branch})),
        requirements=_as_read(metadata, *asserted),
    )


def _delta_commit(
    table: Table, operation: RowDelta, summary: Mapping[str, str], properties: Mapping[str, str]
) -> PreparedCommit:
    """Commit of files to a branch's head; main does not change.

    Args:
        table: The whole table, not seen from a branch.
    """
    metadata, branch = table.metadata, operation.branch
    commit = _file_commit(_main_at(table, branch), operation, summary, properties)
    head = AssertRefSnapshotId.model_validate({"ref": branch, "snapshot-id": operation.head})
    updates = (
        ref_on(metadata, branch, each) if isinstance(each, SetSnapshotRefUpdate) else each for each in commit.updates
    )
    return replace(commit, updates=tuple(updates), requirements=_as_read(metadata, head))


def _main_at(table: Table, branch: str) -> Table:
    """The table with `main` at a branch's head."""
    metadata, head = table.metadata, table.metadata.refs[branch]
    moved = {"refs": {**metadata.refs, MAIN_BRANCH: head}, "current_snapshot_id": head.snapshot_id}
    seen = metadata.model_copy(update=moved)
    return Table(table.name(), seen, table.metadata_location, table.io, table.catalog)


def _with_next(metadata: TableMetadata, snapshot: Snapshot) -> TableMetadata:
    """Metadata of one snapshot after another one is added on top, which is then the only one."""
    head = SnapshotRef.model_validate({"snapshot-id": snapshot.snapshot_id, "type": SnapshotRefType.BRANCH})
    return metadata.model_copy(
        update={
            "snapshots": [snapshot],
            "refs": {MAIN_BRANCH: head},
            "current_snapshot_id": snapshot.snapshot_id,
            "last_sequence_number": snapshot.sequence_number,
        }
    )


def head_alone(metadata: TableMetadata) -> TableMetadata:
    """The metadata with the newest snapshot and no other, which is all that an append or overwrite looks at."""
    head = metadata.current_snapshot()
    return metadata.model_copy(
        update={
            "snapshots": [head] if head else [],
            "snapshot_log": metadata.snapshot_log[-1:] if head else [],
            "metadata_log": [],
        }
    )


def _latest_ms(metadata: TableMetadata) -> int:
    """The time of the table's last change, milliseconds since 1970."""
    return max([metadata.last_updated_ms, *(entry.timestamp_ms for entry in metadata.snapshot_log[-1:])])


def _not_before(latest_ms: int, update: TableUpdate) -> TableUpdate:
    """The update with its snapshot dated no earlier than the table's last change, whatever this host's clock shows.

    Iceberg in Java refuses a table whose log goes back by more than a minute. PyIceberg does not check.
    """
    if not isinstance(update, AddSnapshotUpdate) or update.snapshot.timestamp_ms > latest_ms:
        return update
    later = update.snapshot.model_copy(update={"timestamp_ms": latest_ms + 1})
    return update.model_copy(update={"snapshot": later})
