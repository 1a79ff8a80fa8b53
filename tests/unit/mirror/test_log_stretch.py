"""Mirrors of a topic that was made again: they go on where positions do, with the new log's offsets, or they stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.commit.accept import signed_answer
from jobs.commit.offsets import OffsetRange
from jobs.commit.proposals import ProposalOutcome
from jobs.commit.stamp_fields import Decision
from jobs.commit.stamps import Stamp
from jobs.commit.target import Target
from jobs.mirror.another_log import merged_behind_logs
from jobs.mirror.errors import AnotherLogError
from jobs.mirror.former_log import FormerLog
from jobs.mirror.merge_plan import Generation, MergePlan, MergeResult, MirrorState, PartitionState
from jobs.mirror.merging import How, Merged, merge_new
from jobs.mirror.mirror_status import mirror_status
from jobs.mirror.mirror_table import ensure_mirror
from jobs.mirror.session import mirror_session
from jobs.mirror.small_merge.small_merge import merge_small
from tests.unit.mirror.expiry import KEEP, LATER, expire
from tests.unit.mirror.mirror_world import CHANGELOG, COLUMNS, MIRROR, AtStep, Change, Killed, MirrorWorld
from tests.unit.mirror.plain_merger import P0, PlainMerger


class SmallMerger(PlainMerger):
    """Merges as it is done beside a driver, as long as nothing needs Spark."""

    def merge(
        self, changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
    ) -> MergeResult:
        done = merge_small(changelog, files, mirror, branch, plan)
        assert done is not None, "a small merge does it"
        return done


HOWS: tuple[How, ...] = ("on", "anew", "incomplete")


@pytest.fixture
def world(tmp_path: Path) -> MirrorWorld:
    world = MirrorWorld(tmp_path)
    world.lineage = "postgresql/shop/app"
    return world


def merge(world: MirrorWorld, *, how: How = "on") -> Merged:
    with world.session() as session:
        return merge_new(session, SmallMerger(), how=how)


def made_again(world: MirrorWorld, *, keep: int = 0) -> None:
    """The topic is deleted and made again, or cut, and that is answered; offsets begin anew, positions go on."""
    target = Target(world.catalog(), CHANGELOG, "customers")
    newest = target.read()
    assert newest is not None
    answer = "cut_topic" if keep else "recreated_topic"
    decided = newest.decided(Decision(answer, again={P0: OffsetRange(keep, world.end)}))
    position = {P0: keep} if keep else {}
    target.restamp(signed_answer(replace(decided, start=position, position=position), world.epoch, "so be it"))
    world.position_shift += world.end - keep
    world.at += timedelta(minutes=world.end - keep)
    world.end = keep


def stopped(world: MirrorWorld, *, how: How = "on") -> AnotherLogError:
    with pytest.raises(AnotherLogError) as found:
        merge(world, how=how)
    return found.value


def ten(name: str) -> list[Change]:
    return [Change(n, f"{name} {n}") for n in range(10)]


@pytest.mark.parametrize("keep", [0, 4])
def test_a_mirror_goes_on_with_the_offsets_of_the_new_log(world: MirrorWorld, keep: int) -> None:
    world.land(*ten("old"))
    merge(world)
    made_again(world, keep=keep)
    world.land(Change(1, "new 1"), Change(2, None))
    done = merge(world)
    assert done.result is not None and (done.result.counts.read, done.result.counts.late) == (2, 0)
    assert done.stamp is not None and done.stamp.state.next_offsets == {P0: keep + 2}
    assert world.rows() == world.source()
    # One that happened later and is lower is found at once, and not at the old log's end.
    world.land(Change(3, "new 3"))
    merge(world)
    assert world.rows() == world.source()
    assert mirror_status(world.spec, world.mirror, world.settings, world.catalog()).offsets == {P0: keep + 3}


def test_what_is_left_of_the_former_log_is_merged_before_the_new_one(world: MirrorWorld) -> None:
    world.land(*ten("first"))
    merge(world)
    world.land(*ten("second"))
    made_again(world)
    world.land(*ten("third"))
    made_again(world)
    world.land(Change(1, "fourth"), Change(2, None))
    done = merge(world)
    assert done.result is not None and (done.result.counts.read, done.result.counts.repeats) == (22, 0)
    assert world.rows() == world.source()
    assert done.stamp is not None and done.stamp.state.next_offsets == {P0: 2}


def test_an_answer_is_known_before_a_change_of_the_new_log(world: MirrorWorld) -> None:
    world.land(*ten("old"))
    merge(world)
    made_again(world)
    done = merge(world)
    assert (done.result, done.stamp and done.stamp.state.next_offsets) == (None, {P0: 0})
    stamp = world.stamp()
    assert stamp is not None and {*stamp.state.logs} == {"customers"} and stamp.state.next_offsets == {P0: 0}
    world.land(Change(1, "new"))
    merge(world)
    assert world.rows() == world.source()


@pytest.mark.parametrize("step", ["mirror_before_merge", "mirror_after_merge", "mirror_before_publish"])
def test_a_merge_that_is_killed_between_two_logs_is_made_again(world: MirrorWorld, step: str) -> None:
    world.land(*ten("old"))
    merge(world)
    world.land(Change(3, None), Change(4, "left"))
    made_again(world)
    world.land(Change(4, "new"))
    with AtStep("mirror_after_publish"), pytest.raises(Killed):
        merge(world)
    world.forget_state()
    with AtStep(step), pytest.raises(Killed):
        merge(world)
    world.forget_state()
    merge(world)
    assert world.rows() == world.source()


def test_changes_that_were_sent_again_to_the_new_log_are_left_out(world: MirrorWorld) -> None:
    world.land(*ten("old"))
    merge(world)
    made_again(world)
    # The connector goes on from where it had written down its offsets.
    world.position_shift, world.at = world.position_shift - 3, world.at - timedelta(minutes=3)
    world.land(Change(7, "old 7"), Change(8, "old 8"), Change(9, "old 9"), Change(9, "new 9"))
    done = merge(world)
    assert done.result is not None and done.result.counts.repeats == 2
    assert world.rows() == world.source()


@pytest.mark.parametrize("clock", [0, -60])
def test_a_connector_that_reads_the_source_anew_stops_the_mirror(world: MirrorWorld, clock: int) -> None:
    world.position_shift = 1000
    world.land(*ten("old"))
    merge(world)
    before = world.rows()
    made_again(world)
    # Rows that are read have the time of the connector's clock.
    world.position_shift, world.at = 0, world.at + timedelta(minutes=clock)
    world.land(Change(1, "read 1", "r"), Change(2, "read 2", "r"))
    for how in HOWS:
        problem = stopped(world, how=how)
        assert "topic customers" in problem.message and "another changelog" in (problem.fix or "")
    assert "positions do not go on" in stopped(world).message and world.rows() == before
    another_changelog(world)


def another_changelog(world: MirrorWorld) -> None:
    """The answer of the message: another changelog, which the topic as it is now lands in, and another mirror."""
    name, mirror = "shop.customers_changes_2", "shop.customers_2"
    landed = world.changelog().scan().to_arrow()
    world.catalog().create_table(name, COLUMNS, properties={"format-version": "2"})
    world.write(table={"name": name}, mirrors=[{"table": mirror, "buckets": 2}])
    target = Target(world.catalog(), name, "customers")
    first = Stamp("customers", "claim", -1, 1, "c", start={P0: 0}, position={P0: 0})
    target.claim(1, lambda newest: first)
    target.read()
    rows = [row for row in landed.to_pylist() if (row["name"] or "").startswith("read")]
    stamp = Stamp("customers", "batch", 0, 1, "c", start={P0: 0}, position={P0: len(rows)})
    files, batch = world.data_files(target.table, rows), {P0: OffsetRange(0, len(rows))}
    assert target.land(stamp, files, seen=target.seen(), batch=batch, position={P0: 0}) is ProposalOutcome.LANDED
    catalog = world.catalog()
    table = ensure_mirror(world.spec, world.mirror, catalog, COLUMNS)
    for how in HOWS:
        with mirror_session(world.spec, world.mirror, world.settings, catalog, table, wait_seconds=0) as session:
            merge_new(session, SmallMerger(), how=how)
        found = catalog.load_table(mirror).scan().to_arrow().to_pylist()
        assert {row["id"]: row["name"] for row in found} == {row["id"]: row["name"] for row in rows}


def test_a_mirror_with_expired_changes_is_made_of_another_changelog(world: MirrorWorld) -> None:
    world.write(changes=KEEP)
    world.land(*ten("old"))
    expire(world)
    made_again(world)
    world.at = LATER + timedelta(days=61)
    world.land(*(Change(n, f"read {n}", "r") for n in range(5)))
    for how in HOWS:
        stopped(world, how=how)
    another_changelog(world)


def test_a_source_that_is_restored_later_stops_the_mirror(world: MirrorWorld) -> None:
    world.land(*ten("old"))
    merge(world)
    made_again(world)
    world.land(Change(1, "new"))
    merge(world)
    world.position_shift -= 5
    world.land(Change(1, "restored"))
    assert "the source was restored" in stopped(world).message
    assert world.rows()[1] == "new"


def test_a_stamp_of_an_earlier_release_goes_on_with_the_new_log(world: MirrorWorld) -> None:
    world.land(*ten("old"))
    merge(world)
    made_again(world)
    world.land(Change(1, "new 1"))
    stamp = merge(world).stamp
    assert stamp is not None
    # It had gone on, with the offsets of the former log.
    partitions = {P0: replace(stamp.state.partitions[P0], next_offset=10)}
    earlier = replace(stamp, state=replace(stamp.state, partitions=partitions, logs={}))
    target = Target(world.catalog(), MIRROR, f"customers~mirror~{MIRROR}")
    newest = target.read()
    assert newest is not None
    target.restamp(signed_answer(replace(newest.decided(None), mirror=earlier.to_json()), newest.epoch, "x"))
    world.land(Change(1, "newer 1"))
    done = merge(world)
    assert done.stamp is not None and done.stamp.state.next_offsets == {P0: 2}
    assert world.rows() == world.source()


def test_where_snapshots_between_two_logs_have_expired_nothing_is_mixed(world: MirrorWorld) -> None:
    world.land(*ten("old"))
    merge(world)
    world.land(Change(1, "left"))
    made_again(world)
    for name in ("new 1", "newer 1"):
        world.land(Change(1, name))
    changelog = world.changelog()
    head = changelog.metadata.current_snapshot_id
    gone = [each.snapshot_id for each in changelog.metadata.snapshots if each.snapshot_id != head]
    changelog.maintenance.expire_snapshots().by_ids(gone).commit()
    assert "snapshots that say which change is of which log have expired" in stopped(world).message
    assert world.rows()[1] == "old 1"


def test_another_source_behind_a_topic_that_was_made_again_stops_the_mirror(world: MirrorWorld) -> None:
    one = (Generation(0, 0, "postgresql/shop/app"),)
    two = (*one, Generation(1, 5, "postgresql/shop/other"))
    before = MirrorState({P0: PartitionState(3, "5", 50, one)}, logs={"customers": FormerLog()})
    after = MergeResult(replace(before, partitions={P0: PartitionState(9, "5", 50, two)}))
    with pytest.raises(AnotherLogError, match="positions begin anew with another source"):
        merged_behind_logs(world.spec, world.mirror, before, lambda: after)
    # One that has gone on like that, by an earlier release, goes on.
    assert merged_behind_logs(world.spec, world.mirror, after.state, lambda: after) is after
    assert merged_behind_logs(world.spec, world.mirror, replace(before, logs={}), lambda: after) is after
