"""Former logs: what a mirror cannot tell of a topic that was made again stops it, and nothing of either log is lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.commit.accept import signed_answer
from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.commit.target import Target
from jobs.mirror.another_log import ordered_without_offsets
from jobs.mirror.errors import AnotherLogError
from jobs.mirror.former_log import FormerLog
from jobs.mirror.merge_plan import Generation, MirrorState, PartitionState
from jobs.mirror.merging import Merged, merge_new
from jobs.mirror.mirror_stamp import source_position
from tests.unit.mirror.expiry import KEEP, LATER, maintained, said
from tests.unit.mirror.mirror_world import CHANGELOG, MIRROR, Change, MirrorWorld
from tests.unit.mirror.plain_merger import P0
from tests.unit.mirror.test_log_stretch import made_again
from tests.unit.mirror.two_logs import P1, P2, POSTGRESQL, OrderingMerger, answer_with, make_again, put


@pytest.fixture
def world(tmp_path: Path) -> MirrorWorld:
    world = MirrorWorld(tmp_path)
    world.lineage = POSTGRESQL
    return world


def merge(world: MirrorWorld) -> Merged:
    with world.session() as session:
        return merge_new(session, OrderingMerger())


def stopped(world: MirrorWorld) -> str:
    with world.session() as session, pytest.raises(AnotherLogError) as found:
        merge_new(session, OrderingMerger())
    assert "another changelog" in (found.value.fix or "")
    return found.value.message


ONE = PartitionState(3, "5", 50, (Generation(0, 0, POSTGRESQL),))


@pytest.mark.parametrize(
    ("partitions", "goes_on"),
    [
        ({}, True),
        ({P0: ONE}, True),
        ({P0: replace(ONE, generations=(Generation(0, 0, POSTGRESQL), Generation(1, 9, POSTGRESQL)))}, False),
        # All changes of a compressed transaction have one position.
        ({P0: replace(ONE, generations=(Generation(0, 0, "mysql/shop/bin/223344"),))}, False),
        ({P0: replace(ONE, generations=(Generation(0, 0, "mariadb/shop/bin/1"),)), P1: ONE}, False),
        ({P0: replace(ONE, generations=(Generation(0, 0, "sqlserver/shop/db"),))}, False),
        ({P0: replace(ONE, generations=(Generation(0, 0, "oracle/shop/db"),))}, False),
        ({P0: replace(ONE, generations=(Generation(0, 0, None),))}, False),
        ({P0: ONE, P1: replace(ONE, position=None)}, False),
    ],
)
def test_positions_order_two_logs_where_each_is_that_of_one_change_of_one_source(
    partitions: dict[TopicPartition, PartitionState], goes_on: bool
) -> None:
    assert ordered_without_offsets(MirrorState(partitions), "customers") is goes_on
    assert ordered_without_offsets(MirrorState(partitions), "orders")


@pytest.mark.parametrize("kind", ["versions", "sqlserver/shop/db", "oracle/shop/db"])
def test_positions_that_several_changes_may_have_stop_the_mirror_at_the_answer(world: MirrorWorld, kind: str) -> None:
    if kind == "versions":
        decode = {"value": "json", "schema": "id long, name string, __op string, v long"}
        key = {"format": "json", "schema": "id long", "into": "_change_key"}
        world.write(decode={**decode, "key": key}, changes={"envelope": "columns", "op": "__op", "order_by": "v"})
    else:
        world.lineage = kind
    world.land(Change(1, "first of the commit"))
    merge(world)
    made_again(world)
    # The second one has the same position.
    world.position_shift, world.at = world.position_shift - 1, world.at - timedelta(minutes=1)
    world.land(Change(1, None))
    assert "was deleted and made again" in stopped(world)
    assert world.rows() == {1: "first of the commit"}


def test_a_letter_that_is_read_again_from_the_new_log_is_no_repeat(world: MirrorWorld) -> None:
    put(world, {P0: 1}, (P0, 0, 9, "old", 5))
    merge(world)
    make_again(world)
    # The change at offset 3 is a dead letter.
    rows = [(P0, n, n, f"new {n}", 100 + n) for n in range(5)]
    put(world, {P0: 5}, *rows[:3], rows[4])
    merge(world)
    answer_with(world, "reset", {P0: OffsetRange(0, 5)})
    put(world, {P0: 2}, *rows[:2])
    done = merge(world)
    assert done.stamp is not None and done.stamp.state.next_offsets == {P0: 5}
    put(world, {P0: 5}, *rows[2:])
    done = merge(world)
    assert done.result is not None and (done.result.counts.late, done.result.counts.repeats) == (3, 0)


def test_letters_of_a_former_log_of_which_the_mirror_had_nothing_come_late(world: MirrorWorld) -> None:
    put(world, {P0: 10})
    merge(world)
    make_again(world)
    put(world, {P0: 1}, (P0, 0, 1, "one", 100))
    done = merge(world)
    assert done.stamp is not None and not done.stamp.state.logs["customers"].mixed
    put(world, {P0: 8}, (P0, 7, 2, "letter", 50), replay=True)
    done = merge(world)
    assert done.result is not None and done.result.counts.late == 1
    assert done.stamp is not None and done.stamp.state.next_offsets == {P0: 1}
    put(world, {P0: 2}, (P0, 1, 1, "newer", 101))
    done = merge(world)
    assert world.rows() == {1: "newer"} and done.stamp is not None and done.stamp.state.next_offsets == {P0: 2}


@pytest.mark.parametrize(("offset", "goes_on"), [(9, False), (10, True)])
def test_letters_without_a_position_that_may_be_of_the_former_log_stop_the_mirror(
    world: MirrorWorld, offset: int, goes_on: bool
) -> None:
    world.write(changes={"envelope": "upsert"})
    put(world, {P0: 10})
    merge(world)
    make_again(world)
    put(world, {P0: 30}, *((P0, n, n, f"new {n}", 100 + n) for n in range(20, 30)))
    merge(world)
    put(world, {P0: offset + 1}, (P0, offset, 20, "letter", 50), replay=True)
    if not goes_on:
        assert f"offset {offset} of partition 0, which was a dead letter" in stopped(world)
        return
    done = merge(world)
    assert done.result is not None and done.result.counts.late == 1
    assert done.stamp is not None and done.stamp.state.next_offsets == {P0: 30}


def test_letters_of_a_former_log_in_a_partition_without_a_change_stop_the_mirror(world: MirrorWorld) -> None:
    put(world, {P0: 1, P1: 10}, (P0, 0, 1, "one", 5))
    merge(world)
    make_again(world)
    put(world, {P0: 1, P1: 0}, (P0, 0, 1, "new", 100))
    merge(world)
    put(world, {P1: 8}, (P1, 7, 2, "letter", 50), replay=True)
    assert "offset 7 of partition 1" in stopped(world)


def test_letters_come_late_where_a_stamp_of_an_earlier_release_has_come_past_the_former_log(world: MirrorWorld) -> None:
    put(world, {P0: 10}, *((P0, n, n, f"old {n}", n) for n in range(9)))
    merge(world)
    make_again(world)
    put(world, {P0: 10}, (P0, 9, 1, "new", 100))
    stamp = merge(world).stamp
    assert stamp is not None
    earlier = replace(stamp, state=replace(stamp.state, logs={}))
    target = Target(world.catalog(), MIRROR, f"customers~mirror~{MIRROR}")
    newest = target.read()
    assert newest is not None
    target.restamp(signed_answer(replace(newest.decided(None), mirror=earlier.to_json()), newest.epoch, "x"))
    put(world, {P0: 10}, (P0, 9, 20, "letter", 9), replay=True)
    done = merge(world)
    assert done.result is not None and (done.result.counts.late, done.result.counts.repeats) == (1, 0)


def test_rows_of_a_snapshot_that_are_sent_again_once_the_new_log_is_ahead_are_repeats(world: MirrorWorld) -> None:
    put(world, {P0: 1}, (P0, 0, 1, "old", 5))
    merge(world)
    make_again(world)
    put(world, {P0: 3}, (P0, 0, 1, "read 1", 100), (P0, 1, 2, "read 2", 100), (P0, 2, 1, "new", 110))
    merge(world)
    # A worker that is killed begins with what it had sent, and offsets may be read again.
    put(world, {P0: 5}, (P0, 3, 2, "read 2", 100), (P0, 4, 1, "new", 110))
    done = merge(world)
    assert done.result is not None and done.result.counts.repeats == 1
    answer_with(world, "reset", {P0: OffsetRange(0, 5)})
    put(world, {P0: 2}, (P0, 0, 1, "read 1", 100), (P0, 1, 2, "read 2", 100))
    merge(world)
    assert world.rows() == {1: "new", 2: "read 2"}


def test_rows_of_a_snapshot_below_the_former_log_stop_the_mirror_in_any_merge(world: MirrorWorld) -> None:
    put(world, {P0: 1}, (P0, 0, 1, "old", 50))
    merge(world)
    make_again(world)
    put(world, {P0: 1}, (P0, 0, 1, "sent again", 49))
    done = merge(world)
    assert done.result is not None and done.result.counts.repeats == 1
    put(world, {P0: 3}, (P0, 1, 1, "sent again", 49), (P0, 2, 1, "read 1", 40))
    assert "positions do not go on" in stopped(world)


THREE = {P0: 2, P1: 1, P2: 0}


@pytest.fixture
def partitioned(world: MirrorWorld) -> MirrorWorld:
    """A topic of three partitions, of which the last one never had a change, is made again."""
    put(world, THREE, (P0, 0, 10, "a", 5), (P1, 0, 11, "b", 8), (P0, 1, 10, "a2", 12))
    merge(world)
    make_again(world)
    return world


@pytest.mark.parametrize("count", [2, 4])
def test_a_topic_with_another_number_of_partitions_stops_the_mirror(partitioned: MirrorWorld, count: int) -> None:
    there = {TopicPartition("customers", n): int(n == 0) for n in range(count)}
    put(partitioned, there, (P0, 0, 10, "a3", 20))
    assert f"it has {count} partitions and had 3" in stopped(partitioned)
    assert partitioned.rows() == {10: "a2", 11: "b"}


def test_partitions_may_come_once_each_has_come_past_the_former_log(partitioned: MirrorWorld) -> None:
    put(partitioned, {P0: 1, P1: 0, P2: 0}, (P0, 0, 10, "a3", 20))
    done = merge(partitioned)
    said = source_position(done.stamp, "customers") if done.stamp else None
    assert said is None, "a partition had no change"
    put(partitioned, {P0: 1, P1: 1, P2: 0}, (P1, 0, 11, "b2", 19))
    done = merge(partitioned)
    assert done.stamp is not None and not done.stamp.state.logs["customers"].behind
    p3 = TopicPartition("customers", 3)
    put(partitioned, {P0: 1, P1: 1, P2: 1, p3: 1}, (P2, 0, 12, "c", 18), (p3, 0, 13, "d", 17))
    done = merge(partitioned)
    assert partitioned.rows() == {10: "a3", 11: "b2", 12: "c", 13: "d"}
    said = source_position(done.stamp, "customers") if done.stamp else None
    assert said is not None and int(said.position, 16) == 17


def test_where_the_snapshots_before_an_answer_have_expired_the_message_has_a_way_out(world: MirrorWorld) -> None:
    put(world, {P0: 5})
    merge(world)
    put(world, {P0: 10})
    make_again(world)
    put(world, {P0: 1}, (P0, 0, 1, "one", 100))
    put(world, {P0: 2}, (P0, 1, 2, "two", 101))
    changelog = world.changelog()
    gone = [each.snapshot_id for each in changelog.metadata.snapshots][:-3]
    changelog.maintenance.expire_snapshots().by_ids(gone).commit()
    assert "snapshots that say which change is of which log have expired" in stopped(world)


def test_a_mirror_with_changes_of_two_logs_is_not_made_anew_of_its_base(world: MirrorWorld) -> None:
    world.write(changes=KEEP)
    world.land(Change(1, "old"))
    world.land(Change(2, "left"))
    merge(world)
    made_again(world)
    world.land(Change(1, "new"), Change(1, "newer"))
    merge(world)
    maintained(world, MIRROR, LATER)
    gone = maintained(world, CHANGELOG, LATER)
    assert gone.done and gone.done[0].detail["expired_changes"], said(gone)
    with world.session() as session, pytest.raises(AnotherLogError):
        merge_new(session, OrderingMerger(), how="anew")
    world.at, world.position_shift = LATER, world.position_shift + 10
    world.land(Change(2, "right"))
    merge(world)
    assert world.rows() == {1: "newer", 2: "right"}


def test_what_is_remembered_of_former_logs_is_read_back() -> None:
    one = FormerLog(False, 3, frozenset({0, 2}), {0: 10, 2: 4})
    state = MirrorState(logs={"customers": one, "orders": FormerLog()})
    assert MirrorState.from_json(state.to_json()) == state
    assert MirrorState.from_json({"logs": ["customers"]}).logs == {"customers": FormerLog()}
    later = FormerLog(True, 2, frozenset({1}), {0: 3, 1: 7})
    assert one.with_later(later) == FormerLog(True, 2, frozenset({1}), {0: 10, 1: 7, 2: 4})
    assert one.with_later(FormerLog()).ends is None
    assert [one.may_have(0, 9), one.may_have(0, 10), one.may_have(1, 0), FormerLog().may_have(0, 99)] == [1, 0, 0, 1]
