"""Records of several writer schemas in one block: decoded each by its own, conformed, and put back in their order."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema

from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.decoder_spec import DeclaredSchema, DecoderSpec
from jobs.records.formats.interface.problems import UNKNOWN_SCHEMA, ValueProblem
from jobs.records.formats.interface.writer_schema import (
    BadWriterSchema,
    RegistrySchema,
    SchemaId,
    WriterSchema,
)
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.formats.registry_decoder import RegistryKind, registry_format
from jobs.records.formats.registry_wire import WrittenAs, group_by_schema, message_indexes
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.needs import EvolutionPolicy
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.tokens import SchemaTextError


class JsonOfOneSchema:
    """A writer schema in the language of schema texts, its records JSON."""

    def __init__(self, written: WriterSchema, options: Mapping[str, Any]) -> None:
        assert dict(options) == {"an_option": 1}
        try:
            declared = parse_schema(written.text)
        except SchemaTextError as problem:
            raise BadWriterSchema(problem.message) from None
        self.schema: Schema = iceberg_schema(declared)
        self._decoder = JsonReferenceDecoder(declared)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        return self._decoder.decode(values)


@dataclass
class Known:
    """Schemas by their number; counts the questions."""

    schemas: dict[int, RegistrySchema]
    away: bool = False
    asked: list[SchemaId] = field(default_factory=list)

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        self.asked.append(schema_id)
        if self.away:
            raise ConnectionError("the registry is not there")
        if schema_id.number not in self.schemas:
            raise ValueProblem(UNKNOWN_SCHEMA, f"needs a schema that the registry knows, found {schema_id}")
        return self.schemas[schema_id.number]

    @property
    def unmet(self) -> frozenset[SchemaId]:
        """None: every id that is looked for is known here, or made up."""
        return frozenset()

    def learned(self) -> Mapping[SchemaId, RegistrySchema]:
        return {}


SCHEMAS = {
    1: RegistrySchema("AVRO", WriterSchema("id string not null, n int")),
    2: RegistrySchema("AVRO", WriterSchema("n long, id string not null, note string")),
    3: RegistrySchema("AVRO", WriterSchema("id long")),
    4: RegistrySchema("PROTOBUF", WriterSchema("id string")),
    5: RegistrySchema("AVRO", WriterSchema("id strng")),
}
FORMAT = registry_format("avro", RegistryKind("AVRO"), JsonOfOneSchema, JsonOfOneSchema)


def spec(known: Known, **options: Any) -> DecoderSpec:
    given = {"an_option": 1, "unknown_fields": "ignore", **options}
    return DecoderSpec("avro", DeclaredSchema("id string not null, n int"), given, known)


def record(number: int, **fields: Any) -> bytes:
    return b"\x00" + struct.pack(">I", number) + json.dumps(fields).encode()


def decode(values: list[bytes | None], known: Known | None = None, **options: Any) -> Decoded:
    made = FORMAT.block(spec(known or Known(SCHEMAS), **options)).decode(pa.array(values, pa.binary()))
    rows = {*made.positions.tolist(), *(each.row for each in made.failures), *made.tombstones.tolist()}
    assert rows == set(range(len(values)))
    assert list(made.positions) == sorted(made.positions)
    return made


def test_each_record_is_decoded_by_its_own_schema_and_the_order_stays() -> None:
    values = [
        record(2, id="a", n=1, note="x"),
        record(1, id="b", n=2),
        None,
        record(2, id="c", n=2**31),
        record(1, id="d"),
        record(2, id="e"),
    ]
    known = Known(SCHEMAS)
    assert decode(values).needs == ()
    made = decode(values, known, evolve=EvolutionPolicy("auto", "auto", "auto"))
    assert made.rows.to_pylist() == [
        {"id": "a", "n": 1},
        {"id": "b", "n": 2},
        {"id": "d", "n": None},
        {"id": "e", "n": None},
    ]
    assert made.positions.tolist() == [0, 1, 4, 5]
    assert [(each.row, each.error_class, each.field) for each in made.failures] == [(3, "out_of_range", "$.n")]
    assert made.tombstones.tolist() == [2]
    assert made.unknown_fields == {"$.note": 1}
    assert {(need.change, need.path, need.row) for need in made.needs} == {
        ("add", ("note",), 0),
        ("widen", ("n",), 0),
    }
    assert known.asked == [SchemaId(number=1), SchemaId(number=2)]


def test_one_schema_alone() -> None:
    made = decode([record(1, id="a"), record(1, id="b")])
    assert (made.rows.to_pylist(), made.positions.tolist()) == (
        [{"id": "a", "n": None}, {"id": "b", "n": None}],
        [0, 1],
    )
    assert decode([]).rows.num_rows == 0
    assert decode([None]).tombstones.tolist() == [0]


@pytest.mark.parametrize(
    ("value", "error_class", "message"),
    [
        (record(9, id="a"), "unknown_schema", "needs a schema that the registry knows, found id 9"),
        (record(4, id="a"), "bad_schema", "needs a schema of the type AVRO, found id 4, which is PROTOBUF"),
        (record(5, id="a"), "bad_schema", "needs a schema that can be read, found id 5: The schema text is wrong"),
        (record(3, id=1), "wrong_type", "needs string, found long"),
        (b'{"id": "a"}', "no_schema_id", "found 0x7b"),
        (record(1), "missing_field", "needs string, found no such key"),
    ],
)
def test_a_record_that_cannot_be_decoded_fails_alone(value: bytes, error_class: str, message: str) -> None:
    made = decode([record(1, id="a"), value, record(2, id="b")])
    (failure,) = made.failures
    assert (failure.row, failure.error_class) == (1, error_class)
    assert message in failure.message
    assert made.positions.tolist() == [0, 2]


def test_a_registry_that_is_away_is_no_records_fault() -> None:
    with pytest.raises(OSError, match="not there"):
        decode([record(1, id="a"), b"bad"], Known(SCHEMAS, away=True))


def test_a_header_names_the_schema_of_a_bare_value() -> None:
    decoder = FORMAT.block(spec(Known(SCHEMAS)))
    headers = pa.array([b"\x00\x00\x00\x00\x01", None], pa.binary())
    made = decoder.decode(pa.array([b'{"id": "a"}', record(2, id="b")], pa.binary()), headers)  # type: ignore[call-arg]
    assert made.rows.column("id").to_pylist() == ["a", "b"]


def test_an_example_of_a_field_that_no_column_takes() -> None:
    known, values = (
        Known(SCHEMAS),
        [record(1, id="a"), b"bad", record(2, id="b", note=None), record(2, id="c", note="x")],
    )
    column = pa.array(values, pa.binary())
    found = FORMAT.unknown_fields(spec(known), column, [0, 2, 3], ["$.note", "$.other"])
    assert found == {"$.note": (3, "$", "note string")}


def test_fields_that_no_column_takes_fail_where_the_stream_says_so() -> None:
    made = decode([record(2, id="a", note="x"), record(2, id="b")], unknown_fields="fail")
    assert [(each.row, each.error_class, each.field) for each in made.failures] == [(0, "unknown_field", "$.note")]
    assert made.rows.column("id").to_pylist() == ["b"]


def test_a_field_without_a_column_waits_for_a_decision_or_is_refused() -> None:
    values: list[bytes | None] = [record(2, id="a", n=1, note="x"), record(1, id="b", n=2)]
    proposed = decode(values, evolve=EvolutionPolicy(add="propose"))
    assert [(each.row, each.error_class, each.field) for each in proposed.failures] == [
        (0, "schema_change_proposed", "$.note")
    ]
    assert [(need.change, need.path) for need in proposed.needs] == [("add", ("note",))]
    refused = decode(values, evolve=EvolutionPolicy(add="auto"), refused=(("$.note", "no room"),))
    assert [(each.error_class, each.message) for each in refused.failures] == [
        ("schema_change_refused", "needs a change of the table that is not made: no room")
    ]


GUID = bytes(range(16))


def numbered(number: int, rest: bytes = b"") -> bytes:
    return b"\x00" + struct.pack(">I", number) + rest


def column(values: Sequence[bytes | None]) -> pa.BinaryArray:
    # A slice of a longer array: offsets do not begin at zero.
    return pa.array([b"before", *values], pa.binary()).slice(1)


def groups(
    values: Sequence[bytes | None], headers: Sequence[bytes | None] | None = None, *, messages: bool = False
) -> dict[WrittenAs, dict[int, bytes]]:
    grouped = group_by_schema(column(values), None if headers is None else column(headers), messages=messages)
    return {
        each.written: dict(zip(each.rows.tolist(), each.values.to_pylist(), strict=True)) for each in grouped.groups
    }


def refused(
    values: Sequence[bytes | None], headers: Sequence[bytes | None] | None = None, *, messages: bool = False
) -> list:
    grouped = group_by_schema(column(values), None if headers is None else column(headers), messages=messages)
    return [(each.row, each.error_class, each.message) for each in grouped.failures]


def test_records_are_taken_apart_by_number_and_guid() -> None:
    values = [numbered(7, b"a"), None, b"\x01" + GUID + b"b", numbered(7), numbered(2**32 - 1, b"c")]
    assert groups(values) == {
        WrittenAs(SchemaId(number=7)): {0: b"a", 3: b""},
        WrittenAs(SchemaId(guid=GUID.hex())): {2: b"b"},
        WrittenAs(SchemaId(number=2**32 - 1)): {4: b"c"},
    }
    assert refused(values) == []


def test_one_schema_is_one_group_of_all_records() -> None:
    assert groups([numbered(7, b"a"), numbered(7, b"b")]) == {WrittenAs(SchemaId(number=7)): {0: b"a", 1: b"b"}}
    assert groups([]) == {}
    assert groups([None, None]) == {}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"", "needs the byte 0x00 and the id of a schema in four bytes, found nothing"),
        (b"\x00\x00\x00\x07", "in four bytes, found 4 bytes in all"),
        (b"{}", "found 2 bytes in all"),
        (b'{"id": 1}', "needs the byte 0x00 or 0x01 before the id of a schema, found 0x7b"),
        (b"\x02" + GUID, "found 0x02"),
        (b"\x01" + GUID[:-1], "needs the byte 0x01 and a GUID in sixteen bytes, found 16 bytes in all"),
    ],
)
def test_a_value_without_an_id_fails(value: bytes, found: str) -> None:
    ((row, error_class, message),) = refused([numbered(7), value])
    assert (row, error_class) == (1, "no_schema_id")
    assert found in message
    assert groups([numbered(7), value]) == {WrittenAs(SchemaId(number=7)): {0: b""}}


def test_a_header_counts_before_the_value() -> None:
    # The bare value looks as if it named schema 9.
    values = [numbered(9, b"x"), numbered(9, b"y"), b"z", None]
    headers = [numbered(7), None, b"\x01" + GUID, numbered(7)]
    assert groups(values, headers) == {
        WrittenAs(SchemaId(number=7)): {0: numbered(9, b"x")},
        WrittenAs(SchemaId(number=9)): {1: b"y"},
        WrittenAs(SchemaId(guid=GUID.hex())): {2: b"z"},
    }
    ((row, error_class, message),) = refused([b"a", numbered(7)], [b"\x00\x07", None])
    assert (row, error_class) == (0, "no_schema_id")
    assert "in the schema's header, found 2 bytes" in message


def zigzag(number: int) -> bytes:
    value, made = (number << 1) ^ (number >> 63), b""
    while value >= 0x80:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def test_messages_follow_the_id() -> None:
    second = numbered(7, zigzag(2) + zigzag(1) + zigzag(300) + b"b")
    spelt_out = numbered(7, zigzag(1) + zigzag(0) + b"c")
    values = [numbered(7, b"\x00a"), second, spelt_out, numbered(7, b"\x00")]
    assert groups(values, messages=True) == {
        WrittenAs(SchemaId(number=7), (0,)): {0: b"a", 2: b"c", 3: b""},
        WrittenAs(SchemaId(number=7), (1, 300)): {1: b"b"},
    }
    headed = groups([b"\x00a", zigzag(1) + zigzag(4) + b"b"], [numbered(7), numbered(7)], messages=True)
    assert headed == {
        WrittenAs(SchemaId(number=7), (0,)): {0: b"a"},
        WrittenAs(SchemaId(number=7), (4,)): {1: b"b"},
    }


@pytest.mark.parametrize(
    ("rest", "found"),
    [
        (b"", "found nothing"),
        (b"\x80", "found bytes that are no numbers"),
        (zigzag(2) + zigzag(1), "found bytes that are no numbers"),
        (zigzag(-1), "found -1"),
        (zigzag(33) + b"\x02" * 33, "found 33"),
        (zigzag(1) + zigzag(-5), "found -5"),
        (b"\xff" * 10, "no numbers"),
    ],
)
def test_indexes_that_are_none_fail(rest: bytes, found: str) -> None:
    ((row, error_class, message),) = refused([numbered(7, rest)], messages=True)
    assert (row, error_class) == (0, "no_schema_id")
    assert found in message


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=32), st.binary(max_size=5))
def test_indexes_are_read_as_they_were_written(indexes: list[int], rest: bytes) -> None:
    written = zigzag(len(indexes)) + b"".join(map(zigzag, indexes))
    assert message_indexes(written + rest) == (tuple(indexes), len(written))
    for end in range(len(written)):
        with pytest.raises(ValueProblem):
            message_indexes(written[:end])
