"""Materializing a stream each of whose tables has columns and late rows of its own: each table says what it got."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from jobs.streaming.driver.process.drain import Drained
from orchestration.definitions import build_definitions
from resources.deployment import Deployment
from tests.helpers.lane_stream import LaneStream

pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")

ROUTE: dict[str, Any] = {"by": "topic", "tables": [{"match": "a", "table": "lake.a"}], "to": "lake.of_{value}"}
MORE: dict[str, Any] = {
    "decode": {"value": {"format": "json", "infer": {"times": True}}, "schema": "infer"},
    "event_time": {"column": "at", "grace": "10m", "late": "table"},
    "trigger": "available_now",
}


def key_of(table: str) -> dg.AssetKey:
    return dg.AssetKey(["frazil", *table.split(".")])


def test_a_drain_is_told_of_tables_of_late_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = LaneStream(tmp_path / "home", ROUTE, {}, monkeypatch, **MORE)
    for topic in "ab":
        one.produce(topic, {"id": 1, "at": "2026-03-01T12:00:00Z"})
    one.land()
    for topic in "ab":
        one.produce(topic, *({"id": 2, "at": f"2026-03-01T{hour}:00:00Z"} for hour in (10, 11, 13)))

    def drained(*_: Any) -> Drained:
        """What the drain itself does, without Kafka and Spark."""
        again = LaneStream(tmp_path / "home", ROUTE, one.log, monkeypatch, 2, **MORE)
        done = again.land()
        heads = {each: again.stream.targets[each.name].snapshot_id for each in again.stream.spec.targets}
        return Drained("shop", 2, done.counts, [done], {}, snapshots=heads, valid_through_ms=1_000, seconds=1)

    monkeypatch.setattr("assets.materialization._drained", drained)
    job = build_definitions(Deployment.at(one.home)).resolve_implicit_global_asset_job_def()
    lake = {each for each in job.asset_layer.selected_asset_keys if each.path[:2] == ["frazil", "lake"]}
    wanted = {each for each in lake if len(each.path) == 3}
    assert {".".join(each.path[1:]) for each in wanted} == {"lake.stream", "lake.stream_dead", "lake.a", "lake.a_late"}
    told: dict[str, tuple[object, object]] = {}
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.get_subset(asset_selection=wanted).execute_in_process(instance=instance, raise_on_error=False)
        assert result.success
        assert instance.get_materialized_partitions(key_of("lake.of_{value}")) == {"b"}
        for table in ("lake.a", "lake.a_late", "lake.of_b", "lake.of_b_late"):
            event = instance.get_latest_materialization_event(key_of(table))
            assert event is not None and event.asset_materialization is not None, table
            facts = {name: value.value for name, value in event.asset_materialization.metadata.items()}
            told[table] = facts["rows_landed"], facts["dagster/row_count"]
    assert told == {"lake.a": (1, 2), "lake.a_late": (2, 2), "lake.of_b": (1, 2), "lake.of_b_late": (2, 2)}
