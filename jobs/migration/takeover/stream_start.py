"""Start of a stream behind a sink: the first offset of each partition, by the sink's group and its control topic.

The sink's worker commits source offsets and the announcement of its files in one Kafka transaction. So the group's
offsets, and all announced files, are exactly what the sink has taken. The stream starts at the group's offsets.
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs.migration.takeover.sink import Sink
from jobs.migration.takeover.takeover_refusal import ONE_COMMIT, TakeoverRefusedError
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import OffsetRange, Positions, TopicPartition

_NAMED = 5


@dataclass(frozen=True, slots=True)
class PartitionStart:
    """Where a stream starts in one partition.

    Attributes:
        committed: Offset that the sink's group has committed; None if it has none, and the partition holds no record.
        announced: Next offset by the newest answer of a worker on the control topic; None if none was read.
        kept: Offsets that Kafka keeps.
        start: First offset that frazil reads.
    """

    partition: TopicPartition
    committed: int | None
    announced: int | None
    kept: OffsetRange
    start: int


def check_group(sink: Sink, log: LogState, committed: Positions) -> None:
    """Refuse a group without offsets. This comes first: a sink started without offsets begins anew.

    Raises:
        TakeoverRefusedError: The message names what helps instead.
    """
    group = sink.offset_group
    if not any(partition in committed for partition in log.earliest):
        raise TakeoverRefusedError(
            f"group {group} has no offsets of {', '.join(sorted(log.topics)) or 'the stream'}: the sink has committed "
            "nothing, the group has expired, or it is another one.",
            fix="do not start the connector, which without offsets lands again what the tables have; name the right "
            "group with --group, or set its offsets to where the sink ended: kafka-consumer-groups.sh --reset-offsets "
            f"--group {group} --topic TOPIC:PARTITION --to-offset OFFSET --execute; if the sink has never landed "
            "anything, there is nothing to take over: frazil run",
        )


def plan_partitions(
    sink: Sink, log: LogState, committed: Positions, progress: Positions, *, trust_group: bool
) -> tuple[PartitionStart, ...]:
    """Decide where the stream starts.

    Args:
        log: The stream's topics.
        committed: Offsets of the sink's group.
        progress: Next offsets by the workers' answers on the control topic.
        trust_group: An operator has decided that the group is right where the two disagree.

    Raises:
        TakeoverRefusedError: A partition has no offset, Kafka does not keep it, or the answers disagree.
    """
    group = sink.offset_group
    starts: list[PartitionStart] = []
    differences: list[str] = []
    for partition in sorted(log.earliest):
        offset, announced = committed.get(partition), progress.get(partition)
        kept = OffsetRange(log.earliest[partition], log.watermarks.get(partition, log.latest[partition]))
        if offset is None and (announced is not None or kept.start < kept.end):
            raise _no_offset(group, partition, kept, announced)
        if offset is not None:
            _refuse_lost(group, partition, offset, kept, log.latest[partition])
            if announced is not None and announced != offset:
                differences.append(f"{partition}: {offset} in the group, {announced} on the control topic")
        starts.append(PartitionStart(partition, offset, announced, kept, kept.start if offset is None else offset))
    if differences and not trust_group:
        raise TakeoverRefusedError(
            f"the offsets of group {group} are not those in {sink.control_topic}: {'; '.join(differences[:_NAMED])}. "
            "Somebody has reset one of them.",
            fix=f"{ONE_COMMIT}; if the group was reset on purpose, --trust-group starts at its offsets",
        )
    return tuple(starts)


def _no_offset(group: str, partition: TopicPartition, kept: OffsetRange, announced: int | None) -> TakeoverRefusedError:
    if announced is None:
        progress, offset, hint = ".", "OFFSET", f" ({kept.start} if the sink has landed nothing of it)"
    else:
        progress, offset, hint = f"; the sink's workers answered that they had read up to {announced}.", announced, ""
    return TakeoverRefusedError(
        f"group {group} has no offset of {partition}, which holds records {kept}{progress}",
        fix=f"kafka-consumer-groups.sh --reset-offsets --group {group} --topic {partition.topic}:"
        f"{partition.partition} --to-offset {offset} --execute{hint}, then run this again",
    )


def _refuse_lost(group: str, partition: TopicPartition, offset: int, kept: OffsetRange, decided_end: int) -> None:
    """Refuse an offset at which Kafka cannot be read now.

    Args:
        decided_end: First offset that an open transaction leaves undecided.
    """
    if offset > kept.end:
        raise TakeoverRefusedError(
            f"group {group} is at {offset} in {partition}, which ends at {kept.end}: the topic was recreated, or it "
            "is on other brokers.",
            fix="check that the stream reads the sink's topic; if it was recreated, let the sink commit once",
        )
    if offset > decided_end:
        raise TakeoverRefusedError(
            f"group {group} is at {offset} in {partition}, where a transaction is open from {decided_end} on: the "
            "sink has read records of which it is not decided whether they count.",
            fix="run this again once the transaction has ended",
        )
    if offset < kept.start:
        raise TakeoverRefusedError(
            f"group {group} is at {offset} in {partition}, of which Kafka keeps {kept}: records were removed before "
            "the sink had read them.",
            fix=f"if you can do without them, set the group to {kept.start} there (kafka-consumer-groups.sh "
            "--reset-offsets), and run this again with --trust-group",
        )
