"""Late records by a stream's YAML file: what becomes of them, and the table that they may have of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from jobs.spec.base import SpecModel
from jobs.spec.fields import Partition, TableLocation, TableProperties, table_name
from jobs.spec.sort_order import SortText

TABLE = "{table}"
"""Stands for the table whose late rows are meant."""

_NAME = f"{TABLE}_late"
_WORDS = ("land", "dead_letter", "table")


def _named(value: str) -> str:
    if value.count(TABLE) > 1 or value == TABLE:
        raise ValueError(f"must have {TABLE} once at most, and more than that, such as {_NAME}; found '{value}'")
    table_name(value.replace(TABLE, "namespace.table"))
    return value


class LateTable(SpecModel):
    """The table of late rows, with what it has of its own; the rest is as the block ``table`` says.

    Args:
        table: Its name, in which ``{table}`` stands for that of the stream's own table, or of each table of the route
            where these have columns of their own; without it that with ``_late`` behind it.
        partition_by: Its partitioning when it is created.
        properties: Iceberg's table properties, over those of ``table``; applied when it is created.
        sort_by: The sort order of a new table.
        location: Where a new table lies.
    """

    table: Annotated[str, AfterValidator(_named)] | None = None
    partition_by: tuple[Partition, ...] | None = None
    properties: TableProperties = Field(default_factory=dict)
    sort_by: tuple[SortText, ...] | None = None
    location: TableLocation | None = None

    @property
    def names_each(self) -> bool:
        """Whether the name is another one for each table whose late rows are meant."""
        return TABLE in (self.table or _NAME)

    @property
    def pattern(self) -> str:
        """The name, in which ``{table}`` may stand for another one."""
        return self.table or _NAME

    def name_beside(self, table: str) -> str:
        """Its full name.

        Args:
            table: Whose late rows it has: the stream's own, or one with columns of its own.
        """
        return self.pattern.replace(TABLE, table)

    def table_beside(self, name: str) -> str | None:
        """The table whose late rows one of a name would have, whatever its case; None if there can be none.

        Args:
            name: The full name.
        """
        before, _, after = self.pattern.partition(TABLE)
        if not self.names_each or len(name) <= len(before) + len(after):
            return None
        lower = name.lower()
        if not lower.startswith(before.lower()) or not lower.endswith(after.lower()):
            return None
        return name[len(before) : len(name) - len(after)]


def _late(value: object) -> Any:
    if isinstance(value, Mapping | LateTable) or value in _WORDS:
        return {} if value == "table" else value
    found = f"'{value}'" if isinstance(value, str) else str(value)
    raise ValueError(f"must be 'land', 'dead_letter' or 'table', or {{table: namespace.name}}; found {found}")


def _form(value: object) -> str:
    return "@word" if isinstance(value, str) else "@table"


Late = Annotated[
    Annotated[Literal["land", "dead_letter"], Tag("@word")] | Annotated[LateTable, Tag("@table")],
    Discriminator(_form),
    BeforeValidator(_late),
]


def hashed_late(spec: Any, late: str | LateTable) -> Any:
    """What is hashed of it: of a table its name, written or not, and how it is partitioned."""
    if not isinstance(late, LateTable):
        return late
    partition_by = None if late.partition_by is None else list(map(str, late.partition_by))
    name = late.pattern if spec.topics_decide else late.name_beside(spec.table.name)
    return {"table": name, "partition_by": partition_by}
