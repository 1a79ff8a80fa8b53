"""Branches that do not go on from their publications: nothing is doubled or passed over, and there is a way on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyiceberg.table.update import SetSnapshotRefUpdate

from jobs.config.stream.models import StreamSpec
from jobs.maintenance.run.snapshot_holds import CEILING
from jobs.quality.publishing.interval import UnpublishableError
from jobs.quality.publishing.main_freshness import branch_ahead
from jobs.quality.publishing.publishing import RollbackAnswer, answer_rollback, publish
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.publications import publications
from jobs.tables.commit.recovery.accept import signed_answer
from jobs.tables.commit.recovery.rollback import rollback
from jobs.tables.commit.stamp.stamps import Stamp
from tests.unit.quality.publishing.branch_world import NAME, P0, BranchWorld
from tests.unit.quality.publishing.test_ahead import held_for_publishing


@pytest.fixture
def world(tmp_path: Path) -> BranchWorld:
    return BranchWorld(tmp_path / "home")


def head(world: BranchWorld, branch: str = "main") -> int:
    return world.table().metadata.refs[branch].snapshot_id


def point(world: BranchWorld, branch: str, snapshot_id: int) -> None:
    said = {"ref-name": branch, "type": "branch", "snapshot-id": snapshot_id}
    world.catalog().commit_table(world.table(), (), (SetSnapshotRefUpdate.model_validate(said),))


def expire(world: BranchWorld, ids: Iterable[int]) -> None:
    world.table().maintenance.expire_snapshots().by_ids(list(ids)).commit()


def accept(world: BranchWorld, answer: str, branch: str = "ingest") -> None:
    """As `frazil accept payments --rollback`."""
    target = world.target("payments", branch)
    past = target.history()
    assert past.rolled_back
    (stamp,) = rollback({NAME: past}, NAME, "keep" if answer == "keep" else "reland", "c").values()
    target.restamp(signed_answer(stamp, target.greatest_epoch() + 1, "tester"))
    world.epochs["payments"] = target.greatest_epoch()
    world.ends["payments"] = stamp.position[P0]


def decide(world: BranchWorld, answer: RollbackAnswer) -> None:
    answer_rollback(world.spec, world.settings, world.catalog(), answer, "tester: looked at it")


def writing(world: BranchWorld, branch: str) -> StreamSpec:
    table = world.spec.table.model_copy(update={"branch": branch})
    return world.spec.model_copy(update={"table": table})


def land_on(world: BranchWorld, branch: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    real = world.target
    with monkeypatch.context() as patch:
        patch.setattr(world, "target", lambda stream="payments": real(stream, branch))
        return world.land(rows)


class TestAnotherBranchWasPublished:
    @pytest.fixture
    def back(
        self, world: BranchWorld, monkeypatch: pytest.MonkeyPatch
    ) -> tuple[BranchWorld, list[int], list[int], list[int]]:
        """Rows on ingest that wait; another branch, which is published; then ingest again."""
        world.append_to_main(1)
        first = world.land(2)
        accept(world, "keep", "b")
        second = land_on(world, "b", 2, monkeypatch)
        publish(writing(world, "b"), world.settings, world.catalog(), "tester")
        accept(world, "keep")
        third = world.land(2)
        with pytest.raises(UnpublishableError, match="older than the last publication, which was of another") as told:
            world.publish()
        assert "--after-rollback again" in (told.value.fix or "")
        return world, first, second, third

    def test_what_waited_is_published(self, back: tuple[BranchWorld, list[int], list[int], list[int]]) -> None:
        world, first, second, third = back
        decide(world, "again")
        world.publish()
        assert world.rows() == Counter([-1, *first, *second, *third])
        more = world.land(1)
        world.publish()
        assert world.rows()[more[0]] == 1

    def test_what_waited_is_left_out(self, back: tuple[BranchWorld, list[int], list[int], list[int]]) -> None:
        world, _, second, third = back
        decide(world, "leave-out")
        world.publish()
        assert world.rows() == Counter([-1, *second, *third])

    def test_what_came_along_with_the_other_branch_is_there(
        self, world: BranchWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was made of this one, with rows that waited."""
        world.append_to_main(1)
        ids = world.land(2)
        point(world, "b", head(world, "ingest"))
        ids += land_on(world, "b", 2, monkeypatch)
        publish(writing(world, "b"), world.settings, world.catalog(), "tester")
        accept(world, "keep")
        ids += world.land(1)
        world.publish()
        assert world.rows() == Counter([-1, *ids])


