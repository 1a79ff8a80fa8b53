"""Operators of expressions: arithmetic, comparisons, and their Arrow kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.expressions.calls import call, constant
from jobs.records.expressions.casts import cast, checked, coerced
from jobs.records.expressions.nodes import Literal, Logic, Node
from jobs.records.expressions.problem import Mismatch
from jobs.records.expressions.sql_types import (
    BOOLEAN,
    LONG,
    MOST_DIGITS,
    STRING,
    common_number,
    common_type,
    decimal_for,
    is_floating,
    is_integer,
    is_number,
    name_of,
)
from jobs.records.expressions.values import Kernel

_WIDE = 76
_PLACES = 6
_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_BEYOND = "the result is beyond {}"
_ZERO = "division by zero"
_TOO_WIDE = "fits no decimal of 38 digits; cast one of them to fewer digits"


def arithmetic(operator: str, left: Node, right: Node, expression: str) -> Node:
    """Return two numbers combined by +, -, *, / or %.

    Raises:
        Mismatch: A node is no number, or no type can hold the result.
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
    """Return the negation of a number.

    Raises:
        Mismatch: The node is no number.
    """
    node = signed(node)
    kernel = pc.negate if is_floating(node.type) else pc.negate_checked
    return call(kernel, [node], node.type, expression, why=_BEYOND.format(name_of(node.type)))


def signed(node: Node) -> Node:
    """Return a number with a sign in front, unchanged.

    Raises:
        Mismatch: The node is no number.
    """
    if not is_number(node.type):
        raise Mismatch(f"a sign stands before a number, found {name_of(node.type)}")
    return node


