"""What the mask of dead letters hides, no outcome of any expectation shows: not as a sample, not as what was found."""

from __future__ import annotations

import dataclasses
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from jobs.config.contract.contract import Expectation
from jobs.quality.contracts.evaluation import EvaluationContext, evaluate
from jobs.quality.contracts.outcome import ExpectationOutcome
from jobs.tables.dead_letter_table.masking import MARK
from tests.helpers.contract_cases.case import COORDINATES, Case, rows
from tests.helpers.contract_cases.every import CASES

SECRET, ANOTHER = "DE89370400440532013000", "secretive"
TABLE = pa.table({
    "iban": [SECRET, SECRET, ANOTHER],
    "salary": pa.array([Decimal("48151.62"), Decimal("34271.99"), Decimal("34271.99")], pa.decimal128(12, 2)),
    "payer": pa.array([{"iban": SECRET, "age": 4815}] * 3, pa.struct([("iban", pa.string()), ("age", pa.int32())])),
    "plain": ["a", "b", "c"],
    "_kafka_offset": pa.array([1, 2, 3], pa.int64()),
})  # fmt: skip
TOLD = (SECRET, ANOTHER, "48151.62", "34271.99", "4815", "38898", "116695.6")
MASKED = (("iban",), ("salary",), ("payer",))


def found(entry: dict[str, Any], masked: tuple[tuple[str, ...], ...] = MASKED) -> ExpectationOutcome:
    context = EvaluationContext(coordinates=("_kafka_offset",), masked=masked)
    (outcome,) = evaluate(TABLE, [Expectation.model_validate(entry)], context)
    return outcome


ENTRIES: list[dict[str, Any]] = [
    {"expect_column_values_to_be_in_set": {"column": "iban", "value_set": ["x"]}},
    {"expect_column_values_to_match_regex": {"column": "iban", "regex": "^x"}},
    {"expect_column_values_to_be_unique": {"column": "iban"}},
    {"expect_column_values_to_be_null": {"column": "iban"}},
    {"expect_column_values_to_be_between": {"column": "salary", "max_value": 1}},
    {"expect_column_values_to_be_between": {"column": "payer.age", "max_value": 1}},
    {"expect_column_values_to_be_null": {"column": "payer.iban"}},
    {"expect_column_values_to_be_null": {"column": "payer"}},
    {"expect_column_distinct_values_to_be_in_set": {"column": "iban", "value_set": ["x"]}},
    {"expect_column_distinct_values_to_equal_set": {"column": "iban", "value_set": ["x"]}},
    {"expect_column_most_common_value_to_be_in_set": {"column": "iban", "value_set": ["x"]}},
    {"expect_column_max_to_be_between": {"column": "salary", "max_value": 1}},
    {"expect_column_min_to_be_between": {"column": "iban", "max_value": "1999-01-01"}},
    {"expect_column_mean_to_be_between": {"column": "salary", "max_value": 1}},
    {"expect_column_median_to_be_between": {"column": "salary", "max_value": 1}},
    {"expect_column_sum_to_be_between": {"column": "salary", "max_value": 1}},
    {"expect_column_stdev_to_be_between": {"column": "salary", "max_value": 1}},
    {"expect_column_quantile_values_to_be_between":
        {"column": "salary", "quantile_ranges": {"quantiles": [0.5], "value_ranges": [[0, 1]]}}},
    {"expect_column_values_to_not_be_outliers": {"column": "salary", "method": "std", "multiplier": 0.1}},
    {"expect_compound_columns_to_be_unique": {"column_list": ["iban", "salary"]}},
    {"expect_column_pair_values_to_be_equal": {"column_A": "iban", "column_B": "plain"}},
    {"expect_multicolumn_sum_to_equal": {"column_list": ["salary", "payer.age"], "sum_total": 1}},
    {"frazil_keys_to_be_unique": {"columns": ["iban"]}},
]  # fmt: skip


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: next(iter(entry)))
def test_no_masked_value_is_told(entry: dict[str, Any]) -> None:
    outcome = found(entry)
    told = json.dumps(dataclasses.asdict(outcome), default=str)
    assert (outcome.problem, outcome.passed) == (None, entry is ENTRIES[19])
    assert not [value for value in TOLD if value in told]
    assert all(MARK in sample.value for sample in outcome.samples)
    # Without a mask it is told: the test looks at what would be there.
    open_told = json.dumps(dataclasses.asdict(found(entry, ())), default=str)
    counts_only = ("stdev", "null", "compound")
    assert any(value in open_told for value in TOLD) or any(each in next(iter(entry)) for each in counts_only)


@pytest.mark.parametrize("path", [("payer",), ("payer", "iban"), ("PAYER", "IBAN")])
def test_a_mask_around_or_within_a_column_hides_it(path: tuple[str, ...]) -> None:
    outcome = found({"expect_column_values_to_match_regex": {"column": "payer.iban", "regex": "^x"}}, (path,))
    assert {sample.value for sample in outcome.samples} == {MARK}


def test_other_columns_are_shown() -> None:
    outcome = found({"expect_column_pair_values_to_be_equal": {"column_A": "iban", "column_B": "plain"}})
    assert outcome.samples[0].value == f"iban: {MARK}, plain: a"
    assert outcome.samples[0].coordinates == {"_kafka_offset": 1}


def test_what_could_not_be_evaluated_quotes_nothing() -> None:
    broken = Expectation.model_construct(
        type="expect_column_values_to_match_regex", name="x", arguments={"column": "iban", "regex": "("}
    )
    (outcome,) = evaluate(TABLE, [broken], EvaluationContext(masked=MASKED))
    assert outcome.problem == "could not evaluate: what was found is masked"


@pytest.mark.parametrize("case", [case for case in CASES if case.rejected], ids=lambda case: case.type)
def test_every_sample_of_every_expectation_is_masked(case: Case) -> None:
    table = rows(case.bad)
    masked = tuple((name,) for name in table.column_names if name not in COORDINATES)
    context = EvaluationContext(coordinates=COORDINATES, masked=masked)
    (outcome,) = evaluate(table, [case.expectation], context)
    assert outcome.samples
    for sample in outcome.samples:
        assert {text.split(": ")[-1] for text in sample.value.split(", ")} == {MARK}
