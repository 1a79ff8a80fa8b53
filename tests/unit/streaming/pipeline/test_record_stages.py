"""Keys and headers of records: columns, null, or a failure with its stage; tombstones stay tombstones."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.clients.kafka.records import HEADERS
from jobs.config.values.decode import Decode
from jobs.records.formats.interface.decoder_spec import DeclaredSchema, DecoderSpec
from jobs.records.formats.interface.problems import UNKNOWN_SCHEMA, ValueProblem
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId, WriterSchema
from jobs.records.formats.record_columns import RecordColumns
from jobs.records.schema.kafka_columns import NO_KAFKA_COLUMNS
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.pipeline import fetched_parts, stream_pipeline
from jobs.streaming.pipeline.record_stages import ReadHeaders, last_of

GOOD = b'{"v": 1}'


def block_of(
    values: list[bytes | None],
    keys: list[bytes | None] | None = None,
    headers: list[list[tuple[str, bytes | None]] | None] | None = None,
    *,
    reference: bool = False,
    **decode: Any,
) -> Block:
    spec = Decode.model_validate({"value": "json", "schema": "v int"} | decode.pop("decode", decode))
    count = len(values)
    records = {
        "value": pa.array(values, pa.binary()),
        "key": pa.array(keys or [None] * count, pa.binary()),
        "headers": pa.array(
            [None if each is None else [{"key": k, "value": v} for k, v in each] for each in headers or [[]] * count],
            HEADERS,
        ),
    }
    pipeline = stream_pipeline(
        DecoderSpec("json", DeclaredSchema("v int"), {"unknown_fields": "ignore"}),
        "a.b",
        lambda rows: rows,
        columns=spec.record_columns(NO_KAFKA_COLUMNS),
        first=[ReadHeaders()] if headers else [],
        reference=reference,
    )
    return pipeline.run(pa.record_batch(records))


def failed(block: Block) -> list[tuple[int, str, str, str | None]]:
    return [(each.row, each.stage, each.error_class, each.field) for each in block.failures]


@pytest.mark.parametrize("reference", [False, True])
def test_a_key_of_one_column(reference: bool) -> None:
    block = block_of(
        [GOOD, GOOD, None, b"{", GOOD],
        [b"k", None, b"\xff", b"\xff", b"\xff"],
        key={"format": "string", "into": "key"},
        reference=reference,
    )
    assert block.rows.to_pylist() == [{"v": 1, "key": "k"}, {"v": 1, "key": None}]
    assert (block.positions.tolist(), block.dropped.tolist()) == ([0, 1], [2])
    assert failed(block) == [(3, "decode_value", "malformed_json", None), (4, "decode_key", "invalid_utf8", "$.key")]


def test_a_key_with_columns_of_its_own() -> None:
    keys: list[bytes | None] = [b'{"id": 7, "x": 1}', None, b'{"id": "a"}', b""]
    apart = block_of([GOOD] * 4, keys, key={"format": "json", "schema": "id long"})
    assert apart.rows.to_pylist() == [{"v": 1, "id": 7}, {"v": 1, "id": None}]
    assert failed(apart) == [(2, "decode_key", "wrong_type", "$.id"), (3, "decode_key", "empty_value", "$.id")]
    assert apart.unknown_fields == {"$key.x": 1}
    into = block_of([GOOD] * 4, keys, key={"format": "json", "schema": "id long", "into": "key"})
    assert into.rows.to_pylist() == [{"v": 1, "key": {"id": 7}}, {"v": 1, "key": None}]
    assert failed(into) == [(2, "decode_key", "wrong_type", "$.key.id"), (3, "decode_key", "empty_value", "$.key")]
    strict = {"format": "json", "schema": "id long", "into": "key", "unknown_fields": "fail"}
    assert failed(block_of([GOOD], keys[:1], key=strict)) == [(0, "decode_key", "unknown_field", "$.key.x")]


@pytest.mark.parametrize(
    "key",
    [
        {"format": "json", "schema": "id long not null"},
        {"format": "json", "schema": "id long", "into": "id not null"},
        {"format": "bytes", "into": "id not null"},
    ],
)
def test_no_key_is_refused_where_one_is_required(key: dict[str, Any]) -> None:
    block = block_of([GOOD, None, GOOD], [None, None, b'{"id": 1}'], key=key)
    assert failed(block) == [(0, "decode_key", "null_in_required", "$.id")]
    assert (block.positions.tolist(), block.dropped.tolist()) == ([2], [1])


def test_headers_of_which_the_last_counts() -> None:
    columns = {"trace": "string", "n": {"header": "x-n", "type": "int not null"}}
    block = block_of(
        [GOOD] * 6 + [None],
        None,
        [
            [("x-n", b"1"), ("trace", b"a"), ("trace", b"b")],
            [("trace", b"a"), ("x-n", b"2"), ("trace", None)],
            [("x-n", b"one")],
            [("X-N", b"1")],
            [("x-n", None)],
            [("x-n", b"3"), ("trace", b"\xff")],
            [],
        ],
        decode={"headers": columns},
    )
    assert block.rows.to_pylist() == [{"v": 1, "trace": "b", "n": 1}, {"v": 1, "trace": None, "n": 2}]
    assert block.dropped.tolist() == [6]
    assert failed(block) == [
        (2, "decode_header", "wrong_type", "$.n"),
        (3, "decode_header", "missing_field", "$.n"),
        (4, "decode_header", "null_in_required", "$.n"),
        (5, "decode_header", "invalid_utf8", "$.trace"),
    ]


def test_headers_that_could_not_be_read_are_a_failure_and_not_null() -> None:
    block = block_of([GOOD, None, GOOD], None, [None, None, []], decode={"headers": {"trace": "string"}})
    assert failed(block) == [(0, "decode_header", "invalid_utf8", None)]
    assert (block.positions.tolist(), block.dropped.tolist()) == ([2], [1])


@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([None, b"1", b"2"])))), st.integers(0, 3))
def test_the_last_header_is_found_in_any_slice(found: list[list[tuple[str, bytes | None]]], start: int) -> None:
    headers = pa.array([[{"key": k, "value": v} for k, v in each] for each in found], HEADERS).slice(start)
    values, there = last_of(headers, "a")
    expected = [[v for k, v in each if k == "a"] for each in found[start:]]
    assert values == [each[-1] if each else None for each in expected]
    assert there.tolist() == [bool(each) for each in expected]


@given(st.lists(st.tuples(st.sampled_from([GOOD, None, b"{"]), st.sampled_from([None, b"1", b"x", b'{"id":2}']))))
def test_every_record_is_a_row_a_failure_or_dropped(records: list[tuple[bytes | None, bytes | None]]) -> None:
    values, keys = [value for value, _ in records], [key for _, key in records]
    block = block_of(values, keys, key={"format": "json", "schema": "id long", "into": "key"})
    every = [*block.positions.tolist(), *block.dropped.tolist(), *(failure.row for failure in block.failures)]
    assert sorted(every) == list(range(len(records)))
    for row, position in zip(block.rows.to_pylist(), block.positions.tolist(), strict=True):
        assert row["key"] == (json.loads(keys[position] or b"null"))


def test_a_stream_without_keys_and_headers_fetches_neither() -> None:
    assert RecordColumns().fetched == frozenset()


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
