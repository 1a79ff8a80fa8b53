"""What a plan does, leaves and says as a whole: order, windows, failures, budget, estimates."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from jobs.maintain.health_facts import BranchFacts, MisnamedColumn
from jobs.maintain.maintenance_history import MaintenanceHistory
from jobs.maintain.plan import ACTIONS, plan_json
from jobs.maintain.plan_branches import RemakeForecast
from jobs.maintain.plan_changes import ChangesForecast
from jobs.maintain.planner import plan
from tests.unit.maintain.plan_fixtures import (
    DAY,
    HOUR,
    LOOKED,
    MB,
    NOW,
    carried_out,
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
    found = plan(spoilt, policy(), MaintenanceHistory(), NOW, gated=gated, changes=due)
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
