"""Expectations beside the types of columns: what rows could never meet is told when the file is read, and no more."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from jobs.config.contract.contract import Contract, Expectation
from jobs.config.contract.contract_columns import (
    NotEvaluable,
    declared_kind,
    find_column,
    kind_of,
)
from jobs.config.contract.contract_plan import planned, unmet_problem
from jobs.config.stream.column_problems import contract_problems_of
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.needs import EvolutionPolicy
from jobs.records.schema.parser import parse_schema
from tests.helpers.spec_files import stream_problems


def rows_of(text: str) -> Schema:
    return iceberg_schema(parse_schema(text))


COLUMNS = {
    "n": "long", "i": "int", "amount": "decimal(12,2)", "ratio": "double", "small": "float", "id": "string",
    "ok": "boolean", "day": "date", "clock": "time", "at": "timestamptz", "local": "timestamp", "key": "uuid",
    "raw": "binary", "payer": "struct<iban string, born date>", "tags": "array<string>",
}  # fmt: skip
ROWS = rows_of(", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()))
NUMBERS = {"n", "i", "amount", "ratio", "small"}
TIMES = {"day", "at", "local"}
TEXT = {"id", "key"}
NESTED = {"payer", "tags"}
EXACT = set(COLUMNS) - NESTED

IN_SET, BETWEEN = "expect_column_values_to_be_in_set", "expect_column_values_to_be_between"
# An expectation without its column, and the columns that it can be about.
TABLE: list[tuple[str, dict[str, Any], set[str]]] = [
    (IN_SET, {"value_set": ["A", "B"]}, {"id", "key", "raw"}),
    (IN_SET, {"value_set": [1, 2]}, NUMBERS),
    (IN_SET, {"value_set": [1.5]}, NUMBERS - {"n", "i"}),
    (IN_SET, {"value_set": [1, 1.5]}, NUMBERS),
    (IN_SET, {"value_set": [2.0]}, NUMBERS),
    (IN_SET, {"value_set": [True]}, {"ok"}),
    (IN_SET, {"value_set": ["2026-01-01"]}, {*TIMES, "id", "key", "raw"}),
    (IN_SET, {"value_set": ["10:30:00"]}, {"clock", "id", "key", "raw"}),
    ("expect_column_distinct_values_to_contain_set", {"value_set": [1, 1.5]}, NUMBERS - {"n", "i"}),
    ("expect_column_values_to_not_be_in_set", {"value_set": [1.5]}, NUMBERS),
    (BETWEEN, {"min_value": 5}, NUMBERS),
    (BETWEEN, {"min_value": 0.5}, NUMBERS),
    (BETWEEN, {"min_value": "2026-01-01"}, {*TIMES, "id", "key", "raw"}),
    ("expect_column_max_to_be_between", {"max_value": "2026-01-01T10:00:00Z"}, {"at", "local", "id", "key", "raw"}),
    ("expect_column_mean_to_be_between", {"min_value": 1}, NUMBERS),
    ("expect_column_mean_to_be_between", {"min_value": "2026-01-01"}, TIMES),
    ("expect_column_sum_to_be_between", {"min_value": 1}, NUMBERS),
    ("expect_column_stdev_to_be_between", {"max_value": 1}, NUMBERS),
    ("expect_column_values_to_match_regex", {"regex": "^a"}, TEXT),
    ("expect_column_values_to_be_json_parseable", {}, TEXT),
    ("expect_column_value_lengths_to_equal", {"value": 3}, TEXT),
    ("expect_column_values_to_be_unique", {}, EXACT),
    ("expect_column_values_to_not_be_null", {}, set(COLUMNS)),
    ("frazil_volume_per_hour_to_be_usual", {"min_ratio": 0.5}, {"at", "local"}),
]  # fmt: skip


def expectation(kind: str, arguments: dict[str, Any]) -> Expectation:
    entry: Any = {kind: arguments}
    return Expectation.model_validate(entry)


@pytest.mark.parametrize(("kind", "arguments", "about"), TABLE)
def test_a_column_of_another_type_is_told_and_no_other(kind: str, arguments: dict[str, Any], about: set[str]) -> None:
    met = {name for name in COLUMNS if unmet_problem(expectation(kind, {"column": name, **arguments}), ROWS) is None}
    assert met == about


# Not among them is what fails on the rows instead, and what is frazil's own.
PLANNED = [each for each in TABLE if not each[0].startswith("frazil") and 1.5 not in each[1].get("value_set", ())]


@pytest.mark.parametrize(("kind", "arguments", "about"), PLANNED)
def test_the_check_says_the_same_of_the_rows(kind: str, arguments: dict[str, Any], about: set[str]) -> None:
    find = partial(find_column, schema_to_pyarrow(ROWS))
    for name in COLUMNS:
        asked = expectation(kind, {"column": name, **arguments})
        if name in about:
            planned(0, asked, find)
            continue
        with pytest.raises(NotEvaluable) as why:
            planned(0, asked, find)
        assert unmet_problem(asked, ROWS) == ((), str(why.value))


@pytest.mark.parametrize(
    ("condition", "about"),
    [
        ('col("COLUMN") == "X"', {"id", "key", "raw"}),
        ('col("COLUMN") > 5', NUMBERS),
        ('col("COLUMN") >= "2026-01-01"', {*TIMES, "id", "key", "raw"}),
        ('col("COLUMN").notnull()', set(COLUMNS)),
    ],
)
def test_a_row_condition_of_another_type_is_told(condition: str, about: set[str]) -> None:
    for name in COLUMNS:
        asked = {"column": "id", "row_condition": condition.replace("COLUMN", name)}
        found = unmet_problem(expectation("expect_column_values_to_not_be_null", asked), ROWS)
        assert (found is None) is (name in about), name
        assert found is None or found[0] == ("row_condition",)


@pytest.mark.parametrize(
    ("a", "b", "met"),
    [("n", "ratio", True), ("n", "amount", True), ("at", "at", True), ("id", "n", False), ("day", "at", False)],
)
def test_columns_of_a_pair_that_cannot_be_compared_are_told(a: str, b: str, met: bool) -> None:
    rows = rows_of(f"a {COLUMNS[a]}, b {COLUMNS[b]}")
    asked = expectation("expect_column_pair_values_to_be_equal", {"column_A": "a", "column_B": "b"})
    assert (unmet_problem(asked, rows) is None) is met


def test_kinds_are_those_of_the_rows() -> None:
    rows = rows_of(", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()))
    arrow = schema_to_pyarrow(rows)
    for field in rows.fields:
        assert declared_kind(field.field_type) == kind_of(arrow.field(field.name).type), field.name


STREAM = """
stream: payments
source: {topics: [payments]}
decode:
  value: json
  schema: "id string not null, amount decimal(12,2), n long"
