"""Opening of a replay session: the lease, the claims on its first two tables, and what has to be finished before."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.commit.stamp_history import history
from jobs.commit.target import Target
from jobs.deadletter.table import ensure_replay_state_columns
from jobs.errors import FrazilError
from jobs.replay.pending_return import PendingReturn, pending_returns
from jobs.replay.recovery import recover_replays
from jobs.replay.session import ReplaySession, landed_batches, replay_folder, replay_id
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.state.lease import Lease, LeaseHeldError, stream_lease
from jobs.state.stream_folder import StreamFolder
from jobs.steps import step


@contextlib.contextmanager
def replay_session(
    spec: StreamSpec, settings: Settings, catalog: Catalog, *, recover: bool = True, returning: bool = False
) -> Iterator[ReplaySession]:
    """Hold the replays of a stream for the length of the block. The stream itself may run.

    Args:
        recover: Whether what earlier replays left is finished first; not if an operator settles it.
        returning: Whether the caller finishes what a return of letters to a topic left, which takes Kafka.

    Raises:
        LeaseHeldError: Another replay of the stream is at work.
        StreamStopped: A table is not the one that was there, or was rolled back.
    """
    folder, name = replay_folder(settings, spec.stream), replay_id(spec.stream)
    lease = stream_lease(settings, name)
    refuse_if_replayed(lease, spec.stream)
    if not returning:
        refuse_unfinished_return(folder, spec.stream)
    ensure_replay_state_columns(catalog, spec.dead_letter_table)
    both = (spec.table.name, spec.dead_letter_table)
    targets = {table: Target(catalog, table, name, branch=spec.branch_of(table)) for table in both}
    session = ReplaySession(name, spec.config_hash, lease, targets, spec=spec, folder=folder)
    with session.held():
        step("replay_before_claim")
        for table in both:
            session.claimed(table)
        step("replay_after_claims")
        if recover:
            recover_replays(session)
        yield session


def is_at_rest(spec: StreamSpec, settings: Settings, sink: Table, letters: Table) -> bool:
    """Whether no replay is at work, and none has left what the next one has to finish, or to refuse.

    Args:
        sink: The stream's table.
        letters: Its dead letters.
    """
    folder, name = replay_folder(settings, spec.stream), replay_id(spec.stream)
    held = stream_lease(settings, name).read()
    if (held and held.held()) or folder.pending_records():
        return False
    if any(history(table.metadata, name).rolled_back for table in (sink, letters)):
        return False
    return landed_batches(sink, spec.stream) <= landed_batches(letters, spec.stream)


def refuse_if_replayed(lease: Lease, stream: str) -> None:
    """Say who replays the stream's letters, if anybody does.

    Raises:
        LeaseHeldError: Another process does.
    """
    held = lease.read()
    if held and held.held():
        raise LeaseHeldError(
            f"stream {stream}: its letters are being replayed by process {held.pid} on {held.host}.",
            fix=f"wait for it to end, or stop process {held.pid} and run this again",
        )


def refuse_unfinished_return(folder: StreamFolder, stream: str) -> None:
    """Letters that went back to a topic, and do not know it yet, must not be taken for others.

    Args:
        folder: Of the stream's replays.

    Raises:
        FrazilError: There may be some.
    """
    if pending := pending_returns(folder.store):
        topic = PendingReturn.read(folder.store, pending[0]).topic
        raise FrazilError(
            f"stream {stream}: an earlier `frazil replay {stream} --to-topic {topic}` was interrupted within a batch.",
            fix=f"finish it first: frazil replay {stream} --to-topic {topic}",
        )


def refuse_unfinished_queue(folder: StreamFolder, stream: str, topic: str | None = None) -> None:
    """A batch of a Connect queue that is half committed may hold records that letters are of.

    Args:
        folder: Of the stream.

    Raises:
        FrazilError: There is one.
    """
    if folder.below("connect").pending_records():
        raise FrazilError(
            f"stream {stream}: an earlier `frazil replay {stream} --from-topic` was interrupted within a batch.",
            fix=f"finish it first: frazil replay {stream} --from-topic {topic or 'TOPIC'}",
        )
