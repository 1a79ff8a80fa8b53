"""Schema of Avro records: which columns a writer schema becomes, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.records.formats.avro.options import AvroOptions, variable_scale_problem
from jobs.records.formats.avro.schema import avro_schema, top_node
from jobs.records.formats.interface.writer_schema import BadWriterSchema, WriterSchema
from jobs.records.schema.iceberg_schema import with_null


def record(*types: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    fields = [{"name": chr(ord("a") + n), "type": each} for n, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields, **more}


def columns(schema: Any, references: dict[str, Any] | None = None, **options: Any) -> list[str]:
    texts = tuple((name, json.dumps(each)) for name, each in (references or {}).items())
    node = top_node(WriterSchema(json.dumps(schema), texts), AvroOptions(**options))
    return [f"{each.name} {with_null(each)}" for each in avro_schema(node).fields]


def one(schema: Any, **options: Any) -> str:
    (found,) = columns(record(schema), **options)
    return found.removeprefix("a ")


def connect(kind: str, name: str, **parameters: str) -> dict[str, Any]:
    return {"type": kind, "connect.name": name, "connect.parameters": parameters}


UNITS = ("millis", "micros", "nanos")
INTS = "list<int not null>"
ENUM = {"type": "enum", "name": "E", "symbols": ["x", "y"]}
SCALED = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        *((kind, f"{kind} not null") for kind in ("boolean", "int", "long", "float", "double", "string")),
        ("bytes", "binary not null"),
        ({"type": "string", "avro.java.string": "String"}, "string not null"),
        ({"type": {"type": "long"}}, "long not null"),
        ({"type": "fixed", "name": "F", "size": 4}, "fixed(4) not null"),
        ({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}, "fixed(12) not null"),
        (ENUM, "string not null"),
        ({"type": "array", "items": ["null", "int"]}, "list<int> not null"),
        ({"type": "array", "items": "int"}, "list<int not null> not null"),
        ({"type": "map", "values": "long"}, "map<string, long not null> not null"),
        (["null", "string"], "string"),
        (["string", "null"], "string"),
        (["string"], "string not null"),
        (["null", "string", "long"], "struct<string string, long long>"),
        (
            ["string", ENUM, {"type": "array", "items": "int"}],
            f"struct<string string, E string, array {INTS}> not null",
        ),
        (record("int", "null", ["null"], name="Q"), "struct<a int not null> not null"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}, "decimal(12,2) not null"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}, "decimal(38,2) not null"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 4}, "binary not null"),
        ({"type": "bytes", "logicalType": "decimal"}, "binary not null"),
        ({"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4}, "decimal(4,0) not null"),
        ({"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 5}, "fixed(2) not null"),
        ({"type": "int", "logicalType": "date"}, "date not null"),
        ({"type": "long", "logicalType": "date"}, "long not null"),
        ({"type": "int", "logicalType": "time-millis"}, "time not null"),
        ({"type": "long", "logicalType": "time-micros"}, "time not null"),
        *(({"type": "long", "logicalType": f"timestamp-{unit}"}, "timestamptz not null") for unit in UNITS),
        *(({"type": "long", "logicalType": f"local-timestamp-{unit}"}, "timestamp not null") for unit in UNITS),
        ({"type": "string", "logicalType": "uuid"}, "uuid not null"),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "uuid not null"),
        ({"type": "string", "logicalType": "of-ours"}, "string not null"),
        (["null", {"type": "int", "logicalType": "date"}], "date"),
    ],
)
def test_types_are_what_avro_says(schema: Any, column: str) -> None:
    assert one(schema) == column


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        (connect("bytes", "org.apache.kafka.connect.data.Decimal", scale="2"), "decimal(38,2) not null"),
        (
            connect("bytes", "org.apache.kafka.connect.data.Decimal", scale="2", **{"connect.decimal.precision": "9"}),
            "decimal(9,2) not null",
        ),
        (
            connect("bytes", "org.apache.kafka.connect.data.Decimal", scale="2")
            | {"logicalType": "decimal", "precision": 64, "scale": 2},
            "decimal(38,2) not null",
        ),
        (connect("int", "org.apache.kafka.connect.data.Date"), "date not null"),
        (connect("int", "org.apache.kafka.connect.data.Time"), "time not null"),
        (connect("long", "org.apache.kafka.connect.data.Timestamp"), "timestamptz not null"),
        (connect("int", "io.debezium.time.Date"), "date not null"),
        (connect("int", "io.debezium.time.Time"), "time not null"),
        (connect("long", "io.debezium.time.MicroTime"), "time not null"),
        (connect("long", "io.debezium.time.NanoTime"), "time not null"),
        (connect("long", "io.debezium.time.Timestamp"), "timestamp not null"),
        (connect("long", "io.debezium.time.MicroTimestamp"), "timestamp not null"),
        (connect("long", "io.debezium.time.NanoTimestamp"), "timestamp not null"),
        (connect("string", "io.debezium.time.ZonedTimestamp"), "timestamptz not null"),
        (connect("string", "io.debezium.time.ZonedTime"), "string not null"),
        (connect("int", "io.debezium.time.Year"), "int not null"),
        (connect("string", "io.debezium.time.Interval"), "string not null"),
        (connect("long", "io.debezium.time.MicroDuration"), "long not null"),
        (connect("string", "io.debezium.data.Json"), "string not null"),
        (connect("string", "io.debezium.data.Uuid"), "uuid not null"),
        (connect("string", "io.debezium.data.Enum", allowed="a,b"), "string not null"),
        (connect("long", "io.debezium.time.Date"), "long not null"),
        (SCALED, "struct<scale int not null, value binary not null> not null"),
    ],
)
def test_names_of_connect_and_debezium_are_types(schema: Any, column: str) -> None:
    assert one(schema) == column


def test_options() -> None:
    union = [record("int", name="com.acme.A"), record("int", name="org.acme.A")]
    with pytest.raises(BadWriterSchema, match=r"two types 'A'.*enhanced\.avro\.schema\.support"):
        columns(union)
    assert columns(union, enhanced_avro_schema_support=True) == [
        "com.acme.A struct<a int not null>",
        "org.acme.A struct<a int not null>",
    ]
    assert one(["string"], flatten_singleton_unions=False) == "struct<string string> not null"
    named = {
        "type": "record",
        "name": "R",
        "fields": [{"name": 'or"der', "type": "int"}, {"name": "2nd", "type": "int"}],
    }
    with pytest.raises(BadWriterSchema, match=r"or\"der.*scrub\.invalid\.names"):
        columns(named)
    assert columns(named, scrub_invalid_names=True) == ["or_der int not null", "_2nd int not null"]
    assert one(SCALED, variable_scale_decimal="text") == "string not null"
    assert one(SCALED, variable_scale_decimal="decimal(20, 4)") == "decimal(20,4) not null"
    assert [variable_scale_problem(each) for each in ("struct", "text", "decimal(38,38)")] == [None] * 3
    assert all(map(variable_scale_problem, ("", "double", "decimal(39,1)", "decimal(3,4)", "decimal(0,0)")))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("string", ["value string not null"]),
        (["null", "string"], ["value string"]),
        ({"type": "array", "items": "int"}, ["value list<int not null> not null"]),
        ([record("int")], ["a int not null"]),
        (["null", record("int")], ["value struct<a int not null>"]),
        (
            [record("int", name="A"), record("string", name="B")],
            ["A struct<a int not null>", "B struct<a string not null>"],
        ),
        (["null", "int", "string"], ["value struct<int int, string string>"]),
    ],
)
def test_a_schema_that_is_no_record_is_one_column_or_one_for_each_type(schema: Any, expected: list[str]) -> None:
    assert columns(schema) == expected


def test_names_are_found_in_their_namespace_and_in_references() -> None:
    inner = record("int", name="Inner", namespace="com.acme")
    outer = {
        "type": "record",
        "name": "com.acme.Outer",
        "fields": [
            {"name": "a", "type": inner},
            {"name": "b", "type": ["null", "Inner"]},
            {"name": "c", "type": "com.acme.Inner", "default": {"a": 1}},
            {"name": "d", "type": "org.other.Far"},
        ],
    }
    far = record("long", name="Far", namespace="org.other")
    struct = "struct<a int not null>"
    assert columns(outer, {"far.avsc": far}) == [
        f"a {struct} not null",
        f"b {struct}",
        f"c {struct} not null",
        "d struct<a long not null> not null",
    ]


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        (record(name="Q"), "string not null"),
        (["null", record(name="Q")], "string"),
        ({"type": "array", "items": "null"}, "string not null"),
        (["null", "R"], "string"),
        ({"type": "map", "values": "R"}, "string not null"),
        (["null", "int", "R"], "struct<int int, R string>"),
        (record("int", ["null", "R"], name="Q"), "struct<a int not null, b string> not null"),
    ],
)
def test_what_no_column_holds_becomes_json(schema: Any, column: str) -> None:
    assert columns(record(schema, "int")) == [f"a {column}", "b int not null"]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("unknown", "'unknown' is not defined"),
        (record(), "without a field"),
        (record("null"), "without a field"),
        ({"type": "array", "items": "null"}, r"nothing but nulls, at \$"),
        (record([]), "without types"),
        (record(["int", "int"]), "two types 'int'"),
        (record(["null", ["int"]]), "union within a union"),
        (record({"type": "fixed", "name": "F", "size": 0}), "from 1 to"),
        (record({"type": "fixed", "name": "F", "size": 10**9}), "from 1 to"),
        (record({"type": "enum", "name": "E", "symbols": []}), "no symbols"),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 40}), "40 digits after"),
        (record(ENUM, ENUM), "'E' is defined twice"),
        ({"type": "record", "name": "R", "fields": [{"name": n, "type": "int"} for n in "aA"]}, "but for case"),
        ({"type": "record", "name": "R", "fields": [{"name": "", "type": "int"}]}, "no column can have"),
        ({"type": "record", "fields": []}, "without a name"),
        ({"type": "record", "name": "R"}, "no list of fields"),
        ({"type": "record", "name": "R", "fields": [1]}, "without a name or a type"),
        ({"type": "array"}, "'array' is not defined"),
        (7, "a type that is none"),
    ],
)
def test_what_no_column_holds_is_refused(schema: Any, message: str) -> None:
    with pytest.raises(BadWriterSchema, match=message):
        columns(schema)


def test_text_that_is_none_and_schemas_without_end_are_refused() -> None:
    for text, message in (("{", "no JSON"), ("[" * 100_000, "too deep"), ('"a', "no JSON")):
        with pytest.raises(BadWriterSchema, match=message):
            top_node(WriterSchema(text), AvroOptions())
    with pytest.raises(BadWriterSchema, match="the reference 'x' is no JSON"):
        top_node(WriterSchema('"int"', (("x", "{"),)), AvroOptions())
    deep: Any = "int"
    for _ in range(40):
        deep = {"type": "array", "items": deep}
    with pytest.raises(BadWriterSchema, match="more than 32 deep"):
        columns(record(deep))
    # Each record has the one before twice: two to the power of thirty columns in thirty lines.
    doubled: Any = record("int", name="T0")
    for n in range(1, 30):
        doubled = record(doubled, f"T{n - 1}", name=f"T{n}")
    with pytest.raises(BadWriterSchema, match="more than 10,000 columns"):
        columns(doubled)
    assert columns(record("int", "string")) == ["a int not null", "b string not null"]
    assert top_node(WriterSchema("string"), AvroOptions())
