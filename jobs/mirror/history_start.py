"""History start: where a mirror's rows begin in a changelog of which changes have expired; what it is made anew of."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table import Table

from jobs.commit.expired_changes import ExpiredChanges, expired_changes
from jobs.commit.offsets import Positions
from jobs.maintain.mirror_bases import MirrorBase, newest_base, oldest_base, tagged_bases
from jobs.mirror.changelog_increment import ChangelogMovedError, refuse_moved
from jobs.mirror.errors import ExpiredChangesError, MissedChangesError, StaleExpiryError
from jobs.mirror.merge_plan import HistoryStart
from jobs.mirror.mirror_stamp import MirrorStamp, mirror_id
from jobs.spec.mirror import Mirror
from jobs.spec.models import StreamSpec


def history_start(
    spec: StreamSpec, changelog: Table, mirror: Table, known: MirrorStamp, *, oldest: bool = False
) -> HistoryStart | None:
    """Where the histories of a mirror's rows begin; None if the changelog has all of them.

    Args:
        mirror: With its tags.
        known: What its newest stamp says.
        oldest: By its oldest base, not the newest one.

    Raises:
        FrazilError: What the changelog says of it cannot be read.
    """
    expired = expired_changes(changelog.metadata.properties, spec.table.name)
    if expired is None:
        return None
    chosen = oldest_base if oldest else newest_base
    base = chosen(mirror.metadata, mirror_id(spec.stream, ".".join(mirror.name())), expired, known.to_json())
    return HistoryStart(expired.offsets, base.snapshot_id if base else None)


def refuse_missed(
    spec: StreamSpec, mirror: Mirror, changelog: Table, known: MirrorStamp | None, position: Positions
) -> None:
    """Refuse to merge where what has expired is not what the mirror has, or not what the changelog had.

    Args:
        known: What the mirror's newest stamp says; None of one that is made anew.
        position: Where the stream stands in the changelog.

    Raises:
        MissedChangesError: Changes have expired that the mirror has not merged.
        StaleExpiryError: The changelog was moved back to before what has expired.
    """
    expired = expired_changes(changelog.metadata.properties, spec.table.name)
    if expired is None:
        return
    for partition, since in sorted(expired.offsets.items()):
        if (at := position.get(partition, since)) < since:
            raise StaleExpiryError(spec.stream, spec.table.name, partition, since, at)
    if known is not None and known.sequence < expired.sequence:
        raise MissedChangesError(spec.stream, mirror.table, spec.table.name, expired.before)


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a mirror is made anew of beside the changes that are left.

    Attributes:
        base: Its base.
        stamp: What that says.
        expired: What is gone of the changelog.
    """

    base: MirrorBase
    stamp: MirrorStamp
    expired: ExpiredChanges

    @property
    def start(self) -> HistoryStart:
        """Where its rows' histories begin."""
        return HistoryStart(self.expired.offsets, self.base.snapshot_id)


def beginning(spec: StreamSpec, mirror: Mirror, changelog: Table, table: Table) -> Beginning | None:
    """What a mirror is made of beside the changes that are left; None if none has expired.

    Args:
        table: The mirror's.

    Raises:
        ExpiredChangesError: Changes have, and it has no base that stands for them, or the changelog was moved back to
            before each of those.
    """
    expired = expired_changes(changelog.metadata.properties, spec.table.name)
    if expired is None:
        return None
    uuid = str(changelog.metadata.table_uuid)
    found = [
        each
        for each in tagged_bases(table.metadata, mirror_id(spec.stream, mirror.table))
        if each.stamped.get("changelog") == uuid and each.sequence >= expired.sequence
    ]
    moved = False
    for base in sorted(found, key=lambda each: -each.sequence) if mirror.where is None else ():
        stamp = MirrorStamp.from_json(base.stamped)
        try:
            refuse_moved(changelog.metadata, spec.stream, mirror.table, stamp)
        except ChangelogMovedError:
            # Its own answer, to make the mirror anew, is what is being done; an earlier base may be of what is there.
            moved = True
            continue
        return Beginning(base, stamp, expired)
    raise ExpiredChangesError(spec.stream, mirror.table, spec.table.name, expired.rows, expired.before, moved=moved)
