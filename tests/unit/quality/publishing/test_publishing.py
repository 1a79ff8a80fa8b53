"""Publishing on a real catalog: once whatever happens, and only what the stream has landed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Literal

import pytest
from pyiceberg.table.update import RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate, SetSnapshotRefUpdate

from jobs.base.errors import FrazilError
from jobs.clients.state_store.lease import LeaseHeldError, stream_lease
from jobs.quality.publishing.interval import PUBLISHED_KEY, UnpublishableError, branch_begin
from jobs.quality.publishing.publishing import answer_rollback, publish, unpublished
from jobs.tables.commit.history.branch import on_branch
from jobs.tables.commit.history.publications import published_through
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.recovery.accept import signed_answer
from jobs.tables.commit.recovery.rollback import rollback
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.errors import RolledBackError
from jobs.tables.commit.stamp.stamps import BACKFILL_KEY
from tests.unit.quality.publishing.branch_world import (
    NAME,
    P0,
    STEPS,
    AtStep,
    BranchWorld,
    Killed,
)


@pytest.fixture
def world(tmp_path: Path) -> BranchWorld:
    return BranchWorld(tmp_path / "home")


def point(world: BranchWorld, branch: str, snapshot_id: int) -> None:
    update = SetSnapshotRefUpdate.model_validate({"ref-name": branch, "type": "branch", "snapshot-id": snapshot_id})
    world.catalog().commit_table(world.table(), (), (update,))


def head(world: BranchWorld, branch: str = "main") -> int:
    return world.table().metadata.refs[branch].snapshot_id


def test_main_gets_what_the_branch_has(world: BranchWorld) -> None:
    ids = world.land(3) + world.land(2, files=2)
    assert world.rows() == Counter()
    done = world.publish()
    assert world.rows() == world.rows("ingest") == Counter(ids)
    assert done.interval is not None
    assert (done.interval.rows, len(done.interval.files), len(done.interval.snapshots)) == (7, 3, 2)
    assert {str(p): tuple(r) for p, r in done.interval.ranges.items()} == {"payments-0": (0, 7)}
    table = world.table()
    assert done.snapshot_id == head(world)
    snapshot = table.metadata.snapshot_by_id(done.snapshot_id or 0)
    assert snapshot is not None and snapshot.summary is not None
    said = json.loads(snapshot.summary.additional_properties[PUBLISHED_KEY])
    assert (said["rows"], said["files"], said["by"], said["ranges"]) == (7, 3, "tester", {"payments": {"0": [0, 7]}})
    assert published_through(table.metadata, "payments", "ingest") == done.interval.until


def test_the_next_interval_begins_where_the_last_one_ended(world: BranchWorld) -> None:
    ids = world.land(3)
    world.publish()
    ids += world.land(2)
    done = world.publish()
    assert done.interval is not None
    assert done.interval.rows == 2
    assert {str(p): tuple(r) for p, r in done.interval.ranges.items()} == {"payments-0": (3, 5)}
    assert world.rows() == Counter(ids)


def test_claims_alone_are_nothing_to_publish(world: BranchWorld) -> None:
    world.claim()
    world.claim()
    before = head(world)
    assert world.publish().snapshot_id is None
    assert head(world) == before


def test_a_branch_that_is_not_there_yet(world: BranchWorld) -> None:
    assert world.publish().interval is None


def test_what_main_had_is_not_published_again(tmp_path: Path) -> None:
    """The branch begins with main's rows."""
    world = BranchWorld(tmp_path / "home")
    foreign = world.append_to_main(5)
    ids = world.land(3)
    assert world.rows("ingest") == Counter(foreign + ids)
    world.publish()
    assert world.rows() == Counter(foreign + ids)


def test_replays_are_published_and_other_streams_are_not(world: BranchWorld) -> None:
    ids = world.land(2)
    world.claim("others")
    others = world.land(2, "others")
    world.claim("payments~replay")
    ids += world.land(1, "payments~replay")
    done = world.publish()
    assert done.interval is not None
    assert done.interval.others == 1
    assert world.rows() == Counter(ids)
    assert world.rows("ingest") == Counter(ids + others)


def test_main_is_written_and_compacted_by_others(world: BranchWorld) -> None:
    ids = world.land(2)
    world.publish()
    ids += world.append_to_main()
    world.compact()
    ids += world.land(2)
    world.publish()
    world.compact()
    assert world.publish().snapshot_id is None
    assert world.rows() == Counter(ids)


@pytest.mark.parametrize("name", STEPS)
def test_killed_at_each_step(world: BranchWorld, name: str) -> None:
    ids = world.land(3)
    with AtStep(name) as armed, pytest.raises(Killed):
        world.publish()
    assert armed.passed
    assert world.rows() == (Counter(ids) if name == "publish_after_commit" else Counter())
    world.lose_state()
    world.publish()
    assert world.rows() == Counter(ids)


