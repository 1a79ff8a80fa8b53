"""Publication of a merge: its branch becomes the mirror's main, in one commit that asserts both heads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyiceberg.table.metadata import TableMetadata

from jobs.commit.lineage import ancestors
from jobs.commit.offsets import pointwise_max
from jobs.commit.operations import PublishBranch
from jobs.commit.proposals import Proposal
from jobs.commit.stamps import Stamp
from jobs.errors import FrazilError
from jobs.mirror.changelog_increment import ChangelogIncrement
from jobs.mirror.merge_plan import MergeResult
from jobs.mirror.mirror_stamp import MirrorStamp
from jobs.mirror.session import MirrorSession


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a merge.

    Attributes:
        branch: On which it was made.
        base: Main's head, where the branch began.
        start: The branch's head when the merge began: `base`, or where its rows were deleted.
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
    """Make the merge main's; False if main is not as it was, or the branch is gone.

    Raises:
        FencedError: A later session has been here.
        FrazilError: The branch has something else than the merge left there.
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
        stamp = Stamp(
            session.commits.id,
            "batch",
            newest.batch + 1 if newest else 0,
            session.epoch,
            spec.config_hash,
            start=newest.position if newest and not anew else {},
            position=pointwise_max([result.state.next_offsets, found.positions.get(spec.stream, {})]),
            rows={name: result.counts.upserts + result.counts.deletes},
            mirror=mirror.to_json(),
        )
        if anew:
            stamp = replace(stamp, note="made anew from the changelog")
        return Proposal(True, PublishBranch(attempt.branch, attempt.base, merged), stamp)

    return target.swap(propose, epoch=session.epoch, check=session.verify)