class TestBranchMovedBack:
    @pytest.fixture
    def moved(self, world: BranchWorld) -> tuple[BranchWorld, list[int]]:
        ids = world.land(2)
        before = head(world, "ingest")
        ids += world.land(3)
        world.publish()
        point(world, "ingest", before)
        accept(world, "reland")
        assert world.land(3) == ids[2:]
        with pytest.raises(UnpublishableError, match="does not have the snapshot through which it was published"):
            world.publish()
        return world, ids

    def test_main_has_it_once(self, moved: tuple[BranchWorld, list[int]]) -> None:
        world, ids = moved
        decide(world, "leave-out")
        ids += world.land(1)
        world.publish()
        assert world.rows() == Counter(ids)

    def test_it_is_published_again_if_somebody_says_so(self, moved: tuple[BranchWorld, list[int]]) -> None:
        world, ids = moved
        world.table().delete("id >= 2000002")
        decide(world, "again")
        world.publish()
        assert world.rows() == Counter(ids)


def test_records_that_landed_on_main_meanwhile(world: BranchWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.append_to_main(1)
    ids = world.land(2)
    accept(world, "reland", "main")
    assert land_on(world, "main", 2, monkeypatch) == ids
    accept(world, "keep")
    world.land(1)
    with pytest.raises(UnpublishableError, match="would be there twice"):
        world.publish()
    with pytest.raises(UnpublishableError, match="would be there twice"):
        decide(world, "again")
    decide(world, "leave-out")
    more = world.land(1)
    world.publish()
    assert world.rows() == Counter([-1, *ids, *more])


class TestEarlierPublicationExpired:
    @pytest.fixture
    def rolled(self, world: BranchWorld) -> tuple[BranchWorld, Counter[int], list[int]]:
        """Two publications, another commit between them; the first expires, and main is rolled back to the other."""
        world.append_to_main(1)
        world.land(2)
        world.publish()
        first = head(world)
        world.append_to_main(1)
        x, kept = head(world), world.rows()
        more = world.land(3)
        world.publish()
        expire(world, [each.snapshot_id for each in ancestors(world.table().metadata, first)])
        point(world, "main", x)
        return world, kept, more

    def test_older_metadata_know_it(self, rolled: tuple[BranchWorld, Counter[int], list[int]]) -> None:
        world, kept, more = rolled
        decide(world, "again")
        world.publish()
        assert world.rows() == kept + Counter(more)

    def test_nobody_knows_it(self, rolled: tuple[BranchWorld, Counter[int], list[int]]) -> None:
        world, kept, _ = rolled
        for each in world.table().metadata.metadata_log:
            Path(each.metadata_file.removeprefix("file://")).unlink()
        with pytest.raises(UnpublishableError, match="have expired") as told:
            decide(world, "again")
        assert "leave-out" in (told.value.fix or "")
        decide(world, "leave-out")
        world.publish()
        assert world.rows() == kept


def test_an_idle_stream_beside_an_active_one(world: BranchWorld) -> None:
    ids = world.land(1)
    world.publish()
    others = world.spec.model_copy(update={"stream": "others"})
    ids += world.land(2, "others")
    ahead = branch_ahead(world.table().metadata, "payments")
    assert ahead is not None
    assert (ahead.snapshots, ahead.others) == (0, True)
    publish(others, world.settings, world.catalog(), "tester")
    assert world.publish().snapshot_id is None
    ahead = branch_ahead(world.table().metadata, "payments")
    assert ahead is not None
    assert not ahead.others
    before = head(world)
    world.publish()
    assert head(world) == before
    metadata = world.table().metadata
    keep = {each.snapshot_id for each in metadata.refs.values()}
    expire(world, [each.snapshot_id for each in metadata.snapshots if each.snapshot_id not in keep])
    ids += world.land(1)
    world.publish()
    assert world.rows() == Counter(ids)


def test_a_stamp_of_an_earlier_version_names_no_branch(world: BranchWorld) -> None:
    world.land(1)
    world.publish()
    newest = publications(world.table(), "payments").newest
    assert newest is not None
    assert list(newest.published) == ["ingest"]
    assert Stamp.from_json(newest.to_json()) == newest
    text = newest.to_json().replace(f',"published":{{"ingest":{newest.published["ingest"]}}}', "")
    assert not Stamp.from_json(text).published


def test_what_waits_on_a_former_branch_is_kept(world: BranchWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.land(1)
    world.publish()
    world.claim()
    waiting = world.land(2)
    accept(world, "keep", "b")
    land_on(world, "b", 3, monkeypatch)
    now = datetime.now(UTC) + 2 * CEILING
    former = [
        each for each in held_for_publishing(world, now) if "2 rows on branch ingest are not published" in each.why
    ]
    assert [each.warn for each in former] == [True]
    assert former[0].since < now - CEILING, "however long that takes"
    accept(world, "keep")
    world.publish()
    assert world.rows()[waiting[0]] == 1
