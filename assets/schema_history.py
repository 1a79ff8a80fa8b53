"""Schema history of a table as metadata of its page: each version's changes, their author, and their first rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import dagster as dg
from pyiceberg.table import Table

from assets.metadata import cell
from jobs.quality.schema_checks.history import SchemaVersion, schema_versions
from jobs.tables.commit.schema.schema_history import ChangeRecord
from jobs.tables.commit.stamp.offsets import Positions

_SHOWN = 50
_CHANGES = 10
_PARTITIONS = 8


def history_metadata(table: Table, stream: str) -> dict[str, dg.MarkdownMetadataValue]:
    """The newest 50 versions of a table's schema for its page; empty if there was only one."""
    if len(table.metadata.schemas) < 2:
        return {}
    versions = schema_versions(table.metadata, stream)
    shown = versions[-_SHOWN:]
    # Dagster's page has room for two columns, and cuts off wider tables.
    lines = ["| schema | what it changed, and its first rows |", "|---:|---|"]
    lines += [f"| {version.schema_id} | {_said(version)} |" for version in reversed(shown)]
    if len(versions) > len(shown):
        lines.append(f"| … | {len(versions) - len(shown):,} earlier versions |")
    return {"schema_history": dg.MetadataValue.md("\n".join(lines))}


def _said(version: SchemaVersion) -> str:
    first = version.schema_id == 0 and version.record is None
    made = "with the table" if first else _made(version.record)
    changes = cell(_cut(version.changes, _CHANGES)).replace("*", "\\*")
    return f"**{changes}** ({cell(made)}); {cell(_first_rows(version))}"


def _made(record: ChangeRecord | None) -> str:
    """Time and author of a table's change, and the record that needed it."""
    if record is None:
        return "not noted by frazil"
    who = f"by {record.by}" if record.by else f"epoch {record.epoch}, batch {record.batch}"
    needed = f", for {record.example[0]}[{record.example[1]}]@{record.example[2]}" if record.example else ""
    return f"{_time(record.at_ms)}, {who}{needed}"


def _first_rows(version: SchemaVersion) -> str:
    """The first snapshot and offsets written with the version."""
    if version.snapshot_id is None:
        before = version.record.snapshot if version.record else None
        return f"made after snapshot {before}, of its own none is kept" if before is not None else "no snapshot is kept"
    when = f" of {_time(version.committed_ms or 0)}" if version.record is None else ""
    said = f"first in snapshot {version.snapshot_id}{when}"
    return f"{said}, from {_offsets(version.start)}" if version.start else said


def _offsets(start: Positions) -> str:
    """The first offset of each partition, such as `topic[0]@17`; each topic is named once."""
    said: list[str] = []
    topic = None
    for at, offset in sorted(start.items()):
        said.append(f"{at.topic if at.topic != topic else ''}[{at.partition}]@{offset}")
        topic = at.topic
    return _cut(said, _PARTITIONS, " ")


def _cut(texts: Sequence[str], most: int, between: str = "; ") -> str:
    more = f"{between}and {len(texts) - most:,} more" if len(texts) > most else ""
    return between.join(texts[:most]) + more


def _time(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
