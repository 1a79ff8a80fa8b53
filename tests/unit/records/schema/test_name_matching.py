"""Which column takes a field: by its own name, an alias of the table's name mapping, or another case if asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema

from jobs.base.errors import FrazilError
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.name_matching import (
    NAME_MAPPING,
    NameRule,
    StructNames,
    aliases_of,
    alike_columns,
)
from jobs.records.schema.parser import parse_schema

NAMES = ["a", "A", "b", "B", "ab", "AB", "aB", "ß", "SS", "x"]


def schema(text: str) -> Schema:
    return iceberg_schema(parse_schema(text))


def mapping(fields: list[dict[str, Any]]) -> dict[str, str]:
    return {NAME_MAPPING: json.dumps(fields)}


@pytest.mark.parametrize(
    ("field", "any_case", "column"),
    [
        ("id", False, "id"),
        ("key", False, "id"),
        ("ID", False, None),
        ("ID", True, "id"),
        ("KEY", True, "id"),
        ("total", False, "total"),
        ("Total", True, "total"),
        ("other", True, None),
    ],
)
def test_a_column_has_its_name_its_aliases_and_if_asked_any_case(field: str, any_case: bool, column: str) -> None:
    # `total` is a column's own name, so an alias of nobody else.
    names = StructNames(["id", "total"], {"id": ["key", "total"]}, any_case=any_case)
    assert names.column(field) == column


def test_what_two_columns_claim_alike_goes_to_neither() -> None:
    assert StructNames(["a", "b"], {"a": ["x"], "b": ["x"]}, any_case=False).column("x") is None
    alike = StructNames(["aB", "Ab"], {}, any_case=True)
    assert [alike.column(each) for each in ("aB", "Ab", "ab")] == ["aB", "Ab", None]
    assert StructNames(["a", "b"], {"a": ["x"], "b": ["X"]}, any_case=True).column("x") == "a"


@given(
    st.lists(st.sampled_from(NAMES), unique=True, max_size=4),
    st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=3), max_size=4),
    st.booleans(),
    st.sampled_from(NAMES),
)
def test_matching_is_the_plainest_rule(
    columns: list[str], aliases: dict[str, list[str]], any_case: bool, field: str
) -> None:
    aliases = {column: names for column, names in aliases.items() if column in columns}
    found = StructNames(columns, aliases, any_case=any_case).column(field)
    by_alias = [(name, column) for column, names in aliases.items() for name in names if name not in columns]
    steps = [
        {each for each in columns if each == field},
        {column for name, column in by_alias if name == field},
    ]
    if any_case:
        steps += [
            {each for each in columns if each.casefold() == field.casefold()},
            {column for name, column in by_alias if name.casefold() == field.casefold()},
        ]
    claims = next((step for step in steps if step), set())
    assert found == (next(iter(claims)) if len(claims) == 1 else None)


def test_the_aliases_of_a_table_are_those_of_its_mapping_at_every_level() -> None:
    table = schema("id string, payer struct<name string>, items list<struct<sku string>>, m map<string, struct<v int>>")
    ids = {name: field.field_id for name, field in ((each, table.find_field(each)) for each in table.column_names)}
    fields = [
        {"field-id": ids["id"], "names": ["id", "key", "payer"]},
        {
            "field-id": ids["payer"],
            "names": ["payer", "customer"],
            "fields": [{"field-id": ids["payer.name"], "names": ["full"]}],
        },
        {
            "field-id": ids["items"],
            "names": ["items"],
            "fields": [
                {
                    "field-id": ids["items.element"],
                    "names": ["element", "array"],
                    "fields": [{"field-id": ids["items.element.sku"], "names": ["sku", "article"]}],
                }
            ],
        },
        {
            "field-id": ids["m"],
            "names": ["m"],
            "fields": [
                {"field-id": ids["m.key"], "names": ["key"]},
                {
                    "field-id": ids["m.value"],
                    "names": ["value"],
                    "fields": [{"field-id": ids["m.value.v"], "names": ["v", "w"]}],
                },
            ],
        },
        {"names": ["nobody"]},
        {"field-id": 999, "names": ["gone"]},
    ]
    assert dict(aliases_of(table, mapping(fields), "t")) == {
        ("id",): ("key",),
        ("payer",): ("customer",),
        ("payer", "name"): ("full",),
        ("items", "element", "sku"): ("article",),
        ("m", "value", "v"): ("w",),
    }
    assert aliases_of(table, {}, "t") == ()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"field-id": "x"}]', "null"])
def test_a_property_that_is_no_mapping_is_told_with_its_table(text: str) -> None:
    with pytest.raises(FrazilError, match=r"schema.name-mapping.default of table t.n is no name mapping") as caught:
        aliases_of(schema("id string"), {NAME_MAPPING: text}, "t.n")
    assert "ALTER TABLE t.n" in (caught.value.fix or "")


def test_columns_that_differ_by_case_only_are_found_at_every_level() -> None:
    from pyiceberg.types import IntegerType, ListType, NestedField, StructType

    inner = StructType(NestedField(5, "x", IntegerType()), NestedField(6, "X", IntegerType()))
    table = Schema(
        NestedField(1, "a", IntegerType()),
        NestedField(2, "A", IntegerType()),
        NestedField(3, "l", ListType(4, inner, element_required=False)),
    )
    assert alike_columns(table) == [
        "columns a and A differ by case only",
        "columns l.element.x and l.element.X differ by case only",
    ]
    assert alike_columns(schema("a int, b int, s struct<a int>")) == []


def test_spellings_are_all_ways_to_write_a_path() -> None:
    table = schema("card struct<number string>, items list<struct<card string>>").as_struct()
    rule = NameRule(((("card",), ("c",)), (("card", "number"), ("pan", "no")), (("items", "element", "card"), ("k",))))
    assert set(rule.spellings(("card", "number"), table)) == {
        (one, other) for one in ("card", "c") for other in ("number", "pan", "no")
    }
    assert set(rule.spellings(("items", "card"), table)) == {("items", "card"), ("items", "k")}
    assert rule.spellings(("unknown", "x"), table) == [("unknown", "x")]
    assert rule.spellings(("card", "x"), table) == [("card", "x"), ("c", "x")]
