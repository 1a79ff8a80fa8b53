"""Table contexts for tests: what a step of maintenance works with, on a lake and without Spark; and steps of one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyiceberg.table import Table

from jobs.config.services.maintenance_policy import Policy
from jobs.config.settings.settings import Settings, SparkSettings
from jobs.maintenance.measure.health_facts import PartitionFacts, PartitionValue
from jobs.maintenance.plan.iceberg_procedures import Procedures, RewriteResult
from jobs.maintenance.plan.plan import Step
from jobs.maintenance.plan.table_context import TableContext
from jobs.maintenance.run.orphan_removal import ListedFile
from jobs.maintenance.run.snapshot_holds import holds
from tests.helpers.lake import NAME, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MB, GB = 1024**2, 1024**3


EXPIRE = {"expire": {"min_snapshots": 1, "keep": "1m", "max_snapshots": 2}}
STEP = Step("expire", "", None, "")


class Started(Exception):
    """Spark would have been started."""


def spark() -> SparkSession:
    raise Started


def table_context(
    lake: Lake, policy: dict[str, Any] | None = None, procedures: Procedures | None = None, **options: Any
) -> TableContext:
    """The context of the lake's table; with procedures that stand in for Iceberg's, or none that could be reached."""
    if procedures is not None:
        options |= {"spark": lambda: None, "open_procedures": lambda *_: procedures}
    return TableContext(
        lake.catalog,
        lake.settings,
        options.pop("specs", [lake.spec]),
        options.pop("name", NAME),
        Policy.model_validate(EXPIRE if policy is None else policy),
        options.pop("spark", spark),
        **options,
    )


def set_properties(table: Table, **properties: str) -> None:
    with table.transaction() as transaction:
        transaction.set_properties(properties)


def held(lake: Lake, **options: Any) -> list[str]:
    """Who holds snapshots of the lake's table now."""
    return [hold.what for hold in holds(table_context(lake, **options), lake.table(), datetime.now(UTC))]


def with_secret(lake: Lake) -> Settings:
    """The lake's settings with a secret, which the environment has as PASS."""
    conf = SparkSettings.model_validate({"conf": {"spark.some.password": "${env:PASS}"}})
    return lake.settings.model_copy(update={"spark": conf})


def step(value: object, size: int = MB, **detail: int) -> Step:
    values = (PartitionValue("p", "p", "any", "identity", value, str(value)),)
    facts = PartitionFacts(0, values, f"p={value}", (size,), 1)
    details = {"target_file_size_bytes": 128 * MB, "min_file_size_bytes": 96 * MB, **detail}
    return Step("compact", facts.name, facts, "", files_before=3, files_after=1, bytes=size, detail=details)


def rewritten(value: object, size: int = MB) -> RewriteResult:
    return RewriteResult((value,), rewritten=3, added=1, bytes=size)


def listed(within: str) -> ListedFile:
    return ListedFile(f"s3://lake/t/{within}", within, 1, datetime(2026, 1, 1, tzinfo=UTC))
