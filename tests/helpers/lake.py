"""A catalog of its own in a temporary folder with a table that a stream writes, without Kafka and without a driver."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table

from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.services.maintenance_policy import Policy
from jobs.config.settings.maintained_tables import MaintainedTable
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.maintenance.plan.results import TableResult
from jobs.maintenance.run.table_maintenance import maintain_table
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.offsets import OffsetRange, Ranges, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = "payments"
NAME = "lake.payments"
SCHEMA = "id long not null, created_at timestamptz not null, payer string"
BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
P0 = TopicPartition("payments", 0)
LATER = timedelta(days=3)


def spec_of(partition_by: tuple[str, ...] = ("day(created_at)", "bucket(2, payer)")) -> StreamSpec:
    """The stream whose table it is."""
    return StreamSpec.model_validate(
        {
            "stream": STREAM,
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": SCHEMA},
            "table": {"name": NAME, "partition_by": list(partition_by), "kafka_columns": False},
        }
    )


class Lake:
    """The catalog, and one driver's commits to the stream's table.

    Args:
        home: The deployment's folder.
        spec: See `spec_of`.
    """

    def __init__(self, home: Path, spec: StreamSpec | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.settings: Settings = Settings.embedded(home)
        self.spec: StreamSpec = spec or spec_of()
        self.catalog: Catalog = connect_catalog(self.settings)
        self.rows: int = 0
        self.target: Target | None = None
        ensure_tables(self.spec, self.catalog)

    def table(self, name: str = NAME) -> Table:
        return self.catalog.load_table(name)

    def take_over(self) -> Target:
        """Take the table over as a driver that starts, which knows nothing but the tables."""
        target = Target(connect_catalog(self.settings), NAME, STREAM)
        newest = target.read()
        epoch = 1 + target.greatest_epoch()

        def claim(stamp: Stamp | None) -> Stamp:
            return (
                stamp.claimed(epoch)
                if stamp
                else Stamp(STREAM, "claim", -1, epoch, "c", start={P0: 0}, position={P0: 0})
            )

        target.claim(epoch, claim)
        self.rows = newest.position[P0] if newest else 0
        self.target = target
        return target

    def land(self, days: int = 2, rows: int = 4) -> None:
        """A batch with so many rows in each of so many days, which is a file for each partition that they fall into."""
        target = self.target or self.take_over()
        count = days * rows
        start = self.rows
        values = pa.table(
            {
                "id": [start + n for n in range(count)],
                "created_at": [BEGIN + timedelta(days=n % days) for n in range(count)],
                "payer": [f"p{n // days % 4}" for n in range(count)],
            },
            schema=target.table.schema().as_arrow(),
        )
        while True:
            seen = target.seen()
            files = list(_dataframe_to_data_files(target.table.metadata, values, target.table.io, uuid.uuid4()))
            newest = target.newest
            assert newest is not None
            counts = Counts(read=count, landed=count)
            end = {P0: start + count}
            epoch = newest.epoch
            stamp = Stamp(
                STREAM,
                "batch",
                newest.batch + 1,
                epoch,
                "c",
                start={P0: start},
                position=end,
                rows={NAME: count},
                counts=counts,
            )
            batch: Ranges = {P0: OffsetRange(start, start + count)}
            if target.land(stamp, files, seen=seen, batch=batch, position={P0: start}) is ProposalOutcome.LANDED:
                break
        self.rows += count

    def ids(self, snapshot_id: int | None = None) -> Counter[int]:
        """Numbers of rows in the table by id."""
        return Counter(self.table().scan(snapshot_id=snapshot_id, selected_fields=("id",)).to_arrow()["id"].to_pylist())

    def maintain(
        self, spark: Callable[[], SparkSession], policy: Mapping[str, Any], *, name: str = NAME, **options: Any
    ) -> TableResult:
        """Maintain the table in this process."""
        table = MaintainedTable(name, Policy.model_validate(policy), STREAM, "sink")
        options = {"specs": [self.spec], **options}
        return maintain_table(connect_catalog(self.settings), self.settings, table, spark=spark, **options)

    def pend(self, *files: Path, age: timedelta = timedelta(0)) -> Path:
        """A pending record of the stream that names files, written so long ago."""
        folder = stream_folder(self.settings, STREAM)
        uuid_ = str(self.table().metadata.table_uuid)
        named = [{"path": f"file://{path}"} for path in files]
        record = {"v": 1, "batch": [], "targets": {NAME: {"uuid": uuid_, "files": named}}}
        folder.store.put(folder.pending(7), msgspec.json.encode(record))
        note = folder.root / folder.pending(7)
        then = time.time() - age.total_seconds()
        os.utime(note, (then, then))
        return note

    def files(self, name: str = NAME) -> set[Path]:
        """Files under the table's location."""
        folder = Path(self.table(name).location().removeprefix("file://"))
        return {path for path in folder.rglob("*") if path.is_file()}

    def forget(self) -> None:
        """Expire all snapshots but the head, in the metadata alone, and the log of its files.

        The table is no longer known to be young.
        """
        with self.table().transaction() as change:
            change.set_properties({"write.metadata.previous-versions-max": "1"})
        table = self.table()
        head = table.metadata.current_snapshot_id
        table.maintenance.expire_snapshots().by_ids(
            [each.snapshot_id for each in table.snapshots() if each.snapshot_id != head]
        ).commit()

    def old_file(self, within: str, days: int = 30) -> Path:
        """A file under the table's location that was last changed so long ago."""
        path = Path(self.table().location().removeprefix("file://")) / within
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"nobody knows me")
        then = time.time() - days * 86400
        os.utime(path, (then, then))
        return path


class Writer(threading.Thread):
    """Lands batches until it is stopped, as a driver does beside a compaction."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(name="writer", daemon=True)
        self.lake: Lake = lake
        self.batches: int = 0
        self.slowest: float = 0.0
        self.problem: BaseException | None = None
        self._enough: threading.Event = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._enough.set()
        self.join(60)
        assert self.problem is None, self.problem

    def run(self) -> None:
        try:
            while not self._enough.wait(1.0):
                began = time.monotonic()
                self.lake.land()
                self.slowest = max(self.slowest, time.monotonic() - began)
                self.batches += 1
        except BaseException as problem:
            self.problem = problem


def later() -> datetime:
    """A time at which everything that was committed is old."""
    return datetime.now(UTC) + LATER
