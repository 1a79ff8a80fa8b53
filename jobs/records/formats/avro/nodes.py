"""Nodes of an Avro schema: its types with resolved names and logical types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from pyiceberg import types as ice

PlainName: TypeAlias = Literal["boolean", "int", "long", "float", "double", "bytes", "string"]
Unit: TypeAlias = Literal["days", "ms", "us", "ns", "iso", "unscaled", "uuid", "same"]


class Logical(NamedTuple):
    """Meaning of the numbers, bytes or texts of a type.

    Attributes:
        type: Iceberg's type of the values.
        unit: Encoding: days since 1970-01-01, parts of a second since then or since midnight, ISO 8601 text, unscaled
            bytes of a decimal, text of a UUID, or the same bytes.
    """

    type: ice.PrimitiveType
    unit: Unit


@dataclass(frozen=True, slots=True)
class Null:
    """Null: a value without bytes, which has no column."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A primitive type; `json` for texts that are JSON."""

    name: PlainName
    logical: Logical | None = None
    json: bool = False


@dataclass(frozen=True, slots=True)
class Fixed:
    """Bytes of a fixed length."""

    name: str
    size: int
    logical: Logical | None = None


@dataclass(frozen=True, slots=True)
class Enum:
    """One of some symbols, encoded by its number."""

    name: str
    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """A list."""

    items: Node


@dataclass(frozen=True, slots=True)
class Map:
    """A map with texts as keys."""

    values: Node


@dataclass(frozen=True, slots=True)
class Branch:
    """One type of a union, with the name of its column if the union becomes a struct."""

    name: str
    node: Node


@dataclass(frozen=True, slots=True)
class Union:
    """One of several types, encoded by its number.

    Attributes:
        branches: All types, in the order of their numbers.
        only: The single type of values that are not null; None if the union becomes a struct with a field for each
            type, or has only nulls.
    """

    branches: tuple[Branch, ...]
    only: Node | None

    @property
    def nullable(self) -> bool:
        """Whether one of the types is null."""
        return any(isinstance(each.node, Null) for each in self.branches)

    @property
    def filled(self) -> tuple[Branch, ...]:
        """The branches that are not null."""
        return tuple(each for each in self.branches if not isinstance(each.node, Null))


@dataclass(frozen=True, slots=True)
class FieldNode:
    """A field of a record."""

    name: str
    node: Node


@dataclass(frozen=True, slots=True)
class Record:
    """Fields, one after the other.

    Attributes:
        scaled: Iceberg's type of Debezium's VariableScaleDecimal, if it becomes one value.
    """

    name: str
    fields: tuple[FieldNode, ...]
    scaled: ice.PrimitiveType | None = None


@dataclass(frozen=True, slots=True)
class Within:
    """Reference to a record by its name within its own definition."""

    name: str


@dataclass(frozen=True, slots=True)
class Json:
    """Values of a type that no column can hold; they become JSON.

    Attributes:
        node: The type.
        within: The records that contain it, and the others that it names.
    """

    node: Node
    within: tuple[Record, ...]


Node: TypeAlias = Null | Plain | Fixed | Enum | Array | Map | Union | Record | Within | Json
