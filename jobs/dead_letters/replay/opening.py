"""Opening of a replay session: the lease, the claims, and the recovery of what an earlier replay left."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from jobs.base.errors import FrazilError, StreamStopped
from jobs.base.failpoints import step
from jobs.clients.state_store.lease import Lease, LeaseHeldError, stream_lease
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.dead_letters.replay.pending_return import PendingReturn, pending_returns
from jobs.dead_letters.replay.replay_state import changes_from_parquet
from jobs.dead_letters.replay.session import (
    BATCHES,
    ReplaySession,
    changes_key,
    landed_batches,
    replay_folder,
    replay_id,
)
from jobs.streaming.driver.context.source_topics import parked_tables
from jobs.tables.commit.history.stamp_history import history, stamps_along_main
from jobs.tables.commit.protocol.pending_record import Pending, PendingTarget
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.offsets import OffsetRange
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.dead_letter_table.table import ensure_replay_state_columns

log = logging.getLogger(__name__)


class LostRecordError(StreamStopped):
    """Rows of a replay are in a table that cannot show which dead letters they came from.

    Safe: Nothing was changed.
    Next: dismiss the dead letters of the rows, then `frazil letters S --settle-lost WHY`
    """


def recover_replays(session: ReplaySession) -> None:
    """Finish what earlier replays left: the dead letters of a landed batch get its state, another batch is dropped.

    Earlier replays can no longer commit, as the stream's table and the dead letters are claimed. With a route, further
    tables may lack the batch, and get it from the record.
    """
    store = session.folder.store
    for key in session.folder.pending_records():
        step("replay_before_recovery")
        content = store.get(key)
        if content is None:
            continue
        metadata = {
            name: session.targets[name].table.metadata for name in Pending.names(content) if _is_there(session, name)
        }
        pending = Pending.decode(content, metadata)
        stamp = pending.targets[pending.anchor or session.sink.name].stamp
        changes = store.get(changes_key(stamp)) if session.snapshot_of(stamp) is not None else None
        if changes is not None:
            stream = session.spec.stream
            log.info("stream %s: batch %d of a replay has landed; its dead letters are marked", stream, stamp.batch)
            whole = _completed(session, pending, stamp)
            session.finish(stamp, changes_from_parquet(changes) if whole else None)
            continue
        # The table with which it began shows whether it landed, if that still is the main table. Otherwise, or if its
        # snapshot has expired, its files may be in a table, and its dead letters are set by their rows.
        dropped = _is_anchor(session, pending) and _never_landed(session, stamp)
        session.forget(stamp)
        if dropped:
            session.delete_files({name: part for name, part in pending.targets.items() if not part.unreadable})
    for left in store.keys("letters-*.parquet"):
        store.delete(left)
    _settle_unknown(session)


def _is_there(session: ReplaySession, name: str) -> bool:
    try:
        session.opened(name)
    except NoSuchTableError:
        return False
    return True


def _completed(session: ReplaySession, pending: Pending, stamp: Stamp) -> bool:
    """Commit a batch to the tables that lack it; returns whether all of them have it now."""
    batch = {BATCHES: OffsetRange(stamp.batch, stamp.batch + 1)}
    further = {name: part for name, part in pending.targets.items() if name != session.sink.name}
    # A suspended table takes no commits; its dead letters land there after it is resumed.
    parked = parked_tables(session.spec, session.sink.catalog)
    able = {name: part for name, part in further.items() if name not in parked and _may_take(session, name, part)}
    refused = session.commit_further(able, batch)
    return not refused and len(able) == len(further)


def _is_anchor(session: ReplaySession, pending: Pending) -> bool:
    """Whether the record began with the present main table."""
    sink = session.sink
    return pending.anchor == sink.name and pending.targets[sink.name].seen.uuid == sink.uuid


def _may_take(session: ReplaySession, name: str, part: PendingTarget) -> bool:
    """Whether a table is the one of a record's files, can read them, and they exist."""
    if part.unreadable or session.targets[name].uuid != part.seen.uuid:
        return False
    io = session.targets[name].table.io
    return all(io.new_input(file.file_path).exists() for file in part.files)


def _never_landed(session: ReplaySession, stamp: Stamp) -> bool:
    if session.next_batch <= stamp.batch:
        return True
    others = (found for _, found in stamps_along_main(session.sink.table.metadata, session.id))
    return any(found.kind == "batch" and found.batch == stamp.batch for found in others) and (
        session.snapshot_of(stamp) is None
    )


def _settle_unknown(session: ReplaySession) -> None:
    """Settle a lost pending record, which does no harm if rows have coordinates."""
    stream, sink = session.spec.stream, session.sink
    known = session.letters.newest.position.get(BATCHES, 0) if session.letters.newest else 0
    if known >= session.next_batch:
        return
    if session.spec.kafka_columns.locate_rows_of(sink.table.schema()):
        session.settle_lost()
        return
    raise LostRecordError(
        f"stream {stream}: batch {known} of a replay is in {sink.name}, its dead letters are not marked, its pending "
        "record is lost, and the table has no Kafka columns to identify them. Nothing was changed.",
        fix=f'find the rows by the snapshot with `"batch":{known}` of {sink.stream} in its summary, dismiss '
        f"their letters with `frazil letters {stream} --dismiss 'has landed' …`, then "
        f"`frazil letters {stream} --settle-lost 'their dead letters are dismissed'`",
    )


@contextlib.contextmanager
def replay_session(
    spec: StreamSpec, settings: Settings, catalog: Catalog, *, recover: bool = True, returning: bool = False
) -> Iterator[ReplaySession]:
    """Hold the replays of a stream during the block. The stream itself may run.

    Args:
        recover: Whether to finish what earlier replays left; not if an operator settles it.
        returning: Whether the caller finishes an interrupted return to a topic, which needs Kafka.

    Raises:
        LeaseHeldError: Another replay of the stream is running.
        StreamStopped: A table was recreated or rolled back.
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
    """Whether no replay is running, and none has left anything to finish or refuse."""
    folder, name = replay_folder(settings, spec.stream), replay_id(spec.stream)
    held = stream_lease(settings, name).read()
    if (held and held.held()) or folder.pending_records():
        return False
    if any(history(table.metadata, name).rolled_back for table in (sink, letters)):
        return False
    return landed_batches(sink, spec.stream) <= landed_batches(letters, spec.stream)


def refuse_if_replayed(lease: Lease, stream: str) -> None:
    """Raise if another process replays the stream's dead letters.

    Raises:
        LeaseHeldError: Another process does.
    """
    held = lease.read()
    if held and held.held():
        raise LeaseHeldError(
            f"stream {stream}: its dead letters are being replayed by process {held.pid} on {held.host}.",
            fix=f"wait for it to end, or stop process {held.pid} and run this again",
        )


def refuse_unfinished_return(folder: StreamFolder, stream: str) -> None:
    """Raise if dead letters may have gone back to a topic without the new state.

    Args:
        folder: Folder of the stream's replays.

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
    """Raise if a batch of a Connect queue is half committed, as it may contain records of dead letters.

    Raises:
        FrazilError: There is one.
    """
    if folder.below("connect").pending_records():
        raise FrazilError(
            f"stream {stream}: an earlier `frazil replay {stream} --from-topic` was interrupted within a batch.",
            fix=f"finish it first: frazil replay {stream} --from-topic {topic or 'TOPIC'}",
        )
