"""Recovery of a batch that only some targets have: pure functions of the stamps and the pending record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from jobs.tables.commit.stamp.errors import HalfCommitted
from jobs.tables.commit.stamp.offsets import (
    OffsetRange,
    Positions,
    Ranges,
    TopicPartition,
    pointwise_max,
)
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import NewestStamps, need, target_positions


class PlannedTarget(Protocol):
    """Entry of a pending record: one target that may have to be recovered."""

    @property
    def position(self) -> Positions:
        """Position when the tasks were planned."""
        ...

    @property
    def stamp(self) -> Stamp:
        """Stamp that the target was about to get."""
        ...


def lacking_targets(
    batch: Ranges, planned: Mapping[str, PlannedTarget], stamps: NewestStamps, anchor: str
) -> tuple[str, ...] | None:
    """The targets to recover: those that lack the pending record's batch, in the order of their commits.

    A zombie driver may write a record late. So a record counts as a whole or not at all: either the coordinator is
    where it was when the tasks were planned, or its newest batch is the record's.

    Args:
        anchor: The table that is stamped in every batch of the configuration that made the record.

    Returns:
        Names of the targets, none if all have the batch; None if the record is stale.
    """
    positions = target_positions({name: stamps.get(name) for name in {**stamps, **planned}}, anchor)
    names: list[str] = []
    for name, target in planned.items():
        if any(positions[name].get(partition, at) < at for partition, at in target.position.items()):
            # The target was moved back since, as only an operator does. The record would undo that.
            return None
        then = need(batch, target.position)
        now = need(batch, pointwise_max([target.position, positions[name]]))
        if now.nothing:
            if name == anchor and not _is_newest(batch, target, stamps.get(anchor)):
                return None
        elif now.gaps or not then.same_part(now):
            return None
        else:
            names.append(name)
    return tuple(names)


def _is_newest(batch: Ranges, planned: PlannedTarget, newest: Stamp | None) -> bool:
    """True if `newest` is the commit of what was planned, or a later driver's claim on top of it."""
    stamp = planned.stamp
    reached = pointwise_max([planned.position, {each: range_.end for each, range_ in batch.items()}])
    # Tables that an operator has begun again since have no rows of the batch.
    anew = stamp.targets.keys() - newest.targets.keys() if newest and newest.targets else ()
    return (
        newest is not None
        and (newest.batch, newest.config) == (stamp.batch, stamp.config)
        and newest.start == stamp.start
        and all(_same(newest.rows.get(name, 0), rows, stamp) for name, rows in stamp.rows.items() if name not in anew)
        and all(newest.position.get(each) == reached[each] for each in batch)
    )


def _same(rows: int, planned: int, stamp: Stamp) -> bool:
    """Whether a target's rows are those planned; a stamp may record only whether there are any."""
    return bool(rows) == bool(planned) if stamp.in_bitmaps else rows == planned


def half_committed(stamps: NewestStamps, anchor: str) -> HalfCommitted | None:
    """The batch that a crash left on some targets only; None if all targets agree.

    The coordinator is stamped in every batch and lists the rows of each target. So two things show such a batch: a
    target ahead of the coordinator, or one behind it that the coordinator's newest batch names.
    """
    anchored = stamps.get(anchor)
    for target, stamp in stamps.items():
        if target == anchor or stamp is None:
            continue
        ahead = _beyond(stamp.position, anchored.position if anchored else {}, stamp.start)
        if ahead:
            return HalfCommitted((target,), (anchor,), stamp.config, ahead)
    if anchored is None:
        return None
    proven = pointwise_max(stamp.start for stamp in stamps.values() if stamp)
    lack: list[str] = []
    missing: dict[TopicPartition, OffsetRange] = {}
    for target, rows in anchored.rows.items():
        stamp = stamps.get(target)
        own = pointwise_max([stamp.position, proven] if stamp else [proven])
        behind = _beyond(anchored.position, own, anchored.start)
        if target != anchor and rows and behind:
            lack.append(target)
            missing |= behind
    if not lack:
        return None
    have = tuple(target for target, rows in anchored.rows.items() if rows and target not in lack) or (anchor,)
    return HalfCommitted(have, tuple(lack), anchored.config, missing)


def _beyond(position: Positions, other: Positions, start: Positions) -> dict[TopicPartition, OffsetRange]:
    """Records up to `position` that `other` has not reached, by partition."""
    return {
        partition: OffsetRange(max(other.get(partition, 0), start.get(partition, 0)), offset)
        for partition, offset in position.items()
        if offset > max(other.get(partition, -1), start.get(partition, -1))
    }
