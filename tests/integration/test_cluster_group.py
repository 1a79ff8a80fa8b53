"""Streams that share a driver on a standalone cluster of Spark: one application, one small executor for them all."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.helpers.spark_cluster import CLUSTER_SECRET, SECRET_VARIABLE, spark_cluster
from tests.helpers.waiting import wait_for
from tests.integration.driver_group import driver_group, landed_once
from tests.integration.pipeline import GOOD, SPARK_CONF

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


def test_a_stream_that_fails_and_an_executor_that_is_killed_keep_no_neighbour(
    tmp_path: Path, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, CLUSTER_SECRET)
    with spark_cluster(tmp_path / "cluster", "master", "worker1") as cluster:
        spark = {"master": cluster.url, "driver_memory": "600m", "conf": cluster.conf | SPARK_CONF}
        with driver_group(tmp_path / "home", broker, {"spark": spark}) as made:
            one, two, three = made.streams
            made.produce()
            made.start()
            made.complete(120)
            first = made.process()
            beats = [each.beat() for each in made.streams]
            (application,) = {beat.application_id for beat in beats}
            assert [app["id"] for app in cluster.state()["activeapps"]] == [application]
            assert len(cluster.executors()) == 1

            # One of which the table is gone ends with an error, by itself.
            catalog = three.catalog()
            catalog.rename_table(three.table_name, f"{three.table_name}_gone")
            made.produce()
            wait_for(lambda: three.beat().state == "failed", "the stream without a table to fail", 90)
            for each in (one, two):
                landed_once(each)

            # So it does not matter to the two that their executor dies: another one takes its place, in the same
            # application of the same driver.
            (executor,) = cluster.executors()
            os.kill(executor, signal.SIGKILL)
            for each in (one, two):
                each.produce({GOOD: 50})
            for each in (one, two):
                landed_once(each, 120)
            assert executor not in cluster.executors()
            assert made.process() == first
            assert {each.beat().application_id for each in (one, two)} == {application}
            assert [each.beat().attempt for each in (one, two)] == [1, 1]

            catalog.rename_table(f"{three.table_name}_gone", three.table_name)
            three.control().start("the table is back", "tester")
            made.complete(120)
            assert {each.beat().pid for each in made.streams} == {first.pid}
