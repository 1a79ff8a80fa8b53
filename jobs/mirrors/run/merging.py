"""Merge of new changes on a branch of the mirror, published by compare-and-swap.

Each attempt has its own branch, which begins at main's head. So no reader of main sees half a merge, and no other
process merges into the same branch. The commit that publishes it asserts both heads. A process that is killed before
has published nothing. If two processes merge at once, one of them finds that main has moved, drops its branch and
starts again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from jobs.mirrors.merge.mirror_table import (
    KEY_COLUMN,
    mirror_columns_operation,
    mirror_fitting,
    mirror_key,
    mirror_schema,
    refuse_unfit,
    row_columns,
)
from jobs.mirrors.model import changed_topics
from jobs.mirrors.model.changelog_increment import ChangelogIncrement, changelog_increment, refuse_incomplete
from jobs.mirrors.model.errors import WaitingRowsError
from jobs.mirrors.model.merge_plan import MergePlan, MergeResult, MirrorState
from jobs.mirrors.model.mirror_stamp import (
    MirrorStamp,
    answers_alone,
    attempt_branch,
    former_stamp,
    mirrored,
    refuse_other_rows,
    state_to_begin_with,
)
from jobs.mirrors.model.session import MirrorSession
from jobs.mirrors.run.publication import Attempt, publish_merge, stamp_is_due
from jobs.records.schema.schema_change import SchemaChange
from jobs.tables.commit.protocol.proposals import Proposal
from jobs.tables.commit.recovery.accept import signed_answer
from jobs.tables.commit.stamp.errors import CommitRefusedError
from jobs.tables.commit.stamp.stamp_fields import Decision
from jobs.tables.commit.stamp.stamps import Stamp

log = logging.getLogger(__name__)

ATTEMPTS = 10


class Merger(Protocol):
    """Implementation of merges into a branch of a mirror: this process, Spark, or a test's stand-in."""

    def merge(
        self, changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
    ) -> MergeResult:
        """Merge the changes of files into a branch, in commits that follow each other."""
        ...

    def clear(self, mirror: Table, branch: str) -> None:
        """Delete all rows of a branch."""
        ...


@dataclass(frozen=True, slots=True)
class Merged:
    """Result of a published merge.

    Attributes:
        snapshot_id: Main's new head; None if there was nothing to merge.
        increment: Files that the mirror lacked.
        result: Result of the merge; None if there was nothing to merge.
        stamp: Present stamp of the mirror; None if nothing was ever merged.
        attempts: Number of attempts.
    """

    snapshot_id: int | None
    increment: ChangelogIncrement
    result: MergeResult | None = None
    stamp: MirrorStamp | None = None
    attempts: int = 0


How = Literal["on", "anew", "incomplete"]
"""Whether a merge continues the mirror (`on`) or rebuilds it (`anew`), even from an incomplete changelog."""


