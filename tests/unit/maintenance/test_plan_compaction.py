"""Which data files and delete files a plan has rewritten, and which not, each with its reason."""

# ruff: noqa: E501 (a table reads best with one case a line)

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from jobs.maintenance.measure.health_facts import PartitionFacts, PartitionValue
from jobs.maintenance.measure.maintenance_history import (
    MAX_ENTRIES,
    ActionRecord,
    Key,
    MaintenanceHistory,
)
from jobs.maintenance.plan.plan import files_written
from jobs.tables.commit.stamp.table_properties import MIRROR_PROPERTY
from tests.unit.maintenance.plan_fixtures import (
    DAY,
    HOUR,
    LOOKED,
    MB,
    MINUTE,
    NOW,
    OURS,
    carried_out,
    made,
    partition,
    skips_of,
    steps_of,
    table,
)

HOT = timedelta(minutes=1)
DELETES: dict[str, Any] = {"delete_files": 3, "delete_bytes": 3_000, "position_deletes": 500}


STEPS = [
    # partition, files after, bytes in MB, least size, the sentence
    (partition("d", *[1] * 12, ago=HOT), 1, 12, 16, "12 files of 12 MiB below 16 MiB (at least 12): they become 1 file."),
    (partition("d", *[1] * 12, 20, 300, ago=HOT), 3, 12, 16, "12 files of 12 MiB below 16 MiB (at least 12): they become 1 file."),
    (partition("d", *[1] * 12, 20, 300), 2, 32, 96, "13 files of 32 MiB below 96 MiB, and its writers have left it: they become 1 file."),
    (partition("d", *[20] * 8, ago=HOT), 2, 160, 96, "8 files of 160 MiB below 96 MiB, enough for a whole file: they become 2 files."),
    (partition("d", 1, 2), 1, 3, 16, "2 files of 3.0 MiB below 16 MiB, and its writers have left it: they become 1 file."),
    (partition("d", 1, 2, 90, 90), 3, 3, 16, "2 files of 3.0 MiB below 16 MiB, and its writers have left it: they become 1 file."),
    (partition("d", 1, 2, 30, 30, ago=2 * HOUR), 1, 63, 96, "4 files of 63 MiB below 96 MiB, and its writers have left it: they become 1 file."),
    (partition("d", *[15] * 9, ago=HOT), 1, 135, 16, "9 files of 135 MiB below 16 MiB, enough for a whole file: they become 1 file."),
    (partition("", *[1] * 12, ago=HOT), 1, 12, 16, "12 files of 12 MiB below 16 MiB (at least 12): they become 1 file."),
]  # fmt: skip
LEFT = [
    (partition("d", 120, 1, ago=HOT), "", "Healthy: nothing to gain in the files of 1 partitions."),
    (partition("", 120, 1, ago=HOT), "", "Healthy: nothing to gain in the files of the table."),
    (partition("d", 1), "", "Healthy"),
    (partition("d", 90, 90, 90), "", "Healthy"),
    (partition("d", 80, 80), "", "Healthy"),
    (partition("d", 500, 900), "", "Healthy"),
    (partition("d", *[1] * 11, ago=HOT), "d", "Below the threshold: 11 files of 11 MiB below 16 MiB (at least 12), and it is still written to."),
    (partition("d", delete_files=3, equality_deletes=9), "", "Healthy"),
]  # fmt: skip
SORT = {"strategy": "sort", "sort_by": ["a desc", "b.c"]}
SORTED = {"strategy": "sort", "sort_by": ["a"]}


@pytest.mark.parametrize(
    ("size", "undersized", "files"),
    [(0, 96, 1), (100, 96, 1), (128, 96, 1), (140, 96, 1), (141, 96, 2), (150, 96, 2), (230, 96, 2), (256, 96, 2), (270, 96, 2), (1290, 96, 10), (300, 16, 3)],
)  # fmt: skip
def test_how_many_files_iceberg_writes(size: int, undersized: int, files: int) -> None:
    assert files_written(size * MB, 128 * MB, undersized * MB) == files


@pytest.mark.parametrize(("one", "after", "megabytes", "least", "reason"), STEPS)
def test_what_is_compacted(one: PartitionFacts, after: int, megabytes: int, least: int, reason: str) -> None:
    (step,) = made(table(one)).steps
    assert (step.action, step.scope, step.partition, step.reason) == ("compact", one.name, one, reason)
    assert (step.files_before, step.files_after, step.bytes) == (one.files, after, megabytes * MB)
    assert step.detail == {
        "strategy": "binpack",
        "target_file_size_bytes": 128 * MB,
        "min_file_size_bytes": least * MB,
        "max_file_size_bytes": max(int(1.8 * 128 * MB), one.sizes[-1]) + 1,
        "min_input_files": 2,
    }


