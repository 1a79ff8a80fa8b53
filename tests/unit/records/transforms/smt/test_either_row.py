"""Change events whose schemas know more of the row behind a change than of the one before it, or less."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.records.transforms.columns import TransformProblem
from jobs.records.transforms.smt.smt import Smt
from tests.unit.records.transforms.rows import (
    applied,
    columns_of,
    left,
    rows_of,
)

UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
DEBEZIUM = "org.apache.iceberg.connect.transforms.DebeziumTransform"
AFTER = "struct<id: int not null, n: long, tags: list<struct<a: int not null>>, more: struct<x: int not null>>"
BEFORE = "struct<id: int not null, n: int, gone: string, tags: list<struct<a: int not null, b: string>>>"
EVENTS = f"before {BEFORE}, after {AFTER}, op string, ts_ms long, source struct<db: string, table: string>"
ROWS: list[dict[str, Any]] = [
    {"op": "c", "after": {"id": 1, "n": 2**40, "tags": [{"a": 1}, None], "more": {"x": 1}}},
    {"op": "u", "before": {"id": 1, "n": 7}, "after": {"id": 1, "n": 8, "tags": []}},
    {"op": "d", "before": {"id": 1, "n": 8, "gone": "g", "tags": [{"a": 2, "b": "b"}]}},
    {"op": "t"},
]
COMMON = {"ts_ms": 1, "source": {"db": "d", "table": "t"}}


def step(name: str, **properties: str) -> Smt:
    return Smt(name, tuple(properties.items()), lenient=False)


def test_a_deletion_has_all_that_either_row_has() -> None:
    found = left(step(UNWRAP, **{"delete.tombstone.handling.mode": "rewrite"}), rows_of(EVENTS, ROWS))
    assert found == [
        {
            "id": 1,
            "n": 2**40,
            "tags": [{"a": 1, "b": None}, None],
            "more": {"x": 1},
            "gone": None,
            "__deleted": "false",
        },
        {"id": 1, "n": 8, "tags": [], "more": None, "gone": None, "__deleted": "false"},
        {"id": 1, "n": 8, "tags": [{"a": 2, "b": "b"}], "more": None, "gone": "g", "__deleted": "true"},
    ]


def test_the_sinks_transform_takes_either_row() -> None:
    made = applied(step(DEBEZIUM), rows_of(EVENTS, [each | COMMON for each in ROWS[:3]]))
    assert [each["n"] for each in made.rows.batch.to_pylist()] == [2**40, 8, 8]
    assert [each["gone"] for each in made.rows.batch.to_pylist()] == [None, None, "g"]
    assert not made.rows.columns.field("gone").required


def test_where_deletions_are_no_rows_only_what_is_behind_the_change_counts() -> None:
    other = EVENTS.replace("n: int, gone", "n: string, gone")
    found = step(UNWRAP).output(columns_of(other))
    assert found.text == columns_of("id int not null, n long, tags list<struct<a: int not null>>, "
                                    "more struct<x: int not null>").text  # fmt: skip
    with pytest.raises(TransformProblem, match="needs 'before' with the fields of 'after', each of a type that takes"):
        step(UNWRAP, **{"delete.tombstone.handling.mode": "rewrite"}).output(columns_of(other))


def test_a_topic_is_the_rows_whichever_it_is() -> None:
    columns = "before struct<at: string>, after struct<at: string, n: int>, op string"
    events = [{"op": "d", "before": {"at": "a"}}, {"op": "u", "before": {"at": "a"}, "after": {"at": None}}]
    made = applied(step(UNWRAP, **{"route.by.field": "at"}), rows_of(columns, events))
    assert made.rows.frame.part("topic").to_pylist() == ["a", "orders"]


KINDS = {"int": st.integers(-9, 9), "long": st.integers(-(2**40), 2**40), "string": st.text(max_size=3)}


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_each_value_is_where_it_belongs(data: st.DataObject) -> None:
    """Whatever fields the two rows have: a deletion has those before it, and any other change those behind it."""
    fields = {
        name: data.draw(st.dictionaries(st.sampled_from("abcd"), st.sampled_from(sorted(KINDS)), min_size=1))
        for name in ("before", "after")
    }
    both = fields["before"].keys() & fields["after"].keys()
    fits = all(len({fields[name][each] == "string" for name in fields}) == 1 for each in both)
    text = ", ".join(f"{n} struct<{', '.join(f'{k}: {v}' for k, v in fs.items())}>" for n, fs in fields.items())
    events = [
        {name: {each: data.draw(st.none() | KINDS[kind]) for each, kind in fields[name].items()}, "op": "x"}
        for name in data.draw(st.lists(st.sampled_from(["before", "after"]), max_size=5))
    ]
    rows, mode = rows_of(f"{text}, op string", events), {"delete.tombstone.handling.mode": "rewrite"}
    if not fits:
        with pytest.raises(TransformProblem):
            step(UNWRAP, **mode).output(rows.columns)
        return
    found = [{k: v for k, v in each.items() if v is not None} for each in left(step(UNWRAP, **mode), rows)]
    assert found == [
        {k: v for k, v in (each.get("before") or each.get("after") or {}).items() if v is not None}
        | {"__deleted": "true" if "before" in each else "false"}
        for each in events
    ]
