"""Table block of a stream's YAML file, for its main table."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Strict, Tag

from jobs.config.documents.base import (
    ChangesRows,
    Flag,
    Problems,
    SpecModel,
)
from jobs.config.values.fields import (
    BranchName,
    Partition,
    TableLocation,
    TableName,
    TableProperties,
)
from jobs.config.values.mask import path_parts
from jobs.config.values.partitioning import SortText
from jobs.config.values.targets import MAIN_BRANCH
from jobs.records.schema.kafka_columns import (
    ALL_NAMES,
    KAFKA_COLUMNS,
    NO_KAFKA_COLUMNS,
    KafkaColumns,
)
from jobs.records.schema.needs import Path


def _column_name(value: bool | str) -> bool | str:
    if value == "":
        raise ValueError("must be the name of a column, or true or false")
    return value


def _kind(value: object) -> str:
    return "@flag" if isinstance(value, bool) else "@name"


Name = Annotated[
    Annotated[bool, Strict(), Tag("@flag")] | Annotated[str, Strict(), Tag("@name")],
    Discriminator(_kind),
    AfterValidator(_column_name),
]
"""Name of a column; true for its default name, false to leave it out."""


class KafkaColumnNames(SpecModel):
    """Names of the columns that rows have of Kafka's own; the last three on demand only.

    Args:
        topic: Column of the topic: ``true`` for ``_kafka_topic``, another name, or ``false`` to leave it out.
        partition: Column of the partition: ``true`` for ``_kafka_partition``, another name, or ``false`` to leave it
            out.
        offset: Column of the offset: ``true`` for ``_kafka_offset``, another name, or ``false`` to leave it out.
        timestamp: Column of the record's timestamp: ``true`` for ``_kafka_timestamp``, another name, or ``false`` to
            leave it out.
        timestamp_type: Column with ``CreateTime`` or ``LogAppendTime``: ``true`` for ``_kafka_timestamp_type``, another
            name, or ``false`` to leave it out.
        key: Column of the key as bytes: ``true`` for ``_kafka_key``, another name, or ``false`` to leave it out.
        headers: Column of the headers as a list: ``true`` for ``_kafka_headers``, another name, or ``false`` to leave
            it out.
    """

    topic: Name = True
    partition: Name = True
    offset: Name = True
    timestamp: Name = True
    timestamp_type: Name = False
    key: Name = False
    headers: Name = False

    def _problems(self) -> Problems:
        names: dict[str, str] = {}
        for part, name in self._named.items():
            if name is not None and (other := names.setdefault(name.casefold(), part)) != part:
                yield (part,), f"has the name of '{other}'"

    @property
    def columns(self) -> KafkaColumns:
        """Return the columns with their names."""
        return KafkaColumns(**self._named)

    @property
    def _named(self) -> dict[str, str | None]:
        asked: dict[str, bool | str] = {part: getattr(self, part) for part in ALL_NAMES}
        usual = {True: ALL_NAMES, False: dict.fromkeys(ALL_NAMES)}
        return {part: usual[name][part] if isinstance(name, bool) else name for part, name in asked.items()}


def _form(value: object) -> str:
    return "@names" if isinstance(value, (dict, KafkaColumnNames)) else "@flag"


KafkaColumnsField = Annotated[
    Annotated[bool, Strict(), Tag("@flag")] | Annotated[KafkaColumnNames, Tag("@names")], Discriminator(_form)
]


def kafka_columns(value: bool | KafkaColumnNames) -> KafkaColumns:
    """Return the columns with Kafka's metadata that a stream's file asks for."""
    if isinstance(value, bool):
        return KAFKA_COLUMNS if value else NO_KAFKA_COLUMNS
    return value.columns


def hashed_kafka_columns(_: Any, value: bool | KafkaColumnNames) -> Any:
    """Return true or false if the names mean the same, as in earlier versions; else the names."""
    columns = kafka_columns(value)
    if columns in (KAFKA_COLUMNS, NO_KAFKA_COLUMNS):
        return columns == KAFKA_COLUMNS
    return {each.part: each.name for each in columns.columns}


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
        name: Name of the table with its namespace. The first run creates both.
        partition_by: Partition expressions of a new table, such as ``day(created_at)`` or ``bucket(16, payer)``.
        kafka_columns: Adds ``_kafka_topic``, ``_kafka_partition``, ``_kafka_offset`` and ``_kafka_timestamp``. A
            mapping chooses and names Kafka's columns.
        branch: Branch of the table that rows go to. It is made from ``main`` if it does not exist.
        properties: Iceberg's table properties of a new table, over frazil's own.
        location: Location of a new table. Without it, the catalog chooses.
        sort_by: Sort order of a new table, for Spark's writes. frazil writes rows in the order of consumption.
        identifier_fields: Iceberg's identifier fields, for readers of the table.
        force_optional: Makes all columns of a new table optional except identifier fields.
    """

    example = "{name: orders.payments, partition_by: [day(created_at)]}"

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
        """Source column of each partition field, by the field's name."""
        return {each.field_name: each.column for each in self.partition_by}

    @property
    def identifiers(self) -> tuple[Path, ...]:
        """Paths of the identifier fields."""
        return tuple(path_parts(each) for each in self.identifier_fields)

    @property
    def identifier_names(self) -> list[str]:
        """Full names of the identifier fields in Iceberg, in order."""
        return sorted(".".join(path) for path in self.identifiers)
