"""Schema history of a table as metadata of its page: what each version changed, with snapshot and offsets."""

from __future__ import annotations

from datetime import UTC, datetime

import dagster as dg
from pyiceberg.table import Table

from assets.metadata import cell
from jobs.commit.offsets import by_topic
from jobs.contract.history import SchemaVersion, schema_versions

_SHOWN = 50


def history_metadata(table: Table, stream: str) -> dict[str, dg.MarkdownMetadataValue]:
    """The history of a table's schema for its page; nothing while it has had one only."""
    if len(table.metadata.schemas) < 2:
        return {}
    versions = schema_versions(table.metadata, stream)
    lines = ["| schema | changes | first snapshot | committed | from offsets |", "|---:|---|---|---|---|"]
    lines += [f"| {' | '.join(map(cell, _cells(version)))} |" for version in reversed(versions[-_SHOWN:])]
    return {"schema_history": dg.MetadataValue.md("\n".join(lines))}


def _cells(version: SchemaVersion) -> tuple[str, ...]:
    at = version.committed_ms
    when = f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" if at is not None else "–"
    starts = by_topic(version.start) if version.start else {}
    offsets = "; ".join(f"{topic} {partitions}" for topic, partitions in starts.items())
    shown = (str(version.schema_id), "; ".join(version.changes), str(version.snapshot_id or "–"), when, offsets or "–")
    return tuple(text.replace("'", "") for text in shown)
