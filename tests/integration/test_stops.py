"""Stops by a rolled back or dropped dead letter table, and by too many failed records: each says how to go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.commit.errors import (
    RolledBackError,
    TargetRecreatedError,
    ToleranceError,
)
from tests.integration.pipeline import GOOD, NULL_AMOUNT, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]


@pytest.mark.parametrize("answer", ["keep", "reland"])
def test_dead_letters_rolled_back(pipeline: Make, spark: SparkSession, answer: str) -> None:
    one = pipeline()
    one.produce({GOOD: 10, TRUNCATED: 1})
    one.drain(spark)
    table = one.dead_table()
    back_to = table.metadata.current_snapshot_id
    assert back_to is not None
    one.produce({GOOD: 20, TRUNCATED: 3})
    one.drain(spark)
    table.refresh()
    table.manage_snapshots().rollback_to_snapshot(back_to).commit()
    with pytest.raises(RolledBackError, match=f"(?s){table.name()[-1]} was rolled back .*--rollback keep"):
        one.drain(spark)
    if answer == "reland":
        # The pending record of a driver under which the table was rolled back.
        one.folder().store.put(one.folder().pending(1), b"stale")
    one.accept(rollback=answer)
    assert one.folder().pending_records() == []
    one.produce({GOOD: 5, TRUNCATED: 1})
    one.drain(spark)
    counts = (sum(one.landed().values()), sum(one.dead().values()))
    if answer == "reland":
        one.assert_exactly_once()
        assert counts == (35, 5)
    else:
        assert counts == (35, 2)
        assert set(one.landed().values()) == {1}


def test_dead_letters_dropped(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.produce({GOOD: 10, TRUNCATED: 2})
    one.drain(spark)
    name = one.dead_name
    one.catalog().drop_table(name)
    with pytest.raises(TargetRecreatedError, match=f"(?s){name} is gone.*--recreated {name}"):
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
