"""What a mirror's stamp says of how far it has its source."""

from __future__ import annotations

from jobs.mirrors.model.merge_plan import Generation, MirrorState, PartitionState
from jobs.mirrors.model.mirror_stamp import MirrorStamp, SourcePosition, source_position
from jobs.tables.commit.stamp.offsets import TopicPartition

P0, P1 = TopicPartition("shop", 0), TopicPartition("shop", 1)


def at(position: str | None, lineage: str = "db") -> PartitionState:
    return PartitionState(7, position, 1_000_000 if position else None, (Generation(0, 0, lineage),))


def told(
    state: dict[TopicPartition, PartitionState], *landed: TopicPartition, replay: tuple[TopicPartition, ...] = ()
) -> SourcePosition | None:
    positions = {"shop": dict.fromkeys(landed, 9), "shop~replay": dict.fromkeys(replay, 9)}
    return source_position(MirrorStamp("c", 1, 1, 0, ("id",), state=MirrorState(state), positions=positions), "shop")


def test_the_position_is_the_least_over_partitions() -> None:
    assert told({P0: at("5"), P1: at("3")}, P0, P1) == SourcePosition("3", "db", 1_000_000)
    assert told({}, P0, P1) is None
    assert told({P0: at("5"), P1: at("3", "other")}, P0, P1) is None


def test_a_partition_without_a_change_holds_the_position_back() -> None:
    assert told({P0: at("5")}, P0, P1) is None
    # So does one of which nothing came since positions began anew.
    assert told({P0: at("5"), P1: at(None)}, P0, P1) is None
    # What is stamped otherwise, and the topics of other changelogs, do not.
    assert told({P0: at("5")}, P0, TopicPartition("orders", 0), replay=(P1,)) == SourcePosition("5", "db", 1_000_000)
