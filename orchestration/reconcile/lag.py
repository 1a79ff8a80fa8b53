"""Lag of a stream behind its topics: as its driver's heartbeat says, or by its stamps and the ends of its topics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.commit.offsets import Positions, TopicPartition, by_topic
from jobs.commit.stamp_history import history
from jobs.spec.models import StreamSpec
from jobs.spec.source import Source
from jobs.supervise.actual import ActualState
from jobs.supervise.heartbeat import Offsets

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from jobs.kafka.metadata import KafkaLog


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a stream is behind its topics.

    Attributes:
        records: Records that wait.
        at: When that was looked up; seconds since 1970.
        valid_through: Every record with an older timestamp is in the tables; seconds since 1970, None if not known.
        undecided: Records of open transactions behind those; None if not known.
        by: The records by topic and partition, where they were looked up just now for a stream without a driver.
    """

    records: int
    at: float
    valid_through: float | None = None
    by: Offsets = field(default_factory=dict)
    undecided: int | None = None


def lag_by_heartbeat(actual: ActualState) -> Lag | None:
    """The lag as the newest heartbeat tells it; None if it does not."""
    beat = actual.heartbeat
    if beat is None or beat.work.lag_at is None or beat.work.total_lag is None:
        return None
    return Lag(beat.work.total_lag, beat.work.lag_at, beat.work.complete_through, undecided=beat.work.total_undecided)


def lag_by_stamps(spec: StreamSpec, table: Table | None, kafka: KafkaLog, now: float) -> Lag | None:
    """The lag by the newest stamp on the stream's table and the ends of its topics; None without a topic.

    Args:
        table: None if there is none yet.
        now: Seconds since 1970.
    """
    newest = history(table.metadata, spec.stream).newest if table is not None else None
    found = waiting_records(kafka, spec.source, newest.position if newest else {})
    if found is None:
        return None
    waiting, undecided = found
    records = sum(waiting.values())
    stamped = newest.valid_through_ms / 1000 if newest and newest.valid_through_ms is not None else None
    return Lag(records, now, now if records + undecided == 0 else stamped, by_topic(waiting), undecided)


def waiting_records(
    kafka: KafkaLog, source: Source, position: Positions
) -> tuple[dict[TopicPartition, int], int] | None:
    """Records that wait, by partition, and records of open transactions behind them; None without a topic.

    Args:
        position: Next offset per partition; one that is not in it is read from its earliest record on.
    """
    partitions = [
        TopicPartition(topic, number) for topic, numbers in kafka.topics(source).items() for number in numbers
    ]
    if not partitions:
        return None
    unread = [partition for partition in partitions if partition not in position]
    begin = {**(kafka.earliest(unread) if unread else {}), **position}
    ends = kafka.ends(partitions)
    waiting = {at: max(0, end - begin[at]) for at, end in ends.latest.items()}
    return waiting, sum(ends.undecided().values())
