"""A catalog that is away, answers that are lost, disks that fill up, clocks that jump, drivers that know nothing of
each other: a stream goes on by itself, and nothing becomes a dead letter that is none."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog

from jobs.commit import prepared_commit
from jobs.commit.errors import CommitUnknownError, FencedError
from jobs.commit.stamp_history import stamps_along_main
from jobs.state.lease import Lease
from jobs.stream.drain import drain
from jobs.system.full_disk import DiskFullError
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
        with at_step(monkeypatch, "after_anchor_commit", catalog.take):
            one.produce(MIX)
            driver.retries_after("the catalog did not say whether a commit landed")
        driver.retries_after("catalog frazil: OperationalError")
        one.produce(MIX)
        catalog.free()
        one.wait_until_landed()
        assert driver.problem is None
    one.drain(spark)
    one.assert_exactly_once()
    assert (one.landed().total(), one.dead().total()) == (4 * 20, 4 * 2)
    assert one.folder().pending_records() == []


def test_commit_answered_wrongly(pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    one = pipeline(partitions=1)
    real = SqlCatalog.commit_table
    load = SqlCatalog.load_table
    faults: list[str] = []

    def commit(self: SqlCatalog, table: Any, *given: Any) -> Any:
        fault = faults.pop(0) if faults else ""
        if fault == "did not land":
            raise ConnectionError("no answer")
        answer = real(self, table, *given)
        if fault:
            if fault == "landed, and is away":
                monkeypatch.setattr(SqlCatalog, "load_table", away)
            raise ConnectionError("no answer")
        return answer

    def away(self: SqlCatalog, *given: Any) -> Any:
        raise ConnectionError("nobody there")

    monkeypatch.setattr(SqlCatalog, "commit_table", commit)
    one.produce(MIX)
    one.drain(spark)
    # Two claims, then the batch: the table, the dead letters.
    for fault in ("did not land", "landed"):
        for commits_before in (0, 2, 3):
            faults[:] = [""] * commits_before + [fault]
            one.produce(MIX)
            assert one.drain(spark).counts.read == 23
            assert faults == []
    one.assert_exactly_once()
    monkeypatch.setattr(prepared_commit, "UNKNOWN_DEADLINE_SECONDS", 0.0)
    for commits_before in (2, 3):
        faults[:] = [""] * commits_before + ["landed, and is away"]
        one.produce(MIX)
        with pytest.raises(CommitUnknownError, match="did not say whether a commit landed"):
            one.drain(spark)
        monkeypatch.setattr(SqlCatalog, "load_table", load)
        one.drain(spark)
        one.assert_exactly_once()
    assert one.landed().total() == 9 * 20


def held(one: Pipeline) -> bool:
    record = Lease(one.folder().store, one.stream, 3.0).read()
    return record is not None and record.held()


def test_disk_full_wherever_a_driver_writes(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pipeline(lease_ttl="3s")
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
                with at_step(monkeypatch, step, disk.fill):
                    one.produce(MIX)
                    driver.retries_after("disk full")
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


def test_clock_of_the_host_jumps(pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    one = pipeline()
    real, real_ns = time.time, time.time_ns
    through: list[int] = []
    for hours in (0, 2, -1, 0):
        monkeypatch.setattr(time, "time", lambda hours=hours: real() + hours * 3600)
        monkeypatch.setattr(time, "time_ns", lambda hours=hours: real_ns() + hours * 3600 * 10**9)
        one.produce(MIX)
        drained = one.drain(spark)
        assert drained.valid_through_ms is not None
        through.append(drained.valid_through_ms)
    monkeypatch.undo()
    one.assert_exactly_once()
    assert through == sorted(through), "it never goes back"
    # Java's Iceberg reads both tables, which it refuses to where the snapshots' times go back.
    gateway: Any = spark
    java = gateway._jvm.org.apache.iceberg
    io = java.hadoop.HadoopFileIO(gateway._jsc.hadoopConfiguration())
    for table in (one.table(), one.dead_table()):
        assert java.TableMetadataParser.read(io, table.metadata_location).snapshots().size() == len(table.snapshots())
        times = [entry.timestamp_ms for entry in table.metadata.snapshot_log]
        assert times == sorted(set(times))


def test_two_drivers_that_know_nothing_of_each_other(pipeline: Make, spark: SparkSession, tmp_path: Path) -> None:
    one = pipeline()
    one.write_spec(source={"topics": [one.stream], "max_records_per_batch": 20})
    one.produce({GOOD: 90, TRUNCATED: 5})
    elsewhere = one.settings().model_copy(update={"state": tmp_path / "elsewhere"})
    taken: list[int] = []

    def take_over(progress: object) -> None:
        if not taken:
            taken.append(drain(one.spec(), elsewhere, one.kafka(), spark.newSession).counts.read)

    with pytest.raises(FencedError, match="another driver took over"):
        one.drain(spark, on_progress=take_over)
    assert taken[0] > 0
    one.produce(MIX)
    one.drain(spark)
    one.assert_exactly_once()
    epochs = [stamp.epoch for _, stamp in stamps_along_main(one.table().metadata, one.stream)]
    assert epochs == sorted(epochs, reverse=True)
    assert set(epochs) == {1, 2, 3}
