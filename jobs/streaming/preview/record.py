"""Previewed records: what would become of each record of a sample, and of which tables and files a batch would be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from pyiceberg.schema import Schema

from jobs.config.values.targets import Role
from jobs.records.formats.interface.problems import without_value
from jobs.records.schema.needs import Coordinates
from jobs.streaming.preview.values import NOTHING_HIDDEN, Hiding, Row
from jobs.tables.dead_letter_table.page import Cause

Outcome: TypeAlias = Literal["landed", "dead", "filtered", "tombstone", "not_read"]
"""What becomes of a record; `not_read` of one whose topic the stream does not read."""

TableState: TypeAlias = Literal["there", "new", "differs"]
"""Of a table: it is there and is written as it is; it would be made; it is there and cannot hold the rows, which are
shown as a table would have them that was made now."""
_INDEX = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class PreviewedLetter:
    """Why a record would be a dead letter, as the letter would say it: nothing of it that is masked.

    Attributes:
        field: Path of the field at fault; None if it is the whole record.
        value: The record's value as text, cut when it is long; None if there is none, or if it is withheld.
        masked: What of the record the letter does not keep, see `jobs.tables.dead_letter_table.masking.Masked.parts`.
        row_before: The row as the step met it that refused it, as JSON.
    """

    error_class: str
    stage: str
    field: str | None
    message: str | None
    value: str | None
    masked: str | None = None
    row_before: str | None = None


@dataclass(frozen=True, slots=True)
class PreviewedRecord:
    """A record of a sample, with what would become of it.

    Attributes:
        timestamp: Of the record in Kafka.
        decoded: Its row before the stream's transforms; None if it has none. As it is: nothing in it is masked.
        rows: Its row in each table, as the table would hold it; likewise.
        letter: Of one that is `dead`.
        warned: The rules of severity `warn` that it breaks.
    """

    at: Coordinates
    timestamp: datetime | None
    outcome: Outcome
    decoded: Row | None = field(default=None, repr=False)
    rows: Mapping[str, Row] = field(default_factory=dict, repr=False)
    letter: PreviewedLetter | None = None
    warned: tuple[str, ...] = ()


class PartitionValue(NamedTuple):
    """The value of a partition field.

    Attributes:
        name: Of the field.
        column: Of the table's top, that it is made of.
        text: As people write it.
    """

    name: str
    column: str
    text: str


@dataclass(frozen=True, slots=True)
class PreviewedPartition:
    """The data files that a batch of the sample would add to a partition.

    Attributes:
        values: None of a table without partitions.
        bytes: Of all of them.
    """

    values: tuple[PartitionValue, ...]
    rows: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PreviewedTable:
    """A table of a stream, with what a batch of the sample would add.

    Attributes:
        schema: Its columns, those that the records would lead to included.
        problem: Of one that `differs`, why it cannot hold the rows.
        partitions: By their values.
    """

    name: str
    role: Role
    state: TableState
    schema: Schema
    problem: str | None = None
    partitions: tuple[PreviewedPartition, ...] = ()

    @property
    def rows(self) -> int:
        """Of all files."""
        return sum(each.rows for each in self.partitions)

    @property
    def files(self) -> int:
        """How many there would be."""
        return sum(each.files for each in self.partitions)

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(each.bytes for each in self.partitions)


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Changes of the stream's table that the records need, as sentences.

    Attributes:
        made: Those that the driver would make.
        proposed: Those that it would leave to somebody.
        refused: Those that cannot be made.
        failed: Those for which it would stop.
    """

    made: tuple[str, ...] = ()
    proposed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamPreview:
    """What a stream's file would make of a sample of records.

    Attributes:
        config: The file's configuration hash.
        records: By their coordinates, ascending.
        tables: The stream's, the coordinator first.
        changes: Of the stream's own table.
        left_out: Records by the path of a field that no column takes.
        notes: What else is to be known, as sentences.
        decoded_hiding: What is not shown of rows before the transforms.
        hidings: What is not shown of the rows of each table.
    """

    stream: str
    config: str
    records: Mapping[Coordinates, PreviewedRecord]
    tables: tuple[PreviewedTable, ...]
    changes: TableChanges = TableChanges()
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    decoded_hiding: Hiding = NOTHING_HIDDEN
    hidings: Mapping[str, Hiding] = field(default_factory=dict)

    def hiding(self, table: str) -> Hiding:
        """What is not shown of the rows of a table."""
        return self.hidings.get(table, self.decoded_hiding)

    def count(self, outcome: Outcome) -> int:
        """How many records would become this."""
        return sum(each.outcome == outcome for each in self.records.values())

    @property
    def read(self) -> int:
        """How many records of the sample the stream reads."""
        return len(self.records) - self.count("not_read")

    @property
    def warned(self) -> dict[str, int]:
        """Records by the rule of severity `warn` that they break."""
        found: dict[str, int] = {}
        for each in self.records.values():
            for name in each.warned:
                found[name] = found.get(name, 0) + 1
        return found


def letter_causes(records: Iterable[PreviewedRecord]) -> dict[Cause, list[PreviewedRecord]]:
    """The records that would be dead letters, by their cause; the most frequent first."""
    found: dict[Cause, list[PreviewedRecord]] = {}
    for each in records:
        if (letter := each.letter) is not None:
            field, needs = _INDEX.sub("[]", letter.field or ""), without_value(letter.message or "") or ""
            found.setdefault(Cause(letter.error_class, letter.stage, field, needs), []).append(each)
    return dict(sorted(found.items(), key=lambda each: (-len(each[1]), each[0])))
