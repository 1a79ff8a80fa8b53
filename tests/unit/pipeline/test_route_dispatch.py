"""Dispatch of a route: a block at a time, it gives what `Route.destinations` gives of each value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.pipeline.route_dispatch import _ALIKE, MOST_KNOWN, Dispatch
from jobs.spec.route import Route


def route_of(matches: list[Any], unmatched: Any = "dead_letter") -> Route:
    tables = [{"match": each, "table": f"a.t{number % 4}"} for number, each in enumerate(matches)]
    return Route.model_validate({"by": "type", "tables": tables, "unmatched": unmatched})


def agrees(route: Route, dispatch: Dispatch, values: list[str | None]) -> None:
    found = dispatch.rows_of(pa.array(values, pa.string()))
    expected: dict[str, list[int]] = {}
    for row, value in enumerate(values):
        for name in route.destinations(value) or ("",):
            expected.setdefault(name, []).append(row)
    assert found.nowhere.tolist() == expected.pop("", [])
    assert {name: rows.tolist() for name, rows in found.tables.items()} == expected


ATOM = st.sampled_from(["a", "b", ".", "\\.", "[ab]", "[^a]", "\\d", "\\w", "é", "(?:ab)", "(b)", "1", "-", "\n", " "])
TIMES = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "{1,}", "*?"])
PATTERN = st.lists(st.tuples(ATOM, TIMES).map("".join), max_size=4).map("".join)
MATCH = st.one_of(
    st.lists(PATTERN, min_size=1, max_size=3).map("|".join),
    st.lists(st.text("ab1.", max_size=2), min_size=1, max_size=3),
    st.sampled_from([".*", "(?i)A", "(?P<x>a)b", "(?=a)a", "a++", r"\S", "a|", "[a-b]{1,2}", "INS|UPD", r"(a)\1"]),
)
VALUES = st.lists(st.one_of(st.none(), st.text("abAé1.\n- ²", max_size=3), st.sampled_from(["INS", "aa"])), max_size=30)


@settings(max_examples=400, deadline=None)
@given(st.lists(MATCH, min_size=1, max_size=6), st.sampled_from(["dead_letter", {"table": "a.rest"}]), VALUES, VALUES)
def test_each_row_goes_where_its_value_says(matches: list[Any], unmatched: Any, first: Any, second: Any) -> None:
    route = route_of(matches, unmatched)
    dispatch = Dispatch(route)
    agrees(route, dispatch, first)
    agrees(route, dispatch, second)


@pytest.mark.parametrize("unmatched", ["drop", {"table": "a.rest"}])
def test_more_values_than_are_remembered(unmatched: Any) -> None:
    route = route_of([["7", "8"], "1.*|2", r"\d*5", "(?:9|x)9+", "é.*"], unmatched)
    dispatch = Dispatch(route)
    many: list[str | None] = [str(number * 7919 % 20_011) for number in range(9_000)]
    agrees(route, dispatch, [*many, None, "é1", *many[:50]])
    agrees(route, dispatch, [*many[100:], None])
    assert len(dispatch._known) <= MOST_KNOWN
    agrees(route, dispatch, ["7", "8", "15", None, "x99"])


def test_tables_without_end_are_told_apart() -> None:
    matches = [f"{chr(97 + n % 26)}{n}.*" for n in range(200)]
    tables = [{"match": each, "table": f"a.t{number}"} for number, each in enumerate(matches)]
    route = Route.model_validate({"by": "type", "tables": [*tables, {"match": ".*", "table": "a.all"}]})
    dispatch = Dispatch(route)
    values: list[str | None] = [f"{chr(97 + n % 26)}{n}-{n % 3}" for n in range(400)]
    agrees(route, dispatch, values)
    assert len(dispatch.rows_of(pa.array(values)).tables["a.all"]) == 400


def test_rows_of_one_table_are_all_rows() -> None:
    found = Dispatch(route_of(["a|b"])).rows_of(pa.array(["a", "b", "a"]))
    assert found.tables["a.t0"].tolist() == [0, 1, 2] and not len(found.nowhere)
    assert found.tables["a.t0"].dtype == np.int64
    assert not Dispatch(route_of(["a"])).rows_of(pa.array([], pa.string())).tables


@pytest.mark.parametrize(
    ("pattern", "alike"),
    [
        ("orders_.*", True), (r"orders_\d+\.v[0-9]{1,2}", True), ("(?:a|b)+?", False), ("(?i)a", False),
        ("(?P<n>a)", False), ("a*+", False), ("a{2}{3}", False), (r"\p{L}", False), (r"\s", False), ("^a$", False),
        ("[[:alpha:]]", False), (r"[\d]", False), ("(?=a)", False), ("a{,3}", False),
    ],
)  # fmt: skip
def test_only_patterns_with_one_meaning_go_to_arrow(pattern: str, alike: bool) -> None:
    assert bool(_ALIKE.fullmatch(pattern)) is alike


@pytest.mark.parametrize("unmatched", ["dead_letter", "drop", {"table": "a.t9"}])
@pytest.mark.parametrize("value", [None, "INS", "aa", "", "é"])
@pytest.mark.parametrize("count", [1, 2, 100])
def test_a_block_of_one_value(value: str | None, count: int, unmatched: Any) -> None:
    route = route_of(["INS|UPD", "a+", ".+s"], unmatched)
    agrees(route, Dispatch(route), [value] * count)


@pytest.mark.parametrize("other", [None, "UPD", "x", ""])
def test_a_block_of_one_value_but_for_a_row(other: str | None) -> None:
    route = route_of(["INS|UPD", "x"])
    for at in (0, 50, 99):
        agrees(route, Dispatch(route), [other if row == at else "INS" for row in range(100)])
