"""Reasons for which two values differ: each conversion that the Iceberg sink does in silence is a case."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as ice

from jobs.migration.comparison.value_difference import (
    REASONS,
    Reason,
    ValueDifference,
    reason_of,
    shown_value,
    value_differences,
)

INT, LONG, FLOAT, DOUBLE = ice.IntegerType(), ice.LongType(), ice.FloatType(), ice.DoubleType()
TEXT, BOOL, BYTES, DATE, TIME = (
    ice.StringType(), ice.BooleanType(), ice.BinaryType(), ice.DateType(), ice.TimeType(),
)  # fmt: skip
WALL, INSTANT = ice.TimestampType(), ice.TimestamptzType()
INSTANT_NS = ice.TimestamptzNanoType()
MONEY, WIDE = ice.DecimalType(10, 2), ice.DecimalType(38, 4)
RAW = None
STRUCT = ice.StructType(ice.NestedField(1, "a", LONG))
NOON = 1_772_280_000_000_000  # 2026-02-28T12:00:00Z
HOUR = 3_600_000_000


def single(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


SILENT: list[tuple[Any, Any, Any, Any, Reason]] = [
    # Numbers that the sink converts by Java's Number.intValue and longValue.
    (2**31, -(2**31), LONG, INT, "wrapped"),
    (2**31, -(2**31), RAW, INT, "wrapped"),
    ("2147483648", -(2**31), RAW, INT, "wrapped"),
    (2**32 + 7, 7, LONG, INT, "wrapped"),
    (Decimal(2**63), -(2**63), ice.DecimalType(38, 0), LONG, "wrapped"),
    (1.9, 1, DOUBLE, INT, "fraction_cut"),
    ("1.9", 1, RAW, INT, "fraction_cut"),
    (Decimal("-1.9"), -1, MONEY, LONG, "fraction_cut"),
    (-1.9, -1, RAW, LONG, "fraction_cut"),
    (0.1, single(0.1), DOUBLE, FLOAT, "float_precision"),
    (1e300, math.inf, DOUBLE, FLOAT, "float_precision"),
    (Decimal("0.1"), 0.1, MONEY, DOUBLE, "float_precision"),
    (16_777_217, 16_777_216.0, LONG, FLOAT, "float_precision"),
    (Decimal("1.005"), Decimal("1.01"), ice.DecimalType(10, 3), MONEY, "rounded"),
    (Decimal("-1.005"), Decimal("-1.01"), ice.DecimalType(10, 3), MONEY, "rounded"),
    (1.005, Decimal("1.01"), RAW, MONEY, "rounded"),
    ("10.555", Decimal("10.56"), RAW, MONEY, "rounded"),
    (Decimal("12345678901234567.8901"), Decimal("12345678901234568.0000"), WIDE, WIDE, "float_precision"),
    # Booleans of texts: all but true is false.
    ("yes", False, RAW, BOOL, "boolean_text"),
    ("1", False, TEXT, BOOL, "boolean_text"),
    ("TRUE", True, TEXT, BOOL, "other_form"),
    ("false", False, TEXT, BOOL, "other_form"),
    (True, "true", BOOL, TEXT, "other_form"),
    # Times.
    (NOON, NOON + 2 * HOUR, INSTANT, WALL, "zone_dropped"),
    (NOON, NOON - 5 * HOUR - HOUR // 2, INSTANT, WALL, "zone_dropped"),
    ("2026-02-28T14:00:00+02:00", NOON + 2 * HOUR, RAW, WALL, "zone_dropped"),
    (NOON, NOON * 1_000, INSTANT, INSTANT, "time_unit"),
    (NOON, NOON // 1_000, INSTANT, INSTANT, "time_unit"),
    (NOON, NOON * 1_000_000, INSTANT, INSTANT, "time_unit"),
    (NOON, NOON * 1_000, RAW, INSTANT, "time_unit"),
    (NOON + 123_456, NOON + 123_000, INSTANT, INSTANT, "time_cut"),
    ((NOON + 1) * 1_000 + 7, NOON + 1, INSTANT_NS, INSTANT, "time_cut"),
    (43_200_123_456, 43_200_123_000, TIME, TIME, "time_cut"),
    (NOON, NOON // 1_000, INSTANT, LONG, "time_form"),
    (NOON, "2026-02-28T12:00:00Z", INSTANT, TEXT, "time_form"),
    ("2026-02-28T12:00:00Z", NOON, RAW, INSTANT, "time_form"),
    (NOON // 1_000, NOON, RAW, INSTANT, "time_form"),
    (20_512, 20_512 * 86_400_000_000 + HOUR, DATE, INSTANT, "time_form"),
    (20_512, "2026-02-28", DATE, TEXT, "time_form"),
    # Null and its default.
    (None, 7, INT, INT, "null_to_value"),
    (None, "", TEXT, TEXT, "null_to_value"),
    (7, None, INT, INT, "value_to_null"),
    # Texts.
    ({"a": 1}, '{"a":1}', STRUCT, TEXT, "json_text"),
    ([1, 2], "[1,2]", ice.ListType(1, LONG), TEXT, "json_text"),
    (5, "5", LONG, TEXT, "other_form"),
    (Decimal("1.50"), "1.5", MONEY, TEXT, "other_form"),
    ("5", 5, TEXT, LONG, "other_form"),
    ("Anna", "anna", TEXT, TEXT, "case"),
    ("Anna ", "Anna", TEXT, TEXT, "case"),
    (b"\x00\xff", "AP8=", BYTES, TEXT, "base64"),
    ("AP8=", b"\x00\xff", TEXT, BYTES, "base64"),
    # What is known of none of these.
    (5, 6, LONG, LONG, "other"),
    (2**31, 5, LONG, INT, "other"),
    ("a", "b", TEXT, TEXT, "other"),
    ("no", True, TEXT, BOOL, "other"),
    (True, False, BOOL, BOOL, "other"),
    (5, True, LONG, BOOL, "other"),
    (math.nan, 0, DOUBLE, LONG, "other"),
    (math.inf, Decimal("1.00"), DOUBLE, MONEY, "other"),
    (0.1, 0.2, DOUBLE, DOUBLE, "other"),
    (Decimal("1.00"), Decimal("2.00"), MONEY, MONEY, "other"),
    ("x", 5, TEXT, LONG, "other"),
    ("?", b"x", TEXT, BYTES, "other"),
    (b"x", b"y", BYTES, BYTES, "other"),
    ({"a": 1}, "{", STRUCT, TEXT, "other"),
    (NOON, NOON + 7, INSTANT, INSTANT, "other"),
    (NOON, NOON + 19 * HOUR, INSTANT, WALL, "other"),
    (20_512, 20_513, DATE, DATE, "other"),
    (20_512, 0, DATE, INSTANT, "other"),
    (HOUR, HOUR, TIME, LONG, "other"),
    (NOON, "noon", INSTANT, TEXT, "other"),
    (NOON, 5, INSTANT, LONG, "other"),
    (NOON, True, INSTANT, BOOL, "other"),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs", "our_type", "their_type", "reason"), SILENT)
def test_what_the_sink_does_in_silence_is_named(
    ours: Any, theirs: Any, our_type: Any, their_type: Any, reason: Reason
) -> None:
    assert reason_of(ours, theirs, our_type, their_type) == reason


def test_every_reason_is_met_by_a_case_and_has_a_meaning() -> None:
    nested = {"field_missing", "length"}
    assert {case[4] for case in SILENT} | nested == {*REASONS}


SAME: list[tuple[Any, Any, Any, Any]] = [
    (5, 5, INT, LONG),
    (5, Decimal("5.00"), LONG, MONEY),
    (Decimal("1.5"), Decimal("1.50"), ice.DecimalType(4, 1), MONEY),
    (0.5, 0.5, DOUBLE, FLOAT),
    (math.nan, math.nan, DOUBLE, DOUBLE),
    (0.1, Decimal("0.1"), DOUBLE, MONEY),
    (NOON, NOON, INSTANT, WALL),
    (NOON * 1_000, NOON, INSTANT_NS, INSTANT),
    ("a", "a", TEXT, TEXT),
    (True, True, BOOL, BOOL),
    (None, None, INT, TEXT),
    (b"x", b"x", BYTES, ice.FixedType(1)),
    (20_512, 20_512, DATE, DATE),
    (HOUR, HOUR, TIME, TIME),
]


@pytest.mark.parametrize(("ours", "theirs", "our_type", "their_type"), SAME)
def test_values_that_mean_the_same_have_no_reason(ours: Any, theirs: Any, our_type: Any, their_type: Any) -> None:
    assert reason_of(ours, theirs, our_type, their_type) is None


@given(st.integers(-(2**70), 2**70))
def test_an_integer_is_the_same_or_wrapped(number: int) -> None:
    wrapped = (number + 2**31) % 2**32 - 2**31
    assert reason_of(number, wrapped, LONG, INT) == (None if wrapped == number else "wrapped")


@given(st.decimals(-(10**9), 10**9, places=5))
def test_a_decimal_is_the_same_or_rounded(number: Decimal) -> None:
    java = number.quantize(Decimal("0.01"), rounding="ROUND_HALF_UP")
    assert reason_of(number, java, ice.DecimalType(38, 5), MONEY) == (None if java == number else "rounded")


def paths(ours: Any, theirs: Any, our_type: Any, their_type: Any) -> list[tuple[str, Reason]]:
    return [(each.path, each.reason) for each in value_differences("c", ours, theirs, our_type, their_type)]


def test_nested_values_are_compared_field_by_field() -> None:
    mine = ice.StructType(
        ice.NestedField(1, "qty", LONG),
        ice.NestedField(2, "Name", TEXT),
        ice.NestedField(3, "tags", ice.ListType(4, LONG)),
        ice.NestedField(5, "only", TEXT),
        ice.NestedField(6, "prices", ice.MapType(7, TEXT, 8, MONEY)),
    )
    other = ice.StructType(
        ice.NestedField(1, "qty", INT),
        ice.NestedField(2, "name", TEXT),
        ice.NestedField(3, "tags", ice.ListType(4, INT)),
        ice.NestedField(6, "prices", ice.MapType(7, TEXT, 8, MONEY)),
        ice.NestedField(9, "theirs", TEXT),
    )
    ours = {"qty": 2**31, "Name": "n", "tags": [1, 2**32], "only": "x", "prices": [("eu", Decimal("1.00"))]}
    theirs = {"qty": -(2**31), "name": "n", "tags": [1, 0], "theirs": "y", "prices": [("eu", Decimal("2.00"))]}
    assert paths(ours, theirs, mine, other) == [
        ("c.qty", "wrapped"),
        ("c.tags[]", "wrapped"),
        ("c.only", "field_missing"),
        ("c.prices{}", "other"),
        ("c.theirs", "field_missing"),
    ]
    assert paths({**ours, "only": None}, {**theirs, "theirs": None}, mine, other)[2:] == [("c.prices{}", "other")]


def test_lists_and_maps_of_other_lengths_are_named_as_a_whole() -> None:
    numbers, prices = ice.ListType(1, LONG), ice.MapType(1, TEXT, 2, LONG)
    assert paths([1], [1, 2], numbers, numbers) == [("c", "length")]
    assert paths([("a", 1)], [("b", 1)], prices, prices) == [("c", "length")]
    assert paths([("a", 1), ("b", 2)], [("b", 2), ("a", 1)], prices, prices) == []
    assert paths(None, [1], numbers, numbers) == [("c", "null_to_value")]


def test_values_are_shown_with_their_times() -> None:
    row = ice.StructType(ice.NestedField(1, "at", INSTANT), ice.NestedField(2, "day", DATE))
    assert shown_value({"at": NOON, "day": 20_512}, row) == {"at": "2026-02-28T12:00:00+00:00", "day": "2026-02-28"}
    assert shown_value([NOON], ice.ListType(1, WALL)) == ["2026-02-28T12:00:00"]
    assert shown_value([("a", HOUR)], ice.MapType(1, TEXT, 2, TIME)) == {"a": "01:00:00"}
    assert shown_value(NOON * 1_000, INSTANT) == "about the year 58,131"
    assert shown_value("noon", TEXT) == "noon" and shown_value(None, INSTANT) is None


def test_a_difference_keeps_both_values_and_types() -> None:
    (found,) = value_differences("qty", 2**31, -(2**31), LONG, INT)
    assert found == ValueDifference("qty", "wrapped", 2**31, -(2**31), LONG, INT)
