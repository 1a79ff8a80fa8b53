"""Needs of a task: changes of tables, and new tables, that its records wait for, each with the first such record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from jobs.base.system.typed_json import decode_json
from jobs.records.schema.iceberg_schema import column_text, column_type, schema_text
from jobs.records.schema.needs import (
    Change,
    Coordinates,
    Need,
    Path,
    RecordNeed,
)
from jobs.streaming.pipeline.block import Block
from jobs.tables.commit.stamp.offsets import TopicPartition

MOST = 2_000
"""Most different needs that a task reports; a batch with more needs several rounds."""


class _Encoded(msgspec.Struct):
    """A need as JSON.

    Attributes:
        column: A column of the type, as Iceberg's JSON text; empty without a type.
    """

    change: Change
    path: tuple[str, ...]
    at: Coordinates
    column: str = ""
    former: tuple[str, ...] | None = None


class TaskNeeds:
    """Different needs of a split's records."""

    def __init__(self) -> None:
        self._by: dict[tuple[Change, Path, str], RecordNeed] = {}

    def add(self, source: TopicPartition, block: Block, needs: Iterable[Need]) -> None:
        """Note the needs of a block's records that are to land."""
        offsets = block.records.column("offset")
        for need in needs:
            key = (need.change, need.path, schema_text(need.type) if need.type else "")
            at = Coordinates(source.topic, source.partition, offsets[need.row].as_py())
            known = self._by.get(key)
            if known is None and len(self._by) >= MOST:
                continue
            if known is None or at < known.at:
                self._by[key] = RecordNeed(need.change, need.path, need.type, at, need.former)

    def encoded(self) -> Iterator[str]:
        """Each need as JSON."""
        for need in self._by.values():
            column = column_text(need.type) if need.type else ""
            yield msgspec.json.encode(_Encoded(need.change, need.path, need.at, column, need.former)).decode()


def decoded_need(payload: str) -> RecordNeed:
    """The inverse of `TaskNeeds.encoded`."""
    made = decode_json(payload, _Encoded)
    kind = column_type(made.column) if made.column else None
    return RecordNeed(made.change, made.path, kind, made.at, made.former)


class UnnamedTable(msgspec.Struct, frozen=True):
    """A table to create."""

    value: str
    at: Coordinates


class UnnamedTables:
    """Different tables that records of a split wait for."""

    def __init__(self) -> None:
        self._by: dict[str, UnnamedTable] = {}

    def add(self, source: TopicPartition, block: Block, wanted: np.ndarray) -> bool:
        """Note the tables that a block's records wait for; returns whether any does.

        Args:
            wanted: Which records the coordinator has not yet read; others are already decided.
        """
        waits = False
        for value, records in block.unnamed.items():
            mine = records[wanted[records]]
            if not len(mine):
                continue
            waits = True
            at = Coordinates(source.topic, source.partition, block.records.column("offset")[int(mine[0])].as_py())
            known = self._by.get(value)
            if known is None and len(self._by) >= MOST:
                continue
            if known is None or at < known.at:
                self._by[value] = UnnamedTable(value, at)
        return waits

    def encoded(self) -> Iterator[str]:
        """Each table as JSON."""
        return (msgspec.json.encode(each).decode() for each in self._by.values())


def merged_tables(told: list[UnnamedTable]) -> list[UnnamedTable]:
    """Tables with each value once, in the order of their first records, so that splits do not matter."""
    first: dict[str, UnnamedTable] = {}
    for each in told:
        if each.value not in first or each.at < first[each.value].at:
            first[each.value] = each
    return sorted(first.values(), key=lambda each: (each.at, each.value))
