"""The contract block: what is wrong with it is told by place, with a suggestion; what is right stays what it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.spec.contract import Contract, Expectation
from jobs.spec.loading import load_stream
from jobs.spec.validation import SpecError

STREAM = """
stream: payments
source: {topics: [payments]}
decode:
  value: json
  schema: "id string not null, amount decimal(12,2), at timestamptz, payer struct<iban string>"
table: {name: orders.payments}
contract:
"""


def problems(contract: str, tmp_path: Path) -> list[str]:
    path = tmp_path / "payments.yaml"
    path.write_text(STREAM + "\n".join(f"  {line}" for line in contract.strip().splitlines()) + "\n")
    with pytest.raises(SpecError) as failed:
        load_stream(path)
    return [problem.split("payments.yaml:")[1] for problem in failed.value.problems]


def expecting(entry: str, tmp_path: Path) -> list[str]:
    return [each.split(": ", 1)[1] for each in problems(f"expectations:\n  - {entry}", tmp_path)]


def test_a_contract_is_read_and_written_again() -> None:
    text = """
    check: {after_snapshots: 20, every: 30m}
    expectations:
      - expect_column_values_to_not_be_null: {column: id}
        name: id_is_set
        meta: {owner: payments}
      - expect_column_values_to_be_between: {column: amount, min_value: 0, mostly: 0.99}
        severity: warning
      - frazil_keys_to_be_unique: {columns: [id]}
    dead_letters:
      - expect_table_row_count_to_be_between: {max_value: 100}
    """
    contract = Contract.model_validate(yaml.safe_load(text))
    first, second, keys = contract.expectations
    assert (first.type, first.arguments) == ("expect_column_values_to_not_be_null", {"column": "id"})
    assert (first.name, first.severity, first.meta) == ("id_is_set", "critical", {"owner": "payments"})
    assert (second.name, second.severity) == ("column_values_to_be_between_amount", "warning")
    assert keys.name == "keys_to_be_unique_id"
    assert contract.dead_letters[0].name == "dead_letters_table_row_count_to_be_between"
    assert Contract.model_validate(contract.model_dump(mode="json")) == contract


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{expect_column_values_to_not_be_nul: {column: id}}", "did you mean 'expect_column_values_to_not_be_null'?"),
        ("{expect_column_values_to_match_like_pattern: {column: id}}", "only SQL databases evaluate it; use"),
        ("{expect_column_values_to_not_be_null: {colum: id}}", "unknown argument; did you mean 'column'?"),
        ("{expect_column_values_to_not_be_null: {}}", "lacks the argument column"),
        ("{expect_column_values_to_not_be_null: {column: 1}}", "must be the name of a column"),
        ("{expect_column_values_to_not_be_null: {column: idd}}", "no column 'idd'; did you mean 'id'?"),
        ("{expect_column_values_to_not_be_null: {column: payer.bic}}", "the rows have no column 'bic' within payer"),
        ("{expect_column_values_to_not_be_null: {column: id, mostly: 0}}", "with 0 it could never fail"),
        ("{expect_column_values_to_be_between: {column: amount}}", "could never fail: it needs min_value or max_value"),
        (
            "{expect_column_values_to_be_between: {column: amount, min_value: 2, max_value: 1}}",
            "is more than max_value",
        ),
        ("{expect_column_values_to_be_between: {column: at, min_value: 2026-02-01, max_value: 1}}", "the other a time"),
        ("{expect_column_values_to_be_between: {column: at, min_value: soon}}", "must be a number, a date or a time"),
        ("{expect_column_values_to_match_regex: {column: id, regex: '['}}", "is no regular expression: "),
        ("{expect_column_values_to_match_regex: {column: id, regex: '(?P<a>x)'}}", "names a group in Python's way"),
        ("{expect_column_values_to_be_in_set: {column: id, value_set: []}}", "must be a list of values"),
        ("{expect_column_values_to_be_in_set: {column: id, value_set: {$PARAMETER: x}}}", "is a suite parameter"),
        ("{expect_column_pair_values_to_be_equal: {column_A: id, column_B: id}}", "is column_A"),
        ("{expect_compound_columns_to_be_unique: {column_list: [id]}}", "needs at least 2 columns"),
        ("{expect_column_values_to_be_null: {column: id, row_condition: 'id = 1'}}", 'must be such as col("status")'),
        ("{expect_column_values_to_be_null: {column: id, row_condition: 'col(\"idd\") == 1'}}", "no column 'idd'"),
        ("{expect_column_values_to_match_regex_list: {column: id, regex_list: [a], match_on: al}}", "mean 'all'?"),
        ("{frazil_volume_per_hour_to_be_usual: {past: 7d}}", "it needs min_ratio or max_ratio"),
        ("{frazil_volume_per_hour_to_be_usual: {min_ratio: 0.5, past: 7}}", "needs a unit"),
        ("{expect_table_row_count_to_equal: {value: 1}, sverity: info}", "unknown key; did you mean 'severity'?"),
        (
            "{expect_column_values_to_be_null: {column: id}, row_condition: 'col(\"id\").notnull()'}",
            "row_condition: belongs among the arguments of expect_column_values_to_be_null, one level deeper",
        ),
        (
            "{expect_column_values_to_be_null: {column: id, severity: info}}",
            "severity: belongs beside the expectation, and not among its arguments: one level less deep",
        ),
        ("{expect_column_values_to_be_null: {column: id, name: a}}", "name: belongs beside the expectation"),
        ("{expect_table_row_count_to_equal: {value: 1}, severity: fatal}", "must be critical, warning or info"),
        ("{expect_table_row_count_to_equal: {value: 1}, name: 'a b'}", "must be letters, digits and _"),
        (
            "{expect_table_row_count_to_equal: {value: 1}, expect_column_to_exist: {column: a}}",
            "is a second expectation",
        ),
        ("{severity: info}", "has no expectation"),
        (
            "{expect_column_kl_divergence_to_be_less_than: "
            "{column: id, threshold: 1, partition_object: {bins: [0, 1], weights: [1]}}}",
            "must be {values: [a, b], weights: [0.5, 0.5]}",
        ),
        ("{expect_table_row_count_to_equal: {value: true}}", "must be a whole number"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(entry: str, said: str, tmp_path: Path) -> None:
    found = problems(f"expectations:\n  - {entry}", tmp_path)
    assert any(said in each for each in found), found
    assert all(each.startswith("10: contract.expectations[0]") for each in found)


def test_two_checks_of_one_name_are_refused(tmp_path: Path) -> None:
    twice = """
