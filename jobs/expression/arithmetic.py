"""Arithmetic of numbers: in whole numbers and decimals exactly, or a failure of the row; no result wraps around.

Division is the one operator that rounds: to six places, or more where its dividend has more, half away from zero.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.expression.calls import call
from jobs.expression.casts import cast, checked, coerced
from jobs.expression.nodes import Node
from jobs.expression.problem import Mismatch
from jobs.expression.sql_types import (
    LONG,
    MOST_DIGITS,
    common_number,
    decimal_for,
    is_floating,
    is_integer,
    is_number,
    name_of,
)
from jobs.expression.values import Kernel

_WIDE = 76
_PLACES = 6
_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_BEYOND = "the result is beyond {}"
_ZERO = "division by zero"
_TOO_WIDE = "fits no decimal of 38 digits; cast one of them to fewer digits"


def arithmetic(operator: str, left: Node, right: Node, expression: str) -> Node:
    """Two numbers with +, -, *, / or % between them.

    Raises:
        Mismatch: They are no numbers, or no type holds the result.
    """
    for each in (left, right):
        if not (is_number(each.type) or isinstance(each.type, ice.UnknownType)):
            hint = "; texts are joined by ||" if isinstance(each.type, ice.StringType) and operator == "+" else ""
            raise Mismatch(f"'{operator}' needs numbers, found {name_of(each.type)}{hint}")
    left, right = (_number(each, expression) for each in (left, right))
    if is_floating(left.type) or is_floating(right.type):
        return _floating(operator, left, right, expression)
    if operator == "%":
        return _remainder(left, right, expression)
    if operator == "/":
        return _divided(left, right, expression)
    if is_integer(left.type) and is_integer(right.type):
        kind = common_number([left, right])
        sides = [coerced(each, kind, expression) for each in (left, right)]
        return call(_CHECKED[operator], sides, kind, expression, why=_BEYOND.format(name_of(kind)))
    return _decimals(operator, left, right, expression)


def negated(node: Node, expression: str) -> Node:
    """A number with its sign turned.

    Raises:
        Mismatch: It is no number.
    """
    node = signed(node)
    kernel = pc.negate if is_floating(node.type) else pc.negate_checked
    return call(kernel, [node], node.type, expression, why=_BEYOND.format(name_of(node.type)))


def signed(node: Node) -> Node:
    """A number that a sign stands before.

    Raises:
        Mismatch: It is no number.
    """
    if not is_number(node.type):
        raise Mismatch(f"a sign stands before a number, found {name_of(node.type)}")
    return node


def whole_division(left: Node, right: Node, expression: str) -> Node:
    """The quotient of whole numbers without what is left, towards zero.

    Raises:
        Mismatch: They are no whole numbers.
    """
    if not (is_integer(left.type) and is_integer(right.type)):
        raise Mismatch(f"needs whole numbers, found {name_of(left.type)} and {name_of(right.type)}")
    kind = common_number([left, right])
    return call(pc.divide_checked, [coerced(each, kind, expression) for each in (left, right)], kind, expression)


def _number(node: Node, expression: str) -> Node:
    return cast(node, LONG, expression) if isinstance(node.type, ice.UnknownType) else node


def _floating(operator: str, left: Node, right: Node, expression: str) -> Node:
    if operator == "%":
        raise Mismatch("'%' needs whole numbers")
    kind = common_number([left, right])
    sides = [coerced(each, kind, expression) for each in (left, right)]
    if operator == "/":
        return call(_float_quotient, sides, kind, expression)
    return call({"+": pc.add, "-": pc.subtract, "*": pc.multiply}[operator], sides, kind, expression)


def _decimals(operator: str, left: Node, right: Node, expression: str) -> Node:
    first, second = decimal_for(left), decimal_for(right)
    if operator == "*":
        scale, precision = first.scale + second.scale, first.precision + second.precision + 1
    else:
        scale = max(first.scale, second.scale)
        precision = scale + max(first.precision - first.scale, second.precision - second.scale) + 1
    kind = _held(precision, scale, operator, first, second)
    sides = [cast(left, first, expression), cast(right, second, expression)]
    function = _CHECKED[operator]
    if precision <= MOST_DIGITS:
        return call(function, sides, kind, expression, why=_BEYOND.format(name_of(kind)))
    wide = partial(_wide, function, pa.decimal128(kind.precision, kind.scale))
    return call(wide, sides, kind, expression, why=_BEYOND.format(name_of(kind)))


def _held(
    precision: int, scale: int, operator: str, first: ice.DecimalType, second: ice.DecimalType
) -> ice.DecimalType:
    if scale > MOST_DIGITS or precision > _WIDE:
        raise Mismatch(f"{name_of(first)} {operator} {name_of(second)} {_TOO_WIDE}")
    return ice.DecimalType(min(precision, MOST_DIGITS), scale)


def _wide(function: Kernel, target: pa.Decimal128Type, left: pa.Array, right: pa.Array) -> pa.Array:
    sides = [pc.cast(each, pa.decimal256(each.type.precision, each.type.scale)) for each in (left, right)]
    return pc.cast(function(*sides), target)


def _divided(left: Node, right: Node, expression: str) -> Node:
    first, second = decimal_for(left), decimal_for(right)
    scale = max(first.scale, _PLACES)
    whole = first.precision - first.scale
    # Arrow gives a quotient more places than are asked for here; they are cut off, which rounding by the next place
    # does not see.
    places = max(4, scale + second.precision - second.scale + 1)
    if whole + second.scale + places > _WIDE or scale > MOST_DIGITS:
        raise Mismatch(f"{name_of(first)} / {name_of(second)} {_TOO_WIDE}")
    kind = ice.DecimalType(min(whole + second.scale + scale, MOST_DIGITS), scale)
    made = pa.decimal128 if whole + second.scale + places <= MOST_DIGITS else pa.decimal256
    dividend, divisor = made(whole + scale, scale), made(second.precision, second.scale)
    kernel = partial(_quotient, dividend, divisor, pa.decimal128(kind.precision, kind.scale))
    return call(kernel, [cast(left, first, expression), cast(right, second, expression)], kind, expression)


def _quotient(
    dividend: pa.DataType,
    divisor: pa.DataType,
    target: pa.Decimal128Type,
    left: pa.Array | pa.Scalar,
    right: pa.Array | pa.Scalar,
) -> pa.Array:
    zero = pc.equal(right, pa.scalar(0, right.type))
    found = pc.divide(pc.cast(left, dividend), _without_zero(pc.cast(right, divisor), zero))
    rounded = pc.round(found, ndigits=target.scale, round_mode="half_towards_infinity")
    return _unless_zero(pc.cast(rounded, target), left, zero)


def _float_quotient(left: pa.Array | pa.Scalar, right: pa.Array | pa.Scalar) -> pa.Array:
    return _unless_zero(pc.divide(left, right), left, pc.equal(right, 0.0))


def _without_zero(divisor: pa.Array | pa.Scalar, zero: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
    return pc.if_else(zero, pa.scalar(None, divisor.type), divisor)


def _unless_zero(found: pa.Array, dividend: pa.Array | pa.Scalar, zero: pa.Array | pa.Scalar) -> pa.Array:
    """The quotients, unless a divisor is zero; null divided by zero is null."""
    return checked(found, pc.and_(zero, pc.is_valid(dividend)), _ZERO)


def _remainder(left: Node, right: Node, expression: str) -> Node:
    if not (is_integer(left.type) and is_integer(right.type)):
        raise Mismatch(f"'%' needs whole numbers, found {name_of(left.type)} and {name_of(right.type)}")
    kind = common_number([left, right])
    return call(_rest, [coerced(each, kind, expression) for each in (left, right)], kind, expression)


def _rest(left: pa.Array | pa.Scalar, right: pa.Array | pa.Scalar) -> pa.Array:
    """With the sign of the dividend, as in C."""
    # The smallest number has no quotient with -1, but a remainder.
    divisor = pc.if_else(pc.equal(right, -1), pa.scalar(1, right.type), right)
    zero = pc.equal(divisor, 0)
    quotient = pc.divide(left, _without_zero(divisor, zero))
    return _unless_zero(pc.subtract(left, pc.multiply(quotient, divisor)), left, zero)
