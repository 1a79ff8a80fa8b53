"""Functions of times, and conversions between local times of named zones and instants, in every year.

Arrow's time-zone tables end in 2037, and it truncates UTC offsets to minutes, which some zones did not use until 1972.
Times outside of these years are converted by the rules of the IANA database, each distinct time once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.expressions.calls import (
    Function,
    call,
    constant,
    function,
)
from jobs.records.expressions.casts import checked, coerced
from jobs.records.expressions.nodes import Node
from jobs.records.expressions.parser import MICROS
from jobs.records.expressions.problem import Mismatch
from jobs.records.expressions.sql_types import (
    DATE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    is_integer,
    name_of,
)
from jobs.records.expressions.values import Kernel, RowFaults
from jobs.records.formats.columns.pattern_times import pattern_times
from jobs.records.formats.columns.text_values import (
    BEYOND_YEARS,
    FIRST_DAY,
    FIRST_MICROSECOND,
    LAST_DAY,
    LAST_MICROSECOND,
    MICROSECONDS_PER_DAY,
    beyond_years,
)
from jobs.records.schema.declared import Primitive
from jobs.records.schema.time_patterns import (
    TimeTexts,
    known_zone,
    parse_pattern,
    zone_problem,
)

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local times
_MICROSECOND, _SECOND = timedelta(microseconds=1), 1_000_000
_ARROW_FIRST, _ARROW_LAST = (
    (datetime(year, 1, 1) - _EPOCH) // _MICROSECOND  # noqa: DTZ001
    for year in (1973, 2037)
)


def local_times(instants: pa.Array, zone: str) -> pa.Array:
    """Convert instants to local times of a zone. At the ends of the calendar, results may be beyond it.

    Args:
        instants: Timestamps in microseconds, with a zone.
        zone: A name of the IANA database.
    """
    if zone == "UTC":
        return pc.cast(instants, pa.timestamp("us"))
    known = ZoneInfo(zone)

    def by_arrow(times: pa.Array) -> pa.Array:
        return pc.local_timestamp(pc.cast(times, pa.timestamp("us", zone)))

    return _converted(instants, pa.timestamp("us"), by_arrow, lambda at: at + _ahead(known, at))


def instants_of(local: pa.Array, zone: str, *, first: bool = False) -> pa.Array:
    """Convert local times of a zone to instants.

    Args:
        local: Timestamps in microseconds, without zone.
        zone: A name of the IANA database.
        first: True to take the earlier instant of an ambiguous time, and the end of the gap for a time that does not
            exist. Otherwise such a row fails.

    Raises:
        RowFaults, pa.ArrowInvalid: Some times are ambiguous or do not exist in the zone.
    """
    known, kind = ZoneInfo(zone), pa.timestamp("us", "UTC")
    ambiguous, nonexistent = ("earliest", "latest") if first else ("raise", "raise")

    def by_arrow(times: pa.Array) -> pa.Array:
        return pc.cast(pc.assume_timezone(times, zone, ambiguous=ambiguous, nonexistent=nonexistent), kind)

    return _converted(local, kind, by_arrow, lambda at: _zone_instant(known, at, first=first))


def _converted(
    times: pa.Array, kind: pa.DataType, by_arrow: Callable[[pa.Array], pa.Array], one: Callable[[int], int]
) -> pa.Array:
    micros = pc.cast(times, pa.int64())
    usual = pc.and_(pc.greater_equal(micros, _ARROW_FIRST), pc.less(micros, _ARROW_LAST))
    if pc.all(usual, min_count=0).as_py():
        return by_arrow(times)
    rest = pc.dictionary_encode(pc.if_else(usual, pa.scalar(None, pa.int64()), micros))
    made: list[int | None] = []
    faults: dict[int, str] = {}
    for code, each in enumerate(rest.dictionary.to_pylist()):
        try:
            made.append(one(each))
        except ValueError as problem:
            made.append(None)
            faults[code] = str(problem)
    if faults:
        codes = enumerate(rest.indices.to_pylist())
        raise RowFaults({row: faults[code] for row, code in codes if code in faults})
    found = by_arrow(pc.if_else(usual, times, pa.scalar(None, times.type)))
    return pc.coalesce(found, pa.array(made, pa.int64()).take(rest.indices).cast(kind))


def _ahead(zone: ZoneInfo, instant: int) -> int:
    """Return the UTC offset of a zone at an instant; both in microseconds."""
    return _offset(_moment(instant).replace(tzinfo=UTC).astimezone(zone))


def _zone_instant(zone: ZoneInfo, local: int, *, first: bool) -> int:
    before, after = (_offset(_moment(local).replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    if before == after or (first and before > after):
        return local - before
    if not first:
        raise ValueError(f"the time {'is ambiguous' if before > after else 'does not exist'} in that zone")
    # Clocks go forward between these two instants, at a whole second.
    seconds = range((local - after) // _SECOND, (local - before) // _SECOND)
    return (seconds.start + bisect_left(seconds, after, key=lambda at: _ahead(zone, at * _SECOND))) * _SECOND


def _moment(micros: int) -> datetime:
    """Convert to Python's datetime, at least two days within the ends of the calendar, where no clocks change."""
    inside = 2 * MICROSECONDS_PER_DAY
    return _EPOCH + max(FIRST_MICROSECOND + inside, min(micros, LAST_MICROSECOND - inside)) * _MICROSECOND


