"""What a merge's join is told, by how many rows the mirror has and how many keys change."""

from __future__ import annotations

import pytest

from jobs.mirrors.merge.merge import join_conf

FILTER = "spark.sql.optimizer.runtime.bloomFilter"


@pytest.mark.parametrize(
    ("there", "keys", "filtered", "partitions"),
    [
        (0, 10, False, 2),
        (249_999, 10, False, 2),
        (250_000, 10, True, 2),
        (10_000_000, 10_000, True, 2),
        (10_000_000, 2_500_001, False, 13),
        (100_000_000, 4_000_001, False, 105),
        (100_000_000, 4_000_000, True, 5),
    ],
)
def test_keys_are_a_filter_where_the_mirror_has_many_rows_for_each(
    there: int, keys: int, filtered: bool, partitions: int
) -> None:
    conf = join_conf(there, keys, cores=2)
    assert conf[f"{FILTER}.enabled"] == str(filtered).lower()
    # With it, what is left of the mirror is no more than the changes.
    assert conf["spark.sql.shuffle.partitions"] == str(partitions)
    # Spark makes no filter where it might broadcast.
    assert (conf["spark.sql.autoBroadcastJoinThreshold"] == "-1") is filtered


@pytest.mark.parametrize("keys", [1, 9_000, 1_000_000, 4_000_000])
def test_the_filter_has_at_least_eight_bits_for_a_key_as_far_as_spark_allows(keys: int) -> None:
    conf = join_conf(1 << 40, keys, cores=2)
    bits = int(conf[f"{FILTER}.numBits"])
    assert min(8 * keys, 1 << 26) <= bits <= 67_108_864
    assert int(conf[f"{FILTER}.expectedNumItems"]) <= 4_000_000


def test_no_filter_is_counted_on_where_spark_makes_none() -> None:
    conf = join_conf(100_000_000, 10_000, cores=2, may_filter=False)
    assert conf[f"{FILTER}.enabled"] == "false"
    assert conf["spark.sql.shuffle.partitions"] == "101"
