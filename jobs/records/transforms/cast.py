"""Cast: columns get another type, exactly; a row fails if the type does not hold its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.columns.primitive_columns import convert_leaf
from jobs.records.formats.columns.value_texts import texts
from jobs.records.formats.interface.problems import (
    OUT_OF_RANGE,
    PRECISION_LOSS,
    WRONG_TYPE,
    BadValue,
    shown,
)
from jobs.records.schema.arrow_schema import rows_arrow_type
from jobs.records.schema.declared import Primitive
from jobs.records.schema.iceberg_schema import iceberg_schema, schema_text
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.tokens import SchemaTextError
from jobs.records.transforms.columns import Columns, TransformProblem
from jobs.records.transforms.masks import mask_of
from jobs.records.transforms.nested import changed_at, retyped_at
from jobs.records.transforms.path import Path, field_at, selected
from jobs.records.transforms.transform import (
    Applied,
    Rows,
    Transform,
    settled,
)


@dataclass(frozen=True, slots=True)
class Cast(Transform):
    """Change columns to other types.

    Attributes:
        types: Paths of columns, with wildcards, and types in the words of schema text, such as ``decimal(12,2)``.
    """

    name: ClassVar[str] = "cast"
    types: tuple[tuple[str, str], ...]

    def output(self, columns: Columns) -> Columns:
        """Return the same columns in other types.

        Raises:
            TransformProblem: A type is invalid, or a column's type is not cast to it.
        """
        targets = self._targets(columns)
        for path, (target, text) in targets.items():
            source = field_at(columns, path).field_type
            if problem := cast_problem(source, target):
                raise TransformProblem(f"the column '{'.'.join(path)}' of type {problem}", (text,))
        for path in targets:
            columns = retyped_at(columns, [path], lambda _, at=path: targets[at][0])
        return columns

    def apply(self, rows: Rows) -> Applied:
        """Return the values in the new types."""
        failures = []
        for path, (target, _) in self._targets(rows.columns).items():
            into = retyped_at(rows.columns, [path], lambda _, kind=target: kind)
            arrays, bad = changed_at(
                rows, [path], lambda array, field, kind=target: cast_values(array, field.field_type, kind), into
            )
            rows = rows.with_batch(into, arrays)
            failures.extend(bad)
        return settled(rows, failures)

    def _targets(self, columns: Columns) -> dict[Path, tuple[ice.IcebergType, str]]:
        found: dict[Path, tuple[ice.IcebergType, str]] = {}
        for text, kind in self.types:
            try:
                paths = selected(columns, [text])
            except TransformProblem as problem:
                raise TransformProblem(problem.message, (text,)) from None
            for path in paths:
                if path in found:
                    raise TransformProblem(f"the column {'.'.join(path)} is cast twice", (text,))
                found[path] = (type_of(kind, (text,)), text)
        return found


def type_of(text: str, place: tuple[str, ...] = ()) -> ice.IcebergType:
    """Return the type that a text names in the words of schema text.

    Raises:
        TransformProblem: The text names no type.
    """
    try:
        fields = iceberg_schema(parse_schema(f"c {text}")).fields
    except SchemaTextError as problem:
        raise TransformProblem(problem.message, place) from None
    if len(fields) != 1 or fields[0].required:
        raise TransformProblem(f"'{text}' is no type such as long or decimal(12,2)", place)
    return fields[0].field_type


Leaf = tuple[pa.Array, list[BadValue]]

_WHOLE = (ice.IntegerType, ice.LongType)
_FLOATING = (ice.FloatType, ice.DoubleType)
_NUMBERS = (*_WHOLE, *_FLOATING, ice.DecimalType)
_TIMES = (ice.DateType, ice.TimeType, ice.TimestampType, ice.TimestamptzType)
_FROM_TEXT = (*_NUMBERS, *_TIMES, ice.BooleanType, ice.UUIDType)
_TO_TEXT = (*_NUMBERS, *_TIMES, ice.BooleanType, ice.UUIDType)


def cast_problem(source: ice.IcebergType, target: ice.IcebergType) -> str | None:
    """Return why values of one type are not cast to another; None if they are."""
    if schema_text(source) == schema_text(target):
        return None
    known = (
        (isinstance(source, ice.StringType) and isinstance(target, _FROM_TEXT))
        or (isinstance(source, _TO_TEXT) and isinstance(target, ice.StringType))
        or (isinstance(source, _NUMBERS) and isinstance(target, _NUMBERS))
        or (isinstance(source, ice.BooleanType) and isinstance(target, _WHOLE))
        or (isinstance(source, _WHOLE) and isinstance(target, ice.BooleanType))
        or (isinstance(source, ice.DateType) and isinstance(target, ice.TimestampType))
    )
    if known:
        return None
    hint = ""
    if isinstance(target, _TIMES) and isinstance(source, _WHOLE):
        hint = "; parse_timestamp reads numbers since 1970"
    elif isinstance(source, _TIMES) and isinstance(target, _WHOLE):
        hint = "; format_timestamp writes numbers since 1970"
    return f"{schema_text(source)} cannot be cast to {schema_text(target)}{hint}"


def cast_values(array: pa.Array, source: ice.IcebergType, target: ice.IcebergType) -> Leaf:
    """Return values in another type, and those that it does not hold.

    Args:
        array: Values in the Arrow type of `source`.
        target: A type for which `cast_problem` is None.
    """
    kind = rows_arrow_type(target)
    if schema_text(source) == schema_text(target):
        return array, []
    match source, target:
        case ice.StringType(), ice.BooleanType():
            return _booleans(array)
        case ice.StringType(), _:
            return convert_leaf(_declared(target), array, required=False)
        case _, ice.StringType():
            return texts(array, source), []
        case ice.BooleanType(), _:
            return array.cast(pa.int8()).cast(kind), []
        case _, ice.BooleanType():
            either = pc.and_(pc.greater_equal(array, 0), pc.less_equal(array, 1))
            return _refused(array, pc.equal(array, 1), either, target, OUT_OF_RANGE)
        case ice.DateType(), _:
            return array.cast(pa.timestamp("s")).cast(kind), []
        case (ice.IntegerType(), ice.LongType()) | (ice.FloatType(), ice.DoubleType()):
            return array.cast(kind), []
        case ((ice.IntegerType() | ice.LongType()), (ice.IntegerType() | ice.LongType())):
            narrow = array.cast(kind, safe=False)
            return _refused(array, narrow, pc.equal(narrow.cast(array.type), array), target, OUT_OF_RANGE)
        case ((ice.IntegerType() | ice.LongType()), (ice.FloatType() | ice.DoubleType())):
            return _exactly_floating(array, kind, target)
        case ice.DoubleType(), ice.FloatType():
            narrow = array.cast(kind)
            same = pc.or_(pc.equal(narrow.cast(pa.float64()), array), pc.is_nan(array))
            return _refused(array, narrow, same, target, PRECISION_LOSS)
        case ((ice.FloatType() | ice.DoubleType()), (ice.IntegerType() | ice.LongType())):
            finite = pc.is_finite(array)
            kept, bad = _refused(array, array, finite, target, WRONG_TYPE)
            made, more = convert_leaf(_declared(target, "number"), texts(kept, source), required=False)
            return made, sorted([*bad, *more], key=lambda each: each.index)
        case _:
            # A number whose fraction is zero is a whole one.
            return convert_leaf(_declared(target, "number"), texts(array, source), required=False)


def _declared(target: ice.IcebergType, whole: str = "text") -> Primitive:
    text = schema_text(target)
    carried = f" as {whole}" if isinstance(target, _WHOLE) else " as text" if isinstance(target, _FLOATING) else ""
    declared = parse_schema(f"c {text}{carried}").fields[0].type
    if not isinstance(declared, Primitive):
        raise TypeError(f"{text} is no single value")
    return declared


def _booleans(array: pa.Array) -> Leaf:
    true, false = pc.equal(array, "true"), pc.equal(array, "false")
    bad = np.flatnonzero(mask_of(pc.invert(pc.or_(true, false))))
    found = true if not len(bad) else pc.if_else(pc.or_(true, false), true, pa.scalar(None, pa.bool_()))
    return found, [
        BadValue(int(each), WRONG_TYPE, f"needs boolean, found the text {shown(array[int(each)].as_py())}")
        for each in bad
    ]


def _exactly_floating(array: pa.Array, kind: pa.DataType, target: ice.IcebergType) -> Leaf:
    """Cast whole numbers to doubles or floats that give the same number back; 2^63 would come back as another one."""
    narrow = array.cast(kind, safe=False)
    back = narrow.cast(pa.float64())
    inside = pc.and_(pc.less(back, 2.0**63), pc.greater_equal(back, -(2.0**63)))
    whole = pc.if_else(inside, back, 0.0).cast(pa.int64(), safe=False)
    same = pc.and_(inside, pc.equal(whole, array.cast(pa.int64())))
    return _refused(array, narrow, same, target, PRECISION_LOSS)


def _refused(array: pa.Array, made: pa.Array, same: pa.Array, target: ice.IcebergType, error_class: str) -> Leaf:
    """Refuse the values that changed in the conversion."""
    bad = np.flatnonzero(mask_of(pc.invert(same)))
    if not len(bad):
        return made, []
    kept = pc.if_else(pc.fill_null(same, True), made, pa.scalar(None, made.type))
    problems = [
        BadValue(int(each), error_class, f"needs {schema_text(target)}, found {array[int(each)].as_py()}")
        for each in bad
    ]
    return kept, problems
