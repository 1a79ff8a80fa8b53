"""Publishing: appends what a stream has landed on its branch to main, in one commit, once.

It is no fast-forward, which any compaction or DELETE on main would prevent: the unpublished files become part of main
unchanged. The commit asserts the heads of main and of the branch, and records how far main has the branch. So a kill
before it leaves nothing published, and a kill after it leaves nothing to publish. Of two publishers, one finds main
moved, reads again, and sees that nothing is left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.clients.catalog.catalog import find_table
from jobs.clients.state_store.lease import LeaseHeldError, stream_lease
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.quality.publishing.continuity import (
    Break,
    branch_break,
    break_on_main,
    kept_publication,
    refuse_break,
)
from jobs.quality.publishing.gate import Gate
from jobs.quality.publishing.interval import (
    PUBLISHED_KEY,
    Interval,
    UnpublishableError,
    interval_since,
    left_out_property,
    publication_text,
)
from jobs.streaming.driver.context.completeness import settled_through
from jobs.tables.commit.history.discards import Discards
from jobs.tables.commit.history.publications import (
    THROUGH,
    publication_id,
    publications,
    through,
)
from jobs.tables.commit.protocol.compare_and_swap import Backoff
from jobs.tables.commit.protocol.proposals import Proposal
from jobs.tables.commit.protocol.session import CommitSession
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.accept import signed_answer
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.errors import CommitRefusedError, RolledBackError, table_gone
from jobs.tables.commit.stamp.offsets import describe_ranges
from jobs.tables.commit.stamp.stamp_fields import Counts, Decision
from jobs.tables.commit.stamp.stamps import Stamp

T = TypeVar("T")

RollbackAnswer = Literal["again", "leave-out"]


@dataclass(frozen=True, slots=True)
class Published:
    """Result of a publication.

    Attributes:
        interval: What main lacked of the branch; None if the branch does not exist yet.
        snapshot_id: Main's new head; None if there was nothing to publish.
    """

    interval: Interval | None
    snapshot_id: int | None = None


def unpublished(spec: StreamSpec, table: Table, *, unfinished: bool = False) -> Interval | None:
    """Unpublished snapshots of the stream; None if the branch does not exist yet.

    Args:
        table: The whole table, not seen from a branch.
        unfinished: See `interval_of`.

    Raises:
        RolledBackError: Main was rolled back to before a publication.
        UnpublishableError: Other writers have written to the branch, or snapshots of it have expired.
    """
    past = publications(table, spec.stream)
    if past.rolled_back:
        raise main_rolled_back(spec)
    return interval_of(spec, table, past.newest, unfinished=unfinished)


def publish(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    by: str,
    *,
    backoff: Callable[[], Backoff] = Backoff,
) -> Published:
    """Append to main what the stream has landed on its branch; the stream may go on landing meanwhile.

    Args:
        by: Author.
        backoff: Makes the pauses between the attempts at the commit.

    Raises:
        LeaseHeldError: Another process publishes the stream.
        RolledBackError: Main was rolled back to before a publication.
        UnpublishableError: Other writers have written to the branch, or snapshots of it have expired.
        FrazilError: Snapshots are quarantined, and the stream's file no longer uses write-audit-publish.
    """
    with publishing_session(spec, settings, catalog, backoff) as session:
        target = session.targets[spec.table.name]

        def propose(newest: Stamp | None, metadata: TableMetadata) -> Proposal[Published]:
            found = interval_of(spec, target.table, newest)
            if found is None or not found.files:
                return past_others(session, spec, newest, found, Published(found))
            refuse_held(spec, found, metadata)
            refuse_other_spec(spec, found, metadata)
            step("publish_before_commit")
            append, said = appended(found), {PUBLISHED_KEY: publication_text(found, by)}
            return Proposal(Published(found), append, publication_stamp(session, spec, newest, found), said)

        done = target.swap(propose, epoch=session.epoch, check=session.lease.verify, given_up=partial(given_up, spec))
        if done.interval is None or not done.interval.files:
            return done
        step("publish_after_commit")
        return replace(done, snapshot_id=target.snapshot_id)


def appended(found: Interval) -> Append:
    """Operation that appends unpublished snapshots to main, if the branch's head has not moved."""
    return Append(found.files, beside={found.branch: found.head})


def publication_stamp(session: CommitSession, spec: StreamSpec, newest: Stamp | None, found: Interval) -> Stamp:
    """Stamp of a publication.

    Args:
        newest: Stamp of the last publication.
    """
    counts = Counts(found.rows, found.rows)
    target = session.targets[spec.table.name]
    through_ms = found.valid_through_ms
    if through_ms is not None and (settled := settled_through(spec, target.catalog, target.table.metadata)) is not None:
        through_ms = min(through_ms, settled)
    return Stamp(
        session.id,
        "batch",
        newest.batch + 1 if newest else 0,
        session.epoch,
        spec.config_hash,
        start={THROUGH: found.after},
        position={THROUGH: found.until},
        rows={spec.table.name: found.rows},
        counts=counts,
        totals=(newest.totals if newest else Counts()) + counts,
        published={**(newest.published if newest else {}), found.branch: found.until},
        landed=found.landed or (newest.landed if newest else {}),
        valid_through_ms=through_ms or (newest.valid_through_ms if newest else None),
        event_time=found.event_time,
    )


