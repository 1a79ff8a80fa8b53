"""A changelog whose topic was made again, or was cut: what a mirror does where offsets have to order its changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.commit.accept import signed_answer
from jobs.commit.offsets import OffsetRange
from jobs.commit.other_logs import other_logs
from jobs.commit.stamp_fields import Decision
from jobs.commit.target import Target
from jobs.mirror.errors import AnotherLogError
from jobs.mirror.merge_plan import Generation, MergePlan, MergeResult, MirrorState, PartitionState
from jobs.mirror.merging import How, merge_new
from jobs.mirror.mirror_status import mirror_status
from tests.unit.mirror.expiry import KEEP, LATER, expire, maintained, said
from tests.unit.mirror.mirror_world import CHANGELOG, Change, MirrorWorld
from tests.unit.mirror.plain_merger import P0, PlainMerger


class WithoutPositions(PlainMerger):
    """Merges changes of a source that has none."""

    def merge(
        self, changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
    ) -> MergeResult:
        done = super().merge(changelog, files, mirror, branch, plan)
        (state,) = done.state.partitions.values()
        bare = PartitionState(state.next_offset, None, None, (Generation(0, 0, None),))
        return replace(done, state=MirrorState({P0: bare}))


def answer(world: MirrorWorld, answered: Literal["recreated_topic", "cut_topic", "reset"], *, landed: int) -> None:
    """An operator accepts that offsets begin anew, behind so many that had landed."""
    target = Target(world.catalog(), CHANGELOG, "customers")
    newest = target.read()
    assert newest is not None
    decision = Decision(answered, again={P0: OffsetRange(0, landed)} if landed else {})
    target.restamp(signed_answer(newest.decided(decision), world.epoch, "so be it"))


def merged(world: MirrorWorld, merger: PlainMerger, *, how: How = "on") -> None:
    with world.session() as session:
        merge_new(session, merger, how=how)


@pytest.mark.parametrize(
    ("answered", "said"),
    [("recreated_topic", "was deleted and made again"), ("cut_topic", "has lost records that had landed")],
)
def test_changes_that_offsets_order_are_not_mixed_with_those_of_another_log(
    tmp_path: Path, answered: Literal["recreated_topic", "cut_topic"], said: str
) -> None:
    world = MirrorWorld(tmp_path)
    world.land(Change(1, "ann"), Change(2, "bob"))
    merged(world, WithoutPositions())
    answer(world, answered, landed=2)
    with pytest.raises(AnotherLogError, match=rf"topic customers .*{said}.*\n  Next: land a new .* another"):
        merged(world, WithoutPositions())
    problem = mirror_status(world.spec, world.mirror, world.settings, world.catalog()).problem
    assert problem is not None and said in problem.message
    # Made of all changes it would mix them, whether they have positions or not.
    for merger in (WithoutPositions(), PlainMerger()):
        with pytest.raises(AnotherLogError):
            merged(world, merger, how="anew")
    world.check()


@pytest.mark.parametrize(("answered", "landed"), [("recreated_topic", 0), ("reset", 2)])
def test_the_same_records_again_and_a_log_of_which_nothing_had_landed_stop_nothing(
    tmp_path: Path, answered: Literal["recreated_topic", "reset"], landed: int
) -> None:
    world = MirrorWorld(tmp_path)
    world.land(Change(1, "ann"))
    answer(world, answered, landed=landed)
    assert other_logs(world.changelog().metadata, "customers", 0) == []
    merged(world, WithoutPositions())
    assert world.rows() == {1: "ann"}


@pytest.mark.parametrize("ways", ["answered", "returned"])
def test_another_log_behind_expired_changes_stops_a_mirror_after_its_snapshots_are_gone(
    tmp_path: Path, ways: Literal["answered", "returned"]
) -> None:
    world = MirrorWorld(tmp_path)
    world.write(changes=KEEP)
    world.topics = {"customers": "first"}
    world.land(Change(1, "ann"), Change(2, "bob"))
    expire(world)
    target = Target(world.catalog(), CHANGELOG, "customers")
    if (newest := target.read()) is not None and ways == "answered":
        again = replace(newest.decided(Decision("recreated_topic", again={P0: OffsetRange(0, 2)})), start={P0: 0})
        target.restamp(signed_answer(replace(again, position={P0: 0}), world.epoch, "so be it"))
    else:
        # It was retired, and forgotten; a topic of its name begins.
        world.topics = {"customers": "second"}
    world.at, world.position_shift, world.end = LATER + timedelta(days=59), 100, 0
    for n in range(3):
        world.land(Change(3 + n, "new"))
    changelog = world.changelog()
    head = changelog.metadata.current_snapshot_id
    changelog.maintenance.expire_snapshots().by_ids(
        [each.snapshot_id for each in changelog.metadata.snapshots if each.snapshot_id != head]
    ).commit()
    told = "was deleted and made again" if ways == "answered" else "is another one than when changes of it expired"
    hows: tuple[How, ...] = ("on", "anew")
    for how in hows:
        with pytest.raises(AnotherLogError, match=rf"topic customers of changelog {CHANGELOG} {told}"):
            world.merge(how=how)
    assert world.rows() == {1: "ann", 2: "bob"}
    assert "stay" in said(maintained(world, CHANGELOG, LATER + timedelta(days=200)))


def test_an_answer_that_a_rollback_has_undone_is_none(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path)
    world.land(Change(1, "ann"))
    before = world.changelog().metadata.current_snapshot_id
    assert before is not None
    answer(world, "cut_topic", landed=1)
    assert [each.topic for each in other_logs(world.changelog().metadata, "customers", 0)] == ["customers"]
    world.changelog().manage_snapshots().set_current_snapshot(snapshot_id=before).commit()
    assert other_logs(world.changelog().metadata, "customers", 0) == []


def test_an_answer_stays_whose_snapshot_is_kept_while_those_behind_it_have_expired(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path)
    world.land(Change(1, "ann"))
    answer(world, "cut_topic", landed=1)
    answered = world.changelog().metadata.current_snapshot_id
    assert answered is not None
    world.changelog().manage_snapshots().create_tag(answered, "month").commit()
    world.land(Change(2, "bob"))
    world.land(Change(3, "cid"))
    changelog = world.changelog()
    kept = {answered, changelog.metadata.current_snapshot_id}
    gone = [each.snapshot_id for each in changelog.metadata.snapshots if each.snapshot_id not in kept]
    changelog.maintenance.expire_snapshots().by_ids(gone).commit()
    assert [each.topic for each in other_logs(world.changelog().metadata, "customers", 0)] == ["customers"]
