"""Freshness of main for a write-audit-publish stream: through when its readers have records, by metadata only.

Readers do not see what a stream has landed on its branch. So such a stream is as fresh as its newest publication, and
the branch's own times are reported beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.base.errors import FrazilError
from jobs.quality.publishing.gate import Gate, Held, answers_to_held
from jobs.quality.publishing.interval import UnpublishableError, branch_begin, landed_snapshots
from jobs.tables.commit.history.branch import branches, seen_on
from jobs.tables.commit.history.discards import Discards
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.publications import branch_through, publication_id, published_through
from jobs.tables.commit.history.reissue import as_landed
from jobs.tables.commit.history.stamp_history import history, stamps_along_main, written_branch
from jobs.tables.commit.stamp.errors import DamagedPropertyError
from jobs.tables.commit.stamp.event_times import EventTimes
from jobs.tables.commit.stamp.stamps import SUMMARY_KEY, Stamp

# It is stored in the cursor of a sensor.
MOST_TEXT = 400


class MainFreshness(msgspec.Struct, frozen=True, omit_defaults=True):
    """What main lacks of a stream's branch, and through when main is therefore complete.

    Attributes:
        lacks: Whether main lacks records of the stream's topics that the branch has. If it does not, main is complete
            through whatever the branch is complete through.
        rows: Number of rows landed by the stream, its replays and its imported queues that main lacks; None if unknown.
        through_ms: Where main lacks some: every record with an older timestamp is in main; milliseconds since 1970,
            None if nobody can say.
        watermark_ms: Likewise, the watermark as it was before the first batch that main lacks.
        snapshot_id: Main's snapshot of the newest publication that brought rows; None if there is none, or none left.
        held: Why nothing is published until a person acts: the rows are quarantined, or it is unknown whether they
            are. Empty if nothing prevents the next publication.
        held_fix: The next command if `held` is not empty.
    """

    lacks: bool = False
    rows: int | None = 0
    through_ms: int | None = None
    watermark_ms: int | None = None
    snapshot_id: int | None = None
    held: str = ""
    held_fix: str = ""

    def through(self, landed: float | None) -> float | None:
        """Time through which main is complete; seconds since 1970.

        Args:
            landed: The same of the branch.
        """
        return _bounded(landed, self.through_ms) if self.lacks else landed

    def watermark(self, landed: float | None) -> float | None:
        """Event time before which main expects no more records; seconds since 1970.

        Args:
            landed: The branch's watermark.
        """
        return _bounded(landed, self.watermark_ms) if self.lacks else landed


UNKNOWN = MainFreshness(lacks=True, rows=None)
"""Used if it is unknown what main has of the branch."""


def _bounded(landed: float | None, main_ms: int | None) -> float | None:
    if main_ms is None:
        return None
    return main_ms / 1000 if landed is None else min(landed, main_ms / 1000)


def main_freshness(metadata: TableMetadata, stream: str, branch: str) -> MainFreshness | None:
    """What main lacks of a stream's branch; None for main, and before the branch exists.

    Args:
        metadata: The table's whole metadata, not seen from a branch.
    """
    if branch == MAIN_BRANCH or branch not in metadata.refs:
        return None
    found, why, fix = UNKNOWN, "", None
    try:
        found = _freshness(metadata, stream, branch)
        if (held := Gate.standing(metadata, stream, branch).held) is not None:
            why, fix = held.sentence, answers_to_held(stream)
    except FrazilError as problem:
        why, fix = problem.message, problem.fix or f"frazil publish {stream} --dry-run"
    return msgspec.structs.replace(found, held=why[:MOST_TEXT], held_fix=(fix or "")[:MOST_TEXT])


def _freshness(metadata: TableMetadata, stream: str, branch: str) -> MainFreshness:
    past = history(metadata, publication_id(stream))
    # After a rollback of main, the publication that it still has counts.
    stands = past.stamped_ancestor if past.rolled_back else past.newest
    after = max(branch_through(stands, branch), branch_begin(metadata, branch))
    along = ancestors(metadata, metadata.refs[branch].snapshot_id)
    landed = landed_snapshots([each for each in along if (each.sequence_number or 0) > after][::-1], stream)
    stamps = [Stamp.from_json(each.summary.additional_properties[SUMMARY_KEY]) for each in landed if each.summary]
    rows = sum(int(each.summary.additional_properties.get("added-records", 0)) for each in landed if each.summary)
    brought = _brought(metadata, stream)
    first = next((each for each in stamps if each.stream == stream and each.kind == "batch"), None)
    if first is None:
        return MainFreshness(rows=rows, snapshot_id=brought)
    before = (
        each.valid_through_ms
        for _, each in stamps_along_main(seen_on(metadata, branch), stream)
        if each.sequence < first.sequence
    )
    times = [each for each in (next(before, None), first.before_ms) if each is not None]
    return MainFreshness(
        lacks=True,
        rows=rows,
        through_ms=max(times, default=None),
        watermark_ms=first.event_time.bound_ms if first.event_time else None,
        snapshot_id=brought,
    )


def published_times(landed: EventTimes | None, main: MainFreshness | None) -> EventTimes | None:
    """Event times of the watermark up to which main is complete; None without any.

    Args:
        landed: The same of the branch.
        main: What main lacks.
    """
    if landed is None or main is None or not main.lacks:
        return landed
    marks = [each for each in (landed.watermark_ms, main.watermark_ms) if each is not None]
    return replace(landed, watermark_ms=min(marks)) if len(marks) == 2 else None


def _brought(metadata: TableMetadata, stream: str) -> int | None:
    stamps = stamps_along_main(metadata, publication_id(stream))
    return next((snapshot_id for snapshot_id, each in stamps if each.kind == "batch" and each.counts.landed), None)


@dataclass(frozen=True, slots=True)
class BranchAhead:
    """What a branch has that main lacks.

    Attributes:
        snapshots: Number of snapshots with rows of the stream since the last publication.
        rows: Number of rows that they added.
        since: Commit time of the first of them.
        kept_from: Commit time of the first snapshot after the publication, by any writer; publishing needs all since.
        published: Whether anything was ever published.
        held: Quarantined snapshots.
        problem: Reason why the quarantine is unknown, if it is.
        others: Whether rows of other streams have landed there since, which publishing has to separate.
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
    """How far each branch that a stream has written is ahead of main; the last written one first.

    Args:
        metadata: The table's whole metadata, not seen from a branch.
    """
    written = written_branch(metadata, stream)
    named = [written, *(each for each in branches(metadata) if each != written)] if written else []
    found = [branch_ahead(metadata, stream, each) for each in named]
    return [each for each in found if each is not None and (each.branch == written or each.snapshots)]


def branch_ahead(
    metadata: TableMetadata, stream: str, branch: str | None = None, table: str = ""
) -> BranchAhead | None:
    """How far a branch is ahead of main; None for main, and if unknown.

    Args:
        metadata: The table's whole metadata, not seen from a branch.
        branch: Branch; None: the one that the stream wrote last.
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
