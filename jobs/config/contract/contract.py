"""Contract block of a stream's YAML file: expectations about its rows and its dead letters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_serializer, model_validator

from jobs.config.contract.expectation_catalogue import (
    BESIDE,
    argument_problems,
    expectation_types,
    left_out,
)
from jobs.config.contract.row_condition import condition_columns, row_condition
from jobs.config.documents.base import (
    Problem,
    Problems,
    SpecModel,
    problems_at,
)
from jobs.config.documents.units import Duration
from jobs.config.documents.validation import suggestion
from jobs.config.values.fields import PositiveInt
from jobs.config.values.targets import TargetSpec

_MACROS = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_PART = re.compile(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d+))?")


def cron_text(value: str) -> str:
    """Check a cron text: five fields of numbers, ranges, lists and steps, or a name such as @hourly.

    Raises:
        ValueError: A field is wrong; the message names it.
    """
    if value in _MACROS:
        return value
    fields = value.split()
    if len(fields) != len(_FIELDS):
        raise ValueError(f"must be five fields of cron, such as '0 * * * *', or one of {', '.join(_MACROS)}")
    for text, (name, least, most, words) in zip(fields, _FIELDS, strict=True):
        for part in text.split(","):
            match = _PART.fullmatch(part)
            ends = [_number(each, least, words) for each in match.group(2, 3) if each] if match else [None]
            wrong = any(each is None or not least <= each <= most for each in ends)
            if match is None or wrong or match[4] == "0" or (match[4] and not match[1] and len(ends) == 1):
                raise ValueError(f"the {name} '{part}' is none: it is {least} to {most}, *, a range or a step of it")
            if len(ends) == 2 and ends[0] > ends[1]:  # type: ignore[operator]
                raise ValueError(f"the {name} '{part}' begins after its end")
    return value


def _number(text: str, least: int, words: tuple[str, ...]) -> int | None:
    if text.lower() in words:
        return words.index(text.lower()) + least
    return int(text) if text.isdigit() else None


Severity = Literal["critical", "warning", "info"]
_TYPE = re.compile(r"(expect|frazil|unexpected)_\w+")


class ContractCheck(SpecModel):
    """When a contract is checked without being asked. Without any key, on demand only.

    Args:
        after_snapshots: Unchecked snapshots with rows at which a check starts.
        every: Age of unchecked rows at which a check starts.
        schedule: Fixed times as a cron expression in UTC, in place of the other two keys.
    """

    example = "{every: 1h}"

    after_snapshots: PositiveInt | None = None
    every: Duration | None = None
    schedule: Annotated[str, AfterValidator(cron_text)] | None = None

    def _problems(self) -> Problems:
        by_rows = [name for name in ("after_snapshots", "every") if getattr(self, name) is not None]
        if self.schedule is None and not by_rows:
            yield (), "needs after_snapshots, every, or schedule"
        if self.schedule is not None and by_rows:
            yield ("schedule",), f"goes without {' and '.join(by_rows)}: a schedule has its own times"
        if self.every is not None and self.every < timedelta(minutes=1):
            yield ("every",), "must be at least 1m"


class Expectation(SpecModel):
    """One expectation: an entry with its name in Great Expectations as the key of its arguments.

    Args:
        type: Name of the expectation, such as ``expect_column_values_to_not_be_null``.
        arguments: Arguments by name.
        severity: Severity of a failure. Only ``critical`` blocks a publication.
        name: Name of the check. Without it, made of the type and the columns.
        meta: Free metadata that the outcome repeats.
    """

    example = "{expect_column_values_to_not_be_null: {column: id}}"

    named_after: ClassVar[str] = ""

    type: str
    arguments: Mapping[str, Any]
    severity: Severity = "critical"
    name: str = ""
    meta: Mapping[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _entry(cls, entry: Any) -> Any:
        if not isinstance(entry, dict):
            raise problems_at([((), "must be an expectation's name with its arguments, such as {expect_…: {…}}")])
        if "type" in entry and "arguments" in entry:
            return entry
        named = [key for key in entry if isinstance(key, str) and key not in BESIDE]
        types = [key for key in named if key in expectation_types() or _TYPE.fullmatch(key)]
        problems: list[Problem] = [
            ((str(key),), _unknown_key(str(key), types)) for key in entry if key not in BESIDE and key not in types
        ]
        if not types and not problems:
            problems.append(((), "has no expectation: it needs a key such as expect_column_values_to_not_be_null"))
        problems += [((key,), f"is a second expectation; {types[0]} is here already") for key in types[1:]]
        if types and (problem := _type_problem(types[0])):
            problems.append(((types[0],), problem))
        elif types:
            given = entry[types[0]] if entry[types[0]] is not None else {}
            found = argument_problems(types[0], given)
            problems += [((types[0], *place), problem) for place, problem in found]
        problems += [((key,), problem) for key, problem in _beside_problems(entry)]
        if problems:
            raise problems_at(problems)
        beside = {key: entry[key] for key in BESIDE if key in entry}
        arguments = entry[types[0]] or {}
        name = default_name(types[0], arguments, cls.named_after)
        return {"name": name, **beside, "type": types[0], "arguments": arguments}

    @model_serializer
    def _written(self) -> dict[str, Any]:
        beside = {"severity": self.severity, "name": self.name, "meta": dict(self.meta)}
        return {self.type: dict(self.arguments), **beside}

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the expectation, in the order of its arguments."""
        return columns_of(self.type, self.arguments)

    @property
    def named_columns(self) -> list[Problem]:
        """The columns that the arguments name, including those of row_condition, each with its place below them."""
        named: list[Problem] = []
        for name, argument in expectation_types()[self.type].arguments.items():
            value = self.arguments.get(name)
            if value is None:
                continue
            if argument.kind == "column":
                named.append(((name,), value))
            elif argument.kind == "columns":
                named.extend(((name, index), each) for index, each in enumerate(value))
            elif argument.kind == "condition":
                named.extend(((name,), each) for each in condition_columns(row_condition(value)))
        return named


