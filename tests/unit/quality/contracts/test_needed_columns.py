"""Only the columns that a contract is about are read, and no more of them are shown than the mask lets."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.schema import Schema

from jobs.config.contract.contract import Contract
from jobs.config.stream.models import StreamSpec
from jobs.quality.contracts.check_rows import masked_columns, needed_columns

SCHEMA = "id long, amount double, Payer string, person struct<name string, age int>, at timestamptz"


def spec_of(**parts: Any) -> StreamSpec:
    document: dict[str, Any] = {
        "stream": "orders",
        "source": {"topics": ["orders"]},
        "decode": {"value": "json", "schema": SCHEMA},
        "table": {"name": "lake.orders"},
    }
    return StreamSpec.model_validate({**document, **parts})


def schema() -> Schema:
    return spec_of().table_schema


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"expect_column_values_to_not_be_null": {"column": "id"}}, {"id"}),
        ({"expect_column_pair_values_to_be_equal": {"column_A": "id", "column_B": "amount"}}, {"id", "amount"}),
        ({"frazil_keys_to_be_unique": {"columns": ["id", "at"]}}, {"id", "at"}),
        ({"expect_table_row_count_to_be_between": {"min_value": 1}}, set()),
        ({"expect_column_values_to_not_be_null": {"column": "nothing"}}, set()),
        ({"expect_column_to_exist": {"column": "nothing"}}, None),
        ({"expect_table_column_count_to_equal": {"value": 3}}, None),
        (
            {"expect_column_values_to_not_be_null": {"column": "id", "row_condition": 'col("amount") > 0'}},
            {"id", "amount"},
        ),
        (
            {"expect_table_row_count_to_equal": {"value": 3, "row_condition": 'col("person.age").notnull()'}},
            {"person"},
        ),
    ],
)
def test_columns_that_are_read(entry: dict[str, Any], expected: set[str] | None) -> None:
    contract = Contract.model_validate({"expectations": [entry]})
    there = {field.name for field in schema().fields}
    found = needed_columns(contract.expectations, schema(), ("_kafka_offset", "elsewhere", None))
    assert found == (there if expected is None else expected | {"_kafka_offset"})
    alone = needed_columns(contract.expectations, schema(), ())
    assert alone == (there if expected is None else expected or {"id"}), "rows have to be counted by some column"


def masked(**mask: Any) -> set[tuple[str, ...]]:
    decode = {
        "value": "json",
        "schema": SCHEMA,
        "headers": {"trace": {"header": "x-trace", "type": "string"}, "tenant": {"header": "tenant", "type": "string"}},
        "unknown_fields": "keep",
    }
    spec = spec_of(
        decode=decode,
        table={"name": "lake.orders", "kafka_columns": {"key": True, "headers": True}},
        errors={"dead_letters": {"mask": mask}},
    )
    return set(masked_columns(spec, spec.table_schema, {}))


def test_what_the_mask_hides_is_hidden_here() -> None:
    # A key that differs by case alone masks nothing of letters, but what it means is plain.
    assert masked(columns=["person.name"]) == {("person", "name"), ("_extra",)}
    assert masked(columns=["amount"]) == {("amount",), ("_extra",)}
    assert masked(key=True) == {("_kafka_key",)}
    assert masked(headers=["x-trace"]) == {("trace",), ("_kafka_headers",)}
    assert masked() == set()


def test_columns_that_take_a_masked_key_by_another_name_are_hidden() -> None:
    spec = spec_of(errors={"dead_letters": {"mask": {"columns": ["card.number"]}}})
    table = spec.table_schema
    person = table.find_field("person").field_id
    names = f'[{{"field-id": {person}, "names": ["person", "card"]}}]'
    assert set(masked_columns(spec, table, {"schema.name-mapping.default": names})) == {("card", "number"), ("person",)}
