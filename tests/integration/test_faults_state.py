"""State lost, or restored from an older copy, and what happens to a stream between a crash and its restart."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.commit.errors import HalfCommittedError
from tests.integration.faults import append_nothing, die, expire_all_but_the_head
from tests.integration.pipeline import GOOD, NULL_AMOUNT, SCHEMA, TOMBSTONE, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]
MIX = {GOOD: 12, NULL_AMOUNT: 3, TRUNCATED: 2, TOMBSTONE: 1}
LENIENT = SCHEMA.replace("amount decimal(12,2) not null", "amount decimal(12,2)")
# Each start finds what the one before it left. The recovery's steps follow those that leave a record.
STEPS = (
    "after_tasks",
    "before_commit",
    "before_lease",
    "before_claim",
    "inside_claim",
    "after_anchor_claim",
    "after_claims",
    "before_recovery",
    "after_recovery_commit",
    "before_record_goes",
    "after_recovery",
    "inside_anchor_commit",
    "after_anchor_commit",
    "before_record_goes",
    "inside_dead_letters_commit",
    "after_commits",
    "before_spark_notes",
    "before_release",
)


def checkpoints(one: Pipeline) -> Path:
    return one.folder().root / "checkpoints"


def test_spec_changed_between_a_crash_at_each_step_and_the_restart(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pipeline(partitions=1)
    one.produce(MIX)
    one.drain(spark)
    with one.table().update_schema(allow_incompatible_changes=True) as update:
        update.make_column_optional("amount")
    for number, step in enumerate(STEPS):
        # Records without an amount land under the one and fail under the other.
        one.write_spec(LENIENT if number % 2 else SCHEMA, trigger="available_now" if number % 3 else {"every": "7s"})
        one.produce(MIX)
        die(one, spark, monkeypatch, step)
    one.write_spec()
    one.drain(spark)
    one.assert_exactly_once()
    assert one.folder().pending_records() == []
    produced = len(STEPS) + 1
    assert one.landed().total() + one.dead().total() == produced * 17
    assert 0 < one.dead().total() - 2 * produced < 3 * produced, "each configuration decided some of them"


def test_checkpoint_lost_in_part_and_restored_from_an_older_copy(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = pipeline(partitions=1)
    copy = tmp_path / "copy"

    def land(batches: int) -> None:
        for _ in range(batches):
            one.produce(MIX)
            assert one.drain(spark).counts.read == 18

    def put_back() -> None:
        shutil.rmtree(one.folder().root)
        shutil.copytree(copy, one.folder().root)

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
    put_back()
    land(1)
    one.assert_exactly_once()

    # A copy with a pending record, whose batch has long been committed, before and after the snapshots expired.
    one.produce(MIX)
    die(one, spark, monkeypatch, "after_anchor_commit")
    shutil.rmtree(copy)
    shutil.copytree(one.folder().root, copy)
    assert list(copy.glob("pending-*.json"))
    one.drain(spark)
    land(1)
    put_back()
    land(1)
    one.assert_exactly_once()
    append_nothing(one, one.table_name, one.dead_name)
    expire_all_but_the_head(one, one.table_name, one.dead_name)
    put_back()
    land(1)
    one.assert_exactly_once()
    assert one.folder().pending_records() == []


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
