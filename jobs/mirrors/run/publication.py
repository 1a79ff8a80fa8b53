"""Publication of a merge: main moves to the head of its branch, in one commit that asserts both heads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.mirrors.model.changelog_increment import ChangelogIncrement
from jobs.mirrors.model.merge_plan import MergeResult
from jobs.mirrors.model.mirror_stamp import MirrorStamp
from jobs.mirrors.model.session import MirrorSession
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.mirror_merges import other_writes
from jobs.tables.commit.protocol.proposals import Proposal
from jobs.tables.commit.schema.operations import PublishBranch
from jobs.tables.commit.stamp.offsets import pointwise_max
from jobs.tables.commit.stamp.stamps import Stamp

STAMP_EVERY = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a merge.

    Attributes:
        branch: Branch of the attempt.
        base: Main's head, where the branch began.
        start: Head of the branch when the merge began: `base`, or the snapshot that deleted all rows for a rebuild.
    """

    branch: str
    base: int
    start: int


def publish_merge(
    session: MirrorSession,
    attempt: Attempt,
    found: ChangelogIncrement,
    result: MergeResult,
    mirror: MirrorStamp,
    *,
    anew: bool,
) -> bool:
    """Move main to the merge; return False if main has moved, or the branch was removed.

    Raises:
        FencedError: A later session has claimed the mirror.
        FrazilError: Somebody else has written to the branch.
    """
    spec, name, target = session.spec, session.mirror.table, session.target
    merged = result.snapshots[-1] if result.snapshots else attempt.start

    def propose(newest: Stamp | None, metadata: TableMetadata) -> Proposal[bool]:
        ref = metadata.refs.get(attempt.branch)
        if ref is None or metadata.current_snapshot_id != attempt.base:
            return Proposal(False)
        along = [each.snapshot_id for each in ancestors(metadata, ref.snapshot_id)]
        if ref.snapshot_id != merged or attempt.base not in along or attempt.start not in along:
            raise FrazilError(
                f"stream {spec.stream}: branch {attempt.branch} of mirror {name} is not as this merge left it: "
                "somebody else has written it. Nothing was published.",
                fix=f"frazil mirror run {spec.stream}",
            )
        # Rows from before the first merge were adopted, and a rebuild drops the rows of others.
        later = newest is not None and "changelog" in newest.mirror and not anew
        stamp = Stamp(
            session.commits.id,
            "batch",
            newest.batch + 1 if newest else 0,
            session.epoch,
            spec.config_hash,
            start=newest.position if newest and not anew else {},
            position=pointwise_max([result.state.next_offsets, found.positions.get(spec.stream, {})]),
            rows={name: result.counts.upserts + result.counts.deletes},
            mirror=_told(mirror, metadata, session) if later else mirror.to_json(),
        )
        if anew:
            stamp = replace(stamp, note="rebuilt from the changelog")
        return Proposal(True, PublishBranch(attempt.branch, attempt.base, merged), stamp)

    return target.swap(propose, epoch=session.epoch, check=session.verify)


def stamp_is_due(known: MirrorStamp, found: ChangelogIncrement, changelog: TableMetadata) -> bool:
    """Whether a mirror that lacks nothing needs a stamp for the changelog's present head.

    Compactions give a changelog new heads even if no change comes, and old snapshots expire. If the snapshot in the
    mirror's stamp expired, nothing would show that the changelog continues it.

    Args:
        known: Stamp of the mirror.
        found: Scan without files.
        changelog: Metadata of the changelog.
    """
    if found.until is None or found.until.snapshot_id == known.snapshot_id:
        return False
    gone = changelog.snapshot_by_id(known.snapshot_id) is None
    return gone or found.until.timestamp_ms - known.at_ms >= STAMP_EVERY.total_seconds() * 1000


def _told(mirror: MirrorStamp, metadata: TableMetadata, session: MirrorSession) -> dict[str, Any]:
    """Return the stamp's document with the snapshots that others have written up to now."""
    return replace(mirror, others=other_writes(metadata, session.commits.id, mirror.others)).to_json()