expectations:
  - expect_column_values_to_be_between: {column: amount, min_value: 0}
  - expect_column_values_to_be_between: {column: amount, min_value: 10}
    severity: info
"""
    (found,) = problems(twice, tmp_path)
    assert found.startswith(
        "11: contract.expectations[1]: has the name 'column_values_to_be_between_amount' of contract."
    )
    assert found.endswith("expectations[0]; give one of them another `name`")


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("{}", "needs after_snapshots, every, or schedule"),
        ("{schedule: '0 * * * *', every: 1h}", "goes without every"),
        ("{every: 10s}", "must be at least 1m"),
        ("{schedule: '0 25 * * *'}", "the hour '25' is none"),
        ("{schedule: hourly}", "must be five fields of cron"),
        ("{after_snapshots: 0}", "must be greater than 0"),
    ],
)
def test_when_it_is_checked(check: str, said: str, tmp_path: Path) -> None:
    text = f"check: {check}\nexpectations:\n  - expect_table_row_count_to_equal: {{value: 1}}"
    assert any(said in each for each in problems(text, tmp_path))


@pytest.mark.parametrize("schedule", ["*/5 * * * *", "0 3 * * mon-fri", "15,45 0-6/2 1 jan 7", "@daily"])
def test_schedules_of_cron(schedule: str) -> None:
    entry: Any = {"expect_table_row_count_to_equal": {"value": 1}}
    contract = Contract.model_validate({"check": {"schedule": schedule}, "expectations": [entry]})
    assert contract.check is not None and contract.check.schedule == schedule


def test_an_empty_contract_is_none(tmp_path: Path) -> None:
    assert any("expects nothing" in each for each in problems("check: {every: 1h}", tmp_path))


def test_columns_that_records_may_add_are_not_refused(tmp_path: Path) -> None:
    path = tmp_path / "payments.yaml"
    text = STREAM.replace(
        '"id string not null, amount decimal(12,2), at timestamptz, payer struct<iban string>"', "infer"
    )
    path.write_text(text + "  expectations:\n    - expect_column_values_to_not_be_null: {column: later}\n")
    contract = load_stream(path).contract
    assert contract is not None and contract.expectations[0].columns == ("later",)


def test_reading_a_contract_imports_neither_great_expectations_nor_pandas(tmp_path: Path) -> None:
    path = tmp_path / "payments.yaml"
    path.write_text(STREAM + "  expectations:\n    - expect_column_values_to_not_be_null: {column: id}\n")
    code = (
        "import sys; from pathlib import Path;"
        "from jobs.system.pandas_import import keep_pandas_out; keep_pandas_out();"
        f"from jobs.spec.loading import load_stream; assert load_stream(Path({str(path)!r})).contract;"
        "import jobs.contract.evaluation, jobs.contract.suite_import;"
        "assert not {'great_expectations', 'pandas'} & set(sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr


def test_names_are_made_of_type_and_columns() -> None:
    entry: Any = {"expect_column_pair_values_to_be_equal": {"column_A": "payer.iban", "column_B": "`b c`"}}
    assert Expectation.model_validate(entry).name == "column_pair_values_to_be_equal_payer_iban_b_c"
