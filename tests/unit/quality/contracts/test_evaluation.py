"""Evaluation by pandas: every expectation that a contract can have, on rows that it accepts and on others."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NoReturn

import pyarrow as pa
import pytest

from jobs.config.contract.contract import Expectation
from jobs.config.contract.expectation_catalogue import expectation_types
from jobs.quality.contracts.evaluation import EvaluationContext, evaluate
from jobs.quality.contracts.outcome import ExpectationOutcome, Sample
from jobs.quality.contracts.unique_keys import EarlierKeys
from tests.helpers.contract_cases.case import BEYOND, COORDINATES, Case, rows
from tests.helpers.contract_cases.every import CASES

CONTEXT = EvaluationContext(coordinates=COORDINATES)


def one(table: pa.Table, entry: dict[str, Any], context: EvaluationContext = CONTEXT) -> ExpectationOutcome:
    (found,) = evaluate(table, [Expectation.model_validate(entry)], context)
    return found


def test_every_expectation_has_a_case() -> None:
    tested_apart = {"frazil_volume_per_hour_to_be_usual"}
    assert {case.type for case in CASES} | tested_apart == set(expectation_types())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.type}-{case.arguments}")
def test_passes_on_good_rows_and_fails_on_bad_ones(case: Case) -> None:
    (good,) = evaluate(rows(case.good), [case.expectation], CONTEXT)
    assert (good.problem, good.passed, good.samples) == (None, True, ()) or "mostly" in case.arguments
    (bad,) = evaluate(rows(case.bad), [case.expectation], CONTEXT)
    assert (bad.problem, bad.passed, bad.unexpected) == (None, False, case.rejected)
    if case.rejected is None:
        assert bad.observed or bad.elements is not None
    else:
        assert len(bad.samples) == case.rejected
        assert all(set(sample.coordinates) == set(COORDINATES) for sample in bad.samples)
        assert bad.share == pytest.approx(case.rejected / (bad.elements or 0))


def test_all_cases_of_a_table_at_once_are_told_apart() -> None:
    table = rows({"i": [BEYOND, None, 3], "s": ["a", "b", None]})
    entries: list[dict[str, Any]] = [
        {"expect_column_values_to_not_be_null": {"column": "s"}, "severity": "warning", "meta": {"owner": "x"}},
        {"expect_table_row_count_to_equal": {"value": 3}},
        {"expect_column_values_to_not_be_null": {"column": "gone"}, "severity": "info"},
        {"expect_column_values_to_be_between": {"column": "i", "min_value": 0, "row_condition": 'col("s") == "a"'}},
    ]
    found = evaluate(table, [Expectation.model_validate(each) for each in entries], CONTEXT)
    assert [each.passed for each in found] == [False, True, False, True]
    assert (found[0].severity, found[0].meta, found[0].elements, found[0].share) == (
        "warning",
        {"owner": "x"},
        3,
        1 / 3,
    )
    where = {"_kafka_topic": "payments", "_kafka_partition": 0, "_kafka_offset": 102}
    assert found[0].samples == (Sample(where, "null"),)
    assert found[0].filter == "`s` IS NULL"
    assert found[2].problem == "the rows have no column gone: there is no gone"
    assert found[3].elements == 1


def test_samples_are_five_at_most_and_none_without_coordinates_lacks_its_value() -> None:
    table = pa.table({"i": pa.array(range(20))})
    found = one(table, {"expect_column_values_to_be_between": {"column": "i", "min_value": 100}})
    assert (found.unexpected, found.share) == (20, 1.0)
    assert found.samples == tuple(Sample({}, str(number)) for number in range(5))


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"expect_column_mean_to_be_between": {"column": "s", "max_value": 1}}, "column s holds text"),
        ({"expect_column_values_to_match_regex": {"column": "i", "regex": "1"}}, "column i holds whole numbers"),
        ({"expect_column_values_to_be_in_set": {"column": "i", "value_set": ["a"]}}, "'a' is none"),
        ({"expect_column_values_to_be_unique": {"column": "payer"}}, "column payer holds lists, maps or structs"),
        ({"expect_column_values_to_not_be_null": {"column": "payer.bic"}}, "there is no bic within payer"),
        ({"expect_column_values_to_be_null": {"column": "i", "row_condition": 'col("gone") == 1'}}, "no column gone"),
        ({"expect_column_values_to_be_null": {"column": "i", "row_condition": 'col("s") == 1'}}, "column s holds text"),
        ({"expect_column_pair_values_to_be_equal": {"column_A": "i", "column_B": "s"}}, "cannot be compared"),
    ],
)
def test_what_cannot_be_evaluated_says_why(entry: dict[str, Any], problem: str) -> None:
    found = one(rows({"i": [1], "s": ["a"], "payer": [{"iban": "x"}]}), entry)
    assert found.passed is False
    assert problem in (found.problem or "")


def test_sums_of_more_digits_than_python_adds_up_are_exact() -> None:
    large = Decimal("1" * 30 + ".5")
    table = pa.table({"a": pa.array([large, None, Decimal(1)], pa.decimal128(38, 2))})
    found = one(table, {"expect_column_sum_to_be_between": {"column": "a", "max_value": 1}})
    assert found.observed == "1" * 29 + "2.50"


def test_no_rows_fail_no_expectation_about_rows() -> None:
    table = rows({"i": [None, None]}).slice(0, 0)
    found = one(table, {"expect_column_values_to_be_between": {"column": "i", "min_value": 0}})
    assert (found.passed, found.elements, found.unexpected, found.share) == (True, 0, 0, 0.0)
    assert one(table, {"expect_column_max_to_be_between": {"column": "i", "min_value": 0}}).observed == "no values"


def test_keys_are_compared_with_earlier_rows() -> None:
    asked: list[pa.Table] = []

    def known(columns: tuple[str, ...], keys: pa.Table) -> pa.Table:
        asked.append(keys)
        return keys.filter(pa.compute.equal(keys.column("i"), 2))  # pyright: ignore[reportAttributeAccessIssue]

    def no_spark(*_: Any) -> NoReturn:
        raise AssertionError("these rows are not in Spark")

    table = rows({"i": [1, 2, 3, 3, None]})
    entry = {"frazil_keys_to_be_unique": {"columns": ["i"]}}
    found = one(table, entry, EvaluationContext(coordinates=COORDINATES, earlier_keys=EarlierKeys(known, no_spark)))
    assert sorted(asked[0].column("i").to_pylist()) == [1, 2, 3]
    assert (found.passed, found.elements, found.unexpected) == (False, 4, 3)
    assert sorted(sample.value for sample in found.samples) == ["2", "3", "3"]
    assert found.observed == "1 keys more than once, 1 that earlier rows have"
    numbers = rows({"f": [0.0, -0.0, float("nan"), float("nan"), 1.5, None]})
    doubles = one(numbers, {"frazil_keys_to_be_unique": {"columns": ["f"]}})
    assert (doubles.elements, doubles.unexpected, doubles.observed[:25] if doubles.observed else "") == (
        3, 2, "1 keys more than once; ea",
    )  # fmt: skip
    alone = one(rows({"i": [1, 2]}), entry)
    assert (alone.passed, alone.observed) == (True, "0 keys more than once; earlier rows were not looked at")
