"""Merges into mirrors of changelogs of which changes have expired, by Spark: their bases stand for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.types import LongType

from jobs.commit.offsets import TopicPartition
from tests.helpers.mirror_world import MirrorWorld, change
from tests.helpers.source_table import KEY, PARTITIONS, ROW, SourceTable, state_after

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def test_a_base_stands_for_changes_that_have_expired(tmp_path: Path, spark: SparkSession) -> None:
    source = SourceTable(4)
    source.run(150)
    world = MirrorWorld(tmp_path, spark, ROW, KEY)
    first, rest = source.log[:90], source.log[90:]
    late = [each for each in source.late(15) if each in first[50:]]
    landed = [each for each in first if each not in late]
    world.land(landed)
    world.merged()
    # What comes late is from behind what has expired, as its dead letter holds the changelog.
    begins = {
        TopicPartition("shop", n): min(
            [world.state.next_offsets[TopicPartition("shop", n)] * 3 // 4]
            + [each["_kafka_offset"] for each in late if each["_kafka_partition"] == n]
        )
        for n in range(PARTITIONS)
    }
    before = world.changelog.scan().count()
    base = world.expire(begins)
    assert before > world.changelog.scan().count() > 0
    # One more comes from before what has expired: it is left out, and counted.
    told = [each for each in first if each["_change_op"] != "t"]
    gone = next(
        each for each in told if each["_kafka_offset"] < begins[TopicPartition("shop", each["_kafka_partition"])]
    )
    world.land([gone, *rest, *late])
    result = world.merged()
    assert result.counts.too_late == 1 and result.counts.refolded > 0
    expected = state_after(landed + rest + late)
    assert world.rows() == expected
    # Made anew of the base and the rest, it is the same.
    rebuilt = world.rebuilt(base)
    assert rebuilt.state.partitions == result.state.partitions and world.rows() == expected


def test_the_deletion_behind_which_a_change_comes_late_is_known_beside_a_base(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = MirrorWorld(tmp_path, spark, "id long, name string", ["id"], scope="key")
    world.land([change("u", key, 1, id=key, name=f"n{key}", lineage=None) for key in range(3)])
    world.merged()
    world.land([change("d", 3, 4, id=1, lineage=None)])
    world.merged()
    base = world.expire({TopicPartition("shop", 0): 3})
    world.land([change("u", 4, 3, id=1, name="late", lineage=None), change("u", 5, 5, id=2, name="new", lineage=None)])
    assert world.merged().counts.refolded == 1
    expected = {0: "n0", 2: "new"}
    assert {key: row["name"] for (key,), row in world.rows().items()} == expected
    world.rebuilt(base)
    assert {key: row["name"] for (key,), row in world.rows().items()} == expected


def test_a_mirror_with_wider_types_is_its_base_where_all_changes_have_expired(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = MirrorWorld(tmp_path, spark, "id long, n int, place struct<floor int, city string>", ["id"])
    world.land([change("c", key, id=key, n=key, place={"floor": key, "city": f"c{key}"}) for key in range(4)])
    world.merged()
    with world.mirror.update_schema() as update:
        update.update_column("n", LongType()).update_column(("place", "floor"), LongType())
    world.land([change("u", 4, id=1, n=10, place=None), change("d", 5, id=2)])
    world.merged()
    base, before = world.expire({TopicPartition("shop", 0): 6}), world.rows()
    assert world.changelog.scan().count() == 0
    assert {key: row["n"] for (key,), row in before.items()} == {0: 0, 1: 10, 3: 3}
    rebuilt = world.rebuilt(base)
    assert world.rows() == before
    assert rebuilt.state.partitions == base.partitions
    # It goes on from there.
    world.land([change("u", 6, id=3, n=30, place=None)])
    world.merged()
    assert {key: row["n"] for (key,), row in world.rows().items()} == {0: 0, 1: 10, 3: 30}
