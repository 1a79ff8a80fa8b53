"""Chosen columns of one table among several in a stream's YAML file."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field
from pyiceberg.schema import Schema

from jobs.config.documents.base import (
    Location,
    Problem,
    Problems,
    SpecModel,
)
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from jobs.records.transforms.columns import Columns, TransformProblem
from jobs.records.transforms.path import (
    Path,
    matched,
    parse_path,
    stands,
)
from jobs.records.transforms.select import Drop, Keep
from jobs.records.transforms.transform import Transform


def _path(value: str) -> str:
    try:
        parse_path(value)
    except TransformProblem as problem:
        raise ValueError(problem.message) from None
    return value.strip()


_INNER = frozenset({"element", "key", "value"})
Paths = Annotated[tuple[Annotated[str, AfterValidator(_path)], ...], Field(min_length=1)]


class TableColumns(SpecModel):
    """Which columns of the rows a table has, by paths with wildcards. Kafka's own columns are always there.

    Args:
        keep: Columns that the table has. A plain list means the same.
        drop: Columns that the table does not have.
    """

    example = "{drop: [payload.debug]}"

    keep: Paths | None = None
    drop: Paths | None = None

    def _problems(self) -> Problems:
        if (self.keep is None) == (self.drop is None):
            yield (), "must be either `keep`, which a bare list means as well, or `drop`"

    @property
    def written(self) -> dict[str, list[str]]:
        """The value in normalized form: a mapping with `keep` or `drop`."""
        return {"drop": list(self.drop)} if self.drop is not None else {"keep": list(self.keep or ())}

    def of(self, columns: Columns) -> Columns:
        """Return the columns that the table has, in the order of the rows.

        `drop` may name `_extra` before it exists: the first record that needs it creates it.

        Raises:
            TransformProblem: A path matches no column, or no column would be left.
        """
        if self.drop is None or EXTRA_COLUMN in {each.name for each in columns}:
            return self.strictly_of(columns)
        texts = tuple(each for each in self.drop if each != EXTRA_COLUMN)
        return Drop(texts).output(columns) if texts else columns

    def strictly_of(self, columns: Columns) -> Columns:
        """Do the same as `of` for rows that have all their possible columns, so that every path has to match."""
        step = Drop(self.drop) if self.drop is not None else Keep(self.keep or ())
        return step.output(columns)

    def leaves_out(self, path: Path) -> bool:
        """Whether the table leaves out a column, whatever other columns there are.

        Args:
            path: Path of the column; it goes through lists without a name for their elements.
        """
        if self.drop is not None:
            return any(stands(each, path) == "within" for each in self.drop)
        return all(stands(each, path) == "apart" for each in self.keep or ())

    def step_on(self, columns: Columns) -> Transform | None:
        """Return the step that drops the columns which the table does not have; None if it has all.

        If no file declares the columns, named ones may be missing at first. They are dropped or kept when records have
        them.

        Raises:
            TransformProblem: No column would be left.
        """
        texts = self.drop if self.drop is not None else self.keep or ()
        there = tuple(each for each in texts if matched(columns, each))
        if self.drop is not None:
            step: Transform | None = Drop(there) if there else None
        elif there:
            step = Keep(there)
        else:
            raise TransformProblem(f"none of {', '.join(texts)} is among the columns, and no other is kept")
        if step is not None:
            step.output(columns)
        return step

    def of_those_there(self, columns: Columns) -> Columns:
        """Return the columns that the table has of those that exist; raises the errors of `step_on`."""
        step = self.step_on(columns)
        return columns if step is None else step.output(columns)


class UnseenColumns(Container[Path]):
    """Columns of records that a table leaves out.

    Args:
        columns: Chosen columns of the table.
        besides: Further columns that count as left out.
    """

    def __init__(self, columns: TableColumns, besides: Collection[Path] = ()) -> None:
        self._columns: TableColumns = columns
        self._besides: Collection[Path] = besides

    def __contains__(self, path: object) -> bool:
        if path in self._besides:
            return True
        # Paths within lists and maps contain names that no path of the file has.
        if not isinstance(path, tuple) or not _INNER.isdisjoint(path):
            return False
        return self._columns.leaves_out(path)


class LaneColumns(NamedTuple):
    """Chosen columns of an output whose rows' columns no file declares.

    Attributes:
        columns: Chosen columns.
        place: Place in the file.
    """

    columns: TableColumns
    place: Location

    def left_of(self, rows: Schema) -> Schema:
        """Return the rows' columns that the table has; empty if it has none of them."""
        try:
            return self.columns.of_those_there(Columns.of(rows)).schema
        except TransformProblem:
            return Schema()

    def unseen(self, besides: Collection[Path] = ()) -> UnseenColumns:
        """Return the columns of records that the table never gets, and further ones."""
        return UnseenColumns(self.columns, besides)

    def problem_with(self, rows: Schema) -> Problem | None:
        """Return the problem with the rows' columns and its place in the file; None if there is none."""
        try:
            self.columns.step_on(Columns.of(rows))
        except TransformProblem as problem:
            return self.place, f"leaves the table no column of its records: {problem.message}"
        return None


def _columns(value: object) -> Any:
    if isinstance(value, list | tuple):
        return {"keep": value}
    if isinstance(value, Mapping | TableColumns) or value is None:
        return value
    raise ValueError("must be a list of columns, such as [id, at, 'payload.*'], or {drop: [...]}")


TableColumnsField = Annotated[TableColumns | None, BeforeValidator(_columns)]


def kafka_column_said(text: str) -> str:
    """Return the sentence about a path that names one of Kafka's columns."""
    return f"'{text}' is a column of Kafka's own, and those are in every table of the stream"
