"""Kafka columns in a stream's YAML file: whether rows have them, which, and what the table calls them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Strict, Tag, model_validator

from jobs.schema.kafka_columns import ALL_NAMES, KAFKA_COLUMNS, NO_KAFKA_COLUMNS, KafkaColumns
from jobs.spec.base import Location, SpecModel, problems_at


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
"""What a column is called; true for its usual name, false where rows do not have it."""


class KafkaColumnNames(SpecModel):
    """Names of the columns that rows have of Kafka's own; the last three on demand only."""

    topic: Name = True
    partition: Name = True
    offset: Name = True
    timestamp: Name = True
    timestamp_type: Name = False
    key: Name = False
    headers: Name = False

    @model_validator(mode="after")
    def _different(self) -> KafkaColumnNames:
        names: dict[str, str] = {}
        problems: list[tuple[Location, str]] = []
        for part, name in self._named.items():
            if name is not None and (other := names.setdefault(name.casefold(), part)) != part:
                problems.append(((part,), f"has the name of '{other}'"))
        if problems:
            raise problems_at(problems)
        return self

    @property
    def columns(self) -> KafkaColumns:
        """The columns with their names."""
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
    """The columns of Kafka's own that a stream's file asks for."""
    if isinstance(value, bool):
        return KAFKA_COLUMNS if value else NO_KAFKA_COLUMNS
    return value.columns


def hashed_kafka_columns(_: Any, value: bool | KafkaColumnNames) -> Any:
    """True and false where names say the same, as they have always been hashed; else the names."""
    columns = kafka_columns(value)
    if columns in (KAFKA_COLUMNS, NO_KAFKA_COLUMNS):
        return columns == KAFKA_COLUMNS
    return {each.part: each.name for each in columns.columns}
