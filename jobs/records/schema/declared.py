"""Declared types: the columns of a stream as its file declares them, and their JSON encodings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from jobs.records.schema.time_patterns import TimeTexts
from jobs.records.schema.tokens import default_encoding

TEXTUAL = ("iso", "pattern")
"""The encodings of dates and times as texts."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """A column type without parts.

    Attributes:
        name: Iceberg's name, or json: any JSON value as text.
        precision, scale: Precision and scale of a decimal.
        encoding: The JSON encoding; None if the type has only one.
        length: Length of a fixed, in bytes.
        texts: Forms of the texts of a date or time with the encoding `pattern`.
    """

    name: str
    precision: int | None = None
    scale: int | None = None
    encoding: str | None = None
    length: int | None = None
    texts: TimeTexts | None = None

    def __str__(self) -> str:
        match self.name:
            case "decimal":
                sized = f"decimal({self.precision},{self.scale})"
            case "fixed":
                sized = f"fixed({self.length})"
            case name:
                sized = name
        if self.encoding is None or self.encoding == default_encoding(self.name):
            return sized
        return f"{sized} as {self.texts or self.encoding}"


JSON_AS_SENT = Primitive("json", encoding="sent")


@dataclass(frozen=True, slots=True)
class Field:
    """A named column; `required` means that neither a missing key nor null is accepted."""

    name: str
    type: DeclaredType
    required: bool = False

    def __str__(self) -> str:
        return f"{quoted(self.name)} {self.type}{_not_null(self.required)}"


@dataclass(frozen=True, slots=True)
class StructType:
    """Fields in declared order; also the whole record."""

    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return f"struct<{self.text}>"

    @property
    def text(self) -> str:
        """Return the schema text that parses to these fields."""
        return ", ".join(str(field) for field in self.fields)


@dataclass(frozen=True, slots=True)
class ListType:
    """A JSON array of one type."""

    element: DeclaredType
    element_required: bool = False

    def __str__(self) -> str:
        return f"list<{self.element}{_not_null(self.element_required)}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """A map.

    Attributes:
        key: Type of the keys: a string if a JSON object carries the map; in a stream's file it always is.
        carried: The JSON form: an object, an array of arrays of a key and a value, or one of objects with the members
            `key` and `value`. Kafka Connect uses the latter two for keys that are no strings.
    """

    key: Primitive
    value: DeclaredType
    value_required: bool = False
    carried: Literal["object", "pairs", "entries"] = "object"

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}{_not_null(self.value_required)}>"


DeclaredType = Primitive | StructType | ListType | MapType


def quoted(name: str) -> str:
    """Return the name as schema text writes it: in backticks if a plain word would not do."""
    plain = name.isascii() and name.isidentifier()
    return name if plain else "`" + name.replace("`", "``") + "`"


def column_paths(struct: StructType, prefix: str = "") -> Iterator[str]:
    """Yield every dotted column path, as Iceberg names nested columns (`list.element`, `map.key`, `map.value`)."""
    for field in struct.fields:
        yield from _paths(field.type, prefix + field.name)


def _paths(declared: DeclaredType, path: str) -> Iterator[str]:
    yield path
    match declared:
        case StructType():
            yield from column_paths(declared, path + ".")
        case ListType(element):
            yield from _paths(element, path + ".element")
        case MapType(key, value):
            yield from _paths(key, path + ".key")
            yield from _paths(value, path + ".value")
        case Primitive():
            pass


def _not_null(required: bool) -> str:
    return " not null" if required else ""
