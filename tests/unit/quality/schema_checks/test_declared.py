"""What a stream's file declares, held against its table: what leads to what, and what a change of the table mends."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.config.stream.models import StreamSpec
from jobs.quality.schema_checks.declared import declared_contract, own_columns
from jobs.quality.schema_checks.finding import worst
from jobs.records.schema.compatibility import disagreements
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS
from jobs.records.schema.parser import parse_schema


def spec_of(columns: str, *, kafka_columns: bool = True, **decode: Any) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "s",
            "source": {"topics": ["t"]},
            "decode": {"value": "json", "schema": columns, **decode},
            "table": {"name": "n.s", "kafka_columns": kafka_columns},
        }
    )


@pytest.mark.parametrize(
    ("declared", "table", "outcomes", "fits", "can_be_applied"),
    [
        ("a int", "a int", [], True, True),
        ("a int", "a int, b string", [("b", "null")], True, True),
        ("a int", "a long", [("a", "lands")], True, True),
        ("a int not null", "a int", [("a", "lands")], True, True),
        ("a int, b string", "a int", [("b", "stops")], False, True),
        ("a long", "a int", [("a", "stops")], False, True),
        ("a int", "a int not null", [("a", "stops")], False, True),
        ("a int", "a int, b int not null", [("b", "stops")], False, True),
        ("a string", "a int", [("a", "stops")], False, False),
        ("A int", "a int", [("A", "stops")], False, False),
        ("a string, b int", "a int", [("a", "stops"), ("b", "stops")], False, False),
    ],
)
def test_each_difference_leads_to_what_a_start_would_say(
    declared: str, table: str, outcomes: list[tuple[str, str]], fits: bool, can_be_applied: bool
) -> None:
    spec = spec_of(declared)
    schema = spec.table_schema_of(iceberg_schema(parse_schema(table)))
    found = declared_contract(spec, schema)
    assert [(each.difference.column, each.outcome) for each in found.findings] == outcomes
    assert (found.fits, found.can_be_applied) == (fits, can_be_applied)
    assert worst(list(found.findings)) == ("ok" if fits else "error")
    assert fits == (disagreements(spec.declared_rows, schema, KAFKA_COLUMNS) == [])


def test_columns_that_no_record_has_are_the_tables_own() -> None:
    assert own_columns(spec_of("a int")) == {"_kafka_topic", "_kafka_partition", "_kafka_offset", "_kafka_timestamp"}
    assert own_columns(spec_of("a int", kafka_columns=False)) == frozenset()


@pytest.mark.parametrize(
    ("decode", "found"),
    [
        ({}, [("key", "null"), ("trace", "null")]),
        ({"key": {"format": "json", "schema": "id long", "into": "key"}}, [("trace", "null")]),
        (
            {"key": {"format": "json", "schema": "id long, of string", "into": "key"}},
            [("key.of", "stops"), ("trace", "null")],
        ),
        ({"headers": {"trace": "string", "span": "string"}}, [("span", "stops"), ("key", "null")]),
    ],
)
def test_columns_of_keys_and_headers_are_declared_like_those_of_values(
    decode: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    whole = spec_of("a int", key={"format": "json", "schema": "id long", "into": "key"}, headers={"trace": "string"})
    contract = declared_contract(spec_of("a int", **decode), whole.table_schema)
    assert sorted((str(each.difference.column), each.outcome) for each in contract.findings) == sorted(found)
    assert declared_contract(whole, whole.table_schema).findings == ()


def test_a_column_for_what_no_other_takes_is_the_files() -> None:
    spec = spec_of("a int", unknown_fields="keep")
    assert declared_contract(spec, spec.table_schema).findings == ()
    (found,) = declared_contract(spec, spec_of("a int").table_schema).findings
    assert (found.difference.column, found.difference.kind) == ("_extra", "added")


def test_a_rename_is_suggested() -> None:
    spec = spec_of("id string, full_name string")
    found = declared_contract(spec, spec.table_schema_of(iceberg_schema(parse_schema("id string, name string"))))
    assert [each.option for each in found.renames] == ["--rename name=full_name"]