def merge_new(
    session: MirrorSession, merger: Merger, letters: Callable[[], int] = lambda: 0, *, how: How = "on"
) -> Merged:
    """Merge new changes of the changelog into the mirror, and publish them.

    Args:
        session: Open session on the mirror.
        merger: Merges on a branch.
        letters: Counts the stream's dead letters that have not been replayed; called before the changelog is read.
        how: `anew` rebuilds the mirror from the whole changelog, `incomplete` even if changes of it have expired.

    Raises:
        ExpiredChangesError: The mirror is to be built from the whole changelog, and changes have expired.
        WaitingRowsError: The mirror lacks values for which an earlier release waited.
        MissedChangesError: Changes have expired that the mirror has not merged.
        StaleExpiryError: The changelog's position is before its expired changes.
        AnotherLogError: A topic of the changelog was recreated or cut.
        AddedPartitionsError: A topic of the changelog got partitions, and only offsets order its changes.
        ChangelogMovedError: The changelog was rolled back to before the mirror's position.
        RolledBackError: The mirror was rolled back to before its last merge.
        FencedError: Another process has claimed the mirror.
        CommitRefusedError: Others committed to the mirror at each attempt.
        FrazilError: The mirror's table cannot take the changelog's columns, or the changes cannot be ordered.
    """
    spec, mirror, target = session.spec, session.mirror, session.target
    anew = how != "on"
    for attempt in range(1, ATTEMPTS + 1):
        pending = letters()
        changelog = load_changelog(target.catalog, spec)
        newest = None if anew else session.read()
        known = None if anew else mirrored(newest, spec.stream, mirror.table)
        found = changelog_increment(changelog.metadata, changelog.io, spec.stream, mirror.table, known)
        # A rebuild merges the same changes again, and only the mirror's stamp has some of the operators' answers.
        former = known or former_stamp(target.history().newest, changelog)
        changed_topics.refuse_recreated_topics(spec, mirror, changelog, former, found.files)
        if anew and found.why:
            found = replace(found, why="it is rebuilt")
        if found.until is None:
            return Merged(None, found, None, known)
        if known is not None and known.state.waiting:
            raise WaitingRowsError(spec.stream, mirror.table, len(known.state.waiting))
        position = found.positions.get(spec.stream, {})
        changed_topics.refuse_missed(spec, mirror, changelog, known, position)
        if former is not None:
            changed_topics.refuse_added_partitions(spec, mirror, former, position)
        if known is None and how != "incomplete":
            changed_topics.refuse_expired(spec, mirror, changelog)
        key = mirror_key(spec, mirror, changelog.schema())
        if not anew:
            refuse_other_rows(spec, mirror, known, key)
        # If a stamp is due, an empty merge records that the mirror has all changes of the changelog's head.
        if known is not None and not found.files and not stamp_is_due(known, found, changelog.metadata):
            return Merged(None, found, None, known)
        if found.why and not anew:
            refuse_incomplete(spec, mirror, changelog)
        if anew:
            # Only after all refusals: they leave a rolled-back mirror unchanged, so that it can be restored.
            newest = _newest_of_any(session)
        evolve(session, changelog)
        session.claim(newest)
        if target.newest is not None and target.newest.mirror != (newest.mirror if newest is not None else {}):
            # A process whose lease this one does not see has merged since. After the claim nobody else can.
            log.info("mirror %s: another process has merged before it was claimed; it is merged again", mirror.table)
            continue
        base = target.snapshot_id
        assert base is not None, "it is claimed"
        session.attempts += 1
        branch = attempt_branch(session.epoch, session.attempts, uuid.uuid4().hex[:8])
        session.begin_branch(branch, base)
        step("mirror_before_merge")
        try:
            start = base
            if anew:
                merger.clear(target.catalog.load_table(mirror.table), branch)
                start = session.branch_head(branch)
            state = known.state if known else state_to_begin_with(newest)
            plan = merge_plan(spec, mirror, changelog, key, state, found.until.snapshot_id)
            # Changes below the expired offsets do not count, even if a file still has them: the deletion of a row may
            # have expired while an earlier change is left.
            plan = replace(plan, incomplete=how == "incomplete")
            result = merger.merge(changelog, found.files, target.catalog.load_table(mirror.table), branch, plan)
            step("mirror_after_merge")
            # If the whole changelog was read, most of these changes are in the mirror already.
            too_late = 0 if found.why else result.counts.too_late
            _log_left_out(spec, mirror, too_late, result.counts.unresolved)
            stamp = MirrorStamp(
                str(changelog.metadata.table_uuid),
                found.until.snapshot_id,
                found.until.sequence_number or 0,
                found.until.timestamp_ms,
                key,
                mirror.deletes,
                mirror.where,
                pending,
                result.state,
                found.positions,
                known.others if known else (),
                (known.too_late if known else 0) + too_late,
                (known.unresolved if known else 0) + result.counts.unresolved,
            )
            done = publish_merge(session, Attempt(branch, base, start), found, result, stamp, anew=anew)
        except Exception:
            _drop(session, branch)
            # A later session removes this branch, and the merge then fails in many ways. A fenced session says so.
            target.refuse_later_claim(session.epoch)
            raise
        if done:
            step("mirror_after_publish")
            return (
                Merged(target.snapshot_id, found, result, stamp, attempt)
                if found.files
                else Merged(None, found, None, stamp)
            )
        log.info("mirror %s: main moved during attempt %s; it is merged again", mirror.table, branch)
        _drop(session, branch)
    raise CommitRefusedError(
        f"stream {spec.stream}: others have committed to mirror {mirror.table} each of {ATTEMPTS} times while a merge "
        "was made. Nothing was published.",
        fix=f"let them finish, then frazil mirror run {spec.stream}",
    )


