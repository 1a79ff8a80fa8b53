"""Errors that stop a mirror: going on would leave out a change, or mix two histories."""

from __future__ import annotations

from jobs.commit.offsets import TopicPartition
from jobs.errors import StreamStopped


class RestoredSourceError(StreamStopped):
    """The source has gone back: later changes have lower positions, as after a restore from a backup.

    Attributes:
        partition, offset: Where the first such change is.
        position: Its position.
        greatest: The greatest position before it.
    """

    def __init__(self, stream: str, partition: TopicPartition, offset: int, position: str, greatest: str) -> None:
        super().__init__(
            f"stream {stream}: the change at offset {offset} of topic {partition.topic}, partition "
            f"{partition.partition}, happened later than the ones before it, but its position in the source is lower: "
            f"{position} after {greatest}. The source was restored, or its log begins anew. Positions before and "
            "after it cannot be compared, so the mirror stops.",
            fix=f"frazil mirror accept {stream} --new-generation",
        )
        self.partition: TopicPartition = partition
        self.offset: int = offset
        self.position: str = position
        self.greatest: str = greatest


class NullKeyError(StreamStopped):
    """A change has a null in a column of the mirror's key."""

    def __init__(self, stream: str, key: tuple[str, ...], first: tuple[TopicPartition, int], count: int) -> None:
        partition, offset = first
        super().__init__(
            f"stream {stream}: {count:,} changes have a null in the mirror's key ({', '.join(key)}), the first at "
            f"offset {offset} of topic {partition.topic}, partition {partition.partition}. Which row they change is "
            "not known, so the mirror stops.",
            fix="name columns that are never null in the connector (message.key.columns), for a new changelog; if its "
            f"records have no keys, in mirrors.key of streams/{stream}.yaml",
        )
        self.partition: TopicPartition = partition
        self.offset: int = offset
        self.count: int = count


class UnorderedTruncateError(StreamStopped):
    """A truncate has no position, and there are several partitions: which changes came before it is not known."""

    def __init__(self, stream: str, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            f"stream {stream}: the truncate at offset {offset} of topic {partition.topic}, partition "
            f"{partition.partition}, has no position in the source, and the topic has more than one partition. "
            "Which changes of the others came before it is not known, so the mirror stops.",
            fix=f"let the connector tell positions, or name a column: changes.order_by of streams/{stream}.yaml",
        )
        self.partition: TopicPartition = partition
        self.offset: int = offset
