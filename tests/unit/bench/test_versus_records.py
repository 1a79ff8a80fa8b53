"""The records of the comparison: what the stream declares, whole and distinct, the same each time."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from bench.avro_payments import AvroPayments
from bench.protobuf_payments import ProtobufPayments
from bench.versus.formats import Format, converter_properties, encoder
from bench.versus.records import Size, payments, schema_text
from jobs.records.formats.interface.decoder_spec import DeclaredSchema, DecoderSpec
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.parser import parse_schema

SIZES: dict[Size, range] = {"small": range(150, 180), "1k": range(950, 1100)}


@pytest.mark.parametrize("size", list(SIZES))
def test_they_are_of_their_size_distinct_and_summed(size: Size) -> None:
    (chunk,) = payments(size, 500)
    decoded = [msgspec.json.decode(value) for value in chunk.values]
    assert len({record["id"] for record in decoded}) == 500
    assert sum(round(100 * record["amount"]) for record in decoded) == chunk.cents
    assert sum(map(len, chunk.values)) // 500 in SIZES[size]
    assert [record["payer"].encode() for record in decoded] == chunk.keys
    times = [record["created_at"] for record in decoded]
    assert times == sorted(times) and times[-1] == "2026-01-04T00:00:00.000Z"


@pytest.mark.parametrize("size", list(SIZES))
def test_they_have_what_the_stream_declares(size: Size) -> None:
    (chunk,) = payments(size, 1)
    declared = parse_schema(schema_text(size))
    assert set(msgspec.json.decode(chunk.values[0])) == {field.name for field in declared.fields}


def test_the_same_numbers_are_the_same_payments() -> None:
    assert [chunk.values for chunk in payments("small", 100)] == [chunk.values for chunk in payments("small", 100)]


@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize("format_", ["avro", "protobuf", "connect_json"])
def test_they_are_the_same_payments_in_each_format(format_: Format, size: Size) -> None:
    (chunk,) = payments(size, 200)
    declared = parse_schema(schema_text(size))
    schemas = {"avro": AvroPayments, "protobuf": ProtobufPayments}
    values = encoder(format_, size, 70_000)(chunk.values)
    if format_ in schemas:
        assert {value[:5] for value in values} == {b"\0" + (70_000).to_bytes(4)}
    find = schemas[format_](declared) if format_ in schemas else None
    decoder = FORMATS[format_].block(DecoderSpec(format_, DeclaredSchema(declared.text), schemas=find))
    plain = FORMATS["json"].block(DecoderSpec("json", DeclaredSchema(declared.text)))
    found, expected = (each.decode(pa.array(some)) for each, some in ((decoder, values), (plain, chunk.values)))
    assert not found.failures and found.rows.equals(expected.rows)


def test_the_sink_reads_confluents_ids_from_the_registrys_own_api() -> None:
    found = converter_properties("avro", "http://127.0.0.1:8081/apis/ccompat/v7")
    assert found["value.converter.apicurio.registry.url"] == "http://127.0.0.1:8081/apis/registry/v2"
    assert found["value.converter.apicurio.registry.as-confluent"] == "true"
    assert converter_properties("connect_json", None)["value.converter.schemas.enable"] == "true"
    assert converter_properties("json", None)["value.converter.schemas.enable"] == "false"
