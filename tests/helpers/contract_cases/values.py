"""Cases of expectations about single values: there or not, within bounds, in a set, unique."""

from __future__ import annotations

from datetime import date, datetime

from tests.helpers.contract_cases.case import BEYOND, NAN, Case, at, decimals

_PAID = {"type": "comparison", "column": {"name": "s"}, "operator": "==", "parameter": "PAID"}
VALUES = (
    Case("expect_column_values_to_not_be_null", {"column": "i"}, {"i": [1, 2]}, {"i": [1, None, BEYOND]}, 1),
    Case("expect_column_values_to_not_be_null", {"column": "f"}, {"f": [1.0]}, {"f": [1.0, NAN, None]}, 2),
    Case("expect_column_values_to_not_be_null", {"column": "tags"}, {"tags": [["a"]]}, {"tags": [None, []]}, 1),
    Case(
        "expect_column_values_to_not_be_null",
        {"column": "payer.iban"},
        {"payer": [{"iban": "a"}]},
        {"payer": [None, {"iban": None}, {"iban": "a"}]},
        2,
    ),
    Case(
        "expect_column_values_to_not_be_null",
        {"column": "s", "mostly": 0.5},
        {"s": ["a", None]},
        {"s": ["a", None, None]},
        2,
    ),
    Case("expect_column_values_to_be_null", {"column": "d"}, {"d": [None, None]}, {"d": decimals(None, "1.00")}, 1),
    Case(
        "expect_column_values_to_be_null", {"column": "payer"}, {"payer": [None]}, {"payer": [None, {"iban": "a"}]}, 1
    ),
    Case(
        "expect_column_values_to_be_between",
        {"column": "i", "min_value": BEYOND + 1},
        {"i": [BEYOND + 1, None]},
        {"i": [BEYOND, BEYOND + 1, None]},
        1,
    ),
    Case(
        "expect_column_values_to_be_between",
        {"column": "n", "min_value": 0.5, "max_value": 3, "strict_max": True},
        {"n": [1, 2]},
        {"n": [0, 1, 3]},
        2,
    ),
    Case(
        "expect_column_values_to_be_between",
        {"column": "d", "min_value": 0.1},
        {"d": decimals("0.10", None)},
        {"d": decimals("0.09", "0.10", None)},
        1,
    ),
    Case(
        "expect_column_values_to_be_between",
        {"column": "f", "max_value": 0.3},
        {"f": [0.3, NAN]},
        {"f": [0.1 + 0.2, NAN]},
        1,
    ),
    Case(
        "expect_column_values_to_be_between",
        {"column": "s", "min_value": "2026-01-02"},
        {"s": ["2026-01-02"]},
        {"s": ["2026-01-01", None]},
        1,
    ),
    Case(
        "expect_column_values_to_be_between",
        {"column": "day", "min_value": "2026-01-02"},
        {"day": [date(2026, 1, 2)]},
        {"day": [date(2026, 1, 1), None]},
        1,
    ),
    Case(
        "expect_column_values_to_be_between",
        {"column": "at", "max_value": "2026-03-01T11:00:00+01:00"},
        {"at": [at(10), None]},
        {"at": [at(10), at(10, 1), None]},
        1,
    ),
    Case(
        "expect_column_values_to_be_between",
        {"column": "local", "max_value": "2026-03-29T02:30:00"},
        {"local": [datetime(2026, 3, 29, 2, 30)]},
        {"local": [datetime(2026, 3, 29, 2, 30, 0, 1), None]},
        1,
    ),
    Case(
        "expect_column_values_to_be_between",
        {"column": "payer.age", "min_value": 18},
        {"payer": [{"age": 18}, None]},
        {"payer": [{"age": 17}, None, {"age": None}]},
        1,
    ),
    Case(
        "expect_column_values_to_be_between",
        {"column": "i", "min_value": 0, "row_condition": _PAID},
        {"i": [1, -1, -2], "s": ["PAID", "OPEN", None]},
        {"i": [-1, -1, -2], "s": ["PAID", "OPEN", None]},
        1,
    ),
    Case(
        "expect_column_values_to_be_between",
        {"column": "i", "min_value": 0, "row_condition": 'col("d") >= 1.5'},
        {"i": [-1, 1], "d": decimals("1.49", "1.50")},
        {"i": [-1, -1, -1], "d": decimals("1.49", "1.50", None)},
        1,
    ),
    Case(
        "expect_column_values_to_be_in_set",
        {"column": "i", "value_set": [BEYOND, 5]},
        {"i": [BEYOND, 5, None]},
        {"i": [BEYOND + 1, BEYOND - 1, 5, None]},
        2,
    ),
    Case(
        "expect_column_values_to_be_in_set",
        {"column": "d", "value_set": [0.1, 3]},
        {"d": decimals("0.10", "3.00", None)},
        {"d": decimals("0.11", "3.00", None)},
        1,
    ),
    Case(
        "expect_column_values_to_be_in_set",
        {"column": "s", "value_set": ["PAID", "OPEN"]},
        {"s": ["PAID", None]},
        {"s": ["paid", "OPEN", None]},
        1,
    ),
    Case(
        "expect_column_values_to_be_in_set",
        {"column": "b", "value_set": [True]},
        {"b": [True, None]},
        {"b": [True, False, None]},
        1,
    ),
    Case(
        "expect_column_values_to_be_in_set",
        {"column": "day", "value_set": ["2026-01-02"]},
        {"day": [date(2026, 1, 2)]},
        {"day": [date(2026, 1, 3)]},
        1,
    ),
    Case(
        "expect_column_values_to_not_be_in_set",
        {"column": "s", "value_set": ["test"]},
        {"s": ["a", None]},
        {"s": ["test", "a", None]},
        1,
    ),
    Case(
        "expect_column_values_to_not_be_in_set",
        {"column": "i", "value_set": [BEYOND]},
        {"i": [BEYOND + 1]},
        {"i": [BEYOND, BEYOND + 1]},
        1,
    ),
    Case(
        "expect_column_values_to_be_unique",
        {"column": "i"},
        {"i": [BEYOND, BEYOND + 1, None, None]},
        {"i": [1, 1, 2, None, None]},
        2,
    ),
    Case(
        "expect_column_values_to_be_unique",
        {"column": "d"},
        {"d": decimals("1.00", "1.01")},
        {"d": decimals("1.00", "1.00")},
        2,
    ),
)
