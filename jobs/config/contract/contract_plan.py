"""Plan of an evaluation: the columns and arguments that Great Expectations gets for each expectation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema

from jobs.config.contract.contract import Expectation
from jobs.config.contract.contract_columns import (
    Column,
    Form,
    NotEvaluable,
    SeenColumn,
    declared_column,
    seen_together,
)
from jobs.config.contract.expectation_catalogue import (
    KEYS_TO_BE_UNIQUE,
    VOLUME_TO_BE_USUAL,
    expectation_types,
)
from jobs.config.contract.row_condition import (
    Combination,
    Condition,
    Nullity,
    condition_columns,
    row_condition,
)
from jobs.config.documents.base import Problem

_LISTS: Mapping[str, Any] = json.loads(Path(__file__).with_name("expectation_forms.json").read_text(encoding="utf-8"))
SCHEMA = frozenset(_LISTS["of_columns_not_rows"])
"""Expectations about the columns of the table, not about its rows."""
_FORMS: Mapping[str, Form] = {kind: form for form, kinds in _LISTS["forms"].items() for kind in kinds}
# Quantiles are compared with a tolerance, which would be days for dates. So they are for numbers only.
_TOGETHER, _VALUES_AS_BOUNDS, _NUMBERS_ALONE, _ONE_OF_SET, _ALL_OF_SET = (
    frozenset(_LISTS[name]) for name in ("together", "values_as_bounds", "numbers_alone", "one_of_set", "all_of_set")
)


@dataclass(frozen=True, slots=True)
class PlannedExpectation:
    """Plan of one expectation.

    Attributes:
        number: Index in the contract.
        expectation: Expectation of the contract.
        columns: Columns of the expectation, in the order in which it names them.
        condition: Condition that selects the rows.
    """

    number: int
    expectation: Expectation
    columns: tuple[SeenColumn, ...]
    condition: Condition | None

    @property
    def about_rows(self) -> bool:
        """Whether it accepts or refuses single rows; otherwise it is about all rows together."""
        kind = self.expectation.type
        return "mostly" in expectation_types()[kind].arguments

    def involved(self) -> tuple[str, ...]:
        """The names of all columns that it reads."""
        condition = condition_columns(self.condition) if self.condition else ()
        return (*(seen.column.name for seen in self.columns), *condition)

    def arguments(self, names: Mapping[SeenColumn, str], *, spark: bool) -> dict[str, Any]:
        """Return the arguments for Great Expectations.

        Args:
            names: Names of the columns in the frame.
            spark: Whether Spark evaluates, so that Java reads regular expressions.
        """
        kind = self.expectation.type
        given = {name: value for name, value in self.expectation.arguments.items() if name != "row_condition"}
        kinds = expectation_types()[kind].arguments
        columns = iter(self.columns)
        found: dict[str, Any] = {}
        for name, argument in kinds.items():
            if name not in given:
                continue
            value = given[name]
            if argument.kind == "column":
                value = names[next(columns)]
            elif argument.kind == "columns":
                value = [names[next(columns)] for _ in value]
            elif argument.kind == "regex":
                value = same_regex(value, spark=spark)
            elif argument.kind == "regexes":
                value = [same_regex(each, spark=spark) for each in value]
            elif self.columns:
                value = self._of_column(name, value)
            found[name] = value
        return found

    def _of_column(self, name: str, value: Any) -> Any:
        first = self.columns[0]
        kind = self.expectation.type
        if name == "value_set":
            return [first.argument(each) for each in value]
        if name == "value_pairs_set":
            a, b = self.columns
            return [(a.argument(one), b.argument(other)) for one, other in value]
        if name == "sum_total" or (name in ("min_value", "max_value") and kind in _VALUES_AS_BOUNDS):
            return first.argument(value)
        if name == "quantile_ranges":
            ranges = [[first.argument(end) for end in each] for each in value["value_ranges"]]
            return {"quantiles": list(value["quantiles"]), "value_ranges": ranges}
        return value


def planned(number: int, expectation: Expectation, find: Callable[[str], Column]) -> PlannedExpectation:
    """Plan an expectation from the kinds of its columns.

    Args:
        find: Returns the column of a name.

    Raises:
        NotEvaluable: A column's values do not fit the expectation or its arguments.
    """
    kind = expectation.type
    condition = expectation.arguments.get("row_condition")
    met = row_condition(condition) if condition is not None else None
    if met is not None:
        check_condition(met, find)
    if kind in SCHEMA:
        return PlannedExpectation(number, expectation, (), None)
    columns = [find(name) for name in expectation.columns]
    form = _FORMS.get(kind, "exact")
    if kind in _NUMBERS_ALONE:
        _no_times(columns[0])
    seen = seen_together(columns, form) if kind in _TOGETHER else [column.in_form(form) for column in columns]
    plan = PlannedExpectation(number, expectation, tuple(seen), met)
    plan.arguments(dict.fromkeys(seen, ""), spark=False)
    return plan


def check_condition(condition: Condition, find: Callable[[str], Column]) -> None:
    """Refuse a row condition that compares a column with a value of another kind.

    Args:
        find: Returns the column of a name.

    Raises:
        NotEvaluable: The values cannot be compared.
    """
    if isinstance(condition, Combination):
        for part in condition.parts:
            check_condition(part, find)
        return
    column = find(condition.column)
    if isinstance(condition, Nullity):
        return
    seen = column.in_form("exact")
    for value in condition.value if condition.operator in ("IN", "NOT_IN") else (condition.value,):
        seen.argument(value)


def check_key(columns: Sequence[Column]) -> None:
    """Refuse a key with fields of structs.

    Raises:
        NotEvaluable: A name is a field within a column.
    """
    for column in columns:
        if len(column.parts) > 1:
            raise NotEvaluable(f"a key is made of columns, and {column.name} is a field within one")


def unmet_problem(expectation: Expectation, schema: Schema) -> Problem | None:
    """Return why rows of a table can never meet an expectation, with the place below its arguments.

    None if they may, or if a column is unknown, for example because the table does not have it.
    """
    columns: dict[str, Column] = {}
    for _, name in expectation.named_columns:
        column = declared_column(schema, name)
        if column is None:
            return None
        columns[name] = column
    condition = expectation.arguments.get("row_condition")
    try:
        if condition is not None:
            check_condition(row_condition(condition), columns.__getitem__)
    except NotEvaluable as why:
        return ("row_condition",), str(why)
    try:
        if expectation.type == KEYS_TO_BE_UNIQUE:
            check_key(list(columns.values()))
        elif expectation.type == VOLUME_TO_BE_USUAL:
            for column in columns.values():
                column.of_hours()
        else:
            _check_value_set(planned(0, expectation, columns.__getitem__))
    except NotEvaluable as why:
        return (), str(why)
    return None


def _check_value_set(plan: PlannedExpectation) -> None:
    """Refuse fractions in a value set for integers, if one or all of its values have to occur."""
    kind = plan.expectation.type
    if kind not in (*_ONE_OF_SET, *_ALL_OF_SET) or plan.columns[0].column.kind != "integer":
        return
    values = plan.expectation.arguments["value_set"]
    fractions = [each for each in values if isinstance(each, float) and not each.is_integer()]
    if fractions and (kind in _ALL_OF_SET or len(fractions) == len(values)):
        raise NotEvaluable(f"column {plan.columns[0].column.name} holds whole numbers, and {fractions[0]!r} is none")


def _no_times(column: Column) -> None:
    if column.kind not in ("integer", "decimal", "float"):
        raise NotEvaluable(f"column {column.name} is not a number, and this expectation is about numbers")


def same_regex(regex: str, *, spark: bool) -> str:
    r"""Return a regular expression that means the same in Java and in Python.

    Flags give \d, \w, \s and (?i) the meaning for ASCII in both, and end lines only with \n: (?d) in Java, (?a) in
    Python.
    """
    flag = "d" if spark else "a"
    flags = re.match(r"\(\?([a-zA-Z]+)\)", regex)
    return f"(?{flag}{flags[1]}){regex[flags.end() :]}" if flags else f"(?{flag}){regex}"
