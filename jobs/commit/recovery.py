"""Which targets a pending record still has to be committed to: a pure decision on the record and the stamps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from jobs.commit.decide import NewestStamps, Ranges, need, target_positions
from jobs.commit.offsets import Positions, pointwise_max
from jobs.commit.stamps import Stamp


class Planned(Protocol):
    """What a pending record says of one target."""

    @property
    def position(self) -> Positions:
        """Where it stood when the tasks were planned."""
        ...

    @property
    def stamp(self) -> Stamp:
        """What it was about to be stamped with."""
        ...


def lacking(batch: Ranges, planned: Mapping[str, Planned], stamps: NewestStamps, anchor: str) -> tuple[str, ...] | None:
    """The targets that lack the record's batch, in the order of their commits.

    A record may be stale: a driver that slept through a take-over can still write one after its successor has looked
    for them. What such a record holds has been read by others since, in other ranges or under another configuration, so
    it counts only as a whole: either the anchor is where it was when the tasks were planned, or its newest batch is
    this one.

    Args:
        batch: The record's ranges.
        planned: The record's targets.
        stamps: The newest stamp of each of them, and of the anchor.
        anchor: The table that is stamped in every batch of the configuration that made the record.

    Returns:
        Names, none if all have it; None if the record is stale.
    """
    positions = target_positions({name: stamps.get(name) for name in {**stamps, **planned}}, anchor)
    names: list[str] = []
    for name, target in planned.items():
        if any(positions[name].get(partition, at) < at for partition, at in target.position.items()):
            # The target has been moved back since, which only an operator does; the record would take that back.
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


def _is_newest(batch: Ranges, planned: Planned, newest: Stamp | None) -> bool:
    """True if `newest` is the commit of what was planned, or a later driver's claim on top of it."""
    stamp = planned.stamp
    reached = pointwise_max([planned.position, {each: range_.end for each, range_ in batch.items()}])
    return (
        newest is not None
        and (newest.batch, newest.config) == (stamp.batch, stamp.config)
        and newest.start == stamp.start
        and all(newest.rows.get(name) == rows for name, rows in stamp.rows.items())
        and all(newest.position.get(each) == reached[each] for each in batch)
    )
