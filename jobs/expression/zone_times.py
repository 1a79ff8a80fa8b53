"""Local times of named zones and the instants that they are, in every year.

Arrow's tables of zones end in 2037, and it cuts what a zone is ahead of UTC to whole minutes, which some zones were not
until 1972. Times outside those years are converted by the IANA database's own rules, each distinct one once.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from jobs.expression.values import RowFaults
from jobs.formats.columns.text_values import FIRST_MICROSECOND, LAST_MICROSECOND, MICROSECONDS_PER_DAY

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local times
_MICROSECOND, _SECOND = timedelta(microseconds=1), 1_000_000
_ARROW_FIRST, _ARROW_LAST = (
    (datetime(year, 1, 1) - _EPOCH) // _MICROSECOND  # noqa: DTZ001
    for year in (1973, 2037)
)


def local_times(instants: pa.Array, zone: str) -> pa.Array:
    """What clocks in a zone show, as timestamps without zone; at the ends of the calendar perhaps beyond it.

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
    """The instants at which clocks in a zone show some times.

    Args:
        local: Timestamps in microseconds, without zone.
        zone: A name of the IANA database.
        first: True to take the earlier instant of an ambiguous time, and the end of the gap for a time that does not
            exist. Otherwise such a row fails.

    Raises:
        RowFaults, pa.ArrowInvalid: Rows whose time the zone has twice or not at all.
    """
    known, kind = ZoneInfo(zone), pa.timestamp("us", "UTC")
    ambiguous, nonexistent = ("earliest", "latest") if first else ("raise", "raise")

    def by_arrow(times: pa.Array) -> pa.Array:
        return pc.cast(pc.assume_timezone(times, zone, ambiguous=ambiguous, nonexistent=nonexistent), kind)

    return _converted(local, kind, by_arrow, lambda at: _instant(known, at, first=first))


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
    """What a zone is ahead of UTC at an instant; all in microseconds."""
    return _offset(_moment(instant).replace(tzinfo=UTC).astimezone(zone))


def _instant(zone: ZoneInfo, local: int, *, first: bool) -> int:
    before, after = (_offset(_moment(local).replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    if before == after or (first and before > after):
        return local - before
    if not first:
        raise ValueError(f"the time {'is ambiguous' if before > after else 'does not exist'} in that zone")
    # Clocks go forward between these two, on a whole second.
    seconds = range((local - after) // _SECOND, (local - before) // _SECOND)
    return (seconds.start + bisect_left(seconds, after, key=lambda at: _ahead(zone, at * _SECOND))) * _SECOND


def _moment(micros: int) -> datetime:
    """Python's time, two days within the ends of the calendar, where no zone's clocks change."""
    inside = 2 * MICROSECONDS_PER_DAY
    return _EPOCH + max(FIRST_MICROSECOND + inside, min(micros, LAST_MICROSECOND - inside)) * _MICROSECOND


def _offset(moment: datetime) -> int:
    return (moment.utcoffset() or timedelta()) // _MICROSECOND
