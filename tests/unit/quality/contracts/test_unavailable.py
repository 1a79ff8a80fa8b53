"""What of the errors that end an evaluation says nothing of the rows."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import requests.exceptions
import sqlalchemy.exc
from py4j.protocol import Py4JNetworkError
from pyiceberg.exceptions import ServerError
from pyspark.errors import AnalysisException, ArithmeticException, PythonException, UnknownException

from jobs.base.errors import FrazilError
from jobs.config.contract.contract import Expectation
from jobs.quality.contracts.evaluation import EvaluationContext, evaluate
from jobs.quality.contracts.seen_rows import ArrowRows
from jobs.quality.contracts.unavailable import SparkFailedError, is_unavailable, spark_told
from jobs.tables.write.data_file_rows import UnreadableFileError
from tests.helpers.contract_cases.case import rows

WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "arrow_rows.py", line 1, in read
    raise ValueError: not this one
{}
"""
LOST = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 4 times, most recent "


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (ConnectionRefusedError(111, "refused"), True),
        (FileNotFoundError(2, "gone"), True),
        (TimeoutError(), True),
        (MemoryError(), True),
        (UnreadableFileError("x"), True),
        (requests.exceptions.ConnectionError(), True),
        (sqlalchemy.exc.OperationalError("select", {}, Exception("locked")), True),
        (ServerError("500"), True),
        (Py4JNetworkError("Answer from Java side is empty"), True),
        (UnknownException(LOST + "failure: ExecutorLostFailure (executor 1 exited)"), True),
        (UnknownException(LOST + "failure: java.io.FileNotFoundException: File file:/x does not exist"), True),
        (
            UnknownException("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."),
            True,
        ),
        (PythonException(WORKER.format("FileNotFoundError: [Errno 2] No such file: '/x'")), True),
        (
            PythonException(WORKER.format("jobs.tables.write.data_file_rows.UnreadableFileError: /x cannot be read")),
            True,
        ),
        (PythonException(WORKER.format("requests.exceptions.ConnectionError: refused")), True),
        (UnknownException(LOST + WORKER.format("ConnectionResetError: reset")), True),
        (ValueError("x"), False),
        (KeyError("x"), False),
        (FrazilError("table x has no column y of times"), False),
        (pa.ArrowInvalid("Integer value 7 not in range"), False),
        (AnalysisException("[UNRESOLVED_COLUMN]"), False),
        (ArithmeticException("[ARITHMETIC_OVERFLOW]"), False),
        (PythonException(WORKER.format("ValueError: 7")), False),
        (PythonException(WORKER.format("pyarrow.lib.ArrowInvalid: Integer value 7 not in range")), False),
        (UnknownException(LOST + "failure: java.util.regex.PatternSyntaxException: Unclosed group"), False),
        (UnknownException(LOST + "failure: org.apache.spark.SparkArithmeticException: [OVERFLOW]"), False),
    ],
    ids=lambda each: f"{type(each).__name__}-{str(each)[-40:]!r}" if isinstance(each, Exception) else str(each),
)
def test_what_is_away_and_what_is_at_fault(error: Exception, away: bool) -> None:
    assert is_unavailable(error) is away
    other = RuntimeError("a metric")
    other.__cause__ = error
    assert is_unavailable(other) is away


def test_what_spark_says_is_a_sentence_without_values() -> None:
    lost = UnknownException(LOST + "failure: ExecutorLostFailure")
    said = "table t could not be checked, since Spark failed: UnknownException: org.apache"
    with pytest.raises(SparkFailedError, match=said), spark_told("t", "s", masked=False):
        raise lost
    with pytest.raises(SparkFailedError) as told, spark_told("t", "s", masked=True):
        raise lost
    assert "stage failure" not in str(told.value) and "frazil check s" in str(told.value)
    for other in (FileNotFoundError("gone"), ValueError("x"), FrazilError("x")):
        with pytest.raises(type(other)), spark_told("t", "s", masked=False):
            raise other


ENTRIES: list[dict[str, Any]] = [
    {"expect_column_values_to_not_be_null": {"column": "s"}},
    {"expect_column_values_to_match_regex": {"column": "s", "regex": "a"}},
    {"expect_column_max_to_be_between": {"column": "i", "max_value": 3}},
    {"frazil_keys_to_be_unique": {"columns": ["i"]}},
]


@pytest.mark.parametrize("where", ["the rows", "a metric", "the keys"])
@pytest.mark.parametrize("away", [True, False])
def test_no_outcome_is_made_of_what_is_away(monkeypatch: pytest.MonkeyPatch, where: str, away: bool) -> None:
    error = ConnectionError("the storage") if away else ValueError("a number")

    def failing(*_: object, **__: object) -> Any:
        raise error

    if where == "the rows":
        monkeypatch.setattr(ArrowRows, "seen", failing)
    elif where == "a metric":
        monkeypatch.setattr(pd.Series, "isnull", failing)
        monkeypatch.setattr(pd.Series, "isna", failing)
    else:
        monkeypatch.setattr("jobs.quality.contracts.evaluation.unique_keys", failing)
    expectations = [Expectation.model_validate(each) for each in ENTRIES]
    table = rows({"s": ["a", None], "i": [1, 2]})
    if away:
        with pytest.raises(ConnectionError, match="the storage"):
            evaluate(table, expectations, EvaluationContext())
    else:
        found = evaluate(table, expectations, EvaluationContext())
        assert any("a number" in (each.problem or "") for each in found)
        assert not all(each.problem for each in found), "the others are evaluated all the same"
