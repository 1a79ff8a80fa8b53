"""Cases of expectations about several columns, about keys, and about the table itself."""

from __future__ import annotations

from tests.helpers.contract_cases.case import BEYOND, COORDINATES, Case, at, decimals

TABLES = (
    Case(
        "expect_column_pair_values_a_to_be_greater_than_b",
        {"column_A": "until", "column_B": "at"},
        {"until": [at(2), None], "at": [at(1), None]},
        {"until": [at(1), at(1), None], "at": [at(1), None, at(1)]},
        3,
    ),
    Case(
        "expect_column_pair_values_a_to_be_greater_than_b",
        {"column_A": "i", "column_B": "d", "or_equal": True, "ignore_row_if": "either_value_is_missing"},
        {"i": [1, None], "d": decimals("1.00", "1.00")},
        {"i": [BEYOND, 1, None], "d": decimals("5.00", "1.01", "1.00")},
        1,
    ),
    Case(
        "expect_column_pair_values_a_to_be_greater_than_b",
        {"column_A": "i", "column_B": "n", "or_equal": True, "ignore_row_if": "neither"},
        {"i": [1, None], "n": [1, None]},
        {"i": [1, None, 1], "n": [2, 1, None]},
        3,
    ),
    Case(
        "expect_column_pair_values_to_be_equal",
        {"column_A": "s", "column_B": "t"},
        {"s": ["a", None], "t": ["a", None]},
        {"s": ["a", None, "b"], "t": ["b", "a", "b"]},
        2,
    ),
    Case(
        "expect_column_pair_values_to_be_equal",
        {"column_A": "d", "column_B": "e", "ignore_row_if": "neither"},
        {"d": decimals("1.00", None), "e": decimals("1.0000", None)},
        {"d": decimals("1.00", None), "e": decimals("1.0001", "1")},
        2,
    ),
    Case(
        "expect_column_pair_values_to_be_in_set",
        {"column_A": "s", "column_B": "n", "value_pairs_set": [["a", 1], ["b", 2]]},
        {"s": ["a", "b", None], "n": [1, 2, None]},
        {"s": ["a", "b", None], "n": [2, 2, 1]},
        2,
    ),
    Case(
        "expect_compound_columns_to_be_unique",
        {"column_list": ["i", "s"]},
        {"i": [BEYOND, BEYOND + 1, None, None], "s": ["a", "a", None, None]},
        {"i": [1, 1, 2, None, None], "s": ["a", "a", "a", None, None]},
        2,
    ),
    Case(
        "expect_multicolumn_sum_to_equal",
        {"column_list": ["d", "e"], "sum_total": 0.3},
        {"d": decimals("0.10", None), "e": decimals("0.2000", None)},
        {"d": decimals("0.10", "0.10", "0.30"), "e": decimals("0.2001", "0.2000", None)},
        2,
    ),
    Case(
        "expect_multicolumn_sum_to_equal",
        {"column_list": ["i", "n"], "sum_total": BEYOND},
        {"i": [BEYOND - 1], "n": [1]},
        {"i": [BEYOND - 1, BEYOND - 1], "n": [1, 2]},
        1,
    ),
    Case(
        "expect_multicolumn_values_to_be_equal",
        {"column_list": ["i", "n"]},
        {"i": [1, None], "n": [1, None]},
        {"i": [1, None, 2], "n": [2, 1, 2]},
        2,
    ),
    Case(
        "expect_select_column_values_to_be_unique_within_record",
        {"column_list": ["s", "t"]},
        {"s": ["a", None], "t": ["b", None]},
        {"s": ["a", "b"], "t": ["a", "a"]},
        1,
    ),
    Case("expect_table_row_count_to_equal", {"value": 2}, {"i": [1, None]}, {"i": [1, 2, 3]}),
    Case("expect_table_row_count_to_be_between", {"max_value": 2}, {"i": [1, None]}, {"i": [1, 2, 3]}),
    Case(
        "expect_table_row_count_to_be_between",
        {"min_value": 1, "row_condition": 'col("s").notnull()'},
        {"s": ["a", None]},
        {"s": [None, None]},
    ),
    Case("expect_column_to_exist", {"column": "i"}, {"i": [1]}, {"n": [1]}),
    Case("expect_table_column_count_to_equal", {"value": 4}, {"i": [1]}, {"i": [1], "n": [1]}),
    Case("expect_table_column_count_to_be_between", {"max_value": 4}, {"i": [1]}, {"i": [1], "n": [1]}),
    Case(
        "expect_table_columns_to_match_set",
        {"column_set": ["i", "s", *COORDINATES]},
        {"i": [1], "s": ["a"]},
        {"i": [1]},
    ),
    Case(
        "expect_table_columns_to_match_ordered_list",
        {"column_list": ["i", "s", *COORDINATES]},
        {"i": [1], "s": ["a"]},
        {"s": ["a"], "i": [1]},
    ),
    Case(
        "frazil_keys_to_be_unique",
        {"columns": ["i", "s"]},
        {"i": [1, 1, None], "s": ["a", "b", "a"]},
        {"i": [1, 1, 2, None, None], "s": ["a", "a", "a", "a", "a"]},
        2,
    ),
)
