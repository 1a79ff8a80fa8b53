"""A whole database in one stream: a changelog for each of its tables, with columns and keys of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.commit.offsets import TopicPartition
from tests.debezium.samples import Sample, samples
from tests.helpers.lane_stream import LaneStream

DECODE: dict[str, Any] = {
    "value": "connect_json",
    "schema": "infer",
    "key": {"format": "connect_json", "schema": "infer", "into": "_change_key"},
}
ROUTE = {"by": "regexp_replace(_topic, '^.*[.]', '')", "to": "shop.{value}_changes"}


def test_each_table_of_a_database_has_its_changelog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [each for each in samples("postgresql") if each.topic.endswith((".orders", ".large", ".visits"))]
    by_topic: dict[str, list[Sample]] = {}
    for each in wanted:
        by_topic.setdefault(each.topic, []).append(each)
    # Heartbeats in the topic of a table, whatever their keys are.
    heartbeats = [each for each in samples("postgresql") if each.topic.startswith("__debezium-heartbeat")]
    by_topic["postgresql.public.orders"] += heartbeats
    keys = {
        (topic, at): each.key
        for topic, records in by_topic.items()
        for at, each in enumerate(records)
        if each.key is not None
    }
    monkeypatch.setattr(LaneStream, "keys", keys)
    log = {TopicPartition(topic, 0): [each.value for each in records] for topic, records in by_topic.items()}
    more: dict[str, Any] = {"decode": DECODE, "changes": "debezium", "maintenance": {"enabled": False}}
    one = LaneStream(tmp_path / "home", ROUTE, log, monkeypatch, **more)
    done = one.land()
    orders, visits = "shop.orders_changes", "shop.visits_changes"
    assert one.columns(orders)["_change_key"] == "struct<region string not null, id long not null>"
    assert {"region", "id", "amount", "notes", "paid"} <= {*one.columns(orders)}
    # A table without a key has none that its changelog could be told by.
    letters = one.letters()
    assert {topic for topic, _ in letters} == {"postgresql.public.visits"}
    assert all("no record yet whose key says which columns" in each for each in letters.values())
    assert visits not in one.placed()
    rows = {topic: sum(each.value is not None for each in found) for topic, found in by_topic.items()}
    assert done.counts.filtered == len(heartbeats)
    assert len(one.placed()[orders]) == rows["postgresql.public.orders"] - len(heartbeats)
    assert len(one.placed()["shop.large_changes"]) == rows["postgresql.public.large"]
    found = one.catalog.load_table(orders).scan().to_arrow().to_pylist()
    assert {each["_change_lineage"] for each in found} == {"postgresql/postgresql/postgres"}
    assert {each["_change_key"]["id"] for each in found} == {1, 2}
    one.catalog.close()
