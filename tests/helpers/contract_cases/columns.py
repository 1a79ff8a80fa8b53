"""Cases of expectations about all values of a column together: least, greatest, mean, distinct, outliers."""

from __future__ import annotations

from tests.helpers.contract_cases.case import BEYOND, Case, at, decimals

COLUMNS = (
    Case(
        "expect_column_distinct_values_to_be_in_set",
        {"column": "s", "value_set": ["a", "b"]},
        {"s": ["a", "a", None]},
        {"s": ["a", "c", None]},
    ),
    Case(
        "expect_column_distinct_values_to_contain_set",
        {"column": "i", "value_set": [1, BEYOND]},
        {"i": [1, BEYOND, 3]},
        {"i": [1, BEYOND + 1]},
    ),
    Case(
        "expect_column_distinct_values_to_equal_set",
        {"column": "d", "value_set": [1, 2.5]},
        {"d": decimals("1.00", "2.50")},
        {"d": decimals("1.00", "2.50", "3.00")},
    ),
    Case(
        "expect_column_max_to_be_between",
        {"column": "i", "max_value": BEYOND},
        {"i": [1, BEYOND, None]},
        {"i": [1, BEYOND + 1, None]},
    ),
    Case(
        "expect_column_max_to_be_between",
        {"column": "s", "max_value": "2026-01-02"},
        {"s": ["2026-01-01", None]},
        {"s": ["2026-01-03"]},
    ),
    Case(
        "expect_column_min_to_be_between",
        {"column": "d", "min_value": 0.1},
        {"d": decimals("0.10", None)},
        {"d": decimals("0.09", "1")},
    ),
    Case(
        "expect_column_min_to_be_between",
        {"column": "at", "min_value": "2026-03-01T10:00:00Z"},
        {"at": [at(10), None]},
        {"at": [at(9, 59), at(11)]},
    ),
    Case(
        "expect_column_mean_to_be_between",
        {"column": "d", "max_value": 2},
        {"d": decimals("1.00", "3.00", None)},
        {"d": decimals("1.00", "3.50", None)},
    ),
    Case(
        "expect_column_median_to_be_between",
        {"column": "n", "min_value": 2, "max_value": 2},
        {"n": [1, 1, 3, 9, None]},
        {"n": [1, 2, 3, 9]},
    ),
    Case(
        "expect_column_stdev_to_be_between", {"column": "n", "max_value": 1}, {"n": [1, 2, 3]}, {"n": [1, 2, 30, None]}
    ),
    Case(
        "expect_column_sum_to_be_between",
        {"column": "d", "min_value": 0.3, "max_value": 0.3},
        {"d": decimals("0.10", "0.10", "0.10", None)},
        {"d": decimals("0.10", "0.10", "0.11", None)},
    ),
    Case(
        "expect_column_sum_to_be_between",
        {"column": "i", "max_value": 2**63},
        {"i": [2**62, 2**62, None]},
        {"i": [2**62, 2**62, 1]},
    ),
    Case(
        "expect_column_most_common_value_to_be_in_set",
        {"column": "s", "value_set": ["a"]},
        {"s": ["a", "a", "b"]},
        {"s": ["a", "b", "b", None, None, None]},
    ),
    Case(
        "expect_column_proportion_of_non_null_values_to_be_between",
        {"column": "i", "min_value": 0.6},
        {"i": [1, 2, None]},
        {"i": [1, None]},
    ),
    Case(
        "expect_column_proportion_of_unique_values_to_be_between",
        {"column": "i", "min_value": 0.6},
        {"i": [1, 2, 2]},
        {"i": [1, 1, 1, None]},
    ),
    Case(
        "expect_column_unique_value_count_to_be_between",
        {"column": "s", "max_value": 2},
        {"s": ["a", "b", None]},
        {"s": ["a", "b", "c"]},
    ),
    Case(
        "expect_column_quantile_values_to_be_between",
        {
            "column": "n",
            "quantile_ranges": {"quantiles": [0.25, 0.5, 0.9], "value_ranges": [[1, 1], [1, 1], [3, None]]},
        },
        {"n": [1, 1, 2, 3, None]},
        {"n": [1, 2, 2, 3]},
    ),
    Case(
        "expect_column_value_z_scores_to_be_less_than",
        {"column": "d", "threshold": 1.2, "double_sided": True},
        {"d": decimals("1.00", "2.00", "3.00", None)},
        {"d": decimals("1.00", "1.00", "1.00", "9.00", None)},
        1,
    ),
    Case(
        "expect_column_values_to_not_be_outliers",
        {"column": "n", "method": "iqr", "multiplier": 1.5},
        {"n": [1, 2, 3, None]},
        {"n": [1, 2, 3, 2, 1, 90, None]},
        1,
    ),
    Case(
        "expect_column_values_to_not_be_outliers",
        {"column": "d", "method": "std", "multiplier": 1},
        {"d": decimals("1.00", "1.00", None)},
        {"d": decimals("1.00", "1.00", "1.00", "9.00")},
        1,
    ),
    Case(
        "expect_column_kl_divergence_to_be_less_than",
        {"column": "s", "partition_object": {"values": ["a", "b"], "weights": [0.5, 0.5]}, "threshold": 0.1},
        {"s": ["a", "b", "a", "b", None]},
        {"s": ["a", "a", "a", "a", "b"]},
    ),
)
