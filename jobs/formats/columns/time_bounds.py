"""Bounds of dates and timestamps: the years 0001 to 9999 in UTC, beyond which Python has no values."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from jobs.formats.columns.text_values import FIRST_DAY, FIRST_MICROSECOND, LAST_DAY, LAST_MICROSECOND
from jobs.formats.problems import OUT_OF_RANGE, ValueProblem

BEYOND_YEARS = "the time is beyond the years 0001 to 9999"
_MICROS_PER = {"s": 1_000_000, "ms": 1_000, "us": 1}


def beyond_years(times: pa.Array) -> pa.BooleanArray:
    """Which dates or timestamps are beyond the years 0001 to 9999; false where there is none."""
    if pa.types.is_date32(times.type):
        numbers, first, last = times.cast(pa.int32()), FIRST_DAY, LAST_DAY
    elif (per := _MICROS_PER.get(times.type.unit)) is not None:
        numbers, first, last = times.cast(pa.int64()), FIRST_MICROSECOND // per, LAST_MICROSECOND // per
    else:
        # 64 bits of nanoseconds end in the year 2262.
        return pa.repeat(pa.scalar(False), len(times))
    return pc.fill_null(pc.or_(pc.less(numbers, first), pc.greater(numbers, last)), False)


def within_years(times: pa.Array) -> pa.Array:
    """The dates or timestamps, null beyond the years 0001 to 9999."""
    return pc.if_else(beyond_years(times), pa.scalar(None, times.type), times)


def refuse_beyond_years(values: pa.Array, path: str) -> None:
    """Refuse dates and timestamps beyond the years 0001 to 9999, also within structs, lists and maps.

    Args:
        path: The JSON path of the values.

    Raises:
        ValueProblem: One is beyond them.
    """
    kind = values.type
    if not _has_time(kind):
        return
    if pa.types.is_struct(kind):
        # Unlike the bare fields, null where the struct is.
        for field, child in zip(kind, values.flatten(), strict=True):
            refuse_beyond_years(child, f"{path}.{field.name}")
    elif pa.types.is_map(kind):
        start, stop = values.offsets[0].as_py(), values.offsets[-1].as_py()
        refuse_beyond_years(values.keys[start:stop], f"{path}.key")
        refuse_beyond_years(values.items[start:stop], f"{path}.value")
    elif pa.types.is_nested(kind):
        refuse_beyond_years(values.flatten(), f"{path}[]")
    elif pc.any(beyond_years(values), min_count=0).as_py():
        raise ValueProblem(OUT_OF_RANGE, "needs a time in the years 0001 to 9999, found one beyond", path)


@lru_cache(maxsize=1024)
def _has_time(kind: pa.DataType) -> bool:
    """Whether there is a date or a timestamp in a type."""
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return True
    return pa.types.is_nested(kind) and any(_has_time(kind.field(index).type) for index in range(kind.num_fields))
