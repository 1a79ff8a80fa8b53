"""What a plan does with files under an earlier partition spec, which no condition can leave out."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from jobs.maintain.health_facts import PartitionFacts, PartitionValue
from tests.unit.maintain.plan_fixtures import LOOKED, MB, NOW, made, partition, skips_of, steps_of, table

SORT = {"strategy": "sort", "sort_by": ["a"]}
DELETES: dict[str, Any] = {"delete_files": 3, "delete_bytes": 3_000, "position_deletes": 500}


def old(name: str, *megabytes: float, **more: Any) -> PartitionFacts:
    return replace(partition(name, *megabytes), **more)


def now(name: str, *megabytes: float, **more: Any) -> PartitionFacts:
    return replace(partition(name, *megabytes), spec_id=1, **more)


def test_a_new_layout_waits_for_the_files_of_the_earlier_spec() -> None:
    facts = table(old("month", 100), now("day 1", 100), now("day 2", 50, 50), spec_id=1, mixed_specs=True)
    found = made(facts, compact=SORT)
    assert [(step.scope, step.bytes) for step in steps_of(found, "compact")] == [("month", 100 * MB)]
    assert [skip.scope for skip in skips_of(found, "compact")] == ["day 1", "day 2"]
    assert all(
        "It waits until the files of the earlier partition spec are rewritten, of which it would take 100 MiB."
        in skip.reason
        for skip in skips_of(found, "compact")
    )
    # What is brought together takes small ones along, and they are few.
    small = made(table(old("month", 100), now("day", 1, 1), spec_id=1, mixed_specs=True))
    assert [(step.scope, step.bytes) for step in steps_of(small, "compact")] == [("day", 2 * MB)]
    alone = made(table(now("day 1", 100), spec_id=1), compact=SORT)
    assert [step.scope for step in steps_of(alone, "compact")] == ["day 1"]


def test_what_goes_along_counts_and_waits_where_it_does_not_fit() -> None:
    others = old("month", 120, 10, 400), old("deletes", 110, **DELETES)
    merged = now("day", 100, 120, **DELETES)
    facts = table(*others, merged, spec_id=1, mixed_specs=True)
    wanted = {step.scope: step for step in steps_of(made(facts), "compact")}
    # The small one, the large one, and those with deletes of their own; not the one that is as it should be.
    assert wanted["day"].bytes == (220 + 10 + 400 + 110) * MB + 3_000
    assert "With it go 520 MiB of files of another partition spec." in wanted["day"].reason
    found = made(facts, budget="600MB")
    assert [step.scope for step in steps_of(found, "compact")] == ["deletes"]
    (waits,) = [skip for skip in skips_of(found, "compact") if skip.scope == "day"]
    assert "of which it would take 520 MiB" in waits.reason


def test_a_table_that_was_not_partitioned_before() -> None:
    # Its files have no key, so every file of the table is meant by it.
    facts = table(old("", 100), now("day", 100), spec_id=1, mixed_specs=True)
    (step,) = steps_of(made(facts, compact=SORT), "compact")
    assert (step.scope, step.bytes) == ("", 200 * MB)
    assert steps_of(made(facts, compact=SORT, budget="150MB"), "compact") == []


def test_a_partition_whose_column_was_dropped_is_left() -> None:
    gone = (PartitionValue("a", "a", "string", "identity", "u", "u", dropped=True),)
    (step,) = steps_of(made(table(partition("a=u", 1, 1))), "compact")
    found = made(table(old("a=u", 1, 1, values=gone)))
    (skip,) = skips_of(found, "compact")
    assert skip.reason == (
        "Its column was dropped (a), so no condition tells its files from others: rewrite them in Spark. " + step.reason
    )
    many = old("a=u", 100, values=gone, delete_files=9, delete_bytes=9, position_deletes=1)
    compacted = LOOKED.done("compact", NOW - timedelta(hours=2), spec_id=0, scope="a=u")
    found = made(table(many), compacted)
    assert steps_of(found, "position_deletes") == []
    assert [skip.reason for skip in skips_of(found, "position_deletes")] == [
        "Its column was dropped (a), so no condition tells its delete files from others."
    ]


def test_small_files_of_a_table_that_was_not_partitioned_go_in_one_step() -> None:
    """Iceberg takes all of them, whatever the partition: steps of their own would find nothing left."""
    before, today = old("", *[1.0] * 20), now("day 1", *[2.0] * 14, 120)
    facts = table(before, today, now("day 2", 100, 3), spec_id=1, mixed_specs=True)
    found = made(facts)
    (step,) = steps_of(found, "compact")
    assert (step.scope, step.bytes) == ("", (20 * 1 + 14 * 2) * MB)
    # One file for each of the two days, one of the day's own, and the large one of that day is left as it is.
    assert (step.files_before, step.files_after) == (20 + 14 + 1, 2 + 1 + 1)
    assert "34 files of 48 MiB in all" in step.reason
    assert [skip.scope for skip in skips_of(found, "compact") if "goes along" in skip.reason] == ["day 1"]
