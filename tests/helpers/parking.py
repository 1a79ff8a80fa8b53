"""Suspended tables of routed streams: a stream with one, its dead letters, and what an operator does about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.result import ReplayResult
from jobs.dead_letters.replay.run import replay
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.stamp.stamp_fields import Decision
from tests.helpers.evolving_stream import SINK
from tests.helpers.lane_stream import DEAD as LANE_DEAD
from tests.helpers.lane_stream import OWN, LaneStream
from tests.helpers.routed_stream import ROUTE, RoutedStream
from tests.helpers.stories import AnyStream, Killed, audited, killed

__all__ = ["Killed", "audited", "killed"]


CHANGES, DELETES, DEAD = "orders.changes", "orders.deletes", f"{SINK}_dead"
PARK: dict[str, Any] = {**ROUTE, "on_table_error": "park"}
# Operations of the records; UPD goes to both tables.
KINDS = ["INS", "UPD", "DEL", "OWN", "other"]


def records(first: int, count: int = 5) -> list[dict[str, Any]]:
    return [{"id": f"a{at}", "type": KINDS[at % 5], "n": at} for at in range(first, first + count)]


def again(one: RoutedStream, epoch: int, route: dict[str, Any] | None = None) -> RoutedStream:
    """The next driver of the stream, with the same topic."""
    after = RoutedStream(one.home, route or PARK, epoch=epoch)
    after.log = list(one.log)
    return after


def unpark(one: AnyStream, table: str) -> None:
    record_answer(one.spec, one.settings, lambda: pytest.fail("no broker is asked"), Answer(unpark=table), "ada: back")


def replayed(one: AnyStream) -> ReplayResult:
    return replay(one.spec, one.settings, one.catalog, ReplayRequest())


def landed(*offsets: int) -> dict[str, list[int]]:
    """The offsets in each table, those that no table takes among the dead letters."""
    found: dict[str, list[int]] = {}
    for offset in offsets:
        kind = KINDS[offset % 5]
        for name, kinds in {CHANGES: ("INS", "UPD"), DELETES: ("DEL", "UPD"), SINK: ("OWN",), DEAD: ("other",)}.items():
            if kind in kinds:
                found.setdefault(name, []).append(offset)
    return found


def rows_of(one: RoutedStream) -> dict[str, list[int]]:
    return {name: offsets for name, offsets in one.placed().items() if name != DEAD}


def dropped(home: Path) -> RoutedStream:
    """A stream that has landed once; afterwards one of its tables was dropped."""
    one = RoutedStream(home, PARK)
    one.land(*records(0))
    one.catalog.drop_table(DELETES)
    return one


def answered(one: RoutedStream, answer: Answer, kafka: Any = None) -> dict[str, Decision]:
    return record_answer(one.spec, one.settings, lambda: kafka or pytest.fail("none is asked"), answer, "ada: why")


def head(one: RoutedStream, table: str) -> int:
    snapshot = one.catalog.load_table(table).current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def roll_back(one: RoutedStream, table: str, to: int) -> None:
    one.catalog.load_table(table).manage_snapshots().set_current_snapshot(snapshot_id=to).commit()


def lane_offsets(one: LaneStream) -> dict[str, list[int]]:
    return {name: [each[2] for each in places] for name, places in one.placed().items()}


def lane_waiting(one: LaneStream, table: str) -> list[int]:
    """The offsets of the letters that wait for a table."""
    rows = one.catalog.load_table(LANE_DEAD).scan().to_arrow().to_pylist()
    return sorted(each["offset"] for each in rows if each["target"] == table)


def lane_parked(one: LaneStream) -> set[str]:
    newest = history(one.catalog.load_table(OWN).metadata, "shop").newest
    assert newest is not None
    return set(newest.parked)
