"""Event times in a stamp: the watermark, the progress of each partition, and the event times of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Self

import msgspec

from jobs.tables.commit.stamp.lateness import NONE_LATE, Lateness, summed_lateness
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_json import by_partition, shortest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

MOST_PERIODS = 48
"""Most hours or days of late rows that a stamp names, as every snapshot carries them; all others are one number."""


class EventCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Event times of records of a batch, or of a part of it, that the coordinator had not yet read.

    Attributes:
        least_ms, greatest_ms: Bounds of the rows that landed among the timely ones; milliseconds since 1970.
        nulls: Rows without an event time: they are never late, and do not move the watermark.
        ahead: Rows whose event time is implausibly far ahead of the driver's clock: they do not move the watermark.
        late: Late records by lateness: see `LATENESS_MS`.
        latest_ms: Lateness of the latest record, milliseconds.
        dead: Late records that became dead letters.
        periods: Late rows that landed among the timely ones, by the start of their hour or day.
        others: Late rows of all further hours and days.
        aside: Late records that became rows of the table of late rows.
    """

    least_ms: int | None = None
    greatest_ms: int | None = None
    nulls: int = 0
    ahead: int = 0
    late: Lateness = NONE_LATE
    latest_ms: int = 0
    dead: int = 0
    periods: dict[int, int] = {}
    others: int = 0
    aside: int = 0

    def __add__(self, other: EventCounts) -> EventCounts:
        periods = dict(self.periods)
        for start, rows in other.periods.items():
            periods[start] = periods.get(start, 0) + rows
        return EventCounts(
            least_of(self.least_ms, other.least_ms),
            greatest_of(self.greatest_ms, other.greatest_ms),
            self.nulls + other.nulls,
            self.ahead + other.ahead,
            summed_lateness(self.late, other.late),
            max(self.latest_ms, other.latest_ms),
            self.dead + other.dead,
            periods,
            self.others + other.others,
            self.aside + other.aside,
        )

    @property
    def late_records(self) -> int:
        """Number of late records, whatever became of them."""
        return sum(self.late)

    @property
    def span_ms(self) -> tuple[int, int] | None:
        """The least and the greatest event time; None if no row has one."""
        return None if self.least_ms is None or self.greatest_ms is None else (self.least_ms, self.greatest_ms)

    def bounded(self) -> EventCounts:
        """These counts with as many hours or days of late rows as a stamp may name: those with the most rows."""
        if len(self.periods) <= MOST_PERIODS:
            return self
        most = sorted(self.periods, key=lambda start: (-self.periods[start], start))[:MOST_PERIODS]
        kept = {start: self.periods[start] for start in sorted(most)}
        others = self.others + sum(self.periods.values()) - sum(kept.values())
        return msgspec.structs.replace(self, periods=kept, others=others)


NO_EVENTS = EventCounts()


class PartitionTime(NamedTuple):
    """Progress of the event times of a partition.

    Attributes:
        greatest_ms: Greatest event time read from it; None before the first.
        active_ms: Driver's time when a record with an event time was last read, or the partition was first seen.
    """

    greatest_ms: int | None
    active_ms: int


@dataclass(frozen=True, slots=True)
class EventTimes:
    """Event times in the coordinator's stamp; all in milliseconds since 1970.

    Attributes:
        column: Column of the event times; times of another column are ignored.
        watermark_ms: No record with an earlier event time is expected any more; None before that is known.
        bound_ms: The watermark before the stamped batch, against which its records were judged.
        partitions: Progress of each partition.
        first_ms: Least event time of all rows.
    """

    column: str
    watermark_ms: int | None = None
    bound_ms: int | None = None
    partitions: Mapping[TopicPartition, PartitionTime] = field(default_factory=dict)
    first_ms: int | None = None
    batch: EventCounts = NO_EVENTS

    def bare(self) -> Self:
        """These times without the fields about the batch."""
        return replace(self, batch=NO_EVENTS)

    def without_topic(self, topic: str) -> Self:
        """These times without a topic's partitions, as its log is a new one. The watermark stays."""
        kept = {partition: each for partition, each in self.partitions.items() if partition.topic != topic}
        return replace(self, partitions=kept)


def pack_event_times(times: EventTimes) -> dict[str, Any]:
    """Times as JSON; each partition's two as differences to the greatest, the second omitted if 0."""
    greatest = max((each.greatest_ms for each in times.partitions.values() if each.greatest_ms is not None), default=0)
    active = max((each.active_ms for each in times.partitions.values()), default=0)
    topics: dict[str, dict[int, Any]] = {}
    for partition, each in sorted(times.partitions.items()):
        # -1 stands for none, as no difference is below 0.
        before = -1 if each.greatest_ms is None else greatest - each.greatest_ms
        entry = before if each.active_ms == active else [before, active - each.active_ms]
        topics.setdefault(partition.topic, {})[partition.partition] = entry
    packed: dict[str, Any] = {
        "column": times.column,
        "mark": times.watermark_ms,
        "bound": times.bound_ms,
        "first": times.first_ms,
        "greatest": [greatest, active] if topics else None,
        "of": {topic: shortest(entries) for topic, entries in topics.items()},
        "batch": _pack_counts(times.batch),
    }
    return {key: value for key, value in packed.items() if value is not None and value != {}}


def unpack_event_times(packed: Mapping[str, Any]) -> EventTimes:
    """The inverse of `pack_event_times`."""
    greatest, active = packed.get("greatest", (0, 0))
    partitions: dict[TopicPartition, PartitionTime] = {}
    for partition, entry in by_partition(packed.get("of", {})):
        before, quiet = entry if isinstance(entry, list) else (entry, 0)
        partitions[partition] = PartitionTime(None if before < 0 else greatest - before, active - quiet)
    return EventTimes(
        packed["column"],
        packed.get("mark"),
        packed.get("bound"),
        partitions,
        packed.get("first"),
        _unpack_counts(packed.get("batch", {})),
    )


def _pack_counts(counts: EventCounts) -> dict[str, Any]:
    packed = {
        "least": counts.least_ms,
        "greatest": counts.greatest_ms,
        "nulls": counts.nulls or None,
        "ahead": counts.ahead or None,
        "late": list(counts.late) if counts.late_records else None,
        "latest": counts.latest_ms or None,
        "dead": counts.dead or None,
        "periods": {str(start): rows for start, rows in counts.periods.items()} or None,
        "others": counts.others or None,
        "aside": counts.aside or None,
    }
    return {key: value for key, value in packed.items() if value is not None}


def _unpack_counts(packed: Mapping[str, Any]) -> EventCounts:
    return EventCounts(
        packed.get("least"),
        packed.get("greatest"),
        packed.get("nulls", 0),
        packed.get("ahead", 0),
        tuple(packed.get("late", NONE_LATE)),
        packed.get("latest", 0),
        packed.get("dead", 0),
        {int(start): rows for start, rows in packed.get("periods", {}).items()},
        packed.get("others", 0),
        packed.get("aside", 0),
    )


def least_of(*times: int | None) -> int | None:
    """The least of some times; None if any is unknown."""
    return min((each for each in times if each is not None), default=None)


def greatest_of(*times: int | None) -> int | None:
    """The greatest of some times; None if any is unknown."""
    return max((each for each in times if each is not None), default=None)


def as_datetime(at_ms: int | None) -> datetime | None:
    """An event time as a UTC datetime for people; None without one, and beyond the years 1 to 9999."""
    try:
        return None if at_ms is None else _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        return None
