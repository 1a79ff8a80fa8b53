"""Up to when snapshots go: by age and number, as Iceberg goes along branches, and never what somebody holds."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType

from jobs.base.errors import FrazilError
from jobs.config.services.maintenance_policy import Expire
from jobs.maintenance.plan.snapshot_retention import SnapshotHold, expiry_cutoff, snapshot_time, without_age_limit
from jobs.maintenance.run.snapshot_holds import reader_holds
from tests.helpers import landed_table
from tests.helpers.landed_table import LandedTable
from tests.unit.maintenance.snapshot_metadata import (
    HOUR,
    NAME,
    NOW,
    hourly,
    table,
)


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=40),
    st.integers(1, 40),
    st.integers(1, 10),
    st.lists(st.integers(0, 1000), max_size=2),
)
def test_nothing_that_is_held_goes_where_clocks_differ(
    ahead: list[int], most: int, least: int, held: list[int]
) -> None:
    # A commit each ten seconds, of hosts whose clocks are ahead by so much.
    count = len(ahead)
    seconds = [10 * (count - number) - skew for number, skew in enumerate(ahead)]
    metadata = table([timedelta(seconds=each) for each in seconds])
    holds = [SnapshotHold("x", NOW - timedelta(seconds=age), "") for age in held]
    policy = Expire(keep=timedelta(minutes=1), min_snapshots=min(least, most), max_snapshots=most)
    found = expiry_cutoff(metadata, policy, holds, NOW, NAME)
    # As Iceberg goes along main, and stops at the first that is older.
    stay: list[Any] = []
    for index, snapshot in enumerate(reversed(metadata.snapshots)):
        if index >= found.retain_last and snapshot_time(snapshot) < found.older_than:
            break
        stay.append(snapshot)
    assert (len(stay), count - len(stay)) == (found.staying, found.going)
    since = min((hold.since for hold in holds), default=NOW + HOUR)
    assert all(each in stay for each in metadata.snapshots if snapshot_time(each) >= since)


def test_the_clock_of_one_host_is_ahead() -> None:
    # Five commits of a host that is 40 s ahead, then one each ten seconds of another.
    at = [10 * number + 40 * (number <= 5) for number in range(1, 101)]
    metadata = table([HOUR * 3 - timedelta(seconds=each) for each in at], properties={"frazil.reader.dash": "5"})
    (reader,) = reader_holds(metadata, NOW)
    found = expiry_cutoff(metadata, Expire(keep=HOUR, min_snapshots=1), [reader], NOW, NAME)
    # 6 was committed after 5, and its clock said that it was before: without it, 5 would go as well.
    assert found.older_than == snapshot_time(metadata.snapshots[5]) < snapshot_time(metadata.snapshots[4])
    assert (found.staying, found.holds) == (99, (reader,))
    # By number as well the newest stay, and not those of whose clock is ahead.
    ahead = table([timedelta(seconds=100 - each) for each in [*range(40, 60), 20, 21, 22]])
    assert expiry_cutoff(ahead, Expire(min_snapshots=1, max_snapshots=5), (), NOW, NAME).staying >= 5


def test_what_was_current_is_what_main_stood_at() -> None:
    # 3 is of a branch; main went from 2 to 4.
    refs = {"audit": {"snapshot-id": 3, "type": "branch"}}
    metadata = table([HOUR * age for age in (5, 4, 2.5, 1)], refs=refs, parents={4: 2})
    policy = Expire(keep=HOUR * 2, min_snapshots=1, time_travel=HOUR * 2)
    assert expiry_cutoff(metadata, policy, (), NOW, NAME).older_than == NOW - HOUR * 4


def test_what_waits_to_be_published_stays_for_as_long_as_what_is_young() -> None:
    # 2 and 4 were staged, and main knows nothing of them.
    def staged(**summaries: Mapping[str, str]) -> TableMetadata:
        given = {2: {"wap.id": "a"}, 4: {"wap.id": "b"}} | {int(key[1:]): value for key, value in summaries.items()}
        return table(hourly(48), parents={3: 1, 5: 3}, summaries=given)

    policy = Expire(keep=HOUR * 46, min_snapshots=1, max_snapshots=10)
    found = expiry_cutoff(staged(), policy, (), NOW, NAME)
    assert [hold.what for hold in found.holds] == ["staged write a", "staged write b"]
    assert found.older_than == NOW - HOUR * 46
    found = expiry_cutoff(staged(), Expire(keep=HOUR * 45, min_snapshots=1, max_snapshots=10), (), NOW, NAME)
    assert [hold.what for hold in found.holds] == ["staged write b"]
    # Published as another snapshot: this one is of no use any more.
    found = expiry_cutoff(staged(_9={"published-wap-id": "a"}, _10={"published-wap-id": "b"}), policy, (), NOW, NAME)
    assert (found.holds, found.staying) == ((), 10)


def test_tags_and_branches_stay_and_what_was_rolled_back_goes_with_its_age() -> None:
    refs: dict[str, Any] = {"monthly": {"snapshot-id": 2, "type": "tag"}, "audit": {"snapshot-id": 5, "type": "branch"}}
    # Of a branch without limits of its own, those of the call hold: its head, and what is young.
    assert expiry_cutoff(table(hourly(48), refs=refs), Expire(min_snapshots=1), (), NOW, NAME).going == 48 - 25 - 2
    assert expiry_cutoff(table(hourly(48), refs=refs), Expire(min_snapshots=3), (), NOW, NAME).going == 48 - 25 - 4
    refs["audit"]["max-snapshot-age-ms"] = 3_600_000 * 1000
    assert expiry_cutoff(table(hourly(48), refs=refs), Expire(min_snapshots=1), (), NOW, NAME).going == 48 - 25 - 5
    # Main was set back to snapshot 40: the eight after it are nobody's, and young.
    assert expiry_cutoff(table(hourly(48), head=40), Expire(min_snapshots=1), (), NOW, NAME).going == 40 - 17


def going(metadata: TableMetadata, policy: Expire, *holds: SnapshotHold) -> int:
    return expiry_cutoff(metadata, policy, holds, NOW, NAME).going


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
    found = expiry_cutoff(table(hourly(48)), policy, (), NOW, NAME)
    # Five hours: half past seven is answered by the snapshot of seven.
    assert (found.staying, [hold.what for hold in found.holds]) == (6, ["expire.time_travel"])


def test_a_hold_keeps_everything_from_its_instant_on() -> None:
    metadata = table(hourly(48))
    hold = SnapshotHold("reader a", NOW - HOUR * 30, "because")
    found = expiry_cutoff(metadata, Expire(min_snapshots=1, max_snapshots=5), [hold], NOW, NAME)
    assert (found.going, found.staying, found.holds) == (17, 31, (hold,))
    assert expiry_cutoff(metadata, Expire(min_snapshots=1), [SnapshotHold("reader b", NOW, "")], NOW, NAME).holds == ()


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
    holds = [SnapshotHold("x", NOW - HOUR * age, "") for age in held]
    found = expiry_cutoff(metadata, Expire(min_snapshots=least, max_snapshots=most), holds, NOW, NAME)
    newest_first = sorted(metadata.snapshots, key=lambda each: -each.timestamp_ms)
    stay = newest_first[: found.staying]
    assert found.staying >= min(count, least)
    assert all(
        snapshot_time(each) in {snapshot_time(one) for one in stay} or snapshot_time(each) < found.older_than
        for each in stay
    )
    assert all(
        snapshot_time(each) < min([NOW, *(hold.since for hold in holds)]) for each in newest_first[found.staying :]
    )
    if not holds:
        assert found.staying <= max(most, least)


def test_a_limit_of_mains_own_that_takes_what_is_held_is_refused() -> None:
    refs = {"main": {"snapshot-id": 48, "type": "branch", "max-snapshot-age-ms": 3_600_000}}
    metadata = table(hourly(48), refs=refs)
    assert going(metadata, Expire(min_snapshots=1)) == 46
    with pytest.raises(FrazilError, match=r"age limit of its own.*needed by reader a.*Nothing expired"):
        expiry_cutoff(metadata, Expire(), [SnapshotHold("reader a", NOW - HOUR * 2, "")], NOW, NAME)


def test_a_branch_that_a_stream_writes_is_not_left_to_an_age_limit() -> None:
    """Iceberg drops a branch whose head is older than it may be, and all that stands on it alone."""
    ages = [HOUR * age for age in (5, 4, 3, 2, 1)]
    refs = {"ingest": {"snapshot-id": 3, "type": "branch", "max-ref-age-ms": int(HOUR.total_seconds() * 1000)}}
    metadata = table(ages, refs=refs, parents={4: 2})
    policy = Expire(keep=HOUR, min_snapshots=1)
    assert expiry_cutoff(metadata, policy, (), NOW, NAME).going
    with pytest.raises(FrazilError, match=r"branch ingest, which a stream writes.*would drop it") as refused:
        expiry_cutoff(metadata, policy, (), NOW, NAME, {"main", "ingest"})
    assert refused.value.fix == without_age_limit(NAME, "ingest")


@pytest.mark.parametrize("branch", ["main", "ingest", 'it\'s "mine"', "\N{SNOWFLAKE} \N{ICE CUBE}"])
def test_the_command_that_takes_age_limits_away_leaves_a_branch_where_it_is(tmp_path: Path, branch: str) -> None:
    landed = LandedTable(tmp_path)
    head = landed.land((0, 0, 1))
    limits = {"max_ref_age_ms": None if branch == "main" else 3_600_000, "max_snapshot_age_ms": 3_600_000}
    landed.table.manage_snapshots().create_branch(head, branch, **limits).commit()
    if branch != "main":
        landed.land((0, 1, 2))
    *command, code = shlex.split(without_age_limit(landed_table.NAME, branch))
    assert command == ["frazil", "shell", "-c"]
    exec(code, {"catalog": landed.catalog})
    left = {"snapshot-id": head, "type": SnapshotRefType.BRANCH}
    assert landed.table.refs()[branch] == SnapshotRef.model_validate(left)


def test_what_is_held_on_a_branch_stays_where_clocks_differ() -> None:
    # 4 and 5 are of the branch; the clock that made 5 is behind the one of 4, and 5 has to stay.
    ages = [HOUR * age for age in (9, 8, 7, 1, 6, 0.5)]
    refs = {"ingest": {"snapshot-id": 5, "type": "branch"}}
    metadata = table(ages, refs=refs, parents={4: 2, 5: 4, 6: 3})
    held = SnapshotHold("ledger", snapshot_time(metadata.snapshots[3]), "")
    assert (
        snapshot_time(metadata.snapshots[4])
        >= expiry_cutoff(metadata, Expire(keep=HOUR / 2, min_snapshots=1), [held], NOW, NAME).older_than
    )


def test_a_branch_s_own_age_limit_may_not_take_what_is_held() -> None:
    ages = [HOUR * age for age in (5, 4, 3, 2, 1)]
    refs = {"ingest": {"snapshot-id": 5, "type": "branch", "max-snapshot-age-ms": 60_000}}
    metadata = table(ages, refs=refs)
    held = [SnapshotHold("ledger", NOW - HOUR * 3, "")]
    assert expiry_cutoff(metadata, Expire(keep=HOUR, min_snapshots=1), held, NOW, NAME).going
    with pytest.raises(FrazilError, match="its branch ingest has an age limit"):
        expiry_cutoff(metadata, Expire(keep=HOUR, min_snapshots=1), held, NOW, NAME, {"ingest"})


def tagged(*ages: float, **tags: Any) -> TableMetadata:
    """Of these ages in hours; a tag is a snapshot's number, or also its age limit in hours."""
    refs: dict[str, Any] = {}
    for name, wanted in tags.items():
        number, limit = wanted if isinstance(wanted, tuple) else (wanted, None)
        refs[name] = {"snapshot-id": number, "type": "tag"}
        if limit is not None:
            refs[name]["max-ref-age-ms"] = int(limit * 3_600_000)
    note = '{"by":"ada@host","at":1.0,"note":"the audit of Q3"}'
    return table([HOUR * age for age in ages], refs=refs, properties={"frazil.tag.q3": note})


