"""Places in the log of a source in PostgreSQL: how far a mirror has come in it, and how far what was read shows it."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.mirror.log_scan import source_lineage
from jobs.mirror.mirror_stamp import MirrorStamp, source_position

_POSTGRESQL = "postgresql/"


@dataclass(frozen=True, slots=True)
class MirrorPlace:
    """How far a mirror has its source, by the source's log; None where nobody can say.

    Attributes:
        reached: Through which place it has all that was committed.
        greatest: A place that no change begins behind which it has; their transactions may end behind it.
    """

    reached: int | None
    greatest: int | None


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """What was read of a source, by its log.

    Attributes:
        through: All that was committed through this place is shown.
        before: All that is shown was committed before this place.
        standby: Whether it was read from a standby, which may be behind.
    """

    through: int
    before: int
    standby: bool = False

    def is_behind(self, mirror: MirrorPlace) -> bool:
        """Whether a mirror that was read before has changes that are not shown: this is another source, or it lags."""
        return mirror.greatest is not None and self.through < mirror.greatest


def place_of(stamp: MirrorStamp, stream: str) -> MirrorPlace:
    """How far a mirror has come."""
    where = source_position(stamp, stream)
    if where is None or not (where.lineage or "").startswith(_POSTGRESQL):
        return MirrorPlace(None, None)
    # Its first part is the end of the transaction before the change: what was committed up to there came before it.
    reached, *_ = _numbers(where.position)
    known = [each.position for each in stamp.state.partitions.values() if each.position is not None]
    return MirrorPlace(reached, max(number for each in known for number in _numbers(each)))


def databases_of(stamp: MirrorStamp) -> list[str]:
    """The names of the databases in PostgreSQL that a mirror's changes are of, as far as these say."""
    lineages = {each.lineage for each in stamp.state.partitions.values() if each.lineage is not None}
    parts = [source_lineage(each).split("/", 2) for each in lineages if each.startswith(_POSTGRESQL)]
    return sorted({each[2] for each in parts if len(each) == 3})


def _numbers(position: str) -> list[int]:
    return [int(each, 16) for each in position.split("/") if each]
