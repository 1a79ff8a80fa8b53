"""Shapes of rows: what a schema lets each value be, whatever its format; what rows are drawn from, and encoders write.

A row is a dict of the members that have a value. Values are Python's, as Arrow gives them, except that a uuid is a
`UUID`, and a time of day or an instant has whole milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from pyiceberg import types as ice

_FLOAT_DIGITS = 2**24
_DOUBLE_DIGITS = 2**53


@dataclass(frozen=True, slots=True)
class Leaf:
    """A single value.

    Attributes:
        type: Of the value.
        values: The only ones there are; empty where any of the type will do.
        most: The greatest whole number that is drawn; None if the type alone says it.
        json: Of any JSON value: an object, a list, or either. Its value is one, and not text.
    """

    type: ice.PrimitiveType
    values: tuple[Any, ...] = ()
    most: int | None = None
    json: Literal["object", "list"] | None = None


@dataclass(frozen=True, slots=True)
class Nothing:
    """A value that has to be left out, because no column takes it."""


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
        optional: Whether it may be null, or not there.
        group: Of the members of one group at most one has a value.
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


Shape: TypeAlias = Leaf | Nothing | Items | Entries | Struct


def narrowed(shape: Struct, columns: Iterable[ice.NestedField], *, refuses_more: bool) -> Struct:
    """The shape of those rows of a writer schema that columns take.

    Args:
        columns: Matched by name.
        refuses_more: Whether a record is refused for a member that no column takes.
    """
    by_name = {each.name: each for each in columns}
    return replace(shape, members=tuple(_member(each, by_name.get(each.name), refuses_more) for each in shape.members))


def _member(member: Member, column: ice.NestedField | None, refuses_more: bool) -> Member:
    if column is None:
        return replace(member, shape=Nothing()) if refuses_more and member.optional else member
    shape = _narrowed(member.shape, column.field_type, refuses_more)
    if isinstance(shape, Nothing) and not member.optional:
        return member
    return replace(member, shape=shape, optional=member.optional and not column.required)


def _narrowed(shape: Shape, column: ice.IcebergType, refuses_more: bool) -> Shape:
    match shape, column:
        case Leaf(), ice.PrimitiveType():
            return _leaf(shape, column)
        case Struct(), ice.StructType():
            return narrowed(shape, column.fields, refuses_more=refuses_more)
        case Items(element), ice.ListType():
            return Items(_narrowed(element, column.element_type, refuses_more))
        case Entries(key, value), ice.MapType():
            narrow = _narrowed(key, column.key_type, refuses_more)
            if not isinstance(narrow, Leaf):
                return Nothing()
            return Entries(narrow, _narrowed(value, column.value_type, refuses_more))
        case _:
            return Nothing()


def _leaf(leaf: Leaf, column: ice.PrimitiveType) -> Leaf | Nothing:
    """Values that a column of another type of their kind holds, each as it is."""
    match leaf.type, column:
        case (writer, kind) if writer == kind:
            return leaf
        case (ice.UUIDType(), ice.FixedType()) if len(column) == 16:
            return leaf
        case ice.LongType(), ice.IntegerType():
            return replace(leaf, type=column)
        case ice.IntegerType() | ice.LongType(), ice.FloatType():
            return replace(leaf, most=_least(leaf.most, _FLOAT_DIGITS))
        case ice.IntegerType() | ice.LongType(), ice.DoubleType():
            return replace(leaf, most=_least(leaf.most, _DOUBLE_DIGITS))
        case (ice.IntegerType(), ice.LongType()) | (ice.FloatType(), ice.DoubleType()):
            return leaf
        case ice.DoubleType(), ice.FloatType():
            return replace(leaf, type=column)
        case ice.IntegerType() | ice.LongType(), ice.DecimalType(precision=precision, scale=scale):
            return replace(leaf, most=_least(leaf.most, 10 ** (precision - scale) - 1))
        case ice.DecimalType(), ice.DecimalType():
            scale = min(leaf.type.scale, column.scale)
            digits = min(leaf.type.precision - leaf.type.scale, column.precision - column.scale) + scale
            return replace(leaf, type=ice.DecimalType(digits, scale)) if digits else replace(leaf, values=(Decimal(0),))
        case (ice.BinaryType(), ice.FixedType()):
            return replace(leaf, type=column)
        case (ice.FixedType(), ice.BinaryType()):
            return leaf
        case _:
            return Nothing()


def _least(most: int | None, other: int) -> int:
    return other if most is None else min(most, other)


def beyond(leaf: Leaf, column: ice.PrimitiveType) -> int | Decimal | None:
    """A value of a writer schema that a column does not hold; None if it holds them all, or that is not known."""
    if leaf.values or leaf.most is not None:
        return None
    match leaf.type, column:
        case ice.LongType(), ice.IntegerType():
            return 2**31
        case ice.IntegerType() | ice.LongType(), ice.DecimalType(precision=precision, scale=scale):
            over = 10 ** (precision - scale)
            return over if over < 2 ** (31 if isinstance(leaf.type, ice.IntegerType) else 63) else None
        case ice.DecimalType(), ice.DecimalType():
            whole = column.precision - column.scale
            return Decimal(1).scaleb(whole) if leaf.type.precision - leaf.type.scale > whole else None
        case _:
            return None
