"""Mirrors of tables that values name, in Dagster: one asset with a partition for each, told of by the sensor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.mirrors.model.merge_plan import MergeCounts, MergePlan, MergeResult
from jobs.mirrors.run.mirror_run import chosen_mirrors, run_mirror
from jobs.tables.commit.stamp.offsets import TopicPartition
from orchestration.definitions import build_definitions
from orchestration.sensors.mirrors_tick import MirrorsCursor, MirrorsTick, run_mirrors_tick
from resources.deployment import Deployment
from tests.debezium.samples import samples
from tests.helpers.lane_stream import LaneStream
from tests.unit.streaming.driver.test_lane_changes import DECODE, ROUTE

GROUP = dg.AssetKey(["frazil", "mirrors", "{table}"])


class Nothing:
    """Merges no row."""

    def merge(
        self, changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
    ) -> MergeResult:
        return MergeResult(plan.state, MergeCounts(read=1))

    def clear(self, mirror: Table, branch: str) -> None:
        pass


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LaneStream:
    wanted = [each for each in samples("postgresql") if each.topic.endswith((".orders", ".large"))]
    log: dict[TopicPartition, list[bytes | None]] = {}
    keys: dict[tuple[str, int], bytes] = {}
    for each in wanted:
        records = log.setdefault(TopicPartition(each.topic, 0), [])
        if each.key is not None:
            keys[each.topic, len(records)] = each.key
        records.append(each.value)
    monkeypatch.setattr(LaneStream, "keys", keys)
    more: dict[str, Any] = {
        "decode": DECODE,
        "changes": "debezium",
        "maintenance": {"enabled": False},
        "mirrors": [{"table": "mirrors.{table}"}],
    }
    one = LaneStream(tmp_path / "home", ROUTE, log, monkeypatch, **more)
    one.land()
    return one


def test_they_are_one_asset_behind_the_tables(stream: LaneStream) -> None:
    definitions = build_definitions(Deployment.at(stream.home))
    node = definitions.resolve_asset_graph().get(GROUP)
    assert node.parent_keys == {dg.AssetKey(["frazil", "shop", "{value}_changes"])}
    assert isinstance(node.partitions_def, dg.DynamicPartitionsDefinition)
    assert node.partitions_def.name == "shop.tables"
    assert "frazil_mirrors" in {each.name for each in definitions.sensors or ()}


def test_each_is_a_partition_that_the_sensor_tells_of(stream: LaneStream) -> None:
    memory = MirrorsCursor.from_cursor(None)

    def tick() -> MirrorsTick:
        nothing_reported = dict[dg.AssetKey, str]().get
        deployment = Deployment.at(stream.home)
        return run_mirrors_tick(deployment, lambda: stream.catalog, memory, nothing_reported, time.time())

    first = tick()
    assert first.partitions == {"shop.tables": ["large", "orders"]}
    assert {(each.asset_key, each.partition, type(each)) for each in first.events if each.asset_key == GROUP} == {
        (GROUP, "large", dg.AssetObservation),
        (GROUP, "orders", dg.AssetObservation),
    }
    assert tick().events == []

    for of, mirror in chosen_mirrors(stream.spec, stream.catalog, "mirrors.orders_changes"):
        run_mirror(of, mirror, stream.settings, stream.catalog, Nothing())
    merged = [each for each in tick().events if isinstance(each, dg.AssetMaterialization)]
    own = dg.AssetKey(["frazil", "mirrors", "orders_changes"])
    assert [(each.asset_key, each.partition) for each in merged] == [(own, None), (GROUP, "orders")]
    assert merged[1].metadata["changelog"].value == "shop.orders_changes"
    assert tick().events == []

    # Of a sensor without its cursor it is told that it is merged, and what the check says: one partition.
    memory = MirrorsCursor.from_cursor(None)
    again = tick()
    assert sum(each.partition == "orders" for each in again.events if hasattr(each, "partition")) == 2
    (request,) = again.partition_requests
    assert sorted(request.partition_keys) == ["large", "orders"]
