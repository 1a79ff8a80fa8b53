"""Differences of two previews: each kind of change alone, and what it comes to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.streaming.preview.difference import difference, fate
from jobs.streaming.preview.record import PreviewedLetter, PreviewedRecord, StreamPreview
from jobs.streaming.preview.values import LONGEST_TEXT, json_value, same_value
from tests.unit.streaming.preview.previews import at, previewed, spec_of

ROW = {"id": "a", "n": 1}


def landed(**rows: Mapping[str, Any]) -> PreviewedRecord:
    return PreviewedRecord(at(0), None, "landed", ROW, rows)


def dead(stage: str = "decode_value", reason: str = "wrong_type", field: str | None = "$.a[3].b") -> PreviewedRecord:
    letter = PreviewedLetter(reason, stage, field, "needs int, found a string", "{}")
    return PreviewedRecord(at(0), None, "dead", letter=letter)


FILTERED = PreviewedRecord(at(0), None, "filtered", ROW)
TOMBSTONE = PreviewedRecord(at(0), None, "tombstone")
NOT_READ = PreviewedRecord(at(0), None, "not_read")


def of(*records: PreviewedRecord) -> StreamPreview:
    return StreamPreview("payments", "c", {each.at: each for each in records}, ())


@pytest.mark.parametrize(
    ("now", "then", "moves", "columns", "verdict"),
    [
        (landed(a=ROW), landed(a=ROW), False, [], "same"),
        (landed(a=ROW), landed(a={"id": "a", "n": 2}), False, [("n", "changed")], "changed"),
        (landed(a=ROW), landed(a={"id": "a"}), False, [("n", "removed")], "changed"),
        (landed(a=ROW), landed(a={**ROW, "x": None}), False, [("x", "added")], "changed"),
        (landed(a=ROW), landed(b={**ROW, "n": 3}), True, [("n", "changed")], "changed"),
        (landed(a=ROW), landed(a=ROW, b=ROW), True, [], "changed"),
        (landed(a=ROW, b=ROW), landed(a=ROW), True, [], "lost"),
        (landed(a=ROW, b=ROW), landed(b=ROW, c=ROW), True, [], "changed"),
        (landed(a=ROW, b=ROW), landed(c=ROW, d=ROW), True, [], "changed"),
        (landed(a=ROW), dead(), True, [], "lost"),
        (landed(a=ROW), FILTERED, True, [], "lost"),
        (landed(a=ROW), TOMBSTONE, True, [], "lost"),
        (landed(a=ROW), NOT_READ, True, [], "lost"),
        (dead(), landed(a=ROW), True, [], "changed"),
        (FILTERED, landed(a=ROW), True, [], "changed"),
        (FILTERED, dead(), True, [], "changed"),
        (dead(), dead(reason="out_of_range"), True, [], "changed"),
        (dead(field="$.a[3].b"), dead(field="$.a[4].b"), False, [], "same"),
        (dead("transform[2].cast"), dead("transform[7].cast"), False, [], "same"),
        (dead("transform[2].cast"), dead("transform[2].compute"), True, [], "changed"),
        (TOMBSTONE, TOMBSTONE, False, [], "same"),
        (NOT_READ, NOT_READ, False, [], "same"),
    ],
)
def test_a_record_changes(
    now: PreviewedRecord, then: PreviewedRecord, moves: bool, columns: list[tuple[str, str]], verdict: str
) -> None:
    found = difference(of(now), of(then))
    assert found.verdict == verdict
    assert found.lost == (verdict == "lost")
    assert bool(found.moves) == moves
    assert [(column, kind) for _, column, kind in found.columns] == columns
    assert len(found.changes) == (moves or bool(columns))
    assert all(each.at == at(0) for each in found.changes)


def test_previews_of_other_records_are_not_compared() -> None:
    with pytest.raises(ValueError, match="same records"):
        difference(of(landed(a=ROW)), of())


def test_the_most_frequent_changes_come_first() -> None:
    def records(*made: PreviewedRecord) -> StreamPreview:
        numbered = [
            PreviewedRecord(at(n), None, each.outcome, each.decoded, each.rows, each.letter)
            for n, each in enumerate(made)
        ]
        return of(*numbered)

    now = records(landed(a=ROW), landed(a=ROW), landed(a=ROW), landed(a=ROW), dead())
    then = records(FILTERED, dead(), dead(), landed(a={"id": "z", "n": 1}), dead())
    found = difference(now, then)
    assert [(to, len(of_it)) for (_, to), of_it in found.moves.items()] == [
        ("dead: wrong_type in decode_value at $.a[].b", 2),
        ("filtered", 1),
    ]
    assert (len(found.changes), found.lost, found.records) == (4, 3, 5)
    ((change, column),) = found.columns["a", "id", "changed"]
    assert (change.at, column.before, column.after) == (at(3), "a", "z")


def test_fates_are_told_in_words() -> None:
    assert [fate(each) for each in (landed(b=ROW, a=ROW), dead(field=None), FILTERED, NOT_READ)] == [
        "landed in a, b",
        "dead: wrong_type in decode_value",
        "filtered",
        "not read",
    ]


def test_two_files_on_the_same_records() -> None:
    values: list[Any] = [
        {"id": "a", "amount": "1.50"},
        {"id": "b", "amount": "-566,000"},
        {"id": "c", "kind": "test"},
        None,
    ]
    cast = {"cast": {"amount": "decimal(12,2)"}}
    now = previewed(spec_of(transform=[cast]), values)
    cured = [{"compute": {"amount": "replace(amount, ',', '')"}}, cast, {"where": "kind is null"}]
    then = previewed(spec_of(transform=cured), values)
    found = difference(now, then)
    assert {each.at.offset: (fate(each.before), fate(each.after)) for each in found.changes} == {
        1: ("dead: wrong_type in transform.cast at $.amount", "landed in orders.payments"),
        2: ("landed in orders.payments", "filtered"),
    }
    assert (found.verdict, found.lost, found.types) == ("lost", 1, ())

    wider = previewed(spec_of(transform=[{"cast": {"amount": "decimal(14,2)"}}, {"drop": "card"}]), values)
    found = difference(now, wider)
    assert {(each.column, each.before, each.after) for each in found.types} == {
        ("amount", "decimal(12,2)", "decimal(14,2)"),
        ("card", "string", None),
    }
    assert {(column, kind) for _, column, kind in found.columns} == {("card", "removed")}
    assert found.verdict == "changed"
    only_type = previewed(spec_of(transform=[{"cast": {"amount": "decimal(14,2)"}}]), values)
    assert (difference(now, only_type).changes, difference(now, only_type).verdict) == ((), "changed")
    assert difference(now, previewed(spec_of(transform=[cast]), values)).verdict == "same"


def test_another_table_with_other_values_is_compared_with_the_one_that_it_takes_the_place_of() -> None:
    now = previewed(spec_of(), [{"id": "a", "kind": "x"}])
    then = previewed(
        spec_of(table={"name": "orders.other"}, transform=[{"compute": {"kind": "upper(kind)"}}]),
        [{"id": "a", "kind": "x"}],
    )
    found = difference(now, then)
    assert list(found.moves) == [("landed in orders.payments", "landed in orders.other")]
    assert list(found.columns) == [("orders.other", "kind", "changed")]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(values)
def test_a_value_is_the_same_as_itself(value: Any) -> None:
    assert same_value(value, value)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (True, 1, False),
        (0, False, False),
        (math.nan, math.nan, True),
        ([math.nan], [math.nan], True),
        (1.0, math.nan, False),
        (Decimal("1.0"), Decimal("1.00"), True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ([1], [1, 2], False),
        ((("a", 1),), [("a", 1)], True),
        (None, 0, False),
        ("1", b"1", False),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), True),
    ],
)
def test_values_are_compared(first: Any, second: Any, same: bool) -> None:
    assert same_value(first, second) == same_value(second, first) == same


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (5, 5), (True, True), (None, None), (1.5, 1.5), (math.inf, "inf"), (math.nan, "nan"),
        (Decimal("1.50"), "1.50"), (Decimal("0E-10"), "0.0000000000"), (b"\x00\xff", "AP8="),
        (date(2026, 1, 31), "2026-01-31"),
        (datetime(2026, 1, 31, 8, tzinfo=UTC), "2026-01-31T08:00:00+00:00"),
        ({"a": [Decimal(1), {"b": b""}]}, {"a": ["1", {"b": ""}]}), ([("k", 1)], [["k", 1]]),
        ("x" * 5000, "x" * LONGEST_TEXT + "…"), ("\ud800", "\\ud800"),
    ],
)  # fmt: skip
def test_values_as_json(value: Any, shown: Any) -> None:
    assert json_value(value) == shown
