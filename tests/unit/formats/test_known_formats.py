"""The formats that a stream's file may name: each is known, takes the file's options, and decodes."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import get_args

import pyarrow as pa
import pytest

from jobs.formats.decoder_spec import DeclaredSchema, DecoderSpec, resolved
from jobs.formats.known_formats import FORMATS
from jobs.formats.primitive.block import COLUMN_TYPES
from jobs.spec.decode import Decode
from jobs.spec.value_format import FormatName
from tests.helpers.tasks import stream_spec

SCHEMA = "id string not null, n long, at timestamptz as epoch_ms"


def test_the_file_may_name_each_format_that_is_known_and_no_other() -> None:
    # One's own is named with the decoder that it is.
    assert {*get_args(FormatName), "own"} == set(FORMATS)
    assert all(name == each.name for name, each in FORMATS.items())


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "own"])
def test_both_decoders_of_a_format_give_the_rows_of_the_resolved_schema(name: str) -> None:
    schema = f"value {COLUMN_TYPES[name]}" if name in COLUMN_TYPES else SCHEMA
    rows = Decode(value=name, schema=schema).declared  # type: ignore[arg-type, call-arg]
    assert rows is not None
    assert rows.decoder.kind == name
    # The probe names no schema, so nothing is looked up.
    spec = replace(rows.decoder, schemas=object()) if FORMATS[name].registry_kind else rows.decoder
    for make in (FORMATS[name].reference, FORMATS[name].block):
        probed = make(spec).decode(pa.array([FORMATS[name].probe], pa.binary()))
        assert probed.rows.schema.names == rows.schema.column_names


@pytest.mark.parametrize("unknown_fields", ["ignore", "fail"])
def test_the_decoders_are_given_the_options_of_the_file(unknown_fields: str) -> None:
    decoder = stream_spec(SCHEMA, unknown_fields=unknown_fields).resolved.decoder
    for make in (FORMATS["json"].reference, FORMATS["json"].block):
        odd = make(decoder).decode(pa.array([b'{"id": "a", "x": 1}'], pa.binary()))
        assert len(odd.failures) == (unknown_fields == "fail")


def test_json_finds_a_record_with_a_field_that_is_not_declared() -> None:
    spec = DecoderSpec("json", DeclaredSchema("id string, o struct<a int>"))
    values = pa.array([b'{"o": {"b": 1.5}}', b'{"x": null}', b'{"x": "y"}'], pa.binary())
    found = FORMATS["json"].unknown_fields(spec, values, [0, 1, 2], ["$.x", "$.o.b", "$.gone"])
    assert {path: tuple(each) for path, each in found.items()} == {
        "$.x": (1, "$", "x string"),
        "$.o.b": (0, "$.o", "b double"),
    }


def test_what_tasks_are_told_travels_pickled() -> None:
    made = resolved(DecoderSpec("json", DeclaredSchema(SCHEMA), {"unknown_fields": "fail"}))
    again = pickle.loads(pickle.dumps(made))
    assert (again.schema, again.decoder) == (made.schema, made.decoder)
