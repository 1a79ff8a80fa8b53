"""Steps over columns that no file declares: which are allowed, and how changed decoded columns change the table.

If the steps only add columns, the table's other columns say how values are decoded. If steps change columns, the table
keeps the decoded columns in a property. Steps are pure, so the decoded columns determine the table's columns: needed
changes are the difference between the columns after the steps and those of the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from jobs.config.documents.base import Problem
from jobs.config.steps.steps import Step
from jobs.records.schema.decoded_columns import DecodedColumns
from jobs.records.schema.iceberg_schema import with_null
from jobs.records.transforms.columns import Columns, TransformProblem, same
from jobs.records.transforms.transform import Chain

if TYPE_CHECKING:
    pass


def key_fields(decoded: DecodedColumns) -> tuple[NestedField, ...] | None:
    """Return the columns in the struct of a key; empty if records have no keys, None if the file declares them."""
    if decoded.keyless:
        return ()
    kind = decoded.key.fields[0].field_type if decoded.key else None
    return kind.fields if isinstance(kind, StructType) else None


Problems = list[Problem]


def undeclared_problems(steps: tuple[Step, ...], of_table: str | None, others: str, *, shadow: bool) -> Problems:
    """Returns a problem for the first step that is not allowed on columns which no file declares.

    Args:
        steps: Steps of the file.
        of_table: Key that leaves columns to the table, such as `decode.schema`; None if there is none.
        others: Other origins of the columns, as the end of a sentence.
        shadow: Whether rescued data is kept: values that do not fit their column land as text beside it.
    """
    hint = "or add columns with compute or set, under new names, and choose rows with where, filter and rules"
    said = not_changed_problem(of_table, others, shadow=shadow)
    for number, each in enumerate(steps):
        try:
            adds = each.transform().adds
        except TransformProblem as problem:
            return [(("transform", number, *each.place(problem.place)), problem.message)]
        if adds is None and said is not None:
            return [(("transform", number, each.names[0]), f"{said}; {hint}")]
    return []


def not_changed_problem(of_table: str | None, others: str, *, shadow: bool) -> str | None:
    """Return why no step may change columns that no file declares; None if it may. See `undeclared_problems`."""
    if of_table is not None:
        return (
            f"changes or replaces columns, and with {of_table} 'table' it is unknown what the table's columns were "
            f"made of: {others}"
        )
    if shadow:
        return (
            "changes or replaces columns, and may lose the texts that evolve.clash 'shadow' puts beside them: set it "
            "to dead_letter, or declare the columns in decode.schema"
        )
    return None


def added_by(chain: Chain) -> frozenset[str]:
    """Return the names of the columns that steps add, except steps that change columns."""
    return frozenset().union(*(each.adds or () for each in chain.steps))


def changes_columns(chain: Chain) -> bool:
    """Whether a step may change or replace an existing column, or give it another type."""
    return any(each.adds is None or each.retypes for each in chain.steps)


def changed_problems(decoded: Schema, behind: Columns, added: frozenset[str]) -> Problems:
    """Returns a problem for each decoded column that steps change although the file does not declare it.

    Args:
        decoded: Columns before the steps.
        behind: Columns after the steps.
        added: Names that the steps add.
    """
    found = {each.name: each for each in behind}
    problems: Problems = []
    for each in decoded.fields:
        now = found.get(each.name)
        if each.name in added:
            said = f"would take the place of the column '{each.name}' that is decoded: give it another name"
            problems.append((("transform",), said))
        elif now is None or now.required != each.required or not same(now.field_type, each.field_type):
            fate = "is dropped" if now is None else f"is {with_null(now)}"
            said = f"the column '{each.name}' is {with_null(each)} as it is decoded, and {fate} behind the steps"
            problems.append((("transform",), f"{said}: declare the columns in decode.schema"))
    return problems
