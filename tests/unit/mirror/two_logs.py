"""A topic of several partitions with two logs, behind which a mirror stands: what lands, and what is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.commit.accept import signed_answer
from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.commit.proposals import ProposalOutcome
from jobs.commit.stamp_fields import Decision
from jobs.commit.stamps import Stamp
from jobs.commit.target import Target
from jobs.mirror.change_frame import log_scans_here
from jobs.mirror.merge_plan import MergeCounts, MergePlan, MergeResult
from jobs.mirror.order import Order
from jobs.mirror.small_merge.small_increment import small_increment
from jobs.mirror.small_merge.small_merge import merge_small
from tests.unit.mirror.mirror_world import AT, CHANGELOG, MirrorWorld
from tests.unit.mirror.plain_merger import PlainMerger

P1, P2 = TopicPartition("customers", 1), TopicPartition("customers", 2)
POSTGRESQL = "postgresql/shop/app"
Row = tuple[TopicPartition, int, int, str, int]
"""Partition, offset, id, name (`read …` is a row of a snapshot), and the position, which is the minute as well."""


class OrderingMerger(PlainMerger):
    """Merges as it is done beside a driver; of changes that come late, which need Spark, the order alone is made."""

    def merge(
        self, changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
    ) -> MergeResult:
        if done := merge_small(changelog, files, mirror, branch, plan):
            return done
        changes = small_increment(changelog, files, plan)
        assert changes is not None, "they are few"
        scans = log_scans_here(changes, plan)
        assert all(each.late_rows + each.repeated_rows == each.rows for each in scans.values()), scans
        late = sum(each.late_rows for each in scans.values())
        order = Order.of(plan.stream, plan.key, plan.state, scans, plan.scope, scattered=plan.scattered)
        return MergeResult(order.state, MergeCounts(read=changes.num_rows, late=late))


def put(world: MirrorWorld, position: Mapping[TopicPartition, int], *rows: Row, replay: bool = False) -> None:
    """Changes land by a batch, or by a replay, behind which the stream stands at these offsets."""
    name = "customers~replay" if replay else "customers"
    target = Target(world.catalog(), CHANGELOG, name)
    if target.read() is None:
        zero = dict.fromkeys(position, 0)
        target.claim(1, lambda newest: Stamp(name, "claim", -1, 1, "c", start=zero, position=zero))
        target.read()
    world.epoch, ordered = 1, world.document["changes"]["envelope"] == "debezium"
    landed = [
        {
            "id": key,
            "name": text,
            "_change_op": "r" if text.startswith("read") else "u",
            "_change_at": AT + timedelta(minutes=at),
            "_kafka_timestamp": AT + timedelta(minutes=at),
            "_change_position": f"{at:016x}" if ordered else None,
            "_change_lineage": world.lineage if ordered else None,
            "_change_key": {"id": key},
            "_kafka_topic": partition.topic,
            "_kafka_partition": partition.partition,
            "_kafka_offset": offset,
        }
        for partition, offset, key, text, at in rows
    ]
    newest = target.newest
    assert newest is not None
    begin = {p: 0 if replay else newest.position.get(p, 0) for p in position}
    stamp = Stamp(name, "batch", (newest.batch or 0) + 1, 1, "c", start=begin, position=dict(position))
    batch = {p: OffsetRange(begin[p], at) for p, at in position.items() if at > begin[p]}
    files = world.data_files(target.table, landed)
    assert target.land(stamp, files, seen=target.seen(), batch=batch, position=begin) is ProposalOutcome.LANDED


def answer_with(world: MirrorWorld, answer: str, again: Mapping[TopicPartition, OffsetRange] | None = None) -> None:
    """The topic is made again, or offsets are read again, and that is answered."""
    target = Target(world.catalog(), CHANGELOG, "customers")
    newest = target.read()
    assert newest is not None
    again = again or {p: OffsetRange(0, at) for p, at in newest.position.items() if at}
    low = (
        {}
        if answer == "recreated_topic"
        else {p: again[p].start if p in again else at for p, at in newest.position.items()}
    )
    decided = newest.decided(Decision(answer, again=dict(again)))  # pyright: ignore[reportArgumentType]
    target.restamp(signed_answer(replace(decided, start=low, position=low), 1, "so be it"))


def make_again(world: MirrorWorld) -> None:
    answer_with(world, "recreated_topic")
