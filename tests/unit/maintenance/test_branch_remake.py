"""The remake of a branch as a step of maintenance: when it is planned, what it leaves, what it costs to keep."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from jobs.config.services.maintenance_policy import Policy, Remake
from jobs.config.settings.maintained_tables import MaintainedTable
from jobs.maintenance.measure.health_facts import BranchFacts, TableFacts
from jobs.maintenance.measure.health_measurement import measure_health
from jobs.maintenance.measure.maintenance_history import MaintenanceHistory
from jobs.maintenance.plan.plan import PlanInput, Skip, Step
from jobs.maintenance.plan.plan_metadata import RemakeForecast, branch_warnings, plan_branches
from jobs.maintenance.plan.planner import plan
from jobs.maintenance.plan.results import TableResult
from jobs.maintenance.plan.table_context import utc_now
from jobs.maintenance.run.table_maintenance import maintain_table
from jobs.tables.commit.history.reissue import last_remade, reissued
from tests.unit.maintenance.plan_fixtures import (
    MB,
    NOW,
    partition,
    policy,
    table,
)
from tests.unit.quality.publishing.branch_world import NAME, BranchWorld
from tests.unit.quality.publishing.test_remake import along, gated_world, paths


def planned(facts: BranchFacts, gated: dict[str, RemakeForecast | None], **keys: Any) -> Step | Skip:
    at = PlanInput(table(partition("d", 120), branches=(facts,)), MaintenanceHistory(), NOW)
    (found,) = plan_branches(at, Remake(**keys), gated)
    return found


COSTS = BranchFacts("ingest", 30, 30 * MB, 20, 20 * MB, 10, 10 * MB)
SAID = "20 files of 20 MiB that main has replaced, and 10 of 10 MiB that main lacks"


def test_a_branch_that_keeps_much_is_remade() -> None:
    found = planned(COSTS, {"ingest": RemakeForecast(4, 3)}, files=20)
    assert isinstance(found, Step)
    assert (found.action, found.scope, found.files_before, found.files_after) == ("remake", "ingest", 30, 11)
    assert found.reason == (
        f"The branch keeps {SAID}: it begins again at main's head, with 3 snapshots that are not published."
    )
    assert isinstance(planned(COSTS, {"ingest": RemakeForecast()}, files=99, size="20MB"), Step)


@pytest.mark.parametrize(
    ("gated", "keys", "action", "reason"),
    [
        (
            {"ingest": None},
            {"files": 21, "size": "21MB"},
            "remake",
            f"Not worth it yet: this branch keeps {SAID}; at 21 files, or 21MB, that main has replaced it does.",
        ),
        (
            {"ingest": RemakeForecast(refused="Main was rolled back.")},
            {"files": 1},
            "remake",
            f"This branch keeps {SAID}. Main was rolled back.",
        ),
        ({"ingest": None}, {"enabled": False}, "remake", f"remake.enabled is false: this branch keeps {SAID}."),
        ({}, {"files": 1}, "compact", f"Only main is compacted: this branch keeps {SAID}."),
    ],
)
def test_what_is_left_says_what_it_costs(gated: Any, keys: Any, action: str, reason: str) -> None:
    found = planned(COSTS, gated, **keys)
    assert isinstance(found, Skip)
    assert (found.action, found.reason) == (action, reason)


@pytest.mark.parametrize(
    ("branch", "gated", "keys", "said"),
    [
        # Ungated: what main has replaced, by number or by size; or small files of its own that nobody compacts.
        (COSTS, {}, {"files": 20}, "only main is compacted, and no stream publishes it"),
        (COSTS, {}, {"files": 99, "size": "20MB"}, "frazil publish payments, drop the branch, start the stream"),
        (COSTS, {}, {"files": 20, "enabled": False}, "It grows without end"),
        (COSTS, {}, {"files": 21, "size": "21MB"}, None),
        (BranchFacts("audit", 12, 12 * MB, 0, 0, 12, 12 * MB), {}, {"files": 12}, "It grows without end"),
        (BranchFacts("audit", 12, 1200 * MB, 0, 0, 12, 1200 * MB), {}, {"files": 12}, None),
        (BranchFacts("audit", 12, 12 * MB, 0, 0, 11, 12 * MB), {}, {"files": 12}, None),
        # Gated: remade, so nothing is said; or not remade, or not to be.
        (COSTS, {"ingest": RemakeForecast(4, 3)}, {"files": 20}, None),
        (COSTS, {"ingest": None}, {"files": 21, "size": "21MB", "enabled": False}, None),
        (BranchFacts("ingest", 12, 12 * MB, 0, 0, 12, 12 * MB), {"ingest": None}, {"files": 12}, None),
        (COSTS, {"ingest": None}, {"files": 20, "enabled": False}, "set it to true for orders.payments in frazil.yaml"),
        (
            COSTS,
            {"ingest": RemakeForecast(refused="Main was rolled back. frazil publish payments --after-rollback WHY")},
            {"files": 20},
            "It cannot be rebased: Main was rolled back. frazil publish payments --after-rollback WHY",
        ),
    ],
)
def test_a_branch_that_has_grown_and_is_not_remade_is_a_warning(
    branch: BranchFacts, gated: Any, keys: Any, said: str | None
) -> None:
    facts = table(partition("d", 120), branches=(branch,), streams=("payments",))
    found = list(branch_warnings(facts, Remake(**keys), 16 * MB, gated))
    assert len(found) == (said is not None)
    assert said is None or said in found[0]
    made = plan(facts, policy(remake=keys), MaintenanceHistory(), NOW, gated=gated)
    assert made.branches == tuple(found)
    assert made.score.total == 100, "of main alone"


@pytest.fixture
def world(tmp_path: Path) -> BranchWorld:
    return gated_world(tmp_path / "world")


def maintained(world: BranchWorld, *, dry_run: bool = False, **remake: Any) -> TableResult:
    def no_spark() -> Any:
        raise AssertionError("no Spark is needed")

    policy = Policy.model_validate({"remake": {"files": 2} | remake})
    return maintain_table(
        world.catalog(),
        world.settings,
        MaintainedTable(NAME, policy, "payments", "sink"),
        spark=no_spark,
        specs=[world.spec],
        only=["remake"],
        dry_run=dry_run,
    )


def facts(world: BranchWorld) -> TableFacts:
    return measure_health(world.table(), Policy(), utc_now())


def test_what_a_branch_keeps_is_measured(world: BranchWorld) -> None:
    world.land(2)
    world.land(2)
    assert [(each.replaced_files, each.own_files) for each in facts(world).branches] == [(0, 2)]
    world.publish()
    assert [(each.replaced_files, each.own_files) for each in facts(world).branches] == [(0, 0)]
    world.compact()
    world.land(1)
    (found,) = facts(world).branches
    sizes = {
        each.file.file_path: each.file.file_size_in_bytes
        for each in world.table().scan(snapshot_id=world.table().metadata.refs["ingest"].snapshot_id).plan_files()
    }
    assert (found.name, found.files, found.replaced_files, found.own_files) == ("ingest", 3, 2, 1)
    assert found.bytes == sum(sizes.values()) == found.replaced_bytes + found.own_bytes


def test_maintenance_remakes_a_branch_that_main_has_replaced(world: BranchWorld) -> None:
    rows = world.land(2) + world.land(2)
    world.publish()
    world.compact()
    rows += world.land(1)
    dry = maintained(world, dry_run=True)
    assert [step.action for step in dry.plan.steps] == ["remake"]
    assert "with 1 snapshot that is not published" in dry.plan.steps[0].reason
    assert last_remade(world.table().metadata, "ingest") is None
    done = maintained(world)
    (result,) = done.done
    assert result.error is None and result.done
    assert (result.files_before, result.files_after) == (3, 2)
    assert result.detail["waiting"] == 1
    assert paths(world.table(), "main") < paths(world.table(), "ingest")
    assert world.rows("ingest") == Counter(rows)
    again = maintained(world)
    assert not again.plan.steps and "Not worth it yet" in again.plan.skips[0].reason
    world.publish()
    assert world.rows() == Counter(rows)


def test_stamps_that_somebody_needs_are_issued_again(world: BranchWorld) -> None:
    world.write(errors={"tolerance": "data", "stop_above": {"window": {"of": "1h", "count": 5}}})
    world.land(2)
    world.land(2)
    world.publish()
    world.compact()
    maintained(world)
    marks = [mark for each in along(world.table()) if (mark := reissued(each))]
    assert [each.published for each in marks] == [True, True]
    world.land(1)
    world.publish()
    world.compact()
    world.write(errors={"tolerance": "data"})
    maintained(world, files=1)
    marks = [mark for each in along(world.table()) if (mark := reissued(each))]
    assert [each.published for each in marks] == [True], "nobody needs the others any more"


def test_a_plan_says_why_a_branch_is_not_remade(world: BranchWorld) -> None:
    world.land(2)
    world.land(2)
    world.land(1, "others")
    world.publish()
    world.compact()
    found = maintained(world)
    assert not found.plan.steps and not found.done
    assert "stream others, which no file names any more, has written it" in found.plan.skips[0].reason
