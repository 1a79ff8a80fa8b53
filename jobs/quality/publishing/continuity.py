"""Continuity of a branch with its publications: whether it still continues what main is recorded to have of it.

A sequence number records how far main has a branch. It proves nothing after the branch was moved back behind it, after
another branch was published in between, or after the stream has landed on main itself. Then rows would be duplicated or
skipped, so nothing is published until somebody has decided what main lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import msgspec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from jobs.quality.publishing.interval import (
    PUBLISHED_KEY,
    Interval,
    UnpublishableError,
    branch_begin,
    landed_snapshots,
)
from jobs.tables.commit.history.branch import branches, seen_on
from jobs.tables.commit.history.lineage import ancestors, expired_ancestors, older_versions
from jobs.tables.commit.history.publications import branch_through, through
from jobs.tables.commit.history.reissue import last_remade
from jobs.tables.commit.history.stamp_history import History, stamps_along_main
from jobs.tables.commit.stamp.offsets import describe_ranges
from jobs.tables.commit.stamp.stamps import PUBLISH_PART, SUMMARY_KEY, Stamp


@dataclass(frozen=True, slots=True)
class Break:
    """Reason why a branch cannot be published from where main has it, and where it can go on after a decision.

    Attributes:
        why: Reason, a sentence.
        leave_out: Sequence number from which it goes on without the rows in question.
        again: Sequence number from which everything is published; None if that would duplicate rows.
    """

    stream: str
    why: str
    leave_out: int
    again: int | None

    def error(self) -> UnpublishableError:
        """Error with the commands that resolve the break."""
        again = f"`frazil publish {self.stream} --after-rollback again` to publish it if main lacks it; or "
        return UnpublishableError(
            f"stream {self.stream}: {self.why} Nothing was published.",
            fix=("" if self.again is None else again)
            + f"`frazil publish {self.stream} --after-rollback leave-out` to go on without it, and copy by hand what "
            "main lacks; with --reason TEXT",
        )

    def begin_again(self) -> int:
        """Sequence number from which everything is published.

        Raises:
            UnpublishableError: That would duplicate rows.
        """
        if self.again is None:
            raise self.error()
        return self.again


def refuse_break(found: Break | None) -> None:
    """Raise the error of a break, if there is one.

    Raises:
        UnpublishableError: There is a break.
    """
    if found is not None:
        raise found.error()


def branch_break(metadata: TableMetadata, stream: str, branch: str, newest: Stamp | None) -> Break | None:
    """Break of a branch that was moved back behind its publication, or has rows that another branch's went past.

    Args:
        metadata: The table's whole metadata, not seen from a branch.
        newest: Stamp of the last publication.
    """
    if newest is None or branch not in metadata.refs:
        return None
    newest = _with_branch(metadata, newest)
    along = list(ancestors(metadata, metadata.refs[branch].snapshot_id))
    own, last = branch_through(newest, branch), through(newest)
    begin = branch_begin(metadata, branch)
    numbers = [each.sequence_number or 0 for each in along]
    if not numbers:
        return None
    if begin < own and own not in numbers and numbers[-1] < own:
        return Break(
            stream,
            f"branch {branch} does not have the snapshot through which it was published (sequence number {own}): it "
            "was moved back behind that, or made again. What was landed on it since may be in main already.",
            leave_out=numbers[0],
            again=next(each for each in numbers if each < own),
        )
    if moved := _behind_remake(metadata, stream, branch, max(own, begin), numbers):
        return moved
    if own >= last:
        return None
    covered = _covered(metadata, newest, branch)
    between = [each for each in along if max(own, begin) < (each.sequence_number or 0) <= last]
    passed = [each for each in landed_snapshots(between, stream) if each.snapshot_id not in covered]
    if not passed:
        return None
    before = [each.sequence_number or 0 for each in between if each.snapshot_id in covered]
    return Break(
        stream,
        f"{len(passed):,} of its snapshots on branch {branch}, the newest {passed[0].snapshot_id}, are older than the "
        "last publication, which was of another branch, and nobody can say whether main has their records.",
        leave_out=between[0].sequence_number or 0,
        again=max([own, begin, *before]),
    )


def _with_branch(metadata: TableMetadata, newest: Stamp) -> Stamp:
    """A publication's stamp with its branch, which a stamp of an earlier version lacks.

    The publication's snapshot has it. If that has expired, it is the only branch with the commit through which it was
    published. If neither shows it, the requested branch is assumed.
    """
    number = through(newest)
    if newest.published or not number:
        return newest
    for snapshot in ancestors(metadata):
        text = snapshot.summary.additional_properties.get(PUBLISHED_KEY) if snapshot.summary else None
        if text and (snapshot.sequence_number or 0) == newest.sequence:
            return replace(newest, published={msgspec.json.decode(text)["branch"]: number})
    having = [
        each
        for each in branches(metadata)
        if each != MAIN_BRANCH
        and any((one.sequence_number or 0) == number for one in ancestors(metadata, metadata.refs[each].snapshot_id))
    ]
    return replace(newest, published={having[0]: number}) if len(having) == 1 else newest


def _behind_remake(metadata: TableMetadata, stream: str, branch: str, own: int, numbers: Sequence[int]) -> Break | None:
    """Break of a branch that stands where it was before its rebase, or on nothing that it got then.

    Args:
        own: Sequence number through which the branch has nothing that main lacks.
        numbers: Sequence numbers of the branch's existing snapshots, newest first.
    """
    remade = last_remade(metadata, branch)
    if remade is None or own >= remade.last or remade.last in numbers or numbers[-1] > remade.last:
        return None
    return Break(
        stream,
        f"branch {branch} does not have the snapshots of its rebase (sequence numbers {remade.first} to "
        f"{remade.last}): it was moved back to an earlier one.",
        leave_out=max(numbers[0], remade.last),
        again=None,
    )


def _covered(metadata: TableMetadata, newest: Stamp, branch: str) -> set[int]:
    """Snapshots that main has, or that were published from other branches."""
    found = {each.snapshot_id for each in ancestors(metadata)}
    for other, number in newest.published.items():
        if other != branch and other in metadata.refs:
            along = ancestors(metadata, metadata.refs[other].snapshot_id)
            found |= {each.snapshot_id for each in along if (each.sequence_number or 0) <= number}
    return found


def landed_on_main(metadata: TableMetadata, stream: str, found: Interval) -> Break | None:
    """Break if the stream itself has landed records of the unpublished snapshots on main meanwhile."""
    for snapshot_id, stamp in stamps_along_main(metadata, stream, found.after):
        if stamp.kind != "batch" or stamp.branch:
            continue
        both = {
            partition: range_
            for partition, range_ in found.ranges.items()
            if stamp.start.get(partition, 0) < range_.end and range_.start < stamp.position.get(partition, 0)
        }
        if both:
            return Break(
                stream,
                f"it has landed records of what branch {found.branch} has ({describe_ranges(both)}) on {MAIN_BRANCH} "
                f"itself, with snapshot {snapshot_id}: they would be there twice.",
                leave_out=found.until,
                again=None,
            )
    return None


def kept_publication(stream: str, branch: str, table: Table, past: History) -> tuple[int, dict[str, int]]:
    """How far main has the branch after a rollback: by the newest publication that it still has.

    If that has expired, older versions of the metadata may have it.

    Args:
        table: The whole table, not seen from a branch.
        past: History of the publications.

    Returns:
        The sequence number, and sequence numbers by branch.

    Raises:
        UnpublishableError: It is unknown which publications main still has.
        OSError: Older versions of the metadata are needed, and the storage does not answer.
    """
    metadata, stamp = table.metadata, past.stamped_ancestor
    along = list(ancestors(metadata))
    _refuse_before_remake(metadata, stream, branch, along)
    if stamp is None and along:
        begin = branch_begin(metadata, branch) if branch in metadata.refs else 0
        never_before = past.newest is not None and not past.newest.decision and _began(past.newest) <= begin
        for each in () if never_before else chain(along, expired_ancestors(along[-1], older_versions(table))):
            if each is None or (each.sequence_number or 0) <= begin:
                never_before = True
                break
            text = each.summary.additional_properties.get(SUMMARY_KEY) if each.summary else None
            if text and (said := Stamp.from_json(text)).stream == stream + PUBLISH_PART:
                stamp = said
                break
        if stamp is None and not never_before:
            raise UnpublishableError(
                f"stream {stream}: main has had several publications of branch {branch}, and the snapshots that say "
                "which of them it still has after the rollback have expired. Nothing was decided.",
                fix=f"`frazil publish {stream} --after-rollback leave-out` with --reason TEXT, and copy by hand what "
                "main lacks",
            )
    return through(stamp), dict(stamp.published) if stamp else {}


def _refuse_before_remake(metadata: TableMetadata, stream: str, branch: str, along: Sequence[Snapshot]) -> None:
    """Raise unless main has the snapshot onto which the branch was rebased: earlier ones of the branch are main's.

    Raises:
        UnpublishableError: Main lacks it, so what was taken out of main cannot be determined.
    """
    remade = last_remade(metadata, branch)
    if remade is None or not along or branch not in metadata.refs or branch_begin(metadata, branch) >= remade.last:
        return
    there = any(each.snapshot_id == remade.base for each in along)
    if there or (
        metadata.snapshot_by_id(remade.base) is None and (along[0].sequence_number or 0) > remade.base_sequence
    ):
        return
    raise UnpublishableError(
        f"stream {stream}: main was moved back to before snapshot {remade.base}, onto which branch {branch} was "
        "rebased. The branch has the earlier publications only as main had them, so they cannot be published again. "
        "Nothing was decided.",
        fix=f"in Spark: CALL system.set_current_snapshot('<table>', {remade.base}), which brings it back; or `frazil "
        f"publish {stream} --after-rollback leave-out` with --reason TEXT, and copy by hand what main lacks",
    )


def _began(stamp: Stamp) -> int:
    return min(stamp.start.values(), default=0)


_OF_ROLLBACKS = ("rollback_keep", "rollback_reland")


def break_on_main(metadata: TableMetadata, stream: str, found: Interval | None, newest: Stamp | None) -> Break | None:
    """Break if main has, or may have, records of the unpublished snapshots by the stream's own commits."""
    if found is None:
        return None
    return landed_on_main(metadata, stream, found) or unseen_main(metadata, stream, found, newest)


