"""Where the stamps that would tell are gone, publishing refuses rather than doubles or passes over."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.quality.publishing.continuity import branch_break
from jobs.quality.publishing.interval import UnpublishableError
from jobs.quality.publishing.publishing import publish
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.publications import publication_id, publications
from jobs.tables.commit.stamp.stamps import Stamp, property_key
from tests.unit.quality.publishing.branch_world import BranchWorld
from tests.unit.quality.publishing.test_continuity import (
    accept,
    decide,
    expire,
    land_on,
    writing,
)


@pytest.fixture
def world(tmp_path: Path) -> BranchWorld:
    return BranchWorld(tmp_path / "home")


@pytest.fixture
def back(world: BranchWorld, monkeypatch: pytest.MonkeyPatch) -> tuple[BranchWorld, list[int], list[int]]:
    """Rows on ingest; the same ones landed on main; then ingest again, and main's stamps of it have expired."""
    world.append_to_main(1)
    ids = world.land(2)
    accept(world, "reland", "main")
    assert land_on(world, "main", 2, monkeypatch) == ids
    accept(world, "keep")
    more = world.land(1)
    world.append_to_main(1)
    metadata = world.table().metadata
    main = [each.snapshot_id for each in ancestors(metadata)]
    expire(world, main[1:])
    return world, ids, more


def test_what_may_be_there_is_not_published(back: tuple[BranchWorld, list[int], list[int]]) -> None:
    world, _, more = back
    before = world.rows()
    with pytest.raises(UnpublishableError, match="nobody can say whether the stream has landed") as told:
        world.publish()
    assert "--after-rollback leave-out" in (told.value.fix or "")
    assert world.rows() == before
    decide(world, "leave-out")
    assert world.publish().snapshot_id is None
    later = world.land(2)
    world.publish()
    assert world.rows() == before + Counter(later), "none is doubled"
    assert more[0] not in world.rows()


def test_it_is_published_if_somebody_has_looked(back: tuple[BranchWorld, list[int], list[int]]) -> None:
    world, ids, more = back
    world.table().delete("id >= 2000000")
    decide(world, "again")
    world.publish()
    assert world.rows() == Counter([-1, -2, *ids, *more])


def test_an_expiry_of_main_alone_is_no_question(world: BranchWorld) -> None:
    world.append_to_main(1)
    ids = world.land(2)
    world.publish()
    ids += world.land(1)
    world.append_to_main(1)
    expire(world, [each.snapshot_id for each in ancestors(world.table().metadata)][1:])
    world.publish()
    assert world.rows() == Counter([-1, -2, *ids])


def old(world: BranchWorld) -> Stamp:
    """The last publication, as an earlier version has stamped it."""
    newest = publications(world.table(), "payments").newest
    assert newest is not None
    return replace(newest, published={})


@pytest.mark.parametrize("expires", [False, True], ids=["its snapshot is there", "its snapshot has expired"])
def test_a_switch_after_a_stamp_that_names_no_branch(
    world: BranchWorld, monkeypatch: pytest.MonkeyPatch, expires: bool
) -> None:
    world.append_to_main(1)
    world.land(2)
    accept(world, "keep", "b")
    land_on(world, "b", 2, monkeypatch)
    publish(writing(world, "b"), world.settings, world.catalog(), "tester")
    accept(world, "keep")
    world.land(1)
    stamp = old(world)
    if expires:
        world.append_to_main(1)
        expire(world, [each.snapshot_id for each in ancestors(world.table().metadata)][1:2])
    found = branch_break(world.table().metadata, "payments", "ingest", stamp)
    assert found is not None
    assert "which was of another branch" in found.why
    assert branch_break(world.table().metadata, "payments", "b", stamp) is None


def test_without_a_switch_such_a_stamp_goes_on(world: BranchWorld) -> None:
    ids = world.land(2)
    world.publish()
    with world.table().transaction() as change:
        change.set_properties({property_key(publication_id("payments")): old(world).to_json()})
    ids += world.land(1)
    world.publish()
    assert world.rows() == Counter(ids)
