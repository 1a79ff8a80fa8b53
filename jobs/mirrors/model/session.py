"""Session on a mirror: lock of its table, lease, and removal of branches that earlier attempts have left.

Merges and the maintenance of a mirror's table take turns under one lock. Otherwise each compaction that commits during
a merge would force the merge to start again.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.clients.state_store.lease import LeaseHeldError, stream_lease
from jobs.config.settings.settings import Settings
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from jobs.maintenance.run.table_lock import TableBusyError, TableLock, table_lock
from jobs.mirrors.model.mirror_stamp import abandoned_branches, mirror_id
from jobs.tables.commit.protocol.compare_and_swap import Backoff, compare_and_swap, conflicts_as_moved_head
from jobs.tables.commit.protocol.session import CommitSession
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import CommitRefusedError, FencedError, RolledBackError
from jobs.tables.commit.stamp.stamps import Stamp

log = logging.getLogger(__name__)

LOCK_SECONDS = 600.0
_POLL_SECONDS = 0.5


@dataclass(slots=True)
class MirrorSession:
    """A mirror that this process may merge into.

    Attributes:
        spec: The stream.
        mirror: The mirror in the stream's file.
        commits: Commit session with the mirror's table as its only target.
        lock: Lock of the table.
        attempts: Number of branches begun.
        claimed: Whether a commit of this session has claimed the mirror for its epoch.
    """

    spec: StreamSpec
    mirror: Mirror
    commits: CommitSession
    lock: TableLock
    attempts: int = 0
    claimed: bool = False

    @property
    def target(self) -> Target:
        """The mirror's table."""
        return self.commits.targets[self.mirror.table]

    @property
    def epoch(self) -> int:
        """Epoch of this session."""
        return self.commits.epoch

    def read(self) -> Stamp | None:
        """Load the mirror's table and its newest stamp.

        Raises:
            RolledBackError: The mirror was rolled back to before its last merge.
        """
        return self.target.read()

    def verify(self) -> None:
        """Raise unless this process still holds lease and lock.

        Raises:
            FencedError, FrazilError: This process has lost one of them.
        """
        self.commits.lease.verify()
        try:
            self.lock.verify()
        except FrazilError as problem:
            raise CommitRefusedError(
                f"stream {self.spec.stream}: the lock for merges and maintenance of mirror {self.mirror.table} was "
                "lost during a merge: it ran out, somebody took it, or the state folder cannot be written. Nothing "
                "was published.",
                fix=f"frazil mirror run {self.spec.stream}",
            ) from problem

    def claim(self, newest: Stamp | None) -> None:
        """Claim the mirror: earlier sessions cannot publish any more, and the mirror has a snapshot.

        A session that does not see this one's lease may have the same epoch: the first of them to claim goes on.

        Raises:
            FencedError: A later session, or another one of the same epoch, has claimed the mirror.
        """
        self.refuse_twin(newest)
        if self.claimed:
            return
        self.target.claim(self.epoch, self.commits.claim_of)
        self.claimed = True

    def refuse_twin(self, newest: Stamp | None) -> None:
        """Refuse a stamp of this session's epoch, or a later one, that another session has made.

        Raises:
            FencedError: Another session has made the stamp.
        """
        if not self.claimed and newest is not None and newest.epoch >= self.epoch:
            raise FencedError(self.target.owner, self.epoch, newest.epoch, self.mirror.table)

    def begin_branch(self, name: str, snapshot_id: int) -> None:
        """Create the branch of an attempt, whose name is unique, at a snapshot."""

        def change(table: Table) -> None:
            if name not in table.metadata.refs:
                table.manage_snapshots().create_branch(snapshot_id, name).commit()

        self._change_refs(change)

    def branch_head(self, name: str) -> int:
        """Return the head of a branch.

        Raises:
            FrazilError: The branch was removed.
        """
        there = self.target.catalog.load_table(self.mirror.table).metadata.refs.get(name)
        if there is None:
            raise FrazilError(
                f"stream {self.spec.stream}: somebody has removed branch {name} of mirror {self.mirror.table}.",
                fix=f"frazil mirror run {self.spec.stream}",
            )
        return there.snapshot_id

    def drop_branches(self, names: Callable[[Table], list[str]]) -> None:
        """Remove branches of attempts, as far as they still exist."""

        def change(table: Table) -> None:
            for name in names(table):
                if name in table.metadata.refs:
                    table.manage_snapshots().remove_branch(name).commit()

        self._change_refs(change)

    def _change_refs(self, change: Callable[[Table], None]) -> None:
        name, stream = self.mirror.table, self.spec.stream

        def attempt() -> None:
            with conflicts_as_moved_head():
                change(self.target.catalog.load_table(name))

        def given_up(said: str) -> FrazilError:
            return CommitRefusedError(f"stream {stream}: {said}", fix=f"frazil mirror run {stream}")

        compare_and_swap(name, attempt, given_up, Backoff)


@contextlib.contextmanager
def mirror_session(
    spec: StreamSpec,
    mirror: Mirror,
    settings: Settings,
    catalog: Catalog,
    table: Table,
    *,
    wait_seconds: float = LOCK_SECONDS,
    backoff: Callable[[], Backoff] = Backoff,
) -> Iterator[MirrorSession]:
    """Hold a mirror's table for merges within the block, and remove branches that earlier attempts have left.

    Args:
        table: Table of the mirror.
        wait_seconds: How long to wait for a merge of another process, and then for maintenance of the table.
        backoff: Pauses between attempts at a commit.

    Raises:
        LeaseHeldError: Another process still merges after the wait.
        TableBusyError: The table is still being maintained after the wait.
        RolledBackError: The mirror was rolled back to before its last merge.
    """
    name = mirror_id(spec.stream, mirror.table)
    lease = stream_lease(settings, name)
    deadline = time.monotonic() + wait_seconds
    while (held := lease.read()) and held.held():
        # A merge ends soon, and the process beside a driver lets others in between two merges.
        if time.monotonic() >= deadline:
            raise LeaseHeldError(
                f"stream {spec.stream}: mirror {mirror.table} is being merged into by process {held.pid} on "
                f"{held.host}.",
                fix=f"wait for it to end, or stop process {held.pid} and run this again",
            )
        time.sleep(_POLL_SECONDS)
    with contextlib.ExitStack() as until:
        try:
            lock = until.enter_context(table_lock(settings, mirror.table, str(table.metadata.table_uuid), wait_seconds))
        except TableBusyError as busy:
            raise TableBusyError(
                f"stream {spec.stream}: nothing is merged into mirror {mirror.table}: {busy.message}",
                fix=f"wait for it to end, then frazil mirror run {spec.stream} --table {mirror.table}",
            ) from None
        target = Target(catalog, mirror.table, name, backoff)
        commits = CommitSession(name, spec.config_hash, lease, {mirror.table: target})
        with commits.held():
            session = MirrorSession(spec, mirror, commits, lock)
            if abandoned_branches(target.table.metadata):
                session.drop_branches(lambda now: abandoned_branches(now.metadata))
            try:
                yield session
            except RolledBackError:
                raise mirror_rolled_back(spec, mirror) from None


def mirror_rolled_back(spec: StreamSpec, mirror: Mirror) -> RolledBackError:
    """Return the error for a mirror that was rolled back to before its last merge."""
    return RolledBackError(
        f"stream {spec.stream}: mirror {mirror.table} was moved back to before its last merge, or replaced: its stamp "
        "does not match its content.",
        fix=f"bring its snapshots back, or `frazil mirror rebuild {spec.stream} --table {mirror.table}`",
    )
