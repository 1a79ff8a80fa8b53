"""Casts of values to other types: exact, or a failure of the row.

Texts mean the same as in decoders (`jobs/records/formats/columns`). A cast drops no digits of a number: use round().
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.expressions.calls import call
from jobs.records.expressions.nodes import Literal, Node, arrow_of
from jobs.records.expressions.problem import Mismatch
from jobs.records.expressions.sql_types import (
    FROM_TEXT,
    is_floating,
    is_integer,
    is_number,
    name_of,
)
from jobs.records.expressions.values import Kernel, RowFaults
from jobs.records.formats.columns.primitive_columns import convert_leaf
from jobs.records.formats.columns.value_texts import texts
from jobs.records.schema.declared import Primitive

_TEXT_ENCODINGS = {"int": "text", "long": "text", "float": "text", "double": "text", "decimal": "text"}


def cast(node: Node, kind: ice.IcebergType, expression: str) -> Node:
    """Return the cast of a value to another type.

    Raises:
        Mismatch: The type cannot be cast to the other one.
    """
    source = node.type
    if source == kind:
        return node
    if isinstance(source, ice.UnknownType):
        return Literal(pa.scalar(None, arrow_of(kind)), kind)
    kernel = _kernel(source, kind)
    if kernel is None:
        hint = ""
        if {str(source), str(kind)} == {"timestamp", "timestamptz"}:
            hint = "; say the zone: x AT TIME ZONE 'UTC'"
        raise Mismatch(f"a {name_of(source)} cannot be cast to {name_of(kind)}{hint}")
    return call(kernel, [node], kind, expression)


def coerced(node: Node, kind: ice.IcebergType, expression: str) -> Node:
    """Return the implicit conversion of a value: to a wider number, or of a literal text to a date.

    Raises:
        Mismatch: The conversion needs a cast.
    """
    source = node.type
    if source == kind or isinstance(source, ice.UnknownType):
        return cast(node, kind, expression)
    written = isinstance(node, Literal) and isinstance(source, ice.StringType) and isinstance(kind, FROM_TEXT)
    wider = (
        (is_number(source) and is_floating(kind) and not (is_floating(source) and isinstance(kind, ice.FloatType)))
        or (isinstance(source, ice.IntegerType) and isinstance(kind, ice.LongType))
        or (is_integer(source) and isinstance(kind, ice.DecimalType))
        or (
            isinstance(source, ice.DecimalType)
            and isinstance(kind, ice.DecimalType)
            and kind.scale >= source.scale
            and kind.precision - kind.scale >= source.precision - source.scale
        )
        or (isinstance(source, ice.DateType) and isinstance(kind, ice.TimestampType))
    )
    if not (written or wider):
        raise Mismatch(f"needs a {name_of(kind)}, found {name_of(source)}")
    return cast(node, kind, expression)


def _kernel(source: ice.IcebergType, kind: ice.IcebergType) -> Kernel | None:
    target = arrow_of(kind)
    match source, kind:
        case ice.StringType(), ice.BinaryType():
            return partial(pc.cast, target_type=target)
        case ice.StringType(), ice.BooleanType():
            return _boolean_of_text
        case ice.StringType(), ice.PrimitiveType() if not isinstance(kind, ice.FixedType):
            return partial(_of_text, _declared(kind))
        case (ice.BinaryType(), ice.StringType()):
            return partial(pc.cast, target_type=target)
        case ice.PrimitiveType(), ice.StringType() if not isinstance(source, (ice.FixedType, ice.BinaryType)):
            return partial(texts, source=source)
        case _ if is_floating(source) and isinstance(kind, ice.DecimalType):
            return partial(_decimal_of_float, _declared(kind))
        case ice.DoubleType(), ice.FloatType():
            return _float_of_double
        case _ if is_integer(source) and isinstance(kind, ice.DecimalType):
            return partial(_decimal_of_integer, target)
        case _ if is_number(source) and is_number(kind):
            return partial(pc.cast, target_type=target)
        case ice.BooleanType(), (ice.IntegerType() | ice.LongType()):
            return partial(pc.cast, target_type=target)
        case ice.DateType(), ice.TimestampType():
            return partial(pc.cast, target_type=target)
        case ((ice.TimestampType() | ice.TimestamptzType()), ice.DateType()):
            return _date_of_timestamp
        case _:
            return None


def _declared(kind: ice.IcebergType) -> Primitive:
    if isinstance(kind, ice.DecimalType):
        return Primitive("decimal", kind.precision, kind.scale, encoding="text")
    name = str(kind)
    return Primitive(name, encoding=_TEXT_ENCODINGS.get(name, None if name == "uuid" else "iso"))


def _of_text(declared: Primitive, texts: pa.Array) -> pa.Array:
    array, bad = convert_leaf(declared, texts, required=False)
    if bad:
        raise RowFaults({each.index: each.message for each in bad})
    return array


def _boolean_of_text(texts: pa.Array) -> pa.Array:
    lowered = pc.utf8_lower(texts)
    true = pc.equal(lowered, "true")
    known = pc.or_(true, pc.equal(lowered, "false"))
    return checked(pc.if_else(known, true, None), pc.invert(known), "needs boolean: neither true nor false")


def _decimal_of_float(declared: Primitive, numbers: pa.Array) -> pa.Array:
    """Convert floats by the shortest text that identifies each number."""
    return _of_text(declared, pc.cast(numbers, pa.string()))


def _float_of_double(numbers: pa.Array) -> pa.Array:
    narrow = pc.cast(numbers, pa.float32())
    beyond = pc.and_(pc.is_finite(numbers), pc.is_inf(narrow))
    return checked(narrow, beyond, "the number is beyond float")


def _decimal_of_integer(target: pa.Decimal128Type, numbers: pa.Array) -> pa.Array:
    wide = pc.cast(numbers, pa.decimal256(19 + target.scale, target.scale))
    return pc.cast(wide, target)


def _date_of_timestamp(times: pa.Array) -> pa.Array:
    return pc.cast(pc.floor_temporal(times, unit="day"), pa.date32())


def checked(array: pa.Array, bad: pa.Array | pa.Scalar, why: str) -> pa.Array:
    """Return the array; raise if the mask is true for a row."""
    if isinstance(bad, pa.Scalar):
        bad = pa.repeat(bad, len(array))
    if not pc.any(bad, min_count=0).as_py():
        return array
    rows = np.flatnonzero(pc.fill_null(bad, False).to_numpy(zero_copy_only=False)).tolist()
    raise RowFaults(dict.fromkeys(rows, why))
