"""Columns of a row's record that expressions may read beside those of the row: what Kafka keeps of it."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg import types as ice

from jobs.schema.kafka_columns import TYPES

FRAME_PARTS: Mapping[str, str] = {f"_{part}": part for part in TYPES}
"""The part of a record that each such column is: `_topic`, `_partition`, `_offset`, `_timestamp`, `_key`, …"""
FRAME_COLUMNS: Mapping[str, ice.NestedField] = {
    name: ice.NestedField(
        2_000_000 + number, name, TYPES[part], required=part in ("topic", "partition", "offset", "timestamp")
    )
    for number, (name, part) in enumerate(FRAME_PARTS.items())
}
"""Such a column with its type, as a column of rows."""
