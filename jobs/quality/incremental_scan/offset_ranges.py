"""Offset ranges of an incremental scan: those in stamps, the gaps between them, and both as conditions on rows."""

# PyIceberg's conditions take a column and a value, which a type checker does not see.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pyiceberg.expressions import AlwaysFalse, And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan, Or

from jobs.tables.commit.stamp.offsets import (
    OffsetRange,
    PartitionRange,
    Positions,
    TopicPartition,
)
from jobs.tables.commit.stamp.stamps import Stamp

RangesByPartition = Mapping[TopicPartition, tuple[OffsetRange, ...]]
"""Ranges per partition, in order, that neither overlap nor touch."""


def merged_ranges(
    ranges: Iterable[tuple[TopicPartition, OffsetRange]],
) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
    """Ranges as a set of offsets per partition; empty ones are left out."""
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for partition, each in sorted(ranges):
        if each.end <= each.start:
            continue
        kept = found.setdefault(partition, [])
        if kept and each.start <= kept[-1].end:
            kept[-1] = OffsetRange(kept[-1].start, max(kept[-1].end, each.end))
        else:
            kept.append(each)
    return {partition: tuple(kept) for partition, kept in found.items()}


def read_ranges(stamps: Iterable[Stamp]) -> Iterator[PartitionRange]:
    """Ranges that batches read on their stamped target, by partition."""
    for stamp in stamps:
        if stamp.kind == "batch":
            for partition, stood in _stood(stamp).items():
                yield PartitionRange(partition, OffsetRange(stood, stamp.position.get(partition, stood)))


def lost_ranges(
    before: Mapping[str, Positions], stamps: Sequence[Stamp], now: Mapping[str, Positions], stream: str
) -> tuple[list[PartitionRange], list[str]]:
    """Ranges that were read between two positions and are in no remaining stamp.

    Args:
        before: Former positions of the stream, its replays and its queues, by stamp id.
        stamps: Remaining stamps of the time since, oldest first.
        now: Present positions.

    Returns:
        The ranges of the stream; and other ids with gaps, whose positions are no offsets of rows.
    """
    ranges: list[PartitionRange] = []
    others: list[str] = []
    for name in sorted({*before, *now}):
        at = dict(before.get(name, {}))
        missing: list[PartitionRange] = []
        for stamp in stamps:
            if stamp.stream == name and stamp.kind != "claim":
                missing += _between(at, _found(stamp))
                at |= stamp.position
        missing += _between(at, now.get(name, {}))
        if name == stream:
            ranges += missing
        elif missing:
            others.append(name)
    return ranges, others


def _between(at: Positions, to: Positions) -> Iterator[PartitionRange]:
    for partition, offset in to.items():
        if offset > at.get(partition, 0):
            yield PartitionRange(partition, OffsetRange(at.get(partition, 0), offset))


def _found(stamp: Stamp) -> Positions:
    """Position of the target before a batch, or before an operator's answer, for unmoved partitions as well."""
    if stamp.kind == "batch":
        return {**stamp.position, **_stood(stamp)}
    decision = stamp.decision
    moved = {p: each.start for p, each in decision.passed.items()} if decision else {}
    moved |= {p: each.end for p, each in decision.again.items()} if decision else {}
    return {**stamp.position, **moved}


def _stood(stamp: Stamp) -> Positions:
    if stamp.parts:
        return {partition: part.stood for partition, part in stamp.parts.items()}
    return {partition: at for partition, at in stamp.start.items() if at < stamp.position.get(partition, at)}


def ranges_condition(columns: tuple[str, str, str], ranges: RangesByPartition) -> BooleanExpression:
    """Condition for rows of records in the ranges.

    Args:
        columns: Names of the columns of topic, partition and offset.
    """
    topic, partition, offset = columns
    each = [
        And(
            EqualTo(topic, source.topic),
            EqualTo(partition, source.partition),
            GreaterThanOrEqual(offset, start),
            LessThan(offset, end),
        )
        for source, spans in ranges.items()
        for start, end in spans
    ]
    return AlwaysFalse() if not each else each[0] if len(each) == 1 else Or(*each)


def ranges_sql(columns: tuple[str, str, str], ranges: RangesByPartition) -> str:
    """The same condition in Spark SQL."""
    topic, partition, offset = (quoted_name(name) for name in columns)
    each = [
        f"({topic} = {quoted_text(source.topic)} AND {partition} = {source.partition} "
        f"AND {offset} >= {start} AND {offset} < {end})"
        for source, spans in ranges.items()
        for start, end in spans
    ]
    return " OR ".join(each) or "false"


def quoted_name(name: str) -> str:
    """A column's name in Spark SQL."""
    return f"`{name.replace('`', '``')}`"


def quoted_text(text: str) -> str:
    """A text literal in Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
