from __future__ import annotations

from pyiceberg.schema import Schema

from jobs.config.stream.models import StreamSpec
from jobs.quality.contracts.check_rows import masked_columns
from jobs.quality.schema_checks.declared import declared_contract
from jobs.quality.schema_checks.subjects import key_as_value

SPEC = StreamSpec.model_validate(
    {
        "stream": "payments",
        "source": {"topics": ["payments"]},
        "decode": {
            "value": "json",
            "schema": "id string not null, p struct<card string, at string>",
            "key": {"format": "json", "schema": "k long not null"},
        },
        "transform": ["flatten", {"rename": {"p_card": "number"}}, {"cast": {"k": "string"}}],
        "rules": [{"name": "r", "expect": "k <> ''"}],
        "table": {"name": "orders.payments"},
        "errors": {"dead_letters": {"mask": {"columns": ["p.card"]}}},
    }
)


def test_a_file_agrees_with_the_table_that_its_steps_lead_to() -> None:
    table = SPEC.table_schema
    assert declared_contract(SPEC, table).fits
    assert SPEC.disagreements_with(table) == []
    less = Schema(*(each for each in table.fields if each.name != "number"))
    assert not declared_contract(SPEC, less).fits
    assert "number" in SPEC.disagreements_with(less)[0]


def test_what_is_masked_may_stand_in_any_column_behind_the_steps() -> None:
    assert ("number",) in masked_columns(SPEC, SPEC.table_schema, {})
    assert ("_kafka_offset",) not in masked_columns(SPEC, SPEC.table_schema, {})


def test_keys_are_held_against_their_columns_without_the_steps() -> None:
    keys = key_as_value(SPEC)
    assert [each.name for each in keys.table_schema.fields] == ["k"]
