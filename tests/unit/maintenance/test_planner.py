"""What a plan does, leaves and says as a whole: order, windows, failures, budget, estimates."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.config.services.maintenance_policy import Policy
from jobs.maintenance.measure.health_facts import (
    BranchFacts,
    MisnamedColumn,
    PartitionFacts,
    TableFacts,
)
from jobs.maintenance.measure.maintenance_history import MaintenanceHistory
from jobs.maintenance.plan.plan import ACTIONS, plan_json
from jobs.maintenance.plan.plan_expiry import ChangesForecast
from jobs.maintenance.plan.plan_metadata import RemakeForecast
from jobs.maintenance.plan.planner import plan
from tests.unit.maintenance.plan_fixtures import (
    DAY,
    HOUR,
    LOOKED,
    MB,
    NOW,
    carried_out,
    cutoff_of,
    made,
    partition,
    policy,
    skips_of,
    steps_of,
    table,
    with_snapshots,
)

SMALL = [1.0] * 20


def test_a_healthy_table_needs_nothing_and_each_skip_says_why() -> None:
    found = made(table(partition("d1", 120, 130), partition("d2", 100)))
    assert found.steps == ()
    assert [skip.action for skip in found.skips] == ["compact", "manifests", "expire", "orphans", "metadata"]
    assert all(skip.reason.endswith(".") and any(c.isdigit() for c in skip.reason) for skip in found.skips)


def test_partitions_that_nobody_looked_at_are_well() -> None:
    (skip,) = skips_of(made(replace(table(partition("d", 120)), partitions=None)), "compact")
    assert (
        skip.reason == "Healthy: 1 data files of 120 MiB on average and no deletes; its partitions were not looked at."
    )


def test_steps_come_in_their_order_and_the_plan_is_json() -> None:
    spoilt = table(
        partition("d", *SMALL, delete_files=30, delete_bytes=MB, position_deletes=5_000),
        manifests=150,
        manifest_bytes=MB,
        snapshot_times=[NOW - n * HOUR for n in range(400)],
        properties={"frazil.stamp.a": "{}"},
        branches=(BranchFacts("ingest", 900, 900 * MB, 800, 800 * MB, 10, MB),),
    )
    due = ChangesForecast(30 * DAY, NOW - 30 * DAY, files=2, rows=9, bytes=MB, all_files=5)
    gated = {"ingest": RemakeForecast(9, 3)}
    history, cutoff = MaintenanceHistory(), cutoff_of(spoilt, policy())
    found = plan(spoilt, policy(), history, NOW, cutoff=cutoff, gated=gated, changes=due)
    assert tuple(step.action for step in found.steps) == ACTIONS
    assert (found.bytes, found.skips) == (sum(step.bytes for step in found.steps), ())
    shown = json.loads(json.dumps(plan_json(found)))
    assert shown["steps"][0]["partition"] == {"day": "d"}
    assert shown["steps"][0]["bytes"] == 21 * MB
    assert "sizes" not in json.dumps(shown)


@pytest.mark.parametrize(
    ("facts", "keys", "reason"),
    [
        ({}, {"enabled": False}, "maintenance.enabled is false for this table."),
        ({"format_version": 4}, {}, "Format version 4 is not supported; 1, 2 and 3 are."),
        ({"unread": ("at",)}, {}, "Spark does not know the type time, so it can do nothing to the table: at."),
        (
            {"misnamed": (MisnamedColumn("at_day", "it is taken", loads=False),), "streams": ("payments",)},
            {},
            "Spark can do nothing to the table: it is taken. `frazil schema apply payments --rename at_day=NEW` gives "
            "the column another name.",
        ),
    ],
)
def test_nothing_at_all(facts: dict[str, Any], keys: dict[str, Any], reason: str) -> None:
    found = made(table(partition("d", *SMALL), **facts), **keys)
    assert found.steps == ()
    assert [(skip.action, skip.reason) for skip in found.skips] == [(action, reason) for action in ACTIONS]


def test_what_spark_cannot_rewrite_is_not_compacted() -> None:
    why = MisnamedColumn("_pos", "_pos is a metadata column", loads=True)
    assert [each.action for each in made(table(partition("d", *SMALL))).steps] == ["compact"]
    found = made(table(partition("d", *SMALL), misnamed=(why,)))
    (skip,) = (each for each in found.skips if each.action == "compact")
    assert found.steps == () and len(found.skips) > 1
    assert skip.reason == (
        "Spark can rewrite no data file of the table: _pos is a metadata column. `frazil schema apply payments "
        "--rename _pos=NEW` gives the column another name."
    )


def test_each_action_can_be_switched_off() -> None:
    keys: dict[str, Any] = {
        name: {"enabled": False} for name in ("compact", "manifests", "expire", "orphans", "metadata")
    }
    spoilt = table(partition("d", *SMALL), manifests=150, properties={"frazil.stamp.a": "{}"})
    spoilt = with_snapshots(spoilt, [NOW - n * HOUR for n in range(400)])
    found = made(spoilt, MaintenanceHistory(), **keys)
    assert found.steps == ()
    assert [skip.reason for skip in found.skips] == [f"{name}.enabled is false." for name in keys]


def test_outside_the_windows_only_metadata_work_is_done() -> None:
    spoilt = table(partition("d", *SMALL), manifests=150, properties={"frazil.stamp.a": "{}"})
    spoilt = with_snapshots(spoilt, [NOW - n * HOUR for n in range(400)])
    found = made(spoilt, MaintenanceHistory(), windows=["22:00-05:00"])
    assert [step.action for step in found.steps] == ["expire", "metadata"]
    assert [skip.action for skip in found.skips] == ["compact", "manifests", "orphans"]
    assert found.skips[0].reason.startswith("Outside the windows (22:00-05:00 UTC): 20 files of 20 MiB")
    inside = made(spoilt, MaintenanceHistory(), windows=["22:00-05:00", "11:00-13:00"])
    assert [step.action for step in inside.steps] == ["compact", "manifests", "expire", "orphans", "metadata"]


@pytest.mark.parametrize(("failures", "hours"), [(2, 0), (3, 1), (4, 2), (7, 16), (8, 24), (90, 24)])
def test_what_fails_again_and_again_waits_longer_and_longer(failures: int, hours: int) -> None:
    history = LOOKED
    for _ in range(failures):
        history = history.failed("compact", NOW, "disk full", spec_id=0, scope="bad")
    facts = table(partition("bad", *SMALL), partition("good", *SMALL))
    for minutes, scopes in ((-1, ["good"]), (0, ["bad", "good"])):
        now = NOW + timedelta(hours=hours, minutes=minutes)
        if now < NOW:
            continue
        found = made(facts, history, now, orphans={"enabled": False})
        assert [step.scope for step in steps_of(found, "compact")] == scopes
    if hours:
        (skip,) = skips_of(made(facts, history), "compact")
        assert skip.scope == "bad"
        assert skip.reason.startswith(f"It failed {failures} times in a row")
        assert skip.reason.endswith("disk full")


def test_the_budget_buys_the_most_files_first() -> None:
    facts = table(
        partition("a", *[10.0] * 20),
        partition("b", *[1.0] * 20),
        partition("c", *[2.0] * 20),
        partition("d", *[1.0] * 20),
    )
    found = made(facts, budget="250MB")
    assert [step.scope for step in steps_of(found, "compact")] == ["b", "d", "c"]
    (skip,) = skips_of(found, "compact")
    assert skip.scope == "a"
    assert skip.reason.startswith(
        "Over budget: it would rewrite 200 MiB, and 170 MiB of the run's 250 MiB are left: "
        "the next run looks again. 20 files"
    )
    assert found.bytes == 80 * MB


def test_of_a_partition_larger_than_the_budget_a_part_is_taken() -> None:
    facts = table(partition("a", *[10.0] * 100))
    (step,) = made(facts, budget="200MB").steps
    assert (step.bytes, step.files_before, step.files_after) == (200 * MB, 100, 82)
    assert step.detail["max_files_to_rewrite"] == 20
    assert step.reason.endswith("Only 20 of them fit into the budget of 200 MiB; the rest is for later runs.")
    history, runs = LOOKED, 0
    while (found := made(facts, history, NOW, budget="200MB")).steps:
        facts, history = carried_out(found, facts, history, NOW)
        runs += 1
    assert (runs, facts.data_files) == (5, 10)


def test_what_cannot_be_taken_in_parts_asks_for_a_greater_budget() -> None:
    facts = table(partition("a", *[100.0] * 5, delete_files=30, position_deletes=5))
    found = made(facts, budget="200MB")
    assert steps_of(found, "compact") == []
    assert "a run may rewrite 200 MiB: raise maintenance.budget." in skips_of(found, "compact")[0].reason


def test_estimates_come_from_the_table_s_own_history() -> None:
    facts = table(partition("a", *SMALL))
    (first,) = made(facts).steps
    assert first.seconds == pytest.approx(2 + 20 * MB / 10e6)
    (more,) = plan(facts, policy(), LOOKED, NOW, cores=4).steps
    assert more.seconds == pytest.approx(2 + 20 * MB / 40e6)
    known = LOOKED.done("compact", NOW - 2 * HOUR, spec_id=0, scope="x", size=100 * MB, seconds=50)
    (then,) = made(facts, known).steps
    assert then.seconds == pytest.approx(10)


sizes = st.lists(st.floats(0.001, 300), max_size=30)


@st.composite
def partitions(draw: st.DrawFn) -> PartitionFacts:
    deletes = draw(st.sampled_from([0, 0, 0, 1, 3, 12]))
    ago = draw(st.sampled_from([None, timedelta(minutes=1), 2 * HOUR, 3 * DAY]))
    more = {
        "delete_files": deletes,
        "delete_bytes": deletes * 900,
        "position_deletes": deletes * draw(st.integers(0, 900)),
    }
    return partition("", *draw(sizes), ago=ago, **more)


@st.composite
def tables(draw: st.DrawFn) -> TableFacts:
    drawn = draw(st.lists(partitions(), max_size=6))
    named = [replace(each, name=f"d{index}") for index, each in enumerate(drawn)]
    facts = table(*named, manifests=draw(st.integers(1, 300)), manifest_bytes=draw(st.integers(1, 10**9)))
    facts = replace(
        facts,
        mixed_specs=draw(st.booleans()),
        delete_manifests=draw(st.integers(0, 1)),
        format_version=draw(st.sampled_from([1, 2, 2, 3])),
        properties=draw(st.sampled_from([{}, {"frazil.ledger.a": "1"}, {"gc.enabled": "false"}])),
        streams=(),
    )
    minutes = draw(st.lists(st.integers(0, 6000), min_size=1, max_size=400))
    return with_snapshots(facts, [NOW - timedelta(minutes=each) for each in minutes])


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    compact = {
        "target": draw(st.sampled_from(["128MB", "10MB", "100MB"])),
        "fragment": draw(st.sampled_from(["1/8", 0.01, 0.9])),
        "min_files": draw(st.integers(2, 20)),
    }
    if draw(st.booleans()):
        compact |= {"strategy": draw(st.sampled_from(["sort", "zorder"])), "sort_by": ["a", "b"]}
    expire = {"max_snapshots": draw(st.integers(10, 300)), "keep": draw(st.sampled_from(["1h", "24h"]))}
    if draw(st.booleans()):
        expire["time_travel"] = "1h"
    return policy(compact=compact, expire=expire, budget=draw(st.sampled_from(["200MB", "1GB", "50GB"])))


@settings(max_examples=150, deadline=None)
@given(tables(), policies())
def test_of_every_plan(facts: TableFacts, drawn: Policy) -> None:
    found = plan(facts, drawn, LOOKED, NOW, cutoff=cutoff_of(facts, drawn))
    assert plan(facts, drawn, LOOKED, NOW, cutoff=cutoff_of(facts, drawn)) == found
    assert found.bytes <= drawn.budget
    compacted = [step.scope for step in found.steps if step.action == "compact"]
    assert len(compacted) == len(set(compacted))
    assert [ACTIONS.index(step.action) for step in found.steps] == sorted(ACTIONS.index(s.action) for s in found.steps)
    assert all(step.reason and step.seconds > 0 for step in found.steps)
    told = {each.action for each in (*found.steps, *found.skips)}
    assert told >= {"compact", "manifests", "expire", "orphans", "metadata"} - (
        {"compact"} if not facts.partitions else set()
    )
    done = {(step.action, step.scope) for step in found.steps}
    assert not done & {(skip.action, skip.scope) for skip in found.skips}
    json.dumps(plan_json(found))


@st.composite
def evolved(draw: st.DrawFn) -> TableFacts:
    """A table that was not partitioned at first, by days since."""
    before = partition("", *draw(sizes))
    days = [replace(partition(f"d{index}", *draw(sizes)), spec_id=1) for index in range(draw(st.integers(1, 4)))]
    facts = table(before, *days, spec_id=1, manifests=draw(st.integers(1, 60)), manifest_bytes=200_000)
    return replace(facts, mixed_specs=bool(before.files))


@settings(max_examples=150, deadline=None)
@given(evolved())
def test_no_file_is_rewritten_by_two_steps_after_a_change_of_the_partitioning(facts: TableFacts) -> None:
    """A step on files without partitions takes the small ones of all of them: no condition leaves any out."""
    found = plan(facts, policy(), LOOKED, NOW)
    steps = [step for step in found.steps if step.action == "compact"]
    whole = [step for step in steps if step.partition and not step.partition.values]
    assert len(whole) <= 1
    for step in whole:
        limit = int(step.detail["min_file_size_bytes"])
        touched = [each for each in facts.partitions or () if not each.values or len(each.smaller(limit)) > 1]
        assert steps == [step]
        assert step.files_before == sum(each.files for each in touched)
        assert step.bytes == sum(sum(each.smaller(limit)) for each in touched)


@settings(max_examples=100, deadline=None)
@given(tables(), policies())
def test_what_is_done_stays_done(facts: TableFacts, drawn: Policy) -> None:
    """Without new commits the plans come to an end, whatever the hour.

    At the same moment after one run; after two, where the deletes that made a hot partition wait went in the first.
    """
    drawn = drawn.model_copy(update={"budget": 10**15})
    history = LOOKED
    merged = facts.delete_files > 0
    for hours in (0, 0, 2, 4, 30, 60, 61):
        now = NOW + hours * HOUR
        found = plan(facts, drawn, history, now, cutoff=cutoff_of(facts, drawn, now))
        facts, history = carried_out(found, facts, history, now)
        again = plan(facts, drawn, history, now, cutoff=cutoff_of(facts, drawn, now))
        assert {step.action for step in again.steps} <= ({"compact"} if merged and not facts.delete_files else set())
        facts, history = carried_out(again, facts, history, now)
        assert plan(facts, drawn, history, now, cutoff=cutoff_of(facts, drawn, now)).steps == ()
        merged = facts.delete_files > 0
    assert found.steps == ()
