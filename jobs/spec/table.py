"""Table block of a stream's YAML file: the table that its rows go to."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from jobs.schema.needs import Path
from jobs.spec.base import Flag, SpecModel
from jobs.spec.config_hash import ChangesRows
from jobs.spec.fields import BranchName, Partition, TableLocation, TableName, TableProperties
from jobs.spec.kafka_columns import KafkaColumnsField, hashed_kafka_columns
from jobs.spec.main_branch import MAIN_BRANCH
from jobs.spec.mask import path_parts
from jobs.spec.sort_order import SortText


def _path(value: str) -> str:
    try:
        path_parts(value)
    except ValueError:
        problem = f"'{value}' is not a column, such as id or payer.id; put a name with other characters in backticks"
        raise ValueError(problem) from None
    return value.strip()


class Table(SpecModel):
    """Where the rows go.

    Args:
        kafka_columns: Whether rows say where they came from: ``_kafka_topic``, ``_kafka_partition``,
            ``_kafka_offset``, ``_kafka_timestamp``; or names for these columns and others of Kafka's own.
        properties: Iceberg's table properties; applied when the table is created.
        branch: The branch of the table that the rows go to; made from ``main`` if it is not there.
        location: Where a new table lies; without it where the catalog puts it.
        sort_by: The sort order of a new table, which Spark's writes follow; frazil writes rows as they come.
        identifier_fields: The columns by which the table's rows are told apart, for those who read it.
        force_optional: Whether the columns of a new table are optional, whatever a registry says.
    """

    name: Annotated[TableName, ChangesRows()]
    partition_by: Annotated[tuple[Partition, ...], ChangesRows(written=lambda _, value: list(map(str, value)))] = ()
    kafka_columns: Annotated[KafkaColumnsField, ChangesRows(written=hashed_kafka_columns)] = True
    branch: Annotated[BranchName, ChangesRows(unless=MAIN_BRANCH)] = MAIN_BRANCH
    properties: TableProperties = Field(default_factory=dict)
    location: TableLocation | None = None
    sort_by: tuple[SortText, ...] = ()
    identifier_fields: tuple[Annotated[str, AfterValidator(_path)], ...] = ()
    force_optional: Flag = False

    @property
    def partition_names(self) -> dict[str, str]:
        """The source column of each partition field, by the field's name."""
        return {each.field_name: each.column for each in self.partition_by}

    @property
    def identifiers(self) -> tuple[Path, ...]:
        """The identifier fields, each as its names from the top."""
        return tuple(path_parts(each) for each in self.identifier_fields)

    @property
    def identifier_names(self) -> list[str]:
        """The identifier fields by their full names in Iceberg, in order."""
        return sorted(".".join(path) for path in self.identifiers)
