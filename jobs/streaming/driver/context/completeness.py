"""Completeness of a stream: the time through which every record is in its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.table.metadata import TableMetadata

from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.context.source_topics import readable_table
from jobs.tables.commit.history.stamp_history import as_written, history, stamps_along_main
from jobs.tables.commit.recovery.recovery import half_committed
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import of_known_topics

if TYPE_CHECKING:
    from jobs.streaming.task.tally import Tally


@dataclass(frozen=True, slots=True)
class ObservedEnds:
    """Ends of the logs at a time: later records have offsets behind them.

    Attributes:
        at_ms: Time before the ends were queried, milliseconds since 1970.
        watermarks: Ends of all records, those of open transactions included.
    """

    at_ms: int
    watermarks: Positions

    def reached(self, position: Positions) -> bool:
        """Whether every record before these ends, in the partitions of the position, is read or will never count."""
        return all(position.get(p, end) >= end for p, end in self.watermarks.items())


def valid_through(
    end: Positions,
    now: ObservedEnds,
    tallies: Sequence[Tally],
    before_ms: int | None,
    earlier: ObservedEnds | None = None,
) -> int | None:
    """The time through which every record of the topics is in the tables; milliseconds since 1970, None if unknown.

    For each partition the latest of these counts: now, if it was read to the end of all records, open transactions
    included; the time of an earlier look, if it was read past the end at that time; the time of its newest record, if
    the broker set it; the former value. The least complete partition decides, and the time never goes back.

    Args:
        end: Next offsets after the batch.
        now: Ends of the logs after the tasks had read.
        before_ms: The former value.
        earlier: Ends of the logs at an earlier time.
    """
    appended: dict[TopicPartition, int] = {}
    for tally in tallies:
        partition = TopicPartition(tally.topic, tally.partition)
        if tally.appended_ms is not None:
            appended[partition] = max(tally.appended_ms, appended.get(partition, 0))
    through = [_partition_through(partition, at, now, appended, before_ms, earlier) for partition, at in end.items()]
    known = [each for each in through if each is not None]
    if not known or len(known) < len(through):
        return before_ms
    return max(min(known), before_ms or 0)


def _partition_through(
    partition: TopicPartition,
    at: int,
    now: ObservedEnds,
    appended: Mapping[TopicPartition, int],
    before_ms: int | None,
    earlier: ObservedEnds | None,
) -> int | None:
    if at >= now.watermarks.get(partition, at):
        return now.at_ms
    times = [] if before_ms is None else [before_ms]
    if earlier and at >= earlier.watermarks.get(partition, at + 1):
        times.append(min(earlier.at_ms, now.at_ms))
    if partition in appended:
        times.append(min(appended[partition], now.at_ms))
    return max(times, default=None)


def settled_through(spec: StreamSpec, catalog: Catalog, coordinator: TableMetadata) -> int | None:
    """Time before which every record is in the stream's tables; milliseconds since 1970, None if unknown.

    Loads only the tables with rows of the newest batch.
    """
    metadata = as_written(coordinator, spec.stream)
    newest = history(metadata, spec.stream).newest
    if newest is None or newest.valid_through_ms is None:
        return None
    stamps: dict[str, Stamp | None] = {spec.coordinator: newest}
    for name, rows in newest.rows.items():
        if not rows or name == spec.coordinator or name in newest.parked:
            continue
        table = readable_table(spec, catalog, name, spec.branch_of(name))
        stamps[name] = history(table.metadata, spec.stream).newest if table is not None else None
    if half_committed(of_known_topics(stamps, spec.coordinator), spec.coordinator) is None:
        return newest.valid_through_ms
    before = (
        stamp.valid_through_ms
        for _, stamp in stamps_along_main(metadata, spec.stream)
        if stamp.kind != "claim" and stamp.sequence < (newest.last_move or 0)
    )
    return next(before, None)
