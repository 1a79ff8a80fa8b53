"""Steps that change which columns there are: flatten, rename, keep, drop, hoist, extract, split, parse_json."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.records.transforms.columns import TransformProblem
from jobs.records.transforms.parse_json import ParseJson
from jobs.records.transforms.select import (
    Drop,
    Extract,
    Flatten,
    Hoist,
    Keep,
    Rename,
    Split,
)
from jobs.records.transforms.transform import Transform
from tests.unit.records.transforms.rows import (
    applied,
    left,
    refused,
    rows_of,
)

NESTED = "id string not null, p struct<a string not null, q struct<n long, s string>, l list<struct<x int, y string>>>"
ROWS: list[dict[str, Any]] = [
    {"id": "1", "p": {"a": "a1", "q": {"n": 1, "s": "s"}, "l": [{"x": 1, "y": "y"}, None]}},
    {"id": "2", "p": None},
    {"id": "3", "p": {"a": "a3", "q": None, "l": None}},
    {"id": "4", "p": {"a": "", "q": {"n": None, "s": ""}, "l": []}},
]
nested_rows = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.text(max_size=3),
            "p": st.none()
            | st.fixed_dictionaries(
                {
                    "a": st.text(max_size=3),
                    "q": st.none()
                    | st.fixed_dictionaries({"n": st.none() | st.integers(-9, 9), "s": st.none() | st.just("s")}),
                    "l": st.none()
                    | st.lists(
                        st.none() | st.fixed_dictionaries({"x": st.integers(0, 9), "y": st.none() | st.just("y")}),
                        max_size=3,
                    ),
                }
            ),
        }
    ),
    max_size=6,
)


def of(row: Any, *path: str) -> Any:
    for each in path:
        row = None if row is None else row[each]
    return row


@given(nested_rows)
def test_flatten_gives_each_field_and_null_where_a_struct_is(rows: list[dict[str, Any]]) -> None:
    assert left(Flatten(), rows_of(NESTED, rows)) == [
        {
            "id": row["id"],
            "p_a": of(row, "p", "a"),
            "p_q_n": of(row, "p", "q", "n"),
            "p_q_s": of(row, "p", "q", "s"),
            "p_l": of(row, "p", "l"),
        }
        for row in rows
    ]


def test_what_has_no_field_left_is_dropped_within_lists_too() -> None:
    lists = (
        "items list<struct<sku: string>>, deep list<list<struct<s: struct<a: int>>>>, p struct<l: list<struct<x: int>>>"
    )
    values = [{"id": 1, "items": [{"sku": "a"}], "deep": [[{"s": {"a": 1}}]], "p": {"l": [{"x": 1}]}}, {"id": 2}]
    rows = rows_of(f"id long, {lists}", values)
    assert left(Drop(("items.sku", "deep.s.a", "p.l.x")), rows) == [{"id": 1}, {"id": 2}]


@given(nested_rows)
def test_a_part_of_a_struct_is_dropped_kept_or_renamed_within_lists_too(rows: list[dict[str, Any]]) -> None:
    given_ = rows_of(NESTED, rows)

    def without(row: dict[str, Any]) -> dict[str, Any]:
        p = row["p"]
        if p is None:
            return row
        q = None if p["q"] is None else {"s": p["q"]["s"]}
        inner = None if p["l"] is None else [None if each is None else {"x": each["x"]} for each in p["l"]]
        return {"id": row["id"], "p": {"a": p["a"], "q": q, "l": inner}}

    assert left(Drop(("p.q.n", "**.y")), given_) == [without(row) for row in rows]
    assert left(Keep(("id", "p.a", "p.q.s", "p.l.x")), given_) == [without(row) for row in rows]
    renamed = left(Rename((("id", "p"), ("p", "id"), ("p.l.x", "y"), ("p.l.y", "x"))), given_)
    assert [row["p"] for row in renamed] == [row["id"] for row in rows]
    lists = [None if row["id"] is None else row["id"]["l"] for row in renamed]
    assert lists == [
        None
        if of(row, "p", "l") is None
        else [None if each is None else {"y": each["x"], "x": each["y"]} for each in row["p"]["l"]]
        for row in rows
    ]


def test_flatten_takes_the_delimiter_and_the_columns_that_are_named() -> None:
    rows = rows_of("a struct<b int>, c struct<d int not null> not null", [{"a": None, "c": {"d": 1}}])
    assert applied(Flatten("."), rows).rows.columns.text == "a.b int, c.d int not null"
    assert applied(Flatten(only=("c",)), rows).rows.columns.text == "a struct<b int>, c_d int not null"


@pytest.mark.parametrize(
    ("step", "columns", "says"),
    [
        (Flatten(), "a_b int, a struct<b int>", "there would be two columns 'a_b'"),
        (Flatten(), "A_b int, a struct<b int>", "would differ by case only"),
        (Flatten(only=("x",)), "a struct<b int>", "there is no column 'x'"),
        (Flatten(only=("a",)), "a int", "the column 'a' is no struct"),
        (Rename((("a", "b"),)), "a int, b int", "there would be two columns 'b'"),
        (Rename((("s.a", "b"),)), "s struct<a int, b int>", "there would be two columns 's.b'"),
        (Rename((("x", "b"),)), "a int", "there is no column 'x'"),
        (Drop(("*",)), "a int", "no column would be left"),
        (Keep(("aa",)), "a int, ab int", "did you mean"),
        (Extract("a"), "a int", "is int, and a struct is taken out"),
        (Extract("l.s"), "l list<struct<s struct<a int>>>", "is within a list"),
        (Extract("s", ("a",)), "a int, s struct<a int>", "there would be two columns 'a'"),
        (Hoist("b", ("a",)), "a int, b int", "there would be two columns 'b'"),
        (Split("a", "-", ("x", "y")), "a int", "is int, and text is split"),
        (Split("a", "-", ("x", "b")), "a string, b int", "there would be two columns 'b'"),
        (ParseJson("a", "x lon"), "a string", "lon"),
        (ParseJson("a", "x long"), "a binary", "is binary, and text is parsed"),
    ],
)
def test_what_cannot_be_done_is_refused_by_the_columns_alone(step: Transform, columns: str, says: str) -> None:
    from jobs.records.transforms.columns import Columns

    with pytest.raises(TransformProblem) as problem:
        Columns.of(step.output(rows_of(columns, []).columns).fields)
    assert says in problem.value.message


def test_extract_leaves_rows_without_a_value_where_the_struct_is_null() -> None:
    made = applied(Extract("p", ("id",)), rows_of(NESTED, ROWS))
    assert made.rows.batch.column("a").to_pylist() == ["a1", None, "a3", ""]
    assert made.rows.tombstones is not None
    assert made.rows.tombstones.to_pylist() == [False, True, False, False]
    again = applied(Hoist("all"), made.rows)
    assert again.rows.batch.column("all").null_count == 1
    assert again.rows.tombstones == made.rows.tombstones


def test_hoist_puts_columns_into_a_struct() -> None:
    rows = rows_of("a int, b string not null", [{"a": 1, "b": "x"}, {"a": None, "b": "y"}])
    assert left(Hoist("s"), rows) == [{"s": {"a": 1, "b": "x"}}, {"s": {"a": None, "b": "y"}}]
    assert left(Hoist("s", ("b",)), rows) == [{"a": 1, "s": {"b": "x"}}, {"a": None, "s": {"b": "y"}}]


def test_split_cuts_a_text_in_as_many_parts_as_there_are_columns() -> None:
    rows = rows_of("s struct<t string>", [{"s": {"t": each}} for each in ("a-b", "-", None, "a", "a-b-c")])
    made = applied(Split("s.t", "-", ("x", "y")), rows)
    assert [(row["x"], row["y"]) for row in made.rows.batch.to_pylist()] == [("a", "b"), ("", ""), (None, None)]
    assert [(each.row, each.message) for each in made.failures] == [
        (3, "needs 2 parts, found 1"),
        (4, "needs 2 parts, found 3"),
    ]
    made = applied(Split("s.t", "-", ("x", "y"), rest=True), rows)
    assert made.rows.batch.column("y").to_pylist() == ["b", "", None, "b-c"]


def test_json_text_becomes_columns_or_a_struct() -> None:
    texts = ['{"n": 9007199254740993, "l": ["a"]}', None, "{}", '{"n": "x"}', "no", '{"n": 1, "z": 2}']
    rows = rows_of("id string, doc string", [{"id": str(at), "doc": text} for at, text in enumerate(texts)])
    made = applied(ParseJson("doc", "n long, l list<string>"), rows)
    assert made.rows.batch.to_pylist() == [
        {"id": "0", "n": 9007199254740993, "l": ["a"]},
        {"id": "1", "n": None, "l": None},
        {"id": "2", "n": None, "l": None},
        {"id": "5", "n": 1, "l": None},
    ]
    assert [(each.row, each.error_class, each.path) for each in made.failures] == [
        (3, "wrong_type", "$.doc.n"),
        (4, "malformed_json", "$.doc"),
    ]
    step = ParseJson("doc", "n long", into="d", keep=True, unknown_fields="fail")
    assert refused(step, rows) == [
        (0, "unknown_field", "$.doc.l"),
        (3, "wrong_type", "$.doc.n"),
        (4, "malformed_json", "$.doc"),
        (5, "unknown_field", "$.doc.z"),
    ]
    assert applied(step, rows).rows.batch.to_pylist() == [
        {"id": "1", "doc": None, "d": None},
        {"id": "2", "doc": "{}", "d": {"n": None}},
    ]
