"""The block decoder of Connect's JSON gives what its reference gives, in every field, whatever it has met before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.records.formats.connect_json.format import (
    ConnectJsonBlockDecoder,
    ConnectJsonReferenceDecoder,
)
from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.decoder_spec import DeclaredSchema, DecoderSpec, TableSchema
from jobs.records.formats.rescued_fields import conformed_rows
from jobs.records.schema.arrow_schema import rows_arrow_schema
from jobs.records.schema.declared import StructType
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.parser import parse_schema
from tests.helpers.connect_records import blocks, connect_schema


def check(spec: DecoderSpec, each: Sequence[Sequence[bytes | None]]) -> Decoded:
    reference = ConnectJsonReferenceDecoder(spec)
    decoder = ConnectJsonBlockDecoder(spec, smallest=1)
    made = expected = reference.decode(pa.array([], pa.binary()))
    for values in each:
        block = pa.array([b"cut off", *values], pa.binary())[1:]
        made, expected = decoder.decode(block), reference.decode(block)
        made.rows.validate(full=True)
        assert made.rows.schema.equals(rows_arrow_schema(conformed_rows(spec)))
        assert made.failures == expected.failures
        assert made.positions.tolist() == expected.positions.tolist()
        assert made.tombstones.tolist() == expected.tombstones.tolist()
        assert repr(made.rows.to_pylist()) == repr(expected.rows.to_pylist())
        assert made.unknown_fields == expected.unknown_fields
        assert sorted(map(repr, made.needs)) == sorted(map(repr, expected.needs))
        found = sorted([*made.positions, *(failure.row for failure in made.failures), *made.tombstones])
        assert found == list(range(len(values)))
    return made


@settings(max_examples=30, deadline=None)
@given(blocks, st.sampled_from(["ignore", "fail", "keep"]), st.booleans(), st.booleans())
def test_blocks_of_generated_and_hostile_records(
    block: tuple[list[StructType], list[bytes | None]], unknown: str, defaults: bool, content: bool
) -> None:
    schemas, values = block
    options: dict[str, Any] = {"unknown_fields": unknown, "replace.null.with.default": defaults}
    if content:
        options["schema.content"] = json.dumps(connect_schema(schemas[0]))
    spec = DecoderSpec("connect_json", TableSchema(iceberg_schema(schemas[0]).model_dump_json()), options)
    check(spec, [values, values[::-1], values + values])


SPEC = DecoderSpec("connect_json", DeclaredSchema("id string not null, n int"), {"unknown_fields": "ignore"})
SCHEMA = b'{"type":"struct","fields":[{"field":"id","type":"string"},{"field":"n","type":"int32","optional":true}]}'
OTHER = b'{"type":"struct","fields":[{"field":"id","type":"string"},{"field":"x","type":"boolean"}]}'


def record(number: int, schema: bytes = SCHEMA, more: bytes = b"") -> bytes:
    return b'{"schema":%s,"payload":{"id":"id-%08d"%s}}' % (schema, number, more)


PAYLOADS_THAT_ARE_NONE = {
    "a member behind it": b'{"id":"a"},"other":{"id":"b"}',
    "another payload behind it": b'{"id":"a"},"payload":{"id":"b"}',
    "another schema behind it": b'{"id":"a"},"schema":' + OTHER,
    "a schema and a payload behind it": b'{"id":"a"},"schema":' + OTHER + b',"payload":{"id":"a","x":true}',
    "the end of the record": b'{"id":"a"}}',
    "the end of the record and another one": b'{"id":"a"}}' + record(2)[:-1],
    "a bracket too many": b'{"id":"a"}]',
    "nothing": b"",
    "white space": b" ",
    "two values": b'{"id":"a"} {"id":"b"}',
    "one that does not end": b'{"id":"a"',
    "a text that does not end": b'{"id":"a',
    "a list": b'[{"id":"a"}]',
}


@pytest.mark.parametrize("name", PAYLOADS_THAT_ARE_NONE)
def test_what_ends_early_or_goes_on_is_no_payload(name: str) -> None:
    odd = b'{"schema":' + SCHEMA + b',"payload":' + PAYLOADS_THAT_ARE_NONE[name] + b"}"
    good = [record(number) for number in range(40)]
    made = check(SPEC, [good, [*good[:20], odd, *good[20:]]])
    assert len(made.failures) == ("another payload" not in name and "schema and a payload" not in name)


def test_a_json_column_holds_the_json_of_the_value() -> None:
    fields = [
        {"field": "id", "type": "string"},
        {"field": "doc", "type": "string", "name": "io.debezium.data.Json"},
        {"field": "s", "type": "struct", "fields": [{"field": "n", "type": "int32"}]},
    ]
    schema = {"type": "struct", "fields": fields}
    payload = {"id": '"1"', "doc": '{"k":1}', "s": {"n": 1}}
    spec = DecoderSpec("connect_json", DeclaredSchema("id json, doc json, s json"), {})
    made = check(spec, [[json.dumps({"schema": schema, "payload": payload}).encode()] * 2])
    assert made.rows.to_pylist() == [{"id": '"\\"1\\""', "doc": '{"k":1}', "s": '{"n":1}'}] * 2


def test_a_decimal_with_a_scale_of_its_own_lands_in_a_decimal() -> None:
    parts = [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}]
    number = {"field": "ID", "type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": parts}
    payload = {"ID": {"scale": 1, "value": "BNI="}}
    value = json.dumps({"schema": {"type": "struct", "fields": [number]}, "payload": payload}).encode()
    spec = DecoderSpec("connect_json", DeclaredSchema("ID decimal(9,2) not null"), {})
    assert [str(row["ID"]) for row in check(spec, [[value] * 2]).rows.to_pylist()] == ["123.40"] * 2


def test_logical_types_may_stay_as_they_were_sent() -> None:
    zoned, micros = "io.debezium.time.ZonedTimestamp", "io.debezium.time.MicroTimestamp"
    fields = [{"field": "until", "type": "string", "name": zoned}, {"field": "at", "type": "int64", "name": micros}]
    payload = {"until": "infinity", "at": 9223372036825200000}
    value = json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": payload}).encode()
    declared = DeclaredSchema("until string, at long")
    kept = check(DecoderSpec("connect_json", declared, {"as_sent": (zoned, micros)}), [[value] * 2])
    assert kept.rows.to_pylist() == [payload] * 2
    one_kept = check(DecoderSpec("connect_json", declared, {"as_sent": (zoned,)}), [[value] * 2])
    assert [failure.error_class for failure in one_kept.failures] == ["out_of_range"] * 2
    assert {failure.field for failure in one_kept.failures} == {"$.at"}


def test_many_schemas_in_one_block() -> None:
    schemas = [SCHEMA, OTHER, SCHEMA + b" ", b'{"name":"x",' + SCHEMA[1:], b'{"doc":"y",' + OTHER[1:]]
    values = [record(n, schemas[n % 5], b',"x":true' if n % 5 in (1, 4) else b"") for n in range(500)]
    made = check(SPEC, [values, [None, *values, b"bad"], values[::-1]])
    assert made.rows.num_rows == 500
    assert made.unknown_fields == {"$.x": 200}


def test_a_schema_of_its_own_in_each_record() -> None:
    values = [record(n, SCHEMA.replace(b'"n"', b'"n%d"' % n)) for n in range(300)]
    assert check(SPEC, [values, values]).rows.num_rows == 300


def test_the_payload_may_stand_first_and_white_space_anywhere() -> None:
    first = [b'{"payload":{"id":"a%d"},"schema":%s}' % (n, SCHEMA) for n in range(100)]
    spaced = [b' {\n "schema" : %s ,\t"payload" : { "id" : "a%d" } } ' % (SCHEMA, n) for n in range(100)]
    assert check(SPEC, [first + spaced, first, spaced]).rows.num_rows == 100


def test_a_payload_that_stands_in_the_schema_too() -> None:
    schema = b'{"type":"int32","default":7}'
    spec = DecoderSpec("connect_json", DeclaredSchema("value int"), {"unknown_fields": "ignore"})
    values = [b'{"schema":%s,"payload":7}' % schema, b'{"payload":7,"schema":%s}' % schema] * 20
    made = check(spec, [values, values])
    assert made.rows.column("value").to_pylist() == [7] * 40


def test_plain_payloads_beside_envelopes_with_a_schema_of_the_file() -> None:
    spec = DecoderSpec("connect_json", SPEC.schema, {**SPEC.options, "schema.content": SCHEMA.decode()})
    plain = [b'{"id":"p%d","n":%d}' % (n, n) for n in range(100)]
    odd = [b'{"id":"payload"}', b'{"id":"a\\\\b"}', b'{"schema":1,"payload":2}', b'{"id":1}', b"", b'{"id":"a"} x']
    made = check(spec, [plain, [*plain, *odd, *map(record, range(100))]])
    assert made.rows.num_rows == 202
    assert [failure.error_class for failure in made.failures] == [
        *("bad_schema", "wrong_type", "empty_value", "malformed_json"),
    ]


def test_what_no_column_takes_is_kept_with_a_schema_and_without() -> None:
    decimal = b'{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"},"field":"d"}'
    schema = b'{"type":"struct","fields":[{"field":"id","type":"string"},' + decimal + b"]}"
    values = [
        b'{"schema":' + schema + b',"payload":{"id":"a","d":"AJY="}}',
        b'{"schema":null,"payload":{"id":"b","d":1.50}}',
        b'{"schema":' + SCHEMA + b',"payload":{"id":"c","n":null}}',
    ]
    table = "id string not null, _extra string, n int"
    spec = DecoderSpec(
        "connect_json",
        TableSchema(iceberg_schema(parse_schema(table)).model_dump_json()),
        {"unknown_fields": "keep"},
    )
    assert check(spec, [values]).rows.to_pylist() == [
        {"id": "a", "_extra": '{"d":1.50}', "n": None},
        {"id": "b", "_extra": '{"d":1.50}', "n": None},
        {"id": "c", "_extra": None, "n": None},
    ]
