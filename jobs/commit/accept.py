"""An operator's answers to the stops of a stream, each recorded as a stamp with who said it and why.

They are the only thing that moves a position past records that were not read, or back over records that were.
Each function gives the new stamps, the anchor's last; nothing is committed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from jobs.commit.decide import NewestStamps, restart_positions, target_positions
from jobs.commit.history import History
from jobs.commit.offsets import Positions, TopicPartition, pointwise_max
from jobs.commit.stamps import Counts, Stamp
from jobs.errors import FrazilError

NewStamps = dict[str, Stamp]


class NothingToAcceptError(FrazilError):
    """The stream is not stopped for the reason that was given."""


def rollback(
    histories: Mapping[str, History], anchor: str, answer: Literal["keep", "reland"], config: str
) -> NewStamps:
    """Answer to a table that was rolled back: leave the removed records out, or land them again.

    Landing again lowers what other targets prove about the one that was rolled back, and nothing of their own
    positions, so they receive nothing twice.

    Args:
        config: The present configuration, under which the records are landed again.
    """
    rolled = {name for name, past in histories.items() if past.rolled_back}
    if not rolled:
        raise NothingToAcceptError("no table of the stream was rolled back", fix="frazil status")
    new: NewStamps = {}
    for name, past in histories.items():
        stamp = past.newest
        if stamp is None:
            continue
        if answer == "keep":
            if name in rolled:
                new[name] = stamp
        else:
            kept = [_position_kept(histories[each]) for each in rolled]
            start = {
                partition: min([offset, *(each[partition] for each in kept)])
                for partition, offset in stamp.start.items()
                if all(partition in each for each in kept)
            }
            position = _position_kept(past) if name in rolled else stamp.position
            rows = dict(stamp.rows)
            if name == anchor:
                # A target with rows to come is not taken for complete where the anchor stands.
                rows |= dict.fromkeys(rolled - {anchor}, 1)
            new[name] = replace(stamp, start=start, position=position, rows=rows, config=config)
    # A table that was rolled back comes after the others, so that the stop stands until the last of them is stamped.
    return {name: new[name] for name in sorted(new, key=lambda name: (name in rolled, name != anchor))}


def lost_offsets(stamps: NewestStamps, anchor: str, earliest: Positions) -> NewStamps:
    """Answer to retention that removed unread records: go on behind them."""
    stamp = _anchored(stamps, anchor)
    # Where the stream would begin, which may be before the anchor's position if another target stands behind it.
    known = restart_positions(target_positions(stamps, anchor))
    lost = {p: earliest[p] for p, offset in known.items() if earliest.get(p, offset) > offset}
    if not lost:
        raise NothingToAcceptError("no record that the stream still has to read is lost", fix="frazil status")
    return {anchor: replace(stamp, start={**stamp.start, **lost}, position=pointwise_max([stamp.position, lost]))}


def lost_topic(stamps: NewestStamps, anchor: str, topic: str) -> NewStamps:
    """Answer to a topic that was deleted before it was read: retire it."""
    stamp = _anchored(stamps, anchor)
    if not any(partition.topic == topic for partition in stamp.ends):
        raise NothingToAcceptError(f"no unread record of topic {topic} is known", fix="frazil status")
    return {anchor: replace(stamp, ends={p: end for p, end in stamp.ends.items() if p.topic != topic})}


def recreated_topic(stamps: NewestStamps, anchor: str, topic: str, identity: str, latest: Positions) -> NewStamps:
    """Answer to a topic that was deleted and created again: read the new one from its beginning.

    A topic that is still the same one, and whose log was cut, is read on from its end: what it holds has landed.
    """
    before = _anchored(stamps, anchor)
    if before.topics.get(topic) == identity:
        return _cut_topic(stamps, before, anchor, topic, latest)

    def without(positions: Positions) -> dict[TopicPartition, int]:
        return {partition: offset for partition, offset in positions.items() if partition.topic != topic}

    _anchored(stamps, anchor)
    new = {
        name: replace(stamp, start=without(stamp.start), position=without(stamp.position), ends=without(stamp.ends))
        for name, stamp in stamps.items()
        if stamp
    }
    new[anchor] = replace(new[anchor], topics={**new[anchor].topics, topic: identity})
    return _anchor_last(new, anchor)


def _cut_topic(stamps: NewestStamps, anchored: Stamp, anchor: str, topic: str, latest: Positions) -> NewStamps:
    cut = {
        partition: latest[partition]
        for partition, offset in anchored.position.items()
        if partition.topic == topic and latest.get(partition, offset) < offset
    }
    if not cut:
        raise NothingToAcceptError(f"topic {topic} is the one that the stream has read", fix="frazil status")

    def lowered(positions: Positions) -> dict[TopicPartition, int]:
        return {partition: min(offset, cut.get(partition, offset)) for partition, offset in positions.items()}

    new = {
        name: replace(stamp, start=lowered(stamp.start), position=lowered(stamp.position))
        for name, stamp in stamps.items()
        if stamp
    }
    return _anchor_last(new, anchor)


def recreated_table(stamps: NewestStamps, anchor: str, table: str, config: str) -> NewStamps:
    """Answer to a table that was dropped: the sink begins again where the spec's `start` says, dead letters go on."""
    if table == anchor:
        return {
            name: replace(stamp, start={}, config=config) for name, stamp in stamps.items() if stamp and name != anchor
        }
    stamp = _anchored(stamps, anchor)
    others = {name: uuid for name, uuid in stamp.targets.items() if name != table}
    return {anchor: replace(stamp, targets=others, rows={**stamp.rows, table: 0})}


def signed(stamp: Stamp, epoch: int, note: str) -> Stamp:
    """The stamp as an operator's decision, with who and why."""
    return replace(stamp, kind="accept", epoch=epoch, note=note, counts=Counts())


def _position_kept(past: History) -> Positions:
    """Where a rolled back table stands. Of partitions that it does not name, at 0: named nowhere, they would be taken
    to stand where the other targets do."""
    kept = past.stamped_ancestor.position if past.stamped_ancestor else {}
    return {partition: kept.get(partition, 0) for partition in (past.newest.position if past.newest else {})}


def _anchored(stamps: NewestStamps, anchor: str) -> Stamp:
    stamp = stamps.get(anchor)
    if stamp is None:
        raise NothingToAcceptError(f"the stream has not committed anything to {anchor} yet", fix="frazil status")
    return stamp


def _anchor_last(stamps: NewStamps, anchor: str) -> NewStamps:
    return {name: stamps[name] for name in sorted(stamps, key=lambda name: name == anchor)}
