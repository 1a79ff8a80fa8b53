"""Maintenance of a pipeline's table within a test, in the session that tests share; and what a run has left behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.services.maintenance_policy import Policy
from jobs.config.settings.maintained_tables import MaintainedTable
from jobs.maintenance.plan.results import TableResult
from jobs.maintenance.run.table_maintenance import maintain_table
from tests.helpers.lake import later
from tests.integration.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLICY = {"compact": {"min_files": 2}, "expire": {"min_snapshots": 1}, "orphans": {"older_than": "3d"}}


def maintain(one: Pipeline, spark: SparkSession, only: str) -> TableResult:
    """A step of maintenance in three days, in this process."""
    table = MaintainedTable(one.table_name, Policy.model_validate(POLICY), one.stream, "sink")
    options: dict[str, Any] = {"specs": [one.spec()], "only": {only}, "now": later}
    result = maintain_table(connect_catalog(one.settings()), one.settings(), table, spark=lambda: spark, **options)
    assert result.errors == (), result.errors
    return result


def left_behind(one: Pipeline, *secrets: str) -> list[Path]:
    """Files of the deployment that hold a secret: logs, stamps, records, scratch."""
    files = [path for path in one.home.rglob("*") if path.is_file()]
    return [path for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)]
