"""Record plan: which keys the records of a stream have, and in which order (learnt by jobs.formats.json.block_learn).

A plan is only a guess. The walk (jobs.formats.json.block_walk) compares each byte of a record with it; a record that
looks different in any way is decoded by the reference.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from jobs.formats.json.block_text import Constant
from jobs.schema.declared import DeclaredType, Field, ListType, MapType, Primitive, StructType

Place: TypeAlias = tuple[str | None, ...]
"""Keys from the record's top; None stands for the elements of an array."""
UndeclaredKind: TypeAlias = Literal["text", "boolean", "integer", "long_integer", "fraction"]
"""Of a value that is not null and has no parts; a `long_integer` may be beyond 64 bits."""


@dataclass(slots=True)
class TextPlan:
    """A text.

    Attributes:
        declared: None if the key is not.
        place: Where it stands.
        size: The bytes that all texts of the last block had, None if they differed.
        least: The fewest bytes that one had so far; None before the first one.
    """

    declared: Primitive | None
    place: Place
    size: int | None = None
    least: int | None = None


@dataclass(slots=True)
class NumberPlan:
    """A number."""

    declared: Primitive | None
    place: Place


@dataclass(slots=True)
class BooleanPlan:
    """true or false."""

    declared: Primitive | None
    place: Place


@dataclass(slots=True)
class NullPlan:
    """Nothing but null has been seen here."""

    declared: None = None


@dataclass(slots=True)
class ListPlan:
    """An array.

    Attributes:
        required: Whether an element must not be null.
    """

    declared: ListType | None
    place: Place
    element: ValuePlan
    required: bool


@dataclass(slots=True)
class ObjectPlan:
    """An object with its members in the order in which they come."""

    declared: StructType | None
    place: Place
    members: list[Member] = field(default_factory=list)


@dataclass(slots=True)
class Member:
    """A key and its value.

    Attributes:
        declared: None if the key is not.
        path: By which a key that is not declared is counted.
        first: What stands before the value where the key is the first one of its object.
        later: What stands there elsewhere.
        idle: Blocks since a record had it.
        shared: Whether other members are for the same declared field; a record that has two of them is not as planned.
    """

    name: str
    declared: Field | None
    path: str
    value: ValuePlan
    first: Constant
    later: Constant
    idle: int = 0
    shared: bool = False


ValuePlan = TextPlan | NumberPlan | BooleanPlan | NullPlan | ListPlan | ObjectPlan


def plannable(declared: DeclaredType) -> bool:
    """Whether each key of such a value is known by name: those of a map, and of any value, are not."""
    match declared:
        case StructType(fields):
            return all(plannable(one.type) for one in fields)
        case ListType(element):
            return plannable(element)
        case MapType():
            return False
        case Primitive(name):
            return name != "json"
