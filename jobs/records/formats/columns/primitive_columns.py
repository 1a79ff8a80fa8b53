"""Conversion of decoded JSON values to Arrow arrays; the few that do not fit are converted one by one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.records.formats.columns import text_values
from jobs.records.formats.columns.pattern_times import pattern_times
from jobs.records.formats.columns.text_columns import (
    Leaf,
    certain_or_one_by_one,
    decimals,
    iso_dates,
    iso_timestamps,
    one_by_one,
    true_at,
    without,
)
from jobs.records.formats.columns.text_values import exact_decimal
from jobs.records.formats.columns.unscaled import unscaled_decimals, unscaled_tokens
from jobs.records.formats.interface.problems import (
    NULL_IN_REQUIRED,
    OUT_OF_RANGE,
    PRECISION_LOSS,
    TOO_DEEP,
    WRONG_TYPE,
    BadValue,
    ValueProblem,
    shown,
)
from jobs.records.formats.json_texts import canonical
from jobs.records.schema.arrow_schema import arrow_type
from jobs.records.schema.declared import Primitive

_KINDS = {"n": "null", '"': "a string", "t": "a boolean", "f": "a boolean", "{": "an object", "[": "an array"}


def number_texts(
    declared: Primitive, tokens: Sequence[Any], *, required: bool
) -> tuple[pa.StringArray, list[BadValue]]:
    """Return the texts of tokens that are numbers, null for others, and the refused tokens.

    Args:
        tokens: JSON values, already validated by the parser.
    """
    if not tokens:
        return pa.array([], pa.string()), []
    text = joined(tokens)
    bad: list[BadValue] = []
    initial = initials(text)
    number = ((initial >= ord("0")) & (initial <= ord("9"))) | (initial == ord("-"))
    if not number.all():
        for index in np.flatnonzero(~number):
            kind = chr(initial[index])
            if kind == "n" and not required:
                continue
            error_class = NULL_IN_REQUIRED if kind == "n" else WRONG_TYPE
            bad.append(BadValue(int(index), error_class, f"needs {declared}, found {_KINDS[kind]}"))
        text = pc.if_else(pa.array(number), text, pa.scalar(None, pa.string()))
    return text, bad


def joined(tokens: Sequence[Any]) -> pa.StringArray:
    """Return a string column of buffers; joining them takes half the time of a bytes object for each."""
    offsets = np.zeros(len(tokens) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, tokens), np.int32, len(tokens)), out=offsets[1:])
    return pa.StringArray.from_buffers(len(tokens), pa.py_buffer(offsets), pa.py_buffer(b"".join(tokens)))


def initials(text: pa.StringArray) -> npt.NDArray[np.uint8]:
    """Return the first byte of each text in a column without offset and without empty texts."""
    _, offsets, data = text.buffers()
    starts = np.frombuffer(offsets, np.int32)[: len(text)]
    return np.frombuffer(data, np.uint8)[starts]


def json_values(declared: Primitive, tokens: Sequence[Any], *, required: bool) -> Leaf:
    """Return the texts of JSON values; null stays null.

    Args:
        tokens: Valid JSON values as written, without surrounding white space.
        required: Whether null is refused.
    """
    if not tokens:
        return pa.array([], pa.string()), []
    text = joined(tokens)
    null = initials(text) == ord("n")
    bad: list[BadValue] = []
    if required:
        bad = [BadValue(i, NULL_IN_REQUIRED, f"needs {declared}, found null") for i in np.flatnonzero(null).tolist()]
    if declared.encoding == "sent":
        array = pc.if_else(pa.array(null), pa.scalar(None, pa.string()), text) if null.any() else text
        return array, bad
    found: list[str | None] = []
    for index, token in enumerate(tokens):
        try:
            found.append(None if null[index] else canonical(bytes(token)).decode())
        except RecursionError:
            found.append(None)
            bad.append(BadValue(index, TOO_DEEP, "needs JSON that is nested less deep"))
    return pa.array(found, pa.string()), sorted(bad, key=lambda one: one.index)


Doubles = npt.NDArray[np.float64]

# A double has 29 bits of its fraction more than a float; halfway, the first of them is set and the rest is zero.
_BELOW_A_FLOAT = np.uint64(2**29 - 1)
_HALF = np.uint64(2**28)
# Below the normal floats their distance stays the same, and half of it is the double 2**-150.
_LEAST_NORMAL, _HALVES_IN_ONE = 2.0**-126, 2.0**150


def halfway(doubles: Doubles) -> npt.NDArray[np.bool_]:
    """Mask of doubles exactly halfway between two floats, including the greatest float and infinity."""
    found = (doubles.view(np.uint64) & _BELOW_A_FLOAT) == _HALF
    small = np.flatnonzero(np.abs(doubles) < _LEAST_NORMAL)
    if len(small):
        found[small] = np.abs(doubles[small]) * _HALVES_IN_ONE % 2 == 1
    return found


def nearest_float(text: str, double: float) -> np.float32:
    """Return the float nearest to a number, possibly infinite; of two equally near, the one whose last bit is zero.

    Rounding the nearest double again is wrong only if that double is exactly halfway between two floats: it no longer
    shows on which side the text was. 16777217.000000000000000000001 is 16777218, and 16777217 is 16777216.

    Args:
        text: The number in JSON.
        double: The double nearest to it, which is halfway between two floats.
    """
    # Comparing decimals is exact, whatever the context's precision; so is converting a double to a decimal.
    number, middle = Decimal(text), Decimal(double)
    with np.errstate(over="ignore", under="ignore"):
        even = np.float32(double)
        if number == middle:
            return even
        towards = np.float32(np.inf if number > middle else -np.inf)
        # The even float is one of the two neighbours: the result, or one step away from it.
        return even if (float(even) > double) == (number > middle) else np.nextafter(even, towards)


_BITS = {"int": 31, "long": 63}
_CERTAIN = {"int": r"^-?(?:0|[1-9][0-9]{0,8})$", "long": r"^-?(?:0|[1-9][0-9]{0,17})$"}
_WHOLE = re.compile(r"-?[0-9]+")
_FLOAT = r"^(?:-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|NaN|-?Infinity)$"
_WORDS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


def whole_numbers(declared: Primitive, text: pa.StringArray) -> Leaf:
    """Read whole numbers from texts: JSON numbers, which may have a point and an exponent, or digits."""
    target = arrow_type(declared)
    if declared.encoding == "number":
        # 517.0 is 517; other texts with a point or an exponent are read one by one.
        text = pc.replace_substring_regex(text, r"^(-?[0-9]+)\.0+$", r"\1")
    return certain_or_one_by_one(
        text, _CERTAIN[declared.name], target, lambda value: exact_whole(value, declared), target
    )


def exact_whole(text: str, declared: Primitive) -> int:
    """Convert a text to an integer.

    Raises:
        ValueProblem: wrong_type, precision_loss for a fraction, or out_of_range.
    """
    if declared.encoding == "text" and not _WHOLE.fullmatch(text):
        raise ValueProblem(WRONG_TYPE, f"needs {declared}, found the text {shown(text)}")
    try:
        number = exact_decimal(text, 20, 0)
    except ValueProblem as problem:
        if problem.error_class == PRECISION_LOSS:
            message = f"needs {declared}, found {shown(text)}, which is no whole number"
            raise ValueProblem(PRECISION_LOSS, message) from None
        number = 2**64
    if not -(2 ** _BITS[declared.name]) <= number < 2 ** _BITS[declared.name]:
        raise ValueProblem(OUT_OF_RANGE, f"needs {declared}, found a number beyond its range")
    return number


def text_floats(declared: Primitive, text: pa.StringArray) -> Leaf:
    """Convert texts to floats or doubles: JSON numbers, possibly with leading zeros, NaN and infinities."""
    matches = pc.fill_null(pc.match_substring_regex(text, _FLOAT), True)
    bad: list[BadValue] = []
    for index in true_at(pc.invert(matches)):
        message = f"needs {declared}, found the text {shown(text[index].as_py())}"
        bad.append(BadValue(index, WRONG_TYPE, message))
    if bad:
        text = pc.if_else(matches, text, pa.scalar(None, pa.string()))
    words = pc.fill_null(pc.is_in(text, pa.array(list(_WORDS))), False)
    numbers = pc.if_else(words, pa.scalar(None, pa.string()), text) if pc.any(words).as_py() else text
    array, beyond = nearest(declared, numbers)
    if numbers is not text:
        named = pa.array([_WORDS[value] for value in text.filter(words).to_pylist()], array.type)
        array = pc.replace_with_mask(array, words, named)
    return array, sorted(bad + beyond, key=lambda one: one.index)


def nearest(declared: Primitive, text: pa.StringArray) -> Leaf:
    """Convert texts of numbers to the nearest floats or doubles, with one rounding."""
    doubles = pc.cast(text, pa.float64())
    null = doubles.is_null().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(doubles, 0.0).to_numpy()
    if declared.name == "float":
        with np.errstate(over="ignore"):
            narrow = numbers.astype(np.float32)
        for index in np.flatnonzero(halfway(numbers)):
            narrow[index] = nearest_float(text[index].as_py(), float(numbers[index]))
        numbers = narrow
    infinite = np.flatnonzero(np.isinf(numbers)).tolist()
    refused = [BadValue(i, OUT_OF_RANGE, f"needs {declared}, found a number beyond its range") for i in infinite]
    array = pa.array(numbers, mask=null)
    return (without(array, infinite) if infinite else array), refused


_MICROS_PER = {"epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1}
_DAY = text_values.MICROSECONDS_PER_DAY
_BYTES_OF = {"base64": text_values.exact_base64, "hex": text_values.exact_hex}


def convert_leaf(declared: Primitive, values: Sequence[Any] | pa.Array, *, required: bool) -> Leaf:
    """Converts one column of leaves.

    Args:
        declared: The type, which determines the form of the values (jobs.records.formats.json.keys).
        values: One Python value per row, None for null; raw tokens for json, floats, integers with a point, and
            decimals carried as numbers. Or an Arrow array: integers as int64, other numbers as float64 (for a float
            only those that round correctly), texts and tokens of decimals as strings.
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


def _texts(values: Any) -> Sequence[str | None]:
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
    # From halfway to the next power of two on, the nearest float is infinite.
    narrow = pc.cast(numbers, pa.float32())
    infinite = true_at(pc.is_inf(narrow))
    bad = [BadValue(i, OUT_OF_RANGE, "needs float, found a number beyond its range") for i in infinite]
    return (without(narrow, infinite) if infinite else narrow), bad
