"""JSON Schemas as they come, and records of them: both decoders give the same, and rows hold what was sent."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from jobs.formats.decoder import Decoded
from jobs.formats.json.block import SMALLEST_BLOCK
from jobs.formats.json.writer_decoder import JsonWriterDecoder, JsonWriterTypes
from jobs.formats.json_schema.options import JsonSchemaOptions
from jobs.formats.json_schema.schema import json_schema_types
from jobs.formats.writer_schema import BadWriterSchema, WriterSchema
from jobs.schema.arrow_schema import rows_arrow_schema
from tests.helpers.json_schema_records import SCHEMAS, Kind, records

OPTIONS = st.builds(JsonSchemaOptions, st.booleans(), st.booleans())
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def types_of(kind: Kind, options: JsonSchemaOptions) -> JsonWriterTypes:
    try:
        return json_schema_types(WriterSchema(json.dumps(kind.schema)), options)
    except BadWriterSchema:
        assume(False)
        raise


def check(types: JsonWriterTypes, values: list[bytes], unknown: Any) -> Decoded:
    reference = JsonWriterDecoder(types, block=False, unknown_fields=unknown)
    block = JsonWriterDecoder(types, block=True, unknown_fields=unknown)
    array = pa.array([b"cut off", *values], pa.binary())[1:]
    # Twice, since a decoder of blocks learns.
    block.decode(array)
    made, expected = block.decode(array), reference.decode(array)
    made.rows.validate(full=True)
    assert made.rows.schema.equals(rows_arrow_schema(block.schema))
    assert made.failures == expected.failures
    assert made.positions.tolist() == expected.positions.tolist()
    assert repr(made.rows.to_pylist()) == repr(expected.rows.to_pylist())
    assert made.unknown_fields == expected.unknown_fields
    assert sorted([*made.positions, *(failure.row for failure in made.failures)]) == list(range(len(values)))
    return made


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(SCHEMAS, SCHEMAS, OPTIONS, st.sampled_from(["ignore", "fail"]), st.data())
def test_blocks_give_what_the_reference_gives(
    kind: Kind, other: Kind, options: JsonSchemaOptions, unknown: str, data: st.DataObject
) -> None:
    types = types_of(kind, options)
    values = data.draw(st.lists(records(kind, other), min_size=1, max_size=8))
    check(types, values * (1 + SMALLEST_BLOCK // len(values)), unknown)


def sent(row: Any) -> Any:
    """What a record was, of what a row has of it: the only value that a choice has, and nothing that is null."""
    match row:
        case dict():
            members = {str(name): sent(each) for name, each in row.items() if each is not None}
            chosen = [each for name, each in members.items() if "connect_union_field_" in name]
            return chosen[0] if chosen else members
        case list():
            return [sent(each) for each in row]
        case _:
            return row


def comparable(value: Any, row: Any) -> Any:
    """A record without nulls; entries as the map that they mean, where the row has one."""
    match value:
        case dict():
            within = row if isinstance(row, dict) else {}
            return {name: comparable(each, within.get(name)) for name, each in value.items() if each is not None}
        case list() if isinstance(row, dict):
            entries = ((str(one["key"]), one["value"]) for one in value if one["value"] is not None)
            return {key: comparable(each, row.get(key)) for key, each in entries}
        case list() if isinstance(row, list):
            return [comparable(each, inner) for each, inner in zip(value, row, strict=True)]
        case _:
            return value


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(SCHEMAS, st.data())
def test_a_valid_record_lands_as_it_was_sent(kind: Kind, data: st.DataObject) -> None:
    types = types_of(kind, JsonSchemaOptions())
    value = data.draw(kind.values)
    made = check(types, [json.dumps(value).encode()], "ignore")
    assume(not made.unknown_fields)
    if made.failures:
        # Null at the top is no row.
        assert value is None, made.failures
        return
    (row,) = made.rows.to_pylist(maps_as_pydicts="strict")
    found = sent(row["value"] if types.single else row)
    assert found == comparable(value, found)
