"""Checks of real increments by both engines: the same rows, the same outcomes, and errors that say nothing of rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.contract.evaluation import EvaluationContext, evaluate
from jobs.contract.unavailable import SparkFailedError, is_unavailable
from jobs.increment.increment import added_files
from jobs.increment.row_selection import RowSelection
from jobs.increment.spark_rows import spark_frame
from jobs.spec.contract import Expectation
from tests.helpers.check_world import CheckWorld
from tests.unit.contract.test_usual_volume import VolumeWorld, at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def told(world: VolumeWorld, hour: Any, **options: Any) -> list[tuple[str, bool, str | None, int | None]]:
    found, outcomes = world.outcomes(hour, **options)
    assert found.recorded is bool(found.rows)
    return [(name, each.passed, each.observed, each.elements) for name, each in outcomes.items()]


def test_hour_by_hour_both_engines_say_the_same(tmp_path: Path, spark: SparkSession) -> None:
    said: dict[str, list[Any]] = {}
    for engine in ("pandas", "spark"):
        session = spark.newSession()
        world = VolumeWorld(tmp_path / engine)
        by = {"engine": engine, "spark": lambda session=session: session}
        said[engine] = [told(world, at(8, 5), **by)]
        for hour, rows in ((8, 1), (9, 10), (12, 10)):
            world.come([at(hour, 20)], rows)
            said[engine].append(told(world, at(hour, 31), **by))
        # Nothing comes: nothing is started for that.
        del by["spark"]
        said[engine].append(told(world, at(16), **by))
    assert said["spark"] == said["pandas"]
    volumes = [next(each for each in one if each[0] == "volume") for one in said["spark"]]
    assert [passed for _, passed, _, _ in volumes] == [True, True, False, False, False], volumes
    assert not spark.sparkContext._jsc.getPersistentRDDs(), "nothing of it stays in memory"  # pyright: ignore


def test_a_file_that_is_gone_is_no_fault_of_the_rows(tmp_path: Path, spark: SparkSession) -> None:
    world = CheckWorld(tmp_path / "home")
    world.land(0, [1.0, None])
    world.check()
    landed = world.land(2, [3.0, None])
    snapshot = world.table.metadata.snapshot_by_id(landed)
    assert snapshot is not None
    session, table = spark.newSession(), world.table
    (file,) = added_files(snapshot, table.io)
    rows = spark_frame(RowSelection(table, None, (file,)), {"id", "amount"}, session, world.landed.settings)
    entries: list[dict[str, Any]] = [
        {"expect_column_values_to_not_be_null": {"column": "amount"}},
        {"frazil_keys_to_be_unique": {"columns": ["id"]}},
    ]
    Path(file.file_path.removeprefix("file://")).unlink()
    for entry in entries:
        with pytest.raises(Exception) as raised:  # noqa: PT011
            evaluate(rows, [Expectation.model_validate(entry)], EvaluationContext())
        assert is_unavailable(raised.value), entry
    with pytest.raises(SparkFailedError, match="could not be checked, since Spark failed"):
        world.check(engine="spark", spark=lambda: session)
    assert world.recorded is not None and world.recorded.snapshot_id != snapshot.snapshot_id
