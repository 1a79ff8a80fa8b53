"""Primitive columns: decoded JSON values to an Arrow array; the few that do not fit are converted one by one."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.formats.columns import floats, text_values
from jobs.formats.columns.text_columns import Leaf, decimals, iso_dates, iso_timestamps, one_by_one, true_at, without
from jobs.formats.columns.unscaled import unscaled_decimals, unscaled_tokens
from jobs.formats.problems import NULL_IN_REQUIRED, OUT_OF_RANGE, PRECISION_LOSS, WRONG_TYPE, BadValue
from jobs.schema.arrow_schema import arrow_type
from jobs.schema.declared import Primitive

_MICROS_PER = {"epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1}
_DAY = text_values.MICROSECONDS_PER_DAY
_BYTES_OF = {"base64": text_values.exact_base64, "hex": text_values.exact_hex}


def convert_leaf(declared: Primitive, values: Sequence[Any] | pa.Array, *, required: bool) -> Leaf:
    """Converts one column of leaves.

    Args:
        declared: The type; what the values are follows from it (jobs.formats.json.record_types).
        values: One Python value per row, None for null; raw number tokens for a float, and for a decimal carried as
            number. Or an Arrow array: whole numbers as int64, others as float64 (for a float only those whose rounding
            is right), texts and the tokens of decimals as strings.
        required: Whether null is refused. Only raw tokens can still hide a null here.

    Returns:
        The array, null where a value was refused, and the refused values in ascending order.
    """
    match declared.name, declared.encoding:
        case "decimal", "number" if not isinstance(values, pa.Array):
            return _decimal_tokens(declared, values, required=required)
        case "decimal", "unscaled" if not isinstance(values, pa.Array):
            return unscaled_tokens(declared, values, required=required)
        case "decimal", "unscaled":
            return unscaled_decimals(declared, values)
        case "decimal", _:
            return decimals(declared, _array(values, pa.string()))
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
        case "float", _ if not isinstance(values, pa.Array):
            return _float_tokens(declared, values, required=required)
        case "float", _:
            return _floats(values)
        case _:
            return _array(values, arrow_type(declared)), []


def _array(values: Sequence[Any] | pa.Array, kind: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def _texts(values: Sequence[Any] | pa.Array) -> Sequence[str | None]:
    return values.to_pylist() if isinstance(values, pa.Array) else values


def _decimal_tokens(declared: Primitive, tokens: Sequence[Any], *, required: bool) -> Leaf:
    text, bad = _number_texts(declared, tokens, required=required)
    array, refused = decimals(declared, text)
    return array, _both(bad, refused)


def _float_tokens(declared: Primitive, tokens: Sequence[Any], *, required: bool) -> Leaf:
    text, bad = _number_texts(declared, tokens, required=required)
    doubles = pc.cast(text, pa.float64())
    numbers = pc.fill_null(doubles, 0.0).to_numpy()
    with np.errstate(over="ignore"):
        narrow = numbers.astype(np.float32)
    for index in np.flatnonzero(floats.halfway(numbers)):
        narrow[index] = floats.nearest_float(text[index].as_py(), float(numbers[index]))
    infinite = np.flatnonzero(np.isinf(narrow)).tolist()
    refused = [BadValue(i, OUT_OF_RANGE, f"needs {declared}, found a number beyond its range") for i in infinite]
    array = pa.array(narrow, mask=doubles.is_null().to_numpy(zero_copy_only=False))
    return (without(array, infinite) if infinite else array), _both(bad, refused)


def _both(first: list[BadValue], second: list[BadValue]) -> list[BadValue]:
    return sorted(first + second, key=lambda one: one.index) if first else second


def _number_texts(
    declared: Primitive, tokens: Sequence[Any], *, required: bool
) -> tuple[pa.StringArray, list[BadValue]]:
    """The texts of those tokens that are numbers, null for the others; and which of these are refused.

    Tokens are JSON values as they were written; the parser has already proved that they are valid JSON.
    """
    if not tokens:
        return pa.array([], pa.string()), []
    text = _joined(tokens)
    bad: list[BadValue] = []
    initial = _initials(text)
    number = ((initial >= ord("0")) & (initial <= ord("9"))) | (initial == ord("-"))
    if not number.all():
        for index in np.flatnonzero(~number):
            kind = chr(initial[index])
            if kind == "n" and not required:
                continue
            error_class = NULL_IN_REQUIRED if kind == "n" else WRONG_TYPE
            bad.append(BadValue(int(index), error_class, f"needs {declared}, found {_TOKEN_KINDS[kind]}"))
        text = pc.if_else(pa.array(number), text, pa.scalar(None, pa.string()))
    return text, bad


_TOKEN_KINDS = {
    "n": "null",
    '"': "a string",
    "t": "a boolean",
    "f": "a boolean",
    "{": "an object",
    "[": "an array",
}


def _joined(tokens: Sequence[Any]) -> pa.StringArray:
    """A string column of buffers; joining them costs half of what a bytes object for each would."""
    offsets = np.zeros(len(tokens) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, tokens), np.int32, len(tokens)), out=offsets[1:])
    return pa.StringArray.from_buffers(len(tokens), pa.py_buffer(offsets), pa.py_buffer(b"".join(tokens)))


def _initials(text: pa.StringArray) -> np.ndarray[Any, np.dtype[np.uint8]]:
    _, offsets, data = text.buffers()
    starts = np.frombuffer(offsets, np.int32)[: len(text)]
    return np.frombuffer(data, np.uint8)[starts]


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
