"""Health facts of a table and its partitions: plain data from metadata, which `health_measurement` reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class PartitionValue:
    """One part of a partition's key in the facts of its health.

    Attributes:
        name: Of the partition field, as `created_at_day`.
        source: The column that it is made from; dotted where it is nested.
        source_type: Iceberg's name of the column's type, as `timestamptz`, `string`, `decimal(10, 2)`.
        transform: Iceberg's name, as `identity`, `day`, `bucket[16]`, `truncate[4]`, `void`.
        value: As Iceberg keeps it: days since 1970 for `day` and for dates, microseconds for identity on timestamps,
            the number for `bucket`; None for null.
        text: For people: `2026-01-31`, `7`, `null`.
        dropped: Whether the table has that column no more, so that no condition can name the partition.
    """

    name: str
    source: str
    source_type: str
    transform: str
    value: Any
    text: str
    dropped: bool = False


class MisnamedColumn(NamedTuple):
    """A column on whose name's account Spark cannot work on a table.

    Attributes:
        name: Name of the column.
        why: As a sentence without a full stop.
        loads: Whether Spark loads the table nevertheless, and only rewrites no data file.
    """

    name: str
    why: str
    loads: bool


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The facts of the files of one partition under one partition spec.

    Attributes:
        spec_id: The spec that the files were written with; a table whose spec changed has partitions of several.
        values: The key; empty in a table without partitions.
        name: `created_at_day=2026-01-31/country=CH`; empty in a table without partitions.
        sizes: Bytes of its data files, ascending.
        records: Rows in its data files, deleted ones included.
        delete_files: Files of deletes, deletion vectors included.
        delete_bytes: Their bytes.
        position_deletes: Rows that they delete by position.
        equality_deletes: Rows in equality-delete files; each may delete any number of rows.
        newest_at: When its newest data file was committed, by whomever; None where that snapshot has expired.
    """

    spec_id: int
    values: tuple[PartitionValue, ...]
    name: str
    sizes: tuple[int, ...]
    records: int
    delete_files: int = 0
    delete_bytes: int = 0
    position_deletes: int = 0
    equality_deletes: int = 0
    newest_at: datetime | None = None

    @property
    def files(self) -> int:
        """Data files."""
        return len(self.sizes)

    @property
    def bytes(self) -> int:
        """Bytes of the data files."""
        return sum(self.sizes)

    @property
    def dropped(self) -> str | None:
        """A partition field whose column was dropped from the table; None if there is none."""
        return next((value.name for value in self.values if value.dropped), None)

    def smaller(self, limit: float) -> tuple[int, ...]:
        """The sizes of the data files below `limit` bytes, ascending."""
        return self.sizes[: bisect_left(self.sizes, limit)]

    @property
    def delete_ratio(self) -> float:
        """Rows deleted by position or equality for each row that is there: 0 without deletes."""
        return delete_ratio(self.position_deletes + self.equality_deletes, self.records)


@dataclass(frozen=True, slots=True)
class BranchFacts:
    """The facts of what a branch keeps beside main.

    Attributes:
        name: The branch.
        files: Data files of its head.
        bytes: Their bytes.
        replaced_files: Those of them that main had, and has no more: compacted there, or deleted.
        replaced_bytes: Their bytes.
        own_files: Those that main never had.
        own_bytes: Their bytes.
    """

    name: str
    files: int = 0
    bytes: int = 0
    replaced_files: int = 0
    replaced_bytes: int = 0
    own_files: int = 0
    own_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The facts of a table's health at one snapshot.

    Attributes:
        name: `namespace.table`.
        uuid: Of the table; stays when it is renamed.
        location: Where its files lie.
        spec_id: The partition spec that new files get.
        measured_at: When this was read, UTC.
        snapshot_id: Of main's head; None in a table that has none.
        sequence: The head's sequence number; 0 without a head.
        snapshots: All that are kept, those of branches and tags included.
        snapshot_times: When they were committed, ascending.
        manifests: Of the head, delete manifests included.
        manifest_bytes: Their bytes.
        manifest_groups: Bytes of the manifests that list files, of each partition spec and kind (data, deletes): only
            those can become one.
        mixed_specs: Whether the head has files of another spec than the current one.
        metadata_bytes: Size of the current metadata file.
        created_at: When the table was made; None where metadata files that told it are gone.
        previous_metadata: Older metadata files that the current one still names.
        records: Rows in data files, deleted ones included.
        partitions: None where the totals alone say that the files are well, so that no manifest was read.
        refs: Branches and tags other than main.
        branches: What each branch other than main keeps beside it.
        unread: Columns of types that Spark does not know, so that it cannot do anything to the table.
        misnamed: Columns whose names do the same, or keep it from rewriting files.
        streams: frazil's streams that commit to the table, by their stamps.
        bytes_per_day, files_per_day: Appended by data commits over the kept snapshots; 0 where less than two are kept.
        commits_per_day: Snapshots a day over the same time.
    """

    name: str
    uuid: str
    format_version: int
    spec_id: int
    measured_at: datetime
    snapshot_id: int | None = None
    sequence: int = 0
    snapshots: int = 0
    snapshot_times: tuple[datetime, ...] = ()
    manifests: int = 0
    manifest_bytes: int = 0
    delete_manifests: int = 0
    manifest_groups: tuple[int, ...] = ()
    mixed_specs: bool = False
    metadata_bytes: int = 0
    created_at: datetime | None = None
    previous_metadata: int = 0
    data_files: int = 0
    bytes: int = 0
    records: int = 0
    delete_files: int = 0
    position_deletes: int = 0
    equality_deletes: int = 0
    partitions: tuple[PartitionFacts, ...] | None = None
    refs: tuple[str, ...] = ()
    branches: tuple[BranchFacts, ...] = ()
    unread: tuple[str, ...] = ()
    misnamed: tuple[MisnamedColumn, ...] = ()
    location: str = ""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    streams: tuple[str, ...] = ()
    bytes_per_day: float = 0.0
    files_per_day: float = 0.0
    commits_per_day: float = 0.0

    def hindered(self, *, loads: bool) -> str | None:
        """What a misnamed column keeps Spark from, with the way on; None without such a column.

        Args:
            loads: See `MisnamedColumn`.
        """
        for each in self.misnamed:
            if each.loads is loads:
                what = "rewrite no data file of" if loads else "do nothing to"
                command = f"frazil schema apply {next(iter(self.streams), 'STREAM')} --rename {each.name}=NEW"
                return f"Spark can {what} the table: {each.why}. `{command}` gives the column another name."
        return None

    @property
    def average_file(self) -> float:
        """Bytes of a data file on average; 0 without any."""
        return self.bytes / self.data_files if self.data_files else 0.0

    @property
    def delete_ratio(self) -> float:
        """Rows deleted by position or equality for each row that is there: 0 without deletes."""
        return delete_ratio(self.position_deletes + self.equality_deletes, self.records)

    def small_files(self, limit: float) -> int:
        """Data files below `limit` bytes; 0 where no manifest was read, since the totals say that they are well."""
        return sum(len(partition.smaller(limit)) for partition in self.partitions or ())


def delete_ratio(deleted: int, records: int) -> float:
    """Deleted rows for each row, at most 1; a table of deletes without rows has nothing but deletes."""
    if not deleted:
        return 0.0
    return min(1.0, deleted / records) if records else 1.0
