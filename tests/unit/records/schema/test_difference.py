"""Differences between the schema of rows and that of a table."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, LongType, NestedField, StringType

from jobs.records.schema.compatibility import disagreements, widened_type
from jobs.records.schema.difference import (
    differences,
    rename_suggestions,
    similar,
    with_former_column,
)
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS, NO_KAFKA_COLUMNS
from jobs.records.schema.name_matching import EXACT_NAMES, NameRule
from jobs.records.schema.needs import Need
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.schema_change import SchemaChange

KAFKA = tuple(KAFKA_COLUMNS.names)


def schema(text: str) -> Schema:
    return iceberg_schema(parse_schema(text))


def found(rows: str, table: str) -> list[tuple[str, str, str | None]]:
    """Kind, path and needed change of each difference."""
    return [
        (each.kind, each.column, f"{each.needs.change} {each.needs.type or ''}".strip() if each.needs else None)
        for each in differences(schema(rows), schema(table))
    ]


@pytest.mark.parametrize(
    ("rows", "table", "expected"),
    [
        ("a int", "a int", []),
        ("a int, b string", "b string, a int", []),
        ("a int, b string", "a int", [("added", "b", "add string")]),
        ("a int", "a int, b string", [("gone", "b", None)]),
        ("a int", "a int, b string not null", [("gone", "b", "relax")]),
        ("a long", "a int", [("widened", "a", "widen long")]),
        ("a double", "a float", [("widened", "a", "widen double")]),
        ("a decimal(12,2)", "a decimal(10,2)", [("widened", "a", "widen decimal(12, 2)")]),
        ("a decimal(10,2)", "a decimal(10,4)", [("widened", "a", "widen decimal(12, 4)")]),
        ("a decimal(38,2)", "a decimal(38,4)", [("other_type", "a", None)]),
        ("a decimal(10,4)", "a decimal(10,2)", [("other_type", "a", None)]),
        ("a int", "a long", [("narrowed", "a", None)]),
        ("a float", "a double", [("narrowed", "a", None)]),
        ("a decimal(10,2)", "a decimal(12,2)", [("narrowed", "a", None)]),
        ("a int", "a double", [("other_type", "a", None)]),
        ("a string", "a int", [("other_type", "a", None)]),
        ("a struct<b int>", "a int", [("other_type", "a", None)]),
        ("a list<int>", "a map<string, int>", [("other_type", "a", None)]),
        ("a int not null", "a int", [("now_required", "a", None)]),
        ("a int", "a int not null", [("now_optional", "a", "relax")]),
        ("a long", "a int not null", [("now_optional", "a", "relax"), ("widened", "a", "widen long")]),
        ("Id int", "id int", [("case", "Id", None)]),
        ("a struct<b int, c int>", "a struct<b int>", [("added", "a.c", "add int")]),
        ("a struct<b int>", "a struct<b int, c int>", [("gone", "a.c", None)]),
        ("a list<long>", "a list<int>", [("widened", "a.element", "widen long")]),
        ("a list<int>", "a list<int not null>", [("now_optional", "a.element", "relax")]),
        ("a list<struct<x int, y int>>", "a list<struct<x int>>", [("added", "a.element.y", "add int")]),
        ("a map<string, long>", "a map<string, int>", [("widened", "a.value", "widen long")]),
        ("a map<string, struct<x int>>", "a map<string, struct<X int>>", [("case", "a.value.x", None)]),
        ("b long, c int", "a int, b long", [("added", "c", "add int"), ("gone", "a", None)]),
    ],
)  # fmt: skip
def test_each_kind_with_the_change_that_ends_it(
    rows: str, table: str, expected: list[tuple[str, str, str | None]]
) -> None:
    assert found(rows, table) == expected


def test_columns_that_frazil_fills_are_no_difference() -> None:
    assert differences(schema("a int"), KAFKA_COLUMNS.added_to(schema("a int")), own=KAFKA) == []


def test_a_difference_is_told_in_a_sentence() -> None:
    told = [str(each) for each in differences(schema("a long, b int"), schema("a int, c date"))]
    assert told == [
        "a: long is wider than the table's int",
        "b: int is not in the table",
        "c: date of the table is not among the fields",
    ]


_types = st.recursive(
    st.sampled_from(["int", "long", "float", "double", "string", "date", "decimal(9,2)", "decimal(12,2)"]),
    lambda inner: st.one_of(
        inner.map(lambda kind: f"list<{kind}>"),
        inner.map(lambda kind: f"list<{kind} not null>"),
        inner.map(lambda kind: f"map<string, {kind}>"),
        st.dictionaries(st.sampled_from("abC"), inner, min_size=1, max_size=2).map(
            lambda fields: f"struct<{', '.join(f'{name} {kind}' for name, kind in fields.items())}>"
        ),
    ),
    max_leaves=3,
)
_schemas = st.dictionaries(
    st.sampled_from("abcABD"), st.tuples(_types, st.booleans()), min_size=1, max_size=3
).filter(lambda fields: len({name.casefold() for name in fields}) == len(fields)).map(
    lambda fields: schema(", ".join(f"{n} {kind}{' not null' if req else ''}" for n, (kind, req) in fields.items()))
)  # fmt: skip


@given(_schemas, _schemas)
@settings(max_examples=300, deadline=None)
def test_rows_fit_where_a_driver_would_write_them(rows: Schema, table: Schema) -> None:
    fits = all(each.fits for each in differences(rows, table))
    assert fits == (disagreements(rows, table, NO_KAFKA_COLUMNS) == [])


@given(_schemas)
@settings(max_examples=50, deadline=None)
def test_a_schema_does_not_differ_from_itself(one: Schema) -> None:
    assert differences(one, one) == []


@given(_schemas, _schemas)
@settings(max_examples=200, deadline=None)
def test_both_ways_tell_the_same_paths(one: Schema, other: Schema) -> None:
    kinds = {"added": "gone", "gone": "added", "now_required": "now_optional", "now_optional": "now_required"}
    there = {(each.kind, tuple(map(str.casefold, each.path))) for each in differences(one, other)}
    back = {(each.kind, tuple(map(str.casefold, each.path))) for each in differences(other, one)}
    same = ("added", "gone", "now_required", "now_optional", "case")
    assert {(kinds.get(kind, kind), path) for kind, path in there if kind in same} == {
        each for each in back if each[0] in same
    }


def test_the_wider_type_holds_both() -> None:
    kinds = [
        schema(f"v {text}").fields[0].field_type
        for text in ("int", "long", "float", "double", "decimal(9,2)", "decimal(12,2)", "decimal(9,4)", "date")
    ]
    for value in kinds:
        for column in kinds:
            wider = widened_type(value, column)
            if wider is not None:
                assert differences_fit(value, wider)
                assert differences_fit(column, wider)


def differences_fit(value: IcebergType, column: IcebergType) -> bool:
    rows, table = (Schema(NestedField(1, "v", kind, required=False)) for kind in (value, column))
    return all(each.fits for each in differences(rows, table))


@pytest.mark.parametrize(
    ("rows", "table", "expected"),
    [
        ("id string, full_name string", "id string, name string", ["--rename name=full_name"]),
        ("id string, payerId string", "id string, payer_id string", ["--rename payer_id=payerId"]),
        ("a struct<x int, cents long>", "a struct<x int, cent long>", ["--rename a.cent=a.cents"]),
        ("a list<struct<sku_code int>>", "a list<struct<sku int>>", ["--rename a.element.sku=a.element.sku_code"]),
        # The position is told by a neighbour, too: new columns of a table come last.
        ("more int, id string, full_name string", "id string, name string, more int", ["--rename name=full_name"]),
        ("full_name string, more int, id string", "id string, name string, more int", ["--rename name=full_name"]),
        ("full_name string, id string, more int", "id string, name string, more int", []),
        ("id string, name long", "id string, full_name string", []),
        ("full_name string, id string", "id string, name string", []),
        ("id string, colour string", "id string, weight string", []),
        ("id string, name1 string, name2 string", "id string, name string", []),
        ("id string", "id string, name string", []),
    ],
)
def test_a_rename_is_suggested_only_where_nothing_else_can_be_meant(rows: str, table: str, expected: list[str]) -> None:
    one, other = schema(rows), KAFKA_COLUMNS.added_to(schema(table))
    told = rename_suggestions(differences(one, other, own=KAFKA), one, other, own=KAFKA)
    assert [each.option for each in told] == expected


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("a", "b", False),
        ("id", "identity", False),
        ("amount", "created_at", False),
        ("name", "full_name", True),
        ("payerId", "payer_id", True),
        ("名前", "名前2", True),
    ],
)
def test_names_that_are_alike(one: str, other: str, alike: bool) -> None:
    assert similar(one, other) == alike


def test_the_need_of_a_new_field_names_the_column_that_its_writer_lacks() -> None:
    columns, rows = schema("id string, name string"), schema("id string, full_name string")
    needs = [Need("relax", ("id",)), Need("add", ("full_name",), StringType())]
    assert [each.former for each in with_former_column(needs, rows, columns, EXACT_NAMES)] == [None, ("name",)]
    # Under an alias the field is the column itself, and nothing is new.
    names = NameRule(((("name",), ("full_name",)),))
    assert [each.former for each in with_former_column(needs, rows, columns, names)] == [None, None]
    assert needs[1].at(7).former is None
    assert Need("add", ("b",), former=("a",)).at(7) == Need("add", ("b",), row=7, former=("a",))


def test_a_change_says_what_it_looks_like() -> None:
    change = SchemaChange("add", ("s", "x"), LongType(), None, ("s", "w"))
    assert str(change) == "add column s.x long"
    assert change.sentence == "add column s.x long, which looks like column s.w under another name"
    assert SchemaChange("add", ("x",), LongType()).sentence == "add column x long"
