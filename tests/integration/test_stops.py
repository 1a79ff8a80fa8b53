"""Stops by a dropped dead letter table, and by too many failed records: each says how to go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.tables.commit.stamp.errors import TargetRecreatedError, ToleranceError
from tests.integration.pipeline import GOOD, NULL_AMOUNT, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]


def test_dead_letters_dropped(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.produce({GOOD: 10, TRUNCATED: 2})
    one.drain(spark)
    name = one.dead_name
    one.catalog().drop_table(name)
    with pytest.raises(TargetRecreatedError, match=f"(?s){name} was dropped.*--recreated {name}"):
        one.drain(spark)
    one.accept(recreated_table=name)
    one.produce({GOOD: 3, TRUNCATED: 1})
    one.drain(spark)
    assert set(one.landed().values()) == {1}
    assert sum(one.landed().values()) == 13
    assert sum(one.dead().values()) == 1


def test_tolerance_none_and_the_breaker(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.produce({GOOD: 90, NULL_AMOUNT: 6, TRUNCATED: 4})
    one.write_spec(errors={"tolerance": "none"})
    with pytest.raises(ToleranceError, match=rf"topic {one.stream}, partition \d, offset \d+: "):
        one.drain(spark)
    one.write_spec(errors={"stop_above": {"ratio": 0.05, "min_records": 50}})
    with pytest.raises(ToleranceError, match=r"(?s)10 of 100 .*6 × null_in_required.*4 × malformed_json"):
        one.drain(spark)
    assert sum(one.landed().values()) == sum(one.dead().values()) == 0
    data = Path(one.table().location().removeprefix("file://")) / "data"
    assert list(data.rglob("*.parquet")) == [], "nothing of a refused batch is left behind"
    one.write_spec()
    one.drain(spark)
    one.assert_exactly_once()
