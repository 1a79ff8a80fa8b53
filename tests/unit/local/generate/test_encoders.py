"""Encoders of writer schemas: what the reference decoder reads of a row that was written is that row."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.local.generate.avro_encoding import AvroEncoder
from jobs.local.generate.json_encoding import JsonEncoder
from jobs.local.generate.protobuf_encoding import ProtobufEncoder
from jobs.local.generate.rows import (
    Entries,
    Items,
    Leaf,
    Row,
    Shape,
    Struct,
    drawn_row,
)
from jobs.local.generate.values import RowEncoder
from jobs.records.formats.avro.reference import make_reference
from jobs.records.formats.connect_json.schema import connect_types
from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.writer_schema import BadWriterSchema, WriterSchema
from jobs.records.formats.json.writer_decoder import JsonWriterDecoder
from jobs.records.formats.protobuf.reference import ProtobufReferenceDecoder
from tests.helpers.connect_records import connect_schema, kinds
from tests.helpers.json_records import structs
from tests.helpers.protobuf_records import messages
from tests.unit.records.formats.avro import generated

AT = datetime(2026, 1, 31, 23, 59, 59, 123_000, tzinfo=UTC)


def rows_of(encoder: RowEncoder, seed: int) -> list[Row]:
    return [drawn_row(encoder.shape, random.Random(seed + number), AT) for number in range(8)]


def assert_reads_back(encoder: RowEncoder, decoder: Any, seed: int) -> None:
    rows = rows_of(encoder, seed)
    decoded: Decoded = decoder.decode(pa.array([encoder.encode(row) for row in rows], pa.binary()))
    assert decoded.failures == []
    assert [_plain(row) for row in decoded.rows.to_pylist()] == [_plain(_whole(row, encoder.shape)) for row in rows]


def _plain(value: Any) -> Any:
    """As Arrow has it, but for what has no value, times, and the order of maps."""
    match value:
        case dict():
            found = {name: _plain(each) for name, each in value.items()}
            return {name: each for name, each in found.items() if each is not None}
        case [tuple(), *_]:
            return sorted((tuple(_plain(each) for each in pair) for pair in value), key=repr)
        case list():
            return [_plain(each) for each in value]
        case float():
            return repr(value)
        case _:
            return value


def _whole(value: Any, shape: Shape) -> Any:
    """A value of a row as Arrow has it."""
    match shape:
        case _ if value is None:
            return None
        case Struct(members):
            return {each.name: _whole(value.get(each.name), each.shape) for each in members}
        case Items(element):
            return [_whole(each, element) for each in value]
        case Entries(key, inner):
            return [(_whole(one, key), _whole(two, inner)) for one, two in value]
        case Leaf(json=str()):
            return json.dumps(value, separators=(",", ":"))
        case _:
            return value.bytes if isinstance(value, UUID) else value


@settings(max_examples=50, deadline=None)
@given(generated.schemas(), st.integers(0, 2**32))
def test_avro_records_are_the_rows_that_were_written(kind: generated.Kind, seed: int) -> None:
    schema = WriterSchema(generated.text(kind))
    try:
        decoder = make_reference(schema, {})
    except BadWriterSchema:
        return
    assert_reads_back(AvroEncoder(schema, {}), decoder, seed)


@pytest.mark.parametrize(
    "schema",
    [
        '"string"',
        '["null", "long"]',
        '["string", {"type": "record", "name": "R", "namespace": "a.b", "fields": [{"name": "f", "type": "int"}]}]',
        '{"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}',
        '{"type": "fixed", "name": "D", "size": 5, "logicalType": "decimal", "precision": 9, "scale": 2}',
    ],
)
def test_avro_records_that_are_no_record_too(schema: str) -> None:
    writer = WriterSchema(schema)
    assert_reads_back(AvroEncoder(writer, {}), make_reference(writer, {}), 1)


def test_what_an_avro_schema_refers_to_is_known() -> None:
    inner = '{"type": "record", "name": "a.Inner", "fields": [{"name": "n", "type": "int"}]}'
    outer = '{"type": "record", "name": "a.Outer", "fields": [{"name": "i", "type": "a.Inner"}]}'
    writer = WriterSchema(outer, (("inner", inner),))
    assert_reads_back(AvroEncoder(writer, {}), make_reference(writer, {}), 1)


@pytest.mark.parametrize("scaled", ["struct", "text", "decimal(12,3)"])
def test_debezium_s_decimals_are_written_in_each_form(scaled: str) -> None:
    number = {
        "type": "record",
        "name": "io.debezium.data.VariableScaleDecimal",
        "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    }
    writer = WriterSchema(json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": number}]}))
    options = {"variable.scale.decimal": scaled}
    assert_reads_back(AvroEncoder(writer, options), make_reference(writer, options), 1)


@settings(max_examples=50, deadline=None)
@given(
    messages(),
    st.fixed_dictionaries({}, optional=dict.fromkeys(("int.for.enums", "optional.for.nullables"), st.booleans())),
    st.fixed_dictionaries({}, optional={"flatten.unions": st.booleans(), "wrapper.for.nullables": st.booleans()}),
    st.integers(0, 2**32),
)
def test_protobuf_messages_are_the_rows_that_were_written(
    message: Any, some: dict[str, bool], others: dict[str, bool], seed: int
) -> None:
    try:
        encoder = ProtobufEncoder(message, some | others)
    except BadWriterSchema:
        return
    assert_reads_back(encoder, ProtobufReferenceDecoder(encoder.tree), seed)


@settings(max_examples=50, deadline=None)
@given(structs(kinds), st.booleans(), st.integers(0, 2**32))
def test_payloads_of_connect_are_the_rows_that_were_written(declared: Any, sends_null: bool, seed: int) -> None:
    try:
        types = connect_types(json.dumps(connect_schema(declared)))
    except BadWriterSchema:
        return
    assert_reads_back(JsonEncoder(types, sends_null=sends_null), JsonWriterDecoder(types, block=False), seed)
