"""Tables that somebody else compacts, alters, renames, rolls back or drops, at a bad moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from pyiceberg.types import StringType

from jobs.commit.errors import HalfCommittedError, RolledBackError, TargetRecreatedError
from tests.integration.faults import at_step, compact, die, expire_all_but_the_head, once
from tests.integration.pipeline import GOOD, NULL_AMOUNT, SCHEMA, TOMBSTONE, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]
MIX = {GOOD: 12, NULL_AMOUNT: 3, TRUNCATED: 2, TOMBSTONE: 1}


def test_compacted_and_expired_between_commit_and_replay(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pipeline(partitions=1)
    one.produce(MIX)
    one.drain(spark)
    for step, record in (("before_commit", "kept"), ("after_anchor_commit", "kept"), ("after_anchor_commit", "lost")):
        one.produce(MIX)
        die(one, spark, monkeypatch, step)
        (pending,) = one.folder().pending_records()
        if record == "lost":
            one.folder().store.delete(pending)
        assert compact(one, spark) >= 1
        letters = one.dead_table()
        letters.overwrite(letters.scan().to_arrow())
        expire_all_but_the_head(one, one.table_name, one.dead_name)
        one.drain(spark)
        one.assert_exactly_once()
    assert one.landed().total() == 4 * 12


def test_a_column_is_added_and_declared_between_crash_and_restart(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pipeline()
    one.produce(MIX)
    die(one, spark, monkeypatch, "before_commit")
    with one.table().update_schema() as update:
        update.add_column("more", StringType())
    with one.table().update_spec() as update:
        update.add_identity("note")
    one.write_spec(SCHEMA + ", more string", table={"name": one.table_name, "partition_by": []})
    one.produce(MIX)
    one.drain(spark)
    one.assert_exactly_once()


def test_tables_renamed_between_crash_and_restart(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pipeline()
    one.produce(MIX)
    die(one, spark, monkeypatch, "after_anchor_commit")
    catalog, moved = one.catalog(), f"{one.table_name}_2"
    catalog.rename_table(one.table_name, moved)
    catalog.rename_table(one.dead_name, f"{moved}_dead")
    one.write_spec(table={"name": moved, "partition_by": ["day(created_at)"]})
    with pytest.raises(HalfCommittedError, match=r"(?s)is in .* and not in .*put the stream's file back"):
        one.drain(spark)
    catalog.rename_table(moved, one.table_name)
    catalog.rename_table(f"{moved}_dead", one.dead_name)
    one.write_spec()
    one.drain(spark)
    one.assert_exactly_once()


def test_table_rolled_back_then_dropped_under_a_query(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.write_spec(source={"topics": [one.stream], "max_records_per_batch": 20})
    catalog = one.catalog()

    def roll_back() -> None:
        table = one.table()
        head = table.current_snapshot()
        assert head is not None and head.parent_snapshot_id is not None
        table.manage_snapshots().rollback_to_snapshot(head.parent_snapshot_id).commit()

    one.produce({GOOD: 60})
    with pytest.raises(RolledBackError, match=rf"(?s){one.stream}-0 \[0, \d+\).*--rollback reland"):
        one.drain(spark, on_progress=once(roll_back))
    with pytest.raises(RolledBackError):
        one.drain(spark)
    one.accept(rollback="reland")
    one.drain(spark)
    one.assert_exactly_once()
    one.produce({GOOD: 60})
    gone = f"(?s){one.table_name} is gone.*--recreated {one.table_name}"
    with pytest.raises(TargetRecreatedError, match=gone):
        one.drain(spark, on_progress=once(lambda: catalog.drop_table(one.table_name)))
    with pytest.raises(TargetRecreatedError, match=gone):
        one.drain(spark)
    one.accept(recreated_table=one.table_name)
    one.drain(spark)
    one.assert_exactly_once()


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
