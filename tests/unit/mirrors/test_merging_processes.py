"""Merges of several processes at once: of those that do not see each other, too, one alone publishes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.mirrors.merge.mirror_table import ensure_mirror
from jobs.mirrors.model.merge_plan import MergePlan, MergeResult
from jobs.mirrors.model.mirror_stamp import abandoned_branches
from jobs.mirrors.model.session import MirrorSession, mirror_session
from jobs.mirrors.run import publication
from jobs.mirrors.run.merging import How, merge_new
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import FencedError
from tests.unit.mirrors.mirror_world import (
    CHANGELOG,
    MIRROR,
    MIRROR_STEPS,
    AtStep,
    Change,
    MirrorWorld,
)
from tests.unit.mirrors.plain_merger import PlainMerger


@pytest.fixture
def world(tmp_path: Path) -> MirrorWorld:
    return MirrorWorld(tmp_path)


@pytest.mark.parametrize("step", MIRROR_STEPS[:3])
def test_one_that_sleeps_through_a_takeover_publishes_nothing(world: MirrorWorld, step: str) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    world.land(Change(1, "anna"))

    def taken_over() -> None:
        world.forget_state()
        world.land(Change(2, "bob"))
        world.merge()

    with AtStep(step, taken_over), pytest.raises(FencedError):
        world.merge()
    world.check()
    assert world.rows() == {1: "anna", 2: "bob"}


class At(PlainMerger):
    """Merges, and has something else done before or after."""

    def __init__(self, before: Callable[[], object] = lambda: None, after: Callable[[], object] = lambda: None) -> None:
        self.before, self.after = before, after

    def merge(
        self, changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
    ) -> MergeResult:
        self.before()
        done = super().merge(changelog, files, mirror, branch, plan)
        self.after()
        return done


@pytest.mark.parametrize("how", ["on", "anew"])
def test_two_sessions_of_one_epoch_that_do_not_see_each_other(world: MirrorWorld, how: How) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    world.merge()
    world.land(Change(1, "anna"))
    elsewhere = world.settings.model_copy(update={"state": world.home / "other-state"})
    catalog = world.catalog()
    with (
        world.session() as ours,
        mirror_session(
            world.spec, world.mirror, elsewhere, catalog, catalog.load_table(MIRROR), wait_seconds=0
        ) as theirs,
    ):
        assert ours.epoch == theirs.epoch

        def refused() -> None:
            with pytest.raises(FencedError):
                merge_new(theirs, PlainMerger(), how=how)

        merge_new(ours, At(after=refused))
    assert world.rows() == world.source() == {1: "anna", 2: "bob"}
    world.check()


@pytest.mark.parametrize("first", [True, False], ids=["the first merge", "a later one"])
def test_what_another_merges_before_the_claim_is_not_undone(world: MirrorWorld, first: bool) -> None:
    """Two processes that do not see each other's lease: the later epoch has looked at the mirror before its claim."""
    world.land(Change(1, "ann"))
    if not first:
        world.merge()
    world.land(Change(2, "bob"))
    catalog = world.catalog()
    table = ensure_mirror(world.spec, world.mirror, catalog, world.changelog().schema())
    elsewhere = world.settings.model_copy(update={"state": world.home / "other-state"})

    def opened() -> AbstractContextManager[MirrorSession]:
        return mirror_session(world.spec, world.mirror, elsewhere, catalog, table, wait_seconds=0)

    with world.session():
        pass
    with world.session() as slow, opened() as quick:
        assert slow.epoch > quick.epoch

        def deletes() -> None:
            world.land(Change(2, None))
            merge_new(quick, PlainMerger())
            assert world.rows() == {1: "ann"}

        with AtStep("inside_claim", deletes) as at:
            merge_new(slow, PlainMerger())
        assert at.passed
    assert world.rows() == world.source() == {1: "ann"}
    world.check()


def test_a_stamp_without_changes_hides_no_merge_of_another(world: MirrorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "STAMP_EVERY", timedelta(0))
    world.land(Change(1, "ann"))
    world.merge()
    target = Target(world.catalog(), CHANGELOG, "customers")
    target.claim(2, lambda newest: newest.claimed(2) if newest else pytest.fail("it has landed"))
    world.epoch = 2
    elsewhere = world.settings.model_copy(update={"state": world.home / "other-state"})
    with world.session():
        pass
    with (
        world.session() as slow,
        mirror_session(world.spec, world.mirror, elsewhere, world.catalog(), world.table()) as quick,
    ):
        assert slow.epoch > quick.epoch

        def merges() -> None:
            world.land(Change(2, "bob"))
            merge_new(quick, PlainMerger())

        with AtStep("inside_claim", merges) as at:
            merge_new(slow, PlainMerger())
        assert at.passed
    assert world.rows() == world.source() == {1: "ann", 2: "bob"}
    world.check()


def test_a_branch_that_somebody_else_has_written_is_not_published(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    world.land(Change(2, "bob"))

    def written() -> None:
        table = world.table()
        (name,) = abandoned_branches(table.metadata)
        table.append(pa.Table.from_pylist([{"id": 77}], schema=table.schema().as_arrow()), branch=name)

    with pytest.raises(FrazilError, match="is not as this merge left it"), world.session() as session:
        merge_new(session, At(after=written))
    assert world.rows() == {1: "ann"}
    world.merge()
    assert world.rows() == {1: "ann", 2: "bob"}
