"""What follows from executors that are missing or lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.clients.spark.executors import (
    AWAITED_SECONDS,
    FORGOTTEN_SECONDS,
    ApplicationEndedError,
    ExecutorsLostError,
    ExecutorWait,
    application_ended,
    cluster_problem,
)
from jobs.streaming.driver.batch.retry import is_transient, is_unavailable

LOST = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 failed 4 times, most "
    "recent failure: Lost task 0.3 in stage 4.0 (TID 9) (127.0.0.1 executor 7): ExecutorLostFailure (executor 7 exited "
    "caused by one of the running tasks) Reason: Command exited with code 137\nDriver stacktrace:"
)
RAISED = "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\nValueError: 1\n"


def context(master: str = "spark://one:7077", *, stopped: bool = False) -> Any:
    spark = SimpleNamespace(isStopped=lambda: stopped)
    return SimpleNamespace(master=master, applicationId="app-1", _jsc=SimpleNamespace(sc=lambda: spark))


def test_a_cluster_that_took_executors_away_is_no_fault_of_the_batch() -> None:
    problem = cluster_problem(context(), LOST)
    assert isinstance(problem, ExecutorsLostError)
    assert problem.message == "Spark lost executor 7 and its tasks: Command exited with code 137"
    assert is_unavailable(problem)
    assert is_transient(problem)


def test_an_application_that_has_ended_is_begun_anew_and_not_in_place() -> None:
    problem = cluster_problem(context(stopped=True), "SparkContext was shut down")
    assert isinstance(problem, ApplicationEndedError)
    assert "app-1 has ended: spark://one:7077 removed it" in problem.message
    assert is_unavailable(problem)
    assert not is_transient(problem)


@pytest.mark.parametrize(("master", "text"), [("spark://one:7077", RAISED), ("local[2]", LOST), ("local[2]", RAISED)])
def test_what_python_raised_is_no_problem_of_the_cluster(master: str, text: str) -> None:
    assert cluster_problem(context(master), text) is None


def test_an_application_has_ended_if_spark_says_so() -> None:
    session: Any = SimpleNamespace(sparkContext=context(stopped=True))
    assert application_ended(session)
    session = SimpleNamespace(sparkContext=context())
    assert not application_ended(session)
    session = SimpleNamespace(sparkContext=None)
    assert not application_ended(session), "a JVM that does not answer is noticed elsewhere"


S, A, F = 100.0, 100.0 + AWAITED_SECONDS, 100.0 + FORGOTTEN_SECONDS


@pytest.mark.parametrize(
    ("had", "looks", "verdicts"),
    [
        # (executors, when, whether the master answers)
        (False, [(2, S, True)], ["fine"]),
        (False, [(0, S, True), (0, A - 1, True), (0, A, True), (0, F + 900, True)], ["fine", "fine", "wait", "wait"]),
        (True, [(0, S, True), (0, A, True), (0, F, True)], ["fine", "wait", "give up"]),
        (True, [(0, S, False), (0, A, False), (0, F + 900, False)], ["fine", "wait", "wait"]),
        (True, [(0, S, False), (0, F, False), (0, F + 1, True)], ["fine", "wait", "give up"]),
        (False, [(1, S, True), (0, S + 5, True), (0, F, True), (0, F + 5, True)], ["fine", "fine", "wait", "give up"]),
        (True, [(0, S, True), (1, A, True), (0, F, True), (0, F + 9, True)], ["fine", "fine", "fine", "fine"]),
    ],
)
def test_only_an_application_that_had_executors_is_given_up_and_only_where_a_master_answers(
    had: bool, looks: list[tuple[int, float, bool]], verdicts: list[str]
) -> None:
    wait = ExecutorWait(had)
    assert [wait.look(count, now, lambda answers=answers: answers) for count, now, answers in looks] == verdicts