def unseen_main(metadata: TableMetadata, stream: str, found: Interval, newest: Stamp | None) -> Break | None:
    """Break if main may have records of the unpublished snapshots by commits of the stream that have expired.

    A stream that returns to its branch from another one was asked, and its answer is on the branch. Stamps on main
    would show what it landed there meanwhile. If some of main's later snapshots have expired, nobody knows.

    Args:
        metadata: The table's whole metadata, not seen from a branch.
        found: Snapshots to publish.
        newest: Stamp of the last publication, which may be an answer to this.
    """
    since = max(found.after, newest.sequence if newest else 0)
    answers = [
        stamp
        for _, stamp in stamps_along_main(seen_on(metadata, found.branch), stream, since)
        if stamp.kind == "accept" and stamp.decision is not None and stamp.decision.answer in _OF_ROLLBACKS
    ]
    oldest = next(reversed(list(ancestors(metadata))), None)
    if not answers or not found.files or oldest is None or (oldest.sequence_number or 0) <= found.after:
        return None
    return Break(
        stream,
        f"it was moved to branch {found.branch}, or back on it, with the answer to a rollback ({answers[0].note}), and "
        f"snapshots of {MAIN_BRANCH} since it had all of {found.branch} have expired: nobody can say whether the "
        f"stream has landed records of what {found.branch} has on {MAIN_BRANCH} itself meanwhile.",
        leave_out=found.until,
        again=found.after,
    )
