"""Stamps of a batch: what its commit says of it on each of its targets."""

from __future__ import annotations

from dataclasses import replace

from jobs.commit.log_state import has_id
from jobs.commit.offsets import Positions, Ranges
from jobs.commit.retired_topics import Retired, remembered_topics
from jobs.commit.stamp_fields import Counts, at_positions
from jobs.commit.stamps import Stamp
from jobs.kafka.metadata import LogEnds
from jobs.spec.targets import TargetSpec
from jobs.stream.completeness import ObservedEnds, valid_through
from jobs.stream.open_stream import OpenStream
from jobs.stream.results import TaskResults


def batch_stamp(
    stream: OpenStream,
    batch: int,
    ranges: Ranges,
    end: Positions,
    results: TaskResults,
    ends: LogEnds,
    now: ObservedEnds,
    earlier: ObservedEnds | None,
) -> Stamp:
    """What the stamps of a batch have in common.

    Args:
        batch: Spark's number of it.
        ranges: The batch's.
        end: The next offsets after it, of every partition.
        ends: The ends of the logs, after the tasks had read.
        now: The same with their time.
        earlier: The ends of the logs at an earlier time.
    """
    newest = stream.anchor.newest
    kept = stream.begin.kept
    # Of topics that the spec does not name now the end stays known, or one that goes meanwhile would pass for read.
    known_ends = {p: at for p, at in newest.ends.items() if p in kept} if newest else {}
    position = {**kept, **end}
    return Stamp(
        stream.spec.stream,
        "batch",
        batch,
        stream.epoch,
        stream.spec.config_hash,
        start=kept | {partition: range_.start for partition, range_ in ranges.items()},
        position=position,
        ends=known_ends | {p: at for p, at in ends.latest.items() if at > end[p]},
        valid_through_ms=valid_through(end, now, results.tallies, newest.valid_through_ms if newest else None, earlier),
        rows=results.rows(),
        counts=results.counts(),
        generation=stream.generation,
        last_reads=results.marks(position, at_positions(newest.last_reads, newest.position) if newest else {}),
        retired=_retired(stream, newest, now.at_ms) if newest else {},
    )


def _retired(stream: OpenStream, newest: Stamp, now_ms: int) -> dict[str, Retired]:
    gone: dict[str, dict[int, int]] = {}
    for partition, at in newest.position.items():
        if partition.topic in stream.begin.retired and has_id(newest.topics.get(partition.topic)):
            gone.setdefault(partition.topic, {})[partition.partition] = at
    now = {topic: Retired(newest.topics[topic], now_ms, positions) for topic, positions in gone.items()}
    return remembered_topics(newest.retired, now, {*stream.log.topics, *stream.begin.dropped}, now_ms)


def target_stamp(stream: OpenStream, target: TargetSpec, stamp: Stamp, ranges: Ranges, results: TaskResults) -> Stamp:
    """The batch's stamp as the target carries it, with what that target receives."""
    parts = results.parts(ranges, stream.positions[target.name], target)
    stamp = replace(stamp, parts=parts, counts=sum((part.counts for part in parts.values()), Counts()))
    if not target.coordinator:
        return replace(stamp, last_reads={}, retired={})
    uuids = {name: each.uuid for name, each in stream.targets.items()}
    before = stream.anchor.newest.topics if stream.anchor.newest else {}
    kept = {topic: before[topic] for topic in stream.begin.dropped if topic in before}
    # Brokers that do not give an id now do not make one unknown that was known.
    there = {topic: now if has_id(now) else before.get(topic, now) for topic, now in stream.log.topics.items()}
    return stamp.anchored(uuids, kept | there)