class DeadLetterExpectation(Expectation):
    """An expectation about the dead letters of a stream."""

    named_after: ClassVar[str] = "dead_letters_"


def _named_by_table(tables: Mapping[str, tuple[Expectation, ...]]) -> Mapping[str, tuple[Expectation, ...]]:
    """Name the expectations about further tables: a default name begins with the table's name."""
    return {table: tuple(_named_after(each, table) for each in expected) for table, expected in tables.items()}


def _named_after(expectation: Expectation, table: str) -> Expectation:
    kind, arguments = expectation.type, expectation.arguments
    if expectation.name != default_name(kind, arguments):
        return expectation
    named = f"{table}_{default_name(kind, arguments)}"
    return expectation.model_copy(update={"name": re.sub(r"[^A-Za-z0-9]+", "_", named)})


class Contract(SpecModel):
    """What rows are expected to be, and when that is checked. It changes no row.

    Args:
        check: When the contract is checked. Without it, on demand only.
        expectations: Expectations about the stream's main table.
        tables: Expectations about other tables of the route, by table.
        dead_letters: Expectations about the dead-letter table.
    """

    example = (
        "{check: {every: 1h}, expectations: [{expect_column_values_to_not_be_null: {column: id}}], "
        "tables: {orders.refunds: [{expect_column_values_to_not_be_null: {column: id}}]}}"
    )

    check: ContractCheck | None = None
    expectations: tuple[Expectation, ...] = ()
    tables: Annotated[
        Mapping[str, Annotated[tuple[Expectation, ...], Field(min_length=1)]], AfterValidator(_named_by_table)
    ] = {}
    dead_letters: tuple[DeadLetterExpectation, ...] = ()

    def _problems(self) -> Problems:
        first: dict[str, str] = {}
        for block, expected in self.blocks():
            for index, each in enumerate(expected):
                # Names that differ only in case are refused: file names and labels of metrics may ignore case.
                place = f"{'.'.join(block)}[{index}]"
                if (other := first.setdefault(each.name.casefold(), place)) != place:
                    said = f"has the name '{each.name}' of contract.{other}; give one of them another `name`"
                    yield (*block, index), said
        if not first:
            yield (), "expects nothing: it needs expectations, tables, or dead_letters"

    def blocks(self) -> list[tuple[tuple[str, ...], Sequence[Expectation]]]:
        """The expectations of each block, with its place below `contract`."""
        of_tables = [(("tables", name), expected) for name, expected in self.tables.items()]
        return [(("expectations",), self.expectations), *of_tables, (("dead_letters",), self.dead_letters)]

    def about(self, target: TargetSpec) -> Sequence[Expectation]:
        """The expectations about one of the stream's tables."""
        if target.role == "dead_letters":
            return self.dead_letters
        return self.expectations if target.coordinator else self.tables.get(target.name, ())