@pytest.mark.parametrize("name", STEPS[:2])
@pytest.mark.parametrize("what", ["main is appended to", "the stream lands", "it is published", "compacted"])
def test_what_happens_meanwhile(world: BranchWorld, name: str, what: str) -> None:
    ids = world.land(3)
    ids += world.append_to_main(1)
    ids += world.append_to_main(1)

    def meanwhile() -> None:
        if what == "main is appended to":
            ids.extend(world.append_to_main(2))
        elif what == "the stream lands":
            ids.extend(world.land(2))
        elif what == "compacted":
            world.compact()
        else:
            # As by somebody who sees no lease of ours.
            world.lose_state()
            world.publish()

    with AtStep(name, meanwhile) as armed:
        try:
            world.publish()
        except FrazilError:
            assert what == "it is published"
    assert armed.passed
    world.publish()
    assert world.rows() == Counter(ids)


def test_two_at_once(world: BranchWorld) -> None:
    world.land(1)
    lease = stream_lease(world.settings, "payments~publish")
    lease.acquire(above=0)
    try:
        with pytest.raises(LeaseHeldError, match="is being published by process"):
            world.publish()
    finally:
        lease.release()
    assert world.publish().snapshot_id


class TestOthersOnTheBranch:
    def test_an_append_is_refused(self, world: BranchWorld) -> None:
        world.land(1)
        world.append_to_main(1, "ingest")
        with pytest.raises(UnpublishableError, match="is no commit of a stream") as refused:
            world.publish()
        assert "REPLACE BRANCH ingest" in (refused.value.fix or "")
        assert world.rows() == Counter()

    def test_a_compaction_is_refused(self, world: BranchWorld) -> None:
        world.land(1)
        world.land(1)
        world.compact("ingest")
        with pytest.raises(UnpublishableError, match="is no commit of a stream"):
            world.publish()

    def test_a_backfill_is_refused(self, world: BranchWorld) -> None:
        world.land(1)
        table = on_branch(world.table(), "ingest")
        commit_once(table, Append([world.data_file([7], table)]), summary={BACKFILL_KEY: "x"}, properties={})
        with pytest.raises(UnpublishableError, match="is no commit of a stream"):
            world.publish()

    def test_what_was_published_before_does_not_count(self, world: BranchWorld) -> None:
        ids = world.land(1) + world.land(1)
        world.publish()
        world.compact("ingest")
        with pytest.raises(UnpublishableError):
            world.publish()
        assert world.rows() == Counter(ids)

    def test_expired_snapshots_are_not_guessed_at(self, world: BranchWorld) -> None:
        world.land(1)
        gone = head(world, "ingest")
        world.land(1)
        world.table().maintenance.expire_snapshots().by_ids([gone]).commit()
        with pytest.raises(UnpublishableError, match=f"files of snapshot {gone}, which has expired"):
            world.publish()

    def test_published_ones_may_expire(self, world: BranchWorld) -> None:
        ids = world.land(1)
        world.publish()
        ids += world.land(1)
        keep = {each.snapshot_id for each in world.table().metadata.refs.values()}
        gone = [each.snapshot_id for each in world.table().metadata.snapshots if each.snapshot_id not in keep]
        world.table().maintenance.expire_snapshots().by_ids(gone).commit()
        world.publish()
        assert world.rows() == Counter(ids)


class TestRolledBack:
    @pytest.fixture
    def rolled(self, world: BranchWorld) -> tuple[BranchWorld, list[int], list[int]]:
        kept = world.land(2)
        world.publish()
        before = head(world)
        gone = world.land(3)
        world.publish()
        point(world, "main", before)
        assert world.rows() == Counter(kept)
        return world, kept, gone

    def test_it_stops(self, rolled: tuple[BranchWorld, list[int], list[int]]) -> None:
        world, kept, _ = rolled
        with pytest.raises(RolledBackError, match=r"main of table .* was rolled back") as told:
            world.publish()
        assert "--after-rollback again" in (told.value.fix or "")
        with pytest.raises(RolledBackError):
            unpublished(world.spec, world.table())
        assert world.rows() == Counter(kept)

    def test_it_is_published_again(self, rolled: tuple[BranchWorld, list[int], list[int]]) -> None:
        world, kept, gone = rolled
        found = answer_rollback(world.spec, world.settings, world.catalog(), "again", "tester: why not")
        assert found is not None
        assert found.rows == len(gone)
        world.publish()
        assert world.rows() == Counter(kept + gone)

    def test_it_is_left_out(self, rolled: tuple[BranchWorld, list[int], list[int]]) -> None:
        world, kept, _ = rolled
        found = answer_rollback(world.spec, world.settings, world.catalog(), "leave-out", "tester: why not")
        assert found is not None
        assert found.rows == 0
        more = world.land(1)
        world.publish()
        assert world.rows() == Counter(kept + more)

    def test_there_is_nothing_to_answer(self, world: BranchWorld) -> None:
        world.land(1)
        world.publish()
        with pytest.raises(FrazilError, match="has all that was published"):
            answer_rollback(world.spec, world.settings, world.catalog(), "again", "x")


