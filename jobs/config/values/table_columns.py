"""Columns of one table among several of a stream's YAML file: those of the rows that it keeps, or does not."""

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
            yield (), "must say either `keep`, which a bare list stands for as well, or `drop`"

    @property
    def written(self) -> dict[str, list[str]]:
        """As the file says it, in one of its ways."""
        return {"drop": list(self.drop)} if self.drop is not None else {"keep": list(self.keep or ())}

    def of(self, columns: Columns) -> Columns:
        """Those that the table has, in the order that the rows have them.

        What is kept has a column from the first record on that needs it, and may be left out before.

        Raises:
            TransformProblem: A path names no column, or none would be left.
        """
        if self.drop is None or EXTRA_COLUMN in {each.name for each in columns}:
            return self.strictly_of(columns)
        texts = tuple(each for each in self.drop if each != EXTRA_COLUMN)
        return Drop(texts).output(columns) if texts else columns

    def strictly_of(self, columns: Columns) -> Columns:
        """As `of`, given rows that have each column which they may ever have; raises as that does."""
        step = Drop(self.drop) if self.drop is not None else Keep(self.keep or ())
        return step.output(columns)

    def leaves_out(self, path: Path) -> bool:
        """Whether the table goes without a column, whichever others there are.

        Args:
            path: Of the column, through lists by the names of their fields alone.
        """
        if self.drop is not None:
            return any(stands(each, path) == "within" for each in self.drop)
        return all(stands(each, path) == "apart" for each in self.keep or ())

    def step_on(self, columns: Columns) -> Transform | None:
        """The step that leaves out of rows what the table does not have; None where it has all.

        Of columns that no file declares, some of those that are named may not be there yet: a field to be left out is
        so once records have it, and one to be kept is kept from then on.

        Raises:
            TransformProblem: None would be left.
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
        """Those that the table has, whichever of them are there; raises as `step_on` does."""
        step = self.step_on(columns)
        return columns if step is None else step.output(columns)


class UnseenColumns(Container[Path]):
    """Columns of records that a table goes without.

    Args:
        columns: Which the table has.
        besides: Others that count as such.
    """

    def __init__(self, columns: TableColumns, besides: Collection[Path] = ()) -> None:
        self._columns: TableColumns = columns
        self._besides: Collection[Path] = besides

    def __contains__(self, path: object) -> bool:
        if path in self._besides:
            return True
        # Within lists and maps a path of the table has names that no path of the file has.
        if not isinstance(path, tuple) or not _INNER.isdisjoint(path):
            return False
        return self._columns.leaves_out(path)


class LaneColumns(NamedTuple):
    """Which columns a table has of rows whose columns no file declares.

    Attributes:
        columns: By their paths.
        place: Where the file says so.
    """

    columns: TableColumns
    place: Location

    def left_of(self, rows: Schema) -> Schema:
        """What the table has of the rows' columns; of rows of which it would have none, none."""
        try:
            return self.columns.of_those_there(Columns.of(rows)).schema
        except TransformProblem:
            return Schema()

    def unseen(self, besides: Collection[Path] = ()) -> UnseenColumns:
        """The columns that records may have and the table never gets, and others."""
        return UnseenColumns(self.columns, besides)

    def problem_with(self, rows: Schema) -> Problem | None:
        """What is wrong with it, given the rows' columns, with its place in the file; None if nothing is."""
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
    """What is wrong with a path of a column of Kafka's own."""
    return f"'{text}' is a column of Kafka's own, and those are in every table of the stream"