def test_a_tag_keeps_its_snapshot_and_nothing_else() -> None:
    policy = Expire(keep=HOUR * 2, min_snapshots=1)
    plain = expiry_cutoff(tagged(5, 4, 3, 1), policy, (), NOW, NAME)
    assert (plain.going, plain.staying, plain.holds) == (3, 1, ())
    found = expiry_cutoff(tagged(5, 4, 3, 1, q3=2, young=4), policy, (), NOW, NAME)
    assert (found.going, found.staying, found.older_than) == (2, 2, plain.older_than)
    # The one whose snapshot stays anyway holds nothing.
    (hold,) = found.holds
    assert hold.what == "tag q3 (snapshot 2 is tagged by ada@host: the audit of Q3)"
    assert hold.since == snapshot_time(tagged(5, 4, 3, 1).snapshots[1])


def test_a_tag_whose_time_is_over_keeps_nothing() -> None:
    policy = Expire(keep=HOUR * 2, min_snapshots=1)
    # Iceberg counts a tag's age from its snapshot on: that of 4 hours ago.
    held = expiry_cutoff(tagged(5, 4, 3, 1, q3=(2, 4.5)), policy, (), NOW, NAME)
    assert (held.going, [hold.what.split(" until ")[1] for hold in held.holds]) == (
        2,
        ["2026-03-10 12:30 UTC: the audit of Q3)"],
    )
    over = expiry_cutoff(tagged(5, 4, 3, 1, q3=(2, 3.9)), policy, (), NOW, NAME)
    assert (over.going, over.staying, over.holds) == (3, 1, ())
    # A table may limit the age of all that do not say.
    metadata = tagged(5, 4, 3, 1, other=2)
    short = metadata.model_copy(update={"properties": {"history.expire.max-ref-age-ms": str(3 * 3_600_000)}})
    assert expiry_cutoff(short, policy, (), NOW, NAME).going == 3
    long = metadata.model_copy(update={"properties": {"history.expire.max-ref-age-ms": str(9 * 3_600_000)}})
    assert expiry_cutoff(long, policy, (), NOW, NAME).going == 2
