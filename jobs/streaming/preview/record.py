"""Previewed records: the fate of each record of a sample, and the tables and files that a batch would write."""

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
"""Fate of a record; `not_read` if the stream does not read its topic."""

TableState: TypeAlias = Literal["there", "new", "differs"]
"""State of a table.

`there`: it exists and is written unchanged. `new`: it would be created. `differs`: it exists and cannot hold the rows,
which are shown as in a new table.
"""
_INDEX = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class PreviewedLetter:
    """Reason why a record would be a dead letter, without anything that is masked.

    Attributes:
        field: Path of the field at fault; None for the whole record.
        value: The record's value as text, cut if it is long; None if there is none, or if it is withheld.
        masked: Parts that the dead letter lacks, see `jobs.tables.dead_letter_table.masking.Masked.parts`.
        row_before: The row before the step that refused it, as JSON.
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
    """A record of a sample, with its fate.

    Attributes:
        timestamp: Timestamp of the record in Kafka.
        decoded: Unmasked row before the stream's transforms; None without one.
        rows: Unmasked row in each table, in the table's form.
        letter: Dead letter, if the outcome is `dead`.
        warned: Rules of severity `warn` that it breaks.
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
        name: Name of the field.
        column: Top-level source column of the table.
        text: Value as people write it.
    """

    name: str
    column: str
    text: str


@dataclass(frozen=True, slots=True)
class PreviewedPartition:
    """The data files that a batch of the sample would add to a partition.

    Attributes:
        values: Partition values; None for an unpartitioned table.
        bytes: Size of all files.
    """

    values: tuple[PartitionValue, ...]
    rows: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PreviewedTable:
    """A table of a stream, with what a batch of the sample would add.

    Attributes:
        schema: Columns of the table, with those that the records would add.
        problem: If it `differs`, the reason why it cannot hold the rows.
        partitions: Partitions by value.
    """

    name: str
    role: Role
    state: TableState
    schema: Schema
    problem: str | None = None
    partitions: tuple[PreviewedPartition, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(each.rows for each in self.partitions)

    @property
    def files(self) -> int:
        """Number of files."""
        return sum(each.files for each in self.partitions)

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(each.bytes for each in self.partitions)


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Changes of the stream's table that the records need, as sentences.

    Attributes:
        made: Changes that the driver would make.
        proposed: Changes that it would propose.
        refused: Impossible changes.
        failed: Changes for which it would stop.
    """

    made: tuple[str, ...] = ()
    proposed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamPreview:
    """Result of a stream's file for a sample of records.

    Attributes:
        config: Configuration hash of the file.
        records: Records by coordinates, ascending.
        tables: Tables of the stream, the coordinator first.
        changes: Changes of the main table.
        left_out: Records by the path of a field without a column.
        notes: Further notes, as sentences.
        decoded_hiding: Hidden parts of rows before the transforms.
        hidings: Hidden parts of each table's rows.
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
        """Hidden parts of a table's rows."""
        return self.hidings.get(table, self.decoded_hiding)

    def count(self, outcome: Outcome) -> int:
        """Number of records with this outcome."""
        return sum(each.outcome == outcome for each in self.records.values())

    @property
    def read(self) -> int:
        """Number of records of the sample that the stream reads."""
        return len(self.records) - self.count("not_read")

    @property
    def warned(self) -> dict[str, int]:
        """Number of records by the broken rule of severity `warn`."""
        found: dict[str, int] = {}
        for each in self.records.values():
            for name in each.warned:
                found[name] = found.get(name, 0) + 1
        return found


def letter_causes(records: Iterable[PreviewedRecord]) -> dict[Cause, list[PreviewedRecord]]:
    """Records that would be dead letters, by cause; the most frequent first."""
    found: dict[Cause, list[PreviewedRecord]] = {}
    for each in records:
        if (letter := each.letter) is not None:
            field, needs = _INDEX.sub("[]", letter.field or ""), without_value(letter.message or "") or ""
            found.setdefault(Cause(letter.error_class, letter.stage, field, needs), []).append(each)
    return dict(sorted(found.items(), key=lambda each: (-len(each[1]), each[0])))