@pytest.mark.parametrize(
    ("location", "length", "said"),
    [
        ("file:///w/t", 251, None),
        ("/w/t", 252, "a folder's name would have 256 bytes, and may have 255."),
        ("file:///w/t", 86, "a folder's name would have 262 bytes, and may have 255."),
        ("s3://b/w/t", 800, None),
        ("s3://b/w/t", 950, "a key would have 1,063 bytes, and may have 1,024."),
    ],
)
def test_what_spark_has_no_place_for_is_left_with_the_way_on(location: str, length: int, said: str | None) -> None:
    name = "é" * (length // 2) if length == 86 else "d" * length
    one = partition(name, *[1] * 20)
    facts = table(one, location=location)
    found = made(facts)
    assert bool(steps_of(found, "compact")) == (said is None)
    without = {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"}
    assert steps_of(made(replace(facts, properties={**OURS, **without})), "compact")
    assert steps_of(made(replace(facts, spec_id=1)), "compact"), "files of a former spec get other places"
    if said is not None:
        (skip,) = skips_of(found, "compact")
        assert skip.scope == name
        assert skip.reason.startswith(
            f"Spark cannot write its files: {said} ALTER TABLE orders.payments SET TBLPROPERTIES ("
            "'write.object-storage.enabled' = 'true', 'write.object-storage.partitioned-paths' = 'false') leaves the "
            "partition out of the paths of new files. "
        )


@pytest.mark.parametrize(("one", "scope", "reason"), LEFT)
def test_what_is_left(one: PartitionFacts, scope: str, reason: str) -> None:
    found = made(table(one))
    assert steps_of(found, "compact") == []
    (skip,) = skips_of(found, "compact")
    assert skip.scope == scope
    assert skip.reason.startswith(reason)


def test_a_few_small_files_of_a_cold_partition_wait_an_hour() -> None:
    facts = table(partition("d", 1, 2))
    for minutes, count in ((59, 0), (60, 1)):
        done = LOOKED.done("compact", NOW - timedelta(minutes=minutes), spec_id=0, scope="d")
        assert len(made(facts, done).steps) == count
    recently = LOOKED.done("compact", NOW - timedelta(minutes=30), spec_id=0, scope="d")
    assert skips_of(made(facts, recently), "compact")[0].reason.endswith("and it was compacted 30 min ago.")
    # Another spec's partition of the same name is another one.
    assert made(facts, LOOKED.done("compact", NOW, spec_id=1, scope="d")).steps


@pytest.mark.parametrize(("minutes", "cold"), [(59, False), (60, True)])
def test_when_a_partition_is_cold(minutes: int, cold: bool) -> None:
    found = made(table(partition("d", 1, 2, ago=timedelta(minutes=minutes))))
    assert bool(found.steps) == cold


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"streams": (), "properties": {}}, "frazil does not know its writers"),
        ({"streams": (), "properties": {"frazil.reader.x": "1"}}, "frazil does not know its writers"),
        ({"delete_files": 1}, "the table has or had delete files"),
    ],
)
def test_where_merges_may_come_hot_partitions_wait(more: dict[str, Any], why: str) -> None:
    hot, cold = partition("hot", *[1] * 20, ago=HOT), partition("cold", *[1] * 20)
    found = made(table(hot, cold, **more))
    assert [step.scope for step in steps_of(found, "compact")] == ["cold"]
    (skip,) = skips_of(found, "compact")
    assert skip.scope == "hot"
    assert "It waits until 1 h pass without a new file (the newest is of 11:59 UTC)" in skip.reason
    assert why in skip.reason


def test_the_ledger_is_only_appended_to() -> None:
    facts = table(partition("a", *[1] * 20, ago=HOT), streams=(), properties={"frazil.ledger.payments": "{}"})
    assert steps_of(made(facts), "compact")


@pytest.mark.parametrize(
    ("more", "due"),
    [
        ({"delete_files": 1, "position_deletes": 200}, True),
        ({"delete_files": 1, "position_deletes": 199}, False),
        ({"delete_files": 1, "equality_deletes": 200}, True),
        ({"delete_files": 11, "position_deletes": 1}, True),
        ({"delete_files": 10, "position_deletes": 1}, False),
    ],
)
def test_deletes_are_applied(more: dict[str, Any], due: bool) -> None:
    steps = steps_of(made(table(partition("d", 100, 120, delete_bytes=MB, **more))), "compact")
    assert len(steps) == due
    if due:
        (step,) = steps
        assert (step.bytes, step.files_before) == (221 * MB, 2)
        assert (step.detail["delete_file_threshold"], step.detail["remove_dangling_deletes"]) == (1, 1)


