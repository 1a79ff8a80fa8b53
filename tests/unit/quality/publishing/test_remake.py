"""The remake of a branch on a real catalog: what it keeps, what it drops, what it refuses."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from jobs.quality.publishing.gate import Gate, Verdict
from jobs.quality.publishing.gated import publish_if_fit, release
from jobs.quality.publishing.main_freshness import branch_ahead
from jobs.quality.publishing.publishing import answer_rollback, unpublished
from jobs.quality.publishing.remake import NotRemadeError, RemadeBranch, remake
from jobs.tables.commit.history import stamp_history
from jobs.tables.commit.history.branch import on_branch
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.reissue import as_landed, last_remade, reissued
from jobs.tables.commit.protocol.compare_and_swap import Backoff
from tests.unit.quality.publishing.branch_world import (
    NAME,
    P0,
    AtStep,
    BranchWorld,
    Killed,
)

GATED: dict[str, Any] = {
    "publish": {"gate": "contract"},
    "contract": {"expectations": [{"expect_column_values_to_not_be_null": {"column": "id"}}]},
}
REMAKE_STEPS = ("remake_before_commit", "inside_remake", "remake_after_commit")


def gated_world(home: Path) -> BranchWorld:
    return BranchWorld(home, **GATED)


def made_again(world: BranchWorld, **options: Any) -> RemadeBranch:
    options = {"needed": lambda snapshot, stamp: False, "backoff": lambda: Backoff(sleep=lambda _: None)} | options
    return remake(world.catalog(), NAME, [world.spec], "ingest", **options)


def along(table: Table, branch: str = "ingest") -> Iterator[Snapshot]:
    return ancestors(table.metadata, table.metadata.refs[branch].snapshot_id)


def paths(table: Table, branch: str) -> set[str]:
    return {each.file.file_path for each in on_branch(table, branch).scan().plan_files()}


@pytest.fixture
def world(tmp_path: Path) -> BranchWorld:
    return gated_world(tmp_path / "world")


def test_it_has_mains_files_and_those_that_are_not_published(world: BranchWorld) -> None:
    first = world.land(2) + world.land(3) + world.land(1, "payments~replay")
    world.publish()
    world.compact()
    second = world.land(2, files=2) + world.land(1, "payments~replay")
    before = world.table()
    done = made_again(world)
    table = world.table()
    assert paths(table, "main") <= paths(table, "ingest")
    assert len(paths(table, "ingest") - paths(table, "main")) == 3 == done.files
    assert not paths(table, "ingest") & (paths(before, "ingest") - paths(before, "main") - paths(table, "ingest"))
    assert (done.snapshots, done.waiting, done.rows) == (4, 2, 5)
    assert world.rows("ingest") == Counter(first + second)
    assert world.rows() == Counter(first)
    world.publish()
    assert world.rows() == Counter(first + second)


def test_what_waits_has_its_offsets_times_and_rows_as_before(world: BranchWorld) -> None:
    world.land(2)
    world.publish()
    world.land(3)
    world.land(2)
    before, ahead = unpublished(world.spec, world.table()), branch_ahead(world.table().metadata, "payments")
    made_again(world)
    after, then = unpublished(world.spec, world.table()), branch_ahead(world.table().metadata, "payments")
    assert before and after and ahead and then
    assert (after.rows, after.paths, after.ranges) == (before.rows, before.paths, before.ranges)
    assert (after.first_at, after.last_at) == (before.first_at, before.last_at)
    assert (then.snapshots, then.rows, then.since) == (ahead.snapshots, ahead.rows, ahead.since)
    assert then.kept_from and ahead.kept_from and then.kept_from > ahead.kept_from


def test_a_published_stamp_that_is_issued_again_is_not_published_twice(world: BranchWorld) -> None:
    rows = world.land(4)
    world.publish()
    made_again(world)
    found = unpublished(world.spec, world.table())
    assert found is not None and not found.files and not found.ranges
    assert world.publish().snapshot_id is None
    rows += world.land(1)
    found = unpublished(world.spec, world.table())
    assert found is not None and found.ranges == {P0: (4, 5)}
    world.publish()
    assert world.rows() == world.rows("ingest") == Counter(rows)


def test_the_stream_and_its_replays_go_on_where_they_stood(world: BranchWorld) -> None:
    world.land(2)
    world.land(1, "payments~replay")
    world.publish()
    histories = {}
    for stream in ("payments", "payments~replay"):
        histories[stream] = stamp_history.history_of(on_branch(world.table(), "ingest"), stream)
    made_again(world)
    for stream, past in histories.items():
        found = stamp_history.history_of(on_branch(world.table(), "ingest"), stream)
        assert (replace(found, lost_start={}), found.kept) == (past, past.kept)
        assert found.newest is not None and not found.rolled_back
    world.claim()
    stamp = world.target().read()
    assert stamp is not None and stamp.position == {P0: 2}
    world.land(1)


def test_the_history_is_whole_once_all_that_was_issued_again_has_expired(world: BranchWorld) -> None:
    world.land(2)
    world.land(1, "payments~replay")
    world.publish()
    made_again(world)
    world.land(1)
    world.publish()
    table = world.table()
    head = table.metadata.refs["ingest"].snapshot_id
    old = [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id != head]
    keep = {ref.snapshot_id for ref in table.metadata.refs.values()}
    table.maintenance.expire_snapshots().by_ids([each for each in old if each not in keep]).commit()
    for stream in ("payments", "payments~replay"):
        past = stamp_history.history_of(on_branch(world.table(), "ingest"), stream)
        assert past.newest is not None and not past.rolled_back and not past.doubt
    rows = world.land(2)
    world.publish()
    assert set(rows) <= set(world.rows())


def test_a_stamp_is_read_as_the_commit_that_it_stands_for(world: BranchWorld) -> None:
    world.land(2)
    world.publish()
    world.land(1)
    seen = on_branch(world.table(), "ingest").metadata
    before = list(stamp_history.stamped_snapshots(seen, "payments"))
    made_again(world, needed=lambda snapshot, stamp: True)
    made_again(world, needed=lambda snapshot, stamp: True)
    seen = on_branch(world.table(), "ingest").metadata
    after = list(stamp_history.stamped_snapshots(seen, "payments"))
    told = [(each.snapshot_id, each.sequence_number, each.timestamp_ms, stamp) for each, stamp in before]
    assert [(each.snapshot_id, each.sequence_number, each.timestamp_ms, stamp) for each, stamp in after] == told
    last = before[-1][0].sequence_number or 0
    assert not list(stamp_history.stamped_snapshots(seen, "payments", last)), "what was counted is not counted again"
    assert not stamp_history.stamps_along_main(seen, "payments", last)
    assert [
        bool(each.published) for _, mark in [(0, reissued(each)) for each in along(world.table())] if (each := mark)
    ]
    assert all((as_landed(each).sequence_number or 0) <= last for each in along(world.table()) if reissued(each))


def test_what_is_held_stays_held_and_is_released_as_it_was(world: BranchWorld) -> None:
    good = world.land(2)
    world.publish()
    bad = world.land(3)

    def judge(found: Any) -> Verdict:
        return Verdict(False, ("bad",), "c", found.rows)

    def look() -> str:
        return publish_if_fit(world.spec, world.settings, world.catalog(), "x", judge, "c").became

    assert look() == "held"
    later = world.land(1)
    before = Gate.of(world.table().metadata.properties, "payments")
    made_again(world)
    after = Gate.of(world.table().metadata.properties, "payments")
    assert before.held and after.held
    assert (after.held.rows, after.held.ranges, after.held.since) == (
        before.held.rows,
        before.held.ranges,
        before.held.since,
    )
    assert look() == "still held"
    released = release(world.spec, world.settings, world.catalog(), "x", "y").interval
    assert released is not None and released.rows == 3
    assert world.rows() == Counter(good + bad), "what has landed behind it is not released with it"
    world.publish()
    assert world.rows() == Counter(good + bad + later)


def test_rows_that_were_deleted_on_main_are_not_on_the_remade_branch(world: BranchWorld) -> None:
    world.land(2)
    kept = world.land(1)
    world.publish()
    foreign = world.append_to_main(2)
    table = world.table()
    table.delete(f"id < {kept[0]} and id > 0")
    made_again(world)
    assert world.rows("ingest") == world.rows() == Counter(kept + foreign)
    kept += world.land(1)
    world.publish()
    assert world.rows() == Counter(kept + foreign)


@pytest.mark.parametrize("name", REMAKE_STEPS)
def test_killed_at_each_step_the_branch_is_whole(world: BranchWorld, name: str) -> None:
    rows = world.land(2)
    world.publish()
    world.compact()
    rows += world.land(2)
    with AtStep(name) as armed, contextlib.suppress(Killed):
        made_again(world)
    assert armed.passed
    assert (last_remade(world.table().metadata, "ingest") is not None) == (name == "remake_after_commit")
    assert world.rows("ingest") == Counter(rows)
    world.lose_state()
    made_again(world)
    rows += world.land(1)
    world.publish()
    assert world.rows() == world.rows("ingest") == Counter(rows)


@pytest.mark.parametrize(
    ("name", "what"),
    [("remake_before_commit", "land"), *(("inside_remake", each) for each in ("land", "publish", "compact", "claim"))],
)
def test_what_happens_meanwhile_is_kept(world: BranchWorld, name: str, what: str) -> None:
    rows = world.land(2)
    world.publish()
    rows += world.land(2)

    def meanwhile() -> None:
        if what == "land":
            rows.extend(world.land(1))
        else:
            getattr(world, what)()

    with AtStep(name, meanwhile) as armed:
        made_again(world)
    assert armed.passed
    assert world.rows("ingest") == Counter(rows)
    world.publish()
    assert world.rows() == world.rows("ingest") == Counter(rows)


def test_a_commit_of_the_stream_under_way_is_made_on_the_remade_branch(world: BranchWorld) -> None:
    rows = world.land(2)
    world.publish()
    world.compact()
    with (
        AtStep("inside_anchor_commit", lambda: made_again(world)),
        AtStep("inside_dead_letters_commit", lambda: made_again(world)) as armed,
    ):
        rows += world.land(2)
    assert armed.passed
    assert world.rows("ingest") == Counter(rows)
    world.publish()
    assert world.rows() == Counter(rows)


def test_an_older_driver_stays_fenced(world: BranchWorld) -> None:
    world.land(2)
    world.epochs["payments"] += 5
    world.claim()
    made_again(world)
    world.epochs["payments"] = 1
    with pytest.raises(Exception, match="epoch"):
        world.land(1)


def test_a_branch_without_a_gate_is_left_alone(tmp_path: Path) -> None:
    world = BranchWorld(tmp_path / "plain")
    world.land(2)
    with pytest.raises(NotRemadeError, match="has no `publish`"):
        made_again(world)


def test_another_stream_without_a_file_keeps_it_from_being_remade(world: BranchWorld) -> None:
    world.land(2)
    world.land(1, "others")
    with pytest.raises(NotRemadeError, match="stream others, which no file names"):
        made_again(world)


def test_rows_that_were_left_out_of_main_are_not_dropped(world: BranchWorld) -> None:
    first = world.land(2)
    world.publish()
    stood = world.table().metadata.refs["main"].snapshot_id
    second = world.land(3)
    world.publish()
    with world.table().manage_snapshots() as change:
        change.rollback_to_snapshot(stood)
    with pytest.raises(NotRemadeError, match="rolled back"):
        made_again(world)
    answer_rollback(world.spec, world.settings, world.catalog(), "leave-out", "w: y")
    with pytest.raises(NotRemadeError, match="left out of main"):
        made_again(world)
    table = world.table()
    with table.transaction() as change:
        change.remove_properties("frazil.left_out.ingest")
    with pytest.raises(NotRemadeError, match="left out of main"):
        made_again(world)
    assert world.rows("ingest") == Counter(first + second)


def test_main_that_was_moved_back_before_the_remake_cannot_be_published_again(world: BranchWorld) -> None:
    first = world.land(2)
    world.publish()
    stood = world.table().metadata.refs["main"].snapshot_id
    second = world.land(3)
    world.publish()
    base = world.table().metadata.refs["main"].snapshot_id
    third = world.land(1)
    made_again(world)
    with world.table().manage_snapshots() as change:
        change.rollback_to_snapshot(stood)
    with pytest.raises(Exception, match="onto which branch ingest was rebased") as refused:
        answer_rollback(world.spec, world.settings, world.catalog(), "again", "w: y")
    assert str(base) in (refused.value.fix or "")  # pyright: ignore[reportAttributeAccessIssue]
    with world.table().manage_snapshots() as change:
        change.set_current_snapshot(base)
    world.publish()
    assert world.rows() == Counter(first + second + third)


def test_main_that_was_moved_back_to_the_remake_is_published_again(world: BranchWorld) -> None:
    rows = world.land(2)
    world.publish()
    rows += world.land(1)
    made_again(world)
    base = world.table().metadata.refs["main"].snapshot_id
    world.publish()
    rows += world.land(1)
    world.publish()
    with world.table().manage_snapshots() as change:
        change.rollback_to_snapshot(base)
    answer_rollback(world.spec, world.settings, world.catalog(), "again", "w: y")
    world.publish()
    assert world.rows() == Counter(rows)


def test_a_branch_that_was_moved_back_behind_its_remake_is_told(world: BranchWorld) -> None:
    world.land(2)
    world.publish()
    world.land(2)
    stood = world.table().metadata.refs["ingest"].snapshot_id
    made_again(world)
    table = world.table()
    with table.manage_snapshots() as change:
        change.remove_branch("ingest")
    with world.table().manage_snapshots() as change:
        change.create_branch(stood, "ingest")
    world.land(1)
    with pytest.raises(Exception, match="it was moved back to an earlier one"):
        world.publish()
    answer_rollback(world.spec, world.settings, world.catalog(), "leave-out", "w: y")
    rows = world.land(1)
    world.publish()
    assert set(rows) <= set(world.rows())
