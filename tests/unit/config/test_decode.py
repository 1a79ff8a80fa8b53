"""How a stream's file says what its values are: formats of one column, and what does not go with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from jobs.config.documents.base import config_hash
from jobs.config.documents.validation import SpecError
from jobs.config.settings.loading import load_stream
from jobs.config.stream.models import StreamSpec
from jobs.config.values.decode import Decode
from jobs.records.formats.interface.decoder_spec import TableSchema
from jobs.records.formats.primitive.block import COLUMN_TYPES
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.name_matching import NAME_MAPPING, NAME_RULE, NameRule
from jobs.records.schema.parser import parse_schema


@pytest.mark.parametrize(("value", "column"), COLUMN_TYPES.items())
def test_a_primitive_format_is_one_column_of_its_type(value: str, column: str) -> None:
    for schema in (f"value {column}", [f"`my value` {column} not null"]):
        made = Decode.model_validate({"value": value, "schema": schema}).declared
        assert made is not None
        assert [str(field.field_type) for field in made.schema.fields] == [column]
        assert (made.decoder.kind, dict(made.decoder.options)) == (value, {})


@pytest.mark.parametrize(
    ("value", "rest", "place", "message"),
    [
        ("int", {"schema": "n long"}, "schema", "values as int are one column of the type int, not long"),
        ("short", {"schema": "n struct<a int>"}, "schema", "values as short are one column of the type int, not"),
        ("bytes", {"schema": "b binary as hex"}, "schema", "one column of the type binary, not binary as hex"),
        ("string", {"schema": "a string, b string"}, "schema", "are one column, such as 'value string', not 2"),
        ("long", {"schema": "n long", "unknown_fields": "fail"}, "unknown_fields", "is about keys of JSON"),
        ("long", {"schema": "n long", "case_insensitive": True}, "case_insensitive", "is about names of fields"),
        ("long", {"schema": "n long", "unknown_fields": "keep"}, "unknown_fields", "is about fields"),
        ("avro", {"schema": "_extra string", "unknown_fields": "keep"}, "unknown_fields", "fills the column _extra"),
    ],
)
def test_what_does_not_go_with_it_is_named(
    value: str, rest: dict[str, Any], place: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "payments.yaml"
    decode = {"value": value, **rest}
    stream = {"stream": "payments", "source": {"topics": ["p"]}, "table": {"name": "orders.payments"}}
    path.write_text(yaml.safe_dump(stream | {"decode": decode}))
    with pytest.raises(SpecError) as caught:
        load_stream(path)
    (problem,) = caught.value.problems
    assert f"decode.{place}: " in problem
    assert message in problem


def test_columns_that_differ_by_case_only_cannot_be_told_apart_in_any_case() -> None:
    table = Schema(NestedField(1, "a", StringType()), NestedField(2, "A", StringType()))
    for case_insensitive in (True, False):
        decode = {"value": "json", "schema": "table", "case_insensitive": case_insensitive}
        file = {"stream": "s", "source": {"topics": ["t"]}, "decode": decode, "table": {"name": "n.s"}}
        problems = StreamSpec.model_validate(file).problems_with(table)
        place = ("decode", "case_insensitive")
        message = "columns a and A differ by case only, so a field in another case is neither"
        assert problems == ([(place, message)] if case_insensitive else [])


def test_how_names_are_matched_is_an_option_only_where_it_is_asked_for() -> None:
    table = iceberg_schema(parse_schema("id string"))
    mapping = {NAME_MAPPING: '[{"field-id": 1, "names": ["id", "key"]}]'}
    plain = {NAME_MAPPING: '[{"field-id": 1, "names": ["id"]}]'}
    for schema in ("id string", "table"):
        decode = {"value": "json", "schema": schema}
        file = {"stream": "s", "source": {"topics": ["t"]}, "decode": decode, "table": {"name": "n.s"}}
        exact = StreamSpec.model_validate(file)
        any_case = StreamSpec.model_validate(file | {"decode": decode | {"case_insensitive": True}})
        assert NAME_RULE not in exact.resolved_for(table, plain).decoder.options
        assert exact.resolved_for(table, mapping).names == NameRule(((("id",), ("key",)),))
        assert any_case.resolved_for(table, plain).names == NameRule(any_case=True)
        assert any_case.resolved_for(table, mapping).names == NameRule(((("id",), ("key",)),), any_case=True)


@pytest.mark.parametrize("value", ["json", "avro", "protobuf", "json_schema", "connect_json"])
def test_what_is_kept_has_a_column_where_the_table_has_it(value: str) -> None:
    decode = Decode.model_validate({"value": value, "schema": "id string", "unknown_fields": "keep"})
    with_column = decode.resolved_for(iceberg_schema(parse_schema("id string, late int, _extra string")))
    assert [each.name for each in with_column.schema.fields] == ["id", "_extra"]
    assert "extra_column" not in with_column.decoder.options
    lacking = decode.resolved_for(iceberg_schema(parse_schema("id string")))
    assert [each.name for each in lacking.schema.fields] == ["id"]
    assert lacking.decoder.options["extra_column"] is False


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
