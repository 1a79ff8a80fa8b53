"""State lost, or restored from an older copy; tables and files changed between a crash and its restart."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.types import StringType

from jobs.tables.commit.stamp.errors import HalfCommittedError
from tests.integration.faults import at_step, compact, die, expire_all_but_the_head
from tests.integration.pipeline import GOOD, NULL_AMOUNT, TOMBSTONE, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]
MIX = {GOOD: 12, NULL_AMOUNT: 3, TRUNCATED: 2, TOMBSTONE: 1}


def checkpoints(one: Pipeline) -> Path:
    return one.folder().root / "checkpoints"


def test_checkpoint_lost_in_part_and_restored_from_an_older_copy(
    pipeline: Make, spark: SparkSession, tmp_path: Path
) -> None:
    one = pipeline(partitions=1)
    copy = tmp_path / "copy"

    def land(batches: int) -> None:
        for _ in range(batches):
            one.produce(MIX)
            assert one.drain(spark).counts.read == 18

    land(1)
    (metadata,) = checkpoints(one).glob("*/metadata")
    metadata.unlink()
    land(1)
    for folder in checkpoints(one).glob("*/offsets"):
        shutil.rmtree(folder)
    land(1)

    # The whole folder of two batches ago: checkpoint, lease and all.
    shutil.copytree(one.folder().root, copy)
    land(2)
    shutil.rmtree(one.folder().root)
    shutil.copytree(copy, one.folder().root)
    land(1)
    one.assert_exactly_once()


def test_checkpoint_lost_while_a_query_runs(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.write_spec(source={"topics": [one.stream], "max_records_per_batch": 20})
    one.produce({GOOD: 60})
    # Each time the query fails, and another one begins where the tables stand.
    one.drain(spark, on_progress=lambda _: shutil.rmtree(checkpoints(one)))
    one.assert_exactly_once()


def test_spec_no_longer_names_a_topic_that_is_half_committed(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pipeline()
    other = f"{one.stream}.more"
    one.create_topic(other)
    both = {"topics": [one.stream, other]}
    one.write_spec(source=both)
    for topic in both["topics"]:
        one.produce(MIX, topic=topic)
    die(one, spark, monkeypatch, "after_anchor_commit")
    record = one.folder().root / one.folder().pending_records()[0]
    kept = record.read_bytes()
    record.unlink()
    one.write_spec(source={"topics": [one.stream]})
    with pytest.raises(HalfCommittedError, match=rf"(?s){other}-0 \[0, 9\).*the file no longer names {other}"):
        one.drain(spark)
    # With the record it goes on, and lands what the file no longer names.
    record.write_bytes(kept)
    one.drain(spark)
    one.assert_exactly_once(both["topics"])


def test_compacted_and_expired_between_commit_and_replay(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pipeline(partitions=1)
    one.produce(MIX)
    one.drain(spark)
    for record in ("kept", "lost"):
        one.produce(MIX)
        die(one, spark, monkeypatch, "after_anchor_commit")
        (pending,) = one.folder().pending_records()
        if record == "lost":
            one.folder().store.delete(pending)
        assert compact(one, spark) >= 1
        letters = one.dead_table()
        letters.overwrite(letters.scan().to_arrow())
        expire_all_but_the_head(one, one.table_name, one.dead_name)
        one.drain(spark)
        one.assert_exactly_once()
    assert one.landed().total() == 3 * 12


def test_schema_and_partitioning_altered_between_tasks_and_commit(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pipeline(partitions=1)

    def add_column() -> None:
        with one.table().update_schema() as update:
            update.add_column("added_by_somebody", StringType())

    def partition() -> None:
        with one.table().update_spec() as update:
            update.add_identity("note")

    for change in (add_column, partition):
        one.produce(MIX)
        with at_step(monkeypatch, "after_tasks", change):
            assert one.drain(spark).counts.landed == 12
    one.assert_exactly_once()
    assert {file.file.spec_id for file in one.table().scan().plan_files()} == {0, 1}
