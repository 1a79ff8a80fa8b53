"""What a plan does with snapshots, manifests, delete files, orphans and properties."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.maintain.health_facts import TableFacts
from jobs.maintain.maintenance_history import MaintenanceHistory
from jobs.maintain.plan import Plan
from tests.unit.maintain.plan_fixtures import (
    DAY,
    HOUR,
    LOOKED,
    MB,
    NOW,
    carried_out,
    made,
    partition,
    skips_of,
    steps_of,
    table,
    with_snapshots,
)

MINUTE = timedelta(minutes=1)


def every(step: timedelta, count: int, *, oldest: timedelta | None = None) -> TableFacts:
    times = [NOW - n * step for n in range(count)]
    return with_snapshots(table(partition("d", 120)), times + ([NOW - oldest] if oldest else []))


def gone(found: Plan) -> int:
    return sum(int(step.detail["go"]) for step in steps_of(found, "expire"))


@pytest.mark.parametrize(
    ("facts", "keys", "go"),
    [
        (every(MINUTE, 300), {}, 0),
        (every(MINUTE, 301), {}, 1),
        (every(MINUTE, 360), {}, 60),
        (every(10 * MINUTE, 300), {}, 300 - 145),
        (every(MINUTE, 100), {"keep": "1h"}, 39),
        (every(MINUTE, 80), {"keep": "1h"}, 0),
        (every(DAY, 8), {}, 0),
        (every(DAY, 12), {}, 2),
        (every(MINUTE, 20, oldest=47 * HOUR), {}, 0),
        (every(MINUTE, 20, oldest=49 * HOUR), {}, 1),
        (every(MINUTE, 1000), {"keep": "6h", "time_travel": "6h", "max_snapshots": 100}, 1000 - 361),
        (every(MINUTE, 400), {"time_travel": "24h"}, 0),
        (every(MINUTE, 1000), {"max_snapshots": 100, "min_snapshots": 100}, 900),
    ],
)
def test_how_many_snapshots_go(facts: TableFacts, keys: dict[str, Any], go: int) -> None:
    found = made(facts, expire=keys)
    assert gone(found) == go
    assert len(steps_of(found, "expire")) + len(skips_of(found, "expire")) == 1
    for step in steps_of(found, "expire"):
        assert (step.files_before, step.files_after, step.bytes) == (facts.snapshots, facts.snapshots - go, 0)
        assert step.detail["cutoff"] == facts.snapshot_times[go].isoformat()


def test_the_reasons_of_expiry() -> None:
    def said(facts: TableFacts, **keys: Any) -> str:
        found = made(facts, expire=keys)
        return [*steps_of(found, "expire"), *skips_of(found, "expire")][0].reason

    assert said(every(MINUTE, 360)) == ("360 snapshots (at least 10, at most 300): 60 too many, the oldest of 6 h ago.")
    assert said(every(10 * MINUTE, 290)) == (
        "290 snapshots (at least 10, at most 300): 145 are older than 1d, the oldest of 2 days ago."
    )
    assert said(every(MINUTE, 400), time_travel="24h") == (
        "Nothing may go: 400 snapshots (at least 10, at most 300); beyond the fewest, none is older than 1d. "
        "What time_travel promises stays."
    )
    assert said(every(MINUTE, 80), keep="1h") == (
        "Not worth it yet: 19 of 80 snapshots (at least 10, at most 300) may go; at 20 they do, or once "
        "one is a day older."
    )


def test_a_promise_that_the_number_cannot_keep_is_warned_of() -> None:
    facts = replace(every(MINUTE, 60), commits_per_day=1440.0)
    (warning,) = made(facts, expire={"time_travel": "24h"}).warnings
    assert warning == (
        "At 1,440 commits a day, expire.max_snapshots (300) reaches 5 h back, less than expire.time_travel "
        "promises (1d). "
        "The promise is kept: there will be about 1,440 snapshots, and each commit takes longer for it. Use a longer "
        "trigger, or promise less."
    )
    assert made(facts, expire={"time_travel": "5h"}).warnings == ()
    assert made(facts).warnings == ()


def test_what_a_tag_holds_is_not_tried_every_hour() -> None:
    tagged = replace(every(MINUTE, 20, oldest=49 * HOUR), refs=("tag",))
    assert gone(made(tagged)) == 0
    assert "branches or tags hold as many" in skips_of(made(tagged), "expire")[0].reason
    assert gone(made(replace(every(MINUTE, 302, oldest=49 * HOUR), refs=("tag",)))) == 3


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=400),
    st.integers(1, 50),
    st.integers(50, 200),
    st.sampled_from([1, 10, 24]),
    st.sampled_from([None, "1h", "10h"]),
)
def test_the_rules_of_expiry(minutes: list[int], fewest: int, most: int, keep: int, promised: str | None) -> None:
    facts = with_snapshots(table(partition("d", 120)), [NOW - each * MINUTE for each in minutes])
    if promised == "10h":
        keep = max(keep, 10)
    expire = {"min_snapshots": fewest, "max_snapshots": most, "keep": f"{keep}h", "time_travel": promised or "none"}
    found = made(facts, expire=expire)
    for step in steps_of(found, "expire"):
        cutoff = datetime.fromisoformat(str(step.detail["cutoff"]))
        stay = [time for time in facts.snapshot_times if time >= cutoff]
        assert len(stay) == step.files_after >= fewest
        assert len(stay) >= min(most, facts.snapshots) or all(
            time >= cutoff for time in facts.snapshot_times if NOW - time < keep * HOUR
        )
        if promised:
            start = NOW - timedelta(hours=int(promised[:-1]))
            assert cutoff <= start
    left = facts.snapshots - gone(found)
    if not promised:
        # Those of one millisecond go together or not at all.
        tied = facts.snapshot_times.count(facts.snapshot_times[max(0, facts.snapshots - most)])
        assert left <= most + tied - 1 or left == facts.snapshots


@pytest.mark.parametrize(
    ("more", "after"),
    [
        ({"manifests": 100, "manifest_bytes": 100 * 3 * MB}, None),
        ({"manifests": 101, "manifest_bytes": 101 * 3 * MB}, 38),
        ({"manifests": 200, "manifest_bytes": 200 * 8 * MB}, None),
        ({"manifests": 20, "manifest_bytes": 20_000}, None),
        ({"manifests": 21, "manifest_bytes": 21_000}, 1),
        ({"manifests": 21, "manifest_bytes": 21_000, "delete_manifests": 3}, 2),
        ({"manifests": 21, "manifest_bytes": 21 * 3 * MB}, None),
        ({"manifests": 21, "manifest_bytes": 21 * 3 * MB, "mixed_specs": True}, 9),
        ({"manifests": 3, "manifest_bytes": 3_000, "mixed_specs": True}, None),
        ({"manifests": 0, "manifest_bytes": 0}, None),
    ],
)
def test_manifests(more: dict[str, Any], after: int | None) -> None:
    found = made(table(partition("d", 120), **more))
    steps = steps_of(found, "manifests")
    assert [step.files_after for step in steps] == ([] if after is None else [after])
    assert len(steps) + len(skips_of(found, "manifests")) == 1


def test_what_a_compaction_adds_is_merged_in_the_same_run() -> None:
    """20 manifests are well; the 21st, of the compaction, made the next plan want them merged."""
    facts = table(partition("d", *[1.0] * 12), manifests=20, manifest_bytes=20_000)
    found = made(facts)
    assert [step.action for step in found.steps] == ["compact", "manifests"]
    assert "20 manifests of 1,000 bytes on average, and up to 1 more by the steps before" in found.steps[1].reason
    after, history = carried_out(found, facts, LOOKED, NOW)
    assert made(after, history).steps == ()
    alone = made(table(partition("d", 120), manifests=20, manifest_bytes=20_000))
    assert alone.steps == ()


def test_manifests_of_several_specs_never_become_one() -> None:
    groups = {"manifests": 24, "manifest_bytes": 24_000, "mixed_specs": True, "manifest_groups": (20_000, 2_000, 2_000)}
    (step,) = steps_of(made(table(partition("d", 120), **groups)), "manifests")
    assert step.files_after == 3
    # As large as the table's own property says, which is what Iceberg goes by.
    own = {**groups, "properties": {"commit.manifest.target-size-bytes": "4000"}}
    assert steps_of(made(table(partition("d", 120), **own)), "manifests")[0].files_after == 7
    wide = {**groups, "manifest_groups": (2_000,) * 12}
    assert steps_of(made(table(partition("d", 120), **wide)), "manifests")[0].files_after == 12
    too_wide = {**groups, "manifest_groups": (1_800,) * 13}
    (skip,) = skips_of(made(table(partition("d", 120), **too_wide)), "manifests")
    assert "13 would be left, too many to pay" in skip.reason


def test_small_delete_files_are_brought_together_where_nothing_else_comes() -> None:
    few: dict[str, Any] = {"delete_files": 5, "delete_bytes": 5_000, "position_deletes": 50}
    hot = partition("hot", 100, 100, ago=MINUTE, **few)
    fewer = partition("fewer", 100, 100, **{**few, "delete_files": 4})
    equality = partition("equality", 100, 100, equality_deletes=1, **few)
    found = made(table(hot, fewer, equality, partition("cold", 100, 100, **few)))
    (step,) = found.steps
    assert (step.action, step.scope, step.files_before, step.files_after, step.bytes) == (
        "position_deletes", "cold", 5, 1, 5_000,
    )  # fmt: skip
    assert [skip.scope for skip in skips_of(found, "position_deletes")] == ["hot"]
    done = LOOKED.done("position_deletes", NOW - HOUR, spec_id=0, scope="cold")
    assert made(table(partition("cold", 100, 100, **few)), done).steps == ()


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


def test_nothing_is_deleted_where_others_own_the_files() -> None:
    facts = replace(every(MINUTE, 400), properties={"gc.enabled": "FALSE", "frazil.stamp.a": ""})
    found = made(facts, MaintenanceHistory())
    assert [step.action for step in found.steps] == ["metadata"]
    assert all("gc.enabled=false" in skips_of(found, action)[0].reason for action in ("expire", "orphans"))


@pytest.mark.parametrize(("days", "due"), [(6.9, False), (7, True)])
def test_orphans_are_looked_for_every_so_often(days: float, due: bool) -> None:
    done = MaintenanceHistory().done("orphans", NOW - timedelta(days=days))
    found = made(table(partition("d", 120)), done)
    assert bool(steps_of(found, "orphans")) == due
    for step in found.steps:
        assert step.reason.startswith("Last looked for 7 days ago, which is done every 7d: files older than 7d")
        assert step.detail == {"older_than": (NOW - 7 * DAY).isoformat(), "max_share": 0.2, "max_files": 100_000}


def test_a_young_table_has_no_orphans_yet() -> None:
    young = table(partition("d", 120), sequence=1)
    assert "the table is younger than 7d" in skips_of(made(young, MaintenanceHistory()), "orphans")[0].reason
    assert "younger" in skips_of(made(table(snapshot_id=None), MaintenanceHistory()), "orphans")[0].reason
    for old in (replace(young, sequence=2), with_snapshots(young, [NOW - 8 * DAY])):
        assert steps_of(made(old, MaintenanceHistory()), "orphans")[0].reason.startswith("Never looked for yet")


def test_properties_are_set_on_frazil_s_own_tables() -> None:
    facts = table(partition("d", 120), properties={"frazil.stamp.a": "{}"}, previous_metadata=70)
    (step,) = made(facts).steps
    assert step.detail == {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "50",
    }
    assert (step.files_before, step.files_after) == (70, 50)
    other = made(table(partition("d", 120), properties={}, streams=()))
    assert other.steps == ()
    assert "frazil does not write this table" in skips_of(other, "metadata")[0].reason
