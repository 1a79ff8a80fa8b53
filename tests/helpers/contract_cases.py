"""Each expectation that a contract can have, with rows that it accepts and rows that it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from jobs.spec.contract import Expectation

BEYOND = 2**53 + 1
"""A long that no double holds."""
COORDINATES = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
TYPES: dict[str, pa.DataType] = {
    "i": pa.int64(), "n": pa.int32(), "d": pa.decimal128(12, 2), "e": pa.decimal128(18, 4), "f": pa.float64(),
    "s": pa.string(), "t": pa.string(), "b": pa.bool_(), "day": pa.date32(), "at": pa.timestamp("us", "UTC"),
    "until": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"),
    "payer": pa.struct([("iban", pa.string()), ("age", pa.int32())]), "tags": pa.list_(pa.string()),
}  # fmt: skip
NAN = float("nan")


class Case(NamedTuple):
    """An expectation with two sets of rows.

    Attributes:
        type: Its name.
        arguments: Its arguments.
        good: Values of columns that it accepts.
        bad: Values of columns that it does not accept.
        rejected: How many of the bad rows; None where it is about all of them together.
    """

    type: str
    arguments: dict[str, Any]
    good: dict[str, list[Any]]
    bad: dict[str, list[Any]]
    rejected: int | None = None

    @property
    def expectation(self) -> Expectation:
        return Expectation.model_validate({self.type: self.arguments})


def rows(values: dict[str, list[Any]], types: Mapping[str, pa.DataType] = TYPES) -> pa.Table:
    """Rows with the columns of the values, and coordinates."""
    count = len(next(iter(values.values())))
    columns = {name: pa.array(each, types[name]) for name, each in values.items()}
    where = {
        "_kafka_topic": pa.array(["payments"] * count, pa.string()),
        "_kafka_partition": pa.array([0] * count, pa.int32()),
        "_kafka_offset": pa.array(range(100, 100 + count), pa.int64()),
    }
    return pa.table({**columns, **where})


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 3, 1, hour, minute, tzinfo=UTC)


def _ds(*texts: str | None) -> list[Decimal | None]:
    return [None if text is None else Decimal(text) for text in texts]


_PAID = {"type": "comparison", "column": {"name": "s"}, "operator": "==", "parameter": "PAID"}
CASES = (
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
    Case("expect_column_values_to_be_null", {"column": "d"}, {"d": [None, None]}, {"d": _ds(None, "1.00")}, 1),
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
        {"d": _ds("0.10", None)},
        {"d": _ds("0.09", "0.10", None)},
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
        {"i": [-1, 1], "d": _ds("1.49", "1.50")},
        {"i": [-1, -1, -1], "d": _ds("1.49", "1.50", None)},
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
        {"d": _ds("0.10", "3.00", None)},
        {"d": _ds("0.11", "3.00", None)},
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
        "expect_column_values_to_be_unique", {"column": "d"}, {"d": _ds("1.00", "1.01")}, {"d": _ds("1.00", "1.00")}, 2
    ),
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
        {"d": _ds("1.00", "2.50")},
        {"d": _ds("1.00", "2.50", "3.00")},
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
        {"d": _ds("0.10", None)},
        {"d": _ds("0.09", "1")},
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
        {"d": _ds("1.00", "3.00", None)},
        {"d": _ds("1.00", "3.50", None)},
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
        {"d": _ds("0.10", "0.10", "0.10", None)},
        {"d": _ds("0.10", "0.10", "0.11", None)},
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
        {"d": _ds("1.00", "2.00", "3.00", None)},
        {"d": _ds("1.00", "1.00", "1.00", "9.00", None)},
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
        {"d": _ds("1.00", "1.00", None)},
        {"d": _ds("1.00", "1.00", "1.00", "9.00")},
        1,
    ),
    Case(
        "expect_column_value_lengths_to_be_between",
        {"column": "s", "max_value": 3},
        {"s": ["äöü", None]},
        {"s": ["abcd", "ab", None]},
        1,
    ),
    Case(
        "expect_column_value_lengths_to_equal", {"column": "s", "value": 2}, {"s": ["ab", None]}, {"s": ["a", "ab"]}, 1
    ),
    Case(
        "expect_column_values_to_match_regex",
        {"column": "s", "regex": r"^\d{2}$"},
        {"s": ["12", None]},
        {"s": ["123", "١٢", "12", None]},
        2,
    ),
    Case(
        "expect_column_values_to_match_regex",
        {"column": "s", "regex": r"(?i)^paid.$"},
        {"s": ["PaidX", "paid\r"]},
        {"s": ["paid\n", "unpaid1", "paid1"]},
        2,
    ),
    Case(
        "expect_column_values_to_not_match_regex",
        {"column": "s", "regex": "^test"},
        {"s": ["a test", None]},
        {"s": ["test1", "a", None]},
        1,
    ),
    Case(
        "expect_column_values_to_match_regex_list",
        {"column": "s", "regex_list": ["^a", "z$"], "match_on": "all"},
        {"s": ["az", None]},
        {"s": ["a", "z", "az", None]},
        2,
    ),
    Case(
        "expect_column_values_to_match_regex_list",
        {"column": "s", "regex_list": ["^a", "z$"]},
        {"s": ["a", "z"]},
        {"s": ["a", "z", "b"]},
        1,
    ),
    Case(
        "expect_column_values_to_not_match_regex_list",
        {"column": "s", "regex_list": ["^a", "z$"]},
        {"s": ["b", None]},
        {"s": ["a", "z", "b"]},
        2,
    ),
    Case(
        "expect_column_values_to_match_strftime_format",
        {"column": "s", "strftime_format": "%Y-%m-%d"},
        {"s": ["2026-01-31", None]},
        {"s": ["2026-02-30", "31.01.2026", "2026-01-31"]},
        2,
    ),
    Case(
        "expect_column_values_to_be_json_parseable",
        {"column": "s"},
        {"s": ['{"a": 1}', "1", None]},
        {"s": ["{", "1"]},
        1,
    ),
    Case(
        "expect_column_values_to_match_json_schema",
        {"column": "s", "json_schema": {"type": "object", "required": ["a"]}},
        {"s": ['{"a": 1}', None]},
        {"s": ['{"b": 1}', "no JSON", '{"a": 1}']},
        2,
    ),
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
        {"i": [1, None], "d": _ds("1.00", "1.00")},
        {"i": [BEYOND, 1, None], "d": _ds("5.00", "1.01", "1.00")},
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
        {"d": _ds("1.00", None), "e": _ds("1.0000", None)},
        {"d": _ds("1.00", None), "e": _ds("1.0001", "1")},
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
        {"d": _ds("0.10", None), "e": _ds("0.2000", None)},
        {"d": _ds("0.10", "0.10", "0.30"), "e": _ds("0.2001", "0.2000", None)},
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
        "expect_column_kl_divergence_to_be_less_than",
        {"column": "s", "partition_object": {"values": ["a", "b"], "weights": [0.5, 0.5]}, "threshold": 0.1},
        {"s": ["a", "b", "a", "b", None]},
        {"s": ["a", "a", "a", "a", "b"]},
    ),
    Case(
        "frazil_keys_to_be_unique",
        {"columns": ["i", "s"]},
        {"i": [1, 1, None], "s": ["a", "b", "a"]},
        {"i": [1, 1, 2, None, None], "s": ["a", "a", "a", "a", "a"]},
        2,
    ),
)


def side_by_side(cases: Sequence[tuple[int, Case]], which: str) -> tuple[pa.Table, list[Expectation]]:
    """Rows of several cases with as many rows, in one table: each with columns of its own, which its arguments name."""
    columns: dict[str, list[Any]] = {}
    types: dict[str, pa.DataType] = {}
    found: list[Expectation] = []
    for number, case in cases:
        prefix = f"x{number}_"
        for name, values in getattr(case, which).items():
            columns[prefix + name], types[prefix + name] = values, TYPES[name]
        entry: Any = {case.type: _renamed(case.arguments, prefix), "name": f"case_{number}"}
        found.append(Expectation.model_validate(entry))
    return rows(columns, types), found


def _renamed(arguments: Any, prefix: str) -> dict[str, Any]:
    renamed = dict(arguments)
    for name in ("column", "column_A", "column_B"):
        if name in renamed:
            renamed[name] = prefix + renamed[name]
    for name in ("column_list", "columns"):
        if name in renamed:
            renamed[name] = [prefix + each for each in renamed[name]]
    condition = renamed.get("row_condition")
    if isinstance(condition, str):
        renamed["row_condition"] = condition.replace('col("', f'col("{prefix}')
    elif condition is not None:
        renamed["row_condition"] = {**condition, "column": {"name": prefix + condition["column"]["name"]}}
    return renamed
