"""Filter of an expectation: a Spark SQL condition for its unexpected rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from jobs.config.contract.contract_columns import TIMES, SeenColumn
from jobs.config.contract.contract_plan import PlannedExpectation, same_regex
from jobs.config.contract.row_condition import Combination, Condition, Nullity
from jobs.config.values.mask import path_parts

_ZERO = {"date": "DATE", "timestamp": "TIMESTAMP_NTZ", "timestamptz": "TIMESTAMP"}


def row_filter(plan: PlannedExpectation) -> str | None:
    """The condition, made from the contract only; None if single rows do not decide, or SQL cannot express it."""
    make = _FILTERS.get(plan.expectation.type)
    if make is None:
        return None
    found = make(plan.columns, plan.expectation.arguments)
    if found is None or plan.condition is None:
        return found
    return f"{_met(plan.condition)} AND ({found})"


def quoted(parts: Sequence[str]) -> str:
    """A column by its path, in backticks."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


def literal(value: Any, kind: str = "") -> str:
    """An argument's value as a Spark SQL literal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, Decimal)):
        return str(value)
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"{_ZERO[kind]} '{text}'" if kind in _ZERO else f"'{text}'"


def _name(seen: SeenColumn) -> str:
    return quoted(seen.column.parts)


def _of(seen: SeenColumn, value: Any) -> str:
    return literal(value, seen.column.kind if seen.column.kind in TIMES else "")


def _between(columns: tuple[SeenColumn, ...], given: Mapping[str, Any]) -> str:
    column = columns[0]
    return _outside(_name(column), given, lambda value: _of(column, value))


def _outside(subject: str, given: Mapping[str, Any], written: Callable[[Any], str]) -> str:
    parts = []
    if given.get("min_value") is not None:
        parts.append(f"{subject} {'<=' if given.get('strict_min') else '<'} {written(given['min_value'])}")
    if given.get("max_value") is not None:
        parts.append(f"{subject} {'>=' if given.get('strict_max') else '>'} {written(given['max_value'])}")
    return " OR ".join(parts)


def _in_set(columns: tuple[SeenColumn, ...], given: Mapping[str, Any], word: str) -> str:
    values = ", ".join(_of(columns[0], value) for value in given["value_set"])
    return f"{_name(columns[0])} {word} ({values})"


def _regex(columns: tuple[SeenColumn, ...], given: Mapping[str, Any], *, wanted: bool) -> str:
    several = given.get("regex_list") or [given["regex"]]
    each = [f"{_name(columns[0])} RLIKE {literal(same_regex(one, spark=True))}" for one in several]
    if not wanted:
        return " OR ".join(each)
    joined = (" AND " if given.get("match_on") == "all" else " OR ").join(each)
    return f"NOT ({joined})"


def _lengths(columns: tuple[SeenColumn, ...], given: Mapping[str, Any]) -> str:
    return _outside(f"length({_name(columns[0])})", given, str)


def _greater(columns: tuple[SeenColumn, ...], given: Mapping[str, Any]) -> str | None:
    a, b = map(_name, columns)
    accepted = f"coalesce({a} {'>=' if given.get('or_equal') else '>'} {b}, false)"
    if given.get("or_equal"):
        accepted = f"({accepted} OR {a} <=> {b})"
    return _unless(f"NOT {accepted}", columns, given, "both_values_are_missing")


def _equal(columns: tuple[SeenColumn, ...], given: Mapping[str, Any]) -> str:
    first = _name(columns[0])
    same = " AND ".join(f"{first} <=> {_name(other)}" for other in columns[1:])
    default = "both_values_are_missing" if "column_A" in given else "all_values_are_missing"
    return _unless(f"NOT ({same})", columns, given, default)


def _sum(columns: tuple[SeenColumn, ...], given: Mapping[str, Any]) -> str:
    total = " + ".join(map(_name, columns))
    found = f"NOT coalesce({total} = {literal(given['sum_total'])}, false)"
    return _unless(found, columns, given, "all_values_are_missing")


def _unless(found: str, columns: tuple[SeenColumn, ...], given: Mapping[str, Any], default: str) -> str:
    """Unexpected rows, without those that `ignore_row_if` leaves out."""
    ignored = given.get("ignore_row_if", default)
    present = [f"{_name(each)} IS NOT NULL" for each in columns]
    if ignored in ("neither", "never"):
        return found
    word = " OR " if ignored in ("both_values_are_missing", "all_values_are_missing") else " AND "
    return f"({word.join(present)}) AND {found}"


def _met(condition: Condition) -> str:
    if isinstance(condition, Combination):
        return "(" + f" {condition.word.upper()} ".join(_met(part) for part in condition.parts) + ")"
    column = quoted(path_parts(condition.column))
    if isinstance(condition, Nullity):
        return f"{column} IS {'' if condition.is_null else 'NOT '}NULL"
    if condition.operator in ("IN", "NOT_IN"):
        values = ", ".join(literal(value) for value in condition.value)
        return f"{column} {condition.operator.replace('_', ' ')} ({values})"
    operator = {"==": "=", "!=": "<>"}.get(condition.operator, condition.operator)
    return f"{column} {operator} {literal(condition.value)}"


_FILTERS: Mapping[str, Callable[[tuple[SeenColumn, ...], Mapping[str, Any]], str | None]] = {
    "expect_column_values_to_not_be_null": lambda columns, _: f"{_name(columns[0])} IS NULL",
    "expect_column_values_to_be_null": lambda columns, _: f"{_name(columns[0])} IS NOT NULL",
    "expect_column_values_to_be_between": _between,
    "expect_column_values_to_be_in_set": lambda columns, given: _in_set(columns, given, "NOT IN"),
    "expect_column_values_to_not_be_in_set": lambda columns, given: _in_set(columns, given, "IN"),
    "expect_column_values_to_match_regex": lambda columns, given: _regex(columns, given, wanted=True),
    "expect_column_values_to_match_regex_list": lambda columns, given: _regex(columns, given, wanted=True),
    "expect_column_values_to_not_match_regex": lambda columns, given: _regex(columns, given, wanted=False),
    "expect_column_values_to_not_match_regex_list": lambda columns, given: _regex(columns, given, wanted=False),
    "expect_column_value_lengths_to_be_between": _lengths,
    "expect_column_value_lengths_to_equal": lambda columns, given: f"length({_name(columns[0])}) <> {given['value']}",
    "expect_column_pair_values_a_to_be_greater_than_b": _greater,
    "expect_column_pair_values_to_be_equal": _equal,
    "expect_multicolumn_values_to_be_equal": _equal,
    "expect_multicolumn_sum_to_equal": _sum,
}
