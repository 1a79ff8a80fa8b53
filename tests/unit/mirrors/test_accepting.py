"""Answers of an operator whose source was restored: where positions begin anew, in each merge and in each rebuild."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.mirrors.fold.log_scan import SCANNED, LogScan
from jobs.mirrors.fold.order import Order
from jobs.mirrors.model.errors import RestoredSourceError
from jobs.mirrors.model.merge_plan import Break, MergePlan, MergeResult
from jobs.mirrors.model.mirror_stamp import abandoned_branches
from jobs.mirrors.run import accepting
from jobs.mirrors.run.accepting import accept_new_generation
from jobs.mirrors.run.merging import How, merge_new
from tests.unit.mirrors.mirror_world import (
    MIRROR_STEPS,
    AtStep,
    Change,
    Killed,
    MirrorWorld,
)
from tests.unit.mirrors.plain_merger import P0, PlainMerger


class OrderedMerger(PlainMerger):
    """Merges once the changes can be ordered."""

    def merge(
        self, changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
    ) -> MergeResult:
        changes = pa.concat_tables([pq.read_table(each.file_path.removeprefix("file://")) for each in files])
        changes = changes.sort_by("_kafka_offset")
        times = changes["_change_at"].cast(pa.int64())
        columns = [changes["_kafka_offset"], changes["_change_op"], times, changes["_change_position"]]
        nulls = pc.is_null(changes["id"])  # pyright: ignore[reportAttributeAccessIssue]
        rows = pa.table([*columns, changes["_change_lineage"], nulls], SCANNED.names).cast(SCANNED)
        scan = LogScan.after(plan.state.partitions.get(P0), plan.scope, plan.state.breaks.get(P0, ()))
        order = Order.of(plan.stream, plan.key, plan.state, {P0: scan.scanned(rows)}, plan.scope)
        return replace(super().merge(changelog, files, mirror, branch, plan), state=order.state)


@pytest.fixture
def world(tmp_path: Path) -> MirrorWorld:
    return MirrorWorld(tmp_path)


def merge(world: MirrorWorld, *, how: How = "on") -> None:
    with world.session() as session:
        merge_new(session, OrderedMerger(), how=how)


def restored(world: MirrorWorld, *, how: How = "on") -> RestoredSourceError:
    with pytest.raises(RestoredSourceError) as stopped:
        merge(world, how=how)
    return stopped.value


def accept(world: MirrorWorld, problem: RestoredSourceError) -> None:
    said = accept_new_generation(world.spec, world.mirror, world.settings, world.catalog(), "restored", problem.breaks)
    assert said is not None and {each.since for each in said.breaks[P0]} >= set(problem.breaks.values())


def test_the_increment_has_changes_from_before_the_restore(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    merge(world)
    world.land(Change(2, "bob"))
    world.position_shift = -2
    world.land(Change(1, "anna"))
    accept(world, restored(world))
    merge(world)
    assert world.rows() == world.source() == {1: "anna", 2: "bob"}
    merge(world, how="anew")
    stamp = world.stamp()
    assert stamp is not None and stamp.state.breaks == {P0: (Break(2, 1),)}, "a rebuild knows it"
    world.land(Change(3, "cid"))
    merge(world)
    assert world.rows() == world.source()


def test_a_changelog_with_a_restore_has_no_mirror_yet(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    world.position_shift = -2
    world.land(Change(1, "anna"))
    accept(world, restored(world))
    assert world.stamp() is None
    merge(world)
    assert world.rows() == world.source() == {1: "anna", 2: "bob"}


def test_another_mirror_that_was_never_made_holds_up_no_answer(world: MirrorWorld) -> None:
    """A table without a primary key has none, and the command in the message names no mirror."""
    world.land(Change(1, "ann"))
    merge(world)
    other = world.mirror.model_copy(update={"table": "shop.keyless"})
    given = world.spec, other, world.settings, world.catalog(), "restored"
    assert accept_new_generation(*given, {P0: 1}) is None
    with pytest.raises(FrazilError, match=r"nothing was merged into mirror shop\.keyless"):
        accept_new_generation(*given)


def test_a_rebuild_meets_a_restore_that_was_answered_otherwise(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    world.merge()
    world.position_shift = -2
    world.land(Change(1, "anna"))
    world.merge()
    problem = restored(world, how="anew")
    assert (problem.offset, world.rows()) == (2, {1: "anna", 2: "bob"})
    accept(world, problem)
    merge(world, how="anew")
    assert world.rows() == world.source()


def test_a_mirror_that_was_moved_back_keeps_the_answer(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    merge(world)
    former = world.table().metadata.current_snapshot_id
    assert former is not None
    world.position_shift = -2
    world.land(Change(1, "anna"))
    accept(world, restored(world))
    merge(world)
    world.table().manage_snapshots().rollback_to_snapshot(former).commit()
    merge(world, how="anew")
    assert world.rows() == world.source()


@pytest.mark.parametrize("answer", ["answer_before_commit", "inside_answer", "answer_after_commit"])
def test_an_answer_and_a_rebuild_are_killed_and_given_again(
    world: MirrorWorld, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    merge(world)
    world.position_shift = -2
    world.land(Change(1, "anna"))
    problem = restored(world)
    with AtStep(answer) as at:
        monkeypatch.setattr(accepting, "step", at)
        with pytest.raises(Killed):
            accept(world, problem)
    world.forget_state()
    if answer != "answer_after_commit":
        assert restored(world).breaks == problem.breaks, "nothing is answered"
    accept(world, problem)
    for number, step in enumerate(MIRROR_STEPS):
        world.land(Change(2, f"bob {number}"), Change(3, None if number % 2 else "cid"))
        with AtStep(step), pytest.raises(Killed):
            merge(world, how="anew" if number else "on")
        world.forget_state()
        world.check()
        merge(world)
        assert world.rows() == world.source()
    stamp = world.stamp()
    assert stamp is not None and [each.since for each in stamp.state.breaks[P0]] == [2]
    merge(world, how="anew")
    assert world.rows() == world.source()
    assert not abandoned_branches(world.table().metadata)
