"""Whether main still has what was published is shown, or asked, however much of its history has expired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest
from pyiceberg.table.update import SetSnapshotRefUpdate

from jobs.quality.publishing.main_freshness import branch_ahead
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.stamp.errors import RolledBackError
from tests.unit.quality.publishing.branch_world import BranchWorld

VERSIONS = 3


@pytest.fixture
def world(tmp_path: Path) -> BranchWorld:
    """Its table keeps few versions of its metadata."""
    world = BranchWorld(tmp_path / "home")
    with world.table().transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": str(VERSIONS)})
    return world


def head(world: BranchWorld, branch: str = "main") -> int:
    return world.table().metadata.refs[branch].snapshot_id


def point(world: BranchWorld, branch: str, snapshot_id: int) -> None:
    """Somebody moves a branch, or makes one."""
    update = SetSnapshotRefUpdate.model_validate({"ref-name": branch, "type": "branch", "snapshot-id": snapshot_id})
    world.catalog().commit_table(world.table(), (), (update,))


def expire_main(world: BranchWorld, also: Collection[int] = ()) -> None:
    """Somebody's own tool expires all of main's history but its head, and what more is named."""
    metadata = world.table().metadata
    on_branch = {each.snapshot_id for each in ancestors(metadata, head(world, "ingest"))}
    kept = ({head(world)} | on_branch) - set(also)
    gone = [each.snapshot_id for each in metadata.snapshots if each.snapshot_id not in kept]
    world.table().maintenance.expire_snapshots().by_ids(gone).commit()


def forget_versions(world: BranchWorld) -> list[int]:
    """Batches land on the branch until no older version of the metadata knows what has expired."""
    return [each for _ in range(VERSIONS + 2) for each in world.land(1)]


def test_a_rollback_that_all_but_the_property_has_forgotten_is_asked_about(world: BranchWorld) -> None:
    world.append_to_main(1)
    before = head(world)
    published = world.land(2)
    world.publish()
    point(world, "main", before)
    world.append_to_main(1)
    expire_main(world, also=[before])
    forget_versions(world)
    with pytest.raises(RolledBackError, match="was rolled back to before its last publication"):
        world.publish()
    assert not set(published) & set(world.rows())


def test_others_commit_on_main_and_expire_its_history(world: BranchWorld) -> None:
    """The batches on the branch have noted that main's head came after the publication."""
    ids = world.land(2)
    world.publish()
    ids += world.append_to_main(1) + world.land(1)
    for _ in range(2):
        world.compact()
        ids += world.land(1) + world.append_to_main(1) + world.land(1)
        expire_main(world)
    ids += forget_versions(world)
    world.publish()
    assert world.rows() == Counter(ids)


@pytest.mark.parametrize("published", [True, False])
def test_a_branch_that_somebody_has_made_is_published_once_its_begin_has_expired(
    world: BranchWorld, published: bool
) -> None:
    ids = world.append_to_main(1)
    begin = head(world)
    point(world, "ingest", begin)
    ids += world.land(2)
    if published:
        world.publish()
    ids += world.append_to_main(1)
    expire_main(world, also=[begin])
    ids += world.land(1)
    ahead = branch_ahead(world.table().metadata, "payments")
    assert ahead is not None
    assert ahead.rows == (1 if published else 3)
    world.publish()
    assert world.rows() == Counter(ids)
