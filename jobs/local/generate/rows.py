"""Drawn rows: the shapes that a schema lets its rows have, and values that look like something, at random.

A row is a dict of the members that have a value. Values are Python's, as Arrow gives them, except that a uuid is a
`UUID`, and a time of day or an instant has whole milliseconds.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Context, Decimal
from typing import Any, Literal, TypeAlias
from uuid import UUID

from pyiceberg import types as ice

Row: TypeAlias = dict[str, Any]

_EXACT = Context(prec=80)
_WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "harbour", "islet", "juniper")
_ABSENT = 0.03
_NULL = 0.03
_LARGEST = {ice.IntegerType: 10_000, ice.LongType: 10**9}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A single value.

    Attributes:
        type: Type of the value.
        values: The only allowed values; empty if any of the type will do.
        most: Greatest whole number that is drawn; None if only the type limits it.
        json: Form of a JSON value: an object or a list; None for other types. The value is decoded, not text.
    """

    type: ice.PrimitiveType
    values: tuple[Any, ...] = ()
    most: int | None = None
    json: Literal["object", "list"] | None = None


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    element: Shape


@dataclass(frozen=True, slots=True)
class Entries:
    """A map: a list of pairs, no key twice."""

    key: Leaf
    value: Shape


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a struct.

    Attributes:
        optional: Whether it may be null, or missing.
        group: Name of a group of members of which at most one has a value.
    """

    name: str
    shape: Shape
    optional: bool = False
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct, or the row itself.

    Attributes:
        one: Whether exactly one member has a value.
    """

    members: tuple[Member, ...]
    one: bool = False


Shape: TypeAlias = Leaf | Items | Entries | Struct


def drawn_row(shape: Struct, rng: random.Random, at: datetime) -> Row:
    """Draw a row; optional members are sometimes null or missing.

    Args:
        shape: Shape of the row.
        rng: Source of randomness.
        at: Time of the event that the row describes.
    """
    at = at.replace(microsecond=at.microsecond // 1000 * 1000)
    return _struct(shape, rng, at)


def filled(shape: Struct, columns: Iterable[ice.NestedField]) -> Struct:
    """The shape of those rows that have a value for each required column.

    Args:
        columns: Matched by name.
    """
    by_name = {each.name: each for each in columns}
    return replace(shape, members=tuple(_filled(each, by_name.get(each.name)) for each in shape.members))


def _filled(member: Member, column: ice.NestedField | None) -> Member:
    if column is None:
        return member
    within, inner = member.shape, column.field_type
    if isinstance(within, Struct) and isinstance(inner, ice.StructType):
        within = filled(within, inner.fields)
    return replace(member, shape=within, optional=member.optional and not column.required)


def drawn_value(leaf: Leaf, rng: random.Random, at: datetime, name: str = "") -> Any:
    """A single value, for a column of a name."""
    return _leaf(leaf, rng, at.replace(microsecond=at.microsecond // 1000 * 1000), name)


def _struct(shape: Struct, rng: random.Random, at: datetime) -> Row:
    made: Row = {}
    for member in _chosen(shape, rng):
        chance = rng.random() if member.optional else 1.0
        if chance >= _ABSENT:
            made[member.name] = None if chance < _ABSENT + _NULL else _value(member.shape, rng, at, member.name)
    return made


def _chosen(shape: Struct, rng: random.Random) -> tuple[Member, ...]:
    """The members that may have a value."""
    if shape.one:
        return (replace(rng.choice(shape.members), optional=False),) if shape.members else ()
    groups: dict[str, list[str]] = {}
    for each in shape.members:
        if each.group is not None:
            groups.setdefault(each.group, []).append(each.name)
    if not groups:
        return shape.members
    kept = {rng.choice(names) for names in groups.values()}
    return tuple(each for each in shape.members if each.group is None or each.name in kept)


def _value(shape: Shape, rng: random.Random, at: datetime, name: str) -> Any:
    match shape:
        case Struct():
            return _struct(shape, rng, at)
        case Items(element):
            return [_value(element, rng, at, name) for _ in range(rng.randrange(4))]
        case Entries(key, value):
            return _entries(key, value, rng, at, name)
        case Leaf():
            return _leaf(shape, rng, at, name)


def _entries(key: Leaf, value: Shape, rng: random.Random, at: datetime, name: str) -> list[tuple[Any, Any]]:
    if isinstance(key.type, ice.StringType) and not key.values:
        keys: list[Any] = rng.sample(_WORDS, rng.randrange(4))
    else:
        keys = list(dict.fromkeys(_leaf(key, rng, at, name) for _ in range(rng.randrange(4))))
    return [(each, _value(value, rng, at, name)) for each in keys]


def _leaf(leaf: Leaf, rng: random.Random, at: datetime, name: str) -> Any:
    if leaf.values:
        return rng.choice(leaf.values)
    if leaf.json is not None:
        made = {"kind": rng.choice(_WORDS), "values": [rng.randrange(100) for _ in range(rng.randrange(3))]}
        return made["values"] if leaf.json == "list" else made
    match leaf.type:
        case ice.BooleanType():
            return rng.random() < 0.5
        case ice.IntegerType() | ice.LongType():
            largest = _LARGEST[type(leaf.type)]
            return rng.randrange(largest if leaf.most is None else min(largest, leaf.most + 1))
        case ice.FloatType():
            return rng.randrange(-4_000_000, 4_000_000) / 256
        case ice.DoubleType():
            return round(rng.lognormvariate(3.5, 1.1), 6)
        case ice.DecimalType(precision=precision, scale=scale):
            return Decimal(rng.randrange(10 ** min(precision, scale + 5))).scaleb(-scale, _EXACT)
        case ice.StringType():
            return text_of(name, rng)
        case ice.UUIDType():
            return UUID(int=rng.getrandbits(128), version=4)
        case ice.FixedType():
            return rng.randbytes(len(leaf.type))
        case ice.BinaryType():
            return rng.randbytes(rng.randrange(1, 24))
        case ice.DateType():
            return at.date()
        case ice.TimeType():
            return at.time()
        case ice.TimestampType():
            return at.replace(tzinfo=None)
        case ice.TimestamptzType():
            return at
        case other:
            raise AssertionError(f"no schema has a {other}")


def text_of(name: str, rng: random.Random) -> str:
    """A text for a column: digits for one that is called an id, else some words."""
    if name.lower() == "id" or name.lower().endswith(("_id", "uuid")):
        return f"{rng.getrandbits(128):032x}"
    return f"{rng.choice(_WORDS)}-{rng.randrange(100_000):05d}"
