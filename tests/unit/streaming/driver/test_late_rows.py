"""Late rows of streams on real tables: where each lands, once, with and without a route, and whatever is killed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import StringType

from jobs.base.errors import FrazilError
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.run import dry_run, replay
from jobs.proof.audit.audit import audit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.stamp.event_times import EventTimes
from jobs.tables.dead_letter_table.selection import Selection
from jobs.tables.ledger.ledger_table import read_ledger
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import RoutedStream
from tests.helpers.stories import Killed, audited, forget_records, killed

BASE = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATE = f"{SINK}_late"
DEAD = f"{SINK}_dead"
GRACE = 10
ROUTE: dict[str, Any] = {
    "by": "type",
    "tables": [
        {"match": "INS|UPD", "table": "orders.changes"},
        {"match": ["DEL", "UPD"], "table": "orders.deletes"},
        {"match": "OWN", "table": SINK},
    ],
}
KINDS = ["INS", "UPD", "DEL", "OWN", "other"]


def document(number: int, minutes: int | None, kind: str | None = None) -> dict[str, Any]:
    at = None if minutes is None else (BASE + timedelta(minutes=minutes)).isoformat()
    return {"id": f"a{number}", "type": kind or KINDS[number % len(KINDS)], "n": number, "at": at}


# Of three batches: the watermark is 12:50 behind the first, and 13:50 behind the second.
MINUTES = (
    (0, 60, 30, None, 20),
    (49, 50, 120, 5, None, 49, 10, 48, 47, 46),
    (109, 110, 111, 60, 180, 3, 100, 108, 70, 80),
)


def batches(*, of: Sequence[Sequence[int | None]] = MINUTES) -> list[list[dict[str, Any]]]:
    found, number = [], 0
    for minutes in of:
        found.append([document(number + index, each) for index, each in enumerate(minutes)])
        number += len(minutes)
    return found


class LateStream(RoutedStream):
    """A stream with an event time, open."""

    def __init__(self, home: Path, late: Any, route: dict[str, Any] | None = None, epoch: int = 1, **more: Any) -> None:
        schema = "id string not null, type string, n int, at timestamptz as iso"
        event_time = {"column": "at", "grace": f"{GRACE}m", "late": late, "closes": "hour"}
        super().__init__(home, route, epoch, event_time=event_time, decode={"value": "json", "schema": schema}, **more)

    @property
    def times(self) -> EventTimes:
        newest = history(self.table.metadata, "payments").newest
        assert newest is not None and newest.event_time is not None
        return newest.event_time

    def belongs(self, of: Sequence[Sequence[dict[str, Any]]]) -> dict[str, list[int]]:
        """Where each record belongs by its file, one at a time: late by what came in the batches before its own."""
        found: dict[str, list[int]] = {}
        bound, greatest, offset = None, None, 0
        late = self.spec.event_time.late if self.spec.event_time else None
        for batch in of:
            for each in batch:
                at = datetime.fromisoformat(each["at"]) if each["at"] else None
                names: Sequence[str] = (SINK,)
                if self.spec.route is not None:
                    names = self.spec.route.destinations(each["type"]) or (DEAD,)
                if at is not None and bound is not None and at < bound and late != "land":
                    names = (self.spec.late_table or DEAD,)
                if at is not None:
                    greatest = at if greatest is None else max(greatest, at)
                for name in names:
                    found.setdefault(name, []).append(offset)
                offset += 1
            if greatest is not None:
                bound = greatest - timedelta(minutes=GRACE)
        return found


@pytest.mark.parametrize("late", ["table", "dead_letter", "land"])
@pytest.mark.parametrize("route", [None, ROUTE], ids=["alone", "routed"])
def test_each_record_lands_where_it_belongs(tmp_path: Path, late: str, route: dict[str, Any] | None) -> None:
    one = LateStream(tmp_path / "home", late, route)
    for number, each in enumerate(batches()):
        done = one.land(*each, batch=number)
        counts = done.counts
        assert counts.read == len(each) == counts.landed + counts.dead
    assert one.placed() == one.belongs(batches())
    assert bool(one.placed().get(LATE)) == (late == "table")
    audited(one)


def test_late_rows_are_counted_apart_from_the_table_they_did_not_go_to(tmp_path: Path) -> None:
    one = LateStream(tmp_path / "home", {"table": "orders.behind", "partition_by": ["day(at)"]})
    first, second, third = batches()
    one.land(*first)
    one.land(*second, b"{", batch=1)
    assert one.offsets("orders.behind") == [5, 8, 10, 11, 12, 13, 14]
    assert len(one.catalog.load_table("orders.behind").spec().fields) == 1 and not one.table.spec().fields
    batch = one.times.batch
    assert (batch.late_records, batch.aside, batch.dead, batch.periods) == (7, 7, 0, {})
    # Of the table's own rows.
    assert batch.least_ms == round((BASE + timedelta(minutes=50)).timestamp() * 1000)
    newest = history(one.table.metadata, "payments").newest
    assert newest is not None
    assert (newest.counts.landed, newest.counts.dead, newest.parts[one.at].elsewhere) == (10, 1, 7)
    assert set(newest.rows) == {SINK, "orders.behind", DEAD}
    audited(one)
    rows = read_ledger(one.catalog, one.settings, "payments", "orders.behind")
    assert [row.rows("rows") for row in rows if row.kind == "batch"] == [7]
    one.land(*third, batch=2)
    audited(one)


def test_a_table_of_late_rows_is_added_to_a_stream_that_has_landed_and_taken_away_again(tmp_path: Path) -> None:
    first, second, third = batches()
    plain = LateStream(tmp_path / "home", "land")
    plain.land(*first)
    one = LateStream(tmp_path / "home", "table", epoch=2)
    one.log = plain.log
    one.land(*second, batch=1)
    assert one.placed() == one.belongs([first, second])
    audited(one)
    after = LateStream(tmp_path / "home", "land", epoch=3)
    after.log = one.log
    after.land(*third, batch=2)
    assert after.offsets(SINK)[-len(third) :] == list(range(15, 25))
    audited(after)


def test_an_audit_names_a_late_row_that_is_gone(tmp_path: Path) -> None:
    one = LateStream(tmp_path / "home", "table")
    for number, each in enumerate(batches()):
        one.land(*each, batch=number)
    one.catalog.load_table(LATE).delete("n = 8")
    fill_ledger(one.catalog, one.settings, [one.spec])
    found = audit(one.spec, one.settings, one.catalog, full=True)
    assert {(each.kind, each.table) for each in found.problems} == {("missing", LATE)}


def test_a_late_record_that_its_table_cannot_hold_is_a_dead_letter_and_in_no_table(tmp_path: Path) -> None:
    one = LateStream(tmp_path / "home", "table")
    one.land(document(0, 60))
    with one.catalog.load_table(LATE).update_schema(allow_incompatible_changes=True) as change:
        change.update_column("type", required=True)
    one.stream.targets[LATE].read()
    one.land({**document(1, 0), "type": None}, {**document(2, 70), "type": None}, document(3, 0), batch=1)
    assert one.placed() == {SINK: [0, 2], LATE: [3], DEAD: [1]}
    audited(one)


def test_a_table_that_lacks_a_column_of_the_rows_is_refused(tmp_path: Path) -> None:
    one = LateStream(tmp_path / "home", "table")
    with one.catalog.load_table(LATE).update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("type")
        change.add_column("other", StringType())
    with pytest.raises(FrazilError, match=f"table {LATE}.* cannot hold"):
        LateStream(tmp_path / "home", "table", epoch=2)


CASES: list[tuple[str, Mapping[str, Any] | None, str]] = [
    ("table", None, DEAD),
    ("table", None, LATE),
    ("table", ROUTE, "orders.changes"),
    ("table", ROUTE, LATE),
    ("dead_letter", ROUTE, DEAD),
    ("dead_letter", ROUTE, "orders.deletes"),
    ("land", ROUTE, "orders.changes"),
]


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "lost"])
@pytest.mark.parametrize(("late", "route", "killed_at"), CASES)
def test_a_second_run_decides_the_same(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    late: str,
    route: dict[str, Any] | None,
    killed_at: str,
    recorded: bool,
) -> None:
    first, second, third = batches()
    one = LateStream(tmp_path / "home", late, route)
    one.land(*first)

    monkeypatch.setattr(one.stream.targets[killed_at], "land", killed)
    with pytest.raises(Killed):
        # One that fails, so that every table has rows of the batch.
        one.land(*second, {"id": None, "at": None}, batch=1)
    if not recorded:
        forget_records(one)
    after = LateStream(tmp_path / "home", late, route, epoch=2)
    after.log = one.log
    assert after.stream.recovered == int(recorded)
    # What is landed with the rest of the batch is judged by the watermark behind it.
    after.land(*third, batch=0)
    failed = len(first) + len(second)
    expected = after.belongs([first, [*second, document(failed, None, "OWN")], third])
    assert failed in expected[SINK], "the oracle knows no record that fails"
    expected[SINK].remove(failed)
    expected[DEAD] = sorted([*expected.get(DEAD, []), failed])
    assert after.placed() == expected
    assert json.loads(after.log[failed] or b"")["id"] is None
    audited(after)


@pytest.mark.parametrize("late", ["table", "dead_letter"])
def test_a_late_record_whose_table_is_past_it_lands_rather_than_nowhere(tmp_path: Path, late: str) -> None:
    """As after the stream's main table alone was rolled back, and is landed again."""
    one = LateStream(tmp_path / "home", late)
    first, second, _ = batches()
    one.land(*first)
    for name in one.spec.target_names[1:]:
        one.stream.positions[name] = {one.at: len(first) + len(second)}
    one.land(*second, batch=1)
    assert one.placed() == {SINK: list(range(15))}
    assert one.times.batch.late_records == 7 and one.times.batch.aside == one.times.batch.dead == 0


