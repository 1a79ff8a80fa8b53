"""Metadata of the tables of a route: each has its own name, rows and snapshot; counts of records are the stream's.

A record may be a row of several tables, so what a drain did to records is told at the stream's own table alone. What
each table got says its own stamps.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

import dagster as dg
from pyiceberg.table import Table

from assets.metadata import freshness_metadata, look_up_metadata, table_metadata
from jobs.commit.offsets import by_topic
from jobs.commit.stamp_history import stamps_along_main
from jobs.commit.stamps import Stamp
from jobs.spec.models import StreamSpec
from jobs.spec.targets import TargetSpec
from jobs.supervise.heartbeat import Work

if TYPE_CHECKING:
    from jobs.stream.drain import Drained


def routed_table_metadata(spec: StreamSpec, target: TargetSpec, table: Table) -> dict[str, Any]:
    """What there is to say of a table of a stream's rows as it is now.

    Args:
        target: Which one.
        table: It.
    """
    head = table.current_snapshot()
    told = table_metadata(table, target.name, spec.kafka_columns)
    return told | look_up_metadata(spec.stream, head.snapshot_id if head else None)


def landed_rows(stream: str, table: Table, epoch: int) -> dict[str, int]:
    """How many rows of a stream a table got under an epoch, and by how many batches, as metadata; by its stamps.

    Batches that a former driver left to be completed are among them. What has expired since is not.
    """
    stamps = takewhile(
        lambda each: each.epoch >= epoch, (each for _, each in stamps_along_main(table.metadata, stream))
    )
    rows = [_rows(stamp) for stamp in stamps if stamp.kind == "batch" and stamp.epoch == epoch]
    return {"rows_landed": sum(rows), "batches": sum(1 for each in rows if each)}


def _rows(stamp: Stamp) -> int:
    """The rows of a batch that the stamped table got itself."""
    return stamp.counts.landed - sum(part.elsewhere for part in stamp.parts.values())


def routed_drain_metadata(spec: StreamSpec, target: TargetSpec, drained: Drained, table: Table) -> dict[str, Any]:
    """What a drain did to a table of a route that is not the stream's own."""
    told: dict[str, Any] = {
        **routed_table_metadata(spec, target, table),
        **landed_rows(spec.stream, table, drained.epoch),
        "offsets": dg.MetadataValue.json(by_topic(drained.positions)),
        "epoch": drained.epoch,
        "config_hash": spec.config_hash,
    }
    return told | freshness_metadata(drained.valid_through_ms, drained.watermark_ms)


def routed_running_metadata(
    spec: StreamSpec, target: TargetSpec, sentence: str, work: Work | None, table: Table | None
) -> dict[str, Any]:
    """What there is to say of a table of a route, other than the stream's own, while a driver runs.

    Args:
        sentence: What seeing to the driver came to.
        work: Of its newest heartbeat; None without one.
        table: As it is now; None if the driver has not made it yet.
    """
    told: dict[str, Any] = {"done": sentence}
    if table is not None:
        told |= routed_table_metadata(spec, target, table)
    if work is not None:
        told |= {"offsets": dg.MetadataValue.json(work.position)}
        told |= freshness_metadata(work.valid_through_ms, work.watermark_ms)
    return told