def past_others(
    session: CommitSession, spec: StreamSpec, newest: Stamp | None, found: Interval | None, answer: T
) -> Proposal[T]:
    """Record on main that the branch's rows are other streams', if it has any and nothing is to be published.

    Their snapshots expire after they are published. A later publication that starts before them could no longer tell
    whose rows those are.
    """
    if found is None or not found.others:
        return Proposal(answer)
    return Proposal(answer, Append(beside={found.branch: found.head}), publication_stamp(session, spec, newest, found))


def answer_rollback(
    spec: StreamSpec, settings: Settings, catalog: Catalog, answer: RollbackAnswer, note: str
) -> Interval | None:
    """Publish again, or leave out, what a rollback of main or a break of the branch has left in question.

    Args:
        note: Author and reason; `continuity` explains what is in question.

    Raises:
        UnpublishableError: Publishing again would duplicate rows, or it is unknown whether it would.
        FrazilError: Nothing is in question, or somebody committed at the same moment.
    """
    with publishing_session(spec, settings, catalog, Backoff) as session:
        target = session.targets[spec.table.name]
        past = target.history()
        newest, branch = past.newest, spec.branch_of(spec.table.name)
        broken = None if past.rolled_back else break_of(spec, target.table, newest)
        if not (past.rolled_back or broken):
            raise FrazilError(
                f"stream {spec.stream}: main of table {spec.table.name} has all that was published.",
                fix=f"frazil publish {spec.stream}",
            )
        if broken is not None:
            stands = broken.leave_out if answer == "leave-out" else broken.begin_again()
            published = {**(newest.published if newest else {}), branch: stands}
        elif answer == "leave-out":
            stands, published = through(newest), newest.published if newest else {}
        else:
            stands, published = kept_publication(spec.stream, branch, target.table, past)
        decision = Decision("rollback_keep" if answer == "leave-out" else "rollback_reland", removed=past.removed)
        newest = newest or Stamp(session.id, "accept", -1, session.epoch, spec.config_hash, start={}, position={})
        decided = replace(newest.decided(decision), start={THROUGH: stands}, position={THROUGH: stands}, landed={})
        left_out = {left_out_property(branch): str(stands)} if answer == "leave-out" else {}
        step("answer_before_commit")
        target.restamp(signed_answer(replace(decided, published=published), session.epoch, note), left_out)
        step("answer_after_commit")
        return interval_of(spec, target.table, target.newest, unfinished=True)


@contextlib.contextmanager
def publishing_session(
    spec: StreamSpec, settings: Settings, catalog: Catalog, backoff: Callable[[], Backoff]
) -> Iterator[CommitSession]:
    """Hold the lease for publishing a stream during the block; its first commit is its claim."""
    refuse_without_branch(spec)
    name, table = publication_id(spec.stream), spec.table.name
    lease = stream_lease(settings, name)
    held = lease.read()
    if held and held.held():
        raise LeaseHeldError(
            f"stream {spec.stream}: it is being published by process {held.pid} on {held.host}.",
            fix=f"wait for it to end, or stop process {held.pid} and run this again",
        )
    try:
        target = Target(catalog, table, name, backoff)
    except NoSuchTableError:
        raise no_table(spec, settings) from None
    session = CommitSession(name, spec.config_hash, lease, {table: target})
    try:
        with session.held():
            yield session
    except RolledBackError:
        raise main_rolled_back(spec) from None


def published_table(spec: StreamSpec, settings: Settings, catalog: Catalog) -> tuple[Table, Stamp | None]:
    """A stream's table, and the stamp of its last publication; nothing is changed.

    Raises:
        RolledBackError: Main was rolled back to before a publication.
        FrazilError: The table does not exist.
    """
    table = find_table(catalog, spec.table.name)
    if table is None:
        raise no_table(spec, settings)
    past = publications(table, spec.stream)
    if past.rolled_back:
        raise main_rolled_back(spec)
    return table, past.newest


def no_table(spec: StreamSpec, settings: Settings) -> FrazilError:
    """Error for a missing table: it was dropped if the stream is known to have written it."""
    stream, table = spec.stream, spec.table.name
    known = stream_lease(settings, stream).read()
    if known is not None and table in known.targets:
        return table_gone(stream, table)
    return FrazilError(
        f"stream {stream}: table {table} does not exist, and nothing is known to have landed in it.",
        fix=f"frazil run {stream}",
    )


