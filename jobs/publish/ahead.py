"""How far a stream's branch is ahead of main, by metadata alone: what status and maintenance say without a manifest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.commit.branch import branches
from jobs.commit.discards import Discards
from jobs.commit.errors import DamagedPropertyError
from jobs.commit.lineage import ancestors
from jobs.commit.publications import published_through
from jobs.commit.reissue import as_landed
from jobs.commit.stamp_history import written_branch
from jobs.publish.gate import Gate, Held
from jobs.publish.interval import UnpublishableError, branch_begin, landed_snapshots


@dataclass(frozen=True, slots=True)
class BranchAhead:
    """What a branch has that main lacks.

    Attributes:
        snapshots: By which the stream has landed rows there since the last publication.
        rows: That they added.
        since: When the first of them was committed.
        kept_from: When the first snapshot after the publication was, whoever made it; publishing needs all since.
        published: Whether anything was ever published.
        held: What is held at the gate.
        problem: Why nobody can say what is held, if that is so.
        others: Whether rows of other streams stand there since, which publishing has to tell from the stream's own.
    """

    branch: str
    snapshots: int
    rows: int
    since: datetime | None
    kept_from: datetime | None
    published: bool
    held: Held | None
    others: bool = False
    problem: DamagedPropertyError | None = None


def branches_ahead(metadata: TableMetadata, stream: str) -> list[BranchAhead]:
    """How far each branch that a stream has written is ahead of main, the one that it wrote last first.

    Args:
        metadata: The table's own, not as a branch has it.
    """
    written = written_branch(metadata, stream)
    named = [written, *(each for each in branches(metadata) if each != written)] if written else []
    found = [branch_ahead(metadata, stream, each) for each in named]
    return [each for each in found if each is not None and (each.branch == written or each.snapshots)]


def branch_ahead(
    metadata: TableMetadata, stream: str, branch: str | None = None, table: str = ""
) -> BranchAhead | None:
    """How far a branch is ahead of main; None for main, and where nobody can say.

    Args:
        metadata: The table's own, not as a branch has it.
        branch: None: the one that the stream wrote last.
        table: Its name, for errors.
    """
    branch = branch or written_branch(metadata, stream)
    if branch is None or branch == MAIN_BRANCH or branch not in metadata.refs:
        return None
    through = published_through(metadata, stream, branch)
    try:
        after = max(through or 0, branch_begin(metadata, branch))
    except UnpublishableError:
        return None
    along = ancestors(metadata, metadata.refs[branch].snapshot_id)
    new = [each for each in along if (each.sequence_number or 0) > after][::-1]
    landed = landed_snapshots(new, stream)
    own = {each.snapshot_id for each in landed}
    rows = sum(int(each.summary.additional_properties.get("added-records", 0)) for each in landed if each.summary)
    held, problem = None, None
    try:
        held = Gate.standing(metadata, stream, branch, table).held
        Discards.of(metadata.properties, stream, table)
    except DamagedPropertyError as damaged:
        problem = damaged
    return BranchAhead(
        branch,
        len(landed),
        rows,
        _at(as_landed(landed[0]).timestamp_ms) if landed else None,
        _at(new[0].timestamp_ms) if new else None,
        through is not None,
        held,
        any(
            each.snapshot_id not in own and int(each.summary.additional_properties.get("added-data-files", 0))
            for each in new
            if each.summary
        ),
        problem,
    )


def _at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
