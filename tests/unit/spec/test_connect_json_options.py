"""Options of values in Connect's JSON envelope, under the names that Connect gives them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from jobs.formats.decoder_spec import TableSchema
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.parser import parse_schema
from jobs.spec.config_hash import config_hash
from jobs.spec.decode import Decode

SCHEMA = {"type": "struct", "fields": [{"field": "id", "type": "string"}]}


def decode(value: Any, schema: str = "id string") -> Decode:
    return Decode.model_validate({"value": value, "schema": schema})


def test_the_decoder_is_given_them() -> None:
    made = decode({"format": "connect_json", "schema.content": SCHEMA, "replace.null.with.default": True}).declared
    assert made is not None
    assert made.decoder.options == {
        "schema.content": json.dumps(SCHEMA),
        "replace.null.with.default": True,
        "as_sent": (),
        "unknown_fields": "ignore",
    }


@pytest.mark.parametrize("schema", ["{", '{"type":"int33"}', "5", {"type": "struct"}])
def test_a_schema_that_is_none_is_refused(schema: Any) -> None:
    with pytest.raises(ValidationError, match="is no schema as Connect's JSON has them"):
        decode({"format": "connect_json", "schema.content": schema})


def test_a_schema_is_read_as_its_values_are() -> None:
    decimal = "org.apache.kafka.connect.data.Decimal"
    without_scale = {"type": "struct", "fields": [{"field": "n", "type": "bytes", "name": decimal}]}
    with pytest.raises(ValidationError, match="without a scale"):
        decode({"format": "connect_json", "schema.content": without_scale}, "n binary")
    decode({"format": "connect_json", "schema.content": without_scale, "as_sent": [decimal]}, "n binary")


def test_they_are_hashed_where_they_are_set() -> None:
    plain = config_hash(decode("connect_json"))
    assert config_hash(decode({"format": "connect_json", "replace.null.with.default": False})) == plain
    assert config_hash(decode({"format": "connect_json", "replace.null.with.default": True})) != plain
    assert config_hash(decode({"format": "connect_json", "schema.content": SCHEMA})) != plain


def test_the_columns_may_be_those_of_the_table() -> None:
    rows = iceberg_schema(parse_schema("id string, u uuid"))
    assert isinstance(decode("connect_json", "table").resolved_for(rows).decoder.schema, TableSchema)
    with pytest.raises(ValidationError, match="cannot be 'registry'"):
        decode("connect_json", "registry")


@pytest.mark.parametrize(
    ("form", "option", "why"),
    [
        ("connect_json", "schemas.enable", "connect_json reads envelopes, json reads values without one"),
        ("json", "schemas.enable", "connect_json reads envelopes, json reads values without one"),
        ("connect_json", "decimal.format", "decimals are read as base64 and as numbers"),
        ("protobuf", "wrapper.for.raw.primitives", "a record that is a wrapper is the column `value` either way"),
    ],
)
def test_an_option_of_connect_without_a_meaning_here_says_why(form: str, option: str, why: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Decode.model_validate({"value": {"format": form, option: True}, "schema": "table"})
    assert why in str(refused.value) and "Extra inputs" not in str(refused.value)
