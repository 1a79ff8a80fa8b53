"""Stamp of a mirror: through which snapshot of its changelog it is true, and what its next merge has to know.

A mirror is stamped on its own main branch, under an id of its own, in the commit that publishes a merge. Its position
are the offsets through which the stream had landed in that snapshot of the changelog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from jobs.mirrors.model.merge_plan import MirrorState
from jobs.tables.commit.stamp.errors import damaged_property
from jobs.tables.commit.stamp.offsets import Positions, by_topic, from_topics
from jobs.tables.commit.stamp.stamps import Stamp, property_key
from jobs.tables.commit.stamp.table_properties import MIRROR_PART

BRANCH_PREFIX = "frazil-mirror-"
_DAMAGED = (KeyError, TypeError, ValueError, IndexError)


def mirror_id(stream: str, table: str) -> str:
    """The id under which a mirror of a stream is stamped; no stream can have it."""
    return f"{stream}{MIRROR_PART}{table}"


def attempt_branch(epoch: int, attempt: int, token: str) -> str:
    """The branch on which one attempt at a merge is made.

    Args:
        token: Of this attempt alone: sessions that do not see each other's lease may have one epoch.
    """
    return f"{BRANCH_PREFIX}{epoch}-{attempt}-{token}"


def abandoned_branches(metadata: TableMetadata) -> list[str]:
    """The branches of attempts, of which none is under way: whoever opens the mirror holds its lease."""
    return sorted(name for name in metadata.refs if name.startswith(BRANCH_PREFIX))


@dataclass(frozen=True, slots=True)
class MirrorStamp:
    """What a mirror's stamp says beside offsets.

    Attributes:
        changelog: The changelog's uuid.
        snapshot_id: The snapshot of the changelog that the mirror has all changes of.
        sequence: Iceberg's sequence number of it.
        at_ms: When it was committed; milliseconds since 1970.
        key: The columns that tell the mirror's rows apart.
        deletes: Whether deleted rows go or stay.
        where: The condition that the mirror's rows fulfil.
        letters: Dead letters of the stream that had not come back when it was merged.
        state: What the next merge has to know of the log.
        positions: Where the stream, its replays and its queues stood in that snapshot, by the id that they stamp with.
        others: Snapshots of the mirror by which somebody else had changed rows since it was made anew.
        too_late: Changes that came late, from before changes that had expired, and were left out since.
        unresolved: Values that the source left out, and that no change has, of rows that were merged since; those of a
            row that was folded several times count each time.
    """

    changelog: str
    snapshot_id: int
    sequence: int
    at_ms: int
    key: tuple[str, ...]
    deletes: str = "hard"
    where: str | None = None
    letters: int = 0
    state: MirrorState = field(default_factory=MirrorState)
    positions: Mapping[str, Positions] = field(default_factory=dict)
    others: tuple[int, ...] = ()
    too_late: int = 0
    unresolved: int = 0

    def to_json(self) -> dict[str, Any]:
        """What stands in the stamp."""
        document: dict[str, Any] = {
            "changelog": self.changelog,
            "snapshot": self.snapshot_id,
            "seq": self.sequence,
            "at": self.at_ms,
            "key": list(self.key),
            "state": self.state.to_json(),
            "of": {name: by_topic(each) for name, each in self.positions.items()},
        }
        if self.deletes != "hard":
            document["deletes"] = self.deletes
        more = {
            "where": self.where,
            "letters": self.letters,
            "others": list(self.others),
            "too_late": self.too_late,
            "unresolved": self.unresolved,
        }
        document |= {name: value for name, value in more.items() if value}
        return document

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> MirrorStamp:
        """The inverse of `to_json`.

        Raises:
            KeyError, TypeError, ValueError, IndexError: It is not what `to_json` gives.
        """
        return MirrorStamp(
            document["changelog"],
            document["snapshot"],
            document["seq"],
            document["at"],
            tuple(document["key"]),
            document.get("deletes", "hard"),
            document.get("where"),
            document.get("letters", 0),
            MirrorState.from_json(document.get("state", {})),
            {name: from_topics(each) for name, each in document.get("of", {}).items()},
            tuple(document.get("others", ())),
            document.get("too_late", 0),
            document.get("unresolved", 0),
        )


def mirrored(stamp: Stamp | None, stream: str, table: str) -> MirrorStamp | None:
    """What a mirror's newest stamp says; None before the first merge.

    Args:
        stamp: Of the mirror, a claim included: what the merge before said stays with it.
        stream: The stream's id.
        table: The mirror's name.

    Raises:
        FrazilError: Nobody can read it.
    """
    if stamp is None or "changelog" not in stamp.mirror:
        return None
    try:
        return MirrorStamp.from_json(stamp.mirror)
    except _DAMAGED as problem:
        raise damaged_property(
            stream,
            table,
            property_key(stamp.stream),
            problem,
            f"the mirror is made anew from its changelog by `frazil mirror rebuild {stream} --table {table}`",
        ) from problem


def former_stamp(stamp: Stamp | None, changelog: Table) -> MirrorStamp | None:
    """What the stamp of a mirror that is rebuilt says; None if it is of another changelog, or nobody can read it."""
    try:
        found = MirrorStamp.from_json(stamp.mirror) if stamp is not None and "changelog" in stamp.mirror else None
    except _DAMAGED:
        return None
    return found if found is not None and found.changelog == str(changelog.metadata.table_uuid) else None


def state_to_begin_with(stamp: Stamp | None) -> MirrorState:
    """What the first merge into a mirror has to know, or one that makes it anew: what operators have answered.

    Nothing of a stamp that nobody can read, which `mirrored` refuses, and which a rebuild replaces.
    """
    try:
        packed = stamp.mirror.get("state", {}) if stamp is not None else {}
        return MirrorState(breaks=MirrorState.from_json(packed).breaks)
    except _DAMAGED:
        return MirrorState()


def answers_alone(state: MirrorState) -> dict[str, Any]:
    """What stands in the stamp of a mirror of which nothing else is said: what operators have answered."""
    packed = MirrorState(breaks=state.breaks).to_json()
    return {"state": packed} if packed else {}


def refuse_other_rows(spec: StreamSpec, mirror: Mirror, known: MirrorStamp | None, key: tuple[str, ...]) -> None:
    """Refuse to go on where the file says another mirror than the one that is there.

    Args:
        known: What its stamp says.
        key: The columns that tell its rows apart by the file.

    Raises:
        FrazilError: It has another key, another condition, or deletes otherwise.
    """
    if known is None:
        return
    changed = {
        "key": (", ".join(sorted(known.key)), ", ".join(sorted(key))),
        "where": (known.where, mirror.where),
        "deletes": (known.deletes, mirror.deletes),
    }
    for name, (before, now) in changed.items():
        if before == now:
            continue
        file = f"streams/{spec.stream}.yaml"
        anew = (
            f"name another table for it in mirrors of {file}; or put the file back. The columns of a key are required, "
            "and a table that is there does not get others"
            if name == "key"
            else f"`frazil mirror rebuild {spec.stream} --table {mirror.table}` makes it anew; or put the file back"
        )
        raise FrazilError(
            f"stream {spec.stream}: mirror {mirror.table} was made with {name} {before or 'none'}, and its file "
            f"says {now or 'none'}.",
            fix=anew,
        )


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """How far a mirror has its source, by the source's own positions.

    Attributes:
        position: The least over partitions of the greatest that was seen: the mirror has all changes up to it, and of
            several partitions some that come behind.
        lineage: What it belongs to.
        at_us: When the change there happened; microseconds since 1970, None if it is not known.
    """

    position: str
    lineage: str | None
    at_us: int | None


def source_position(stamp: MirrorStamp, stream: str) -> SourcePosition | None:
    """Through which position the mirror has its source; None where it cannot be told.

    That is where positions are of several sources, or of none, and while a partition of its topics has not had a
    change: what comes there may be of any position. Topics without any change do not count, as a stream over a whole
    database has those of other changelogs.

    Args:
        stream: The stream's id.
    """
    there, state = stamp.positions.get(stream, {}), stamp.state
    topics = {each.topic for each in state.partitions}
    known = [each for each in state.partitions.values() if each.position is not None]
    if len(known) < len(state.partitions) or not known or len({each.lineage for each in known}) > 1:
        return None
    if any(each.topic in topics and each not in state.partitions for each in there):
        return None
    least = min(known, key=lambda each: each.position or "")
    return SourcePosition(least.position or "", least.lineage, least.at)
