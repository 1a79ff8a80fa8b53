"""Closed hours or days of event time: a partitioned asset behind a stream's table, and its check."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets import dagster_names
from assets.failures import failure
from assets.last_reported import lasting
from assets.metadata import instant
from assets.stream_checks import CheckOutcome, check_result
from jobs.base.errors import FrazilError
from jobs.config.settings.settings import Settings
from jobs.config.stream.event_time import EventTime
from jobs.config.stream.models import StreamSpec
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource

if TYPE_CHECKING:
    from jobs.proof.audit.closed_periods import LateRows

CLOSED_PARTITIONS = "closed_partitions"
REMEMBERED_SECONDS = 24 * 3600
"""How long the check warns after rows came into a closed hour or day."""
_SHOWN = 10
_NAMES = {"hour": "closed_hours", "day": "closed_days"}


def closed_key(settings: Settings, spec: StreamSpec) -> dg.AssetKey:
    """The key of the asset of a stream's closed hours or days: the table's key with one more part."""
    assert spec.event_time is not None and spec.event_time.closes is not None
    return dg.AssetKey([*dagster_names.table_key(settings, spec.table.name).path, _NAMES[spec.event_time.closes]])


def closed_partitions_of(event_time: EventTime) -> dg.TimeWindowPartitionsDefinition:
    """The hours or days that a stream reports, as Dagster's partitions."""
    start = event_time.since.isoformat()
    if event_time.closes == "day":
        return dg.DailyPartitionsDefinition(start_date=start, timezone=event_time.zone)
    return dg.HourlyPartitionsDefinition(start_date=f"{start}-00:00", timezone=event_time.zone)


def partition_key(event_time: EventTime, start_ms: int) -> str:
    """Dagster's partition key of the hour or day that begins at `start_ms`, in milliseconds since 1970."""
    return closed_partitions_of(event_time).get_partition_key_for_timestamp(start_ms / 1000)


def closed_asset(spec: StreamSpec, settings: Settings) -> dg.AssetSpec | None:
    """The asset of a stream's closed hours or days; None if the stream reports none."""
    event_time = spec.event_time
    if event_time is None or event_time.closes is None:
        return None
    return dg.AssetSpec(
        closed_key(settings, spec),
        deps=[dagster_names.table_key(settings, spec.table.name)],
        partitions_def=closed_partitions_of(event_time),
        description=f"Each {event_time.closes} of `{event_time.column}` in `{spec.table.name}`, reported once, when "
        "all its timely records have landed: the watermark is past its end, and the table and the dead "
        "letters are complete up to it. Let downstream assets depend on this.",
        group_name=dagster_names.group_name(spec),
        owners=dagster_names.owners(spec),
        kinds={"iceberg", "partition"},
        metadata={"dagster/table_name": spec.table.name},
    )


def closed_check(spec: StreamSpec, settings: Settings) -> dg.AssetChecksDefinition | None:
    """The check of closed hours or days for runs from the UI; the sensor reports the same results."""
    if spec.event_time is None or spec.event_time.closes is None:
        return None
    key = closed_key(settings, spec)

    @dg.multi_asset_check(
        name=dagster_names.op_name(spec).replace("drain_", "closed_", 1),
        description="Looks for rows that came into hours or days reported as closed.",
        specs=[
            dg.AssetCheckSpec(
                CLOSED_PARTITIONS,
                asset=key,
                description="Within the last day no rows came into an hour or day that had been reported as closed. "
                "Warns with which ones did, how many rows, and by which snapshot.",
            )
        ],
    )
    @lasting
    def look_for_late_rows(
        context: dg.AssetCheckExecutionContext, deployment: DeploymentResource, catalog: CatalogResource
    ) -> Iterator[dg.AssetCheckResult]:
        # Imported here: a code location that only loads should not wait for it.
        from jobs.clients.catalog.catalog import NoCatalogYet, find_table
        from jobs.proof.audit.closed_periods import LateRowsOfTables
        from jobs.tables.commit.history.publications import publication_id

        current = deployment.current(spec)
        event_time = current.event_time or spec.event_time
        assert event_time is not None
        late: list[LateRows] = []
        try:
            # A WAP stream closes hours in main, with its publications.
            gated = current.publish is not None
            table = find_table(catalog.quick(), current.table.name, "main" if gated else current.table.branch)
            if table is not None:
                since_ms = round((time.time() - REMEMBERED_SECONDS) * 1000)
                stamps = publication_id(current.stream) if gated else current.stream
                late = LateRowsOfTables().since(table, stamps, event_time, since_ms)
        except NoCatalogYet:
            pass
        except FrazilError as problem:
            raise failure(problem) from None
        yield check_result(closed_outcome(current.stream, event_time, late), key)

    return look_for_late_rows


def closed_outcome(stream: str, event_time: EventTime, late: "Sequence[LateRows]") -> CheckOutcome:
    """The outcome of the check.

    Args:
        late: Rows that came into closed hours or days within the last day, oldest first.
    """
    if not late:
        return CheckOutcome(CLOSED_PARTITIONS, True, f"No {event_time.closes} that is closed got rows since.", "none")
    by_period: dict[int, int] = {}
    for each in late:
        for start, rows in each.rows.items():
            by_period[start] = by_period.get(start, 0) + rows
    newest = late[-1]
    named = [f"{partition_key(event_time, at)}: {rows:,}" for at, rows in sorted(by_period.items())[-_SHOWN:]]
    further = len(by_period) - len(named)
    more = f" and {further} earlier" if further > 0 else ""
    total = sum(each.total for each in late)
    at = datetime.fromtimestamp(newest.at_ms / 1000, UTC)
    by = "" if newest.by_stream else " of a replay or another writer"
    sentence = (
        f"{total:,} rows came into {event_time.closes}s that were closed, the last of them at {at:%Y-%m-%d %H:%M:%S} "
        f"UTC with snapshot {newest.snapshot_id}{by} ({', '.join(named) or 'not named'}{more}). What was made of them "
        "lacks these rows. Next: materialize those partitions of what is downstream again"
    )
    figures: dict[str, Any] = {
        "late_rows": total,
        "closed_partitions": len(by_period),
        "snapshot_id": str(newest.snapshot_id),
        "stream": stream,
    }
    return CheckOutcome(CLOSED_PARTITIONS, False, sentence, f"late:{newest.snapshot_id}", warn=True, figures=figures)


def late_rows_observations(key: dg.AssetKey, event_time: EventTime, late: "LateRows") -> Iterator[dg.AssetObservation]:
    """Yield one observation for each closed hour or day that got rows with a snapshot."""
    for start, rows in late.rows.items():
        yield dg.AssetObservation(
            key,
            partition=partition_key(event_time, start),
            description=f"{rows:,} rows came after it was closed.",
            metadata={
                "late_rows": rows,
                "snapshot_id": str(late.snapshot_id),
                "landed_at": instant(late.at_ms / 1000),
                "by": "the stream" if late.by_stream else "a replay or another writer",
            },
        )