def test_deletes_are_applied_once_a_day_at_most() -> None:
    facts = table(partition("d", 100, 120, **DELETES))
    for hours, count in ((23, 0), (24, 1)):
        found = made(facts, LOOKED.done("compact", NOW - hours * HOUR, spec_id=0, scope="d"))
        assert len(steps_of(found, "compact")) == count
    # Small files need not wait for it.
    small = made(
        table(partition("d", *[1] * 12, **DELETES)), LOOKED.done("compact", NOW - 2 * HOUR, spec_id=0, scope="d")
    )
    assert "delete_file_threshold" not in steps_of(small, "compact")[0].detail


def test_cold_partitions_are_laid_out_once() -> None:
    facts, history = table(partition("cold", 100, 50), partition("hot", *[1] * 20, ago=HOT)), LOOKED
    found = made(facts, history, compact=SORT)
    by_scope = {step.scope: step for step in found.steps}
    sort = by_scope["cold"]
    assert (sort.detail["strategy"], sort.detail["sort_order"], sort.detail["rewrite_all"]) == (
        "sort",
        "a desc, b.c",
        1,
    )
    assert (sort.bytes, sort.files_after) == (150 * MB, 2)
    assert sort.reason == ("Its writers have left it, and its 2 files of 150 MiB are not laid out by a desc, b.c yet.")
    assert by_scope["hot"].detail["strategy"] == "binpack"
    facts, history = carried_out(found, facts, history, NOW)
    # What was hot was compacted just now; two hours later it is laid out as well, and then nothing more.
    found = made(facts, history, NOW + 2 * HOUR, compact=SORT)
    assert [step.scope for step in found.steps] == ["hot"]
    facts, history = carried_out(found, facts, history, NOW + 2 * HOUR)
    assert made(facts, history, NOW + 9 * HOUR, compact=SORT).steps == ()
    # Late rows are only brought together; another order is another layout.
    late = replace(partition("cold", 100, 50, 1, 1, 1), newest_at=NOW)
    (step,) = made(table(late), history, NOW + DAY, compact=SORT).steps
    assert step.detail["strategy"] == "binpack"
    (step,) = made(table(late), history, NOW + DAY, compact={"strategy": "zorder", "sort_by": ["a", "b"]}).steps
    assert (step.detail["strategy"], step.detail["sort_order"]) == ("zorder", "zorder(a,b)")


def test_what_may_have_been_laid_out_and_forgotten_is_not_laid_out_again() -> None:
    entries: dict[Key, ActionRecord] = {
        ("compact", 0, f"d{n}"): ActionRecord("compact", 0, f"d{n}", at=NOW) for n in range(MAX_ENTRIES)
    }
    full = MaintenanceHistory(NOW, {**entries, **LOOKED.entries})
    found = made(table(partition("long ago", 100)), full, compact=SORT)
    assert steps_of(found, "compact") == []
    assert "is not known any more" in skips_of(found, "compact")[0].reason
    (step,) = steps_of(made(table(partition("of late", 100, ago=2 * HOUR)), full, compact=SORT), "compact")
    assert step.detail["strategy"] == "sort"


def old(name: str, *megabytes: float, **more: Any) -> PartitionFacts:
    return replace(partition(name, *megabytes), **more)


def now(name: str, *megabytes: float, **more: Any) -> PartitionFacts:
    return replace(partition(name, *megabytes), spec_id=1, **more)


def test_a_new_layout_waits_for_the_files_of_the_earlier_spec() -> None:
    facts = table(old("month", 100), now("day 1", 100), now("day 2", 50, 50), spec_id=1, mixed_specs=True)
    found = made(facts, compact=SORTED)
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
    alone = made(table(now("day 1", 100), spec_id=1), compact=SORTED)
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
    (step,) = steps_of(made(facts, compact=SORTED), "compact")
    assert (step.scope, step.bytes) == ("", 200 * MB)
    assert steps_of(made(facts, compact=SORTED, budget="150MB"), "compact") == []


