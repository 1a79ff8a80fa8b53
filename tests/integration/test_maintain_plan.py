"""A plan says what is then done, with the same numbers, and a run leaves nothing due: with Spark, on several tables.

`tests/unit/maintenance/test_planner.py` and `test_plan_expiry.py` hold it of any table, as the procedures behave.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from jobs.maintenance.plan.results import TableResult
from tests.helpers.lake import NAME, Lake, spec_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

OLD: dict[str, Any] = {"expire": {"min_snapshots": 2, "keep": "1h"}, "compact": {"min_files": 2}}
YOUNG: dict[str, Any] = {"expire": {"min_snapshots": 2, "max_snapshots": 5}, "compact": {"min_files": 3}}


def evolved(home: Path) -> tuple[Lake, str]:
    """Without partitions at first, by days since; small files of both."""
    lake = Lake(home, spec_of(()))
    for _ in range(6):
        lake.land(days=3, rows=2)
    with lake.table().update_spec() as update:
        update.add_field("created_at", "day", "created_at_day")
    for _ in range(5):
        lake.land(days=3, rows=2)
    return lake, NAME


def of_version_1(home: Path) -> tuple[Lake, str]:
    """Somebody else's, and of an old format."""
    lake = Lake(home)
    schema = Schema(NestedField(1, "id", LongType()))
    table = lake.catalog.create_table("lake.old", schema, properties={"format-version": "1"})
    for number in range(24):
        table.append(pa.table({"id": [number]}, schema=schema.as_arrow()))
    return lake, "lake.old"


@pytest.mark.parametrize(("made", "policy", "days"), [(evolved, YOUNG, 0), (of_version_1, OLD, 3)])
def test_what_is_planned_is_done_and_nothing_is_due_after_it(
    tmp_path: Path, spark: SparkSession, made: Callable[[Path], tuple[Lake, str]], policy: dict[str, Any], days: int
) -> None:
    lake, name = made(tmp_path / "home")
    then = datetime.now(UTC) + timedelta(days=days)

    def maintain(**options: Any) -> TableResult:
        return lake.maintain(lambda: spark, policy, name=name, now=lambda: then, **options)

    rows = lake.table(name).scan(selected_fields=("id",)).to_arrow().sort_by("id")
    planned = maintain(dry_run=True).plan
    assert {"compact", "expire"} <= {step.action for step in planned.steps}
    done = maintain()
    assert done.errors == ()
    assert [(step.action, step.scope) for step in planned.steps] == [
        (each.step.action, each.step.scope) for each in done.done
    ]
    for step, each in zip(planned.steps, done.done, strict=True):
        assert each.done
        if step.action == "compact":
            assert (each.files_before, each.files_after) == (step.files_before, step.files_after)
            assert each.bytes == step.bytes
        elif step.action == "manifests":
            assert each.files_after == step.files_after
    assert done.after is not None
    assert maintain(dry_run=True).plan.steps == ()
    # A compaction is a snapshot, too; every other one that the plan let go is gone.
    (expiry,) = (step for step in planned.steps if step.action == "expire")
    gone = expiry.files_before - expiry.files_after
    (expired,) = (each for each in done.done if each.step.action == "expire")
    assert expired.files_before - expired.files_after >= gone > 0
    assert lake.table(name).scan(selected_fields=("id",)).to_arrow().sort_by("id").equals(rows)
