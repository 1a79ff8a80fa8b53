"""Dispatch of a route: a block at a time, it gives what `Route.destinations` gives of each value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.config.stream.models import StreamSpec
from jobs.config.stream.route import Route
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.pipeline import stream_pipeline
from jobs.streaming.pipeline.route import Destinations
from jobs.streaming.pipeline.route_dispatch import _ALIKE, MOST_KNOWN, Dispatch
from jobs.streaming.pipeline.route_naming import (
    FULL,
    NO_TABLE,
    UNSAFE,
    Named,
    Naming,
    NamingState,
)
from tests.unit.streaming.pipeline.blocks import records_of


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


ROUTE = Route.model_validate({"by": "type", "to": "ev.{value}", "tables": [{"match": "s", "table": "ev.static"}]})
STATE = NamingState(("ev.own", "ev.own_dead"), {"theirs": "names a table of this stream"})
KINDS = ["a", None, "b", "s", "c", "a", "not safe", "c", "A"]


@pytest.mark.parametrize(
    ("value", "table", "refused"),
    [
        ("a", "ev.a", None),
        ("b", None, None),
        (None, None, NO_TABLE),
        ("", None, UNSAFE),
        ("a.b", None, UNSAFE),
        ("a-b", None, UNSAFE),
        ("a\n", None, UNSAFE),
        ("é", None, UNSAFE),
        ("x" * 101, None, UNSAFE),
        ("x" * 100, None, None),
        ("A", None, "names a table of its own: ev.a has that name but for upper and lower case"),
        ("own", None, "names a table of its own: ev.own has that name but for upper and lower case"),
        ("OWN_dead", None, "names a table of its own: ev.own_dead has that name but for upper and lower case"),
        ("Static", None, "names a table of its own: ev.static has that name but for upper and lower case"),
        ("theirs", None, "names a table of this stream"),
    ],
)
def test_each_value_has_its_table_or_a_reason_or_waits(
    value: str | None, table: str | None, refused: str | None
) -> None:
    naming = Naming(ROUTE, ["ev.own", "ev.own_dead", "ev.static", "ev.a", "other.b"], STATE)
    assert naming.of(value) == Named(table, refused) == naming.of(value)


def test_once_no_value_gets_a_table_those_that_have_one_keep_it() -> None:
    naming = Naming(ROUTE, ["ev.a"], NamingState(closed=FULL))
    assert naming.of("a") == Named("ev.a", None) and naming.of("b") == Named(None, FULL)


def block(unmatched: Any = "dead_letter", closed: str | None = None, failing: str = "") -> Block:
    route = {"by": "type", "to": "ev.{value}", "tables": [{"match": "s", "table": "ev.static"}], "unmatched": unmatched}
    spec = StreamSpec.model_validate(
        {
            "stream": "events",
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": "type string"},
            "table": {"name": "ev.own"},
            "route": route,
        }
    ).with_named_tables(["ev.a"])
    assert spec.route is not None

    def fit(rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows

    fits = dict.fromkeys(spec.target_names, fit)
    texts = [b"{}" if kind is None else b'{"type": "%s"}' % kind.encode() for kind in KINDS]
    pipeline = stream_pipeline(
        spec.resolved.decoder,
        spec.table.name,
        fit,
        columns=spec.record_columns,
        routed=(Destinations(spec.table.name, spec.route), fits, NamingState(("ev.own", "ev.own_dead"), closed=closed)),
        hide_values=False,
    )
    return pipeline.run(records_of(list[bytes | None](texts)))


def places(found: Block) -> dict[str, list[int]]:
    return {name: each.positions.tolist() for name, each in found.routed.items()}


def waiting(found: Block) -> dict[str, list[int]]:
    return {value: np.sort(rows).tolist() for value, rows in found.unnamed.items()}


def test_records_of_new_values_wait_and_are_neither_rows_nor_failures() -> None:
    found = block()
    assert places(found) == {"ev.static": [3], "ev.a": [0, 5]}
    assert waiting(found) == {"b": [2], "c": [4, 7]}
    assert [each.row for each in found.failures] == [1, 6, 8]
    assert found.positions.tolist() == [0, 3, 5]
    assert [each.message for each in found.failures] == [
        f"needs a value that {NO_TABLE}, found null",
        f"needs a value that {UNSAFE}, found 'not safe'",
        "needs a value that names a table of its own: ev.a has that name but for upper and lower case, found 'A'",
    ]


@pytest.mark.parametrize("closed", [None, FULL])
def test_what_has_no_table_is_dropped_or_goes_to_the_table_of_the_unmatched(closed: str | None) -> None:
    new = [2, 4, 7]
    without = [1, 6, 8, *(new if closed else [])]
    dropped = block("drop", closed)
    assert dropped.filtered.tolist() == sorted(without) and not dropped.failures
    other = block({"table": "ev.rest"}, closed)
    assert places(other) == {"ev.static": [3], "ev.a": [0, 5], "ev.rest": sorted(without)}
    assert not other.failures and bool(waiting(other)) == (closed is None)


def test_waiting_records_are_told_also_of_parts_of_a_block() -> None:
    found = block()
    first, second = found.part(0, 1), found.part(1, 3)
    assert not first.unnamed
    joined = found.replaced_by([first, second])
    assert not joined.unnamed, "a part is looked at anew"
    again = found.with_rows(found.rows)
    assert waiting(again) == waiting(found)
