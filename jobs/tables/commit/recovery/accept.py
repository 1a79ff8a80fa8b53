"""Acceptance of a stop by an operator: the stamps that record the answer, with its author and reason.

Only these stamps move a position past records that were not read, or back over records that were. Each function returns
the new stamps, the coordinator's last; nothing is committed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from jobs.tables.commit.recovery.starting_point import unread
from jobs.tables.commit.stamp.errors import NothingToAcceptError
from jobs.tables.commit.stamp.log_state import NOWHERE, another_topic, has_id
from jobs.tables.commit.stamp.offsets import (
    OffsetRange,
    Positions,
    TopicPartition,
    pointwise_max,
)
from jobs.tables.commit.stamp.retired_topics import returned_topics
from jobs.tables.commit.stamp.stamp_fields import Counts, Decision
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import NewestStamps, restart_positions, target_positions

NewStamps = dict[str, Stamp]
NO_TOPICS: Mapping[str, str] = MappingProxyType({})


def lost_offsets(
    stamps: NewestStamps, anchor: str, earliest: Positions, topics: Mapping[str, str] = NO_TOPICS
) -> NewStamps:
    """Answer to retention that removed unread records: go on behind them.

    Args:
        earliest: First offsets that the logs still keep.
        topics: Kafka's ids of the existing topics. A topic that was retired and exists again can have lost records too.
    """
    stamps = _with_returned(stamps, anchor, topics)
    stamp = _anchored(stamps, anchor)
    # The stream would begin here. That may be before the coordinator's position, if another target stands behind it.
    positions = target_positions(stamps, anchor)
    known = restart_positions(positions)
    lost = {p: earliest[p] for p, offset in known.items() if earliest.get(p, offset) > offset}
    if not lost:
        raise NothingToAcceptError("no record that the stream still has to read is lost", fix="frazil status")
    new = _left_behind(stamps, positions, anchor, lost, "lost_offsets")
    stands = positions[anchor]
    passed = {p: OffsetRange(stands.get(p, known[p]), at) for p, at in lost.items() if stands.get(p, known[p]) < at}
    new[anchor] = replace(
        stamp.decided(Decision("lost_offsets", passed=passed)),
        start={**stamp.start, **lost},
        position=pointwise_max([stamp.position, lost]),
    )
    return new


def lost_topic(stamps: NewestStamps, anchor: str, topic: str) -> NewStamps:
    """Answer to a topic that was deleted before it was read: retire it."""
    stamp = _anchored(stamps, anchor)
    positions = target_positions(stamps, anchor)
    reached = pointwise_max(positions.values())
    if not unread(topic, restart_positions(positions), stamp, reached):
        raise NothingToAcceptError(f"no unread record of topic {topic} is known", fix="frazil status")
    ends = {p: end for p, end in pointwise_max([positions[anchor], stamp.ends]).items() if p.topic == topic}
    new = _left_behind(stamps, positions, anchor, ends, "lost_topic")
    # If another target is ahead, it alone has the records that the coordinator will not get.
    ahead = {p: at for p, at in reached.items() if p.topic == topic and at > positions[anchor].get(p, at)}
    new[anchor] = replace(
        stamp.decided(Decision("lost_topic", passed=unread(topic, positions[anchor], stamp, reached))),
        start={**stamp.start, **ahead},
        position={**stamp.position, **ahead},
        ends={partition: end for partition, end in stamp.ends.items() if partition.topic != topic},
    )
    return new


def _left_behind(
    stamps: NewestStamps,
    positions: Mapping[str, Positions],
    anchor: str,
    lost: Positions,
    answer: Literal["lost_offsets", "lost_topic"],
) -> NewStamps:
    """Stamps of targets behind the coordinator that move them past records which they can no longer receive.

    They move no further than the coordinator's position. Its own stamp covers what lies beyond, and a target ahead of
    the coordinator would look like one that committed a batch alone.
    """
    new: NewStamps = {}
    for name, stamp in stamps.items():
        if name == anchor or stamp is None:
            continue
        reached = {p: min(at, positions[anchor].get(p, 0)) for p, at in lost.items()}
        passed = {
            p: OffsetRange(positions[name][p], at) for p, at in reached.items() if positions[name].get(p, at) < at
        }
        if passed:
            position = pointwise_max([stamp.position, {p: range_.end for p, range_ in passed.items()}])
            new[name] = replace(stamp.decided(Decision(answer, passed=passed)), position=position)
    return new


def recreated_topic(
    stamps: NewestStamps,
    anchor: str,
    topic: str,
    identity: str,
    latest: Positions,
    departures: Positions = NOWHERE,
) -> NewStamps:
    """Answer to a topic that was deleted and created again: read the new one from its beginning.

    If it still is the same topic and its log was cut, reading goes on at the offset of departure, or at the log's end.
    A topic without an id is read from its beginning, which loses nothing. Until its next batch, the stream is complete
    through no time; the watermark stays.

    Args:
        latest: Ends of the logs.
        departures: Offsets at which the logs depart from what was read, no less than their first offsets.
    """
    stamps = _with_returned(stamps, anchor, {topic: identity})
    before = _anchored(stamps, anchor)
    there = {p: at for p, at in before.position.items() if p.topic == topic}
    wrong = any(p in departures or latest.get(p, at) < at for p, at in there.items())
    if not (wrong or another_topic(before.topics.get(topic), identity)):
        raise NothingToAcceptError(f"topic {topic} is the one that the stream has read", fix="frazil status")
    if before.topics.get(topic) == identity and has_id(identity):
        return _cut_topic(stamps, before, anchor, topic, latest, departures)

    def without(positions: Positions) -> dict[TopicPartition, int]:
        return {partition: offset for partition, offset in positions.items() if partition.topic != topic}

    positions = target_positions(stamps, anchor)
    new: NewStamps = {}
    for name, stamp in stamps.items():
        if stamp is None:
            continue
        again = {p: OffsetRange(0, at) for p, at in positions[name].items() if p.topic == topic and at}
        new[name] = replace(
            stamp.decided(Decision("recreated_topic", again=again)),
            start=without(stamp.start),
            position=without(stamp.position),
            ends=without(stamp.ends),
            valid_through_ms=None,
            event_time=stamp.event_time.without_topic(topic).bare() if stamp.event_time else None,
        )
    new[anchor] = replace(new[anchor], topics={**new[anchor].topics, topic: identity})
    return _anchor_last(new, anchor)


def _cut_topic(
    stamps: NewestStamps, anchored: Stamp, anchor: str, topic: str, latest: Positions, departures: Positions
) -> NewStamps:
    # A log that departs from what was read may have lost all of it to retention. Then the stream goes on where it
    # stands, unless retention stops it, and the log still counts as a new incarnation.
    cut = {
        partition: min(offset, latest.get(partition, offset), departures.get(partition, offset))
        for partition, offset in anchored.position.items()
        if partition.topic == topic and (partition in departures or latest.get(partition, offset) < offset)
    }

    def lowered(positions: Positions) -> dict[TopicPartition, int]:
        return {partition: min(offset, cut.get(partition, offset)) for partition, offset in positions.items()}

    positions = target_positions(stamps, anchor)
    new: NewStamps = {}
    for name, stamp in stamps.items():
        if stamp is None:
            continue
        again = {p: OffsetRange(at, positions[name][p]) for p, at in cut.items() if positions[name].get(p, at) > at}
        new[name] = replace(
            stamp.decided(Decision("cut_topic", again=again)),
            start=lowered(stamp.start),
            position=lowered(stamp.position),
            valid_through_ms=None,
            last_reads={partition: read for partition, read in stamp.last_reads.items() if partition not in cut},
        )
    return _anchor_last(new, anchor)


def recreated_table(stamps: NewestStamps, anchor: str, table: str, config: str) -> NewStamps:
    """Answer to a table that was dropped: the stream's main table begins again at `source.start`, others go on."""
    if table == anchor:
        return {
            name: replace(stamp.decided(Decision("recreated_table")), start={}, config=config)
            for name, stamp in stamps.items()
            if stamp and name != anchor
        }
    stamp = _anchored(stamps, anchor)
    others = {name: uuid for name, uuid in stamp.targets.items() if name != table}
    parked = {name: since for name, since in stamp.parked.items() if name != table}
    stamp = replace(stamp.decided(Decision("recreated_table")), targets=others).with_parked(parked)
    # Failed records are counted for the newest batch. Its re-execution makes dead letters of records without a table.
    return {anchor: replace(stamp, rows={**stamp.rows, table: 0}, failed=None)}


