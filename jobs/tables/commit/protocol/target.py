"""Target of a stream, a table of rows or of dead letters: reads its stamps, claims it and commits to it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from types import MappingProxyType
from typing import TypeVar

import msgspec
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.records.schema.decoded_columns import decoded_digest, whole_property
from jobs.records.schema.name_matching import NAME_MAPPING
from jobs.tables.commit.history import stamp_history
from jobs.tables.commit.history.branch import on_branch
from jobs.tables.commit.history.other_logs import other_logs_property
from jobs.tables.commit.protocol import proposals
from jobs.tables.commit.protocol.compare_and_swap import Backoff, compare_and_swap
from jobs.tables.commit.protocol.proposals import Proposal, ProposalOutcome, Propose, Seen
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.protocol.refusals import permitted
from jobs.tables.commit.recovery.rollback import restored, rolled_back
from jobs.tables.commit.schema.operations import (
    Append,
    Operation,
    PublishBranch,
    RemakeBranch,
    ReplaceFiles,
)
from jobs.tables.commit.stamp.errors import (
    CommitRefusedError,
    FencedError,
    HeadMovedError,
    RolledBackError,
    table_gone,
    table_recreated,
)
from jobs.tables.commit.stamp.offsets import OffsetRange, Positions, Ranges
from jobs.tables.commit.stamp.stamps import (
    SUMMARY_KEY,
    Stamp,
    property_key,
    sequences_key,
)
from jobs.tables.commit.stamp.target_directory import TargetDirectory, directory_key, used_places
from jobs.tables.write.file_access import KeyAge, keys_of
from jobs.tables.write.renewed_file_io import RenewedFileIO

log = logging.getLogger(__name__)

# How long a catalog may answer with older metadata than before, seconds.
STALE_SECONDS = 5.0

NO_SUMMARY: Mapping[str, str] = MappingProxyType({})

MetadataCheck = Callable[[TableMetadata], None]

T = TypeVar("T")


def nothing_to_refuse(metadata: TableMetadata) -> None:
    """Check of metadata that refuses none."""


class Target:
    """One table that a stream commits to.

    Args:
        name: Full name of the table, such as `orders.payments`.
        backoff: Makes the pauses between the attempts at a commit.
        commit_once: Commits an operation on exactly the table that was read.
        branch: Branch of the table to which the stream commits.
    """

    def __init__(
        self,
        catalog: Catalog,
        name: str,
        stream: str,
        backoff: Callable[[], Backoff] = Backoff,
        commit_once: Callable[..., int] = commit_once,
        *,
        branch: str = MAIN_BRANCH,
    ) -> None:
        self.name: str = name
        self.stream: str = stream
        self.branch: str = branch
        self.refusals: int = 0
        self.catalog: Catalog = catalog
        self.table: Table = on_branch(self._loaded(), branch)
        # Kept apart from `table`: a refused commit reloads the table, and may find a recreated one.
        self._first_uuid: str = self.uuid
        self.newest: Stamp | None = None
        # The catalog refused a commit, or the table was loaded, since its stamps were read.
        self._stale: bool = False
        self._backoff: Callable[[], Backoff] = backoff
        self._commit_once: Callable[..., int] = commit_once
        self._age: KeyAge = KeyAge()

    @property
    def uuid(self) -> str:
        """Uuid of the table, which a later table of the same name does not share."""
        return str(self.table.metadata.table_uuid)

    @property
    def identity(self) -> str:
        """Uuid under which the stream knows the table of this target."""
        return self.uuid

    @property
    def owner(self) -> str:
        """Name of the stream that the target belongs to, as in its file."""
        return self.stream

    @property
    def snapshot_id(self) -> int | None:
        """Id of the branch's head, as last loaded."""
        snapshot = self.table.metadata.current_snapshot()
        return snapshot.snapshot_id if snapshot else None

    @property
    def has_to_begin(self) -> bool:
        """Whether it is a branch of a table without snapshots, where no commit of rows can begin."""
        return self.branch != MAIN_BRANCH and not self.table.metadata.snapshots

    def renew_access(self, *, refused: bool = False) -> bool:
        """Take new file credentials from the catalog, if it is time; returns whether they are new.

        A catalog may issue credentials that live for an hour or less. They are renewed halfway through that life.

        Args:
            refused: The store refuses the current credentials, whatever their announced life.
        """
        if isinstance(self.table.io, RenewedFileIO):
            try:
                with permitted(self.owner, self.name):
                    return self.table.io.renew(refused=refused)
            except NoSuchTableError:
                raise table_gone(self.owner, self.name) from None
        before = self.table.io.properties
        if refused:
            self._age.refused()
        elif not self._age.due(before):
            return False
        try:
            fresh = self._loaded()
        except NoSuchTableError:
            raise table_gone(self.owner, self.name) from None
        if str(fresh.metadata.table_uuid) == self.uuid:
            self.table.io = fresh.io
        self._age.renewed()
        return keys_of(self.table.io.properties) != keys_of(before)

    def seen(self) -> Seen:
        """The state of the table that a task is about to use."""
        metadata = self.table.metadata
        mapping, decoded = metadata.properties.get(NAME_MAPPING), decoded_digest(metadata.properties, self.stream)
        return Seen(
            self.uuid, metadata.schema(), metadata.current_schema_id, metadata.default_spec_id, mapping, decoded
        )

    def read(self) -> Stamp | None:
        """Load the table and its newest stamp.

        Raises:
            RolledBackError: The table was rolled back to before the stream's last commit.
            TargetRecreatedError: The table was dropped or recreated.
        """
        self._load()
        past = stamp_history.history_of(self.table, self.stream)
        if past.rolled_back:
            raise rolled_back(self.owner, self.name, past, self.branch)
        if self._lacks_known_commit(past.newest):
            past = self._read_again()
        self.newest, self._stale = past.newest, False
        return self.newest

    def _lacks_known_commit(self, newest: Stamp | None) -> bool:
        known, has = self.newest.last_move if self.newest else 0, newest.last_move if newest else 0
        return has is not None and has < (known or 0)

    def _read_again(self) -> stamp_history.History:
        """Reload the table until it has the commits that this process knows; a catalog's replica may lag.

        Raises:
            RolledBackError: The table still lacks them, so it was restored from older metadata.
        """
        deadline = time.monotonic() + STALE_SECONDS
        while True:
            past = stamp_history.history_of(self.table, self.stream)
            if not self._lacks_known_commit(past.newest):
                return past
            if time.monotonic() > deadline:
                known, has = self.newest.position if self.newest else {}, past.newest.position if past.newest else {}
                lost = {p: OffsetRange(has.get(p, 0), at) for p, at in known.items() if at > has.get(p, 0)}
                raise restored(self.owner, self.name, lost)
            time.sleep(STALE_SECONDS / 10)
            self._load()

    def history(self) -> stamp_history.History:
        """Stamps of the stream in the table, also after a rollback, which `read` refuses."""
        self.table, self._stale = on_branch(self._loaded(), self.branch), True
        past = stamp_history.history_of(self.table, self.stream)
        self.newest, self._stale = past.newest, False
        return past

    def greatest_epoch(self) -> int:
        """Greatest epoch of any stamp of the stream on this table."""
        return stamp_history.greatest_epoch(self.table.metadata, self.stream)

    def refuse_later_claim(self, epoch: int) -> None:
        """Raise if a later driver has claimed the table, by the catalog's current metadata."""
        try:
            theirs = stamp_history.greatest_epoch(self._loaded().metadata, self.stream)
        except NoSuchTableError:
            raise table_gone(self.owner, self.name) from None
        if theirs > epoch:
            raise FencedError(self.owner, epoch, theirs, self.name)

    def claim(self, epoch: int, make: Callable[[Stamp | None], Stamp], *, again: bool = False) -> Stamp:
        """Commit an empty snapshot under `epoch`, so that no driver of an older epoch can commit after it.

        Args:
            make: Makes the claim from the newest stamp; called again when the head moved.
            again: Whether this driver has claimed the table before; the new claim replaces its stamp.

        Raises:
            FencedError: A driver with a later epoch has claimed it; or one with the same epoch, unless `again` is set.
        """
        again = self._claim_former_branch(make, epoch) or again
        return self.swap(proposals.claim(make), epoch=epoch, below=None if again else epoch)

    def _claim_former_branch(self, make: Callable[[Stamp | None], Stamp], epoch: int) -> bool:
        """Claim the branch that the stream wrote before, to which an older driver may still commit.

        Returns:
            True if there is such a branch and it is claimed; a branch that was rolled back is left alone.
        """
        metadata = self.table.metadata
        former = stamp_history.written_branch(metadata, self.stream) or self.branch
        if former == self.branch or former not in metadata.refs:
            return False
        other = Target(self.catalog, self.name, self.stream, self._backoff, self._commit_once, branch=former)
        try:
            other.swap(proposals.claim(make), epoch=epoch, below=epoch)
        except RolledBackError:
            return False
        step("after_former_branch_claim")
        return True

    def land(
        self,
        stamp: Stamp,
        files: Sequence[DataFile],
        *,
        seen: Seen,
        batch: Ranges,
        position: Positions,
        check: MetadataCheck = nothing_to_refuse,
    ) -> ProposalOutcome:
        """Commit a batch's files with its stamp, unless they no longer fit; see `proposals.batch`.

        Args:
            check: Called with the metadata that the commit is made on, at each attempt; raises if it must not be made.

        Returns:
            LANDED, also if an earlier attempt of the batch has landed; RUN_AGAIN if the files no longer fit.

        Raises:
            FencedError: A later epoch has claimed the table.
        """
        propose = proposals.batch(self.name, stamp, files, seen=seen, ranges=batch, position=position)

        def checked(newest: Stamp | None, metadata: TableMetadata) -> Proposal[ProposalOutcome]:
            check(metadata)
            return propose(newest, metadata)

        return self.swap(checked, epoch=stamp.epoch, known=True)

    def restamp(self, stamp: Stamp, more: Mapping[str, str] = NO_SUMMARY) -> None:
        """Commit an empty snapshot with an operator's decision, and properties, on exactly the head that was read.

        Raises:
            FrazilError: Somebody committed meanwhile.
        """
        head = self.snapshot_id

        def attempt() -> None:
            if self._stale:
                self._load()
            if self.snapshot_id != head:
                raise FrazilError(
                    f"table {self.name} got another writer's commit at the same moment.",
                    fix="run the command again",
                )
            self.commit(Append(), stamp, more=more)

        compare_and_swap(self.name, attempt, partial(self._given_up, fix="run the command again"), self._backoff)

    def swap(
        self,
        propose: Propose[T],
        *,
        epoch: int,
        below: int | None = None,
        known: bool = False,
        check: Callable[[], None] = lambda: None,
        given_up: Callable[[str], FrazilError] | None = None,
    ) -> T:
        """Commit what is proposed for the current table, in competition with other writers.

        Args:
            propose: Called with what was read, and again after the head moved.
            below: The newest stamp's epoch has to be less than this; if None, no greater than `epoch`.
            known: Whether the first attempt uses what was read last.
            check: Called before each attempt; raises if this process must not commit any more.
            given_up: Makes the error after too many refusals from the catalog's message.

        Returns:
            Answer of the proposal that landed, or that had nothing to commit.

        Raises:
            CommitRefusedError: The catalog refused again and again, unless `given_up` says otherwise.
        """

        def attempt() -> T:
            check()
            newest = self.newest if known and not self._stale else self.read()
            if newest and newest.epoch >= (epoch + 1 if below is None else below):
                raise FencedError(self.owner, epoch, newest.epoch, self.name)
            proposal = propose(newest, self.table.metadata)
            if proposal.operation is not None:
                self.commit(proposal.operation, proposal.stamp, proposal.summary, proposal.properties)
            return proposal.answer

        return compare_and_swap(self.name, attempt, given_up or self._given_up, self._backoff)

    def commit(
        self,
        operation: Operation,
        stamp: Stamp | None,
        summary: Mapping[str, str] = NO_SUMMARY,
        more: Mapping[str, str] = NO_SUMMARY,
    ) -> int:
        """Commit an operation on exactly the table that was read, once.

        Args:
            stamp: Stamp of the commit, for the snapshot's summary and the stream's property.

        Returns:
            The new snapshot's id.

        Raises:
            HeadMovedError: Somebody committed meanwhile.
        """
        said, properties = dict(summary), dict(more)
        if stamp is not None:
            # The next number on exactly this metadata: after any other commit, this one is refused.
            stamp = stamp.committed_at(self.table.metadata.next_sequence_number(), self.newest).on_branch(self.branch)
            metadata = self.table.metadata
            said[SUMMARY_KEY], own = stamp_properties(stamp, metadata.properties, metadata.snapshots)
            properties |= own
        try:
            snapshot_id = self._commit_once(
                self.table,
                operation,
                summary=said,
                properties=properties,
                on_written=lambda: pass_written(operation, stamp),
            )
        except HeadMovedError as moved:
            log.info("commit on %s refused: %s", self.name, moved)
            self._stale = True
            self.refusals += 1
            raise
        self.newest, self._stale = stamp or self.newest, False
        return snapshot_id

    def _loaded(self) -> Table:
        with permitted(self.owner, self.name):
            return self.catalog.load_table(self.name)

    def _load(self) -> None:
        try:
            self.table, self._stale = on_branch(self._loaded(), self.branch), True
        except NoSuchTableError:
            raise table_gone(self.owner, self.name) from None
        if self.uuid != self._first_uuid:
            raise table_recreated(self.owner, self.name, self._first_uuid, self.uuid)

    def _given_up(
        self, said: str, fix: str = "if others write to the table, let them finish; then start the stream again"
    ) -> FrazilError:
        return CommitRefusedError(f"stream {self.owner}: {said}", fix=fix)