def test_main_that_was_brought_to_the_branch_has_it(world: BranchWorld) -> None:
    """Fast-forwarded by hand before the first publication."""
    ids = world.land(2)
    point(world, "main", head(world, "ingest"))
    assert world.publish().snapshot_id is None
    ids += world.land(1)
    world.publish()
    assert world.rows() == Counter(ids)


def test_a_branch_begins_where_the_stream_made_it(world: BranchWorld) -> None:
    world.append_to_main()
    world.claim()
    assert world.table().metadata.properties["frazil.branch.ingest"] == "1"
    assert branch_begin(world.table().metadata, "ingest") == 1


def test_a_stream_on_main_is_not_published(world: BranchWorld) -> None:
    table = world.spec.table.model_copy(update={"branch": "main"})
    spec = world.spec.model_copy(update={"table": table})
    with pytest.raises(FrazilError, match="writes to main"):
        publish(spec, world.settings, world.catalog(), "tester")


def test_files_of_a_former_partitioning_wait(world: BranchWorld) -> None:
    world.land(2)
    with world.table().update_spec() as change:
        change.add_identity("id")
    with pytest.raises(UnpublishableError, match="written before the partitioning"):
        world.publish()
    with world.table().update_spec() as change:
        change.remove_field("id")
    world.publish()
    assert sum(world.rows().values()) == 2


def test_partition_values_are_the_ones_that_the_files_have(tmp_path: Path) -> None:
    """PyIceberg's decoder narrows doubles in manifests."""
    world = BranchWorld(tmp_path / "home", "id long not null, amount double")
    with world.table().update_spec() as change:
        change.add_identity("amount")
    ids = world.land(2)
    world.publish()
    assert world.rows() == Counter(ids)
    (file,) = [each.file for each in world.table().scan("amount = 1.5").plan_files()]
    assert file.partition[0] == 1.5


def test_a_table_that_is_gone(world: BranchWorld) -> None:
    world.catalog().drop_table(NAME)
    with pytest.raises(FrazilError, match=r"does not exist|is gone|dropped"):
        world.publish()


@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize("answer", ["keep", "reland"])
def test_a_dropped_branch_goes_on_from_what_main_has(
    world: BranchWorld, answer: Literal["keep", "reland"], expired: bool
) -> None:
    """Rows that were published stay as they are; those that were not are left out, or land again."""
    published = world.land(3) + world.land(2)
    world.publish()
    lost = world.land(1) + world.land(1)
    if expired:
        # A foreign expiry takes the branch's snapshots, whose stamps would tell what was published.
        table = world.table()
        heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
        gone = [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id not in heads]
        world.catalog().commit_table(table, (), (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": gone}),))
        with pytest.raises(UnpublishableError, match="has expired") as stop:
            world.publish()
        assert "DROP BRANCH ingest" in (stop.value.fix or "") and "--rollback reland" in (stop.value.fix or "")
    update = RemoveSnapshotRefUpdate.model_validate({"ref-name": "ingest"})
    world.catalog().commit_table(world.table(), (), (update,))
    with pytest.raises(RolledBackError, match=r"the records payments-0 \[5, 7\) are not in it"):
        world.target().read()
    target = world.target()
    (stamp,) = rollback({NAME: target.history()}, NAME, answer, "c").values()
    assert stamp.position == {P0: 7 if answer == "keep" else 5}
    target.restamp(signed_answer(stamp, target.greatest_epoch() + 1, "tester: dropped it"))
    world.epochs["payments"] = target.greatest_epoch()
    world.ends["payments"] = stamp.position[P0]
    more = world.land(2)
    world.publish()
    assert world.rows() == Counter([*published, *more])
    assert (lost == more) is (answer == "reland")


def test_a_published_branch_may_be_dropped(world: BranchWorld) -> None:
    """The stream goes on where it stands: main has all of it."""
    ids = world.land(3)
    world.publish()
    table = world.table()
    update = RemoveSnapshotRefUpdate.model_validate({"ref-name": "ingest"})
    world.catalog().commit_table(table, (), (update,))
    newest = world.target().read()
    assert newest is not None
    assert newest.position == {P0: 3}
    assert world.publish().snapshot_id is None
    ids += world.land(2)
    world.publish()
    assert world.rows() == world.rows("ingest") == Counter(ids)
