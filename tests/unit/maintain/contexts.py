"""Table contexts for tests: what a step of maintenance works with, on a lake and without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyiceberg.table import Table

from jobs.maintain.iceberg_procedures import Procedures
from jobs.maintain.plan import Step
from jobs.maintain.snapshot_holds import holds
from jobs.maintain.table_context import TableContext
from jobs.spec.maintenance_policy import Policy
from jobs.spec.settings import Settings, SparkSettings
from tests.helpers.lake import NAME, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    specs = options.pop("specs", [lake.spec])
    return [hold.what for hold in holds(lake.catalog, lake.settings, specs, NAME, lake.table(), datetime.now(UTC))]


def with_secret(lake: Lake) -> Settings:
    """The lake's settings with a secret, which the environment has as PASS."""
    conf = SparkSettings.model_validate({"conf": {"spark.some.password": "${env:PASS}"}})
    return lake.settings.model_copy(update={"spark": conf})
