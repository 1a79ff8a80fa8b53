"""Reports of a stream's other tables without a run: tables of rows, also of late ones, and dead letters."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg

from assets import dagster_names
from assets.dead_letters import KNOWN_FILES, REPLAY_WOULD_HELP, letters_waiting, tally_metadata
from assets.metadata import (
    freshness_metadata,
    in_reading_order,
    instant,
    look_up_metadata,
    snapshot_metadata,
    snapshot_tags,
)
from assets.named_tables import ALL_COMPLETE, named_partition, named_tables_key
from assets.stream_checks import CheckOutcome, evaluation, totals_of
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.documents.heartbeat import Heartbeat
from jobs.streaming.supervision.state.observation import Observation
from jobs.tables.commit.history.stamp_history import as_written
from jobs.tables.commit.protocol.named_tables import with_told_tables
from jobs.tables.dead_letter_table.tally import DeadLetterTally, tally_dead_letters
from orchestration.reconcile.background_query import BackgroundQuery
from orchestration.reconcile.cursor import StreamCursor, checksum, due, report_seconds
from orchestration.reconcile.lag import Lag
from orchestration.reconcile.landed import Landed, parked_now
from orchestration.reconcile.remote_queries import RemoteQueries, queried_table
from orchestration.reconcile.state_metadata import state_metadata
from orchestration.reconcile.stream_state import StreamState

OwnReport = dg.AssetMaterialization | dg.AssetObservation
# A count that takes longer goes on, and is reported by a later tick.
COUNT_SECONDS = 2.0
_COUNTING = BackgroundQuery()


def routed_events(
    spec: StreamSpec,
    observed: Observation,
    stands: StreamState,
    landed: Landed,
    own: OwnReport,
    lag: Lag | None,
    memory: StreamCursor,
    remote: RemoteQueries,
    now: float,
) -> Iterator[OwnReport]:
    """Reports of the stream's other tables of rows, made with a report of its main table, and noted in the memory.

    The other tables are those of outputs, and the table of late rows. New rows in a dynamic table are reported for its
    partition, too.

    All tables of a stream are complete through the same time. If the main table reads as fresh, each of them does, even
    without recent records. If it does not, new rows are reported as observations. Suspended tables are not reported.

    Args:
        remote: Source of the tables; a table that does not answer in time is reported later.
    """
    if (landed.heartbeat is None and not landed.by_run) or not due(now, memory.routed_at, report_seconds(spec)):
        return
    if spec.route is not None and spec.route.to is not None:
        # As far as the catalog answers in time.
        coordinator = remote.table(spec.coordinator)
        spec = with_told_tables(spec, coordinator and coordinator.metadata)
    names = [each.name for each in spec.targets if each.role == "rows" and not each.coordinator]
    if not names:
        return
    known = checksum("\n".join(names))
    if known != memory.routed_names:
        # Another table may stand at its place.
        memory.routed, memory.routed_names = [-1] * len(names), known
    memory.routed_at = int(now)
    fresh, grown = isinstance(own, dg.AssetMaterialization), False
    group = named_tables_key(spec, observed.settings)
    told = state_metadata(stands, observed.heartbeat) | reported_freshness(landed.heartbeat, lag)
    parked = parked_now(spec, landed, remote)
    for place, name in enumerate(names):
        if name in parked:
            # It is complete through nothing, as its records wait.
            continue
        table = remote.table(name)
        head = as_written(table.metadata, spec.stream).current_snapshot() if table is not None else None
        if table is None or head is None:
            continue
        before, number = memory.routed[place], head.sequence_number or 0
        if not fresh and number == before:
            continue
        since = next((each.snapshot_id for each in table.metadata.snapshots if each.sequence_number == before), None)
        # Without an earlier report, or once its snapshot has expired, the number of new rows is unknown.
        facts = queried_table(table, spec.stream, head.snapshot_id, since)
        event = dg.AssetMaterialization if fresh else dg.AssetObservation
        yield event(
            dagster_names.table_key(observed.settings, name),
            description=None if number != before else _nothing_new(spec, name),
            metadata=told
            | facts.metadata
            | {"dagster/table_name": name}
            | snapshot_metadata(head.snapshot_id)
            | look_up_metadata(spec.stream, head.snapshot_id),
            tags=snapshot_tags(head.snapshot_id),
        )
        memory.routed[place] = number
        if group is not None and number != before and (partition := named_partition(spec, name)) is not None:
            yield event(
                group,
                partition=partition,
                metadata=told
                | facts.metadata
                | {"dagster/table_name": name}
                | snapshot_metadata(head.snapshot_id)
                | look_up_metadata(spec.stream, head.snapshot_id),
            )
            grown = True
    if group is not None and not grown and fresh and spec.named_tables and not parked:
        # All of them are complete, though nothing new came.
        yield dg.AssetMaterialization(group, description=ALL_COMPLETE, metadata=told)


def _nothing_new(spec: StreamSpec, name: str) -> str:
    if spec.has_late_rows(name):
        return "Nothing new: no record came late since it was last reported."
    return "Nothing new: no record of late went to this table."


def reported_freshness(beat: Heartbeat | None, lag: Lag | None) -> dict[str, Any]:
    """The time through which the stream's tables are complete, and its watermark."""
    through = lag.valid_through if lag is not None else beat.work.complete_through if beat is not None else None
    watermark = lag.watermark if lag is not None else None
    return freshness_metadata(*(None if each is None else each * 1000 for each in (through, watermark)))