def load_changelog(catalog: Catalog, spec: StreamSpec) -> Table:
    """Load the stream's changelog.

    Raises:
        FrazilError: The changelog does not exist yet, or the stream writes it on a branch.
    """
    if (branch := spec.branch_of(spec.table.name)) != MAIN_BRANCH:
        raise FrazilError(
            f"stream {spec.stream}: changelog {spec.table.name} is on branch {branch}, and mirrors are made from main.",
            fix=f"take the branch out of streams/{spec.stream}.yaml, or the mirrors",
        )
    try:
        return catalog.load_table(spec.table.name)
    except NoSuchTableError:
        raise FrazilError(
            f"stream {spec.stream}: changelog {spec.table.name} does not exist yet.", fix=f"frazil run {spec.stream}"
        ) from None


def evolve(session: MirrorSession, changelog: Table) -> None:
    """Add the changelog's new columns to the mirror, in one commit that asserts its head.

    Raises:
        FrazilError: The mirror cannot take a column.
    """
    spec, mirror = session.spec, session.mirror
    wanted = mirror_schema(spec, mirror, changelog.schema())

    def propose(newest: Stamp | None, metadata: TableMetadata) -> Proposal[tuple[SchemaChange, ...]]:
        fit = mirror_fitting(wanted, metadata)
        refuse_unfit(spec, mirror, fit, metadata)
        if not fit.changes:
            return Proposal(())
        return Proposal(fit.changes, mirror_columns_operation(spec, metadata, fit.changes, session.epoch))

    changes = session.target.swap(propose, epoch=session.epoch, known=True, check=session.verify)
    if changes:
        log.info("mirror %s follows its changelog: %s", mirror.table, "; ".join(map(str, changes)))


def _newest_of_any(session: MirrorSession) -> Stamp | None:
    """Return the newest stamp of a mirror to rebuild; if the mirror was rolled back, that is answered first."""
    past = session.target.history()
    session.refuse_twin(past.newest)
    if past.rolled_back and past.newest is not None:
        # The new stamp describes no rows, so that any other merge would read the whole changelog.
        kept = answers_alone(state_to_begin_with(past.newest))
        answer = replace(past.newest.decided(Decision("rollback_reland", removed=past.removed)), mirror=kept)
        session.target.restamp(signed_answer(answer, session.epoch, "it is rebuilt from its changelog"))
        session.claimed = True
        return session.target.newest
    return past.newest


def merge_plan(
    spec: StreamSpec, mirror: Mirror, changelog: Table, key: tuple[str, ...], state: MirrorState, until: int
) -> MergePlan:
    """Return the plan of a merge, from the stream's file, the mirror's stamp and its changelog.

    Args:
        key: Key columns of the mirror.
        state: State in the mirror's newest stamp.
        until: Snapshot of the changelog to merge.
    """
    ordered_by_row = spec.changes is not None and bool(spec.changes.order_by)
    keyed = KEY_COLUMN in {field.name for field in changelog.schema().fields}
    return MergePlan(
        spec.stream,
        key,
        row_columns(spec, changelog.schema()),
        state,
        until,
        mirror.deletes,
        mirror.where,
        # Columns of rows may be versions, which cannot be compared between rows.
        scope="key" if spec.changes is not None and spec.changes.envelope == "columns" else "source",
        scattered=not keyed and not ordered_by_row,
        coordinates=spec.kafka_columns.coordinates,
        timestamp=spec.kafka_columns.instant_coordinates[3],
        begins=changed_topics.expired_offsets(spec, changelog),
    )


def _log_left_out(spec: StreamSpec, mirror: Mirror, too_late: int, unresolved: int) -> None:
    if too_late:
        log.warning(
            "mirror %s: %d changes came too late, from before changes that have expired; they are left out: %s",
            mirror.table, too_late, f"frazil mirror check {spec.stream}",
        )  # fmt: skip
    if unresolved:
        log.warning(
            "mirror %s: %d values were not sent, and no change in the changelog has them for sure: they are null, or "
            "as they were before the key changed: frazil mirror status %s",
            mirror.table, unresolved, spec.stream,
        )  # fmt: skip


def _drop(session: MirrorSession, branch: str) -> None:
    """Remove the branch of an unpublished attempt; if that fails, the next session removes it."""
    try:
        session.drop_branches(lambda _: [branch])
    except Exception as problem:
        log.warning("branch %s of mirror %s stays until the next merge: %s", branch, session.mirror.table, problem)
