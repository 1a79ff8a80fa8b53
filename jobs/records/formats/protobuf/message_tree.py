"""Message tree: the types that a Protobuf message's fields are converted to, read once from its descriptor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Absent: TypeAlias = Literal["null", "default", "refused"]
"""The value of a field in a record that does not have it."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number, a text, bytes or a boolean.

    Attributes:
        kind: The type's name in a .proto file, such as `sint32`.
        message: Full name of a recursive or too deeply nested message that is kept as its bytes.
    """

    kind: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Enum:
    """A value of an enum.

    Attributes:
        name: Full name of the enum.
        names: The name of each number; the first declared one, if there are several.
        as_number: Whether its value is the number, and not the name.
    """

    name: str
    names: Mapping[int, str]
    as_number: bool


@dataclass(frozen=True, slots=True)
class Logical:
    """A message that means one value: `google.protobuf.Timestamp`, `google.type.Date` and `TimeOfDay`, and
    `confluent.type.Decimal`.

    Attributes:
        kind: One of these types.
        parts: The fields of the message.
        precision: Precision of a decimal; `scale` is its scale.
    """

    kind: Literal["timestamp", "date", "time", "decimal"]
    parts: tuple[Field, ...]
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A message of `google.protobuf` that wraps a scalar so that it may be null."""

    parts: tuple[Field, ...]

    @property
    def value(self) -> Field:
        """Return the field with the value."""
        return self.parts[0]


@dataclass(frozen=True, slots=True)
class Json:
    """A `google.protobuf.Struct`, `Value` or `ListValue`, converted to its JSON text.

    Attributes:
        name: Full name of the message.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Marker:
    """A message without fields, which is either present or missing."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message that is converted to a struct.

    Attributes:
        name: Full name of the message.
        members: Fields of the struct, in the order of the declaration.
    """

    name: str
    members: tuple[Field | Union, ...]

    @property
    def parts(self) -> tuple[Field, ...]:
        """Return the fields of the message."""
        return tuple(self._fields())

    def _fields(self) -> Iterator[Field]:
        for each in self.members:
            if isinstance(each, Union):
                yield from each.fields
            else:
                yield each


Type: TypeAlias = Scalar | Enum | Logical | Wrapper | Json | Marker | Message


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message.

    Attributes:
        type: Type of its value, of its elements, or of the values of its map.
        shape: Whether it has one value, many, or is a map.
        key: The type of a map's keys.
        absent: Its value if the message does not have it; a list or a map is then empty.
        default: Its value if `absent` says so; for a scalar or an enum, as the message has it.
        required: Whether its column is required.
        oneof: The oneof of the message that it belongs to.
        group: Whether its messages have an end tag in place of a length.
    """

    number: int
    name: str
    type: Type
    shape: Literal["one", "list", "map"] = "one"
    key: Scalar | None = None
    absent: Absent = "null"
    default: Any = field(default=None, compare=False)
    required: bool = False
    oneof: str | None = None
    group: bool = False


@dataclass(frozen=True, slots=True)
class Union:
    """A oneof that is converted to a struct; null if the message has none of its fields."""

    name: str
    fields: tuple[Field, ...]


def has_groups(tree: Message) -> bool:
    """Return whether a message has groups, however deep."""
    return any(part.group or (isinstance(part.type, Message) and has_groups(part.type)) for part in tree.parts)


INTEGERS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (-(2**31), 2**31 - 1)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (-(2**63), 2**63 - 1)),
    **dict.fromkeys(("uint32", "fixed32"), (0, 2**32 - 1)),
    **dict.fromkeys(("uint64", "fixed64"), (0, 2**64 - 1)),
}
"""The least and the greatest value of each kind of integer."""

DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(INTEGERS, 0),
    **dict.fromkeys(("float", "double"), 0.0),
    "bool": False,
    "string": "",
    "bytes": b"",
}
"""The default value of each scalar."""
