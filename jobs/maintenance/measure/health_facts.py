"""Health facts of a table and its partitions, as data; `health_measurement` reads them from metadata."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class PartitionValue:
    """One field of a partition's key.

    Attributes:
        name: Name of the partition field, such as `created_at_day`.
        source: Its source column; dotted if nested.
        source_type: Iceberg's name of the column's type, such as `timestamptz`, `string`, `decimal(10, 2)`.
        transform: Iceberg's name of the transform, such as `identity`, `day`, `bucket[16]`, `truncate[4]`, `void`.
        value: Iceberg's internal value: days since 1970 for `day` and for dates, microseconds for identity on
            timestamps, the number for `bucket`; None for null.
        text: Text for people: `2026-01-31`, `7`, `null`.
        dropped: Whether the table has dropped that column, so that no condition can name the partition.
    """

    name: str
    source: str
    source_type: str
    transform: str
    value: Any
    text: str
    dropped: bool = False


class MisnamedColumn(NamedTuple):
    """A column whose name keeps Spark from working on a table.

    Attributes:
        name: Name of the column.
        why: Reason, a sentence without a full stop.
        loads: Whether Spark loads the table, but cannot rewrite data files.
    """

    name: str
    why: str
    loads: bool


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Facts of one partition's files under one partition spec.

    Attributes:
        spec_id: Partition spec of the files; after a change of the spec, a table has partitions of several.
        values: The key; empty in an unpartitioned table.
        name: Such as `created_at_day=2026-01-31/country=CH`; empty in an unpartitioned table.
        sizes: Bytes of its data files, ascending.
        records: Rows in its data files, deleted ones included.
        delete_files: Delete files, deletion vectors included.
        delete_bytes: Bytes of the delete files.
        position_deletes: Rows that they delete by position.
        equality_deletes: Rows in equality-delete files; each may delete any number of rows.
        newest_at: Commit time of its newest data file, by any writer; None if that snapshot has expired.
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
        """Number of data files."""
        return len(self.sizes)

    @property
    def bytes(self) -> int:
        """Bytes of the data files."""
        return sum(self.sizes)

    @property
    def dropped(self) -> str | None:
        """A partition field whose column was dropped from the table; None without one."""
        return next((value.name for value in self.values if value.dropped), None)

    def smaller(self, limit: float) -> tuple[int, ...]:
        """Sizes of the data files below `limit` bytes, ascending."""
        return self.sizes[: bisect_left(self.sizes, limit)]

    @property
    def delete_ratio(self) -> float:
        """Rows deleted by position or equality per existing row; 0 without deletes."""
        return delete_ratio(self.position_deletes + self.equality_deletes, self.records)


@dataclass(frozen=True, slots=True)
class BranchFacts:
    """Facts of what a branch keeps beside main.

    Attributes:
        name: The branch.
        files: Data files of its head.
        bytes: Their bytes.
        replaced_files: Files of these that main had and has no longer: compacted there, or deleted.
        replaced_bytes: Their bytes.
        own_files: Files that main never had.
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
    """Facts of a table's health at one snapshot.

    Attributes:
        name: `namespace.table`.
        uuid: Uuid of the table, which stays if it is renamed.
        location: Location of its files.
        spec_id: Partition spec of new files.
        measured_at: Time of the measurement, UTC.
        snapshot_id: Id of main's head; None without one.
        sequence: The head's sequence number; 0 without a head.
        snapshots: Number of all existing snapshots, those of branches and tags included.
        snapshot_times: Their commit times, ascending.
        manifests: Number of manifests of the head, delete manifests included.
        manifest_bytes: Their bytes.
        manifest_groups: Bytes of the manifests that list files, by partition spec and content (data, deletes): only
            manifests of one group can be merged.
        mixed_specs: Whether the head has files of another spec than the current one.
        metadata_bytes: Size of the current metadata file.
        created_at: Creation time of the table; None if the metadata files that had it no longer exist.
        previous_metadata: Older metadata files in the current one's log.
        records: Rows in data files, deleted ones included.
        partitions: Facts of the partitions; None if the totals prove the files healthy, so that no manifest was read.
        refs: Branches and tags other than main.
        branches: Facts of each branch other than main.
        unread: Columns of types that Spark does not know, so that it cannot work on the table.
        misnamed: Columns whose names keep Spark from working on the table, or from rewriting files.
        streams: frazil's streams that commit to the table, by their stamps.
        bytes_per_day, files_per_day: Data appended by commits over the existing snapshots; 0 with less than two.
        commits_per_day: Snapshots per day over the same time.
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
        """What a misnamed column keeps Spark from, with the next step; None without such a column.

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
        """Average bytes of a data file; 0 without any."""
        return self.bytes / self.data_files if self.data_files else 0.0

    @property
    def delete_ratio(self) -> float:
        """Rows deleted by position or equality per existing row; 0 without deletes."""
        return delete_ratio(self.position_deletes + self.equality_deletes, self.records)

    def small_files(self, limit: float) -> int:
        """Number of data files below `limit` bytes; 0 if no manifest was read, as the totals show healthy files."""
        return sum(len(partition.smaller(limit)) for partition in self.partitions or ())


def delete_ratio(deleted: int, records: int) -> float:
    """Deleted rows per row, at most 1; 1 for a table that has only deletes."""
    if not deleted:
        return 0.0
    return min(1.0, deleted / records) if records else 1.0
