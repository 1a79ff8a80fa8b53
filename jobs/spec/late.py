"""Late records by a stream's YAML file: what becomes of them, and the table that they may have of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from jobs.spec.base import SpecModel
from jobs.spec.fields import Partition, TableLocation, TableName, TableProperties
from jobs.spec.sort_order import SortText

SUFFIX = "_late"
_WORDS = ("land", "dead_letter", "table")


class LateTable(SpecModel):
    """The table of late rows, with what it has of its own; the rest is as the block ``table`` says.

    Args:
        table: Its name; without it that of the stream's own table with ``_late`` behind it.
        partition_by: Its partitioning when it is created.
        properties: Iceberg's table properties, over those of ``table``; applied when it is created.
        sort_by: The sort order of a new table.
        location: Where a new table lies.
    """

    table: TableName | None = None
    partition_by: tuple[Partition, ...] | None = None
    properties: TableProperties = Field(default_factory=dict)
    sort_by: tuple[SortText, ...] | None = None
    location: TableLocation | None = None

    def name_beside(self, own: str) -> str:
        """Its full name.

        Args:
            own: The stream's own table.
        """
        return self.table or f"{own}{SUFFIX}"


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
    return {"table": late.name_beside(spec.table.name), "partition_by": partition_by}
