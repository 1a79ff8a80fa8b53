"""Helpers for changes that expire: a changelog is maintained at a time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from jobs.config.services.maintenance_policy import Policy
from jobs.config.settings.maintained_tables import MaintainedTable
from jobs.maintenance.plan.results import TableResult
from jobs.maintenance.run.table_maintenance import maintain_table
from tests.unit.mirrors.mirror_world import AT, CHANGELOG, MirrorWorld

KEEP = {"envelope": "debezium", "keep": "30d"}
LATER = AT + timedelta(days=40)


def no_spark() -> Any:
    raise AssertionError("no Spark is needed")


def maintained(world: MirrorWorld, now: datetime = LATER, *, dry_run: bool = False) -> TableResult:
    """What maintenance does to the changelog at a time."""
    return maintain_table(
        world.catalog(),
        world.settings,
        MaintainedTable(CHANGELOG, Policy(), "customers", "sink"),
        spark=no_spark,
        specs=[world.spec],
        only=["changes"],
        dry_run=dry_run,
        now=lambda: now,
    )


def said(result: TableResult) -> str:
    """Why nothing was done, or what was."""
    assert result.errors == ()
    return " ".join([*(skip.reason for skip in result.plan.skips), *(step.reason for step in result.plan.steps)])


def expire(world: MirrorWorld) -> None:
    """All that is there is old, merged, and gone."""
    world.merge()
    (gone,) = maintained(world, LATER + timedelta(days=60)).done
    assert gone.detail["expired_changes"]
