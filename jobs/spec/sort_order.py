"""Sort order of rows that compaction brings about: ``created_at desc``, ``card.number nulls last``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

from jobs.schema.declared import quoted
from jobs.spec.mask import path_parts

_TEXT = re.compile(r"(.+?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class SortExpr:
    """One column of a sort order.

    Attributes:
        path: The column; a nested one as its names from the top.
        direction: `asc` or `desc`; None where nothing is said, which is ascending.
        nulls: `first` or `last`; None where nothing is said, which is first if ascending and last if descending.
    """

    path: tuple[str, ...]
    direction: str | None = None
    nulls: str | None = None

    @property
    def column(self) -> str:
        """The column's full name in Iceberg."""
        return ".".join(self.path)

    def __str__(self) -> str:
        """As a spec and as Iceberg's `sort_order` have it, with backticks where a plain word would not do."""
        words = [".".join(quoted(part) for part in self.path), self.direction, self.nulls and f"nulls {self.nulls}"]
        return " ".join(word for word in words if word)


def parse_sort_expr(value: object) -> SortExpr:
    """Reads a column with `asc` or `desc` and `nulls first` or `nulls last` behind it, all of them optional.

    Raises:
        ValueError: If it is anything else.
    """
    if isinstance(value, SortExpr):
        return value
    match = _TEXT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be a column, such as created_at or created_at desc nulls last")
    column, direction, nulls = match.groups()
    try:
        path = path_parts(column)
    except ValueError:
        raise ValueError(
            f"'{value}' is not a column, such as created_at or `created at` desc nulls last; "
            "put a name with other characters in backticks"
        ) from None
    return SortExpr(path, direction and direction.lower(), nulls and nulls.lower())


SortText = Annotated[SortExpr, PlainValidator(parse_sort_expr), PlainSerializer(str, return_type=str)]
