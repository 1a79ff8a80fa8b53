"""Primitive columns: decoded JSON values to an Arrow array; the few that do not fit are converted one by one."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.formats.columns import text_values
from jobs.formats.columns.json_values import json_values
from jobs.formats.columns.number_columns import nearest, text_floats, whole_numbers
from jobs.formats.columns.number_tokens import number_texts
from jobs.formats.columns.pattern_times import pattern_times
from jobs.formats.columns.text_columns import Leaf, decimals, iso_dates, iso_timestamps, one_by_one, true_at, without
from jobs.formats.columns.unscaled import unscaled_decimals, unscaled_tokens
from jobs.formats.problems import OUT_OF_RANGE, PRECISION_LOSS, BadValue
from jobs.schema.arrow_schema import arrow_type
from jobs.schema.declared import Primitive

_MICROS_PER = {"epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1}
_DAY = text_values.MICROSECONDS_PER_DAY
_BYTES_OF = {"base64": text_values.exact_base64, "hex": text_values.exact_hex}


def convert_leaf(declared: Primitive, values: Sequence[Any] | pa.Array, *, required: bool) -> Leaf:
    """Converts one column of leaves.

    Args:
        declared: The type; what the values are follows from it (jobs.formats.json.record_types).
        values: One Python value per row, None for null; raw tokens for a json, a float, a whole number with a point and
            a decimal carried as number. Or an Arrow array: whole numbers as int64, others as float64 (for a float only
            those whose rounding is right), texts and the tokens of decimals as strings.
        required: Whether null is refused. Only raw tokens can still hide a null here.

    Returns:
        The array, null where a value was refused, and the refused values in ascending order.
    """
    match declared.name, declared.encoding:
        case "decimal", "number" if not isinstance(values, pa.Array):
            text, bad = number_texts(declared, values, required=required)
            array, refused = decimals(declared, text)
            return array, _both(bad, refused)
        case "decimal", "unscaled" if not isinstance(values, pa.Array):
            return unscaled_tokens(declared, values, required=required)
        case "decimal", "unscaled":
            return unscaled_decimals(declared, values)
        case "decimal", _:
            return decimals(declared, _array(values, pa.string()))
        case (("date" | "time" | "timestamp" | "timestamptz"), "pattern"):
            return pattern_times(declared, _array(values, pa.string()))
        case "date", "iso":
            return iso_dates(declared, _array(values, pa.string()))
        case ("timestamp" | "timestamptz") as name, "iso":
            return iso_timestamps(declared, _array(values, pa.string()), zoned=name == "timestamptz")
        case "date", _:
            return _bounded(
                declared, _array(values, pa.int64()), text_values.FIRST_DAY, text_values.LAST_DAY, 1, pa.int32()
            )
        case "time", "iso":
            return one_by_one(_texts(values), pa.time64("us"), text_values.exact_time, pa.int64())
        case "time", "nanos_of_day":
            micros, inexact = _nanoseconds(declared, _array(values, pa.int64()), pa.int64())
            day, beyond = _bounded(declared, micros, 0, _DAY - 1, 1, pa.int64(), "within a day")
            return day, _both(inexact, beyond)
        case "time", "millis_of_day" | "micros_of_day" as encoding:
            times = 1_000 if encoding == "millis_of_day" else 1
            last = _DAY // times - 1
            return _bounded(declared, _array(values, pa.int64()), 0, last, times, pa.int64(), "within a day")
        case "uuid", _:
            return one_by_one(_texts(values), pa.binary(16), text_values.exact_uuid, pa.binary(16))
        case "timestamp" | "timestamptz", "epoch_ns":
            return _nanoseconds(declared, _array(values, pa.int64()), arrow_type(declared))
        case "timestamp" | "timestamptz", str() as encoding:
            times = _MICROS_PER[encoding]
            first, last = text_values.FIRST_MICROSECOND // times, text_values.LAST_MICROSECOND // times
            return _bounded(declared, _array(values, pa.int64()), first, last, times, pa.int64())
        case "binary", encoding:
            return one_by_one(_texts(values), pa.binary(), _BYTES_OF[encoding or ""], pa.binary())
        case "fixed", encoding:
            bytes_of, length = _BYTES_OF[encoding or ""], declared.length or 0
            kind = arrow_type(declared)
            return one_by_one(_texts(values), kind, lambda text: text_values.exact_length(bytes_of(text), length), kind)
        case "json", _:
            return json_values(declared, values, required=required)
        case (("int" | "long"), "number") if not isinstance(values, pa.Array):
            text, bad = number_texts(declared, values, required=required)
            array, refused = whole_numbers(declared, text)
            return array, _both(bad, refused)
        case (("int" | "long"), "number" | "text"):
            return whole_numbers(declared, _array(values, pa.string()))
        case (("float" | "double"), "text"):
            return text_floats(declared, _array(values, pa.string()))
        case (("float" | "double"), _) if not isinstance(values, pa.Array):
            text, bad = number_texts(declared, values, required=required)
            array, refused = nearest(declared, text)
            return array, _both(bad, refused)
        case "float", _:
            return _floats(values)
        case _:
            return _array(values, arrow_type(declared)), []


def _array(values: Sequence[Any] | pa.Array, kind: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def _texts(values: Sequence[Any] | pa.Array) -> Sequence[str | None]:
    return values.to_pylist() if isinstance(values, pa.Array) else values


def _both(first: list[BadValue], second: list[BadValue]) -> list[BadValue]:
    return sorted(first + second, key=lambda one: one.index) if first else second


def _bounded(
    declared: Primitive,
    numbers: pa.Array,
    first: int,
    last: int,
    times: int,
    storage: pa.DataType,
    where: str = "in the years 0001 to 9999",
) -> Leaf:
    outside = true_at(pc.or_(pc.less(numbers, first), pc.greater(numbers, last)))
    bad = [
        BadValue(index, OUT_OF_RANGE, f"needs {declared} {where}, found {numbers[index].as_py()}") for index in outside
    ]
    if outside:
        numbers = without(numbers, outside)
    return pc.multiply_checked(numbers, times).cast(storage).cast(arrow_type(declared)), bad


def _nanoseconds(declared: Primitive, numbers: pa.Array, target: pa.DataType) -> Leaf:
    micros = pc.divide(numbers, 1_000)
    inexact = true_at(pc.not_equal(pc.multiply(micros, 1_000), numbers))
    bad = [
        BadValue(index, PRECISION_LOSS, f"needs {declared} in whole microseconds, found {numbers[index].as_py()}")
        for index in inexact
    ]
    if inexact:
        micros = without(micros, inexact)
    return micros.cast(target), bad


def _floats(numbers: pa.Array) -> Leaf:
    # Halfway to the next power of two and beyond, the nearest float would be infinite.
    narrow = pc.cast(numbers, pa.float32())
    infinite = true_at(pc.is_inf(narrow))
    bad = [BadValue(i, OUT_OF_RANGE, "needs float, found a number beyond its range") for i in infinite]
    return (without(narrow, infinite) if infinite else narrow), bad
