"""Unnamed tables: what a task tells of values that name a table which is not there yet."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from jobs.commit.offsets import TopicPartition
from jobs.pipeline.block import Block
from jobs.schema.needs import Coordinates

MOST = 2_000
"""Different ones that a task tells; a batch that needs more gets them in several rounds."""


class UnnamedTable(msgspec.Struct, frozen=True):
    """A table that is to be made.

    Attributes:
        value: Names it.
        at: Its first record.
    """

    value: str
    at: Coordinates


class UnnamedTables:
    """The different tables that records of a split wait for."""

    def __init__(self) -> None:
        self._by: dict[str, UnnamedTable] = {}

    def add(self, source: TopicPartition, block: Block, wanted: np.ndarray) -> bool:
        """Take note of what a block's records wait for; returns whether any does.

        Args:
            source: Their partition.
            block: Behind the pipeline.
            wanted: Which of its records the coordinator has not yet read; of others all is decided.
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
        """Each as JSON."""
        return (msgspec.json.encode(each).decode() for each in self._by.values())


def merged_tables(told: list[UnnamedTable]) -> list[UnnamedTable]:
    """Each value once, in the order of their first records: the same, however a batch was cut."""
    first: dict[str, UnnamedTable] = {}
    for each in told:
        if each.value not in first or each.at < first[each.value].at:
            first[each.value] = each
    return sorted(first.values(), key=lambda each: (each.at, each.value))
