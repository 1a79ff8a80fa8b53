"""Outcome of an expectation: what was looked at, what was not accepted, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

MOST_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """A row that an expectation does not accept.

    Attributes:
        coordinates: The Kafka columns that the table has: topic, partition and offset, under the table's names.
        value: What the row has in the expectation's columns, as text; already masked where the stream's mask of dead
            letters hides a column.
    """

    coordinates: Mapping[str, object]
    value: str


@dataclass(frozen=True, slots=True)
class ExpectationOutcome:
    """What came of one expectation.

    Attributes:
        name: Unique within the contract; letters, digits and _.
        type: What Great Expectations calls it, such as ``expect_column_values_to_not_be_null``.
        arguments: As the stream's file has them.
        severity: What a failure is.
        passed: Whether the rows are as expected.
        problem: Why it could not be evaluated; then it has not passed.
        elements: Rows looked at.
        unexpected: Rows that are not accepted; None where the expectation is about all of them together.
        share: Of `elements` that are not accepted, of 1.
        observed: What was found, of an expectation about all rows together.
        samples: At most `MOST_SAMPLES`.
        filter: An SQL condition that finds the rows that are not accepted, where there is one.
        meta: As the stream's file has it.
    """

    name: str
    type: str
    arguments: Mapping[str, Any]
    severity: Literal["critical", "warning", "info"]
    passed: bool
    problem: str | None
    elements: int | None
    unexpected: int | None
    share: float | None
    observed: str | None
    samples: tuple[Sample, ...]
    filter: str | None
    meta: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OwnResult:
    """What came of an expectation.

    Attributes:
        elements: Rows looked at.
        unexpected: Rows that are not accepted; None where it is about all of them together.
        observed: What was found.
        rows: At most `MOST_SAMPLES` rows: the values of the coordinates and of the columns.
    """

    passed: bool
    elements: int
    unexpected: int | None
    observed: str | None
    rows: tuple[Mapping[str, Any], ...] = ()
