"""Generated values: the good ones land, each bad one is refused for the reason that its kind says."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.base.errors import FrazilError
from jobs.config.settings.loading import load_stream
from jobs.local.generate.derived_schema import derived_schema
from jobs.local.generate.record import (
    FIRST_TIME,
    RecordGenerator,
    ValueGenerator,
    generated,
)
from jobs.local.generate.stream_records import generator_for
from jobs.local.generate.values import OneSchema
from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.decoder_spec import (
    DeclaredSchema,
    DecoderSpec,
    ResolvedSchema,
    resolved,
    resolved_rows,
)
from jobs.records.formats.interface.writer_schema import BadWriterSchema, RegistrySchema, WriterSchema
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.iceberg_schema import schema_text
from tests.unit.records.formats.avro.generated import Kind, schemas, text

COLUMNS = (
    "j json, n1 int as number, n2 long as text, n3 double as text, "
    "u uuid, c time, c2 time as nanos_of_day, x fixed(3), "
    "id string not null, at timestamptz not null, local timestamp, ms timestamptz as epoch_ms, day date, d2 date as "
    "epoch_days, amount decimal(12,2) not null, rate decimal(9,4) as text, n int, big long, f float, d double, ok "
    "boolean, raw binary, hex binary as hex, tags list<string>, o struct<a int not null, b list<struct<c double>>>, "
    "m map<string, long>"
)
WRITTEN = (
    "id string not null, at timestamptz not null, day date, amount decimal(12,2) not null, rate decimal(9,4), n int, "
    "m int not null, big long, f float, d double, ok boolean, raw binary, c time, tags list<string>, "
    "o struct<a int not null, b list<struct<c double>>>, p map<string, long>, q list<decimal(9,2)>, "
    "u uuid, local timestamp"
)
"""Columns that records of every writer schema can have."""


def spec(kind: str, columns: str) -> DecoderSpec:
    options = {"unknown_fields": "fail"} if kind == "json" else {}
    return DecoderSpec(kind, DeclaredSchema(columns), options)


def decoded(which: DecoderSpec, values: list[bytes]) -> Decoded:
    return FORMATS[which.kind].reference(which).decode(pa.array(values, pa.binary()))


def written(rows: ResolvedSchema, schema: str) -> tuple[ValueGenerator, DecoderSpec]:
    """What makes values of a writer schema, and their decoder."""
    kind = FORMATS[rows.decoder.kind].registry_kind
    writer = OneSchema(7, RegistrySchema(kind or "", WriterSchema(schema))) if kind else None
    return generator_for(rows, writer), replace(rows.decoder, schemas=writer)


def derived(kind: str, columns: str, **options: Any) -> tuple[ValueGenerator, DecoderSpec]:
    """What makes values of a stream whose schema is made of its columns, and their decoder."""
    rows = resolved(DecoderSpec(kind, DeclaredSchema(columns), options))
    return written(rows, derived_schema(kind, rows.schema.fields, "payments"))


def assert_as_said(made: ValueGenerator, which: DecoderSpec, count: int = 40) -> None:
    """Good values land and bad ones are dead letters of their class: as the reference and the block decoder see it."""
    good = [made.good(random.Random(n), FIRST_TIME + timedelta(seconds=n)) for n in range(count)]
    for decoder in (FORMATS[which.kind].reference(which), FORMATS[which.kind].block(which)):
        assert decoder.decode(pa.array(good, pa.binary())).failures == []
        for kind, error_class in made.bad_kinds.items():
            bad = [made.bad(kind, random.Random(n), FIRST_TIME) for n in range(count)]
            found = decoder.decode(pa.array(bad, pa.binary()))
            assert {failure.error_class for failure in found.failures} == {error_class}, kind
            assert len(found.failures) == len(bad), kind


PRIMITIVES = [
    ("string", "v string"),
    ("bytes", "v binary"),
    ("boolean", "v boolean"),
    ("short", "v int"),
    ("int", "v int"),
    ("long", "v long"),
    ("float", "v float"),
    ("double", "v double"),
]


@pytest.mark.parametrize(
    ("kind", "columns"), [("json", COLUMNS), ("json", "a list<int>"), ("json", "s string"), *PRIMITIVES]
)
def test_values_without_a_writer_schema_are_as_said(kind: str, columns: str) -> None:
    which = spec(kind, columns)
    made = generator_for(resolved(which))
    assert_as_said(made, which)
    assert bool(made.bad_kinds) == (kind != "bytes")


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[4] / "streams").glob("*.yaml")), ids=lambda each: each.stem
)
def test_values_of_the_streams_that_are_here_are_as_said(file: Path) -> None:
    rows = load_stream(file).resolved
    assert_as_said(generator_for(rows), rows.decoder)


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        *(("avro", each) for each in (WRITTEN, "s string", "a list<int>", "n long not null")),
        *(("json_schema", each) for each in (WRITTEN, "s string", "a list<int>", "n long not null")),
        *(("connect_json", each) for each in (WRITTEN, "s string", "a list<int>", "n long not null")),
    ],
)
@pytest.mark.parametrize("unknown_fields", ["ignore", "fail"])
def test_values_of_a_schema_made_of_the_columns_are_as_said(kind: str, columns: str, unknown_fields: str) -> None:
    made, which = derived(kind, columns, unknown_fields=unknown_fields)
    assert_as_said(made, which)
    assert ("truncated_avro" if kind == "avro" else "truncated_json") in made.bad_kinds


def test_plain_payloads_are_written_where_the_file_has_their_schema() -> None:
    rows = resolved(DecoderSpec("connect_json", DeclaredSchema("id string not null, n int")))
    schema = derived_schema("connect_json", rows.schema.fields, "x")
    made, which = written(rows.with_options({"schema.content": schema}), schema)
    assert json.loads(made.good(random.Random(1), FIRST_TIME)).keys() <= {"id", "n"}
    assert_as_said(made, which)
    enveloped, _ = written(rows, schema)
    assert json.loads(enveloped.good(random.Random(1), FIRST_TIME)).keys() == {"schema", "payload"}


MESSAGE = """\
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Payment {
  string id = 1;
  google.protobuf.Timestamp at = 2;
  optional int32 n = 3;
  repeated string tags = 4;
  map<string, int64> p = 5;
  Type o = 6;
  message Type { int32 a = 1; bytes raw = 2; }
}
"""


def test_messages_of_a_schema_are_as_said() -> None:
    columns = "id string, at timestamptz not null, n int, tags list<string>, p map<string, long>"
    rows = resolved(DecoderSpec("protobuf", DeclaredSchema(f"{columns}, o struct<a int, raw binary>")))
    made, which = written(rows, MESSAGE)
    assert_as_said(made, which)
    assert made.bad_kinds.keys() == {
        "no_magic_byte", "wrong_id", "wrong_message", "surplus_bytes", "truncated_protobuf",
    }  # fmt: skip


def test_values_that_no_column_takes_are_named() -> None:
    fields = [{"name": "id", "type": "string"}, {"name": "more", "type": "string"}]
    rows = resolved(DecoderSpec("avro", DeclaredSchema("id string"), {"unknown_fields": "fail"}))
    with pytest.raises(FrazilError, match=r"cannot be generated at \$\.more: it is not declared"):
        written(rows, json.dumps({"type": "record", "name": "R", "fields": fields}))


@settings(max_examples=40, deadline=None)
@given(schemas(), st.sampled_from(["ignore", "fail"]))
def test_records_of_any_avro_schema_are_as_said(kind: Kind, unknown_fields: str) -> None:
    writer = WriterSchema(text(kind))
    try:
        rows = FORMATS["avro"].writer_rows(writer, {})  # pyright: ignore[reportOptionalCall]
    except BadWriterSchema:
        return
    if not rows.fields:
        return
    made, which = written(resolved_rows("avro", rows, {"unknown_fields": unknown_fields}), writer.text)
    assert_as_said(made, which, 20)


@pytest.mark.parametrize(
    ("kind", "columns", "named"),
    [
        ("avro", "a int, `b-c` int", "column b-c: Avro has no such name"),
        ("protobuf", "a int", "no schema is made of columns for Protobuf"),
    ],
)
def test_columns_that_a_format_does_not_have_are_named(kind: str, columns: str, named: str) -> None:
    with pytest.raises(FrazilError, match=named):
        derived(kind, columns)


def test_the_same_seed_gives_the_same_records() -> None:
    made = RecordGenerator(generator_for(resolved(spec("json", COLUMNS))))

    def some(seed: str) -> list[bytes]:
        return [generated(made, seed, n, FIRST_TIME, 0.1).value for n in range(50)]

    assert some("a") == some("a")
    assert some("a") != some("b")


def test_about_as_many_are_bad_as_asked_for() -> None:
    made = RecordGenerator(generator_for(resolved(spec("json", COLUMNS))))
    kinds = [generated(made, "seed", n, FIRST_TIME, 0.2).kind for n in range(1_000)]
    assert 150 < len([kind for kind in kinds if kind != "good"]) < 250
    assert set(kinds) == {"good", *made.bad_kinds}
    assert {generated(made, "seed", n, FIRST_TIME, 0.0).kind for n in range(100)} == {"good"}


def test_what_cannot_be_generated_is_named() -> None:
    # The decoder takes no key twice, so a declared key that differs by case only cannot be written.
    with pytest.raises(FrazilError, match="values of the format nothing cannot be generated"):
        generator_for(resolved(DecoderSpec("nothing", DeclaredSchema("a int"))))


def test_schemas_are_made_of_columns_of_every_type() -> None:
    rows = resolved(DecoderSpec("avro", DeclaredSchema(WRITTEN))).schema
    for kind in ("avro", "json_schema", "connect_json"):
        found = FORMATS[kind].writer_rows(WriterSchema(derived_schema(kind, rows.fields, "1 x")), {})  # pyright: ignore[reportOptionalCall]
        assert [each.name for each in found.fields] == [each.name for each in rows.fields]
        assert [each.required for each in found.fields] == [each.required for each in rows.fields]
        if kind == "avro":
            assert schema_text(found.as_struct()) == schema_text(rows.as_struct())