def whole_division(left: Node, right: Node, expression: str) -> Node:
    """Return the quotient of integers, truncated towards zero.

    Raises:
        Mismatch: A node is no integer.
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
    # Arrow's quotient has more places than needed here. They are cut off, not rounded.
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
    """Return the quotients; raise if a divisor is zero, unless the dividend is null."""
    return checked(found, pc.and_(zero, pc.is_valid(dividend)), _ZERO)


def _remainder(left: Node, right: Node, expression: str) -> Node:
    if not (is_integer(left.type) and is_integer(right.type)):
        raise Mismatch(f"'%' needs whole numbers, found {name_of(left.type)} and {name_of(right.type)}")
    kind = common_number([left, right])
    return call(_rest, [coerced(each, kind, expression) for each in (left, right)], kind, expression)


def _rest(left: pa.Array | pa.Scalar, right: pa.Array | pa.Scalar) -> pa.Array:
    """Return the remainder, with the sign of the dividend, as in C."""
    # The quotient of the smallest integer and -1 overflows, but the remainder is 0.
    divisor = pc.if_else(pc.equal(right, -1), pa.scalar(1, right.type), right)
    zero = pc.equal(divisor, 0)
    quotient = pc.divide(left, _without_zero(divisor, zero))
    return _unless_zero(pc.subtract(left, pc.multiply(quotient, divisor)), left, zero)


COMPARISONS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def compared(operator: str, left: Node, right: Node, expression: str) -> Node:
    """Return the comparison of two values.

    Raises:
        Mismatch: The values have no common type, or one without an order.
    """
    sides = alike([left, right], expression)
    _refuse_nested(sides[0].type)
    return call(partial(_compared, COMPARISONS[operator]), sides, BOOLEAN, expression)


def distinct(left: Node, right: Node, expression: str) -> Node:
    """Return IS DISTINCT FROM: whether two values differ, with null as an ordinary value."""
    sides = alike([left, right], expression)
    _refuse_nested(sides[0].type)
    return call(_distinct, sides, BOOLEAN, expression, nullable=False)


def alike(nodes: Sequence[Node], expression: str) -> list[Node]:
    """Convert values to types that Arrow can compare; exact numbers stay exact, however many digits they have.

    Raises:
        Mismatch: The values have no common type.
    """
    numbers = [each for each in nodes if is_number(each.type)]
    exact = numbers and not any(is_floating(each.type) for each in numbers)
    if exact and any(isinstance(each.type, ice.DecimalType) for each in numbers) and len(numbers) == len(nodes):
        return [cast(each, decimal_for(each), expression) for each in nodes]
    kind = common_type(nodes)
    return [coerced(each, kind, expression) for each in nodes]


def among(value: Node, items: Sequence[Node], expression: str) -> Node:
    """Return IN: null if the value is none of the items, and the value or an item is null."""
    kind = common_type([value, *items])
    _refuse_nested(kind)
    simple = all(isinstance(each, Literal) for each in items) and not is_floating(kind)
    if not simple or isinstance(value, Literal):
        parts = tuple(compared("=", value, each, expression) for each in items)
        return parts[0] if len(parts) == 1 else Logic("or", parts, any(each.nullable for each in parts))
    known = [coerced(each, kind, expression) for each in items]
    found = [each.value for each in known if isinstance(each, Literal)]
    kernel = partial(_among, pa.array([each for each in found if each.is_valid], found[0].type))
    nullable = value.nullable or any(each.nullable for each in known)
    with_null = any(not each.is_valid for each in found)
    return call(
        partial(kernel, with_null=with_null), [coerced(value, kind, expression)], BOOLEAN, expression, nullable=nullable
    )


def like(value: Node, pattern: Node, expression: str, *, ignore_case: bool) -> Node:
    """Return LIKE: % matches any text, _ any character, and a backslash escapes them."""
    text = constant(pattern, "a pattern")
    if not isinstance(text, str):
        raise Mismatch("needs a text as pattern")
    if len(text) - len(text.rstrip("\\")) & 1:
        raise Mismatch("the pattern ends with a backslash, which takes the meaning of the character behind it")
    return call(partial(_like, text, ignore_case), [coerced(value, STRING, expression)], BOOLEAN, expression)


def null_test(value: Node, expression: str) -> Node:
    """Return IS NULL."""
    return call(pc.is_null, [value], BOOLEAN, expression, nullable=False)


def truth_test(value: Node, truth: bool, expression: str) -> Node:
    """Return IS TRUE or IS FALSE; null is neither."""
    return call(partial(_is, truth), [coerced(value, BOOLEAN, expression)], BOOLEAN, expression, nullable=False)


def _refuse_nested(kind: ice.IcebergType) -> None:
    if isinstance(kind, (ice.StructType, ice.ListType, ice.MapType)):
        raise Mismatch(f"a {name_of(kind)} is not compared; compare its parts")


def _compared(kernel: Kernel, left: pa.Array | pa.Scalar, right: pa.Array | pa.Scalar) -> pa.Array:
    """Compare two arrays; decimals without a common type of 38 digits are compared with 76 digits."""
    if pa.types.is_decimal(left.type) and pa.types.is_decimal(right.type):
        digits = [(each.type.precision - each.type.scale, each.type.scale) for each in (left, right)]
        if sum(map(max, zip(*digits, strict=True))) > MOST_DIGITS:
            left, right = (pc.cast(each, pa.decimal256(each.type.precision, each.type.scale)) for each in (left, right))
    return kernel(left, right)


def _is(truth: bool, values: pa.Array) -> pa.Array:
    return pc.fill_null(pc.equal(values, truth), False)


def _distinct(left: pa.Array | pa.Scalar, right: pa.Array | pa.Scalar) -> pa.Array:
    one_null = pc.xor(pc.is_null(left), pc.is_null(right))
    return pc.fill_null(_compared(pc.not_equal, left, right), one_null)


def _among(known: pa.Array, values: pa.Array, *, with_null: bool) -> pa.Array:
    found = pc.is_in(values, value_set=known)
    unknown = pc.or_(pc.is_null(values), pc.invert(found)) if with_null else pc.is_null(values)
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)


def _like(pattern: str, ignore_case: bool, texts: pa.Array) -> pa.Array:
    return pc.match_like(texts, pattern=pattern, ignore_case=ignore_case)
