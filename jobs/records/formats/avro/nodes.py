"""Nodes of an Avro schema: its types, with every name resolved and every logical type known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from pyiceberg import types as ice

PlainName: TypeAlias = Literal["boolean", "int", "long", "float", "double", "bytes", "string"]
Unit: TypeAlias = Literal["days", "ms", "us", "ns", "iso", "unscaled", "uuid", "same"]


class Logical(NamedTuple):
    """What the numbers, bytes or texts of a type mean.

    Attributes:
        type: Iceberg's type of the values.
        unit: How they are carried: as days since 1970-01-01, as parts of a second since then or since midnight, as an
            ISO 8601 text, as the unscaled bytes of a decimal, as the text of a UUID, or as the same bytes.
    """

    type: ice.PrimitiveType
    unit: Unit


@dataclass(frozen=True, slots=True)
class Null:
    """Nothing: a value of no bytes, which no column holds."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A primitive type; `json` of texts that are JSON."""

    name: PlainName
    logical: Logical | None = None
    json: bool = False


@dataclass(frozen=True, slots=True)
class Fixed:
    """Bytes, always as many."""

    name: str
    size: int
    logical: Logical | None = None


@dataclass(frozen=True, slots=True)
class Enum:
    """One of some symbols, by its number."""

    name: str
    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """A list."""

    items: Node


@dataclass(frozen=True, slots=True)
class Map:
    """Values by texts."""

    values: Node


@dataclass(frozen=True, slots=True)
class Branch:
    """One type of a union, with the name of the column that holds its values where the union becomes a struct."""

    name: str
    node: Node


@dataclass(frozen=True, slots=True)
class Union:
    """One of several types, by its number.

    Attributes:
        branches: All of them, as they are numbered.
        only: The one type that a value has if it is not null; None where the union becomes a struct with a field for
            each type, or where it holds nothing but nulls.
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
        scaled: Of Debezium's VariableScaleDecimal where it becomes one value: Iceberg's type of that.
    """

    name: str
    fields: tuple[FieldNode, ...]
    scaled: ice.PrimitiveType | None = None


@dataclass(frozen=True, slots=True)
class Within:
    """A record by its name, where it is not yet defined whole: within its own definition."""

    name: str


@dataclass(frozen=True, slots=True)
class Json:
    """Values of a type that no column has; they become their JSON.

    Attributes:
        node: The type.
        within: The records that it lies in, and the others that it names.
    """

    node: Node
    within: tuple[Record, ...]


Node: TypeAlias = Null | Plain | Fixed | Enum | Array | Map | Union | Record | Within | Json
