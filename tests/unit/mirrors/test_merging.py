"""Merges into a mirror: what is merged, what is published, and what readers see meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.mirrors.model.changelog_increment import ChangelogMovedError
from jobs.mirrors.model.errors import WaitingRowsError
from jobs.mirrors.model.merge_plan import MergePlan, MergeResult
from jobs.mirrors.model.mirror_stamp import abandoned_branches
from jobs.mirrors.run.merging import merge_new
from tests.unit.mirrors.mirror_world import (
    CHANGELOG,
    MIRROR,
    MIRROR_STEPS,
    AtStep,
    Change,
    MirrorWorld,
)
from tests.unit.mirrors.plain_merger import P0, PlainMerger


@pytest.fixture
def world(tmp_path: Path) -> MirrorWorld:
    return MirrorWorld(tmp_path)


def test_a_mirror_is_what_the_source_is(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    done = world.merge()
    assert done.snapshot_id == world.table().metadata.current_snapshot_id
    assert world.rows() == {1: "ann", 2: "bob"}
    world.land(Change(1, None), Change(2, "bert"), Change(3, "cid"))
    assert world.rows() == {1: "ann", 2: "bob"}, "nothing is merged yet"
    world.merge()
    assert world.rows() == {2: "bert", 3: "cid"}
    table = world.table()
    assert list(table.metadata.refs) == ["main"], "branches of attempts go with their publication"
    assert [*table.schema().identifier_field_ids] == [table.schema().find_field("id").field_id]
    stamp = world.stamp()
    assert stamp is not None and stamp.snapshot_id == world.changelog().metadata.current_snapshot_id
    assert stamp.state.next_offsets == {P0: 5}


def test_nothing_new_changes_nothing(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    before = world.table().metadata_location
    assert world.merge().snapshot_id is None
    world.land()
    assert world.merge().snapshot_id is None, "a batch without rows"
    world.compact(CHANGELOG)
    assert world.merge().snapshot_id is None, "a compaction of the changelog"
    assert world.table().metadata_location == before


@pytest.mark.parametrize("step", MIRROR_STEPS)
def test_killed_at_each_step(world: MirrorWorld, step: str) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    world.merge()
    world.land(Change(1, "anna"), Change(2, None))
    assert world.merge_killed_at(step)
    world.check()
    published = step == "mirror_after_publish"
    assert world.rows() == ({1: "anna"} if published else {1: "ann", 2: "bob"})
    assert (world.merge().snapshot_id is None) == published
    assert world.rows() == {1: "anna"}
    assert not abandoned_branches(world.table().metadata)


@pytest.mark.parametrize("step", MIRROR_STEPS)
def test_killed_in_the_first_merge(world: MirrorWorld, step: str) -> None:
    world.land(Change(1, "ann"))
    assert world.merge_killed_at(step)
    world.check()
    world.merge()
    assert world.rows() == {1: "ann"}


@pytest.mark.parametrize("step", MIRROR_STEPS[:3])
def test_a_compaction_of_main_has_the_merge_made_anew(world: MirrorWorld, step: str) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    world.land(Change(1, "anna"), Change(2, "bob"))
    with AtStep(step, lambda: world.compact(MIRROR)):
        done = world.merge()
    assert done.attempts == 2
    assert world.rows() == {1: "anna", 2: "bob"}
    assert not abandoned_branches(world.table().metadata)


def test_a_changelog_that_was_moved_back_stops_the_merge(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    former = world.changelog().metadata.current_snapshot_id
    world.land(Change(2, "bob"))
    world.merge()
    assert former is not None
    world.changelog().manage_snapshots().rollback_to_snapshot(former).commit()
    with pytest.raises(ChangelogMovedError, match="moved back") as stopped:
        world.merge()
    assert stopped.value.fix is not None and "mirror rebuild customers" in stopped.value.fix
    assert world.rows() == {1: "ann", 2: "bob"}
    world.merge(how="anew")
    assert world.rows() == {1: "ann"}


def test_a_mirror_that_was_moved_back_is_made_anew(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    former = world.table().metadata.current_snapshot_id
    world.land(Change(1, "anna"))
    world.merge()
    assert former is not None
    world.table().manage_snapshots().rollback_to_snapshot(former).commit()
    with pytest.raises(FrazilError, match="was moved back"):
        world.merge()
    assert world.merge_killed_at("mirror_after_merge", how="anew")
    world.merge(how="anew")
    assert world.rows() == {1: "anna"}
    world.check()


@pytest.mark.parametrize("step", MIRROR_STEPS[:3])
def test_one_that_is_moved_back_under_a_merge_gets_nothing(world: MirrorWorld, step: str) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    former = world.table().metadata.current_snapshot_id
    assert former is not None
    world.land(Change(1, "anna"))
    world.merge()
    world.land(Change(2, "bob"))

    def moved_back() -> None:
        world.table().manage_snapshots().rollback_to_snapshot(former).commit()

    with AtStep(step, moved_back), pytest.raises(FrazilError, match="was moved back") as stopped:
        world.merge()
    assert stopped.value.fix is not None and "mirror rebuild" in stopped.value.fix
    assert world.table().metadata.current_snapshot_id == former
    assert world.rows() == {1: "ann"}


def test_a_mirror_gets_the_columns_that_its_changelog_got(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    with world.changelog().update_schema() as change:
        from pyiceberg.types import IntegerType

        change.add_column("age", IntegerType())
    world.land(Change(2, "bob"))
    world.merge()
    names = [each.name for each in world.table().schema().fields]
    assert names == ["id", "name", "age", "_change_order"]
    assert world.rows() == {1: "ann", 2: "bob"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"where": "region = 'eu'"}, "condition of mirror shop.customers is none over its rows.*region"),
        ({"key": ["no"]}, "names column no, and changelog .* has none at its top; it has id, name"),
        ({"key": ["name", "_change_op"]}, "names column _change_op"),
    ],
)
def test_what_a_file_says_of_other_columns(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    world = MirrorWorld(tmp_path, **more)
    world.land(Change(1, "ann"))
    with pytest.raises(FrazilError, match=said) as stopped:
        world.merge()
    assert stopped.value.fix is not None and "streams/customers.yaml" in stopped.value.fix


def test_two_merges_in_one_session(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    with world.session() as session:
        merge_new(session, PlainMerger())
        world.land(Change(1, None))
        merge_new(session, PlainMerger())
        snapshots = len(world.table().metadata.snapshots)
    assert world.rows() == {}
    assert snapshots == 6, "a claim, and for each merge what it wrote and its stamp"
    world.check()


def test_a_mirror_of_another_key_is_refused(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    world.mirror = world.mirror.model_copy(update={"where": "id > 1"})
    world.land(Change(2, "bob"))
    with pytest.raises(FrazilError, match="where none, and its file has id > 1"):
        world.merge()


class WaitingMerger(PlainMerger):
    """Leaves a row waiting, as an earlier release did."""

    def merge(
        self, changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
    ) -> MergeResult:
        done = super().merge(changelog, files, mirror, branch, plan)
        return replace(done, state=replace(done.state, waiting=(["0000", 0, ["1"], ["9"]],)))


def test_a_mirror_of_which_an_earlier_release_left_rows_waiting_is_made_anew(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    with world.session() as session:
        merge_new(session, WaitingMerger())
    world.land(Change(2, "bob"))
    with pytest.raises(WaitingRowsError, match=r"1 rows of mirror .*\n  Next: frazil mirror rebuild customers"):
        world.merge()
    assert world.rows() == {1: "ann"}
    world.merge(how="anew")
    assert world.rows() == {1: "ann", 2: "bob"}
