"""The Avro format in a stream: records of several writer schemas of a registry, and options of the stream's file."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError
from pyiceberg.types import StringType

from jobs.config.values.decode import Decode
from jobs.records.formats.interface.decoder_spec import DeclaredSchema, DecoderSpec
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId, WriterSchema
from jobs.records.formats.known_formats import FORMATS
from tests.unit.records.formats.avro.generated import number, sized


def _record(*fields: tuple[str, Any]) -> WriterSchema:
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    return WriterSchema(json.dumps(schema))


@dataclass
class Known:
    """Schemas by their number."""

    schemas: dict[int, WriterSchema]

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        return RegistrySchema("AVRO", self.schemas[schema_id.number or 0])

    @property
    def unmet(self) -> frozenset[SchemaId]:
        """None: every id that is looked for is known here, or made up."""
        return frozenset()

    def learned(self) -> dict[SchemaId, RegistrySchema]:
        return {}


KNOWN = Known(
    {
        1: _record(
            ("id", "string"), ("amount", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})
        ),
        2: _record(("id", "string"), ("amount", "long"), ("note", ["null", "string"])),
        3: _record(("id", ["int", "int"])),
    }
)


def value(schema: int, body: bytes) -> bytes:
    return b"\x00" + struct.pack(">I", schema) + body


@pytest.mark.parametrize("way", ["reference", "block"])
def test_records_of_several_writer_schemas_land_in_the_columns(way: str) -> None:
    values = [
        *(value(1, sized(b"a%d" % n) + sized((n * 100 + 25).to_bytes(4, signed=True))) for n in range(30)),
        None,
        value(2, sized(b"b") + number(7) + b"\x02" + sized(b"x")),
        value(3, b"\x00"),
        value(1, sized(b"c")),
    ]
    spec = DecoderSpec("avro", DeclaredSchema("id string not null, amount decimal(12,2)"), {}, KNOWN)
    made = getattr(FORMATS["avro"], way)(spec).decode(pa.array(values, pa.binary()))
    assert made.rows.column("id").to_pylist() == [*(f"a{n}" for n in range(30)), "b"]
    assert [str(each) for each in made.rows.column("amount").to_pylist()] == [*(f"{n}.25" for n in range(30)), "7.00"]
    assert made.tombstones.tolist() == [30]
    assert [(each.row, each.error_class) for each in made.failures] == [(32, "bad_schema"), (33, "malformed_avro")]
    assert made.unknown_fields == {"$.note": 1}


@pytest.mark.parametrize("way", ["reference", "block"])
def test_an_id_of_another_subject_is_read_by_that_schema_and_fits_or_fails_by_name(way: str) -> None:
    refunds = _record(("refund", "string"), ("amount", "long"))
    notes = _record(("id", "string"), ("text", "string"))
    known = Known({**KNOWN.schemas, 7: refunds, 8: notes})
    values = [
        value(2, sized(b"a") + number(1) + b"\x00"),
        value(7, sized(b"r") + number(5)),
        value(8, sized(b"b") + sized(b"t")),
        value(2, sized(b"c") + number(2) + b"\x00"),
    ]
    spec = DecoderSpec("avro", DeclaredSchema("id string not null, amount long"), {}, known)
    made = getattr(FORMATS["avro"], way)(spec).decode(pa.array(values, pa.binary()))
    # Never its bytes by the schema of the stream's own subject, in which both would be read as something.
    assert made.rows.to_pylist() == [{"id": "a", "amount": 1}, {"id": "b", "amount": None}, {"id": "c", "amount": 2}]
    assert made.positions.tolist() == [0, 2, 3]
    assert [(each.row, each.error_class, each.field) for each in made.failures] == [(1, "missing_field", "$.id")]
    assert made.unknown_fields == {"$.text": 1}


@pytest.mark.parametrize("way", ["reference", "block"])
def test_fields_without_a_column_are_kept(way: str) -> None:
    values = [
        value(1, sized(b"a") + sized((150).to_bytes(4, signed=True))),
        value(2, sized(b"b") + number(7) + b"\x02" + sized(b"x")),
        value(2, sized(b"c") + number(8) + b"\x00"),
    ]
    keep = {"unknown_fields": "keep"}
    spec = DecoderSpec("avro", DeclaredSchema("id string not null"), keep, KNOWN)
    made = getattr(FORMATS["avro"], way)(spec).decode(pa.array(values, pa.binary()))
    assert made.rows.to_pylist() == [
        {"id": "a", "_extra": '{"amount":1.50}'},
        {"id": "b", "_extra": '{"amount":7,"note":"x"}'},
        {"id": "c", "_extra": '{"amount":8}'},
    ]
    assert made.unknown_fields == {}
    lacking = DecoderSpec("avro", DeclaredSchema("id string not null"), keep | {"extra_column": False}, KNOWN)
    made = getattr(FORMATS["avro"], way)(lacking).decode(pa.array(values, pa.binary()))
    assert {each.path for each in made.needs if each.path == ("_extra",)} == {("_extra",)}
    assert made.rows.schema.names == ["id"]


@pytest.mark.parametrize("way", ["reference", "block"])
def test_a_json_column_holds_the_json_of_the_value(way: str) -> None:
    document = {"type": "string", "connect.name": "io.debezium.data.Json"}
    known = Known({1: _record(("a", ["null", "string"]), ("b", ["int", "string"]), ("c", document))})
    texts = ['say "hi"', "1", ""]
    values = [value(1, b"\x02" + sized(each.encode()) + b"\x02" + sized(b"x") + sized(b'{"k": 1}')) for each in texts]
    values.append(value(1, b"\x00" + b"\x00" + number(7) + sized(b"[]")))
    spec = DecoderSpec("avro", DeclaredSchema("a json, b json, c json"), {}, known)
    made = getattr(FORMATS["avro"], way)(spec).decode(pa.array(values * 10, pa.binary()))
    assert made.rows.slice(0, 4).to_pylist() == [
        *({"a": json.dumps(each), "b": '{"string":"x"}', "c": '{"k": 1}'} for each in texts),
        {"a": None, "b": '{"int":7}', "c": "[]"},
    ]
    assert FORMATS["avro"].writer_rows is not None
    columns = FORMATS["avro"].writer_rows(known.schemas[1], {})
    assert [type(each) for each in (columns.fields[2].field_type, columns.fields[0].field_type)] == [StringType] * 2


@pytest.mark.parametrize("way", ["reference", "block"])
def test_values_that_name_no_schema_are_read_by_the_one_that_the_file_names(way: str) -> None:
    given = Decode(value={"format": "avro", "use.schema.id": 2}, schema="id string, amount long")  # type: ignore[arg-type, call-arg]
    values = [sized(b"a") + number(1) + b"\x00", None, sized(b"b") + number(2) + b"\x02" + sized(b"x"), b"\xff"]
    spec = DecoderSpec("avro", DeclaredSchema(given.schema_text), given.options, KNOWN)
    decoder = getattr(FORMATS["avro"], way)(spec)
    # What a header says does not count either.
    made = decoder.decode(pa.array(values, pa.binary()), pa.array([value(9, b"")] * 4, pa.binary()))
    assert made.rows.to_pylist() == [{"id": "a", "amount": 1}, {"id": "b", "amount": 2}]
    assert (made.positions.tolist(), made.tombstones.tolist(), made.unknown_fields) == ([0, 2], [1], {"$.note": 1})
    assert [(each.row, each.error_class) for each in made.failures] == [(3, "malformed_avro")]
    assert decoder.unknown_fields(pa.array(values, pa.binary()), [2], ["$.note"])["$.note"].row == 2
    assert decoder.decode(pa.array([None], pa.binary())).tombstones.tolist() == [0]


def test_options_are_those_of_connect_and_reach_the_decoders() -> None:
    given = {"format": "avro", "enhanced.avro.schema.support": True, "variable.scale.decimal": "decimal(10,2)"}
    decode = Decode(value=given, schema="id string")  # type: ignore[arg-type, call-arg]
    assert decode.options == {
        "enhanced.avro.schema.support": True,
        "flatten.singleton.unions": True,
        "scrub.invalid.names": False,
        "variable.scale.decimal": "decimal(10,2)",
        "as_sent": (),
        "use.schema.id": None,
        "unknown_fields": "ignore",
    }
    assert Decode(value="avro", schema="registry").schema_source == "registry"  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"variable.scale.decimal": "double"}, "must be struct, text or decimal"),
        ({"connect.meta.data": False}, "is about what Connect writes"),
        ({"ignore.default.for.nullables": False}, "null"),
        ({"no.such": 1}, "Extra inputs"),
        ({"as_sent": ["ZonedTimestamp"]}, "is none of the logical types org.apache.kafka.connect.data.Decimal"),
    ],
)
def test_options_that_mean_nothing_are_refused_with_the_reason(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Decode(value={"format": "avro", **option}, schema="id string")  # type: ignore[arg-type, call-arg]


def test_a_driver_of_another_format_does_not_import_what_only_avro_needs() -> None:
    code = (
        "import sys, jobs.records.formats.known_formats; sys.exit(bool({'datafusion', 'fastavro'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
