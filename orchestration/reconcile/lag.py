"""Lag of a stream behind its topics: by its driver's heartbeat, or by its stamps and the ends of its topics."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jobs.config.stream.models import StreamSpec
from jobs.config.stream.source import Source
from jobs.quality.publishing.main_freshness import MainFreshness
from jobs.streaming.driver.context.completeness import settled_through
from jobs.streaming.supervision.documents.heartbeat import Offsets
from jobs.streaming.supervision.processes.actual import ActualState
from jobs.tables.commit.history.stamp_history import as_written, history
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition, by_topic

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from jobs.clients.kafka.metadata import KafkaLog


@dataclass(frozen=True, slots=True)
class BranchLag:
    """Freshness of a write-audit-publish stream's branch, as against main's.

    Attributes:
        unpublished: Number of rows that main lacks; None if unknown.
        valid_through: Time before which all records are on the branch; seconds since 1970, None if unknown.
        watermark: Watermark of the branch; seconds since 1970, None if unknown.
    """

    unpublished: int | None
    valid_through: float | None = None
    watermark: float | None = None


@dataclass(frozen=True, slots=True)
class Lag:
    """Lag of a stream behind its topics.

    Attributes:
        records: Number of waiting records; None if unknown.
        at: Time of the measurement, or since when it fails; seconds since 1970.
        valid_through: Time before which all records are in the tables, or in main for a write-audit-publish stream;
            seconds since 1970, None if unknown.
        undecided: Number of further records in open transactions; None if unknown.
        watermark: Event time before which no more records are expected, in main for a write-audit-publish stream;
            seconds since 1970, None if unknown.
        by: Waiting records by topic and partition, if measured just now for a stream without a driver.
        branch: The branch of a write-audit-publish stream.
    """

    records: int | None
    at: float
    valid_through: float | None = None
    by: Offsets = field(default_factory=dict)
    undecided: int | None = None
    watermark: float | None = None
    branch: BranchLag | None = None

    def on_main(self, main: MainFreshness) -> Lag:
        """The lag as readers of main have it, of a lag as the stream's branch has it."""
        branch = BranchLag(main.rows, self.valid_through, self.watermark)
        through, watermark = main.through(self.valid_through), main.watermark(self.watermark)
        return replace(self, valid_through=through, watermark=watermark, branch=branch)

    @property
    def unread(self) -> int:
        """Records that readers lack, as far as known: those that wait, and rows that are not published."""
        return (self.records or 0) + ((self.branch.unpublished or 0) if self.branch else 0)

    def judged_through(self, spec: StreamSpec | None) -> float | None:
        """Time through which the table is complete, on the scale of its freshness; seconds since 1970."""
        return self.watermark if by_event_time(spec) else self.valid_through


def by_event_time(spec: StreamSpec | None) -> bool:
    """Whether the freshness of a stream's table is judged by its watermark."""
    return spec is not None and spec.freshness is not None and spec.freshness.by == "event_time"


def lag_by_heartbeat(actual: ActualState) -> Lag | None:
    """The lag that the newest heartbeat reports; None if it reports none."""
    work = actual.heartbeat.work if actual.heartbeat else None
    at = None if work is None else work.lag_unknown_since or work.lag_at
    if work is None or at is None:
        return None
    watermark = None if work.watermark_ms is None else work.watermark_ms / 1000
    return Lag(work.total_lag, at, work.complete_through, undecided=work.total_undecided, watermark=watermark)


def lag_by_stamps(spec: StreamSpec, table: Table | None, kafka: KafkaLog, now: float) -> Lag | None:
    """The lag by the newest stamp on the stream's table and the ends of its topics; None without a topic.

    Args:
        table: None if there is none yet.
        now: Seconds since 1970.
    """
    newest = history(as_written(table.metadata, spec.stream), spec.stream).newest if table is not None else None
    found = waiting_records(kafka, spec.source, newest.position if newest else {})
    if found is None:
        return None
    waiting, undecided = found[0], sum(found[1].values())
    records = sum(waiting.values())
    through_ms = settled_through(spec, table.catalog, table.metadata) if table is not None else None
    stamped = through_ms / 1000 if through_ms is not None else None
    settled = newest is None or through_ms == newest.valid_through_ms
    times = newest.event_time if newest else None
    watermark = times.watermark_ms / 1000 if times and times.watermark_ms is not None else None
    return Lag(
        records, now, now if records + undecided == 0 and settled else stamped, by_topic(waiting), undecided, watermark
    )


def waiting_records(
    kafka: KafkaLog, source: Source, position: Positions
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]] | None:
    """Records that wait, and records of open transactions behind them, by partition; None without a topic.

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
    return waiting, ends.undecided()
