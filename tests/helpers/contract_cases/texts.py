"""Cases of expectations about texts: their lengths, patterns, times and JSON."""

from __future__ import annotations

from tests.helpers.contract_cases.case import Case

TEXTS = (
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
)
