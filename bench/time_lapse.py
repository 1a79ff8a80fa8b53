"""Time lapse: commits of weeks on a real catalog in minutes, dated by a clock that the bench moves.

Every commit is the stream's own (`jobs.tables.commit.protocol.target`): its manifest, its manifest list and its
snapshot are made as ever. What its data files would hold is left out: only their descriptions are there. And between
the commits that are timed the table's metadata file is not written: what an hour's commits add to it is collected, and
handed to the catalog at once. So a timed commit finds exactly what it would find.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.typedef import Record

from bench.timed_target import TimedTarget, payments_spec
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.pyiceberg_commit import head_alone

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROW_BYTES = 40


class LapseCatalog(SqlCatalog):
    """A catalog on SQLite whose snapshots bear the time of `now`.

    Attributes:
        collected: While this is a list, commits are only collected in it.
        replacing: Whether snapshots that overwrite are a compaction's, which PyIceberg does not know.
    """

    now: datetime = _EPOCH
    collected: list[TableUpdate] | None = None
    replacing: bool = False

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit a table like PyIceberg, or only collect the updates."""
        dated = tuple(self._dated(update) for update in updates)
        if self.collected is None:
            return super().commit_table(table, requirements, dated)
        self.collected += dated
        metadata = head_alone(update_table_metadata(table.metadata, dated))
        return CommitTableResponse.model_validate({"metadata": metadata, "metadata-location": table.metadata_location})

    def commit_collected(self, table: Table, updates: tuple[TableUpdate, ...]) -> None:
        """Write down what was collected, as one commit."""
        response = super().commit_table(table, (), updates)
        self._delete_old_metadata(table.io, table.metadata, response.metadata)

    def _dated(self, update: TableUpdate) -> TableUpdate:
        if not isinstance(update, AddSnapshotUpdate):
            return update
        changed: dict[str, Any] = {"timestamp_ms": int(self.now.timestamp() * 1000)}
        summary = update.snapshot.summary
        if self.replacing and summary is not None:
            changed["summary"] = summary.model_copy(update={"operation": Operation.REPLACE})
        return update.model_copy(update={"snapshot": update.snapshot.model_copy(update=changed)})


def _unless_unchanged(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> TableMetadata:
    return update_table_metadata(metadata, updates) if updates else metadata


class TimeLapse:
    """The demo's table and its stream, on a clock of their own.

    Args:
        folder: Folder for catalog and warehouse.
        begin: Time when the table is created.
        every: Interval of the trigger.
        tasks: Number of files in each commit, one of each task.
        bytes_per_minute: Bytes of data files a minute; with a shorter trigger the files are smaller.

    Attributes:
        files: Data files of the table, by day since 1970 and path.
        commits: Number of the stream's commits so far.
    """

    def __init__(self, folder: Path, begin: datetime, every: timedelta, tasks: int, bytes_per_minute: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.catalog: LapseCatalog = LapseCatalog(
            "lapse", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
        )
        self.catalog.now = begin
        spec = payments_spec()
        ensure_tables(spec, self.catalog)
        self.target: TimedTarget = TimedTarget(self.catalog, spec)
        self.target.take_over()
        self.files: defaultdict[int, dict[str, DataFile]] = defaultdict(dict)
        self.commits: int = 0
        self._begin: datetime = begin
        self._every: timedelta = every
        self._sizes: list[int] = [int(bytes_per_minute * (every / timedelta(minutes=1)) / tasks)] * tasks

    @property
    def now(self) -> datetime:
        """The present instant, there."""
        return self.catalog.now

    @property
    def table(self) -> Table:
        """Table after its last commit."""
        return self.target.table

    def commit(self) -> None:
        """The stream's next batch, one trigger later: files of today, and of each tenth batch one of yesterday."""
        due = self._begin + (self.commits + 1) * self._every
        self.catalog.now = max(self.now + timedelta(milliseconds=1), due)
        today = (self.now - _EPOCH).days
        days = [today] * len(self._sizes)
        if self.commits % 10 == 9:
            days[-1] = today - 1
        files = [self.file(size, day) for size, day in zip(self._sizes, days, strict=True)]
        seen = self.target.seen()
        outcome = self.target.land_rows(files, sum(file.record_count for file in files), seen)
        assert outcome is ProposalOutcome.LANDED
        self.replace((), files)
        self.commits += 1

    def replace(self, removed: Iterable[DataFile], added: Iterable[DataFile]) -> None:
        """Keep in mind which files the table has."""
        for file in removed:
            del self.files[file.partition[0]][file.file_path]
        for file in added:
            self.files[file.partition[0]][file.file_path] = file

    def file(self, size: int, day: int) -> DataFile:
        """A data file that nobody wrote, with the statistics that a writer leaves."""
        table, records = self.table, max(1, size // _ROW_BYTES)
        columns = [field.field_id for field in table.schema().fields]
        name = f"created_at_day={_EPOCH + timedelta(days=day):%Y-%m-%d}/00000-{self.commits}-{uuid.uuid4()}.parquet"
        made = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{table.location()}/data/{name}",
            file_format="PARQUET",
            partition=Record(day),
            record_count=records,
            file_size_in_bytes=size,
            column_sizes=dict.fromkeys(columns, size // len(columns)),
            value_counts=dict.fromkeys(columns, records),
            null_value_counts=dict.fromkeys(columns, 0),
            nan_value_counts={},
            lower_bounds=dict.fromkeys(columns, b"0123456789abcdef"),
            upper_bounds=dict.fromkeys(columns, b"0123456789abcdeg"),
            split_offsets=[4],
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
        )
        made.spec_id = table.metadata.default_spec_id
        return made

    @contextmanager
    def collecting(self) -> Iterator[list[TableUpdate]]:
        """Commits within the block reach the catalog at its end, as one."""
        whole = self.table
        collected: list[TableUpdate] = []
        self.catalog.collected = collected
        self.target.table = Table(
            whole.name(), head_alone(whole.metadata), whole.metadata_location, whole.io, self.catalog
        )
        # PyIceberg copies all of a table's metadata each of the dozen times that a commit looks at it.
        with patch("pyiceberg.table.update_table_metadata", _unless_unchanged):
            try:
                yield collected
            finally:
                self.catalog.collected = None
        # Each snapshot set the stamp's property again; only the last counts.
        properties = [update for update in collected if isinstance(update, SetPropertiesUpdate) and update.updates]
        others = [update for update in collected if not isinstance(update, SetPropertiesUpdate)]
        self.catalog.commit_collected(whole, (*others, *properties[-1:]))
        self.target.read()

    def timed(self, count: int) -> list[float]:
        """Milliseconds of each of so many commits, written as ever."""
        times: list[float] = []
        for _ in range(count):
            began = time.perf_counter()
            self.commit()
            times.append(1000 * (time.perf_counter() - began))
        return times

    def close(self) -> None:
        """Give the catalog back."""
        self.catalog.close()
