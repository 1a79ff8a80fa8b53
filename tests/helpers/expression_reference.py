"""Reference of expressions: what an expression means for one row, by Python's own numbers, from its syntax alone.

It knows whole numbers, decimals, conditions, CASE and COALESCE; types are worked out beside the values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import NamedTuple

from jobs.records.expressions.syntax import (
    Apply,
    CaseWhen,
    Constant,
    Name,
    Syntax,
)

_EXACT = Context(prec=200)
_BITS = {"int": 31, "long": 63}


class Fails(Exception):
    """The row has no value."""


class Typed(NamedTuple):
    """A value, None for null, with its type: int, long, boolean, null, or the precision and scale of a decimal."""

    value: int | Decimal | bool | None
    type: str | tuple[int, int]


def reference(syntax: Syntax, row: Mapping[str, Typed], kind: Callable[[Syntax], str | tuple[int, int]]) -> Typed:
    """The value of one row.

    Args:
        syntax: The expression.
        row: Columns of the row.
        kind: The one type of the values of a CASE or COALESCE.

    Raises:
        Fails: There is none.
    """
    match syntax:
        case Name(_, name):
            return row[name]
        case Constant(_, value):
            return _constant(value)
        case CaseWhen(_, branches, otherwise):
            for condition, value in branches:
                if reference(condition, row, kind).value is True:
                    return Typed(reference(value, row, kind).value, kind(syntax))
            return Typed(None if otherwise is None else reference(otherwise, row, kind).value, kind(syntax))
        case Apply(_, "coalesce", arguments):
            found = Typed(None, "null")
            for each in arguments:
                if (found := reference(each, row, kind)).value is not None:
                    break
            return Typed(found.value, kind(syntax))
        case Apply(_, ("and" | "or") as word, arguments):
            return _logic(word == "or", [*arguments], row, kind)
        case Apply(_, name, arguments):
            return _applied(name, [reference(each, row, kind) for each in arguments])
    raise AssertionError(syntax)


def _constant(value: object) -> Typed:
    match value:
        case None:
            return Typed(None, "null")
        case bool():
            return Typed(value, "boolean")
        case int():
            return Typed(value, "int" if -(2**31) <= value < 2**31 else "long")
        case Decimal():
            _, digits, exponent = value.as_tuple()
            return Typed(value, (max(len(digits), -int(exponent), 1), -int(exponent)))
    raise AssertionError(value)


def _logic(
    deciding: bool, parts: list[Syntax], row: Mapping[str, Typed], kind: Callable[[Syntax], str | tuple[int, int]]
) -> Typed:
    unknown = False
    for each in parts:
        value = reference(each, row, kind).value
        if value is deciding:
            return Typed(deciding, "boolean")
        unknown |= value is None
    return Typed(None if unknown else not deciding, "boolean")


def _applied(name: str, arguments: list[Typed]) -> Typed:
    values = [each.value for each in arguments]
    if name == "is null":
        return Typed(values[0] is None, "boolean")
    if name == "is true":
        return Typed(values[0] is True, "boolean")
    if name == "is distinct from":
        return Typed(values[0] != values[1], "boolean")
    if name == "in":
        rest = values[1:]
        if values[0] is None or (values[0] not in rest and None in rest):
            return Typed(None, "boolean")
        return Typed(values[0] in rest, "boolean")
    if name == "not":
        return Typed(None if values[0] is None else not values[0], "boolean")
    if name in ("plus", "condition"):
        return arguments[0]
    if name == "negate":
        return _bounded(None if values[0] is None else _EXACT.minus(values[0]), arguments[0].type)
    left, right = (Typed(each.value, "long") if each.type == "null" else each for each in arguments)
    if name in ("=", "<>", "<", "<=", ">", ">="):
        if left.value is None or right.value is None:
            return Typed(None, "boolean")
        order = (left.value > right.value) - (left.value < right.value)
        return Typed({"=": order == 0, "<>": order != 0, "<": order < 0, "<=": order <= 0, ">": order > 0}.get(
            name, order >= 0), "boolean")  # fmt: skip
    return _arithmetic(name, left, right)


def _arithmetic(name: str, left: Typed, right: Typed) -> Typed:
    whole = isinstance(left.type, str) and isinstance(right.type, str)
    kind: str | tuple[int, int] = "long" if "long" in (left.type, right.type) else "int"
    first, second = _decimal(left), _decimal(right)
    if name == "/":
        kind = (38, max(first[1], 6))
    elif not whole:
        kind = (38, first[1] + second[1] if name == "*" else max(first[1], second[1]))
    if left.value is None or right.value is None:
        return Typed(None, kind)
    one, two = Decimal(left.value), Decimal(right.value)
    if name in ("/", "%") and not two:
        raise Fails("division by zero")
    match name:
        case "+":
            made = _EXACT.add(one, two)
        case "-":
            made = _EXACT.subtract(one, two)
        case "*":
            made = _EXACT.multiply(one, two)
        case "%":
            made = _EXACT.remainder(one, two)
        case _:
            made = _EXACT.divide(one, two).quantize(Decimal(1).scaleb(-kind[1]), ROUND_HALF_UP, _EXACT)  # type: ignore
    return _bounded(made, kind)


def _decimal(value: Typed) -> tuple[int, int]:
    return value.type if isinstance(value.type, tuple) else (19, 0)


def _bounded(value: int | Decimal | None, kind: str | tuple[int, int]) -> Typed:
    if value is None:
        return Typed(None, kind)
    if isinstance(kind, tuple):
        if abs(value) >= Decimal(10) ** (38 - kind[1]):
            raise Fails("beyond its type")
        return Typed(Decimal(value), kind)
    if not -(2 ** _BITS[kind]) <= value < 2 ** _BITS[kind]:
        raise Fails("beyond its type")
    return Typed(int(value), kind)
