"""Plan of an evaluation: what Great Expectations is asked for each expectation, in the columns that it sees."""

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
"""About the columns of the table, and not about its rows."""
_FORMS: Mapping[str, Form] = {kind: form for form, kinds in _LISTS["forms"].items() for kind in kinds}
# Quantiles, which are numbers alone, are compared with a tolerance, which would be days.
_TOGETHER, _VALUES_AS_BOUNDS, _NUMBERS_ALONE, _ONE_OF_SET, _ALL_OF_SET = (
    frozenset(_LISTS[name]) for name in ("together", "values_as_bounds", "numbers_alone", "one_of_set", "all_of_set")
)


@dataclass(frozen=True, slots=True)
class PlannedExpectation:
    """What is asked for an expectation.

    Attributes:
        number: Its place in the contract.
        expectation: As the contract has it.
        columns: Those that it is about, in the order in which it names them.
        condition: Of the rows that it is about.
    """

    number: int
    expectation: Expectation
    columns: tuple[SeenColumn, ...]
    condition: Condition | None

    @property
    def about_rows(self) -> bool:
        """Whether it accepts rows or not; else it is about all of them together."""
        kind = self.expectation.type
        return "mostly" in expectation_types()[kind].arguments

    def involved(self) -> tuple[str, ...]:
        """The names of all columns that it looks at."""
        condition = condition_columns(self.condition) if self.condition else ()
        return (*(seen.column.name for seen in self.columns), *condition)

    def arguments(self, names: Mapping[SeenColumn, str], *, spark: bool) -> dict[str, Any]:
        """The arguments for Great Expectations.

        Args:
            names: Of the columns in the frame.
            spark: Whether Java reads regular expressions.
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
    """What is asked for an expectation, by the kinds of its columns alone.

    Args:
        find: The column of a name.

    Raises:
        NotEvaluable: A column has other values in it than the expectation is about, or compares them with.
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
    """Refuse a row condition that compares what cannot be compared.

    Args:
        find: The column of a name.

    Raises:
        NotEvaluable: It does.
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
    """Refuse a key that is made of other things than columns.

    Raises:
        NotEvaluable: It is.
    """
    for column in columns:
        if len(column.parts) > 1:
            raise NotEvaluable(f"a key is made of columns, and {column.name} is a field within one")


def unmet_problem(expectation: Expectation, schema: Schema) -> Problem | None:
    """Why an expectation could never be met on rows of a table, with the place below its arguments.

    None: it could be; or nothing is known of a column, such as one that the table does not have.
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
    """Refuse fractions for whole numbers, where one of the values has to be there, or all."""
    kind = plan.expectation.type
    if kind not in (*_ONE_OF_SET, *_ALL_OF_SET) or plan.columns[0].column.kind != "integer":
        return
    values = plan.expectation.arguments["value_set"]
    fractions = [each for each in values if isinstance(each, float) and not each.is_integer()]
    if fractions and (kind in _ALL_OF_SET or len(fractions) == len(values)):
        raise NotEvaluable(f"column {plan.columns[0].column.name} holds whole numbers, and {fractions[0]!r} is none")


def _no_times(column: Column) -> None:
    if column.kind not in ("integer", "decimal", "float"):
        raise NotEvaluable(f"column {column.name} does not hold numbers, and this expectation is about numbers")


def same_regex(regex: str, *, spark: bool) -> str:
    r"""A regular expression that means in Java what it means in Python.

    In both \d, \w, \s and (?i) are about ASCII, and lines end with \n alone: Java is told so by (?d), Python by (?a).
    """
    flag = "d" if spark else "a"
    flags = re.match(r"\(\?([a-zA-Z]+)\)", regex)
    return f"(?{flag}{flags[1]}){regex[flags.end() :]}" if flags else f"(?{flag}){regex}"
