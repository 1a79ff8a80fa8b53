"""A topic that was recreated, cut, or got partitions stops its mirrors; they stay as they are and can be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.mirrors.check.consistency import check_consistency
from jobs.mirrors.merge.mirror_table import ensure_mirror
from jobs.mirrors.model.changed_topics import refuse_added_partitions, refuse_recreated_topics
from jobs.mirrors.model.errors import AddedPartitionsError, AnotherLogError
from jobs.mirrors.model.merge_plan import MergePlan, MergeResult, MirrorState
from jobs.mirrors.model.mirror_stamp import mirror_id
from jobs.mirrors.model.session import mirror_session
from jobs.mirrors.run.merging import How, merge_new
from jobs.mirrors.run.mirror_run import run_mirror
from jobs.mirrors.run.mirror_status import mirror_status
from jobs.tables.commit.history.other_logs import OTHER_LOGS_PREFIX, other_logs
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.accept import signed_answer
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Decision
from jobs.tables.commit.stamp.stamps import Stamp
from tests.unit.mirrors.expiry import (
    KEEP,
    LATER,
    expire,
    maintained,
    said,
)
from tests.unit.mirrors.mirror_world import (
    CHANGELOG,
    COLUMNS,
    MIRROR,
    Change,
    MirrorWorld,
)
from tests.unit.mirrors.plain_merger import P0, PlainMerger


def answer(world: MirrorWorld, answered: Literal["recreated_topic", "cut_topic", "reset"], *, landed: int) -> None:
    """An operator accepts that offsets begin anew, behind so many that had landed."""
    target = Target(world.catalog(), CHANGELOG, "customers")
    newest = target.read()
    assert newest is not None
    decision = Decision(answered, again={P0: OffsetRange(0, landed)} if landed else {})
    target.restamp(signed_answer(newest.decided(decision), world.epoch, "so be it"))


HOWS: tuple[How, ...] = ("on", "anew", "incomplete")


def recreated(world: MirrorWorld) -> None:
    """The topic is recreated, and that is answered; offsets begin anew, positions and times go on."""
    answer(world, "recreated_topic", landed=world.end)
    target = Target(world.catalog(), CHANGELOG, "customers")
    newest = target.read()
    assert newest is not None
    target.restamp(replace(newest, start={}, position={}))
    world.position_shift += world.end
    world.at += timedelta(minutes=world.end)
    world.end = 0


def stopped(world: MirrorWorld, how: How = "on") -> AnotherLogError:
    with pytest.raises(AnotherLogError) as found:
        world.merge(how=how)
    assert "It stays as it is and can be read" in found.value.message
    assert "frazil run customers and frazil mirror run customers" in (found.value.fix or "")
    return found.value


def restamp(world: MirrorWorld, **mirror: Any) -> None:
    """The mirror's stamp says something else."""
    target = Target(world.catalog(), MIRROR, mirror_id("customers", MIRROR))
    newest = target.read()
    assert newest is not None
    told = {**newest.mirror, **mirror}
    target.restamp(signed_answer(replace(newest.decided(None), mirror=told), newest.epoch, "x"))


@pytest.mark.parametrize(
    ("answered", "said"),
    [("recreated_topic", "was deleted and made again"), ("cut_topic", "has lost records that had landed")],
)
def test_a_mirror_stops_at_the_answer_and_stays_as_it_is(
    tmp_path: Path, answered: Literal["recreated_topic", "cut_topic"], said: str
) -> None:
    world = MirrorWorld(tmp_path)
    world.land(Change(1, "ann"), Change(2, "bob"))
    world.merge()
    world.land(Change(1, "left"))
    answer(world, answered, landed=3)
    for how in HOWS:
        assert said in stopped(world, how).message
    problem = mirror_status(world.spec, world.mirror, world.settings, world.catalog()).problem
    assert problem is not None and said in problem.message
    assert world.rows() == {1: "ann", 2: "bob"}


def test_changes_of_the_new_topic_are_never_merged_wherever_positions_are(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path)
    world.lineage = "postgresql/shop/app"
    world.land(Change(1, "ann"), Change(2, "bob"))
    world.merge()
    recreated(world)
    world.land(Change(1, "anna"), Change(3, "cid"))
    for how in HOWS:
        stopped(world, how)
    assert world.rows() == {1: "ann", 2: "bob"}
    # Snapshots with the answer expire; the changelog's table remembers it.
    world.land(Change(4, "dot"))
    changelog = world.changelog()
    head = changelog.metadata.current_snapshot_id
    gone = [each.snapshot_id for each in changelog.metadata.snapshots if each.snapshot_id != head]
    changelog.maintenance.expire_snapshots().by_ids(gone).commit()
    for how in HOWS:
        stopped(world, how)
    assert world.rows() == {1: "ann", 2: "bob"}


