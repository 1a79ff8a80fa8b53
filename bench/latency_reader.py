"""Reader that polls the catalog: which snapshot it saw when, and which records each of them brought."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Self

import pyarrow.parquet as pq
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy import select
from sqlalchemy.orm import Session

from bench.latency_records import Arrival, Place

_POLL_SECONDS = 0.02
_KAFKA = ["_kafka_partition", "_kafka_offset"]


class Reader(threading.Thread):
    """Reader that polls a SQL catalog fifty times a second, and loads the table if it has changed.

    A poll reads only the location of the table's metadata, which takes a fifth of a millisecond. So polling does not
    slow down the measured side.

    Args:
        catalog: SQL catalog in SQLite; the reader has a connection of its own.
        table: Name of the table.

    Attributes:
        seen: Time when each snapshot was first loaded, seconds since 1970.
        rows: Number of the table's rows, by the summary of the newest snapshot.
    """

    def __init__(self, catalog: SqlCatalog, table: str) -> None:
        super().__init__(name="reader", daemon=True)
        self.seen: dict[int, float] = {}
        self.rows: int = 0
        self._catalog: SqlCatalog = catalog
        self._table: str = table
        self._place: str | None = None
        self._failed: BaseException | None = None
        self._enough: threading.Event = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._enough.set()
        self.join()

    def run(self) -> None:
        """Look until the block ends."""
        try:
            while not self._enough.wait(_POLL_SECONDS):
                self._look()
        except BaseException as problem:
            self._failed = problem

    def wait_for(self, rows: int, seconds: float) -> None:
        """Wait until the table has so many rows.

        Raises:
            SystemExit: The table lacks rows after so many seconds.
        """
        deadline = time.monotonic() + seconds
        while self.rows < rows:
            if self._failed is not None:
                raise self._failed
            if time.monotonic() > deadline:
                raise SystemExit(f"{self._table} has {self.rows:,} of {rows:,} rows after {seconds:.0f} s")
            time.sleep(_POLL_SECONDS)

    def arrivals(self) -> list[Arrival]:
        """Arrivals of the seen snapshots that added records, in order."""
        table = self._catalog.load_table(self._table)
        return [
            Arrival(snapshot.timestamp_ms / 1000, self.seen[snapshot.snapshot_id], places)
            for snapshot in table.metadata.snapshots
            if snapshot.snapshot_id in self.seen and (places := list(_places(table, snapshot)))
        ]

    def _look(self) -> None:
        namespace, _, name = self._table.rpartition(".")
        asked = select(IcebergTables.metadata_location).where(
            IcebergTables.catalog_name == self._catalog.name,
            IcebergTables.table_namespace == namespace,
            IcebergTables.table_name == name,
        )
        with closing(Session(self._catalog.engine)) as session:
            place = session.scalar(asked)
        if place == self._place or place is None:
            return
        metadata = self._catalog.load_table(self._table).metadata
        now = time.time()
        for snapshot in metadata.snapshots:
            self.seen.setdefault(snapshot.snapshot_id, now)
        newest = metadata.current_snapshot()
        if newest is not None and newest.summary is not None:
            self.rows = int(newest.summary["total-records"] or 0)
        self._place = place


def _places(table: Table, snapshot: Snapshot) -> Iterator[Place]:
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io):
            if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id:
                rows = pq.read_table(Path(entry.data_file.file_path.removeprefix("file:")), columns=_KAFKA)
                yield from zip(*(rows.column(name).to_pylist() for name in _KAFKA), strict=True)
