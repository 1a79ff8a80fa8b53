"""Rows of a writer schema in a stream's columns: what lands, is left out, or fails, and what a table would need."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.records.formats.conform import Conform
from jobs.records.formats.interface.decoder import EVERY_FIELD, LEFT_OUT, Decoded
from jobs.records.formats.interface.problems import shown_key
from jobs.records.schema.arrow_schema import rows_arrow_schema
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.name_matching import NameRule
from jobs.records.schema.parser import parse_schema


def schema(text: str) -> Schema:
    return iceberg_schema(parse_schema(text))


def decoded(writer: Schema, rows: list[dict[str, Any]]) -> Decoded:
    made = pa.RecordBatch.from_pylist(rows, schema=rows_arrow_schema(writer))
    # Other positions than the rows' own: records before them failed.
    return Decoded(made, np.arange(len(rows)) + 2, [], np.zeros(0, np.int64), {})


def conformed(writer: str, columns: str, rows: list[dict[str, Any]], **options: Any) -> Decoded:
    made = Conform(schema(writer), schema(columns), **options).apply(decoded(schema(writer), rows))
    made.rows.validate(full=True)
    assert made.rows.schema == rows_arrow_schema(schema(columns))
    return made


def reasons(made: Decoded) -> list[tuple[int, str, str | None]]:
    return [(each.row - 2, each.error_class, each.field) for each in made.failures]


@pytest.mark.parametrize("place", ["$.s." + "n" * 60 + "… (70 characters, 8ee0c5d1)", EVERY_FIELD])
def test_a_field_that_gets_no_column_fails_its_records_however_long_its_name(place: str) -> None:
    long = "n" * 70
    given_rows = [{"id": "a", "s": {"b": 1, long: None}}, {"id": "b", "s": {"b": 1, long: 2}}]
    place = place.replace("8ee0c5d1", shown_key(long)[-9:-1])
    made = conformed(
        f"id string, s struct<b int, {long} int>", "id string, s struct<b int>", given_rows, refused={place: "no"}
    )
    assert reasons(made) == [(1, "schema_change_refused", f"$.s.{shown_key(long)}")]
    assert made.rows.to_pylist() == [{"id": "a", "s": {"b": 1}}]


def test_a_record_that_no_change_lets_land_needs_none() -> None:
    writer, columns = "bad string, n long, new int, m int", "bad int, n int, m int not null"
    lost = {"bad": "x", "n": 2**40, "new": 1, "m": None}
    assert conformed(writer, columns, [lost]).needs == ()
    made = conformed(writer, columns, [lost, {**lost, "bad": None}])
    assert [(each.change, each.path, each.row) for each in made.needs] == [
        ("add", ("new",), 3),
        ("widen", ("n",), 3),
        ("relax", ("m",), 3),
    ]
    assert [each[1] for each in reasons(made)] == ["wrong_type", "out_of_range"]
    left_out = conformed("new int", "n int", [{"new": 1}], extra="propose", refused={"$.new": LEFT_OUT})
    assert left_out.failures == [] and left_out.unknown_fields == {"$.new": 1}
    proposed = conformed("new int", "n int", [{"new": 1}], extra="propose")
    assert [each.change for each in proposed.needs] == ["add"]


def test_equal_fields_are_the_very_arrays() -> None:
    text = "id string not null, n long, s struct<a int, b list<string>>"
    given_rows = decoded(schema(text), [{"id": "a", "n": 1, "s": {"a": 1, "b": ["x"]}}])
    made = Conform(schema(text), schema(text)).apply(given_rows)
    assert [column.buffers()[1].address for column in made.rows.columns[:2]] == [
        column.buffers()[1].address for column in given_rows.rows.columns[:2]
    ]
    assert made.needs == ()


def test_columns_are_matched_by_name_and_what_nobody_takes_is_counted() -> None:
    made = conformed(
        "extra string, b int, a string not null",
        "a string not null, b int, c double",
        [{"extra": "x", "b": 1, "a": "k"}, {"extra": None, "b": None, "a": "l"}],
    )
    assert made.rows.to_pylist() == [{"a": "k", "b": 1, "c": None}, {"a": "l", "b": None, "c": None}]
    assert made.unknown_fields == {"$.extra": 1}
    assert [(need.change, need.path, str(need.type), need.row) for need in made.needs] == [
        ("add", ("extra",), "string", 2)
    ]


OLD_NAMES = NameRule(((("id",), ("key", "ident")), (("s", "x"), ("y",)), (("items", "element", "sku"), ("article",))))
COLUMNS = "id string not null, n long, s struct<x int>, items list<struct<sku string>>"


@pytest.mark.parametrize(
    ("writer", "names", "given_rows", "expected", "unknown"),
    [
        (
            "key string not null, N int, s struct<y int>, items list<struct<article string>>",
            OLD_NAMES,
            [{"key": "a", "N": 1, "s": {"y": 2}, "items": [{"article": "b"}, None]}],
            [{"id": "a", "n": None, "s": {"x": 2}, "items": [{"sku": "b"}, None]}],
            {"$.N": 1},
        ),
        (
            "ID string not null, N int, S struct<X int>",
            NameRule(any_case=True),
            [{"ID": "a", "N": 1, "S": {"X": 2}}, {"ID": "b", "N": None, "S": None}],
            [
                {"id": "a", "n": 1, "s": {"x": 2}, "items": None},
                {"id": "b", "n": None, "s": None, "items": None},
            ],
            {},
        ),
        (
            "id string, key string, ident string, S struct<x int, Y int>",
            NameRule(OLD_NAMES.aliases, any_case=True),
            [
                {"id": "a", "key": None, "ident": None, "S": {"x": 1, "Y": None}},
                {"id": None, "key": "b", "ident": None, "S": {"x": None, "Y": 2}},
                {"id": None, "key": None, "ident": "c", "S": None},
            ],
            [
                {"id": "a", "n": None, "s": {"x": 1}, "items": None},
                {"id": "b", "n": None, "s": {"x": 2}, "items": None},
                {"id": "c", "n": None, "s": None, "items": None},
            ],
            {},
        ),
    ],
)
def test_a_field_goes_into_the_column_that_it_names(
    writer: str, names: NameRule, given_rows: list[Any], expected: list[Any], unknown: dict[str, int]
) -> None:
    made = conformed(writer, COLUMNS, given_rows, names=names)
    assert (made.rows.to_pylist(), made.unknown_fields, made.failures) == (expected, unknown, [])


def test_of_several_fields_for_one_column_a_record_may_have_a_value_in_one() -> None:
    rows = [
        {"id": "a", "key": "b", "n": 1, "m": None},
        {"id": None, "key": None, "n": 1, "m": None},
        {"id": None, "key": "c", "n": 2**40, "m": None},
        {"id": None, "key": "d", "n": None, "m": 2},
        {"id": "e", "key": None, "n": 3, "m": 3},
    ]
    names = NameRule((*OLD_NAMES.aliases, (("n",), ("m",))))
    made = conformed("id string, key string, n long, m int", "id string not null, n int", rows, names=names)
    assert made.rows.to_pylist() == [{"id": "d", "n": 2}]
    assert reasons(made) == [
        (0, "ambiguous_field", "$.id"),
        (1, "null_in_required", "$.id"),
        (2, "out_of_range", "$.n"),
        (4, "ambiguous_field", "$.n"),
    ]
    assert "found 'id' and 'key'" in made.failures[0].message
    assert [(need.change, need.path) for need in made.needs] == [("relax", ("id",)), ("widen", ("n",))]


def test_a_column_with_one_field_that_is_always_there_needs_no_change() -> None:
    rows = [{"id": None, "key": "c"}]
    made = conformed("id string, key string not null", "id string not null", rows, names=OLD_NAMES)
    assert (made.rows.to_pylist(), made.needs) == ([{"id": "c"}], ())


CONVERSIONS = [
    ("int", "long", [1, -(2**31), None], [], "none"),
    ("long", "int", [2**31 - 1, -(2**31), 2**31, None], [(2, "out_of_range")], "widen"),
    ("float", "double", [1.5, float("inf")], [], "none"),
    ("double", "float", [1.5, 0.1, 1e300, float("inf"), None], [(1, "precision_loss"), (2, "out_of_range")], "widen"),
    ("int", "double", [2**31 - 1], [], "none"),
    ("long", "double", [2**53, 2**53 + 1, -(2**63), 2**63 - 1], [(1, "precision_loss"), (3, "precision_loss")], "none"),
    ("long", "float", [2**24, 2**24 + 1], [(1, "precision_loss")], "none"),
    ("long", "decimal(5,2)", [999, -999, 1000, None], [(2, "out_of_range")], "none"),
    ("long", "decimal(38,0)", [2**63 - 1, -(2**63)], [], "none"),
    ("decimal(5,2)", "decimal(20,4)", [Decimal("1.23")], [], "none"),
    (
        "decimal(38,2)",
        "decimal(5,2)",
        [Decimal("999.99"), Decimal("-1000.00"), Decimal("9" * 36 + ".99")],
        [(1, "out_of_range"), (2, "out_of_range")],
        "widen",
    ),
    (
        "decimal(10,4)",
        "decimal(10,2)",
        [Decimal("1.2300"), Decimal("1.2340"), Decimal("-0.0001")],
        [(1, "precision_loss"), (2, "precision_loss")],
        "none",
    ),
    # Times 100,000 the first is 88,544 in 128 bits.
    ("decimal(38,0)", "decimal(38,5)", [Decimal(2**128 // 10**5 + 1), Decimal(-7)], [(0, "out_of_range")], "none"),
    ("decimal(12,2)", "decimal(9,4)", [Decimal("1.25"), None, Decimal("99999.99")], [], "none"),
    ("decimal(38,38)", "decimal(38,0)", [Decimal("0.1"), Decimal(0)], [(0, "precision_loss")], "none"),
    ("string", "long", ["1", None], [(0, "wrong_type")], "none"),
    ("long", "string", [1, None], [(0, "wrong_type")], "none"),
    ("timestamp", "timestamptz", [1], [(0, "wrong_type")], "none"),
    ("struct<a int>", "int", [{"a": 1}, None], [(0, "wrong_type")], "none"),
    (
        "struct<scale: int, value: binary>",
        "decimal(5,2)",
        [
            None,
            {"scale": 99_999, "value": b"\x01"},
            {"scale": 3, "value": b"\x01"},
            {"scale": 0, "value": b""},
            {"scale": None, "value": b"\x01"},
        ],
        [(1, "out_of_range"), (2, "precision_loss"), (3, "wrong_length"), (4, "wrong_length")],
        "none",
    ),
    ("struct<scale: int, value: string>", "decimal(5,2)", [{"scale": 1, "value": "x"}], [(0, "wrong_type")], "none"),
    ("list<int>", "map<string, int>", [[1], None, []], [(0, "wrong_type"), (2, "wrong_type")], "none"),
]


@pytest.mark.parametrize(("written", "column", "values", "refused", "need"), CONVERSIONS)
def test_a_value_lands_as_it_is_or_its_record_fails(
    written: str, column: str, values: list[Any], refused: list[tuple[int, str]], need: str
) -> None:
    made = conformed(f"v {written}", f"v {column}", [{"v": value} for value in values])
    assert reasons(made) == [(row, error_class, "$.v") for row, error_class in refused]
    kept = [value for row, value in enumerate(values) if row not in dict(refused)]
    assert [row["v"] for row in made.rows.to_pylist()] == kept
    assert [each.change for each in made.needs] == ([] if need == "none" else [need])


def test_a_decimal_with_a_scale_of_its_own_lands_in_a_decimal() -> None:
    rows: list[dict[str, Any]] = [
        {"v": {"scale": scale, "value": value.to_bytes(2, signed=True)}}
        for scale, value in ((0, 7), (1, -15), (2, 1234), (-1, 9), (4, 12_300))
    ]
    made = conformed("v struct<scale: int not null, value: binary not null>", "v decimal(5,2)", rows)
    assert [str(row["v"]) for row in made.rows.to_pylist()] == ["7.00", "-1.50", "12.34", "90.00", "1.23"]


def test_fixed_bytes_and_bytes_of_a_length() -> None:
    fixed, octets = (Schema(ice.NestedField(1, "v", kind)) for kind in (ice.FixedType(2), ice.BinaryType()))
    made = Conform(fixed, octets).apply(decoded(fixed, [{"v": b"ab"}]))
    assert made.rows.to_pylist() == [{"v": b"ab"}]
    made = Conform(octets, fixed).apply(decoded(octets, [{"v": b"ab"}, {"v": b"abc"}, {"v": None}]))
    assert (made.rows.to_pylist(), reasons(made)) == ([{"v": b"ab"}, {"v": None}], [(1, "wrong_length", "$.v")])


def test_a_required_column_refuses_null_and_a_field_that_is_not_there() -> None:
    made = conformed("a int", "a int not null", [{"a": 1}, {"a": None}])
    assert reasons(made) == [(1, "null_in_required", "$.a")]
    assert [(need.change, need.path) for need in made.needs] == [("relax", ("a",))]
    made = conformed("a int", "a int, b int not null", [{"a": 1}])
    assert reasons(made) == [(0, "missing_field", "$.b")]
    assert [(need.change, need.path) for need in made.needs] == [("relax", ("b",))]
    assert made.rows.num_rows == 0


def test_nested_fields_fail_at_their_place_and_under_null_nothing_is_looked_at() -> None:
    written = "s struct<a long, x string>, l list<struct<n long>>, m map<string, long>"
    columns = "s struct<a int not null>, l list<struct<n int, more string>>, m map<string, int>"
    rows: list[dict[str, Any]] = [
        {"s": {"a": 1, "x": "y"}, "l": [{"n": 1}, None], "m": {"k": 1}},
        {"s": None, "l": None, "m": None},
        {"s": {"a": None, "x": None}, "l": [], "m": {}},
        {"s": {"a": 1}, "l": [{"n": 1}, {"n": 2**31}], "m": {}},
        {"s": {"a": 1}, "l": [{"n": None}], "m": {"a": 1, "b": 2**31}},
    ]
    made = conformed(written, columns, rows)
    assert reasons(made) == [
        (2, "null_in_required", "$.s.a"),
        (3, "out_of_range", "$.l[1].n"),
        (4, "out_of_range", "$.m[...]"),
    ]
    assert made.rows.to_pylist() == [
        {"s": {"a": 1}, "l": [{"n": 1, "more": None}, None], "m": [("k", 1)]},
        {"s": None, "l": None, "m": None},
    ]
    assert made.unknown_fields == {"$.s.x": 1}
    assert {(need.change, need.path) for need in made.needs} == {
        ("add", ("s", "x")),
        ("widen", ("s", "a")),
        ("relax", ("s", "a")),
        ("widen", ("l", "element", "n")),
        ("widen", ("m", "value")),
    }


def test_fields_that_no_column_takes_fail_their_records_where_the_stream_says_so() -> None:
    rows = [{"a": 1, "s": {"x": 1}}, {"a": 2, "s": {"x": None}}, {"a": 3, "s": None}]
    made = conformed("a int, s struct<x int>", "a int, s struct<y int>", rows, extra="fail")
    assert reasons(made) == [(0, "unknown_field", "$.s.x")]
    assert made.rows.to_pylist() == [{"a": 2, "s": {"y": None}}, {"a": 3, "s": None}]


def test_slices_are_conformed_as_what_they_show() -> None:
    writer, columns = schema("l list<long>, s struct<a long>"), schema("s struct<a int>, l list<int>")
    rows = [{"l": [index, 2**31 if index == 1 else 0], "s": {"a": index}} for index in range(6)]
    whole = pa.RecordBatch.from_pylist(rows, schema=rows_arrow_schema(writer)).slice(2, 3)
    made = Conform(writer, columns).apply(Decoded(whole, np.arange(3), [], np.zeros(0, np.int64), {}))
    assert made.failures == []
    assert made.rows.to_pylist() == [{"s": {"a": n}, "l": [n, 0]} for n in (2, 3, 4)]


def test_an_example_of_a_field_that_no_column_takes() -> None:
    writer, columns = schema("a int, `n m` struct<x int>, s struct<z list<double>>"), schema("a int, s struct<y int>")
    rows = [{"a": 1, "n m": None, "s": None}, {"a": 2, "n m": {"x": 1}, "s": {"z": [1.0]}}]
    found = dict(Conform(writer, columns).unknown_fields(decoded(writer, rows)))
    assert found == {
        "$.n m": (3, "$", "`n m` struct<x int>"),
        "$.s.z": (3, "$.s", "z list<double>"),
    }


PRIMITIVES = ["int", "long", "float", "double", "decimal(6,2)", "decimal(12,4)", "string", "binary", "boolean", "date"]


def types(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(PRIMITIVES)
    if not depth:
        return leaf
    below = types(depth - 1)
    return st.one_of(
        leaf,
        st.tuples(below, st.booleans()).map(lambda of: f"list<{of[0]}{' not null' if of[1] else ''}>"),
        below.map(lambda of: f"map<string, {of}>"),
        fields(depth - 1).map(lambda of: f"struct<{of}>"),
    )


def fields(depth: int) -> st.SearchStrategy[str]:
    one = st.tuples(types(depth), st.booleans())
    chosen = st.dictionaries(st.sampled_from("abcd"), one, min_size=1, max_size=4)
    return chosen.map(lambda of: ", ".join(f"{n} {t}{' not null' if r else ''}" for n, (t, r) in of.items()))


def values_of(kind: ice.IcebergType, required: bool) -> st.SearchStrategy[Any]:
    match kind:
        case ice.StructType():
            made: st.SearchStrategy[Any] = st.fixed_dictionaries(
                {each.name: values_of(each.field_type, each.required) for each in kind.fields}
            )
        case ice.ListType():
            made = st.lists(values_of(kind.element_type, kind.element_required), max_size=3)
        case ice.MapType():
            made = st.dictionaries(st.sampled_from("kl"), values_of(kind.value_type, kind.value_required), max_size=2)
        case ice.IntegerType():
            made = st.integers(-(2**31), 2**31 - 1)
        case ice.LongType():
            made = st.sampled_from([0, 7, 2**31, -(2**63), 2**53 + 1])
        case ice.FloatType():
            made = st.sampled_from([0.0, 1.5, float("inf")])
        case ice.DoubleType():
            made = st.sampled_from([0.0, 0.1, 1e300, float("-inf")])
        case ice.DecimalType():
            made = st.integers(-(10**kind.precision) + 1, 10**kind.precision - 1).map(
                lambda number: Decimal(number).scaleb(-kind.scale)
            )
        case ice.StringType():
            made = st.sampled_from(["", "x"])
        case ice.BinaryType():
            made = st.sampled_from([b"", b"\x00"])
        case ice.BooleanType():
            made = st.booleans()
        case _:
            made = st.dates()
    return made if required else st.none() | made


class Refused(Exception):
    pass


def one_value(value: Any, written: ice.IcebergType, column: ice.IcebergType, required: bool) -> Any:
    """What a column has of a value, by the plainest rule that can be written down."""
    if value is None:
        if required:
            raise Refused
        return None
    match written, column:
        case ice.StructType(), ice.StructType():
            given_kinds = {each.name: each.field_type for each in written.fields}
            return {
                each.name: one_value(
                    value.get(each.name), given_kinds.get(each.name, each.field_type), each.field_type, each.required
                )
                for each in column.fields
            }
        case ice.ListType(), ice.ListType():
            return [
                one_value(each, written.element_type, column.element_type, column.element_required) for each in value
            ]
        case ice.MapType(), ice.MapType():
            return [
                (key, one_value(each, written.value_type, column.value_type, column.value_required))
                for key, each in value.items()
            ]
        case _ if written == column:
            return value
        case ((ice.IntegerType() | ice.LongType()), ice.IntegerType()):
            return kept(value, -(2**31) <= value < 2**31)
        case ice.IntegerType(), ice.LongType():
            return value
        case (
            (ice.IntegerType() | ice.LongType() | ice.FloatType() | ice.DoubleType()),
            (ice.FloatType() | ice.DoubleType()),
        ):
            number = float(np.float32(value)) if isinstance(column, ice.FloatType) else float(value)
            return kept(number, number == value)
        case ((ice.IntegerType() | ice.LongType() | ice.DecimalType()), ice.DecimalType()):
            exact = Decimal(value).quantize(Decimal(1).scaleb(-column.scale))
            fits = abs(exact) < Decimal(10) ** (column.precision - column.scale)
            return kept(exact, exact == value and fits)
        case _:
            raise Refused


def kept(value: Any, fits: bool) -> Any:
    if not fits:
        raise Refused
    return value


@settings(max_examples=150, deadline=None)
@given(st.data())
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_any_two_schemas_agree_with_the_plain_rule(data: st.DataObject) -> None:
    writer, columns = (schema(data.draw(fields(2))) for _ in range(2))
    row = values_of(writer.as_struct(), required=True)
    rows = data.draw(st.lists(row, max_size=4))
    made = Conform(writer, columns).apply(decoded(writer, rows))
    made.rows.validate(full=True)
    expected: dict[int, Any] = {}
    for index, value in enumerate(rows):
        try:
            expected[index] = one_value(value, writer.as_struct(), columns.as_struct(), required=True)
        except Refused:
            continue
    assert dict(zip((made.positions - 2).tolist(), made.rows.to_pylist(), strict=True)) == expected
    assert sorted(each.row - 2 for each in made.failures) == sorted(set(range(len(rows))) - set(expected))