@pytest.mark.parametrize("logs", [None, ["customers"], {"customers": [1, 1, [0], {"0": 2}]}])
def test_a_mirror_that_an_earlier_release_took_past_the_answer_stops_and_can_be_read(
    tmp_path: Path, logs: object
) -> None:
    world = MirrorWorld(tmp_path)
    world.land(Change(1, "ann"), Change(2, "bob"))
    done = world.merge()
    recreated(world)
    world.land(Change(1, "anna"))
    changelog = world.changelog()
    head = changelog.metadata.current_snapshot()
    assert head is not None and done.stamp is not None
    packed = done.stamp.to_json()
    state = packed["state"] | ({"logs": logs} if logs else {})
    restamp(world, snapshot=head.snapshot_id, seq=head.sequence_number, state=state)
    if logs:
        # Of some answers nothing remembers but the mirror.
        with changelog.transaction() as change:
            change.remove_properties(f"{OTHER_LOGS_PREFIX}customers")
        expired = [each.snapshot_id for each in changelog.metadata.snapshots if each.snapshot_id != head.snapshot_id]
        changelog.maintenance.expire_snapshots().by_ids(expired).commit()
        stamp = world.stamp()
        assert stamp is not None and stamp.state.recreated == ("customers",)
        assert MirrorState.from_json(stamp.state.to_json()) == stamp.state
    # Also where there is nothing to merge.
    given = (world.spec, world.mirror, world.settings, world.catalog())
    with pytest.raises(AnotherLogError):
        run_mirror(*given, PlainMerger())
    with pytest.raises(AnotherLogError):
        check_consistency(*given, lambda: pytest.fail("Spark is not needed"))
    world.land(Change(1, "annabel"))
    for how in ("on", "anew", "incomplete", "on"):
        stopped(world, how)
    status = mirror_status(world.spec, world.mirror, world.settings, world.catalog())
    assert isinstance(status.problem, AnotherLogError) and status.stamp is not None
    assert world.rows() == {1: "ann", 2: "bob"}


def recreated_other(world: MirrorWorld, topic: str) -> None:
    """An operator accepts that another topic of the stream was recreated."""
    target = Target(world.catalog(), CHANGELOG, "customers")
    newest = target.read()
    assert newest is not None
    decision = Decision("recreated_topic", again={TopicPartition(topic, 0): OffsetRange(0, 9)})
    target.restamp(signed_answer(newest.decided(decision), world.epoch, "so be it"))


@pytest.mark.parametrize(("topic", "stops"), [("a", True), ("m", False), ("z", True), ("zz", False)])
def test_files_are_asked_which_topics_they_have(tmp_path: Path, topic: str, stops: bool) -> None:
    world = MirrorWorld(tmp_path)
    world.land(Change(1, "ann"))
    recreated_other(world, topic)
    changelog = world.changelog()
    rows = [{"_kafka_topic": each, "_kafka_partition": 0, "_kafka_offset": 0, "_change_op": "u"} for each in "az"]
    files = world.data_files(changelog, rows)
    if stops:
        with pytest.raises(AnotherLogError, match=f"topic {topic} "):
            refuse_recreated_topics(world.spec, world.mirror, changelog, None, files)
    else:
        refuse_recreated_topics(world.spec, world.mirror, changelog, None, files)
    refuse_recreated_topics(world.spec, world.mirror, changelog, None)


def test_a_mirror_goes_on_beside_a_recreated_topic_of_another_changelog(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path)
    world.land(Change(1, "ann"))
    world.merge()
    recreated_other(world, "orders")
    world.land(Change(2, "bob"))
    world.merge()
    world.check()
    world.merge(how="anew")
    world.check()


