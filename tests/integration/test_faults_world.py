"""A catalog that is unavailable, and disks that fill up: a stream goes on by itself, and no good record becomes a dead
letter."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from jobs.base.system.full_disk import DiskFullError
from jobs.clients.state_store.lease import Lease
from jobs.tables.commit.protocol import prepared_commit
from tests.helpers.waiting import wait_for
from tests.integration.faults import DriverHere, at_step, small_disk
from tests.integration.pipeline import GOOD, TOMBSTONE, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]
MIX = {GOOD: 20, TRUNCATED: 2, TOMBSTONE: 1}
FAST = {"every": "1s"}


class Lock:
    """While it is taken nobody gets an answer from the embedded catalog."""

    def __init__(self, one: Pipeline) -> None:
        folder = one.home / ".frazil"
        folder.mkdir(exist_ok=True)
        settings = yaml.safe_load((one.home / "frazil.yaml").read_text())
        # The client waits less for a lock than its five seconds.
        properties = {"uri": f"sqlite:///{folder}/catalog.db?timeout=0.2", "warehouse": f"file://{folder}/warehouse"}
        settings["catalog"] = {"name": "frazil", "properties": {"type": "sql"} | properties}
        (one.home / "frazil.yaml").write_text(yaml.safe_dump(settings))
        self._database: Path = folder / "catalog.db"
        self._connection: sqlite3.Connection | None = None

    def take(self) -> None:
        self._connection = sqlite3.connect(self._database, isolation_level=None, timeout=30, check_same_thread=False)
        self._connection.execute("BEGIN EXCLUSIVE")

    def take_for(self, seconds: float) -> None:
        self.take()
        threading.Timer(seconds, self.free).start()

    def free(self) -> None:
        assert self._connection is not None
        self._connection.execute("ROLLBACK")
        self._connection.close()


def test_catalog_away_during_a_commit_and_at_the_opening_after_it(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pipeline()
    catalog = Lock(one)
    one.write_spec(trigger=FAST)
    one.produce(MIX)
    with DriverHere(one, spark) as driver:
        one.wait_until_landed()
        # Back within the minute in which an unclear answer is asked about: the same driver commits the same files.
        epoch = driver.heartbeat.current().epoch
        with at_step(monkeypatch, "after_anchor_commit", lambda: catalog.take_for(2.0)):
            one.produce(MIX)
            driver.has_landed(40)
        assert driver.heartbeat.current().epoch == epoch
        # Away for longer, in the middle of a batch: the stream is opened anew, as often as it takes.
        monkeypatch.setattr(prepared_commit, "UNKNOWN_DEADLINE_SECONDS", 0.5)
        with at_step(monkeypatch, "after_anchor_commit", catalog.take) as passed:
            one.produce(MIX)
            driver.retries_after("the catalog did not say whether a commit landed", step=passed)
        driver.retries_after("catalog frazil: OperationalError")
        one.produce(MIX)
        catalog.free()
        one.wait_until_landed()
        assert driver.problem is None
    one.drain(spark)
    one.assert_exactly_once()
    assert (one.landed().total(), one.dead().total()) == (4 * 20, 4 * 2)
    assert one.folder().pending_records() == []


def held(one: Pipeline) -> bool:
    record = Lease(one.folder().store, one.stream, 8.0).read()
    return record is not None and record.held()


def test_disk_full_wherever_a_driver_writes(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pipeline(lease_ttl="8s")
    one.write_spec(trigger=FAST)
    with small_disk(one.home / ".frazil", 40_000) as disk:
        one.produce(MIX)
        with DriverHere(one, spark) as driver:
            driver.has_landed(20)
            # Between batches: Spark's notes, the data files and the lease find no room.
            disk.fill()
            one.produce(MIX)
            driver.retries_after(f"disk full: {one.home / '.frazil'}")
            disk.make_room()
            driver.has_landed(40)
            # The pending record, the manifests of the table, those of the dead letters.
            for step in ("after_tasks", "after_lease_check", "after_anchor_commit"):
                with at_step(monkeypatch, step, disk.fill) as passed:
                    one.produce(MIX)
                    driver.retries_after("disk full", step=passed)
                disk.make_room()
                one.wait_until_landed()
        assert driver.problem is None
        # It may have ended while it waited for the lease that it could not give back.
        wait_for(lambda: not held(one), "the driver's lease to run out")
        # A single run says so, and goes on when it is given again.
        one.produce(MIX)
        with at_step(monkeypatch, "after_lease_check", disk.fill), pytest.raises(DiskFullError, match="disk full"):
            one.drain(spark)
        disk.make_room()
        # A process of its own would have ended; this one could not give its lease back.
        wait_for(lambda: not held(one), "the lease to run out")
        one.drain(spark)
        one.assert_exactly_once()
        assert (one.landed().total(), one.dead().total()) == (6 * 20, 6 * 2)
        # Attempts that failed did not fill the disk with what nobody refers to.
        for table in (one.table(), one.dead_table()):
            data = Path(table.location().removeprefix("file://")) / "data"
            referenced = {Path(each.file.file_path).name for each in table.scan().plan_files()}
            assert {file.name for file in data.rglob("*.parquet")} == referenced
