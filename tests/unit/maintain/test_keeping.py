"""Up to when snapshots go: by age and number, and never what a reader, a stream or the ledger still needs."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadata

from jobs.commit.offsets import TopicPartition
from jobs.commit.stamps import Stamp, property_key
from jobs.errors import FrazilError
from jobs.maintain.keeping import (
    CEILING,
    Hold,
    StampsNotKeptError,
    cut,
    readers,
    refuse_unless_stamps_are_kept,
    streams_of,
    time_of,
)
from jobs.spec.policy import Expire
from tests.unit.maintain.metadata_world import HOUR, NAME, NOW, hourly, table

P0 = TopicPartition("t", 0)


def stamp(at: int, sequence: int, stream: str = "s") -> Stamp:
    return Stamp(stream, "batch", 0, 1, "c", start={P0: 0}, position={P0: at}, sequence=sequence)


def going(metadata: TableMetadata, policy: Expire, *holds: Hold) -> int:
    return cut(metadata, policy, holds, NOW, NAME).going


def test_what_is_older_goes_but_for_so_many() -> None:
    metadata = table(hourly(48))
    # The one that is 24 h old to the second stays.
    assert going(metadata, Expire(min_snapshots=1)) == 48 - 25
    assert going(metadata, Expire(min_snapshots=40)) == 8
    assert going(table(hourly(20)), Expire(min_snapshots=1)) == 0


def test_the_number_wins_over_the_age() -> None:
    assert going(table(hourly(48)), Expire(min_snapshots=1, max_snapshots=10)) == 38


def test_what_time_travel_promises_wins_over_the_number() -> None:
    policy = Expire(min_snapshots=1, max_snapshots=3, time_travel=timedelta(minutes=270))
    found = cut(table(hourly(48)), policy, (), NOW, NAME)
    # Five hours: half past seven is answered by the snapshot of seven.
    assert (found.staying, [hold.what for hold in found.holds]) == (6, ["expire.time_travel"])


def test_a_hold_keeps_everything_from_its_instant_on() -> None:
    metadata = table(hourly(48))
    hold = Hold("reader a", NOW - HOUR * 30, "because")
    found = cut(metadata, Expire(min_snapshots=1, max_snapshots=5), [hold], NOW, NAME)
    assert (found.going, found.staying, found.holds) == (17, 31, (hold,))
    assert cut(metadata, Expire(min_snapshots=1), [Hold("reader b", NOW, "")], NOW, NAME).holds == ()


@given(
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(1, 60),
    st.lists(st.integers(0, 80), max_size=3),
)
def test_nothing_that_is_held_goes_and_never_one_from_the_middle(
    count: int, most: int, least: int, held: list[int]
) -> None:
    metadata = table(hourly(count))
    holds = [Hold("x", NOW - HOUR * age, "") for age in held]
    found = cut(metadata, Expire(min_snapshots=least, max_snapshots=most), holds, NOW, NAME)
    newest_first = sorted(metadata.snapshots, key=lambda each: -each.timestamp_ms)
    stay = newest_first[: found.staying]
    assert found.staying >= min(count, least)
    assert all(time_of(each) in {time_of(one) for one in stay} or time_of(each) < found.older_than for each in stay)
    assert all(time_of(each) < min([NOW, *(hold.since for hold in holds)]) for each in newest_first[found.staying :])
    if not holds:
        assert found.staying <= max(most, least)


def test_a_limit_of_mains_own_that_takes_what_is_held_is_refused() -> None:
    refs = {"main": {"snapshot-id": 48, "type": "branch", "max-snapshot-age-ms": 3_600_000}}
    metadata = table(hourly(48), refs=refs)
    assert going(metadata, Expire(min_snapshots=1)) == 46
    with pytest.raises(FrazilError, match=r"age limit of its own.*needed by reader a.*Nothing expired"):
        cut(metadata, Expire(), [Hold("reader a", NOW - HOUR * 2, "")], NOW, NAME)


@pytest.mark.parametrize(
    ("text", "since", "warns"),
    [
        ("30", NOW - HOUR * 18, False),
        ("999", NOW, True),
        ("2026-03-10T10:00:00Z", NOW - HOUR * 2, False),
        # Between two snapshots: the one before was the newest then.
        ("2026-03-10T10:30:00+00:00", NOW - HOUR * 2, False),
        ("2026-03-10T10:00:00", NOW - HOUR * 2, False),
        ("yesterday", NOW - CEILING, True),
        ("2026-01-01", NOW - CEILING, True),
    ],
)
def test_readers_register_in_the_tables_properties(text: str, since: datetime, warns: bool) -> None:
    metadata = table(hourly(48), properties={"frazil.reader.dashboards": text, "other": "1"})
    (hold,) = readers(metadata, NOW)
    assert (hold.what, hold.since, hold.warn) == ("reader dashboards", since, warns)


def test_streams_are_found_by_property_and_by_snapshot() -> None:
    metadata = table(
        hourly(3), properties={property_key("a"): stamp(1, 1, "a").to_json()}, stamps={2: stamp(1, 2, "b")}
    )
    assert streams_of(metadata) == ["a", "b"]


def test_the_property_has_to_be_the_newest_stamp() -> None:
    newest, older = stamp(9, 3), stamp(5, 2)
    stamps = {2: older, 3: newest}
    refuse_unless_stamps_are_kept(
        table(hourly(4), stamps=stamps, properties={property_key("s"): newest.to_json()}), NAME
    )
    # Nothing but what came after it is left: the property is all there is.
    refuse_unless_stamps_are_kept(table(hourly(4), properties={property_key("s"): stamp(9, 0).to_json()}), NAME)
    for properties in ({}, {property_key("s"): older.to_json()}):
        with pytest.raises(StampsNotKeptError, match="is not the newest stamp of stream s"):
            refuse_unless_stamps_are_kept(table(hourly(4), stamps=stamps, properties=properties), NAME)


@pytest.mark.parametrize(
    ("stream", "command"), [("s", "frazil accept s --rollback"), ("s~replay", "frazil letters s --after-rollback")]
)
def test_what_tells_of_a_rollback_stays_until_it_is_answered(stream: str, command: str) -> None:
    stamps = {2: stamp(5, 2, stream), 3: stamp(9, 3, stream)}
    properties = {property_key(stream): stamps[3].to_json()}
    with pytest.raises(StampsNotKeptError, match="was rolled back") as refused:
        refuse_unless_stamps_are_kept(table(hourly(4), stamps=stamps, properties=properties, head=2), NAME)
    assert command in (refused.value.fix or "")


def test_a_stamp_of_another_version_is_refused() -> None:
    with pytest.raises(StampsNotKeptError, match="cannot be read"):
        refuse_unless_stamps_are_kept(table(hourly(1), properties={property_key("s"): '{"v":9}'}), NAME)
