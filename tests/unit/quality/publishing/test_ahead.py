"""How far a branch is ahead of main, by metadata alone; and what maintenance keeps for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.config.services.maintenance_policy import Policy
from jobs.maintenance.plan.table_context import TableContext
from jobs.maintenance.run.snapshot_holds import CEILING, holds
from jobs.quality.publishing.main_freshness import branch_ahead
from tests.unit.quality.publishing.branch_world import NAME, BranchWorld


@pytest.fixture
def world(tmp_path: Path) -> BranchWorld:
    return BranchWorld(tmp_path / "home")


def ahead(world: BranchWorld) -> Any:
    found = branch_ahead(world.table().metadata, "payments")
    assert found is not None
    return found


def test_nothing_is_said_of_a_stream_on_main_or_that_never_ran(world: BranchWorld) -> None:
    assert branch_ahead(world.table().metadata, "payments") is None
    world.land(1)
    assert branch_ahead(world.table().metadata, "others") is None


def test_it_counts_what_the_stream_landed_since(world: BranchWorld) -> None:
    world.claim()
    assert (ahead(world).snapshots, ahead(world).rows, ahead(world).since) == (0, 0, None)
    world.land(2)
    world.land(3)
    world.land(1, "others")
    found = ahead(world)
    assert (found.branch, found.snapshots, found.rows, found.published) == ("ingest", 2, 5, False)
    assert found.since is not None and found.kept_from is not None
    assert found.kept_from <= found.since
    world.publish()
    assert (ahead(world).snapshots, ahead(world).kept_from, ahead(world).published) == (0, None, True)
    world.land(4)
    assert (ahead(world).snapshots, ahead(world).rows) == (1, 4)


def held_for_publishing(world: BranchWorld, now: datetime) -> list[Any]:
    def no_spark() -> Any:
        raise AssertionError

    context = TableContext(world.catalog(), world.settings, [world.spec], NAME, Policy(), no_spark)
    every = holds(context, world.table(), now)
    return [each for each in every if each.what == "publishing payments"]


def test_snapshots_stay_until_they_are_published(world: BranchWorld) -> None:
    now = datetime.now(UTC)
    world.land(1)
    world.publish()
    assert held_for_publishing(world, now) == []
    world.claim()
    world.land(2)
    (hold,) = held_for_publishing(world, now)
    assert hold.since == ahead(world).kept_from
    assert "2 rows on branch ingest are not published: frazil publish payments" in hold.why
    assert not hold.warn
    (late,) = held_for_publishing(world, now + CEILING + timedelta(days=1))
    assert (late.since, late.warn) == (hold.since, True), "however long that takes"


def test_a_branch_that_was_never_published_holds_a_week(world: BranchWorld) -> None:
    world.land(1)
    later = datetime.now(UTC) + timedelta(days=30)
    (hold,) = held_for_publishing(world, later)
    assert (hold.since, hold.warn) == (later - CEILING, True)


def test_a_gated_branch_holds_from_the_first_row_on(tmp_path: Path) -> None:
    expected = {"expectations": [{"expect_column_values_to_not_be_null": {"column": "id"}}]}
    world = BranchWorld(tmp_path / "home", contract=expected, publish={"gate": "contract"})
    world.land(1)
    (hold,) = held_for_publishing(world, datetime.now(UTC) + timedelta(days=30))
    assert hold.since == ahead(world).kept_from


def test_rows_of_others_behind_a_publication_are_kept_until_it_is_past_them(world: BranchWorld) -> None:
    world.land(1)
    world.publish()
    world.land(2, "others")
    now = datetime.now(UTC)
    (held,) = held_for_publishing(world, now)
    assert "rows of other streams on branch ingest" in held.why
    world.publish()
    assert not held_for_publishing(world, now)
