"""The file of a stream whose records carry their schema: columns of the schemas, comments of what was seen."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import types as ice

from jobs.base.errors import FrazilError
from jobs.clients.kafka.topic_sample import SampleRecord
from jobs.config.stream.models import StreamSpec
from jobs.records.formats.connect_json.inference import merged_columns, merged_type
from jobs.records.schema.iceberg_schema import iceberg_schema, with_null
from jobs.records.schema.parser import parse_schema
from jobs.tables.commit.stamp.offsets import TopicPartition
from orchestration.cli.stream_files.schema.infer import sampled_format
from orchestration.cli.stream_files.schema.infer_connect import LookedAtEnvelopes
from orchestration.cli.stream_files.schema.stream_yaml import stream_yaml
from tests.helpers.connect_records import connect_schema, kinds
from tests.helpers.json_records import structs

DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}

TIME = {"type": "int32", "name": "org.apache.kafka.connect.data.Time", "optional": True}


def schema(version: int, **fields: Any) -> dict[str, Any]:
    made = [{"field": name, **({"type": kind} if isinstance(kind, str) else kind)} for name, kind in fields.items()]
    return {"type": "struct", "name": "shop.Order", "version": version, "fields": made}


def envelope(of: Any, payload: Any) -> bytes:
    return json.dumps({"schema": of, "payload": payload}).encode()


def looked(*values: bytes | None, show: bool = False) -> LookedAtEnvelopes:
    found = LookedAtEnvelopes(show_values=show)
    half = len(values) // 2
    records = [SampleRecord(TopicPartition("t", 3), offset, value) for offset, value in enumerate(values)]
    found.add(records[:half])
    found.add(records[half:])
    return found


def written(found: LookedAtEnvelopes) -> str:
    return stream_yaml(found.stream("t", "newest", "s", "landing.s"))


FIRST = schema(1, id="string", n={"type": "int32", "optional": True}, amount=DECIMAL)
SECOND = schema(2, id="string", n="int64", amount=DECIMAL, note={"type": "string", "optional": True})
VALUES = (
    envelope(FIRST, {"id": "a1", "n": 5, "amount": "AQ=="}),
    envelope(FIRST, {"id": "a22", "n": None, "amount": "Cg=="}),
    envelope(SECOND, {"id": "b", "n": 7_000, "amount": "ZA==", "note": "secret"}),
    envelope(SECOND, {"id": "b", "n": "x", "amount": "ZA=="}),
    envelope(None, {"id": "c"}),
    b"{}",
    None,
)


def test_columns_are_those_of_all_schemas_and_comments_say_what_was_seen() -> None:
    text = written(looked(*VALUES))
    spec = StreamSpec.model_validate(yaml.safe_load(text))
    assert spec.decode.format == "connect_json"
    declared = yaml.safe_load(text)["decode"]["schema"]
    assert declared == ["id string", "n long", "amount decimal(38,2)", "note string"]
    unfolded = " ".join(line.strip().removeprefix("#").strip() for line in text.splitlines())
    assert "from the newest 7 records of topic t, of which 3 are envelopes" in unfolded
    assert "shop.Order version 1 in 2 records, first at t[3]@0" in unfolded
    assert "shop.Order version 2 in 2 records, first at t[3]@2" in unfolded
    assert "Tombstones: 1;" in unfolded
    assert "Without a schema in the envelope: 1;" in unfolded
    assert "Would become dead letters: 1 bad_envelope, 1 wrong_type; the first at t[3]@5" in unfolded
    assert "in every record; 1 to 3 characters; required by the schema; first at t[3]@0 - id string" in unfolded
    assert "in every record, null in 1; 5 to 7,000; first at t[3]@0 - n long" in unfolded
    assert "0.01 to 1.00; the schema has no number of digits; decimal(18,2) would hold these" in unfolded
    assert "in 1 of 3 records; 6 characters; in 1 of 2 schemas; first at t[3]@2 - note string" in unfolded
    assert "secret" not in text
    assert "such as 'secret'" in written(looked(*VALUES, show=True))


def test_a_type_that_differs_between_schemas_is_told() -> None:
    text = written(looked(envelope(schema(1, a="string"), {"a": "x"}), envelope(schema(2, a="int32"), {"a": 1})))
    assert yaml.safe_load(text)["decode"]["schema"] == ["a json"]
    unfolded = " ".join(line.strip().removeprefix("#").strip() for line in text.splitlines())
    assert "of another type in shop.Order version 1 (first at t[3]@0): json takes both" in unfolded


def test_what_no_column_can_be_is_left_out() -> None:
    by_number = {"type": "map", "keys": {"type": "int32"}, "values": {"type": "string"}}
    made = schema(1, id="string", m=by_number, t=TIME, _kafka_x="string")
    text = written(looked(envelope(made, {"id": "a", "m": [[1, "x"]], "_kafka_x": "y"})))
    assert "# Left out: t: Spark reads no table with a time of day" in text
    assert yaml.safe_load(text)["decode"]["schema"] == ["id string"]
    assert "# Left out: m: a column cannot be declared as map<int, string" in text
    assert "# Left out: _kafka_x: names that start with _kafka are kept" in text


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "array", "items": TIME},
        {"type": "map", "keys": {"type": "string"}, "values": {"type": "array", "items": TIME}},
        {"type": "struct", "fields": [{"field": "at", **TIME}, {"field": "y", "type": "string"}]},
    ],
)
def test_a_time_of_day_within_a_type_of_several_schemas_is_left_out(kind: dict[str, Any]) -> None:
    # In the older schema the column has the id that something within it has in the newer one.
    for more in range(4):
        older = schema(1, id="string", **dict.fromkeys("abcd"[:more], "string"), t=kind)
        text = written(looked(envelope(older, {}), envelope(schema(2, id="string", t=kind), {})))
        assert "# Left out: t: Spark reads no table with a time of day" in text
        assert StreamSpec.model_validate(yaml.safe_load(text)).decode.declared is not None


def test_records_without_a_schema_with_columns_are_an_error() -> None:
    with pytest.raises(FrazilError, match="no record that was looked at is an envelope whose schema has columns"):
        written(looked(envelope(None, {"id": "c"}), b"{}"))


@settings(max_examples=60, deadline=None)
@given(st.lists(structs(kinds), min_size=1, max_size=3))
def test_whatever_schemas_say_the_file_is_valid(declared: Any) -> None:
    text = written(looked(*(envelope(connect_schema(each), {}) for each in declared), envelope(FIRST, {})))
    assert StreamSpec.model_validate(yaml.safe_load(text)).decode.declared is not None


def test_merged_types() -> None:
    def struct(*fields: tuple[str, ice.IcebergType, bool]) -> ice.StructType:
        return ice.StructType(*(ice.NestedField(n, name, kind, must) for n, (name, kind, must) in enumerate(fields)))

    wide = merged_type(
        struct(("a", ice.IntegerType(), True), ("b", ice.StringType(), True)),
        struct(("a", ice.LongType(), True), ("c", ice.DateType(), True)),
    )
    expected = struct(("a", ice.LongType(), True), ("b", ice.StringType(), False), ("c", ice.DateType(), False))
    assert isinstance(wide, ice.StructType)
    assert [(each.name, each.field_type, each.required) for each in wide.fields] == [
        (each.name, each.field_type, each.required) for each in expected.fields
    ]
    assert merged_type(struct(("a", ice.IntegerType(), True)), struct(("a", ice.DateType(), True))) is None
    cased = merged_type(struct(("Id", ice.LongType(), True)), struct(("id", ice.DateType(), True)))
    assert isinstance(cased, ice.StructType)
    assert [(each.name, each.required) for each in cased.fields] == [("Id", False)], "a table has one of the two"
    assert merged_type(ice.StringType(), ice.ListType(1, ice.StringType())) is None
    assert merged_type(ice.MapType(1, ice.StringType(), 2, ice.IntegerType()), _map(ice.LongType())) == _map(
        ice.LongType()
    )


@pytest.mark.parametrize(
    ("schemas", "columns"),
    [
        # As often: the first one's type and name.
        (
            {
                "s struct<a: int not null, b: string> not null, Id int": 1,
                "s struct<a: long, c: double>, id int, n int": 1,
            },
            ["s struct<a long, b string, c double>", "Id int", "n int"],
        ),
        (
            {f"s struct<{each} int not null> not null": 1 for each in ("Id", "id", "n")},
            ["s struct<Id int, n int> not null"],
        ),
        ({"d long, n int": 1, "d string not null": 9}, ["d string", "n int"]),
        # Together the numbers are more than the texts.
        ({"d string not null": 4, "d int not null": 3, "d long not null": 2}, ["d long not null"]),
        ({"Id int not null": 1, "id int not null": 2}, ["id int"]),
        ({}, []),
    ],
)
def test_columns_of_several_schemas_hold_most_records(schemas: dict[str, int], columns: list[str]) -> None:
    merged = merged_columns([iceberg_schema(parse_schema(each)) for each in schemas], list(schemas.values()))
    assert [f"{each.field.name} {with_null(each.field)}" for each in merged] == columns


def test_the_type_of_most_records_is_the_column_whichever_schema_is_newest() -> None:
    texts = [envelope(schema(1, d="string"), {"d": "x"})] * 19
    text = written(looked(*texts, envelope(schema(2, d="int64"), {"d": 1})))
    assert yaml.safe_load(text)["decode"]["schema"] == ["d string"]
    assert "of another type in shop.Order version 2 (first at t[3]@19)" in " ".join(text.split()).replace(" # ", " ")


def _map(value: ice.IcebergType) -> ice.MapType:
    return ice.MapType(1, ice.StringType(), 2, value)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([b'{"a":1}', b"x"], "json"),
        ([], "json"),
        ([VALUES[0], VALUES[2], b"{"], "connect_json"),
        ([b'{"schema":null,"payload":{}}'], "json"),
        ([b'{"schema":"orders","payload":{"a":1}}'], "json"),
        ([b"\0\0\0\0\1x", b"\0\0\0\0\1y", b"{"], "framed"),
        ([b"\0\0\0\1"], "json"),
    ],
)
def test_what_records_are_is_seen_at_them(values: list[bytes], expected: str) -> None:
    assert sampled_format([each for each in values if each is not None]) == expected
