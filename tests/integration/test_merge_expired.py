"""Merges into mirrors of changelogs of which changes have expired, by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.mirrors.model.errors import MovedValuesError
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.mirror_changes import SMALL
from tests.helpers.mirror_world import MirrorWorld, change
from tests.helpers.source_table import KEY, PARTITIONS, ROW, SourceTable, state_after

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("seed", [4, 9])
def test_rows_are_folded_from_the_changes_that_are_left(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    source = SourceTable(seed, simple=True)
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
    world.expire(begins)
    assert before > world.changelog.scan().count() > 0
    # One more comes from before what has expired: it is left out, and counted.
    gone = next(
        each for each in first if each["_kafka_offset"] < begins[TopicPartition("shop", each["_kafka_partition"])]
    )
    world.land([gone, *rest, *late])
    result = world.merged()
    assert result.counts.too_late == 1 and result.counts.refolded > 0
    assert world.rows() == state_after(landed + rest + late)


def test_the_deletion_behind_which_a_change_comes_late_is_known_where_others_have_expired(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = MirrorWorld(tmp_path, spark, "id long, name string", ["id"], scope="key")
    world.land([change("u", key, 1, id=key, name=f"n{key}", lineage=None) for key in range(3)])
    world.merged()
    world.land([change("d", 3, 4, id=1, lineage=None)])
    world.merged()
    world.expire({TopicPartition("shop", 0): 3})
    world.land([change("u", 4, 3, id=1, name="late", lineage=None), change("u", 5, 5, id=2, name="new", lineage=None)])
    assert world.merged().counts.refolded == 1
    assert {key: row["name"] for (key,), row in world.rows().items()} == {0: "n0", 2: "new"}


def test_a_version_that_has_expired_is_not_replaced_by_a_lower_one(tmp_path: Path, spark: SparkSession) -> None:
    world = MirrorWorld(tmp_path, spark, "id long, name string", ["id"], scope="key")
    world.land([change("u", 0, 9, id=1, name="nine", lineage=None)])
    world.merged()
    world.land([change("u", 2, 5, id=1, name="five", lineage=None)])
    world.merged()
    world.expire({TopicPartition("shop", 0): 1})
    # A dead letter is replayed.
    world.land([change("u", 1, 7, id=1, name="seven", lineage=None)])
    result = world.merged()
    assert (result.counts.late, result.counts.refolded) == (1, 1)
    assert world.rows() == {(1,): {"id": 1, "name": "nine"}}


def test_a_late_value_of_the_newest_version_comes_into_its_row(tmp_path: Path, spark: SparkSession) -> None:
    world = MirrorWorld(tmp_path, spark, SMALL, ["id"], scope="key")
    world.land([change("u", 0, 1, id=1, name="n", note="first", lineage=None)])
    world.merged()
    world.land([change("u", 2, 5, id=1, name="five", unavailable=["note"], lineage=None)])
    world.merged()
    assert world.rows()[(1,)] == {"id": 1, "name": "five", "note": "first"}
    world.expire({TopicPartition("shop", 0): 1})
    # The version between, whose dead letter is replayed, has the value that the newest one left out.
    world.land([change("u", 1, 3, id=1, name="three", note="late", lineage=None)])
    assert world.merged().counts.refolded == 1
    assert world.rows()[(1,)] == {"id": 1, "name": "five", "note": "late"}


def test_a_mirror_stops_where_values_of_a_former_key_have_expired(tmp_path: Path, spark: SparkSession) -> None:
    world = MirrorWorld(tmp_path, spark, SMALL, ["id"])
    world.land([change("c", 0, id=1, name="n", note="large"), change("c", 1, id=9, name="n", note="nine")])
    world.merged()
    world.expire({TopicPartition("shop", 0): 2})
    # A value that was not sent is in the mirror's row.
    world.land([change("u", 2, id=9, name="new", unavailable=["note"])])
    world.merged()
    assert world.rows()[(9,)] == {"id": 9, "name": "new", "note": "nine"}
    moved = change("c", 4, 3, id=2, name="moved", unavailable=["note"], old_key={"id": 1})
    world.land([change("d", 3, id=1), moved])
    with pytest.raises(MovedValuesError, match="have expired"):
        world.merged()
    world.land([change("r", 5, id=2, name="moved", note="large")])
    world.merged()
    assert {key: row["note"] for (key,), row in world.rows().items()} == {2: "large", 9: "nine"}
