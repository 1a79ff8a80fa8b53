"""Outcome of an expectation: the judged rows, the unexpected ones, and samples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jobs.config.contract.contract import Expectation
from jobs.config.contract.contract_columns import SeenColumn, shown_number
from jobs.config.contract.contract_plan import PlannedExpectation
from jobs.config.values.mask import path_parts
from jobs.tables.dead_letter_table.masking import MARK

MOST_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """An unexpected row.

    Attributes:
        coordinates: Topic, partition and offset, under the table's names, if the table has them.
        value: The row's values of the expectation's columns as text, already masked if the stream's mask of dead
            letters hides a column.
    """

    coordinates: Mapping[str, object]
    value: str


@dataclass(frozen=True, slots=True)
class ExpectationOutcome:
    """Outcome of one expectation.

    Attributes:
        name: Name, unique within the contract; letters, digits and _.
        type: Great Expectations' name, such as ``expect_column_values_to_not_be_null``.
        arguments: Arguments in the stream's file.
        severity: Severity of a failure.
        passed: Whether the rows are as expected.
        problem: Reason why it could not be evaluated; then it has not passed.
        elements: Number of judged rows.
        unexpected: Number of unexpected rows; None if the expectation is about all rows together.
        share: Share of `elements` that is unexpected, 0 to 1.
        observed: Observed value, for an expectation about all rows together.
        samples: At most `MOST_SAMPLES`.
        filter: SQL condition for the unexpected rows, if there is one.
        meta: Metadata in the stream's file.
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
    """Result of one of frazil's own expectations.

    Attributes:
        elements: Number of judged rows.
        unexpected: Number of unexpected rows; None if it is about all rows together.
        observed: Observed value.
        rows: At most `MOST_SAMPLES` rows, with coordinates and columns.
    """

    passed: bool
    elements: int
    unexpected: int | None
    observed: str | None
    rows: tuple[Mapping[str, Any], ...] = ()


_COUNTS = frozenset({
    "expect_column_unique_value_count_to_be_between", "expect_column_proportion_of_unique_values_to_be_between",
    "expect_column_proportion_of_non_null_values_to_be_between", "expect_table_row_count_to_be_between",
    "expect_table_row_count_to_equal",
})  # fmt: skip
"""Types whose observed value is a number or share of rows, and shows no value."""
_MOST_SHOWN = 10


def outcome(expectation: Expectation, **found: Any) -> ExpectationOutcome:
    """An outcome; with only a `problem`, of an expectation that could not be evaluated."""
    rest: dict[str, Any] = {
        "passed": False, "problem": None, "elements": None, "unexpected": None, "share": None, "observed": None,
        "samples": (), "filter": None,
    }  # fmt: skip
    return ExpectationOutcome(
        name=expectation.name,
        type=expectation.type,
        arguments=expectation.arguments,
        severity=expectation.severity,
        meta=expectation.meta,
        **{**rest, **found},
    )


def unexpected_rows(metrics: Mapping[str, Any]) -> int:
    """Number of unexpected rows."""
    found = next(
        count
        for name, count in metrics.items()
        if name.endswith(".unexpected_count") and (name != _NO_VALUE or _own(metrics) == 1)
    )
    return int(found or 0)


_NO_VALUE = "column_values.nonnull.unexpected_count"


def _own(metrics: Mapping[str, Any]) -> int:
    return sum(name.endswith(".unexpected_count") for name in metrics)


def elements(metrics: Mapping[str, Any]) -> int:
    """Number of judged rows: those with values, unless the expectation is about missing values."""
    for name, count in metrics.items():
        if name.endswith(".filtered_row_count"):
            return int(count)
    total = int(metrics["table.row_count"])
    return total - int(metrics[_NO_VALUE] or 0) if _own(metrics) > 1 and _NO_VALUE in metrics else total


def index_list(metrics: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Unexpected rows, with the requested columns."""
    return next((rows or () for name, rows in metrics.items() if name.endswith(".unexpected_index_list")), ())


def observed(plan: PlannedExpectation, result: Mapping[str, Any], *, hidden: bool) -> str | None:
    """Observed value of an expectation about all rows together.

    Args:
        hidden: Whether values of its columns must not be shown.
    """
    value = result.get("observed_value")
    if "missing_count" in result or "unexpected_count" in result:
        return _of_sets(plan.columns[0], result, hidden=hidden)
    if value is None:
        return "no values"
    if plan.expectation.type in _COUNTS or not plan.columns:
        return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else shown_number(value)
    if hidden:
        return MARK
    if isinstance(value, Mapping):
        pairs = zip(value["quantiles"], value["values"], strict=False)
        return ", ".join(f"{share:g}: {plan.columns[0].shown(each)}" for share, each in pairs)
    if plan.expectation.type == "expect_column_stdev_to_be_between":
        return shown_number(value)
    many = value if isinstance(value, (list, tuple, set)) else [value]
    return _listed(plan.columns[0], many)


def _of_sets(seen: SeenColumn, result: Mapping[str, Any], *, hidden: bool) -> str:
    said = []
    for count, values, what in (
        ("unexpected_count", "partial_unexpected_list", "not in the set"),
        ("missing_count", "partial_missing_list", "of the set missing"),
    ):
        if number := int(result.get(count) or 0):
            listed = "" if hidden or not result.get(values) else f": {_listed(seen, result[values])}"
            said.append(f"{number} {'value' if number == 1 else 'values'} {what}{listed}")
    return "; ".join(said) or "all values in the set"


def _listed(seen: SeenColumn, values: Any) -> str:
    shown = sorted(seen.shown(each) for each in values)
    return ", ".join(shown[:_MOST_SHOWN]) + (", …" if len(shown) > _MOST_SHOWN else "")


def one_line(error: str) -> str:
    """The sentence in an error, without the wrapping of Java and Python."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    said = (errors[-1:] or lines or [""])[0]
    return re.sub(r"\s+", " ", said)[:300] or "Great Expectations gave no reason"


def plain(value: Any) -> Any:
    """A coordinate as a Python value: text, an integer, or None."""
    if hasattr(value, "item"):
        value = value.item()
    return None if value is None or value != value else value


class Hidden:
    """Columns whose values are hidden.

    Args:
        paths: Paths as in `Mask.paths`. A column is hidden if a path is the column, is around it or within it.
    """

    def __init__(self, paths: Iterable[Sequence[str]]) -> None:
        self._paths: list[tuple[str, ...]] = [tuple(part.casefold() for part in path) for path in paths]

    def hides(self, column: str) -> bool:
        """Whether values of the column are hidden."""
        parts = tuple(part.casefold() for part in (column, *path_parts(column))[1:])
        whole = (column.casefold(),)
        return any(
            path[: len(each)] == each[: len(path)] for path in self._paths for each in (parts, whole)
        )  # fmt: skip

    def any_of(self, columns: Iterable[str]) -> bool:
        """Whether one of the columns is hidden."""
        return any(map(self.hides, columns))

    def shown(self, column: str, value: str) -> str:
        """The value, or a mark in place of a hidden one."""
        return MARK if self.hides(column) else value
