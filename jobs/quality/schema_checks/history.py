"""History of a table's schema: the changes of each version, their origin, and their first rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from jobs.records.schema.iceberg_schema import schema_text
from jobs.tables.commit.history.stamp_history import stamped_snapshots
from jobs.tables.commit.schema.schema_history import ChangeRecord, schema_history
from jobs.tables.commit.stamp.offsets import Positions
from jobs.tables.commit.stamp.stamps import Stamp


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of a table's schema.

    Attributes:
        schema_id: Iceberg's schema id.
        changes: Changes since the version before, as sentences; for the first version its number of columns.
        snapshot_id: First existing snapshot of the stream with it; None without one.
        committed_ms: Commit time of that snapshot, milliseconds since 1970.
        start: First offset of that snapshot's records, per partition.
        record: frazil's record of this change; None if others made the version, or if the table's property no longer
            has it.
    """

    schema_id: int
    changes: tuple[str, ...]
    snapshot_id: int | None = None
    committed_ms: int | None = None
    start: Positions | None = None
    record: ChangeRecord | None = None


def schema_versions(metadata: TableMetadata, stream: str) -> list[SchemaVersion]:
    """Existing versions of a table's schema, oldest first.

    Args:
        stream: Stream whose snapshots show the first offsets.
    """
    first: dict[int, tuple[Snapshot, Stamp]] = {}
    for snapshot, stamp in stamped_snapshots(metadata, stream):
        if stamp.kind == "batch" and snapshot.schema_id is not None:
            first.setdefault(snapshot.schema_id, (snapshot, stamp))
    noted = {record.schema: record for record in schema_history(metadata.properties)}
    versions: list[SchemaVersion] = []
    before: Schema | None = None
    for schema in sorted(metadata.schemas, key=lambda each: each.schema_id):
        changes = tuple(schema_steps(before, schema)) if before else (f"{len(schema.fields)} columns",)
        before = schema
        record = noted.get(schema.schema_id)
        found = first.get(schema.schema_id)
        if found is None:
            versions.append(SchemaVersion(schema.schema_id, changes, record=record))
        else:
            snapshot, stamp = found
            came = (snapshot.snapshot_id, snapshot.timestamp_ms, stamp.start)
            versions.append(SchemaVersion(schema.schema_id, changes, *came, record))
    return versions


def schema_steps(before: Schema, after: Schema) -> Iterator[str]:
    """Differences between two versions of one table's schema, by column ids, as sentences."""
    old, new = index_by_id(before), index_by_id(after)
    yield from (
        f"added {name} {schema_text(new[field_id].field_type)}"
        for field_id, name in _outermost(after, new.keys() - old)
    )
    for field_id in sorted(old.keys() & new.keys()):
        was, field, name = old[field_id], new[field_id], after.find_column_name(field_id)
        if was.name != field.name:
            yield f"renamed {before.find_column_name(field_id)} to {name}"
        if was.field_type != field.field_type and field.field_type.is_primitive:
            yield f"{name} from {schema_text(was.field_type)} to {schema_text(field.field_type)}"
        if was.required != field.required:
            yield f"{name} {'is required' if field.required else 'may be null'}"
    yield from (f"dropped {name}" for _, name in _outermost(before, old.keys() - new))


def _outermost(schema: Schema, field_ids: Collection[int]) -> list[tuple[int, str]]:
    """Columns with their names, without those nested in another of them."""
    names = {field_id: schema.find_column_name(field_id) or "" for field_id in sorted(field_ids)}
    within = tuple(f"{name}." for name in names.values())
    return [(field_id, name) for field_id, name in names.items() if not name.startswith(within)]
