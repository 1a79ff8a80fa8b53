"""Newest snapshots of a stream's tables: by its driver's heartbeat, or by the catalog after a one-off run.

A one-off run (`frazil run`) writes no heartbeat. It takes the stream's lease, so the lease's epoch tells of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from jobs.clients.state_store.epochs import read_epoch
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.documents.heartbeat import Heartbeat
from jobs.streaming.supervision.processes.actual import ActualState
from jobs.streaming.supervision.state.observation import Observation
from jobs.tables.commit.history.stamp_history import as_written, history
from orchestration.reconcile.cursor import StreamCursor
from orchestration.reconcile.lag import Lag
from orchestration.reconcile.remote_queries import RemoteQueries
from orchestration.reconcile.stream_state import StreamState

# Name of the opener of `jobs.streaming.driver.process.drain` in a run of Dagster, which reports its tables itself.
_DAGSTER_RUN = "Dagster run"


@dataclass(frozen=True, slots=True)
class Landed:
    """Newest snapshots of a stream's tables.

    Attributes:
        rows: Snapshot of the stream's main table; None if unknown.
        dead_letters: Snapshot of its dead-letter table; None if unknown.
        heartbeat: Newest heartbeat of a driver, unless a one-off run landed records after it.
        by_run: Whether a one-off run has landed them, and they have not been reported yet.
    """

    rows: int | None
    dead_letters: int | None
    heartbeat: Heartbeat | None
    by_run: bool = False


def run_was_last(actual: ActualState) -> bool:
    """Whether the lease's newest holder is not the driver of the newest heartbeat, and no driver runs."""
    beat = actual.heartbeat
    return not actual.driver_lives and actual.lease.epoch > (beat.epoch if beat is not None else 0)


def landed_snapshots(
    spec: StreamSpec,
    observed: Observation,
    stands: StreamState,
    lag: Lag | None,
    memory: StreamCursor,
    remote: RemoteQueries,
    now: float,
) -> Landed:
    """The newest snapshots of a stream's tables. After a one-off run the catalog is asked for them, once.

    The memory notes that the run has been reported. Everything that the stream reports is due with it.

    Args:
        lag: The stream's lag; None if unknown. Without it nobody can say whether its tables read as fresh.
        now: Seconds since 1970.
    """
    actual = observed.actual
    if not run_was_last(actual):
        work = actual.heartbeat.work if actual.heartbeat is not None else None
        return Landed(work and work.snapshot_id, work and work.dead_letter_snapshot_id, actual.heartbeat)
    reported = Landed(memory.sink, memory.dead, None)
    epoch = actual.lease.epoch
    if actual.lease.state == "live" or epoch == memory.reported_epoch or (lag is None and spec.freshness is not None):
        return reported
    table, dead = remote.table(spec.table.name), remote.table(spec.dead_letter_table)
    if not (remote.has_answered(spec.table.name) and remote.has_answered(spec.dead_letter_table)):
        return reported
    memory.reported_epoch = epoch
    head = as_written(table.metadata, spec.stream).current_snapshot() if table is not None else None
    rows = head.snapshot_id if head is not None else None
    dead_letters = dead.metadata.current_snapshot_id if dead is not None else None
    record = read_epoch(observed.folder.store, epoch)
    if record is not None and record.opener.what == _DAGSTER_RUN:
        memory.sink, memory.dead = rows, dead_letters
        memory.state_reported(stands.code, now)
        return Landed(rows, dead_letters, None)
    memory.sink_at = memory.dead_at = memory.routed_at = 0
    return Landed(rows, dead_letters, None, by_run=True)


def parked_now(spec: StreamSpec, landed: Landed, remote: RemoteQueries) -> Collection[str]:
    """The stream's suspended tables: by its driver, or by the coordinator's newest stamp after a one-off run."""
    if landed.heartbeat is not None:
        return landed.heartbeat.work.parked
    coordinator = remote.table(spec.coordinator) if spec.route is not None else None
    newest = history(as_written(coordinator.metadata, spec.stream), spec.stream).newest if coordinator else None
    return newest.parked if newest is not None else ()
