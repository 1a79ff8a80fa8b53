"""A whole database in one stream: a changelog for each of its tables, with columns and keys of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.mirrors.model.errors import KeylessChangelogError
from jobs.mirrors.run.mirror_run import chosen_mirrors
from jobs.mirrors.run.mirror_status import mirror_status
from jobs.tables.commit.stamp.offsets import TopicPartition
from orchestration.cli.stream_files.validate.mirror_checks import check_mirrors
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
    assert one.letters() == {}
    rows = {topic: sum(each.value is not None for each in found) for topic, found in by_topic.items()}
    assert done.counts.filtered == len(heartbeats)
    assert len(one.placed()[orders]) == rows["postgresql.public.orders"] - len(heartbeats)
    assert len(one.placed()["shop.large_changes"]) == rows["postgresql.public.large"]
    # A table without a key has a changelog as well, and no mirror.
    assert len(one.placed()[visits]) == rows["postgresql.public.visits"]
    assert not {"_change_key", "_change_old_key"} & {*one.columns(visits)}
    found = one.catalog.load_table(orders).scan().to_arrow().to_pylist()
    assert {each["_change_lineage"] for each in found} == {"postgresql/postgresql/postgres"}
    assert {each["_change_key"]["id"] for each in found} == {1, 2}
    one.catalog.close()


def test_a_table_without_a_key_lands_beside_the_others_and_has_no_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = {"value": "json", "schema": "infer", "key": {"format": "json", "schema": "infer", "into": "_change_key"}}
    more: dict[str, Any] = {"decode": decode, "changes": "debezium", "mirrors": [{"table": "now.{table}"}]}

    def event(op: str, number: int) -> dict[str, Any]:
        row, source = {"id": number}, {"connector": "x", "ts_ms": 1}
        return {"op": op, "before": row if op == "d" else None, "after": None if op == "d" else row, "source": source}

    monkeypatch.setattr(LaneStream, "keys", {("s.kept", 0): b'{"id": 1}', ("s.kept", 1): b'{"id": 2}'})
    one = LaneStream(tmp_path / "home", ROUTE, {}, monkeypatch, **more)
    one.produce("s.kept", event("c", 1))
    one.produce("s.bare", event("c", 1), event("d", 1))
    one.land()
    # The next driver has it by what the table keeps, also once records have keys.
    monkeypatch.setattr(LaneStream, "keys", {**LaneStream.keys, ("s.bare", 3): b'{"id": 3}'})
    two = LaneStream(tmp_path / "home", ROUTE, one.log, monkeypatch, epoch=2, **more)
    two.produce("s.kept", event("c", 2))
    two.produce("s.bare", event("c", 2), event("c", 3))
    two.land(batch=1)
    assert two.letters() == {}
    assert {name: len(rows) for name, rows in two.placed().items()} == {"shop.kept_changes": 2, "shop.bare_changes": 4}
    assert "_change_key" not in two.columns("shop.bare_changes")
    problems = {
        mirror.table: mirror_status(of, mirror, two.settings, two.catalog).problem
        for of, mirror in chosen_mirrors(two.spec, two.catalog)
    }
    assert problems["now.kept_changes"] is None
    assert isinstance(problems["now.bare_changes"], KeylessChangelogError)
    findings = {each.sentence: each for each in check_mirrors(two.spec, two.settings, two.catalog)}
    assert findings[problems["now.bare_changes"].message].verdict == "unchecked"
