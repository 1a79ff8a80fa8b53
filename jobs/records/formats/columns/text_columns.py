"""Text columns: decimals, dates and times converted a column at a time; doubtful texts are converted one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.records.formats.columns import text_values
from jobs.records.formats.interface.problems import OUT_OF_RANGE, BadValue, ValueProblem
from jobs.records.schema.arrow_schema import arrow_type
from jobs.records.schema.declared import Primitive

Leaf = tuple[pa.Array, list[BadValue]]
"""The array, null where a value was refused, and the refused values in ascending order."""

_MONTH_AND_DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_DAY = rf"[0-9]{{4}}-{_MONTH_AND_DAY}"
_TIME = r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
_ZONE = r"(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)"

# Texts that the bulk casts certainly read correctly; jobs.records.formats.columns.text_values reads the rest,
# including 29 February.
_CERTAIN = {"date": rf"^{_DAY}$", "timestamp": rf"^{_DAY}{_TIME}$", "timestamptz": rf"^{_DAY}{_TIME}{_ZONE}$"}
# Converting fewer texts is cheaper than preparing a pattern.
_SHORT = 32


def decimals(declared: Primitive, text: pa.StringArray) -> Leaf:
    """Convert texts of JSON numbers to decimals."""
    target = arrow_type(declared)
    precision, scale = target.precision, target.scale
    # Arrow's own cast is not enough: beyond 38 digits it may wrap around silently ("1." and 41 zeros is 0.00).
    whole = f"[0-9]{{1,{precision - scale}}}" if precision > scale else "0"
    fraction = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""

    def one(value: str) -> Decimal:
        sign, digits, exponent = Decimal(text_values.exact_decimal(value, precision, scale)).as_tuple()
        return Decimal((sign, digits, int(exponent) - scale))

    return certain_or_one_by_one(text, f"^-?{whole}{fraction}$", target, one, target)


def iso_dates(declared: Primitive, text: pa.StringArray) -> Leaf:
    """Convert ISO 8601 texts to dates."""
    return _certain_or_exact(declared, text, text_values.exact_date, pa.int32())


def iso_timestamps(declared: Primitive, text: pa.StringArray, *, zoned: bool) -> Leaf:
    """Convert ISO 8601 texts to timestamps."""
    return _certain_or_exact(declared, text, lambda value: text_values.exact_timestamp(value, zoned=zoned), pa.int64())


def _certain_or_exact(
    declared: Primitive, text: pa.StringArray, one: Callable[[str], int], storage: pa.DataType
) -> Leaf:
    first, last = (
        (text_values.FIRST_DAY, text_values.LAST_DAY)
        if storage == pa.int32()
        else (text_values.FIRST_MICROSECOND, text_values.LAST_MICROSECOND)
    )
    target = arrow_type(declared)
    array, bad = _by_layout(declared, text, one, storage) or certain_or_one_by_one(
        text, _CERTAIN[declared.name], target, one, storage
    )
    # Refuse the year 0000, and times that a zone moves beyond the ends of the calendar.
    numbers = array.view(storage)
    extremes = pc.min_max(numbers)
    if (lowest := extremes["min"].as_py()) is None or (lowest >= first and extremes["max"].as_py() <= last):
        return array, bad
    outside = true_at(pc.or_(pc.less(numbers, first), pc.greater(numbers, last)))
    message = f"needs {declared} in the years 0001 to 9999, found {{}}"
    bad += [BadValue(index, OUT_OF_RANGE, message.format(repr(text[index].as_py()))) for index in outside]
    return without(array, outside), sorted(bad, key=lambda value: value.index)


def certain_or_one_by_one(
    text: pa.StringArray, certain: str, target: pa.DataType, one: Callable[[str], Any], storage: pa.DataType
) -> Leaf:
    """Casts the texts that match the pattern at once, and converts the others by `one` (a value of type storage)."""
    if len(text) <= _SHORT:
        return one_by_one(text.to_pylist(), target, one, storage)
    matches = pc.match_substring_regex(text, certain)
    if pc.all(matches).as_py() is not False:
        return pc.cast(text, target), []
    doubtful = pc.fill_null(pc.invert(matches), False)
    indices = true_at(doubtful)
    found, refused = one_by_one(text.filter(doubtful).to_pylist(), target, one, storage)
    array = pc.cast(pc.if_else(matches, text, pa.scalar(None, pa.string())), target)
    bad = [BadValue(indices[each.index], each.error_class, each.message) for each in refused]
    return pc.replace_with_mask(array, doubtful, found), bad


def one_by_one(
    texts: Sequence[str | None], target: pa.DataType, one: Callable[[str], Any], storage: pa.DataType
) -> Leaf:
    """Converts texts by `one`, which returns a value of type storage."""
    bad: list[BadValue] = []
    found: list[Any] = []
    for index, text in enumerate(texts):
        try:
            found.append(None if text is None else one(text))
        except ValueProblem as problem:
            found.append(None)
            bad.append(BadValue(index, problem.error_class, problem.message))
    return pa.array(found, storage).cast(target), bad


def _by_layout(
    declared: Primitive, text: pa.StringArray, one: Callable[[str], Any], storage: pa.DataType
) -> Leaf | None:
    """Casts texts with the layout for the first text's length, ten times as fast as with the pattern.

    Returns:
        None if many texts have another layout, or the cast refuses a text of that layout as no date or time.
    """
    _, offsets, data = text.buffers()
    if len(text) <= _SHORT or text.null_count or data is None:
        return None
    bounds = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1]
    layout = LAYOUTS[declared.name].get(int(bounds[1] - bounds[0]))
    if layout is None:
        return None
    fit = np.diff(bounds) == len(layout)
    same = text if fit.all() else text.filter(pa.array(fit))
    if 4 * len(same) < 3 * len(text) or not looks_like(same, layout):
        return None
    try:
        array = pc.cast(same, arrow_type(declared))
    except pa.ArrowInvalid:
        return None
    if len(same) == len(text):
        return array, []
    others = np.flatnonzero(~fit)
    rest, bad = certain_or_one_by_one(
        text.take(pa.array(others)), _CERTAIN[declared.name], arrow_type(declared), one, storage
    )
    take = np.empty(len(text), np.int64)
    take[fit] = np.arange(len(same))
    take[others] = np.arange(len(same), len(text))
    refused = [BadValue(int(others[each.index]), each.error_class, each.message) for each in bad]
    return pa.concat_arrays([array, rest]).take(pa.array(take)), refused


def true_at(mask: pa.BooleanArray) -> list[int]:
    """Return the indices where a mask is true."""
    return np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)).tolist()


def without(array: pa.Array, indices: list[int]) -> pa.Array:
    """Return the column with null at these indices."""
    kept = np.ones(len(array), np.bool_)
    kept[indices] = False
    return pc.if_else(pa.array(kept), array, pa.scalar(None, array.type))


_SECONDS = "0000-00-00T00:00:00"
_FRACTIONS = ("", *(f".{'0' * digits}" for digits in range(1, 7)))
# Layouts of usual texts of one length; 0 is any digit. The bulk casts refuse texts that are no date or time.
LAYOUTS = {
    "date": {10: "0000-00-00"},
    "timestamp": {len(_SECONDS + end): _SECONDS + end for end in _FRACTIONS},
    "timestamptz": {len(_SECONDS + end) + 1: _SECONDS + end + "Z" for end in _FRACTIONS},
}
"""Layouts by the name of the type and the length of the text."""


def looks_like(text: pa.StringArray, layout: str) -> bool:
    """Whether all texts, which are as long as the layout, have its separators and digits."""
    _, offsets, data = text.buffers()
    size = len(text) * len(layout)
    lowest, span = _repeated(layout, 1 << (len(text) - 1).bit_length())
    first = int(np.frombuffer(offsets, np.int32)[text.offset])
    return bool((np.frombuffer(data, np.uint8, size, first) - lowest[:size] <= span[:size]).all())


@lru_cache(maxsize=16)
def _repeated(layout: str, times: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return the lowest byte at each position, and how far above it a byte may be."""
    lowest = np.frombuffer(layout.encode(), np.uint8)
    return np.tile(lowest, times), np.tile(np.where(lowest == ord("0"), 9, 0).astype(np.uint8), times)