def _offset(moment: datetime) -> int:
    return (moment.utcoffset() or timedelta()) // _MICROSECOND


_PARTS: dict[str, tuple[Kernel, dict[str, object]]] = {
    "year": (pc.year, {}),
    "quarter": (pc.quarter, {}),
    "month": (pc.month, {}),
    "week": (pc.iso_week, {}),
    "day": (pc.day, {}),
    "dow": (pc.day_of_week, {"count_from_zero": True, "week_start": 7}),
    "isodow": (pc.day_of_week, {"count_from_zero": False, "week_start": 1}),
    "doy": (pc.day_of_year, {}),
    "hour": (pc.hour, {}),
    "minute": (pc.minute, {}),
    "second": (pc.second, {}),
}
_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}
_Time = (ice.DateType, ice.TimestampType, ice.TimestamptzType)


def shifted(node: Node, months: int, micros: int, expression: str) -> Node:
    """Return a date or timestamp plus an interval; a day beyond its month's end becomes the last day of the month.

    Raises:
        Mismatch: The node is neither date nor timestamp, or it is a date and the interval has hours.
    """
    kind = node.type
    if not isinstance(kind, _Time):
        raise Mismatch(f"an interval is added to a date or a timestamp, found {name_of(kind)}")
    day = MICROS["day"]
    if isinstance(kind, ice.DateType) and micros % day:
        raise Mismatch("a date has no hours; cast it to timestamp first")
    if months:
        node = call(partial(_add_months, months), [node], kind, expression)
    if micros:
        kernel = partial(_add_days, micros // day) if isinstance(kind, ice.DateType) else partial(_add_micros, micros)
        node = call(kernel, [node], kind, expression)
    return node


def days_between(left: Node, right: Node, expression: str) -> Node:
    """Return the number of days between two dates."""
    return call(_days, [left, right], INT, expression)


def at_zone(node: Node, zone: Node, expression: str) -> Node:
    """Return a timestamptz as local time of a zone, or a local time of a zone as timestamptz.

    Raises:
        Mismatch: The node is no timestamp, or the zone does not exist.
    """
    name = _zone(zone)
    if isinstance(node.type, ice.TimestamptzType):
        return call(partial(_local, name), [node], TIMESTAMP, expression)
    if isinstance(node.type, (ice.TimestampType, ice.DateType)):
        return call(partial(_instant, name), [coerced(node, TIMESTAMP, expression)], TIMESTAMPTZ, expression)
    raise Mismatch(f"AT TIME ZONE needs a timestamp, found {name_of(node.type)}")


def _zone(node: Node) -> str:
    name = constant(node, "a zone such as 'Asia/Tokyo'")
    if not isinstance(name, str) or known_zone(name) is None:
        raise Mismatch(f"there is no zone {name!r}; zones are named as in Asia/Tokyo or UTC")
    return name


def _unit(node: Node, known: Sequence[str]) -> str:
    unit = str(constant(node, f"one of {', '.join(known)}")).lower()
    unit = unit.removesuffix("s") if unit.removesuffix("s") in known else unit
    if unit not in known:
        raise Mismatch(f"'{unit}' is none of {', '.join(known)}")
    return unit


def _time(node: Node) -> Node:
    if not isinstance(node.type, _Time):
        raise Mismatch(f"needs a date or a timestamp, found {name_of(node.type)}")
    return node


def _local(zone: str, times: pa.Array) -> pa.Array:
    return _bounded(local_times(times, zone))


def _instant(zone: str, times: pa.Array) -> pa.Array:
    return _bounded(instants_of(times, zone))


def _truncate(arguments: Sequence[Node], expression: str) -> Node:
    node = _time(arguments[1])
    if isinstance(node.type, ice.DateType):
        unit = _unit(arguments[0], _UNITS[:5])
        return call(partial(_beginning_of_date, unit), [node], DATE, expression)
    unit = _unit(arguments[0], _UNITS)
    zone = None
    if len(arguments) > 2:
        zone = _zone(arguments[2])
        if not isinstance(node.type, ice.TimestamptzType):
            raise Mismatch("a timestamp without zone has no beginning in another zone")
    return call(partial(_beginning, unit, zone), [node], node.type, expression)


def _beginning(unit: str, zone: str | None, times: pa.Array) -> pa.Array:
    """Truncate times to a unit, in a zone to its local unit; units below an hour to the last begin before the time."""
    if zone is None or zone == "UTC":
        return _bounded(_floored(unit, times))
    local = local_times(times, zone)
    begun = _floored(unit, local)
    if unit in ("minute", "second", "millisecond"):
        since = pc.subtract(pc.cast(local, pa.int64()), pc.cast(begun, pa.int64()))
        return _bounded(pc.cast(pc.subtract(pc.cast(times, pa.int64()), since), times.type))
    return _bounded(instants_of(begun, zone, first=True))


def _floored(unit: str, times: pa.Array) -> pa.Array:
    if unit not in MICROS or unit == "week":
        return pc.floor_temporal(times, unit=unit)
    # A unit of fixed length needs only integers.
    length = pa.scalar(MICROS[unit], pa.int64())
    return pc.cast(pc.multiply(_floor_div(pc.cast(times, pa.int64()), MICROS[unit]), length), times.type)


def _beginning_of_date(unit: str, dates: pa.Array) -> pa.Array:
    found = pc.floor_temporal(pc.cast(dates, pa.timestamp("us")), unit=unit)
    return pc.cast(_bounded(found), pa.date32())


def _part(arguments: Sequence[Node], expression: str) -> Node:
    unit, node = _unit(arguments[0], (*_PARTS, "epoch")), _time(arguments[1])
    if unit == "epoch":
        if not isinstance(node.type, ice.TimestamptzType):
            raise Mismatch("only a timestamptz has seconds since the epoch; say the zone by AT TIME ZONE")
        return call(partial(_epoch, "s"), [node], LONG, expression)
    if isinstance(node.type, ice.DateType) and unit in ("hour", "minute", "second"):
        raise Mismatch(f"a date has no {unit}")
    return call(partial(_part_of, unit), [node], INT, expression)


def _part_of(unit: str, times: pa.Array) -> pa.Array:
    kernel, options = _PARTS[unit]
    return pc.cast(kernel(times, **options), pa.int32())


def _to_epoch(arguments: Sequence[Node], expression: str) -> Node:
    unit = _unit(arguments[0], tuple(_PER_SECOND))
    if not isinstance(arguments[1].type, ice.TimestamptzType):
        raise Mismatch(f"needs a timestamptz, found {name_of(arguments[1].type)}")
    return call(partial(_epoch, unit), [arguments[1]], LONG, expression)


def _epoch(unit: str, times: pa.Array) -> pa.Array:
    micros, per = pc.cast(times, pa.int64()), 1_000_000 // _PER_SECOND[unit]
    return micros if per == 1 else _floor_div(micros, per)


def _floor_div(numbers: pa.Array, divisor: int) -> pa.Array:
    quotient = pc.divide(numbers, pa.scalar(divisor, pa.int64()))
    below = pc.greater(pc.multiply(quotient, pa.scalar(divisor, pa.int64())), numbers)
    return pc.subtract(quotient, pc.cast(below, pa.int64()))


def _from_epoch(arguments: Sequence[Node], expression: str) -> Node:
    unit = _unit(arguments[0], tuple(_PER_SECOND))
    if not is_integer(arguments[1].type):
        raise Mismatch(f"needs a whole number, found {name_of(arguments[1].type)}")
    kernel = partial(_instant_of, 1_000_000 // _PER_SECOND[unit])
    return call(kernel, [coerced(arguments[1], LONG, expression)], TIMESTAMPTZ, expression, why=BEYOND_YEARS)


def _instant_of(per: int, numbers: pa.Array) -> pa.Array:
    micros = pc.multiply_checked(numbers, pa.scalar(per, pa.int64()))
    return _bounded(pc.cast(micros, pa.timestamp("us", "UTC")))


def _difference(arguments: Sequence[Node], expression: str) -> Node:
    unit = _unit(arguments[0], tuple(MICROS))
    first, second = (_time(each) for each in arguments[1:])
    if isinstance(first.type, ice.TimestamptzType) != isinstance(second.type, ice.TimestamptzType):
        raise Mismatch("needs two timestamps with a zone, or two without; say the zone by AT TIME ZONE")
    kind = first.type if isinstance(first.type, ice.TimestamptzType) else TIMESTAMP
    sides = [coerced(each, kind, expression) for each in (first, second)]
    return call(partial(_units_between, MICROS[unit]), sides, LONG, expression)


def _units_between(per: int, first: pa.Array, second: pa.Array) -> pa.Array:
    micros = pc.subtract_checked(pc.cast(second, pa.int64()), pc.cast(first, pa.int64()))
    return pc.divide(micros, pa.scalar(per, pa.int64()))


def _days(left: pa.Array, right: pa.Array) -> pa.Array:
    return pc.subtract_checked(pc.cast(left, pa.int32()), pc.cast(right, pa.int32()))


def _add_days(days: int, dates: pa.Array) -> pa.Array:
    moved = pc.add_checked(pc.cast(pc.cast(dates, pa.int32()), pa.int64()), pa.scalar(days, pa.int64()))
    beyond = pc.or_(pc.less(moved, FIRST_DAY), pc.greater(moved, LAST_DAY))
    inside = pc.if_else(beyond, pa.scalar(None, pa.int64()), moved)
    return checked(pc.cast(pc.cast(inside, pa.int32()), pa.date32()), beyond, BEYOND_YEARS)


def _add_micros(micros: int, times: pa.Array) -> pa.Array:
    moved = pc.add_checked(pc.cast(times, pa.int64()), pa.scalar(micros, pa.int64()))
    return _bounded(pc.cast(moved, times.type))


def _add_months(months: int, times: pa.Array) -> pa.Array:
    """Add months to times, in UTC."""
    day = MICROS["day"]
    is_date = pa.types.is_date(times.type)
    wide = pc.cast(pc.cast(times, pa.timestamp("us")) if is_date else times, pa.int64())
    micros = pc.fill_null(wide, 0).to_numpy()
    days = np.floor_divide(micros, day)
    month = days.astype("datetime64[D]").astype("datetime64[M]")
    of_month = days - month.astype("datetime64[D]").astype(np.int64)
    target = month + np.timedelta64(months, "M")
    first = target.astype("datetime64[D]").astype(np.int64)
    length = (target + np.timedelta64(1, "M")).astype("datetime64[D]").astype(np.int64) - first
    moved = (first + np.minimum(of_month, length - 1)) * day + (micros - days * day)
    array = pa.array(moved, pa.int64(), mask=times.is_null().to_numpy(zero_copy_only=False))
    kind = pa.timestamp("us") if is_date else times.type
    bounded = _bounded(pc.cast(array, kind))
    return pc.cast(bounded, times.type)


def _bounded(times: pa.Array) -> pa.Array:
    """Return the times; raise if one is beyond the years that frazil reads."""
    return checked(times, beyond_years(times), BEYOND_YEARS)


def _parse(arguments: Sequence[Node], expression: str) -> Node:
    pattern = str(constant(arguments[1], "a pattern such as 'yyyy-MM-dd HH:mm:ss'"))
    zone = _zone(arguments[2]) if len(arguments) > 2 else None
    try:
        form = parse_pattern(pattern, "timestamptz")
    except ValueError as problem:
        raise Mismatch(str(problem)) from None
    kind = TIMESTAMPTZ if zone or form.zoned else TIMESTAMP
    texts = TimeTexts((form,), zone)
    if problem := zone_problem(texts, str(kind)):
        raise Mismatch(problem)
    declared = Primitive(str(kind), encoding="pattern", texts=texts)
    return call(partial(_parsed, declared), [coerced(arguments[0], STRING, expression)], kind, expression)


def _parsed(declared: Primitive, texts: pa.Array) -> pa.Array:
    array, bad = pattern_times(declared, texts)
    if bad:
        raise RowFaults({each.index: each.message for each in bad})
    return array


FUNCTIONS: tuple[Function, ...] = (
    function("date_trunc(unit, time [, zone])", "the beginning of its year, quarter, month, week (Monday), day, …",
             _truncate),
    function("date_part(unit, time)", "its year, quarter, month, week, day, dow (Sunday is 0), isodow, doy, hour, …",
             _part),
    function("date_diff(unit, from, to)", "whole weeks, days, hours, … from one to the other, towards zero",
             _difference),
    function("from_epoch(unit, number)", "the instant so many s, ms or us after 1970", _from_epoch),
    function("to_epoch(unit, time)", "whole s, ms or us from 1970 to an instant, rounded down", _to_epoch),
    function("parse_timestamp(text, pattern [, zone])", "a text by a pattern with Java's letters", _parse),
)  # fmt: skip
