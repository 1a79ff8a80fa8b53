"""Writer schemas that headers name: of values and keys, live and of letters, before what the first bytes look like."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from jobs.formats.problems import UNKNOWN_SCHEMA, ValueProblem
from jobs.formats.record_columns import RecordColumns
from jobs.formats.writer_schema import RegistrySchema, SchemaId, WriterSchema
from jobs.kafka.records import HEADERS
from jobs.pipeline.block import Block
from jobs.pipeline.pipeline import fetched_parts, stream_pipeline
from jobs.schema.kafka_columns import NO_KAFKA_COLUMNS
from jobs.spec.decode import Decode

AVRO = '{"type":"record","name":"r","fields":[{"name":"n","type":"long"},{"name":"s","type":"string"}]}'
# As a value of its own it is n = 0 and s = "abc"; with an id before it, it would be of the schema 0x06616263.
BARE = b"\x00\x06abc"
ID = b"\x00" + struct.pack(">i", 7)
KEY = {"format": "avro", "schema": "n long, s string", "into": "key"}


class Registry:
    """Knows one schema, of the id 7."""

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        if schema_id.number != 7:
            raise ValueProblem(UNKNOWN_SCHEMA, f"needs a schema that the registry knows, found {schema_id}")
        return RegistrySchema("AVRO", WriterSchema(AVRO))

    @property
    def unmet(self) -> frozenset[SchemaId]:
        """None: every id that is looked for is known here, or made up."""
        return frozenset()

    def learned(self) -> Mapping[SchemaId, RegistrySchema]:
        return {}


def run(records: dict[str, Any], *, reference: bool, **decode: Any) -> Block:
    spec = Decode.model_validate({"value": "avro", "schema": "n long, s string"} | decode)
    assert spec.declared is not None
    pipeline = stream_pipeline(
        spec.declared.with_schemas(Registry()).decoder,
        "a.b",
        lambda rows: rows,
        columns=spec.record_columns(NO_KAFKA_COLUMNS).with_schemas(Registry()),
        reference=reference,
    )
    kinds = {"headers": HEADERS, "topic": pa.string()}
    return pipeline.run(pa.record_batch({n: pa.array(v, kinds.get(n, pa.binary())) for n, v in records.items()}))


def header(name: str, value: bytes | None) -> list[dict[str, Any]]:
    return [{"key": name, "value": b"another"}, {"key": name, "value": value}]


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("fetched", [False, True])
def test_the_header_counts_before_the_first_bytes(reference: bool, fetched: bool) -> None:
    values = [BARE, ID + BARE, BARE, BARE, None]
    ids = [ID, None, None, b"", ID]
    headers = [
        header("__value_schema_id", ID),
        [],
        None,
        header("__value_schema_id", None),
        header("__value_schema_id", ID),
    ]
    records = {"value": values} | ({"value_schema_id": ids} if fetched else {"headers": headers})
    block = run(records, reference=reference)
    assert block.rows.to_pylist() == [{"n": 0, "s": "abc"}] * 2
    assert (block.positions.tolist(), block.dropped.tolist()) == ([0, 1], [4])
    assert [(each.row, each.error_class) for each in block.failures] == [(2, "unknown_schema"), (3, "no_schema_id")]


@pytest.mark.parametrize("fetched", [False, True])
def test_so_it_is_with_keys(fetched: bool) -> None:
    values = [ID + BARE] * 3
    headers = [header("__key_schema_id", ID), [], []]
    ids = {"key_schema_id": [ID, None, None]} if fetched else {"headers": headers}
    block = run({"value": values, "key": [BARE, ID + BARE, None]} | ids, reference=False, key=KEY)
    assert [row["key"] for row in block.rows.to_pylist()] == [{"n": 0, "s": "abc"}] * 2 + [None]


def test_with_prefix_nobody_looks_at_headers() -> None:
    records = {"value": [BARE, ID + BARE], "headers": [header("__value_schema_id", ID), []]}
    block = run(records, reference=False, schema_id="prefix")
    assert (block.positions.tolist(), [each.error_class for each in block.failures]) == ([1], ["unknown_schema"])
    avro = Decode.model_validate({"value": "avro", "schema": "id string", "schema_id": "prefix"})
    assert avro.declared is not None
    assert fetched_parts(avro.declared.decoder, avro.record_columns(NO_KAFKA_COLUMNS)) == frozenset()


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("fetched", [False, True])
def test_with_header_nobody_looks_at_the_first_bytes(reference: bool, fetched: bool) -> None:
    values, keys = [BARE, ID + BARE, BARE, None, BARE], [BARE, BARE, ID + BARE, None, None]
    in_value, in_key = [ID, None, ID, None, ID], [ID, ID, None, None, None]
    if fetched:
        ids: dict[str, Any] = {"value_schema_id": in_value, "key_schema_id": in_key}
    else:
        named = [
            (("__value_schema_id", one), ("__key_schema_id", two)) for one, two in zip(in_value, in_key, strict=True)
        ]
        ids = {"headers": [[{"key": name, "value": each} for name, each in both if each] for both in named]}
    records = {"value": values, "key": keys} | ids
    block = run(records, reference=reference, key=KEY, schema_id="header")
    assert [(row["n"], row["key"]) for row in block.rows.to_pylist()] == [(0, {"n": 0, "s": "abc"}), (0, None)]
    assert (block.positions.tolist(), block.dropped.tolist()) == ([0, 4], [3])
    assert [(each.row, each.stage, each.error_class) for each in block.failures] == [
        (1, "decode_value", "no_schema_id"),
        (2, "decode_key", "no_schema_id"),
    ]


def test_only_formats_with_a_registry_look_at_headers() -> None:
    json = Decode.model_validate({"value": "json", "schema": "id string"})
    avro = Decode.model_validate({"value": "avro", "schema": "id string", "key": KEY})
    assert json.declared is not None and avro.declared is not None
    assert fetched_parts(json.declared.decoder, RecordColumns()) == frozenset()
    assert fetched_parts(avro.declared.decoder, RecordColumns()) == {"value_schema_id"}
    columns = avro.record_columns(NO_KAFKA_COLUMNS)
    assert fetched_parts(avro.declared.decoder, columns) == {"value_schema_id", "key_schema_id", "key"}


@pytest.mark.parametrize("reference", [False, True])
def test_an_unknown_id_names_the_subject_of_its_topic_whichever_part_has_it(reference: bool) -> None:
    unknown = b"\x00" + struct.pack(">i", 8)
    records = {
        "value": [None, unknown + BARE, ID + BARE],
        "key": [None, None, unknown + BARE],
        "topic": ["none", "first", "second"],
    }
    made = run(records, reference=reference, key=KEY)
    assert [(each.row, each.stage, each.message.partition("(")[2]) for each in made.failures] == [
        (1, "decode_value", "the subject of its topic is first-value)"),
        (2, "decode_key", "the subject of its topic is second-key)"),
    ]