def signed_answer(stamp: Stamp, epoch: int, note: str) -> Stamp:
    """Stamp of an operator's answer, with its author and reason."""
    times = stamp.event_time.bare() if stamp.event_time else None
    return replace(
        stamp, kind="accept", epoch=epoch, note=note, counts=Counts(), parts={}, event_time=times, coordinator=None
    )


def _with_returned(stamps: NewestStamps, anchor: str, topics: Mapping[str, str]) -> NewestStamps:
    """The stamps in which the coordinator's one has the retired topics that exist again, as at a start."""
    stamp = stamps.get(anchor)
    if stamp is None or not (back := returned_topics(stamp.retired, topics)):
        return stamps
    # If the stamp knows the topic already, its own position is newer.
    names = {partition.topic for partition in back}
    known = replace(
        stamp,
        start={**back, **stamp.start},
        position={**back, **stamp.position},
        topics={**{topic: topics[topic] for topic in names}, **stamp.topics},
        retired={topic: each for topic, each in stamp.retired.items() if topic not in names},
    )
    return {**stamps, anchor: known}


def _anchored(stamps: NewestStamps, anchor: str) -> Stamp:
    stamp = stamps.get(anchor)
    if stamp is None:
        raise NothingToAcceptError(f"the stream has not committed anything to {anchor} yet", fix="frazil status")
    return stamp


def _anchor_last(stamps: NewStamps, anchor: str) -> NewStamps:
    return {name: stamps[name] for name in sorted(stamps, key=lambda name: name == anchor)}
