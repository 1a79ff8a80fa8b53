"""Checks of real increments by both engines: the same rows, and the same outcomes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

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
