"""Functions of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.expressions.calls import (
    Function,
    call,
    constant,
    function,
)
from jobs.records.expressions.casts import cast, checked, coerced
from jobs.records.expressions.nodes import Node
from jobs.records.expressions.operators import alike, arithmetic, whole_division
from jobs.records.expressions.problem import Mismatch
from jobs.records.expressions.sql_types import (
    BOOLEAN,
    DOUBLE,
    INT,
    common_type,
    is_floating,
    is_integer,
    is_number,
    name_of,
)
from jobs.records.expressions.values import Kernel


def _absolute(arguments: Sequence[Node], expression: str) -> Node:
    node = _number(arguments[0])
    return call(pc.abs if is_floating(node.type) else pc.abs_checked, [node], node.type, expression)


def _sign(arguments: Sequence[Node], expression: str) -> Node:
    return call(_sign_of, [_number(arguments[0])], INT, expression)


def _sign_of(numbers: pa.Array) -> pa.Array:
    if pa.types.is_decimal(numbers.type):
        zero = pa.scalar(0, numbers.type)
        above, below = pc.greater(numbers, zero), pc.less(numbers, zero)
        return pc.subtract(pc.cast(above, pa.int32()), pc.cast(below, pa.int32()))
    return pc.cast(pc.sign(numbers), pa.int32())


def _rounding(mode: str, arguments: Sequence[Node], expression: str) -> Node:
    node, places = _number(arguments[0]), 0
    if len(arguments) > 1:
        found = constant(arguments[1], "a number of places")
        if not isinstance(found, int) or not 0 <= found <= 38:
            raise Mismatch("needs a number of places from 0 to 38")
        places = found
    if is_integer(node.type):
        return node
    if is_floating(node.type):
        return call(partial(pc.round, ndigits=places, round_mode=mode), [node], node.type, expression)
    kind = node.type
    if not isinstance(kind, ice.DecimalType) or places >= kind.scale:
        return node
    # Rounding up may need one digit more than the number has.
    rounded = ice.DecimalType(min(kind.precision - kind.scale + places + 1, 38), places)
    kernel = partial(_rounded, places, mode, pa.decimal128(rounded.precision, places))
    return call(kernel, [node], rounded, expression)


def _rounded(places: int, mode: str, target: pa.Decimal128Type, numbers: pa.Array) -> pa.Array:
    wide = pc.cast(numbers, pa.decimal256(numbers.type.precision + 1, numbers.type.scale))
    return pc.cast(pc.round(wide, ndigits=places, round_mode=mode), target)


def _of_double(kernel: Kernel, arguments: Sequence[Node], expression: str) -> Node:
    return call(kernel, [_double(each, expression) for each in arguments], DOUBLE, expression)


def _double(node: Node, expression: str) -> Node:
    return coerced(_number(node), DOUBLE, expression)


def _number(node: Node) -> Node:
    if isinstance(node.type, ice.UnknownType):
        return cast(node, DOUBLE, "null")
    if not is_number(node.type):
        raise Mismatch(f"needs a number, found {name_of(node.type)}")
    return node


def _power(left: pa.Array, right: pa.Array) -> pa.Array:
    return pc.power(left, right)


def _log(kernel: Kernel, numbers: pa.Array) -> pa.Array:
    return checked(kernel(numbers), pc.less_equal(numbers, 0.0), "the number is not positive")


def _extreme(kernel: Kernel, arguments: Sequence[Node], expression: str) -> Node:
    kind = common_type(arguments)
    if isinstance(kind, (ice.StructType, ice.ListType, ice.MapType, ice.UUIDType, ice.BooleanType)):
        raise Mismatch(f"a {name_of(kind)} has no order here")
    sides = [coerced(each, kind, expression) for each in arguments]
    nullable = all(each.nullable for each in arguments)
    return call(partial(_element_wise, kernel), sides, kind, expression, nullable=nullable)


def _element_wise(kernel: Kernel, *columns: pa.Array) -> pa.Array:
    kind = columns[0].type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # Arrow has no such kernel for these types.
        columns = tuple(pc.cast(each, pa.timestamp("us")) for each in columns)
    return pc.cast(kernel(*columns, skip_nulls=True), kind)


def _is_nan(arguments: Sequence[Node], expression: str) -> Node:
    return call(pc.is_nan, [_double(arguments[0], expression)], BOOLEAN, expression)


def _modulo(arguments: Sequence[Node], expression: str) -> Node:
    left, right = alike(arguments, expression)
    return arithmetic("%", left, right, expression)


def _division(arguments: Sequence[Node], expression: str) -> Node:
    return whole_division(arguments[0], arguments[1], expression)


FUNCTIONS: tuple[Function, ...] = (
    function("abs(number)", "the number without its sign", _absolute),
    function("sign(number)", "-1, 0 or 1", _sign),
    function("round(number [, places])", "rounded half away from zero", partial(_rounding, "half_towards_infinity")),
    function("round_even(number [, places])", "rounded half to even", partial(_rounding, "half_to_even")),
    function("floor(number [, places])", "rounded down", partial(_rounding, "down")),
    function("ceil(number [, places])", "rounded up", partial(_rounding, "up")),
    function("trunc(number [, places])", "without the places behind", partial(_rounding, "towards_zero")),
    function("mod(number, divisor)", "as %", _modulo),
    function("div(number, divisor)", "the quotient of whole numbers, towards zero", _division),
    function("power(number, exponent)", "as a double", partial(_of_double, _power)),
    function("sqrt(number)", "as a double", partial(_of_double, pc.sqrt_checked)),
    function("exp(number)", "as a double", partial(_of_double, pc.exp)),
    function("ln(number)", "as a double", partial(_of_double, partial(_log, pc.ln))),
    function("log10(number)", "as a double", partial(_of_double, partial(_log, pc.log10))),
    function("log2(number)", "as a double", partial(_of_double, partial(_log, pc.log2))),
    function("isnan(number)", "whether a double is no number", _is_nan),
    function("greatest(value, …)", "the largest; null and NaN count only if there is nothing else",
             partial(_extreme, pc.max_element_wise)),
    function("least(value, …)", "the smallest; null and NaN count only if there is nothing else",
             partial(_extreme, pc.min_element_wise)),
)  # fmt: skip
