"""Bases of a mirror: tagged snapshots of it that stand for the changes before them, which a changelog may let go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from jobs.commit.expired_changes import ExpiredChanges
from jobs.commit.lineage import ancestors
from jobs.commit.offsets import Positions, from_topics
from jobs.commit.stamps import SUMMARY_KEY, Stamp
from jobs.maintain.snapshot_retention import snapshot_time
from jobs.time_travel.tags import tags_of

BASE_PREFIX = "frazil-base-"
KEPT_FOR = timedelta(days=8)
"""How long a base is kept: so long a check that looks at a part each day takes to look at every key."""


@dataclass(frozen=True, slots=True)
class MirrorBase:
    """A snapshot that a merge has published, with what its stamp says.

    Attributes:
        tag: Its name; empty of one that is not tagged yet.
        snapshot_id: Of the mirror.
        at: When it was committed.
        stamped: What the stamp says of the mirror, see `jobs.mirror.mirror_stamp`.
        stream: Whose changelog it was made from.
    """

    tag: str
    snapshot_id: int
    at: datetime
    stamped: Mapping[str, Any]
    stream: str

    @property
    def sequence(self) -> int:
        """Of the changelog's snapshot that it was made from."""
        return self.stamped["seq"]

    @property
    def next_offsets(self) -> Positions:
        """By partition, the offset from which on it has no changes; where offsets have begun anew, that of the log."""
        partitions: Mapping[str, Mapping[str, list[Any]]] = self.stamped.get("state", {}).get("partitions", {})
        seen = from_topics({topic: {n: each[0] for n, each in of.items()} for topic, of in partitions.items()})
        stood = from_topics(self.stamped.get("of", {}).get(self.stream, {}))
        return {partition: min(at, stood.get(partition, at)) for partition, at in seen.items()}

    def stands_for(self, expired: ExpiredChanges | None, stamped: Mapping[str, Any]) -> bool:
        """Whether it has all changes that are gone, in the order that the mirror goes by now.

        Args:
            expired: What is gone; None: nothing.
            stamped: What the mirror's newest stamp says.
        """
        same = all(self.stamped.get(name) == stamped.get(name) for name in ("changelog", "numbers"))
        return same and (expired is None or self.sequence >= expired.sequence)


def oldest_base(
    metadata: TableMetadata, mirror_id: str, expired: ExpiredChanges | None, stamped: Mapping[str, Any]
) -> MirrorBase | None:
    """As `newest_base`, the oldest one: what has gone wrong since it was made is not in it."""
    found = [base for base in tagged_bases(metadata, mirror_id) if base.stands_for(expired, stamped)]
    return min(found, key=lambda base: base.sequence, default=None)


def former_bases(bases: Sequence[MirrorBase], made: MirrorBase, now: datetime) -> list[MirrorBase]:
    """Which bases are none any more once there is another one.

    Those stay that were made since each key was compared last, and one before.

    Args:
        bases: All that there are.
        made: The new one.
        now: The time.
    """
    alike = [each for each in bases if each.stands_for(None, made.stamped) and each.sequence <= made.sequence]
    aged = [each for each in (*alike, made) if now - each.at >= KEPT_FOR]
    least = max((each.sequence for each in aged), default=0)
    kept = {each.snapshot_id for each in alike if each.sequence >= least} | {made.snapshot_id}
    return [each for each in bases if each.snapshot_id not in kept]


def merged_by_all(bases: Sequence[MirrorBase]) -> Positions:
    """By partition the offset up to which all bases have its changes, of those that all of them know."""
    first, *rest = [base.next_offsets for base in bases]
    return {p: min([at, *(each[p] for each in rest)]) for p, at in first.items() if all(p in each for each in rest)}


def newest_base(
    metadata: TableMetadata, mirror_id: str, expired: ExpiredChanges | None, stamped: Mapping[str, Any]
) -> MirrorBase | None:
    """The newest base of a mirror that stands for what is gone.

    Args:
        metadata: The mirror's.
        mirror_id: Under which it is stamped.
        expired, stamped: As for `MirrorBase.stands_for`.
    """
    found = [base for base in tagged_bases(metadata, mirror_id) if base.stands_for(expired, stamped)]
    return max(found, key=lambda base: base.sequence, default=None)


def aged_base(
    metadata: TableMetadata, mirror_id: str, stamped: Mapping[str, Any], before: datetime
) -> MirrorBase | None:
    """The newest base that was made before a time: what it has, the changelog has had since then.

    Args:
        metadata, mirror_id, stamped: As for `newest_base`.
        before: That time.
    """
    found = [each for each in tagged_bases(metadata, mirror_id) if each.stands_for(None, stamped) and each.at <= before]
    return max(found, key=lambda base: base.sequence, default=None)


def tagged_bases(metadata: TableMetadata, mirror_id: str) -> list[MirrorBase]:
    """All bases of a mirror, whatever they are good for."""
    tags = [(tag.name, tag.snapshot_id) for tag in tags_of(metadata) if tag.name.startswith(BASE_PREFIX)]
    snapshots = [(name, metadata.snapshot_by_id(snapshot_id)) for name, snapshot_id in tags]
    found = (_base(name, snapshot, mirror_id) for name, snapshot in snapshots if snapshot is not None)
    return [base for base in found if base is not None]


def newest_published(metadata: TableMetadata, mirror_id: str) -> MirrorBase | None:
    """What a base would be made of now: the snapshot of the newest merge on main, if it is still there."""
    found = (_base("", snapshot, mirror_id) for snapshot in ancestors(metadata))
    return next((base for base in found if base is not None), None)


def _base(tag: str, snapshot: Snapshot, mirror_id: str) -> MirrorBase | None:
    text = snapshot.summary.additional_properties.get(SUMMARY_KEY) if snapshot.summary else None
    if not text or mirror_id not in text:
        return None
    stamp = Stamp.from_json(text)
    if stamp.stream != mirror_id or stamp.kind != "batch" or "changelog" not in stamp.mirror:
        return None
    stream = mirror_id.partition("~")[0]
    return MirrorBase(tag, snapshot.snapshot_id, snapshot_time(snapshot), stamp.mirror, stream)