def test_another_changelog_with_a_new_snapshot_is_the_answer(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path)
    world.land(Change(1, "old"))
    world.merge()
    recreated(world)
    world.land(Change(2, "read 2", "r"))
    stopped(world)
    name, mirror = "shop.customers_changes_2", "shop.customers_2"
    rows = [row for row in world.changelog().scan().to_arrow().to_pylist() if row["name"].startswith("read")]
    world.catalog().create_table(name, COLUMNS, properties={"format-version": "2"})
    world.write(table={"name": name}, mirrors=[{"table": mirror, "buckets": 2}])
    target = Target(world.catalog(), name, "customers")
    target.claim(1, lambda newest: Stamp("customers", "claim", -1, 1, "c", start={P0: 0}, position={P0: 0}))
    target.read()
    stamp = Stamp("customers", "batch", 0, 1, "c", start={P0: 0}, position={P0: 1})
    files, batch = world.data_files(target.table, rows), {P0: OffsetRange(0, 1)}
    assert target.land(stamp, files, seen=target.seen(), batch=batch, position={P0: 0}) is ProposalOutcome.LANDED
    catalog = world.catalog()
    table = ensure_mirror(world.spec, world.mirror, catalog, COLUMNS)
    with mirror_session(world.spec, world.mirror, world.settings, catalog, table, wait_seconds=0) as session:
        merge_new(session, PlainMerger())
    found = catalog.load_table(mirror).scan().to_arrow().to_pylist()
    assert {row["id"]: row["name"] for row in found} == {2: "read 2"}


@pytest.mark.parametrize(("answered", "landed"), [("recreated_topic", 0), ("reset", 2)])
def test_the_same_records_again_and_a_topic_of_which_nothing_had_landed_stop_nothing(
    tmp_path: Path, answered: Literal["recreated_topic", "reset"], landed: int
) -> None:
    world = MirrorWorld(tmp_path)
    world.land(Change(1, "ann"))
    answer(world, answered, landed=landed)
    assert other_logs(world.changelog().metadata, "customers", 0) == []
    world.merge()
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
    assert "stay" in said(maintained(world, LATER + timedelta(days=200)))


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


class WithoutPositions(PlainMerger):
    """Merges changes of a source that has none."""

    def merge(
        self, changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
    ) -> MergeResult:
        done = super().merge(changelog, files, mirror, branch, plan)
        bare = {p: replace(each, position=None) for p, each in done.state.partitions.items()}
        return replace(done, state=replace(done.state, partitions=bare))


def partitions(world: MirrorWorld, count: int) -> None:
    """The stream knows so many partitions of its topic."""
    target = Target(world.catalog(), CHANGELOG, "customers")
    newest = target.read()
    assert newest is not None
    target.restamp(
        replace(newest, position={TopicPartition("customers", n): 0 for n in range(count)} | {P0: world.end})
    )


@pytest.mark.parametrize("merger", [WithoutPositions(), PlainMerger()])
def test_partitions_that_a_topic_got_stop_a_mirror_that_offsets_alone_order(
    tmp_path: Path, merger: PlainMerger
) -> None:
    world = MirrorWorld(tmp_path)
    world.land(Change(1, "ann"))
    partitions(world, 2)

    def merge(how: How = "on") -> None:
        with world.session() as session:
            merge_new(session, merger, how=how)

    merge()
    # The first change of a partition that was there before.
    world.land(Change(2, "bob"))
    partitions(world, 2)
    merge()
    before = world.rows()
    world.land(Change(1, "anna"))
    partitions(world, 4)
    if isinstance(merger, WithoutPositions):
        for how in HOWS:
            with pytest.raises(AddedPartitionsError, match=r"got partitions 2, 3,.*stays as it is") as found:
                merge(how)
            assert "another changelog" in (found.value.fix or "")
        assert world.rows() == before == {1: "ann", 2: "bob"}
        return
    merge()
    assert world.rows() == {1: "anna", 2: "bob"}


def test_versions_of_rows_order_changes_in_any_partition(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path)
    world.land(Change(1, "ann"))
    with world.session() as session:
        merge_new(session, WithoutPositions())
    known, now = world.stamp(), {TopicPartition("customers", n): 1 for n in range(2)}
    assert known is not None
    with pytest.raises(AddedPartitionsError):
        refuse_added_partitions(world.spec, world.mirror, known, now)
    decode = {"value": "json", "schema": "id long, name string, __op string, v long"}
    key = {"format": "json", "schema": "id long", "into": "_change_key"}
    world.write(decode={**decode, "key": key}, changes={"envelope": "columns", "op": "__op", "order_by": "v"})
    refuse_added_partitions(world.spec, world.mirror, known, now)
