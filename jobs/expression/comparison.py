"""Comparison of values of one type, in SQL's three-valued logic: what is compared with null is null.

Numbers are compared as numbers, texts and bytes by their bytes (for texts that is the order of code points), doubles
as IEEE 754 says: NaN equals nothing, not even itself, and -0.0 equals 0.0.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.expression.calls import call, constant
from jobs.expression.casts import cast, coerced
from jobs.expression.nodes import Literal, Logic, Node
from jobs.expression.problem import Mismatch
from jobs.expression.sql_types import (
    BOOLEAN,
    MOST_DIGITS,
    STRING,
    common_type,
    decimal_for,
    is_floating,
    is_number,
    name_of,
)
from jobs.expression.values import Kernel

COMPARISONS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def compared(operator: str, left: Node, right: Node, expression: str) -> Node:
    """Two values with a comparison between them.

    Raises:
        Mismatch: They have no type in common, or one that has no order.
    """
    sides = alike([left, right], expression)
    _refuse_nested(sides[0].type)
    return call(partial(_compared, COMPARISONS[operator]), sides, BOOLEAN, expression)


def distinct(left: Node, right: Node, expression: str) -> Node:
    """Whether two values differ, where null is a value like others."""
    sides = alike([left, right], expression)
    _refuse_nested(sides[0].type)
    return call(_distinct, sides, BOOLEAN, expression, nullable=False)


def alike(nodes: Sequence[Node], expression: str) -> list[Node]:
    """The values as ones that Arrow compares; exact numbers stay exact, however many digits they have.

    Raises:
        Mismatch: They have no type in common.
    """
    numbers = [each for each in nodes if is_number(each.type)]
    exact = numbers and not any(is_floating(each.type) for each in numbers)
    if exact and any(isinstance(each.type, ice.DecimalType) for each in numbers) and len(numbers) == len(nodes):
        return [cast(each, decimal_for(each), expression) for each in nodes]
    kind = common_type(nodes)
    return [coerced(each, kind, expression) for each in nodes]


def among(value: Node, items: Sequence[Node], expression: str) -> Node:
    """Whether a value is one of several: null if it is none of them and one of them, or the value, is null."""
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
    """Whether a text has the form of a pattern: % is any text, _ any character, a backslash takes their meaning."""
    text = constant(pattern, "a pattern")
    if not isinstance(text, str):
        raise Mismatch("needs a text as pattern")
    if len(text) - len(text.rstrip("\\")) & 1:
        raise Mismatch("the pattern ends with a backslash, which takes the meaning of the character behind it")
    return call(partial(_like, text, ignore_case), [coerced(value, STRING, expression)], BOOLEAN, expression)


def null_test(value: Node, expression: str) -> Node:
    """Whether a value is null."""
    return call(pc.is_null, [value], BOOLEAN, expression, nullable=False)


def truth_test(value: Node, truth: bool, expression: str) -> Node:
    """Whether a condition is true, or false; null is neither."""
    return call(partial(_is, truth), [coerced(value, BOOLEAN, expression)], BOOLEAN, expression, nullable=False)


def _refuse_nested(kind: ice.IcebergType) -> None:
    if isinstance(kind, (ice.StructType, ice.ListType, ice.MapType)):
        raise Mismatch(f"a {name_of(kind)} is not compared; compare its parts")


def _compared(kernel: Kernel, left: pa.Array | pa.Scalar, right: pa.Array | pa.Scalar) -> pa.Array:
    """Decimals that no decimal of 38 digits holds at once are compared in 76."""
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
