"""Columns of a new table of which no file tells: of records that carry their schema in Connect's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.kafka.topic_sample import SampleRecord
from jobs.records.schema.iceberg_schema import schema_text, with_null
from jobs.streaming.driver.tables import first_records
from jobs.streaming.driver.tables.first_records import RecordsAwaitedError, inferred_rows, key_columns
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.debezium.samples import Name, samples
from tests.helpers.evolving_stream import SINK, EvolvingStream

AT = TopicPartition("payments", 0)
UNWRAP = {"smt": {"type": "ExtractNewRecordState", "add.fields": "op"}}


def of(kind: str, name: str, *, optional: bool = True) -> dict[str, Any]:
    return {"type": kind, "field": name, "optional": optional}


def envelope(after: dict[str, Any] | None, *fields: dict[str, Any]) -> bytes:
    row = {"type": "struct", "optional": True, "fields": [of("string", "id", optional=False), *fields]}
    events = [row | {"field": "before"}, row | {"field": "after"}, of("string", "op", optional=False)]
    payload = {"before": None, "after": after, "op": "c"}
    return json.dumps({"schema": {"type": "struct", "fields": events}, "payload": payload}).encode()


FIRST = envelope({"id": "a", "n": 1}, of("int32", "n"))
SECOND = envelope({"id": "b", "n": 2**40, "colour": "red"}, of("int64", "n"), of("string", "colour"))


@pytest.fixture
def one(tmp_path: Path) -> EvolvingStream:
    decode = {"value": "connect_json", "schema": "infer"}
    return EvolvingStream(tmp_path, columns="before struct<x: int>, after struct<x: int>, op string", decode=decode)


def found(one: EvolvingStream, monkeypatch: pytest.MonkeyPatch, *values: bytes | None) -> list[str]:
    def sample(*_: Any) -> Iterator[Sequence[SampleRecord]]:
        yield [SampleRecord(AT, offset, value) for offset, value in enumerate(values)]

    monkeypatch.setattr(first_records, "read_sample", sample)
    monkeypatch.setattr(KafkaLog, "first_start", lambda *_: {AT: 0})
    log = LogState({"payments": ""}, {AT: 0}, {AT: len(values)})
    return [f"{each.name} {with_null(each)}" for each in inferred_rows(one.spec, one.settings, log).fields]


def test_the_schemas_of_the_records_say_the_columns(one: EvolvingStream, monkeypatch: pytest.MonkeyPatch) -> None:
    row = "struct<id string not null, n long, colour string>"
    assert found(one, monkeypatch, None, b"no envelope", FIRST, SECOND) == [
        f"before {row}", f"after {row}", "op string not null",
    ]  # fmt: skip
    with pytest.raises(RecordsAwaitedError, match="have no record yet that determines the columns"):
        found(one, monkeypatch, None, b"no envelope")


def test_logical_types_may_stay_as_they_were_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zoned = "io.debezium.time.ZonedTimestamp"
    decode = {"value": {"format": "connect_json", "as_sent": [zoned]}, "schema": "infer"}
    one = EvolvingStream(tmp_path, columns="id string, until string", decode=decode)
    fields = [of("string", "id"), of("string", "until") | {"name": zoned}]
    schema = {"type": "struct", "fields": fields}
    record = json.dumps({"schema": schema, "payload": {"id": "a", "until": "infinity"}}).encode()
    assert found(one, monkeypatch, record) == ["id string", "until string"]
    one.land(record)
    assert (one.rows, one.letters) == ([{"id": "a", "until": "infinity"}], {})


def test_fields_whose_names_no_table_can_have_are_no_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"name": SINK, "partition_by": ["day(at)"]}
    one = EvolvingStream(tmp_path, columns="id string, at timestamptz", more={"table": table})
    record = b'{"id": "a", "_pos": 1, "at": "x", "at_day": "mon", "1x": 1, "_1x": 2, "_kafka_x": 1}'
    assert found(one, monkeypatch, record) == ["id string", "at string", "1x long"]
    with pytest.raises(RecordsAwaitedError):
        found(one, monkeypatch, b'{"_pos": 1}')


def test_events_in_envelopes_are_unwrapped_and_their_table_grows(tmp_path: Path) -> None:
    row = "struct<id: string not null, n: int>"
    one = EvolvingStream(
        tmp_path,
        columns=f"before {row}, after {row}, op string not null",
        decode={"value": "connect_json", "schema": "infer"},
        more={"transform": [UNWRAP]},
    )
    one.land(FIRST)
    one.land(SECOND, batch=1)
    assert one.rows == [
        {"id": "a", "n": 1, "__op": "c"},
        {"id": "b", "n": 2**40, "colour": "red", "__op": "c"},
    ]
    assert (one.letters, one.columns["n"]) == ({}, "long")


def test_columns_that_the_file_names_have_to_be_in_the_first_records(tmp_path: Path) -> None:
    table = {"name": SINK, "partition_by": ["day(at)", "shop"]}
    with pytest.raises(FrazilError, match="shop"):
        EvolvingStream(tmp_path, columns="id string, at timestamptz", more={"table": table})


def sample(name: Name, *topics: str) -> list[SampleRecord]:
    return [
        SampleRecord(TopicPartition(each.topic, each.partition), each.offset, each.value, each.key)
        for each in samples(name)
        if each.topic.endswith(topics)
    ]


@pytest.mark.parametrize("name", ["postgresql", "schemaless"])
@pytest.mark.parametrize(
    ("table", "columns"),
    [("customers", "struct<id {n} not null>"), ("orders", "struct<region string not null, id long not null>")],
)
def test_the_keys_of_rows_say_it_whatever_else_is_in_the_topic(name: Name, table: str, columns: str) -> None:
    connect = name == "postgresql"
    found = key_columns([sample(name, table, "message", "heartbeat." + name)], connect=connect, events=True)
    assert found is not None
    # Without a schema nobody knows how large a number may be, and what is always there.
    known = columns.format(n="int") if connect else columns.format(n="long").replace(" not null", "")
    assert schema_text(found.as_struct()) == known


@pytest.mark.parametrize("name", ["postgresql", "schemaless"])
def test_a_table_without_keys_says_nothing(name: Name) -> None:
    found = key_columns([sample(name, "visits")], connect=name == "postgresql", events=True)
    assert found is not None and not found.fields
    # Of heartbeats alone nobody can say it, nor beside a key without fields.
    assert key_columns([sample(name, "heartbeat." + name)], connect=name == "postgresql", events=True) is None
    keyed = [each._replace(key=b"1") for each in sample(name, "visits")[:1]]
    assert key_columns([sample(name, "visits"), keyed], connect=name == "postgresql", events=True) is None


def test_of_records_that_are_no_changes_all_keys_count() -> None:
    found = key_columns([sample("schemaless", "customers", "message")], connect=False, events=False)
    assert found is not None
    assert {each.name for each in found.fields} == {"id", "prefix"}