def contract_table_problems(
    contract: Contract | None, own: str, letters: str, routed: Sequence[str]
) -> Iterator[Problem]:
    """Yield a problem for each table of a contract that the stream does not have.

    Args:
        own: The main table.
        letters: The dead-letter table.
        routed: The other tables of the route.
    """
    for name in contract.tables if contract is not None else ():
        if name in routed:
            continue
        elsewhere = {own: "expectations", letters: "dead_letters"}.get(name)
        if elsewhere:
            what = "the stream's main table" if name == own else "the table of the stream's dead letters"
            said = f"is {what}: its expectations are in contract.{elsewhere}"
        elif not routed:
            said = "is no table of the stream, which has no route to others"
        else:
            near = suggestion(name, routed)
            said = "is no table of route; " + (f"did you mean '{near}'?" if near else f"known: {', '.join(routed)}")
        yield ("contract", "tables", name), said


def columns_of(kind: str, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns in the arguments of an expectation, without those of row_condition."""
    named: list[str] = []
    for name, argument in expectation_types()[kind].arguments.items():
        if argument.kind == "column" and name in arguments:
            named.append(arguments[name])
        elif argument.kind == "columns" and name in arguments:
            named.extend(arguments[name])
    return tuple(named)


def default_name(kind: str, arguments: Mapping[str, Any], prefix: str = "") -> str:
    """Return the default name of a check: its type and columns, in letters, digits and _."""
    words = [kind.removeprefix("expect_").removeprefix("frazil_"), *columns_of(kind, arguments)]
    if kind == "expect_column_to_exist":
        words.append(arguments["column"])
    return prefix + re.sub(r"[^A-Za-z0-9]+", "_", "_".join(words)).strip("_")


def _type_problem(kind: str) -> str | None:
    if kind in expectation_types():
        return None
    if why := left_out().get(kind):
        return f"is no expectation of a contract: {why}"
    near = suggestion(kind, expectation_types())
    return "unknown expectation; " + (
        f"did you mean '{near}'?" if near else "an example is expect_column_values_to_not_be_null"
    )


def _unknown_key(key: str, types: Sequence[str]) -> str:
    if types and types[0] in expectation_types() and key in expectation_types()[types[0]].arguments:
        return f"belongs among the arguments of {types[0]}, one level deeper"
    near = suggestion(key, (*BESIDE, *expectation_types()))
    return "unknown key; " + (f"did you mean '{near}'?" if near else f"known here: expect_…, {', '.join(BESIDE)}")


def _beside_problems(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    problems: list[tuple[str, str]] = []
    severity, name, meta = (entry.get(key) for key in BESIDE)
    if "severity" in entry and severity not in ("critical", "warning", "info"):
        near = suggestion(str(severity), ("critical", "warning", "info"))
        meant = f"; did you mean '{near}'?" if near else ""
        problems.append(("severity", f"must be critical, warning or info{meant}"))
    if "name" in entry and not (isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_]{1,200}", name)):
        problems.append(("name", "must be letters, digits and _, such as amount_is_given; it names the check"))
    if "meta" in entry and not (isinstance(meta, dict) and all(isinstance(key, str) for key in meta)):
        problems.append(("meta", "must be a mapping of keys to values, such as {owner: team-payments}"))
    return problems
