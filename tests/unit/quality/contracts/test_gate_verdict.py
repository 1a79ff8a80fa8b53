"""The verdict of a contract on unpublished rows: which outcomes of expectations hold a publication back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from jobs.quality.contracts.check_result import CheckedRows, TableCheck
from jobs.quality.contracts.gate_judge import verdict_of
from jobs.quality.contracts.outcome import ExpectationOutcome
from jobs.quality.publishing.gate import Verdict

Severity = Literal["critical", "warning", "info"]


def outcome(
    name: str, severity: Severity = "critical", *, passed: bool = False, problem: str | None = None
) -> ExpectationOutcome:
    return ExpectationOutcome(
        name=name,
        type="expect_column_values_to_not_be_null",
        arguments={"column": "id"},
        severity=severity,
        passed=passed,
        problem=problem,
        elements=None if problem else 20,
        unexpected=None if problem else (0 if passed else 9),
        share=None,
        observed=None,
        samples=(),
        filter=None,
        meta={},
    )


def verdict(*outcomes: ExpectationOutcome) -> Verdict:
    now = datetime.now(UTC)
    check = TableCheck("payments", "shop.payments", "rows", CheckedRows(), now, rows=20, outcomes=[*outcomes])
    return verdict_of(check, "digest")


def test_rows_that_meet_the_contract_pass() -> None:
    assert verdict(outcome("one", passed=True)) == Verdict(True, (), "digest", 20)
    assert verdict() == Verdict(True, (), "digest", 20)


def test_one_critical_failure_holds_the_rows_back() -> None:
    result = verdict(outcome("fine", passed=True), outcome("hint", "warning"), outcome("not_null"))
    assert (result.passed, result.unevaluated, len(result.reasons)) == (False, False, 1)
    assert result.reasons[0].startswith("not_null (") and "9 of 20 rows" in result.reasons[0]


def test_failures_that_are_not_critical_are_reported_and_hold_nothing_back() -> None:
    result = verdict(outcome("hint", "info"), outcome("likely", "warning"))
    assert (result.passed, [reason.split()[0] for reason in result.reasons]) == (True, ["likely", "hint"])


def test_a_critical_expectation_that_cannot_be_evaluated_holds_the_rows_back() -> None:
    broken = outcome("needs_amount", problem="there is no column 'amount'")
    result = verdict(broken, outcome("fine", passed=True))
    assert (result.passed, result.unevaluated) == (False, True)
    assert result.reasons == ("needs_amount could not be evaluated: there is no column 'amount'",)
    # A failure that was evaluated is judged again only under another contract.
    assert not verdict(broken, outcome("not_null")).unevaluated
    assert verdict(outcome("needs_amount", "warning", problem="gone"), outcome("fine", passed=True)).passed
