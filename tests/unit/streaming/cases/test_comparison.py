"""Comparison of expectations with outcomes: values, rows, dead letters, and their order."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.streaming.cases.case_file import Case
from jobs.streaming.cases.case_run import CaseOutcome
from jobs.streaming.cases.comparison import aligned, differences, fits, plain, shown
from jobs.streaming.preview.record import PreviewedLetter

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (None, None),
        (True, True),
        (1, 1),
        (Decimal("12.5"), Decimal("12.50")),
        ("12.50", Decimal("12.50")),
        (Decimal("0.1"), 0.1),
        (Decimal("nan"), float("nan")),
        (Decimal("-inf"), float("-inf")),
        ("a", "a"),
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31T13:00:00+01:00", NOON),
        ("2026-01-31 12:00:00", NOON),
        ("2026-01-31T12:00:00", NOON.replace(tzinfo=None)),
        ("2026-01-31", date(2026, 1, 31)),
        ("08:30:00", time(8, 30)),
        ("text", b"text"),
        ({"hex": "00FF"}, b"\x00\xff"),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"k": 1}, [("k", 1)]),
        ({}, []),
        ([1, {"a": 2}], [1, {"a": 2, "b": 3}]),
    ],
)
def test_values_that_fit(expected: Any, found: Any) -> None:
    assert fits(expected, found)
    assert fits(plain(found), found)


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (None, 0),
        (0, None),
        (1, True),
        (True, 1),
        (Decimal("12.5"), Decimal("12.51")),
        ("x", 1),
        (Decimal("0.1"), Decimal("0.1000000000000000055511151231257827")),
        ("2026-01-31T12:00:00Z", NOON + timedelta(microseconds=1)),
        ("noon", NOON),
        ("2026-02-01", date(2026, 1, 31)),
        ("text", b"other"),
        ({"hex": 1}, b"\x01"),
        ({"c": 1}, {"a": 1}),
        ({"k": 1}, [("k", 1), ("l", 2)]),
        ([1], [1, 2]),
        ("a", "b"),
    ],
)
def test_values_that_do_not_fit(expected: Any, found: Any) -> None:
    assert not fits(expected, found)


@given(st.decimals(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False))
def test_every_number_fits_itself(exact: Decimal, binary: float) -> None:
    assert fits(plain(exact), exact) and fits(str(exact), exact)
    assert fits(plain(binary), binary)


@given(st.lists(st.integers(0, 4), max_size=8), st.lists(st.integers(0, 4), max_size=8))
def test_alignment_names_each_index_once_and_in_order(left: list[int], right: list[int]) -> None:
    pairs = list(aligned(left, right, lambda a, b: a == b))
    firsts = [i for i, _ in pairs if i is not None]
    seconds = [j for _, j in pairs if j is not None]
    assert firsts == list(range(len(left))) and seconds == list(range(len(right)))
    if left == right:
        assert all(i == j for i, j in pairs)
    # One that is missing leaves all others in their pairs.
    for gone in range(len(left)):
        same = [pair for pair in aligned(left, left[:gone] + left[gone + 1 :], lambda a, b: a == b) if None not in pair]
        assert len(same) == len(left) - 1


def case(**more: Any) -> Case:
    return Case.model_validate({"name": "a", "records": [{"value": 1}], **more})


def letter(error_class: str, message: str | None = None, field: str | None = None) -> PreviewedLetter:
    return PreviewedLetter(error_class, "decode_value", field, message, None)


ROWS = ((1, "orders.eu", {"id": "a", "n": 1}), (2, "orders.us", {"id": "b", "n": Decimal("2.50")}))


def test_rows_over_all_tables_or_by_table() -> None:
    outcome = CaseOutcome(ROWS, ())
    assert differences(case(rows=[{"id": "a"}, {"id": "b", "n": "2.5"}]), outcome) == []
    assert differences(case(rows={"orders.eu": [{"id": "a"}], "orders.us": [{"n": "2.50"}]}), outcome) == []
    assert differences(case(rows={"orders.eu": [{"id": "a"}]}), outcome) == [
        'record 2 has a row in orders.us that is not expected: {id: "b", n: 2.50}'
    ]
    assert differences(case(rows={"orders.eu": [{"id": "b"}], "orders.us": [{"id": "b"}]}), outcome) == [
        'row 1 of orders.eu (record 1): id: expected "b", got "a"'
    ]


def test_a_row_that_is_missing_one_too_many_and_one_that_differs() -> None:
    outcome = CaseOutcome(ROWS, ())
    assert differences(case(rows=[{"id": "b"}]), outcome) == [
        'record 1 has a row in orders.eu that is not expected: {id: "a", n: 1}'
    ]
    assert differences(case(rows=[{"id": "x"}, {"id": "a"}, {"id": "b"}]), outcome) == [
        'row 1 is expected and missing: {id: "x"}'
    ]
    assert differences(case(rows=[{"id": "a", "m": 1}, {"id": "b", "n": 3}]), outcome) == [
        "row 1 (record 1): there is no column m; the columns are id, n",
        "row 2 (record 2): n: expected 3, got 2.50",
    ]
    assert len(differences(case(), outcome)) == 2


def test_dead_letters() -> None:
    outcome = CaseOutcome((), ((1, letter("malformed_json", "not JSON")), (3, letter("wrong_type", "no int", "n"))))
    fine = [
        {"class": "malformed_json", "stage": "decode_value"},
        {"class": "wrong_type", "field": "n", "message": "int"},
    ]
    assert differences(case(dead_letters=fine), outcome) == []
    assert differences(case(), outcome) == [
        "record 1 is a dead letter that is not expected: malformed_json in decode_value: not JSON",
        "record 3 is a dead letter that is not expected: wrong_type in decode_value at n: no int",
    ]
    wrong = [{"class": "malformed_json"}, {"class": "too_long", "field": "m", "message": "long"}]
    assert differences(case(dead_letters=wrong), outcome) == [
        "dead letter 2 (record 3): class: expected too_long, got wrong_type",
        "dead letter 2 (record 3): field: expected m, got n",
        'dead letter 2 (record 3): message: expected to contain "long", got "no int"',
    ]
    assert differences(case(dead_letters=[*fine, {"class": "late"}]), outcome) == [
        'dead letter 3 is expected and missing: {class: "late"}'
    ]


def test_shown_values_are_exact_and_short() -> None:
    offset = datetime(2026, 1, 31, 13, tzinfo=timezone(timedelta(hours=1)))
    value = {"d": Decimal("1E+2"), "b": b"\x01", "m": [("k", None)], "at": offset, "t": "é"}
    assert shown(value) == '{d: 100, b: {hex: "01"}, m: {k: null}, at: "2026-01-31T12:00:00Z", t: "é"}'
    assert len(shown("x" * 500)) == 201
