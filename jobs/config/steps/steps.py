"""Transform list of a stream's YAML file: the steps that rows pass between decoding and the table."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator
from pyiceberg.schema import Schema

from jobs.config.documents.base import (
    Location,
    Problem,
    Problems,
    SpecModel,
    problems_at,
)
from jobs.config.steps.smt_step import SmtStep, WrongStep
from jobs.config.steps.step_models import (
    ExtractStep,
    FilterStep,
    FlattenStep,
    FormatTimestampStep,
    HoistStep,
    MaskStep,
    Name,
    Names,
    ParseJsonStep,
    ParseTimestampStep,
    SetValues,
    SplitStep,
    Texts,
    When,
)
from jobs.records.transforms.cast import Cast
from jobs.records.transforms.columns import Columns, TransformProblem
from jobs.records.transforms.conditional import Conditional, Filter
from jobs.records.transforms.own_code import OwnCode, version_of
from jobs.records.transforms.record_parts import DropHeaders, ToHeaders, ToKey
from jobs.records.transforms.select import Drop, Keep, Rename
from jobs.records.transforms.set_columns import Set
from jobs.records.transforms.sql import Compute, Rule, SqlCondition
from jobs.records.transforms.transform import Chain, StepProblem, Transform


def _function_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value):
        raise ValueError(f"must be a function with its module, such as shop.steps:clean; found '{value}'")
    return value


def _rule_name(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", value):
        raise ValueError(f"must be a name of small letters, digits, _ and -, such as has_amount; found '{value}'")
    return value


class Step(SpecModel):
    """One step: the key that names it, with its options, and with `when` a condition of the rows that take it.

    Args:
        flatten: Turns the fields of structs into columns with joined names.
        rename: Renames columns: the path, and the new name.
        keep: Keeps these columns, by path, and drops all others.
        drop: Drops these columns, by path.
        cast: Casts columns to other types, exactly: the path, and the type.
        set: Adds columns with a literal, or with a part of the Kafka record.
        to_key: Column whose value becomes the record's key.
        to_headers: Adds headers: the name, and the path of the column.
        drop_headers: Removes every header with one of these names.
        hoist: Puts columns into a struct.
        extract: Replaces the row by the fields of a struct.
        parse_timestamp: Parses texts or numbers as times.
        format_timestamp: Formats times as texts or numbers.
        mask: Hides values of columns.
        filter: Drops rows by a condition.
        split: Splits a text into columns.
        parse_json: Parses a text of a JSON object into columns.
        smt: A transform of Kafka Connect under its own name.
        compute: Columns of SQL expressions: the name, and the expression.
        where: SQL condition. Rows for which it is not true are dropped and counted as filtered.
        python: Function of an installed package, as ``package.module:function``, that transforms Arrow batches.
        when: Condition of the rows that take the step.
    """

    flatten: FlattenStep | None = None
    rename: Texts | None = None
    keep: Names | None = None
    drop: Names | None = None
    cast: Texts | None = None
    set: SetValues | None = None
    to_key: Name | None = None
    to_headers: Texts | None = None
    drop_headers: Names | None = None
    hoist: HoistStep | None = None
    extract: ExtractStep | None = None
    parse_timestamp: ParseTimestampStep | None = None
    format_timestamp: FormatTimestampStep | None = None
    mask: MaskStep | None = None
    filter: FilterStep | None = None
    split: SplitStep | None = None
    parse_json: ParseJsonStep | None = None
    smt: SmtStep | None = None
    compute: Texts | None = None
    where: Name | None = None
    python: Annotated[str, AfterValidator(_function_name)] | None = None
    when: When | None = None

    _BESIDE: ClassVar[frozenset[str]] = frozenset({"when"})

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, data: Any) -> Any:
        """Accept a step without options as a plain name: `- flatten`, or `- flatten:`."""
        if isinstance(data, WrongStep):
            raise problems_at([data.problem])
        if isinstance(data, str):
            return {data: {}}
        if isinstance(data, dict) and len(named := [name for name in data if name not in cls._BESIDE]) == 1:
            return {name: {} if name == named[0] and value is None else value for name, value in data.items()}
        return data

    def _problems(self) -> Problems:
        if len(self.names) != 1:
            known = ", ".join(name for name in type(self).model_fields if name not in self._BESIDE)
            found = f"; found {' and '.join(self.names)}" if self.names else ""
            yield (), f"must be one step with its options, of {known}{found}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the steps in this entry."""
        return tuple(
            name for name in type(self).model_fields if name not in self._BESIDE and getattr(self, name) is not None
        )

    def transform(self) -> Transform:
        """Return the step.

        Raises:
            TransformProblem: The options are invalid.
        """
        step = self._unconditional()
        return step if self.when is None else Conditional(step, self.when.condition)

    def _unconditional(self) -> Transform:
        options = getattr(self, self.names[0])
        match self.names[0]:
            case "rename":
                return Rename(tuple(options.items()))
            case "keep":
                return Keep(options)
            case "drop":
                return Drop(options)
            case "cast":
                return Cast(tuple(options.items()))
            case "set":
                return Set(tuple(value.column(name) for name, value in options.items()))
            case "to_key":
                return ToKey(options)
            case "to_headers":
                return ToHeaders(tuple(options.items()))
            case "drop_headers":
                return DropHeaders(options)
            case "compute":
                return Compute(tuple(options.items()))
            case "where":
                return Filter(SqlCondition(options), drop=False)
            case "python":
                return OwnCode(options)
            case _:
                return options.transform()

    def place(self, below: Location) -> Location:
        """Return the place of an option in the file, below the step."""
        if below[:1] == ("..",):
            return below[1:]
        name = self.names[0]
        # For a plain list, the name of the step is also the name of its option.
        return (name, *(below[1:] if below[:1] == (name,) else below))


