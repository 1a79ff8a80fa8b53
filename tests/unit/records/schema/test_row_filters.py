"""What is wrong with a filter of rows, in words that a person knows."""

from __future__ import annotations

import pytest

from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.row_filters import filter_problem

ROWS = iceberg_schema(parse_schema("id string, amount decimal(9,2), n long, at timestamptz, payer struct<iban string>"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("amount >", "it cannot be read from character 1 on: amount >"),
        ("amount > 5 and n >", "it cannot be read from character 16 on: n >"),
        ("amount > 5 and ", "something is missing at its end, behind character 14"),
        ("(n = 1 and n = 2", "something is missing at its end, behind character 16"),
        ("amount > 5 5", "it cannot be read from character 12 on: 5"),
        ("", "something is missing at its end, behind character 0"),
        ("nothing = 1", "there is no column nothing"),
        ("amount > 5 and not n = 'A'", "column n is a long, and 'A' is none"),
        ("amount > 'x'", "column amount is a decimal(9, 2), and 'x' is none"),
        ("n in ('A', 'B')", "column n is a long, and 'A' or 'B' are none"),
        ("id = 5", "column id is a string, and 5 is none"),
        ("at > 'soon'", "column at is a timestamptz, and 'soon' is none"),
        ("payer = 'x'", "column payer is a struct; name a column within it"),
    ],
)
def test_it_is_told_in_words(text: str, said: str) -> None:
    assert filter_problem(text, ROWS) == said


@pytest.mark.parametrize(
    "text", ["amount > 5", "payer.iban = 'x' or id is null", "n in (1, 2)", "at > '2026-01-01T00:00:00+00:00'"]
)
def test_a_filter_that_can_be_asked_has_none(text: str) -> None:
    assert filter_problem(text, ROWS) is None
