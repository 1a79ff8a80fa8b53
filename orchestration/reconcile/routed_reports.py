"""Reports of the other tables of rows, also of late ones: as fresh as the stream's own, with rows of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dagster as dg

from assets import dagster_names
from assets.metadata import freshness_metadata, look_up_metadata, snapshot_metadata, snapshot_tags
from assets.named_tables import ALL_COMPLETE, named_partition, named_tables_key
from jobs.commit.named_tables import with_told_tables
from jobs.commit.stamp_history import as_written
from jobs.spec.models import StreamSpec
from jobs.supervise.heartbeat import Heartbeat
from jobs.supervise.observation import Observation
from orchestration.reconcile.cursor import StreamCursor, checksum, due, report_seconds
from orchestration.reconcile.lag import Lag
from orchestration.reconcile.remote_queries import RemoteQueries, queried_table
from orchestration.reconcile.state_metadata import state_metadata
from orchestration.reconcile.stream_state import StreamState

OwnReport = dg.AssetMaterialization | dg.AssetObservation


def routed_events(
    spec: StreamSpec,
    observed: Observation,
    stands: StreamState,
    own: OwnReport,
    lag: Lag | None,
    memory: StreamCursor,
    remote: RemoteQueries,
    now: float,
) -> Iterator[OwnReport]:
    """The reports of the other tables of rows that go with one of the stream's own table; notes what was reported.

    They are those of a route, and the table of late rows. What is new in a table that a value names is told of its
    partition, too.

    All tables of a stream are complete through the same time. So where its own table reads as fresh, each of them does,
    also one that no record went to for long; and where not, what is new in one is observed. Of one that is parked
    nothing is told.

    Args:
        own: The report of the stream's own table.
        remote: Where the tables are asked for; one that does not answer in time is told of by a later report.
    """
    if observed.heartbeat is None or not due(now, memory.routed_at, report_seconds(spec)):
        return
    if spec.route is not None and spec.route.to is not None:
        # As far as the catalog tells in time.
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
    told = state_metadata(stands, observed.heartbeat) | reported_freshness(observed.heartbeat, lag)
    parked = observed.heartbeat.work.parked
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
        # Without a report before, or once its snapshot has expired, it does not say how many rows are new.
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
    """Through when the stream's tables are complete, and its watermark."""
    through = lag.valid_through if lag is not None else beat.work.complete_through if beat is not None else None
    watermark = lag.watermark if lag is not None else None
    return freshness_metadata(*(None if each is None else each * 1000 for each in (through, watermark)))