def refuse_without_branch(spec: StreamSpec) -> None:
    """Raise unless the stream writes a branch beside main, in its only table of rows.

    Raises:
        FrazilError: It does not.
    """
    if spec.route is not None:
        raise FrazilError(
            f"stream {spec.stream} has a route: what is on branches of several tables is not published together.",
            fix="bring each branch to main in Spark: CALL system.fast_forward('TABLE', 'main', 'BRANCH')",
        )
    if spec.branch_of(spec.table.name) == MAIN_BRANCH:
        raise FrazilError(
            f"stream {spec.stream} writes to {MAIN_BRANCH} of table {spec.table.name}: there is nothing to publish.",
            fix=f"table: {{branch: ingest}} in streams/{spec.stream}.yaml, for rows that are published later",
        )


def interval_of(
    spec: StreamSpec, table: Table, newest: Stamp | None, until: int | None = None, *, unfinished: bool = False
) -> Interval | None:
    """Unpublished snapshots of the stream since a publication; None if the branch does not exist yet.

    Args:
        table: The whole table, not seen from a branch.
        newest: Stamp of the publication.
        until: Last sequence number to include; None: the branch's head.
        unfinished: Whether an unfinished discard is allowed; its rows are left out as well.

    Raises:
        FrazilError: A discard is unfinished.
    """
    branch, metadata = spec.branch_of(spec.table.name), table.metadata
    discards = Discards.of(metadata.properties, spec.stream, spec.table.name)
    if not unfinished:
        discards.refuse_unfinished()
    refuse_break(branch_break(metadata, spec.stream, branch, newest))
    found = interval_since(metadata, table.io, spec.stream, branch, through(newest), until, without=discards.on(branch))
    refuse_break(break_on_main(metadata, spec.stream, found, newest))
    return found


def break_of(spec: StreamSpec, table: Table, newest: Stamp | None) -> Break | None:
    """Break that prevents publishing a branch from where main has it; None without one."""
    branch, metadata, stream = spec.branch_of(spec.table.name), table.metadata, spec.stream
    if broken := branch_break(metadata, stream, branch, newest):
        return broken
    without = Discards.of(metadata.properties, stream, spec.table.name).on(branch)
    found = interval_since(metadata, table.io, stream, branch, through(newest), without=without)
    return break_on_main(metadata, stream, found, newest)


def refuse_held(spec: StreamSpec, found: Interval, metadata: TableMetadata) -> None:
    """Raise for snapshots quarantined earlier, if the file no longer uses write-audit-publish: nobody has decided yet.

    Args:
        spec: The stream, without write-audit-publish.
        found: Snapshots to publish.
        metadata: The table's whole metadata, not seen from a branch.

    Raises:
        FrazilError: They are quarantined.
    """
    held = Gate.standing(metadata, spec.stream, found.branch, spec.table.name).held
    if held is None or held.until <= found.after:
        return
    stream = spec.stream
    raise FrazilError(
        f"stream {stream}: {held.rows:,} rows of branch {found.branch} of table {spec.table.name} "
        f"({describe_ranges(held.ranges)}) are quarantined ({'; '.join(held.reasons[:2])}), and the file has no "
        "`publish` any more. Nothing was published.",
        fix=f"put `publish` back into streams/{stream}.yaml, then `frazil release {stream} --reason TEXT` to publish "
        f"them as they are or `frazil discard {stream} --reason TEXT` to go on without them; after that take it out",
    )


def refuse_other_spec(spec: StreamSpec, found: Interval, metadata: TableMetadata) -> None:
    """Raise unless all files have the table's present partition spec, as one commit requires."""
    former = sum(each.spec_id != metadata.default_spec_id for each in found.files)
    if former:
        raise UnpublishableError(
            f"stream {spec.stream}: {former:,} of {len(found.files):,} data files on branch {found.branch} "
            f"({describe_ranges(found.ranges)}) were written before the partitioning of table {spec.table.name} was "
            "changed, and main takes none of those.",
            fix=f"set the former partitioning again (in Spark: ALTER TABLE … ADD or DROP PARTITION FIELD), `frazil "
            f"publish {spec.stream}`, then change it",
        )


def main_rolled_back(spec: StreamSpec) -> RolledBackError:
    """Error for a main that lacks a publication."""
    return RolledBackError(
        f"stream {spec.stream}: main of table {spec.table.name} was rolled back to before its last publication, or "
        "replaced. Nothing was published.",
        fix=f"`frazil publish {spec.stream} --after-rollback again` to publish what was taken out, or `frazil publish "
        f"{spec.stream} --after-rollback leave-out` to go on without it; each with --reason TEXT",
    )


def given_up(spec: StreamSpec, said: str) -> FrazilError:
    """Error after too many refusals."""
    return CommitRefusedError(
        f"stream {spec.stream}: nothing was published: {said}",
        fix=f"frazil publish {spec.stream}, once fewer others commit to {spec.table.name}",
    )
