"""A driver whose stream lands less often while its own table is red."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from jobs.commit.stamp_history import stamped_snapshots
from jobs.state.stream_folder import state_store
from jobs.state.table_health import TableHealth, table_part, write_health
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def test_a_driver_lands_less_often_while_its_table_is_red(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    one = pipeline()
    one.produce({GOOD: 3})
    one.drain(spark)
    write_health(
        table_part(state_store(one.settings()), str(one.table().metadata.table_uuid)), TableHealth(12, time.time())
    )
    one.write_spec(trigger={"every": "1s", "while_red": "5s"})
    one.control().start("the test begins", "tester")

    def landed_four() -> bool:
        one.produce({GOOD: 1})
        return one.beat().work.batches >= 4

    try:
        wait_for(lambda: one.folder().store.get("heartbeat.json") and landed_four(), "four batches to land", 90)
    finally:
        one.control().stop("the test ends", "tester")
    one.assert_contiguous()
    epoch = one.beat().epoch
    stamped = stamped_snapshots(one.table().metadata, one.stream)
    times = [each.timestamp_ms for each, stamp in stamped if stamp.epoch == epoch and stamp.kind == "batch"]
    # From begin to begin it is five seconds; how long each then takes differs, of the first most.
    assert times[3] - times[1] > 5_000, times
    assert "health of 12 of 100; it lands less often" in (one.folder().root / "logs" / "driver.log").read_text()
