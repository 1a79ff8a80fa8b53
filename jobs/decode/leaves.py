"""A column of JSON leaves to an Arrow array at once; the few that do not fit are looked at one by one."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode import exact
from jobs.decode.problems import NULL_IN_REQUIRED, OUT_OF_RANGE, PRECISION_LOSS, WRONG_TYPE, BadValue, ValueProblem
from jobs.schema.declared import Primitive
from jobs.schema.table_schema import arrow_type

Leaf = tuple[pa.Array, list[BadValue]]

_MONTH_AND_DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_DAY = rf"[0-9]{{4}}-{_MONTH_AND_DAY}"
_TIME = r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
_ZONE = r"(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)"

# What the bulk casts surely read as it is meant; anything else, 29 February too, is read by jobs.decode.exact.
_CERTAIN = {
    "date": rf"^{_DAY}$",
    "timestamp": rf"^{_DAY}{_TIME}$",
    "timestamptz": rf"^{_DAY}{_TIME}{_ZONE}$",
}
_MICROS_PER = {"epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1}


def convert_leaf(declared: Primitive, values: Sequence[Any], *, required: bool) -> Leaf:
    """Converts one column of leaves.

    Args:
        declared: The type; what the values are follows from it (jobs.decode.json_struct).
        values: One Python value per row, None for null; raw number tokens for a decimal carried as number.
        required: Whether null is refused. Only raw tokens can still hide a null here.

    Returns:
        The array, null where a value was refused, and the refused values in ascending order.
    """
    match declared.name, declared.encoding:
        case "decimal", "number":
            return _decimal_tokens(declared, values, required=required)
        case "decimal", _:
            return _decimals(declared, pa.array(values, pa.string()))
        case "date", "iso":
            return _certain_or_exact(declared, pa.array(values, pa.string()), exact.exact_date, pa.int32())
        case ("timestamp" | "timestamptz") as name, "iso":
            return _iso_timestamps(declared, pa.array(values, pa.string()), zoned=name == "timestamptz")
        case "date", _:
            return _bounded(declared, pa.array(values, pa.int64()), exact.FIRST_DAY, exact.LAST_DAY, 1, pa.int32())
        case "timestamp" | "timestamptz", "epoch_ns":
            return _nanoseconds(declared, pa.array(values, pa.int64()))
        case "timestamp" | "timestamptz", str() as encoding:
            times = _MICROS_PER[encoding]
            first, last = exact.FIRST_MICROSECOND // times, exact.LAST_MICROSECOND // times
            return _bounded(declared, pa.array(values, pa.int64()), first, last, times, pa.int64())
        case "binary", encoding:
            return _binary(values, exact.exact_hex if encoding == "hex" else exact.exact_base64)
        case "float", _:
            return _floats(pa.array(values, pa.float64()))
        case _:
            return pa.array(values, arrow_type(declared)), []


def _decimal_tokens(declared: Primitive, tokens: Sequence[Any], *, required: bool) -> Leaf:
    """Tokens are JSON values as they were written; the parser has already proved that they are valid JSON."""
    if not tokens:
        return pa.array([], arrow_type(declared)), []
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
    array, refused = _decimals(declared, text)
    return array, sorted(bad + refused, key=lambda one: one.index) if bad else refused


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


def _decimals(declared: Primitive, text: pa.StringArray) -> Leaf:
    target = arrow_type(declared)
    precision, scale = target.precision, target.scale
    # Arrow's own cast is not enough: beyond 38 digits it may wrap around silently ("1." and 41 zeros is 0.00).
    whole = f"[0-9]{{1,{precision - scale}}}" if precision > scale else "0"
    fraction = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""

    def one(value: str) -> Decimal:
        sign, digits, exponent = Decimal(exact.exact_decimal(value, precision, scale)).as_tuple()
        return Decimal((sign, digits, int(exponent) - scale))

    return _certain_or_one_by_one(text, f"^-?{whole}{fraction}$", target, one, target)


def _iso_timestamps(declared: Primitive, text: pa.StringArray, *, zoned: bool) -> Leaf:
    return _certain_or_exact(declared, text, lambda value: exact.exact_timestamp(value, zoned=zoned), pa.int64())


def _certain_or_exact(
    declared: Primitive, text: pa.StringArray, one: Callable[[str], int], storage: pa.DataType
) -> Leaf:
    first, last = (
        (exact.FIRST_DAY, exact.LAST_DAY)
        if storage == pa.int32()
        else (exact.FIRST_MICROSECOND, exact.LAST_MICROSECOND)
    )
    target = arrow_type(declared)
    array, bad = _certain_or_one_by_one(text, _CERTAIN[declared.name], target, one, storage)
    # The year 0000, and a zone that moves the ends of the calendar beyond it.
    numbers = array.view(storage)
    extremes = pc.min_max(numbers)
    if (lowest := extremes["min"].as_py()) is None or (lowest >= first and extremes["max"].as_py() <= last):
        return array, bad
    outside = _true_at(pc.or_(pc.less(numbers, first), pc.greater(numbers, last)))
    message = f"needs {declared} in the years 0001 to 9999, found {{}}"
    bad += [BadValue(index, OUT_OF_RANGE, message.format(repr(text[index].as_py()))) for index in outside]
    return _without(array, outside), sorted(bad, key=lambda value: value.index)


def _certain_or_one_by_one(
    text: pa.StringArray, certain: str, target: pa.DataType, one: Callable[[str], Any], storage: pa.DataType
) -> Leaf:
    """Casts the texts that match the pattern at once, and converts the others by `one` (a value of type storage)."""
    matches = pc.match_substring_regex(text, certain)
    if pc.all(matches).as_py() is not False:
        return pc.cast(text, target), []
    bad: list[BadValue] = []
    found: list[Any] = []
    doubtful = pc.fill_null(pc.invert(matches), False)
    for index in _true_at(doubtful):
        try:
            found.append(one(text[index].as_py()))
        except ValueProblem as problem:
            found.append(None)
            bad.append(BadValue(index, problem.error_class, problem.message))
    array = pc.cast(pc.if_else(matches, text, pa.scalar(None, pa.string())), target)
    return pc.replace_with_mask(array, doubtful, pa.array(found, storage).cast(target)), bad


def _bounded(declared: Primitive, numbers: pa.Array, first: int, last: int, times: int, storage: pa.DataType) -> Leaf:
    outside = _true_at(pc.or_(pc.less(numbers, first), pc.greater(numbers, last)))
    bad = [
        BadValue(index, OUT_OF_RANGE, f"needs {declared} in the years 0001 to 9999, found {numbers[index].as_py()}")
        for index in outside
    ]
    if outside:
        numbers = _without(numbers, outside)
    return pc.multiply_checked(numbers, times).cast(storage).cast(arrow_type(declared)), bad


def _nanoseconds(declared: Primitive, numbers: pa.Array) -> Leaf:
    micros = pc.divide(numbers, 1_000)
    inexact = _true_at(pc.not_equal(pc.multiply(micros, 1_000), numbers))
    bad = [
        BadValue(index, PRECISION_LOSS, f"needs {declared} in whole microseconds, found {numbers[index].as_py()}")
        for index in inexact
    ]
    if inexact:
        micros = _without(micros, inexact)
    return micros.cast(arrow_type(declared)), bad


def _floats(numbers: pa.Array) -> Leaf:
    # Halfway to the next power of two and beyond, the nearest float would be infinite.
    narrow = pc.cast(numbers, pa.float32())
    infinite = _true_at(pc.is_inf(narrow))
    bad = [BadValue(i, OUT_OF_RANGE, f"needs float (32 bits), found {numbers[i].as_py()!r}") for i in infinite]
    return (_without(narrow, infinite) if infinite else narrow), bad


def _binary(values: Sequence[str | None], one: Callable[[str], bytes]) -> Leaf:
    bad: list[BadValue] = []
    found: list[bytes | None] = []
    for index, value in enumerate(values):
        try:
            found.append(None if value is None else one(value))
        except ValueProblem as problem:
            found.append(None)
            bad.append(BadValue(index, problem.error_class, problem.message))
    return pa.array(found, pa.binary()), bad


def _true_at(mask: pa.BooleanArray) -> list[int]:
    return np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)).tolist()


def _without(array: pa.Array, indices: list[int]) -> pa.Array:
    kept = np.ones(len(array), np.bool_)
    kept[indices] = False
    return pc.if_else(pa.array(kept), array, pa.scalar(None, array.type))