Steps = Annotated[tuple[Step, ...], Field(default=())]


def chain_of(steps: tuple[Step, ...]) -> Chain:
    """Return the chain of the steps."""
    return Chain(tuple(step.transform() for step in steps))


PASSING_STEPS = frozenset({"where", "filter", "to_key", "to_headers", "drop_headers"})
"""Steps that do not change columns."""

NAMING_STEPS = PASSING_STEPS | {
    *("rename", "keep", "drop", "cast", "set", "compute"),
    *("mask", "parse_timestamp", "format_timestamp", "split", "parse_json"),
}
"""Steps that name each column that they change, add or remove."""


def transform_problems(chain: Chain, steps: tuple[Step, ...], decoded: Schema) -> tuple[Columns | None, list[Problem]]:
    """Return the columns after the steps, and the problems of steps, each with its place in the file.

    Args:
        chain: All steps, including those before the list.
        steps: Steps of the list `transform`.
        decoded: Decoded columns of rows, including those of key and headers.

    Returns:
        The columns without those of wrong steps; None after a wrong step that does not name its columns.
    """
    try:
        columns = Columns.of(decoded)
    except TransformProblem as problem:
        return None, [(("decode", "schema"), problem.message)]
    problems: list[Problem] = []
    for number, step in enumerate(chain.steps):
        try:
            columns = Columns.of(step.output(columns).fields)
        except TransformProblem as problem:
            index = number - chain.leading
            if index < 0:
                return None, [((step.name, *problem.place), problem.message)]
            problems.append((("transform", index, *steps[index].place(problem.place)), problem.message))
            if steps[index].names[0] not in NAMING_STEPS:
                return None, problems
    return columns, problems


def hashed_steps(_: Any, steps: tuple[Step, ...]) -> Any:
    """Return what of the steps changes rows: the steps in their order, with secrets as references.

    For a step with own code, the version of its package counts as well.
    """
    return [[*_ordered(step.model_dump(mode="json", exclude_defaults=True)), *_versions(step)] for step in steps]


def _versions(step: Step) -> list[list[str]]:
    """Return the version of the package with a step's own code; empty for other steps."""
    return [] if step.python is None else [["version", version_of(step.python)]]


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return [[key, _ordered(each)] for key, each in value.items()]
    return [_ordered(each) for each in value] if isinstance(value, list) else value


class RowRule(SpecModel):
    """A condition that every row has to meet.

    Args:
        name: Name of the rule in dead letters and counts.
        expect: SQL expression that has to be true of a row.
        severity: ``dead_letter`` makes dead letters of rows that break the rule; ``warn`` lands and counts them.
    """

    example = "{name: has_amount, expect: amount > 0}"

    name: Annotated[str, AfterValidator(_rule_name)]
    expect: Annotated[str, Field(min_length=1)]
    severity: Literal["dead_letter", "warn"] = "dead_letter"

    def transform(self) -> Rule:
        """Return the rule as a step."""
        return Rule(self.name, self.expect, self.severity == "warn")


def rules_of(rules: tuple[RowRule, ...]) -> Chain:
    """Return the rules as a chain."""
    return Chain(tuple(rule.transform() for rule in rules))


def rule_problems(rules: tuple[RowRule, ...], rows: Columns) -> list[Problem]:
    """Returns the problems of rules, each with its place in the file.

    Args:
        rows: Columns after the transforms.
    """
    problems: list[Problem] = []
    names: set[str] = set()
    for number, rule in enumerate(rules):
        if rule.name in names:
            problems.append((("rules", number, "name"), f"is '{rule.name}', as that of another rule"))
        names.add(rule.name)
        try:
            Chain((rule.transform(),)).output(rows)
        except StepProblem as problem:
            problems.append((("rules", number, *problem.place), problem.message))
    return problems


def hashed_rules(_: Any, rules: tuple[RowRule, ...]) -> Any:
    """Return what of the rules changes rows: rules that only warn do not."""
    return [[each.name, each.expect] for each in rules if each.severity == "dead_letter"]
