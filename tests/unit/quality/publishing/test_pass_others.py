"""The publication without rows, by which main is past others' rows on a branch, is killed and made again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.quality.publishing.gate import Verdict
from jobs.quality.publishing.gated import publish_if_fit
from jobs.quality.publishing.main_freshness import main_freshness
from jobs.quality.publishing.publishing import publish
from jobs.tables.commit.history.publications import publications
from tests.unit.quality.publishing.branch_world import AtStep, BranchWorld, Killed
from tests.unit.quality.publishing.test_continuity import expire

Publish = Callable[[BranchWorld], object]


def by_hand(world: BranchWorld) -> object:
    return world.publish()


def judged(world: BranchWorld) -> object:
    judge = lambda interval: Verdict(True, (), "c")  # noqa: E731
    return publish_if_fit(world.spec, world.settings, world.catalog(), "tester", judge, "c")


@pytest.fixture(params=[by_hand, judged], ids=["by hand", "by contract"])
def publishes(request: pytest.FixtureRequest) -> Publish:
    return request.param


@pytest.fixture
def world(tmp_path: Path, publishes: Publish) -> BranchWorld:
    """Payments has published all that it has; others has landed since, and published that."""
    made = BranchWorld(tmp_path / "home")
    made.land(1)
    publishes(made)
    made.land(2, "others")
    others = made.spec.model_copy(update={"stream": "others"})
    publish(others, made.settings, made.catalog(), "tester")
    return made


def through(world: BranchWorld) -> int:
    newest = publications(world.table(), "payments").newest
    assert newest is not None
    return newest.published["ingest"]


def test_killed_in_its_commit_it_is_made_by_the_next(world: BranchWorld, publishes: Publish) -> None:
    before, rows = through(world), world.rows()
    with AtStep("inside_hold") as armed, pytest.raises(Killed):
        publishes(world)
    assert armed.passed
    assert (through(world), world.rows()) == (before, rows), "nothing is said yet"
    world.lose_state()
    publishes(world)
    assert through(world) > before
    assert world.rows() == rows
    head = world.table().metadata.current_snapshot_id
    publishes(world)
    assert world.table().metadata.current_snapshot_id == head, "it is said once"
    # What it is past may expire, and nobody takes others' rows for the stream's.
    metadata = world.table().metadata
    keep = {each.snapshot_id for each in metadata.refs.values()}
    expire(world, [each.snapshot_id for each in metadata.snapshots if each.snapshot_id not in keep])
    more = world.land(1)
    publishes(world)
    assert world.rows() == rows + Counter(more)


def test_what_lands_in_that_moment_is_not_passed_over(world: BranchWorld, publishes: Publish) -> None:
    rows, more = world.rows(), []
    with AtStep("inside_hold", lambda: more.extend(world.land(2))):
        publishes(world)
    assert len(more) == 2
    publishes(world)
    assert world.rows() == rows + Counter(more)
    found = main_freshness(world.table().metadata, "payments", "ingest")
    assert found is not None
    assert not found.lacks
