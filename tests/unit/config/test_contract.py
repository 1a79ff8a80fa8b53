"""The contract block: what is wrong with it is told by place, with a suggestion; what is right stays what it is."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.base.errors import FrazilError
from jobs.config.contract.contract import Contract, Expectation
from jobs.config.contract.expectation_catalogue import OWN, left_out
from jobs.config.settings.generation import generation
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from tests.helpers.spec_files import stream_problems

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
    return stream_problems(tmp_path, STREAM + textwrap.indent(contract.strip(), "  ") + "\n")


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
        "from jobs.base.system.pandas_import import keep_pandas_out; keep_pandas_out();"
        f"from jobs.config.settings.loading import load_stream; assert load_stream(Path({str(path)!r})).contract;"
        "import jobs.quality.contracts.evaluation, jobs.quality.contracts.suite_import;"
        "assert not {'great_expectations', 'pandas'} & set(sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr


def test_names_are_made_of_type_and_columns() -> None:
    entry: Any = {"expect_column_pair_values_to_be_equal": {"column_A": "payer.iban", "column_B": "`b c`"}}
    assert Expectation.model_validate(entry).name == "column_pair_values_to_be_equal_payer_iban_b_c"


SET = {"expect_column_values_to_not_be_null": {"column": "id"}}
DOCUMENT: dict[str, Any] = {
    "stream": "events",
    "source": {"topics": ["events"]},
    "decode": {"value": "json", "schema": "id string, type string, n int"},
    "table": {"name": "ev.other"},
    "route": {
        "by": "type",
        "tables": [{"match": "INS", "table": "ev.changes"}, {"match": "OWN", "table": "ev.other"}],
        "unmatched": {"table": "ev.rest"},
    },
}


def spec(contract: dict[str, Any], **more: Any) -> StreamSpec:
    return StreamSpec.model_validate({**DOCUMENT, **more, "contract": contract})


def test_each_target_has_its_own_expectations() -> None:
    found = spec(
        {"expectations": [SET], "tables": {"ev.changes": [SET], "ev.rest": [{**SET, "name": "rest"}]}},
    )
    assert found.contract is not None
    names = {each.name: [one.name for one in found.contract.about(each)] for each in found.targets}
    assert names == {
        "ev.other": ["column_values_to_not_be_null_id"],
        "ev.other_dead": [],
        "ev.changes": ["ev_changes_column_values_to_not_be_null_id"],
        "ev.rest": ["rest"],
    }
    # Written and read again, it is the same.
    again = StreamSpec.model_validate(found.model_dump(mode="json", exclude_unset=True))
    assert again.contract == found.contract


def test_a_contract_of_tables_alone_is_one_and_changes_no_row() -> None:
    found = spec({"tables": {"ev.rest": [SET]}})
    bare = StreamSpec.model_validate(DOCUMENT)
    settings = Settings.embedded(Path("/nowhere"))
    assert found.config_hash == bare.config_hash and generation(found, settings) == generation(bare, settings)


@pytest.mark.parametrize(
    ("contract", "line", "said"),
    [
        ({"tables": {"ev.change": [SET]}}, "ev.change", "is no table of route; did you mean 'ev.changes'?"),
        ({"tables": {"x.y": [SET]}}, "x.y", "is no table of route; known: ev.changes, ev.rest"),
        ({"tables": {"ev.other": [SET]}}, "ev.other:", "the stream's main table: its expectations are in "),
        ({"tables": {"ev.other_dead": [SET]}}, "ev.other_dead", "are in contract.dead_letters"),
        (
            {"tables": {"ev.changes": [{"expect_column_values_to_not_be_null": {"column": "idd"}}]}},
            "column: idd",
            "the rows have no column 'idd'; did you mean 'id'?",
        ),
        (
            {"tables": {"ev.changes": [{"expect_column_values_to_not_be_nul": {"column": "id"}}]}},
            "expect_column_values_to_not_be_nul",
            "did you mean 'expect_column_values_to_not_be_null'?",
        ),
        (
            {"expectations": [{**SET, "name": "set"}], "tables": {"ev.changes": [SET, {**SET, "name": "SET"}]}},
            "name: SET",
            "has the name 'SET' of contract.expectations[0]",
        ),
        ({"tables": {"ev.changes": [SET, SET]}}, "column: id", "of contract.tables.ev.changes[0]"),
        ({"tables": {"ev.changes": []}}, "ev.changes", "at least one entry"),
        ({"tables": {}}, "contract", "it needs expectations, tables, or dead_letters"),
    ],
)
def test_contract_tables_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, contract: Any, line: str, said: str
) -> None:
    file = tmp_path / "streams" / "events.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump({**DOCUMENT, "contract": contract}, sort_keys=False))
    with pytest.raises(FrazilError) as error:
        load_stream(file)
    told = str(error.value)
    assert said in told, told
    number = int(told.split("events.yaml:")[1].split(":")[0].split()[0])
    text = file.read_text().splitlines()
    # Of a list entry the place is its first line.
    assert line in "\n".join(text[number - 1 : number + 2]), (number, told)


def test_without_a_route_there_are_no_further_tables() -> None:
    with pytest.raises(ValueError, match="has no route to others"):
        StreamSpec.model_validate(
            {**{key: each for key, each in DOCUMENT.items() if key != "route"}, "contract": {"tables": {"a.b": [SET]}}}
        )


PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "contracts.md").read_text(encoding="utf-8")


def test_its_examples_are_contracts() -> None:
    examples = [yaml.safe_load(text) for text in re.findall(r"```yaml[^\n]*\n(.*?)```", PAGE, re.DOTALL)]
    contracts = [each["contract"] for each in examples if "contract" in each]
    assert contracts
    assert all(Contract.model_validate(each).expectations for each in contracts)


def test_it_says_what_is_left_out() -> None:
    table = PAGE[PAGE.index("## What is refused") :]
    shown = {name.removeprefix("…").removeprefix("_") for name in re.findall(r"`([^`]+)`", table)}
    missing = [name for name in left_out() if not any(name.endswith(each) for each in shown)]
    assert missing == []
    assert all(name in PAGE for name in OWN)
