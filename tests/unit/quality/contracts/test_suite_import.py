"""Import of suites: what Great Expectations writes becomes a contract, and what cannot is said with its reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jobs.base.errors import FrazilError
from jobs.config.contract.contract import Contract
from jobs.config.documents.yaml_document import parse_yaml
from jobs.quality.contracts.gx import import_gx
from jobs.quality.contracts.suite_import import import_suite
from orchestration.cli.main import main
from tests.helpers.contract_cases.every import CASES


def contract_of(text: str) -> Contract:
    return Contract.model_validate(parse_yaml(text, shown="contract.yaml").data["contract"])


def suite(*expectations: dict[str, Any], **more: Any) -> str:
    return json.dumps({"name": "orders", **more, "expectations": list(expectations)})


def test_what_great_expectations_writes_is_taken_over() -> None:
    import_gx()
    from great_expectations import ExpectationSuite
    from great_expectations import expectations as gxe
    from great_expectations.expectations.metadata_types import FailureSeverity

    made = ExpectationSuite(
        name="orders",
        expectations=[
            gxe.ExpectColumnValuesToNotBeNull(
                column="id", severity=FailureSeverity.WARNING, meta={"owner": "payments"}
            ),
            gxe.ExpectColumnValuesToBeBetween(column="amount", min_value=0, max_value=9.5, strict_min=True, mostly=0.9),
            gxe.ExpectColumnValuesToBeInSet(column="status", value_set=["PAID", "no"]),
        ],
    )
    imported = import_suite(json.dumps(made.to_json_dict()), "orders.json")
    assert (imported.taken, imported.left) == (3, ())
    first, second, third = contract_of(imported.text).expectations
    assert (first.type, first.arguments) == ("expect_column_values_to_not_be_null", {"column": "id"})
    assert (first.severity, first.meta) == ("warning", {"owner": "payments"})
    assert second.arguments == {"column": "amount", "min_value": 0, "max_value": 9.5, "strict_min": True, "mostly": 0.9}
    assert third.arguments["value_set"] == ["PAID", "no"]


def test_suites_of_0_x_are_taken_over() -> None:
    text = json.dumps({
        "expectation_suite_name": "old",
        "expectations": [
            {
                "expectation_type": "expect_column_max_to_be_between",
                "kwargs": {"column": "n", "min_value": None, "max_value": 5, "result_format": "BASIC", "auto": False},
                "meta": {},
            },
            {"expectation_type": "expect_column_max_to_be_between", "kwargs": {"column": "n", "min_value": 1}},
        ],
    })  # fmt: skip
    imported = import_suite(text, "old.json")
    first, second = contract_of(imported.text).expectations
    assert first.arguments == {"column": "n", "max_value": 5}
    assert (first.name, second.name) == ("column_max_to_be_between_n", "column_max_to_be_between_n_2")
    assert "suite 'old'" in imported.text


@pytest.mark.parametrize(
    ("kind", "kwargs", "why"),
    [
        ("expect_column_values_to_match_like_pattern", {"column": "a", "like_pattern": "b%"}, "only SQL databases"),
        ("expect_my_own", {"column": "a"}, "none of Great Expectations' own"),
        ("expect_table_row_count_to_equal", {"value": {"$PARAMETER": "rows"}}, "value: is a suite parameter"),
        (
            "expect_column_values_to_be_null",
            {"column": "a", "row_condition": "b == 1", "condition_parser": "pandas"},
            "its row_condition is one of pandas alone",
        ),
    ],
)
def test_what_cannot_be_taken_over_says_why(kind: str, kwargs: dict[str, Any], why: str) -> None:
    good = {"type": "expect_column_to_exist", "kwargs": {"column": "a"}}
    imported = import_suite(suite(good, {"type": kind, "kwargs": kwargs}), "orders.json")
    assert imported.taken == 1
    ((left, reason),) = imported.left
    assert left == kind
    assert why in reason
    comments = " ".join(line.strip("# ") for line in imported.text.splitlines() if line.lstrip().startswith("#"))
    assert kind in comments and why in comments
    assert len(contract_of(imported.text).expectations) == 1


def test_every_expectation_comes_through() -> None:
    entries = [{"type": each.type, "kwargs": each.arguments} for each in CASES]
    imported = import_suite(suite(*entries), "all.json")
    assert imported.left == ()
    found = contract_of(imported.text).expectations
    assert [(each.type, dict(each.arguments)) for each in found] == [(each.type, each.arguments) for each in CASES]


@pytest.mark.parametrize("text", ["no JSON", "[]", "{}", '{"expectations": [{"type": 1, "kwargs": {}}]}'])
def test_what_is_no_suite_is_refused(text: str) -> None:
    with pytest.raises(FrazilError, match=r"orders\.json") as refused:
        import_suite(text, "orders.json")
    assert refused.value.fix


def test_the_command_prints_the_block(tmp_path: Path) -> None:
    path = tmp_path / "orders.json"
    path.write_text(suite({"type": "expect_column_to_exist", "kwargs": {"column": "a"}}))
    ran = CliRunner().invoke(main, ["contract", "import", str(path)])
    assert ran.exit_code == 0, ran.output
    assert contract_of(ran.stdout).expectations[0].arguments == {"column": "a"}
    assert "1 expectation taken over, 0 not" in ran.stderr