table: {name: orders.payments}
"""


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            "expect_column_values_to_be_in_set: {column: amount, value_set: [A, B]}",
            "could never pass: column amount holds decimals, and 'A' is none",
        ),
        (
            "expect_column_values_to_be_in_set: {column: n, value_set: [1.5]}",
            "could never pass: column n holds whole numbers, and 1.5 is none",
        ),
        (
            "expect_column_values_to_be_between: {column: id, min_value: 5}",
            "could never pass: column id holds text, and 5 is none",
        ),
        (
            "expect_column_values_to_be_between: {column: amount, min_value: '2026-01-01'}",
            "could never pass: column amount holds decimals, and '2026-01-01' is none",
        ),
        (
            "expect_column_values_to_match_regex: {column: amount, regex: '^1'}",
            "could never pass: column amount holds decimals, and this expectation is about text",
        ),
        (
            "frazil_volume_per_hour_to_be_usual: {column: n, min_ratio: 0.5}",
            "could never pass: column n is not a time, and this expectation is about rows per hour",
        ),
        (
            'expect_column_values_to_not_be_null: {column: id, row_condition: \'col("n") == "X"\'}',
            "could never pass: column n holds whole numbers, and 'X' is none",
        ),
        (
            "expect_column_values_to_match_regex: {column: _kafka_offset, regex: '^1'}",
            "could never pass: column _kafka_offset holds whole numbers, and this expectation is about text",
        ),
    ],
)
def test_it_is_told_with_its_line(entry: str, said: str, tmp_path: Path) -> None:
    (found,) = stream_problems(tmp_path, f"{STREAM}contract:\n  expectations:\n    - {entry}\n")
    place = f"10: contract.expectations[0].{entry.split(':')[0]}"
    assert found.startswith(place) and found.endswith(f": {said}")


def test_columns_behind_the_steps_count(tmp_path: Path) -> None:
    entry = "expect_column_values_to_be_between: {column: n, min_value: 5}"
    stream = f"{STREAM}transform:\n  - cast: {{n: string}}\ncontract:\n  expectations:\n    - {entry}\n"
    (found,) = stream_problems(tmp_path, stream)
    assert found.endswith("could never pass: column n holds text, and 5 is none")


def test_what_columns_are_still_to_come_is_let_pass_and_types_of_others_are_not() -> None:
    contract = Contract.model_validate(
        yaml.safe_load("""
        expectations:
          - expect_column_values_to_not_be_null: {column: later}
          - expect_column_values_to_be_between: {column: id, min_value: 5}
        """)
    )
    found = contract_problems_of(contract, rows_of("id string"), EvolutionPolicy(add="auto"))
    assert [place for place, _ in found] == [("contract", "expectations", 1, BETWEEN)]


def test_the_test_imports_neither_great_expectations_nor_pandas() -> None:
    code = (
        "import sys; from jobs.base.system.pandas_import import keep_pandas_out; keep_pandas_out();"
        "import jobs.config.contract.contract_plan;"
        "assert not {'great_expectations', 'pandas'} & set(sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
