"""Needs of a task: which changes of the table its records need, each with the first record that does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from jobs.commit.offsets import TopicPartition
from jobs.pipeline.block import Block
from jobs.schema.iceberg_schema import column_text, column_type, schema_text
from jobs.schema.needs import Change, Coordinates, Need, Path, RecordNeed
from jobs.system.typed_json import decode_json

MOST = 2_000
"""Different ones that a task tells; a batch that needs more gets them in several rounds."""


class _Encoded(msgspec.Struct):
    """A need as JSON.

    Attributes:
        column: A column of the type, as the text of Iceberg's JSON; empty without a type.
    """

    change: Change
    path: tuple[str, ...]
    at: Coordinates
    column: str = ""
    former: tuple[str, ...] | None = None


class TaskNeeds:
    """The different needs of a split's records."""

    def __init__(self) -> None:
        self._by: dict[tuple[Change, Path, str], RecordNeed] = {}

    def add(self, source: TopicPartition, block: Block, needs: Iterable[Need]) -> None:
        """Take note of what those records of a partition's block need that are to land."""
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
        """Each as JSON."""
        for need in self._by.values():
            column = column_text(need.type) if need.type else ""
            yield msgspec.json.encode(_Encoded(need.change, need.path, need.at, column, need.former)).decode()


def decoded_need(payload: str) -> RecordNeed:
    """The inverse of `TaskNeeds.encoded`."""
    made = decode_json(payload, _Encoded)
    kind = column_type(made.column) if made.column else None
    return RecordNeed(made.change, made.path, kind, made.at, made.former)
