"""Records of several writer schemas in one block: decoded each by its own, conformed, and put back in their order."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema

from jobs.formats.decoder import Decoded
from jobs.formats.decoder_spec import DeclaredSchema, DecoderSpec
from jobs.formats.json.reference import JsonReferenceDecoder
from jobs.formats.problems import UNKNOWN_SCHEMA, ValueProblem
from jobs.formats.registry_decoder import RegistryKind, registry_format
from jobs.formats.writer_schema import BadWriterSchema, RegistrySchema, SchemaId, WriterSchema
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.needs import EvolutionPolicy
from jobs.schema.parser import parse_schema
from jobs.schema.tokens import SchemaTextError


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
        (record(4, id="a"), "bad_schema", "needs a schema of the kind AVRO, found id 4, which is PROTOBUF"),
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
