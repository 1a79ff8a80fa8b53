"""Expressions with now(): the time of the batch, the same in every table and whenever the batch is run."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.run import replay
from jobs.proof.audit.audit import audit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.streaming.driver.batch import batch, batch_commit
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.stamp.stamps import Stamp, property_key
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import ROUTE, RoutedStream
from tests.helpers.stories import Killed, forget_records, killed_at

TIMED: dict[str, Any] = {"transform": [{"compute": {"landed": "now()", "on_day": "current_date"}}]}
RECORDS: list[dict[str, Any]] = [{"id": f"a{at}", "type": ["INS", "UPD", "DEL", "OWN"][at % 4]} for at in range(8)]
FIRST = 1_790_000_000_123
LATER = FIRST + 86_400_000
_step = batch_commit.step


def clock(monkeypatch: pytest.MonkeyPatch, at_ms: int) -> None:
    """The time by which batches are planned."""
    given = {"time_ns": lambda: at_ms * 1_000_000, "monotonic": batch.time.monotonic}
    monkeypatch.setattr(batch, "time", SimpleNamespace(**given))


def times(one: RoutedStream) -> dict[str, dict[int, int]]:
    """By table, when each record's row says that it was landed."""
    found: dict[str, dict[int, int]] = {}
    for name in (SINK, "orders.changes", "orders.deletes"):
        for row in one.catalog.load_table(name).scan().to_arrow().to_pylist():
            assert row["on_day"] == row["landed"].date()
            found.setdefault(name, {})[row["_kafka_offset"]] = round(row["landed"].timestamp() * 1000)
    return found


def newest(one: RoutedStream, table: str = SINK) -> Stamp:
    stamp = history(one.catalog.load_table(table).metadata, "payments").newest
    assert stamp is not None
    return stamp


def test_all_rows_of_a_batch_have_its_time_and_the_coordinators_stamp_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE, **TIMED)
    clock(monkeypatch, FIRST)
    one.land(*RECORDS[:4])
    clock(monkeypatch, LATER)
    one.land(*RECORDS[4:], batch=1)
    wanted = {offset: FIRST if offset < 4 else LATER for offset in range(8)}
    found = times(one)
    assert {offset: at for rows in found.values() for offset, at in rows.items()} == wanted
    assert all(rows == {offset: wanted[offset] for offset in rows} for rows in found.values())
    assert newest(one).batch_ms == LATER and newest(one, "orders.changes").batch_ms is None
    # A claim keeps it, as it keeps the schema: the batch may still be completed under it.
    two = RoutedStream(one.home, ROUTE, epoch=2, **TIMED)
    assert newest(two).kind == "claim" and newest(two).batch_ms == LATER
    assert Stamp.from_json(newest(two).to_json()).batch_ms == LATER


@pytest.mark.parametrize("killed_at", ["after_anchor_commit", "after_table_commit"])
@pytest.mark.parametrize("lost", [False, True], ids=["record", "lost"])
def test_a_batch_is_completed_with_the_time_that_it_had_though_its_driver_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str, lost: bool
) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE, **TIMED)

    def dying(at: str) -> None:
        if at == killed_at:
            raise Killed
        _step(at)

    clock(monkeypatch, FIRST)
    with monkeypatch.context() as patch:
        patch.setattr(batch_commit, "step", dying)
        with pytest.raises(Killed):
            one.land(*RECORDS)
    folder = one.stream.folder
    assert folder.pending_records()
    for each in folder.pending_records() if lost else ():
        folder.store.delete(each)
    clock(monkeypatch, LATER)
    # Twice: a driver that only claims, and ends, leaves what the next one needs.
    RoutedStream(one.home, ROUTE, epoch=2, **TIMED)
    two = RoutedStream(one.home, ROUTE, epoch=3, **TIMED)
    two.log = one.log
    two.land({"id": "b", "type": "UPD"}, batch=1)
    for rows in times(two).values():
        assert rows == {offset: LATER if offset == 8 else FIRST for offset in rows}
    assert two.placed() == two.expected()
    fill_ledger(two.catalog, two.settings, [two.spec])
    audited = audit(two.spec, two.settings, two.catalog, full=True)
    assert not audited.problems and not audited.pending, audited.problems


def test_a_batch_that_no_table_has_is_planned_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE, **TIMED)
    clock(monkeypatch, FIRST)

    with monkeypatch.context() as patch:
        killed_at(patch, batch_commit, "before_commit")
        with pytest.raises(Killed):
            one.land(*RECORDS)
    forget_records(one)
    clock(monkeypatch, LATER)
    two = RoutedStream(one.home, ROUTE, epoch=2, **TIMED)
    two.log = one.log
    two.land(batch=0)
    assert {at for rows in times(two).values() for at in rows.values()} == {LATER}


def test_stamps_of_a_stream_that_does_not_ask_say_nothing_of_it(tmp_path: Path) -> None:
    plain: dict[str, Any] = {"transform": [{"compute": {"now": "id || 'now()'"}}]}
    one = RoutedStream(tmp_path / "home", ROUTE, **plain)
    one.land(*RECORDS)
    assert newest(one).batch_ms is None
    text = one.catalog.load_table(SINK).properties[property_key("payments")]
    assert "now" not in json.loads(text)


def test_a_route_may_ask_for_it_and_the_audit_says_what_it_cannot_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    route = {**ROUTE, "by": "case when current_date > date '2026-01-01' then type else 'OWN' end"}
    one = RoutedStream(tmp_path / "home", route)
    clock(monkeypatch, FIRST)
    one.land(*RECORDS)
    assert newest(one).batch_ms == FIRST
    assert one.placed()["orders.changes"] == [0, 1, 4, 5]
    fill_ledger(one.catalog, one.settings, [one.spec])
    audited = audit(one.spec, one.settings, one.catalog, full=True)
    assert not audited.problems
    assert audited.route is not None
    assert {each.why for each in audited.route.not_judged} == {
        "the route needs the time of the batch, which rows do not keep"
    }


def test_a_replay_lands_with_the_time_of_its_run_which_its_stamp_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {**TIMED, "rules": [{"name": "known", "expect": "id <> 'a1'"}]}
    one = RoutedStream(tmp_path / "home", ROUTE, **broken)
    clock(monkeypatch, FIRST)
    one.land(*RECORDS[:3])
    assert one.offsets(f"{SINK}_dead") == [1]
    fixed = RoutedStream(one.home, ROUTE, epoch=2, **TIMED)
    before = datetime.now(UTC).replace(microsecond=0)
    done = replay(fixed.spec, fixed.settings, fixed.catalog, ReplayRequest())
    assert done.replayed == 1
    stamp = history(fixed.catalog.load_table(SINK).metadata, "payments~replay").newest
    assert stamp is not None and stamp.batch_ms is not None
    assert before.timestamp() * 1000 <= stamp.batch_ms <= datetime.now(UTC).timestamp() * 1000
    found = times(fixed)
    assert found["orders.changes"] == {0: FIRST, 1: stamp.batch_ms}
    assert found["orders.deletes"] == {1: stamp.batch_ms, 2: FIRST}
