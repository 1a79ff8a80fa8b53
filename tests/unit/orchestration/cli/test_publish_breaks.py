"""`frazil publish` where a branch does not go on from its publications: what it says, and what ends it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from click.testing import Result

from jobs.quality.publishing.publishing import publish
from tests.helpers.command import frazil
from tests.unit.quality.publishing.branch_world import BranchWorld
from tests.unit.quality.publishing.test_continuity import (
    accept,
    expire,
    head,
    land_on,
    point,
    writing,
)


@pytest.fixture
def world(tmp_path: Path) -> BranchWorld:
    return BranchWorld(tmp_path / "home")


def refused(world: BranchWorld, *said: str) -> str:
    """Publishing is refused with these words, changes nothing, and names the command that goes on."""
    before = world.rows()
    done = frazil(world, "publish", "payments")
    assert done.exit_code == 1, done.output
    text = " ".join(done.stderr.split())
    for each in (*said, "Nothing was published", "frazil publish payments --after-rollback leave-out", "--reason"):
        assert each in text
    assert world.rows() == before
    return text


def answered(world: BranchWorld, answer: str) -> Result:
    return frazil(world, "publish", "payments", "--after-rollback", answer, "--yes", "--reason", "looked at it")


def test_a_branch_that_was_moved_back(world: BranchWorld) -> None:
    ids = world.land(2)
    before = head(world, "ingest")
    ids += world.land(3)
    world.publish()
    point(world, "ingest", before)
    accept(world, "reland")
    world.land(3)
    said = refused(world, "branch ingest does not have the snapshot through which it was published")
    assert "--after-rollback again" in said
    assert answered(world, "leave-out").exit_code == 0
    assert frazil(world, "publish", "payments").exit_code == 0
    assert world.rows() == Counter(ids)


def test_another_branch_that_was_published(world: BranchWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.append_to_main(1)
    waited = world.land(2)
    accept(world, "keep", "b")
    other = land_on(world, "b", 2, monkeypatch)
    publish(writing(world, "b"), world.settings, world.catalog(), "tester")
    accept(world, "keep")
    more = world.land(1)
    said = refused(world, "older than the last publication, which was of another branch")
    assert "--after-rollback again" in said
    assert answered(world, "again").exit_code == 0
    assert frazil(world, "publish", "payments").exit_code == 0
    assert world.rows() == Counter([-1, *waited, *other, *more])


def test_records_that_landed_on_main_meanwhile(world: BranchWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.append_to_main(1)
    ids = world.land(2)
    accept(world, "reland", "main")
    land_on(world, "main", 2, monkeypatch)
    accept(world, "keep")
    world.land(1)
    said = refused(world, "on main itself", "they would be there twice", "payments-0 [0, 3)")
    assert "--after-rollback again" not in said, "that would double them"
    again = answered(world, "again")
    assert again.exit_code == 1
    assert "they would be there twice" in " ".join(again.stderr.split())
    assert answered(world, "leave-out").exit_code == 0
    more = world.land(1)
    assert frazil(world, "publish", "payments").exit_code == 0
    assert world.rows() == Counter([-1, *ids, *more])


def test_a_rollback_of_main_of_which_nobody_knows_what_it_kept(world: BranchWorld) -> None:
    world.append_to_main(1)
    world.land(2)
    world.publish()
    first = head(world)
    world.append_to_main(1)
    kept, rows = head(world), world.rows()
    world.land(3)
    world.publish()
    expire(world, [first])
    for each in world.table().metadata.metadata_log:
        Path(each.metadata_file.removeprefix("file://")).unlink()
    point(world, "main", kept)
    for each in world.table().metadata.metadata_log[:-1]:
        Path(each.metadata_file.removeprefix("file://")).unlink(missing_ok=True)
    again = answered(world, "again")
    assert again.exit_code == 1
    said = " ".join(again.stderr.split())
    assert "have expired. Nothing was decided" in said
    assert "--after-rollback leave-out" in said
    assert answered(world, "leave-out").exit_code == 0
    assert frazil(world, "publish", "payments").exit_code == 0
    assert world.rows() == rows