def test_replayed_letters_are_not_judged_and_land_in_the_streams_own_table(tmp_path: Path) -> None:
    one = LateStream(tmp_path / "home", "dead_letter")
    first, second, _ = batches()
    one.land(*first)
    one.land(*second, batch=1)
    after = LateStream(tmp_path / "home", "table", epoch=2)
    done = replay(after.spec, after.settings, after.catalog, ReplayRequest(Selection(reasons=("late",))))
    assert done is not None
    assert after.offsets(SINK) == list(range(15)) and not after.offsets(LATE)


@pytest.mark.parametrize("route", [None, ROUTE], ids=["alone", "routed"])
def test_a_replay_lands_no_record_that_has_landed_as_a_late_row_since(
    tmp_path: Path, route: dict[str, Any] | None
) -> None:
    one = LateStream(tmp_path / "home", "table", route)
    timely = SINK if route is None else "orders.changes"
    one.land(document(0, 60, "INS"))
    one.land(document(1, 0, "INS"), batch=1)
    back = {name: one.catalog.load_table(name).metadata.current_snapshot_id for name in {SINK, timely, LATE}}
    _alter(one, required=True)
    one.stream.targets[LATE].read()
    one.land({**document(2, 0, "INS"), "n": None}, document(3, 70, "INS"), batch=2)
    assert one.placed() == {timely: [0, 3], LATE: [1], DEAD: [2]}
    _alter(one, required=False)
    for name, snapshot in back.items():
        assert snapshot is not None
        one.catalog.load_table(name).manage_snapshots().rollback_to_snapshot(snapshot).commit()
    record_answer(one.spec, one.settings, lambda: pytest.fail("none"), Answer(rollback="reland"), "ada")
    after = LateStream(tmp_path / "home", "table", route, epoch=9)
    after.log = one.log
    after.land(document(4, 80, "INS"), batch=3)
    placed = {timely: [0, 3, 4], LATE: [1, 2], DEAD: [2]}
    assert after.placed() == placed
    told = dry_run(after.spec, after.catalog, ReplayRequest())
    assert (told.replayed, told.standing) == (0, 1)
    done = replay(after.spec, after.settings, after.catalog, ReplayRequest())
    assert (done.replayed, done.standing) == (0, 1) and after.placed() == placed
    audited(after)


def _alter(one: LateStream, *, required: bool) -> None:
    with one.catalog.load_table(LATE).update_schema(allow_incompatible_changes=True) as change:
        change.update_column("n", required=required)