def stamp_properties(
    stamp: Stamp, table: Mapping[str, str], snapshots: Sequence[Snapshot] | None = None
) -> tuple[str, dict[str, str]]:
    """The text of a stamp, and the table properties that go with it.

    The properties are the stamp, the directory if it lacks a target, the other tables' sequence numbers, and answers
    that outlive their snapshot.

    Args:
        snapshots: The table's snapshots, on all branches, whose stamps use places of the directory. None: all places
            are in use.
    """
    directory = TargetDirectory.of(table, stamp.stream)
    properties: dict[str, str] = {}
    if stamp.in_bitmaps:
        full = directory.with_targets(stamp.targets, stamp.rows, partial(_used_places, stamp.stream, table, snapshots))
        if full is not directory:
            directory, properties[directory_key(stamp.stream)] = full, full.to_json()
    text = stamp.to_json(directory)
    if stamp.sequences is not None:
        properties[sequences_key(stamp.stream)] = msgspec.json.encode(dict(stamp.sequences)).decode()
    properties |= other_logs_property(stamp, table)
    return text, properties | {property_key(stamp.stream): text}


def _used_places(stream: str, table: Mapping[str, str], snapshots: Sequence[Snapshot] | None) -> int:
    if snapshots is None:
        return -1
    texts = [whole_property(table, property_key(stream)) or ""]
    texts += [each.summary.additional_properties.get(SUMMARY_KEY, "") for each in snapshots if each.summary]
    return reduce(or_, map(used_places, texts), 0)


def pass_written(operation: Operation, stamp: Stamp | None) -> None:
    """Pass the failpoint of a commit whose manifests are written."""
    if isinstance(operation, ReplaceFiles):
        step("inside_life_change")
    elif isinstance(operation, RemakeBranch):
        step("inside_remake")
    elif isinstance(operation, PublishBranch):
        step("mirror_before_publish")
    elif stamp and stamp.kind == "claim":
        step("inside_claim")
    elif stamp and stamp.kind == "accept":
        step("inside_answer")
    elif isinstance(operation, Append) and operation.beside:
        step("inside_publish" if operation.files else "inside_hold")
    elif stamp and stamp.kind == "batch":
        # Only the coordinator's stamps name the stream's tables.
        step("inside_anchor_commit" if stamp.targets else "inside_dead_letters_commit")