@dataclass(frozen=True, slots=True)
class CountedLetters:
    """A stream's dead letters, and the records that it has read since its first run."""

    tally: DeadLetterTally
    read: int


def count_in_background(spec: StreamSpec, remote: RemoteQueries, seconds: float) -> CountedLetters | None:
    """A stream's letters; None if they are not counted in time, so that a later tick asks again.

    A thread counts them in files that were not counted before. A count that an earlier tick began may be of an earlier
    snapshot, which the tally names. For a large table that always changes, counts are never newer.
    """
    dead, sink = remote.table(spec.dead_letter_table), remote.table(spec.table.name)
    if dead is None:
        return None
    key = (str(dead.metadata.table_uuid), spec.stream)
    wait = 0.0 if remote.late else seconds
    counted = _COUNTING.ask(key, wait, lambda: tally_dead_letters(dead, spec.stream, KNOWN_FILES))
    return None if counted is None else CountedLetters(counted, totals_of(sink, spec.stream).read)


def dead_letter_events(
    spec: StreamSpec,
    observed: Observation,
    stands: StreamState,
    landed: Landed,
    memory: StreamCursor,
    remote: RemoteQueries,
    now: float,
) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    """Report of a stream's dead letters, after new ones or a replay, and the outcome of their check."""
    beat, snapshot = landed.heartbeat, landed.dead_letters
    is_new = snapshot is not None and snapshot != memory.dead
    replays = _replays_watermark(observed.folder)
    # Once also if no letter was ever written, so that its page does not read as never materialized.
    first = memory.dead_at == 0 and landed.rows is not None
    asked = first or is_new or replays != memory.replays or memory.uncounted
    if not asked or not due(now, memory.dead_at, report_seconds(spec)):
        return
    table = remote.table_rows(spec.dead_letter_table, spec.stream, snapshot, memory.dead) if is_new else None
    counted = count_in_background(spec, remote, COUNT_SECONDS)
    key = dagster_names.table_key(observed.settings, spec.dead_letter_table)
    newest = remote.table(spec.dead_letter_table)
    counted_id = counted.tally.snapshot_id if counted is not None else None
    memory.uncounted = newest is not None and counted_id != newest.metadata.current_snapshot_id
    memory.replays, memory.dead_at = replays, int(now)
    memory.dead = snapshot if snapshot is not None else memory.dead
    if not is_new and counted is None:
        memory.dead_at = 0 if first else memory.dead_at
        return
    named = counted.tally.snapshot_id if counted is not None else snapshot
    metadata = tally_metadata(counted.tally) if counted is not None else {}
    # A count that took long may tell of an earlier snapshot.
    earlier = newest.snapshot_by_id(counted_id) if memory.uncounted and newest is not None and counted_id else None
    counted_at = now if earlier is None else earlier.timestamp_ms / 1000
    if counted is not None:
        metadata["letters_as_of"] = instant(counted_at)
    metadata |= (
        state_metadata(stands, observed.heartbeat)
        | snapshot_metadata(named)
        | (table.metadata if table is not None else {})
    )
    if beat is not None:
        metadata |= {"records_dead": beat.work.dead}
        if beat.work.reasons:
            first = sorted(beat.work.reasons.items(), key=lambda each: -each[1])[:20]
            metadata["reasons"] = dg.MetadataValue.json(dict(first))
    text = "No record has failed yet." if counted is not None and not counted.tally.total else None
    yield dg.AssetMaterialization(key, description=text, metadata=in_reading_order(metadata), tags=snapshot_tags(named))
    if counted is not None:
        memory.letters = counted.tally.waiting
        yield evaluation(letters_waiting(spec, counted.tally, counted.read, counted_at), key)
        if not counted.tally.waiting:
            yield evaluation(CheckOutcome(REPLAY_WOULD_HELP, True, "No dead letter waits for a replay.", "none"), key)


def _replays_watermark(folder: StreamFolder) -> int:
    """Number that changes with each beginning or end of a replay or discard; 0 before the first. Reads no file."""
    try:
        if folder.store.shared:
            keys = folder.store.keys("replay/*")
            leases = [key for key in keys if key.startswith("replay/lease-")]
            written = folder.store.written_at(leases[-1]) if leases else None
            return zlib.crc32(f"{keys} {written}".encode()) if keys else 0
        newest = max((each.stat().st_mtime_ns for each in (folder.root / "replay").iterdir()), default=0)
    except OSError:
        return 0
    return newest // 1000 & 0xFFFFFFFF
