"""Stamp of a mirror: the snapshot of its changelog that it has merged, and the state for its next merge.

A mirror is stamped on its own main branch, under its own id, in the commit that publishes a merge. Its position is the
stream's offsets in that snapshot of the changelog.
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
    """Return the id of a mirror's stamps, which no stream can have."""
    return f"{stream}{MIRROR_PART}{table}"


def attempt_branch(epoch: int, attempt: int, token: str) -> str:
    """Return the name of the branch for one attempt at a merge.

    Args:
        token: Unique to this attempt: sessions that do not see each other's lease may have the same epoch.
    """
    return f"{BRANCH_PREFIX}{epoch}-{attempt}-{token}"


def abandoned_branches(metadata: TableMetadata) -> list[str]:
    """Return the branches of former attempts. None is under way, because the caller holds the mirror's lease."""
    return sorted(name for name in metadata.refs if name.startswith(BRANCH_PREFIX))


@dataclass(frozen=True, slots=True)
class MirrorStamp:
    """Content of a mirror's stamp beside offsets.

    Attributes:
        changelog: UUID of the changelog.
        snapshot_id: Snapshot of the changelog whose changes are all merged.
        sequence: Sequence number of that snapshot.
        at_ms: Commit time of that snapshot, in milliseconds since 1970.
        key: Key columns of the mirror.
        deletes: Whether deleted rows are removed or stay.
        where: Condition that the mirror's rows fulfil.
        letters: Dead letters of the stream that had not been replayed at the merge.
        state: State of the log for the next merge.
        positions: Offsets of the stream, its replays and its queues in that snapshot, by the id of their stamps.
        others: Snapshots since the last rebuild in which somebody else changed rows of the mirror.
        too_late: Late changes from before expired ones that were left out since the last rebuild.
        unresolved: Values of rows merged since the last rebuild that the source left out and no change has; a row that
            was collapsed several times counts each time.
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
        """Return the stamp's JSON document."""
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
        """Return the content from the result of `to_json`.

        Raises:
            KeyError, TypeError, ValueError, IndexError: The document is no result of `to_json`.
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
    """Return the content of a mirror's newest stamp; None before the first merge.

    Args:
        stamp: Newest stamp of the mirror. It may be a claim, which keeps the content of the merge before.
        stream: Id of the stream.
        table: Name of the mirror.

    Raises:
        FrazilError: The stamp cannot be read.
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
            f"rebuild the mirror from its changelog with `frazil mirror rebuild {stream} --table {table}`",
        ) from problem


def former_stamp(stamp: Stamp | None, changelog: Table) -> MirrorStamp | None:
    """Return the stamp's content for a rebuild; None if it is from another changelog, or cannot be read."""
    try:
        found = MirrorStamp.from_json(stamp.mirror) if stamp is not None and "changelog" in stamp.mirror else None
    except _DAMAGED:
        return None
    return found if found is not None and found.changelog == str(changelog.metadata.table_uuid) else None


def state_to_begin_with(stamp: Stamp | None) -> MirrorState:
    """Return the state for a first merge or a rebuild: the breaks that operators have accepted.

    A stamp that cannot be read gives an empty state: `mirrored` refuses it, and a rebuild replaces it.
    """
    try:
        packed = stamp.mirror.get("state", {}) if stamp is not None else {}
        return MirrorState(breaks=MirrorState.from_json(packed).breaks)
    except _DAMAGED:
        return MirrorState()


def answers_alone(state: MirrorState) -> dict[str, Any]:
    """Return a stamp's JSON document with the breaks that operators have accepted, and nothing else."""
    packed = MirrorState(breaks=state.breaks).to_json()
    return {"state": packed} if packed else {}


def refuse_other_rows(spec: StreamSpec, mirror: Mirror, known: MirrorStamp | None, key: tuple[str, ...]) -> None:
    """Refuse to go on if the file describes another mirror than the existing one.

    Args:
        known: Stamp of the mirror.
        key: Key columns in the file.

    Raises:
        FrazilError: Key, condition or deletes differ.
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
            f"name another table for it in mirrors of {file}; or put the file back. The columns of a key are "
            "required, and an existing table does not get others"
            if name == "key"
            else f"`frazil mirror rebuild {spec.stream} --table {mirror.table}` rebuilds it; or put the file back"
        )
        raise FrazilError(
            f"stream {spec.stream}: mirror {mirror.table} was made with {name} {before or 'none'}, and its file has "
            f"{now or 'none'}.",
            fix=anew,
        )


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Progress of a mirror by its source's own positions.

    Attributes:
        position: Position up to which the mirror has all changes: the least of the partitions' greatest positions. Of
            some partitions it may have later changes.
        lineage: Lineage of the position.
        at_us: Time of the change there, in microseconds since 1970; None if unknown.
    """

    position: str
    lineage: str | None
    at_us: int | None


def source_position(stamp: MirrorStamp, stream: str) -> SourcePosition | None:
    """Return the source position that a mirror has reached; None if unknown.

    It is unknown if positions come from several sources or are missing, and while a partition of its topics has had no
    change, because a change there may have any position. Topics without any change do not count: a stream over a whole
    database has topics of other changelogs.

    Args:
        stream: Id of the stream.
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
