"""Fields of a writer schema that no column takes are kept as JSON, from which they can become columns."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.records.formats.conform import Conform
from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.formats.json_texts import canonical
from jobs.records.schema.arrow_schema import rows_arrow_schema
from jobs.records.schema.iceberg_schema import JsonText, Presence, iceberg_schema
from jobs.records.schema.name_matching import NameRule
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.rescued_data import EXTRA_COLUMN, with_extra_column


def schema(text: str) -> Schema:
    return iceberg_schema(parse_schema(text))


def conformed(writer: str, columns: Schema, rows: list[dict[str, Any]], **options: Any) -> Decoded:
    made = pa.RecordBatch.from_pylist(rows, schema=rows_arrow_schema(schema(writer)))
    decoded = Decoded(made, np.arange(len(rows)) + 2, [], np.zeros(0, np.int64), {})
    found = Conform(schema(writer), columns, "keep", **options).apply(decoded)
    found.rows.validate(full=True)
    return found


def kept(writer: str, columns: str, *rows: dict[str, Any]) -> list[str | None]:
    made = conformed(writer, with_extra_column(schema(columns)), list(rows))
    assert made.unknown_fields == {}
    assert made.rows.schema.names == [each.name for each in with_extra_column(schema(columns)).fields]
    texts = made.rows.column(EXTRA_COLUMN).to_pylist()
    assert [each and canonical(each.encode()).decode() for each in texts] == texts
    return texts


UTC_TIME = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("boolean", True, "true"),
        ("int", -7, "-7"),
        ("long", 2**63 - 1, "9223372036854775807"),
        ("double", 0.1, "0.1"),
        ("double", 1e300, "1e+300"),
        ("double", -0.0, "-0.0"),
        ("double", float("nan"), '"NaN"'),
        ("double", float("-inf"), '"-Infinity"'),
        ("float", 0.1, "0.10000000149011612"),
        ("decimal(5,2)", Decimal("1.50"), "1.50"),
        ("decimal(38,0)", Decimal(10**37), "1" + "0" * 37),
        ("decimal(20,10)", Decimal("-0.0000000001"), "-0.0000000001"),
        ("date", date(2026, 1, 31), '"2026-01-31"'),
        ("date", date(1, 1, 1), '"0001-01-01"'),
        ("timestamp", UTC_TIME.replace(tzinfo=None), '"2026-01-31T12:00:00.123456"'),
        ("timestamptz", UTC_TIME, '"2026-01-31T12:00:00.123456Z"'),
        ("timestamptz", datetime(1, 1, 1, tzinfo=UTC), '"0001-01-01T00:00:00.000000Z"'),
        ("time", time(23, 59, 59, 1), '"23:59:59.000001"'),
        ("string", 'a"ü\n', '"a\\"ü\\n"'),
        ("uuid", UUID(int=1).bytes, '"00000000-0000-0000-0000-000000000001"'),
        ("binary", b"\x00\xff", '"AP8="'),
        ("fixed(2)", b"\x00\xff", '"AP8="'),
        ("list<int>", [1, None], "[1,null]"),
        ("list<int>", [], "[]"),
        ("map<string, long>", [("b", 1), ("a", None)], '{"a":null,"b":1}'),
        ("struct<b int, a string, n int>", {"b": 1, "a": "x", "n": None}, '{"a":"x","b":1}'),
        ("struct<b int>", {"b": None}, "{}"),
        ("list<struct<a list<date>>>", [{"a": [date(2026, 1, 1)]}, None], '[{"a":["2026-01-01"]},null]'),
    ],
)
def test_the_json_of_each_type(kind: str, value: Any, text: str) -> None:
    assert kept(f"id string, v {kind}", "id string", {"id": "a", "v": value}, {"id": "b", "v": None}) == [
        f'{{"v":{text}}}',
        None,
    ]


def test_a_message_without_fields_is_an_object_in_json_and_true_where_it_is_kept() -> None:
    there = ice.NestedField(2, "there", Presence(), required=False)
    deep = ice.NestedField(3, "deep", ice.StructType(there), required=False)
    writer = Schema(ice.NestedField(1, "marker", Presence(), required=False), deep)
    rows = pa.RecordBatch.from_pylist(
        [{"marker": True, "deep": {"there": True}}, {"marker": None, "deep": {"there": None}}],
        schema=rows_arrow_schema(writer),
    )
    decoded = Decoded(rows, np.arange(2), [], np.zeros(0, np.int64), {})
    columns = iceberg_schema(parse_schema("marker json, deep json"), JsonText)
    assert Conform(writer, columns).apply(decoded).rows.to_pylist() == [
        {"marker": "{}", "deep": '{"there":{}}'},
        {"marker": None, "deep": "{}"},
    ]
    extra = Conform(writer, with_extra_column(schema("other long")), "keep").apply(decoded).rows.column(EXTRA_COLUMN)
    assert extra.to_pylist() == ['{"deep":{"there":true},"marker":true}', '{"deep":{}}']


def test_keys_that_are_no_texts_are_the_text_of_their_json() -> None:
    numbered = ice.MapType(2, ice.LongType(), 3, ice.IntegerType(), value_required=False)
    writer = Schema(ice.NestedField(1, "m", numbered), ice.NestedField(4, "id", ice.StringType(), required=False))
    rows = pa.RecordBatch.from_pylist([{"m": [(7, 1), (5, None)], "id": "a"}], schema=rows_arrow_schema(writer))
    decoded = Decoded(rows, np.arange(1), [], np.zeros(0, np.int64), {})
    made = Conform(writer, with_extra_column(schema("id string")), "keep").apply(decoded)
    assert made.rows.to_pylist() == [{"id": "a", EXTRA_COLUMN: '{"m":{"5":null,"7":1}}'}]


def test_what_is_kept_has_the_shape_of_the_record() -> None:
    writer = "o struct<a int, x int>, items list<struct<k int, y string>>, m map<string, struct<k int, z int>>, w int"
    columns = "o struct<a int>, items list<struct<k int>>, m map<string, struct<k int>>"
    rows = [
        {"o": {"a": 1, "x": 2}, "items": [{"k": 1}, {"k": 2, "y": "s"}], "m": [("q", {"k": 1, "z": 3}), ("p", None)]},
        {"o": None, "items": [], "m": None, "w": 1},
        {"o": {"a": 1, "x": None}, "items": [None, {"k": 1, "y": None}], "m": []},
    ]
    assert kept(writer, columns, *rows) == [
        '{"items":[null,{"y":"s"}],"m":{"q":{"z":3}},"o":{"x":2}}',
        '{"w":1}',
        None,
    ]


def test_what_lies_in_a_column_of_another_name_is_kept_under_that_of_the_column() -> None:
    columns = with_extra_column(schema("id string, o struct<a int>"))
    rows = [{"ID": "a", "O": {"A": 1, "X": 2}, "W": 3}]
    made = conformed("ID string, O struct<A int, X int>, W int", columns, rows, names=NameRule(any_case=True))
    assert made.rows.to_pylist() == [{"id": "a", "o": {"a": 1}, EXTRA_COLUMN: '{"W":3,"o":{"X":2}}'}]
    several = NameRule(((("o",), ("p",)),))
    rows = [{"o": {"a": 1, "x": 2}, "p": None}, {"o": None, "p": {"a": 3, "y": 4}}]
    made = conformed("o struct<a int, x int>, p struct<a int, y int>", columns, rows, names=several)
    assert [each[EXTRA_COLUMN] for each in made.rows.to_pylist()] == ['{"o":{"x":2}}', '{"o":{"y":4}}']


def test_a_field_with_the_name_of_the_column_is_kept_like_any_other() -> None:
    assert kept("id string, _extra int", "id string", {"id": "a", "_extra": 1}) == ['{"_extra":1}']


def test_the_column_need_not_be_the_last() -> None:
    columns = schema("id string, _extra string, late int")
    made = conformed("late int, id string, x int", columns, [{"late": 1, "id": "a", "x": 2}])
    assert made.rows.to_pylist() == [{"id": "a", "_extra": '{"x":2}', "late": 1}]


def test_rows_that_fail_take_what_is_kept_along() -> None:
    rows = [{"id": None, "x": 1}, {"id": "b", "x": 2}]
    made = conformed("id string, x int", with_extra_column(schema("id string not null")), rows)
    assert made.rows.to_pylist() == [{"id": "b", EXTRA_COLUMN: '{"x":2}'}]
    assert [(each.row, each.error_class) for each in made.failures] == [(2, "null_in_required")]


def test_a_table_without_the_column_gets_it_with_the_first_record_that_needs_it() -> None:
    rows = [{"id": "a", "x": None}, {"id": "b", "x": 2}]
    made = conformed("id string, x int", schema("id string"), rows)
    assert [(each.change, each.path, each.row) for each in made.needs if each.path == (EXTRA_COLUMN,)] == [
        ("add", (EXTRA_COLUMN,), 3)
    ]
    assert made.unknown_fields == {"$.x": 1}
    refused = conformed("id string, x int", schema("id string"), rows, refused={f"$.{EXTRA_COLUMN}": "no room"})
    assert refused.rows.to_pylist() == [{"id": "a"}]
    assert [(each.row, each.error_class, each.field) for each in refused.failures] == [
        (3, "schema_change_refused", "$._extra")
    ]


EVERY = (
    "b boolean, i int, l long, f float, d double, n decimal(12,3), day date, ts timestamp, at timestamptz, t time, "
    "s string, u uuid, raw binary, fx fixed(3), li list<int>, m map<string, timestamptz>, "
    "st struct<a date, b list<decimal(5,2)>>"
)
moments = st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31))
instants = moments.map(lambda each: each.replace(tzinfo=UTC))
cents = st.integers(-99999, 99999).map(lambda n: Decimal(n).scaleb(-2))
values = st.fixed_dictionaries(
    {
        name: st.none() | each
        for name, each in {
            "b": st.booleans(),
            "i": st.integers(-(2**31), 2**31 - 1),
            "l": st.integers(-(2**63), 2**63 - 1),
            "f": st.floats(width=32, allow_nan=False, allow_infinity=False),
            "d": st.floats(allow_nan=False, allow_infinity=False),
            "n": st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3)),
            "day": st.dates(),
            "ts": moments,
            "at": instants,
            "t": st.times(),
            "s": st.text(),
            "u": st.uuids().map(lambda each: each.bytes),
            "raw": st.binary(),
            "fx": st.binary(min_size=3, max_size=3),
            "li": st.lists(st.none() | st.integers(-9, 9)),
            "m": st.dictionaries(st.text(max_size=3), st.none() | instants, max_size=3).map(
                lambda each: [*each.items()]
            ),
            "st": st.fixed_dictionaries({"a": st.none() | st.dates(), "b": st.none() | st.lists(cents, max_size=3)}),
        }.items()
    }
)


@settings(max_examples=100, deadline=None)
@given(st.lists(values, min_size=1, max_size=4))
def test_what_is_kept_can_become_a_column(rows: list[dict[str, Any]]) -> None:
    texts = kept(f"id string, {EVERY}", "id string", *({"id": "a"} | each for each in rows))
    records = pa.array([(each or "{}").encode() for each in texts], pa.binary())
    read = JsonReferenceDecoder(parse_schema(EVERY)).decode(records)
    assert read.failures == []
    wanted = pa.RecordBatch.from_pylist(rows, schema=rows_arrow_schema(schema(EVERY))).to_pylist()
    got = read.rows.to_pylist()
    for each in (*got, *wanted):
        each["m"] = each["m"] and sorted(each["m"])
    assert repr(got) == repr(wanted)
