"""Metadata of tables made of the ages of their snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamps import SUMMARY_KEY, Stamp

_P0 = TopicPartition("t", 0)


NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NAME = "lake.t"


def table(
    ages: list[timedelta],
    *,
    properties: Mapping[str, str] | None = None,
    stamps: Mapping[int, Stamp] | None = None,
    refs: Mapping[str, Any] | None = None,
    head: int | None = None,
    parents: Mapping[int, int] | None = None,
    summaries: Mapping[int, Mapping[str, str]] | None = None,
) -> TableMetadata:
    """A table with one snapshot for each age, the oldest first; snapshot n has the sequence number n.

    Each is the child of the one before, but for `parents`.
    """
    snapshots = [
        {
            "snapshot-id": number,
            "parent-snapshot-id": (parents or {}).get(number, number - 1 if number > 1 else None),
            "sequence-number": number,
            "timestamp-ms": int((NOW - age).timestamp() * 1000),
            "manifest-list": f"file:///t/{number}.avro",
            "schema-id": 0,
            "summary": {"operation": "append", **(summaries or {}).get(number, {})}
            | ({SUMMARY_KEY: stamps[number].to_json()} if stamps and number in stamps else {}),
        }
        for number, age in enumerate(ages, 1)
    ]
    current = head or len(ages)
    return TableMetadataUtil.parse_obj(
        {
            "format-version": 2,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": "file:///t",
            "last-sequence-number": len(ages),
            "last-updated-ms": int(NOW.timestamp() * 1000),
            "last-column-id": 1,
            "schemas": [
                {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "type": "int", "required": False}]}
            ],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "default-spec-id": 0,
            "last-partition-id": 999,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": dict(properties or {}),
            "snapshots": snapshots,
            "current-snapshot-id": current,
            "refs": {"main": {"snapshot-id": current, "type": "branch"}} | dict(refs or {}),
        }
    )


def hourly(count: int) -> list[timedelta]:
    return [HOUR * age for age in reversed(range(count))]


def stamp(at: int, sequence: int, stream: str = "s") -> Stamp:
    return Stamp(stream, "batch", 0, 1, "c", start={_P0: 0}, position={_P0: at}, sequence=sequence)