def test_a_partition_whose_column_was_dropped_is_left() -> None:
    gone = (PartitionValue("a", "a", "string", "identity", "u", "u", dropped=True),)
    (step,) = steps_of(made(table(partition("a=u", 1, 1))), "compact")
    found = made(table(old("a=u", 1, 1, values=gone)))
    (skip,) = skips_of(found, "compact")
    assert skip.reason == (
        "Its column was dropped (a), so no condition selects its files: rewrite them in Spark. " + step.reason
    )
    many = old("a=u", 100, values=gone, delete_files=9, delete_bytes=9, position_deletes=1)
    compacted = LOOKED.done("compact", NOW - timedelta(hours=2), spec_id=0, scope="a=u")
    found = made(table(many), compacted)
    assert steps_of(found, "position_deletes") == []
    assert [skip.reason for skip in skips_of(found, "position_deletes")] == [
        "Its column was dropped (a), so no condition selects its delete files."
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


def test_small_delete_files_are_brought_together_where_nothing_else_comes() -> None:
    few: dict[str, Any] = {"delete_files": 5, "delete_bytes": 5_000, "position_deletes": 50}
    hot = partition("hot", 100, 100, ago=MINUTE, **few)
    fewer = partition("fewer", 100, 100, **{**few, "delete_files": 4})
    found = made(table(hot, fewer, partition("cold", 100, 100, **few)))
    (step,) = found.steps
    assert (step.action, step.scope, step.files_before, step.files_after, step.bytes) == (
        "position_deletes", "cold", 5, 1, 5_000,
    )  # fmt: skip
    assert [skip.scope for skip in skips_of(found, "position_deletes")] == ["hot"]
    done = LOOKED.done("position_deletes", NOW - HOUR, spec_id=0, scope="cold")
    assert made(table(partition("cold", 100, 100, **few)), done).steps == ()
    equality = partition("equality", 100, 100, equality_deletes=1, **few)
    assert made(table(equality, streams=(), properties={})).steps == (), "nobody counts the two apart"


def test_equality_deletes_are_applied_at_once_where_a_stream_writes() -> None:
    few: dict[str, Any] = {"delete_files": 1, "delete_bytes": 5_000, "equality_deletes": 1}
    hot = partition("hot", 100, 100, ago=MINUTE, **few)
    (step,) = steps_of(made(table(hot)), "compact")
    assert "no audit reads the table until they are applied" in step.reason
    assert (step.detail["delete_file_threshold"], step.detail["remove_dangling_deletes"]) == (1, 1)
    assert steps_of(made(table(hot, streams=(), properties={})), "compact") == [], "others may merge into it"
    done = LOOKED.done("compact", NOW - HOUR, spec_id=0, scope="hot")
    assert steps_of(made(table(hot), done), "compact") == []


def test_many_delete_files_are_brought_together_from_two_on() -> None:
    big: dict[str, Any] = {"delete_files": 6, "delete_bytes": 90 * MB, "position_deletes": 50}
    facts = table(
        *(partition(f"d{n}", 100, 100, **big) for n in range(17)),
        partition("two", 100, 100, **{**big, "delete_files": 2}),
    )
    assert len(steps_of(made(facts), "position_deletes")) == 18
    assert steps_of(made(replace(facts, partitions=(facts.partitions or ())[:3])), "position_deletes") == []


def test_what_a_compaction_leaves_of_deletes_is_dropped() -> None:
    one = partition("d", 100, 100, delete_files=20, delete_bytes=20_000, position_deletes=900)
    assert [step.action for step in made(table(one)).steps] == ["compact", "position_deletes"]
    third = made(table(one, format_version=3))
    assert [step.action for step in third.steps] == ["compact"]
    assert "deletion vector" in skips_of(third, "position_deletes")[0].reason
    off = made(table(one), compact={"enabled": False})
    assert off.steps == ()
    assert "is not to be compacted" in skips_of(off, "position_deletes")[0].reason


def test_a_mirror_is_kept_while_merges_come() -> None:
    """Its merges and its maintenance take turns, so neither has to wait until the other is over for good."""
    mirror = {"properties": {**OURS, MIRROR_PROPERTY: "{}"}}
    one_each = partition("d", *[100] * 5, ago=MINUTE, delete_files=5, delete_bytes=5_000, position_deletes=2)
    kept = made(table(one_each, **mirror))
    assert steps_of(kept, "position_deletes") == []
    assert "merges bring them together" in skips_of(kept, "position_deletes")[0].reason
    many = partition("d", 100, 100, ago=MINUTE, delete_files=20, delete_bytes=20_000, position_deletes=900)
    assert steps_of(made(table(many)), "compact") == []
    assert [step.scope for step in steps_of(made(table(many, **mirror)), "compact")] == ["d"]
    few = partition("d", 100, 100, ago=MINUTE, delete_files=5, delete_bytes=5_000, position_deletes=50)
    assert [step.action for step in made(table(few, **mirror)).steps] == ["position_deletes"]
    for ago, due in ((2 * HOUR, True), (MINUTE, False)):
        done = LOOKED.done("compact", NOW - ago, spec_id=0, scope="d")
        assert bool(steps_of(made(table(many, **mirror), done), "compact")) == due
