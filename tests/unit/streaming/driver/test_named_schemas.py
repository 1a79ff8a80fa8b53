"""Tables of topics without a subject of their own: of the schemas that their first records name."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest

from jobs.clients.kafka.topic_sample import SampleRecord
from jobs.records.formats.interface.problems import UNKNOWN_SCHEMA, ValueProblem
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId, WriterSchema
from jobs.records.formats.known_formats import FORMATS
from jobs.records.formats.record_columns import SchemaIdPlace
from jobs.records.formats.registry_wire import KEY_HEADER, VALUE_HEADER
from jobs.records.schema.iceberg_schema import with_null
from jobs.streaming.driver.tables.first_records import Part, named_rows
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.lane_stream import DEAD, LaneStream, Log
from tests.helpers.registry_server import RegistryServer, serving

AT = TopicPartition("t", 0)
AVRO = FORMATS["avro"]


def avro(**fields: Any) -> str:
    columns = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "R", "fields": columns})


SCHEMAS = {
    1: avro(id="string", n="int"),
    2: avro(id="string", n="long", note=["null", "string"]),
    3: avro(id="long", at="string"),
    4: avro(_kafka_offset="long"),
}


def value(number: int, schema: str, record: dict[str, Any]) -> bytes:
    made = io.BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(json.loads(schema)), record)
    return b"\x00" + struct.pack(">I", number) + made.getvalue()


def find(schema_id: SchemaId) -> RegistrySchema:
    if schema_id.number not in SCHEMAS:
        raise ValueProblem(UNKNOWN_SCHEMA, "unknown")
    kind = "JSON" if schema_id.number == 99 else "AVRO"
    return RegistrySchema(kind, WriterSchema(SCHEMAS[schema_id.number or 0]))


def named(number: int, rest: bytes = b"x" * 9) -> bytes:
    return b"\x00" + struct.pack(">I", number) + rest


def rows(
    values: Sequence[bytes | None],
    part: Part = "value",
    place: SchemaIdPlace = "both",
    headers: dict[str, bytes] | None = None,
) -> list[str] | None:
    told = tuple((headers or {}).items())
    sample = [
        SampleRecord(AT, n, each if part == "value" else b"{}", each if part == "key" else None, told)
        for n, each in enumerate(values)
    ]
    found = named_rows([sample[:1], sample[1:]], AVRO, {}, find, part=part, named=place)
    return None if found is None else [f"{each.name} {with_null(each)}" for each in found.fields]


def test_the_schemas_that_records_name_are_merged_those_of_most_records_first() -> None:
    assert rows([named(1), None, b"", b"{}", named(7)]) == ["id string not null", "n int not null"]
    assert rows([named(1), named(2)]) == ["id string not null", "n long not null", "note string"]
    # Of two types of a field that of most records counts; the others' values are dead letters, or what clash says.
    assert rows([named(1), named(3), named(3)]) == ["id long not null", "at string", "n int"]
    assert rows([named(3), named(1), named(1)]) == ["id string not null", "n int", "at string"]


def test_values_that_name_no_schema_have_the_one_that_the_file_names() -> None:
    sample = [[SampleRecord(AT, 0, b"x"), SampleRecord(AT, 1, None)]]
    found = named_rows(sample, AVRO, {"use.schema.id": 2}, find)
    assert found is not None and [each.name for each in found.fields] == ["id", "n", "note"]


@pytest.mark.parametrize("values", [[], [None], [b"{}"], [named(7)], [named(4)]])
def test_nothing_is_made_of_records_that_name_no_schema_with_columns(values: list[bytes | None]) -> None:
    assert rows(values) is None


def test_a_header_counts_before_the_first_bytes_where_the_file_says_so() -> None:
    header = {VALUE_HEADER: named(3, b"")}
    assert rows([named(1)], headers=header) == ["id long not null", "at string not null"]
    assert rows([named(1)], place="prefix", headers=header) == ["id string not null", "n int not null"]
    assert rows([named(1)], place="header", headers=header) == ["id long not null", "at string not null"]
    assert rows([named(1)], place="header") is None
    assert rows([named(1)], part="key") == ["id string not null", "n int not null"]
    assert rows([named(1)], part="key", headers={KEY_HEADER: named(3, b"")}) == [
        "id long not null",
        "at string not null",
    ]


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with serving(RegistryServer(dict(SCHEMAS), newest={"b-value": ("AVRO", avro(whole="long"))})) as running:
        yield running


def opened(home: Path, server: RegistryServer, monkeypatch: pytest.MonkeyPatch, epoch: int = 1, **more: Any) -> Any:
    decode = {"value": "avro", "schema": "registry", **more}
    log: Log = {TopicPartition("a", 0): [], TopicPartition("b", 0): []}
    route = {"by": "topic", "to": "lake.{value}"}
    return LaneStream(home, route, log, monkeypatch, epoch, registry=server.url, decode=decode)


def test_a_topic_without_a_subject_has_its_table_within_the_first_batch(
    tmp_path: Path, server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = opened(tmp_path / "home", server, monkeypatch)
    one.produce("a", value(1, SCHEMAS[1], {"id": "x", "n": 1}), value(1, SCHEMAS[1], {"id": "y", "n": 1}))
    one.produce("a", value(3, SCHEMAS[3], {"id": 5, "at": "now"}), b"no schema id")
    # The subject of the topic counts where there is one.
    one.produce("b", value(1, SCHEMAS[1], {"id": "x", "n": 1}))
    one.land()
    assert one.columns("lake.a") == {"id": "string", "n": "int", "at": "string"}
    assert set(one.columns("lake.b")) == {"whole", "id", "n"}
    # A record type that clashes by a field is a dead letter, as of a table that is there.
    assert one.placed() == {
        "lake.a": [("a", 0, 0), ("a", 0, 1)],
        "lake.b": [("b", 0, 0)],
        DEAD: [("a", 0, 2), ("a", 0, 3)],
    }
    assert one.letters()["a", 2].startswith("wrong_type: needs string") and "no_schema" in one.letters()["a", 3]
    # Another record type that comes later evolves the table.
    one.produce("a", value(2, SCHEMAS[2], {"id": "z", "n": 2**40, "note": "n"}))
    one.land(1)
    assert one.columns("lake.a") == {"id": "string", "n": "long", "at": "string", "note": "string"}


def test_a_topic_whose_records_name_nothing_waits_and_a_subject_that_the_file_names_is_waited_for(
    tmp_path: Path, server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = opened(tmp_path / "one", server, monkeypatch)
    one.produce("a", b"no schema id")
    one.land()
    said = "no subject a-value, whose newest version would make table lake.a, and no value of the first records names"
    assert said in one.letters()["a", 0]
    other = opened(tmp_path / "two", server, monkeypatch, subject="ours")
    other.produce("a", value(1, SCHEMAS[1], {"id": "x", "n": 1}))
    other.land()
    assert other.placed() == {DEAD: [("a", 0, 0)]} and "no subject ours" in other.letters()["a", 0]
