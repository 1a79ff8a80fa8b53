"""Keeping a dead-letter table what frazil needs: its columns checked, and those of a letter's life added."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, IntegerType, ListType, LongType, NestedField, StructType

from jobs.commit.compare_and_swap import compare_and_swap, conflicts_told
from jobs.commit.errors import HeadMovedError
from jobs.deadletter.table import DEAD_LETTER_SCHEMA, LETTER_LIFE
from jobs.errors import FrazilError

_LIFE = frozenset(field.name for field in LETTER_LIFE)


class AlteredTableError(FrazilError):
    """A dead-letter table is not what frazil made: a column is missing, or has become another."""


def ensure_life_columns(catalog: Catalog, name: str) -> Table:
    """The dead-letter table, with the columns of a letter's life; several that add them at once all succeed.

    Raises:
        AlteredTableError: It lacks a column that letters are written to, or has one that cannot hold them.
    """

    def attempt() -> Table:
        table = catalog.load_table(name)
        check_letters_table(table)
        has = set(table.schema().column_names)
        missing = [field for field in LETTER_LIFE if field.name not in has]
        if not missing:
            return table
        # A refusal means that somebody changed the table, perhaps by adding the same columns.
        with conflicts_told():
            try:
                with table.update_schema() as update:
                    for field in missing:
                        update.add_column(field.name, field.field_type, doc=field.doc)
            except ValueError as again:
                # A retry of PyIceberg's own meets the columns that another has added.
                if "exists" not in str(again):
                    raise
                raise HeadMovedError(str(again)) from again
        return table

    def given_up(said: str) -> FrazilError:
        return FrazilError(
            f"the columns of a letter's life could not be added: {said}.",
            fix="let the other writer finish, then run this again",
        )

    return compare_and_swap(name, attempt, given_up)


def check_letters_table(table: Table) -> None:
    """See that letters can be written to the table and read from it.

    Raises:
        AlteredTableError: Naming each column in question.
    """
    columns = {field.name: field for field in table.schema().fields}
    problems = [said for wanted in DEAD_LETTER_SCHEMA.fields for said in _problems(wanted, columns.get(wanted.name))]
    known = {field.name for field in DEAD_LETTER_SCHEMA.fields}
    problems += [
        f"column {name} is required, and letters have no such column"
        for name, field in columns.items()
        if field.required and name not in known
    ]
    if problems:
        name = ".".join(table.name())
        raise AlteredTableError(
            f"dead-letter table {name} was altered: {'; '.join(problems)}. Nothing was changed in it.",
            fix=f"alter {name} back, or name another table in errors.dead_letters.table",
        )


def _problems(wanted: NestedField, column: NestedField | None) -> list[str]:
    if column is None:
        return [] if wanted.name in _LIFE else [f"column {wanted.name} is missing"]
    if not _holds(wanted.field_type, column.field_type):
        return [f"column {wanted.name} is {column.field_type}, where {wanted.field_type} is needed"]
    if column.required and not wanted.required:
        return [f"column {wanted.name} is required, and letters may lack it"]
    return []


def _holds(wanted: IcebergType, column: IcebergType) -> bool:
    match wanted, column:
        case ListType(), ListType():
            return _holds(wanted.element_type, column.element_type)
        case StructType(), StructType():
            theirs = {field.name: field for field in column.fields}
            return all(
                field.name in theirs and _holds(field.field_type, theirs[field.name].field_type)
                for field in wanted.fields
            ) and len(theirs) == len(wanted.fields)
        case IntegerType(), LongType():
            return True
        case _:
            return wanted == column
