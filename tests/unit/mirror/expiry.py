"""Helpers for changes that expire: a table is maintained at a time, and the bases of the mirror are told."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

from pyiceberg.table.snapshots import Snapshot

from jobs.maintain import mirror_bases
from jobs.maintain.results import TableResult
from jobs.maintain.snapshot_retention import snapshot_time
from jobs.maintain.table_maintenance import maintain_table
from jobs.spec.maintained_tables import MaintainedTable
from jobs.spec.maintenance_policy import Policy
from jobs.time_travel.tags import tags_of
from tests.unit.mirror.mirror_world import AT, CHANGELOG, MIRROR, MirrorWorld

KEEP = {"envelope": "debezium", "keep": "30d"}
LATER = AT + timedelta(days=40)


def no_spark() -> Any:
    raise AssertionError("no Spark is needed")


def maintained(
    world: MirrorWorld, table: str, now: datetime = LATER, *, dry_run: bool = False, young: Collection[str] = ()
) -> TableResult:
    """What maintenance does at a time.

    Args:
        young: Bases that are a day old then; the others are old enough for changes to go by them.
    """
    days = {tag.snapshot_id: 1 for tag in tags_of(world.table().metadata) if tag.name in young} if young else {}

    def committed(snapshot: Snapshot) -> datetime:
        # They were made by the clock of this machine.
        return now - timedelta(days=days.get(snapshot.snapshot_id, 8))

    with patch.object(mirror_bases, "snapshot_time", committed if table == CHANGELOG else snapshot_time):
        return maintain_table(
            world.catalog(),
            world.settings,
            MaintainedTable(table, Policy(), "customers", "sink"),
            spark=no_spark,
            specs=[world.spec],
            only=["base", "changes"],
            dry_run=dry_run,
            now=lambda: now,
        )


def said(result: TableResult) -> str:
    """Why nothing was done, or what was."""
    assert result.errors == ()
    return " ".join([*(skip.reason for skip in result.plan.skips), *(step.reason for step in result.plan.steps)])


def bases_at(world: MirrorWorld) -> datetime:
    """When the base was committed, by the clock of this machine."""
    (tag,) = tags_of(world.table().metadata)
    assert tag.committed_at is not None
    return tag.committed_at


def bases(world: MirrorWorld) -> list[str]:
    return [tag.name for tag in tags_of(world.table().metadata)]


def expire(world: MirrorWorld) -> None:
    """All that is there is old, in a base, and gone."""
    world.merge()
    maintained(world, MIRROR, LATER + timedelta(days=60))
    (gone,) = maintained(world, CHANGELOG, LATER + timedelta(days=60)).done
    assert gone.detail["expired_changes"]
