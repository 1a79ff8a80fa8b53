"""Columns of one table among several of a stream's YAML file: those of the rows that it keeps, or does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from jobs.spec.base import SpecModel, problems_at
from jobs.transform.columns import Columns, TransformProblem
from jobs.transform.path import parse_path
from jobs.transform.select import Drop, Keep


def _path(value: str) -> str:
    try:
        parse_path(value)
    except TransformProblem as problem:
        raise ValueError(problem.message) from None
    return value.strip()


Paths = Annotated[tuple[Annotated[str, AfterValidator(_path)], ...], Field(min_length=1)]


class TableColumns(SpecModel):
    """Which columns of the rows a table has, by paths with wildcards; those of Kafka's own are there in any case.

    Args:
        keep: These and no others, as the step of that name keeps them.
        drop: All others, as the step of that name leaves them.
    """

    keep: Paths | None = None
    drop: Paths | None = None

    @model_validator(mode="after")
    def _is_one(self) -> TableColumns:
        if (self.keep is None) == (self.drop is None):
            raise problems_at([((), "must say either `keep`, which a bare list stands for as well, or `drop`")])
        return self

    @property
    def written(self) -> dict[str, list[str]]:
        """As the file says it, in one of its ways."""
        return {"drop": list(self.drop)} if self.drop is not None else {"keep": list(self.keep or ())}

    def of(self, columns: Columns) -> Columns:
        """Those that the table has, in the order that the rows have them.

        Raises:
            TransformProblem: A path names no column, or none would be left.
        """
        step = Drop(self.drop) if self.drop is not None else Keep(self.keep or ())
        return step.output(columns)


def _columns(value: object) -> Any:
    if isinstance(value, list | tuple):
        return {"keep": value}
    if isinstance(value, Mapping | TableColumns) or value is None:
        return value
    raise ValueError("must be a list of columns, such as [id, at, 'payload.*'], or {drop: [...]}")


TableColumnsField = Annotated[TableColumns | None, BeforeValidator(_columns)]
