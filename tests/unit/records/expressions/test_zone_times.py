"""Local times of zones: as the rules of the IANA database have them, in every year."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyiceberg import types as ice

from jobs.records.expressions.expression import compile_expression
from jobs.records.expressions.time_functions import instants_of, local_times

ZONES = [
    *("Europe/Berlin", "America/New_York", "Asia/Tokyo", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kathmandu"),
    *("America/Sao_Paulo", "America/Havana", "Africa/Monrovia", "Pacific/Apia", "UTC"),
]
DRAWN = random.Random(7)
MOMENTS = [
    *(datetime(1, 1, 3) + timedelta(seconds=DRAWN.randrange(9_996 * 31_556_952)) for _ in range(200)),
    *(datetime(year, 1, 1) + timedelta(seconds=DRAWN.randrange(31_536_000)) for year in range(1880, 2110)),
    *(datetime(1972, 12, 31, 23) + timedelta(minutes=30 * n) for n in range(6)),
    *(datetime(2036, 12, 31, 23) + timedelta(minutes=30 * n) for n in range(6)),
    *(datetime(2050, 3, 27) + timedelta(minutes=30 * n) for n in range(8)),
    *(datetime(2050, 10, 30) + timedelta(minutes=30 * n) for n in range(8)),
]


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # pyright: ignore[reportArgumentType]


def one_of(text: str, at: datetime) -> object:
    """What an expression gives for the column `at`; the message where it fails."""
    kind = ice.TimestamptzType() if at.tzinfo else ice.TimestampType()
    expression = compile_expression(text, [ice.NestedField(1, "at", kind)])
    arrow = pa.timestamp("us", "UTC" if at.tzinfo else None)
    found = expression.evaluate(pa.RecordBatch.from_arrays([pa.array([at], arrow)], ["at"]))
    return found.failures[0].message.rpartition(": ")[2] if found.failures else found.values[0].as_py()


@pytest.mark.parametrize("zone", ZONES)
def test_local_times_are_those_of_zoneinfo(zone: str) -> None:
    known = ZoneInfo(zone)
    expected = [at.replace(tzinfo=UTC).astimezone(known).replace(tzinfo=None) for at in MOMENTS]
    found = local_times(pa.array([*MOMENTS, None], pa.timestamp("us", "UTC")), zone)
    assert found.to_pylist() == [*expected, None]


@pytest.mark.parametrize("zone", ZONES)
def test_the_instant_of_a_local_time_is_that_of_zoneinfo(zone: str) -> None:
    known = ZoneInfo(zone)
    both = [[at.replace(tzinfo=known, fold=fold).astimezone(UTC) for fold in (0, 1)] for at in MOMENTS]
    certain = [(at, instants[0]) for at, instants in zip(MOMENTS, both, strict=True) if instants[0] == instants[1]]
    found = instants_of(pa.array([at for at, _ in certain], pa.timestamp("us")), zone)
    assert found.to_pylist() == [instant for _, instant in certain]
    first = instants_of(pa.array([*MOMENTS, None], pa.timestamp("us")), zone, first=True).to_pylist()
    assert first.pop() is None
    for at, (earlier, later), instant in zip(MOMENTS, both, first, strict=True):
        assert instant == earlier or (earlier > later and instant < earlier)
        # The first instant that shows the time, or a later one if clocks skip it.
        shown = [
            (instant + timedelta(seconds=step)).astimezone(known).replace(tzinfo=None, microsecond=0, fold=0)
            for step in (-1, 0)
        ]
        assert shown[0] < at.replace(microsecond=0) <= shown[1]


@pytest.mark.parametrize(
    ("text", "at", "becomes"),
    [
        ("at at time zone 'Europe/Berlin'", utc(2050, 6, 30, 22), datetime(2050, 7, 1)),
        ("at at time zone 'Europe/Berlin'", datetime(2050, 7, 1), utc(2050, 6, 30, 22)),
        ("at at time zone 'Europe/Berlin'", datetime(2026, 3, 29, 2, 30), "the time does not exist in that zone"),
        ("at at time zone 'Europe/Berlin'", datetime(2050, 3, 27, 2, 30), "the time does not exist in that zone"),
        ("at at time zone 'Europe/Berlin'", datetime(2026, 10, 25, 2, 30), "the time is ambiguous in that zone"),
        ("at at time zone 'Europe/Berlin'", datetime(2050, 10, 30, 2, 30), "the time is ambiguous in that zone"),
        ("at at time zone 'Asia/Tokyo'", utc(9999, 12, 31, 15), "the time is beyond the years 0001 to 9999"),
        ("at at time zone 'Asia/Tokyo'", datetime(1, 1, 1, 8), "the time is beyond the years 0001 to 9999"),
        ("date_trunc('month', at, 'Europe/Berlin')", utc(2050, 6, 30, 22), utc(2050, 6, 30, 22)),
        ("date_trunc('day', at, 'Europe/Berlin')", utc(9999, 7, 3, 22, 30), utc(9999, 7, 3, 22)),
        ("date_trunc('hour', at, 'Asia/Kolkata')", utc(2050, 1, 1, 1), utc(2050, 1, 1, 0, 30)),
        # An hour that clocks show twice begins at the earlier instant; a minute in it stays where it is.
        ("date_trunc('hour', at, 'Europe/Berlin')", utc(2026, 10, 25, 0, 30), utc(2026, 10, 25)),
        ("date_trunc('hour', at, 'Europe/Berlin')", utc(2026, 10, 25, 1, 30), utc(2026, 10, 25)),
        ("date_trunc('hour', at, 'Europe/Berlin')", utc(2050, 10, 30, 1, 30), utc(2050, 10, 30)),
        ("date_trunc('minute', at, 'Europe/Berlin')", utc(2026, 10, 25, 1, 30, 9), utc(2026, 10, 25, 1, 30)),
        ("date_trunc('second', at, 'Europe/Berlin')", utc(2050, 10, 30, 1, 30, 9, 5), utc(2050, 10, 30, 1, 30, 9)),
        # Days whose midnight clocks skip begin behind the gap, and with two midnights at the earlier one.
        ("date_trunc('day', at, 'America/Sao_Paulo')", utc(2018, 11, 4, 20), utc(2018, 11, 4, 3)),
        ("date_trunc('day', at, 'America/Toronto')", utc(1919, 3, 31, 20), utc(1919, 3, 31, 4, 30)),
        ("date_trunc('day', at, 'America/Havana')", utc(2026, 11, 1, 5, 30), utc(2026, 11, 1, 4)),
        ("date_trunc('month', at, 'America/Havana')", utc(2026, 11, 20), utc(2026, 11, 1, 4)),
    ],
)
def test_zones_have_their_rules_in_every_year(text: str, at: datetime, becomes: object) -> None:
    assert one_of(text, at) == becomes
