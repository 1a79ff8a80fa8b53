"""Evaluation by Spark: the same outcome as by pandas, of every expectation that a contract can have."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from jobs.config.contract.contract import Expectation
from jobs.config.contract.contract_plan import SCHEMA
from jobs.quality.contracts.evaluation import EvaluationContext, evaluate
from jobs.quality.contracts.outcome import ExpectationOutcome
from jobs.quality.contracts.unique_keys import EarlierKeys
from tests.helpers.contract_cases.case import COORDINATES, Case, at, rows, side_by_side
from tests.helpers.contract_cases.every import CASES

CONTEXT = EvaluationContext(coordinates=COORDINATES)


def told(outcome: ExpectationOutcome) -> dict[str, Any]:
    """An outcome to be compared: Spark lists rows in any order, and adds up numbers in any order."""
    found = dataclasses.asdict(outcome)
    found["samples"] = sorted((sample.coordinates["_kafka_offset"], sample.value) for sample in outcome.samples)
    return found


def frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The rows with the types that Iceberg's columns have in Spark."""
    return spark.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))


def test_each_expectation_has_the_same_outcome(spark: SparkSession) -> None:
    by_rows: dict[int, list[tuple[int, Case]]] = defaultdict(list)
    for number, case in enumerate(CASES):
        if case.type not in SCHEMA:
            by_rows[len(next(iter(case.bad.values())))].append((number, case))
    differ: list[Any] = []
    for cases in by_rows.values():
        table, expectations = side_by_side(cases, "bad")
        by_pandas = evaluate(table, expectations, CONTEXT)
        by_spark = evaluate(frame(spark, table), expectations, CONTEXT)
        for (_, case), mine, other in zip(cases, by_pandas, by_spark, strict=True):
            assert (mine.problem, mine.passed) == (None, False), case
            differ += [
                f"{case.type}: {name}: {value!r} by pandas, {told(other)[name]!r} by Spark"
                for name, value in told(mine).items()
                if told(other)[name] != value
            ]
    assert "\n".join(differ) == ""


def test_what_fails_in_a_common_job_does_not_fail_the_others(spark: SparkSession) -> None:
    table = rows({"s": ["a", "b"], "i": [1, None]})
    # A pattern that nobody reads ends the job that computes all of them.
    entries: list[dict[str, Any]] = [
        {"expect_column_values_to_match_regex": {"column": "s", "regex": "("}},
        {"expect_column_values_to_not_be_null": {"column": "i"}},
    ]
    expectations = [
        Expectation.model_construct(type=kind, arguments=arguments, name=kind)
        for each in entries
        for kind, arguments in each.items()
    ]
    first, second = evaluate(spark.createDataFrame(table), expectations, CONTEXT)
    assert (first.passed, (first.problem or "")[:19]) == (False, "could not evaluate:")
    assert "\n" not in (first.problem or "")
    assert (second.problem, second.passed, second.unexpected) == (None, False, 1)


def test_own_expectations_have_the_same_outcome(spark: SparkSession) -> None:
    table = rows({"i": [1, 2, 2, None], "at": [at(9), at(9, 30), at(10), at(11)]})
    keys = Expectation.model_validate({"frazil_keys_to_be_unique": {"columns": ["i"]}})
    volume = Expectation.model_validate({"frazil_volume_per_hour_to_be_usual": {"column": "at", "max_ratio": 1.5}})

    def known(_: tuple[str, ...], keys: pa.Table) -> pa.Table:
        return keys.filter(pa.compute.equal(keys.column("i"), 1))  # pyright: ignore[reportAttributeAccessIssue]

    context = EvaluationContext(
        coordinates=COORDINATES,
        earlier_keys=EarlierKeys(known, lambda *_: spark.createDataFrame([(1,), (1,), (2,), (3,)], "i bigint")),
        past_volumes=lambda *_: {at(9) - timedelta(days=day): 1 for day in range(1, 8)},
    )
    mine = evaluate(table, [keys, volume], context)
    for rows_of, expected in ((table, mine), (table.slice(0, 0), evaluate(table.slice(0, 0), [keys, volume], context))):
        other = evaluate(frame(spark, rows_of), [keys, volume], context)
        assert [told(each) for each in other] == [told(each) for each in expected]
    assert [(each.passed, each.unexpected) for each in mine] == [(False, 3), (False, None)]


def test_rows_without_values_have_the_same_outcome(spark: SparkSession) -> None:
    cases = [(number, case) for number, case in enumerate(CASES) if case.type not in SCHEMA]
    nothing = {number: {name: [None] for name in case.good} for number, case in cases}
    empty = [(number, case._replace(good=nothing[number])) for number, case in cases]
    table, expectations = side_by_side(empty, "good")
    differ: list[str] = []
    by_pandas = evaluate(table, expectations, CONTEXT)
    by_spark = evaluate(frame(spark, table), expectations, CONTEXT)
    for mine, other in zip(by_pandas, by_spark, strict=True):
        differ += [
            f"{mine.type}: {name}: {value!r} by pandas, {told(other)[name]!r} by Spark"
            for name, value in told(mine).items()
            if told(other)[name] != value
        ]
    assert "\n".join(differ) == ""
