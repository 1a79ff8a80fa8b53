from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.commit.errors import ToleranceError
from jobs.commit.event_times import EventCounts, EventTimes
from jobs.commit.stamp_fields import Counts
from jobs.commit.stamps import SUMMARY_KEY, Stamp
from jobs.state.stream_folder import StreamFolder
from jobs.stream.open_stream import OpenStream
from jobs.stream.results import TaskResults
from jobs.stream.tolerance import Breaker, WindowToleranceError
from jobs.task.tally import Example, Tally
from tests.helpers.tasks import stream_spec

MINUTE_MS = 60_000
NOW_MS = 1_700_000_000_000
LIMIT = {"stop_above": {"window": {"of": "1h", "count": 10}}}


def results(read: int, dead: int) -> TaskResults:
    example = Example("payments", 0, 5, "decode_value", "wrong_type", "$.n")
    tally = Tally("payments", 0, read=read, dead=dead, reasons={"wrong_type": dead}, examples={"wrong_type": example})
    return TaskResults({}, [tally])


class World:
    """A stream whose table has been stamped by batches: minutes ago, records read, records failed."""

    def __init__(self, folder: Path, batches: Sequence[tuple[int, int, int]], **stream: Any) -> None:
        self.folder = folder
        self.snapshots: list[Any] = []
        self.totals = Counts()
        self.newest: Stamp | None = None
        self.trigger = stream.get("trigger", "as_fast_as_possible")
        self.spec = stream_spec("id string", errors=stream.get("errors", LIMIT)).model_copy(
            update={"trigger": self.trigger}
        )
        self.generation = stream.get("generation", "g1")
        for minutes, read, dead in batches:
            self.commit(minutes, read, dead)

    def commit(self, minutes: int, read: int, dead: int, kind: Any = "batch", late: int = 0) -> None:
        counts = Counts(read=read, landed=read - dead, dead=dead)
        self.totals += counts
        number = len(self.snapshots) + 1
        stamp = Stamp("payments", kind, number, 1, "c", {}, {}, counts=counts, totals=self.totals, sequence=number)
        if late:
            stamp = replace(stamp, event_time=EventTimes("at", 9, 5, batch=EventCounts(dead=late)))
        self.newest = stamp
        parent = self.snapshots[-1].snapshot_id if self.snapshots else None
        self.snapshots.append(
            SimpleNamespace(
                snapshot_id=number * 10,
                parent_snapshot_id=parent,
                sequence_number=number,
                timestamp_ms=NOW_MS - minutes * MINUTE_MS,
                summary=SimpleNamespace(additional_properties={SUMMARY_KEY: stamp.to_json()}),
            )
        )

    def expire(self, count: int) -> None:
        del self.snapshots[:count]
        if self.snapshots:
            self.snapshots[0].parent_snapshot_id = None

    def breaker(self, **changed: Any) -> Breaker:
        head = SimpleNamespace(snapshot_id=self.snapshots[-1].snapshot_id) if self.snapshots else None
        metadata = SimpleNamespace(snapshots=self.snapshots, refs={"main": head} if head else {}, properties={})
        uuid = changed.get("uuid", "first")
        anchor = SimpleNamespace(table=SimpleNamespace(metadata=metadata), newest=self.newest, uuid=uuid)
        generation = changed.get("generation", self.generation)
        stream = SimpleNamespace(
            spec=self.spec, anchor=anchor, folder=StreamFolder.at(self.folder), generation=generation
        )
        return Breaker(cast(OpenStream, stream), now=lambda: NOW_MS / 1000)


@pytest.mark.parametrize(
    ("batches", "dead", "stops"),
    [
        ([], 10, False),
        ([], 11, True),
        ([(30, 100, 6), (10, 100, 4)], 1, True),
        ([(30, 100, 6), (10, 100, 3)], 1, False),
        # Older than the window.
        ([(61, 100, 90), (59, 100, 9)], 1, False),
        ([(61, 100, 90), (59, 100, 10)], 1, True),
    ],
)
def test_what_counts(tmp_path: Path, batches: list[tuple[int, int, int]], dead: int, stops: bool) -> None:
    breaker = World(tmp_path, batches).breaker()
    if not stops:
        breaker.check(results(50, dead))
        return
    with pytest.raises(WindowToleranceError, match=r"records within 1h failed, more than errors\.stop_above\.window"):
        breaker.check(results(50, dead))


def test_late_records_are_none_that_failed(tmp_path: Path) -> None:
    """Neither in the batch nor within the window, where its stamps say how many of its letters are late."""
    world = World(tmp_path, [])
    example = Example("payments", 0, 5, "event_time", "late", "$.at")
    late = Tally("payments", 0, read=100, dead=100, reasons={"late": 100}, examples={"late": example})
    world.breaker().check(TaskResults({}, [late]))
    world.commit(30, 200, 108, late=100)
    world.breaker().check(TaskResults({}, [late, *results(10, 2).tallies]))
    with pytest.raises(WindowToleranceError, match="11 of 310 records") as stop:
        world.breaker().check(TaskResults({}, [late, *results(10, 3).tallies]))
    assert "late" not in stop.value.message
    world.spec = stream_spec("id string", errors={"tolerance": "none"})
    world.breaker().check(TaskResults({}, [late]))
    with pytest.raises(ToleranceError, match=r"and 1 of 101 failed; .*wrong_type in decode_value"):
        world.breaker().check(TaskResults({}, [late, *results(1, 1).tallies]))


def test_snapshots_that_expired_in_between_are_counted_by_the_totals(tmp_path: Path) -> None:
    world = World(tmp_path, [(50, 100, 2), (40, 100, 7), (30, 100, 1)])
    del world.snapshots[1]
    world.snapshots[1].parent_snapshot_id = world.snapshots[0].snapshot_id
    with pytest.raises(WindowToleranceError, match="11 of 301 records"):
        world.breaker().check(results(1, 1))


def test_what_expired_at_the_start_is_unknown_and_does_not_count(tmp_path: Path) -> None:
    world = World(tmp_path, [(50, 100, 9), (40, 100, 2)])
    world.expire(1)
    world.breaker().check(results(1, 1))


def test_it_is_the_same_after_a_restart_and_follows_new_batches(tmp_path: Path) -> None:
    world = World(tmp_path, [(30, 100, 8)])
    breaker = world.breaker()
    breaker.check(results(10, 2))
    for each in (breaker, world.breaker()):
        with pytest.raises(WindowToleranceError):
            each.check(results(10, 3))


def test_after_an_operator_s_start_only_what_came_since_counts(tmp_path: Path) -> None:
    world = World(tmp_path, [(30, 100, 10)])
    with pytest.raises(WindowToleranceError):
        world.breaker().check(results(10, 5))
    world.commit(0, 0, 0, kind="claim")
    again = world.breaker()
    again.check(results(10, 5))
    world.commit(0, 10, 5)
    with pytest.raises(WindowToleranceError, match="11 of 20 records"):
        world.breaker().check(results(10, 6))


def test_a_table_that_was_made_anew_is_looked_at_from_its_beginning(tmp_path: Path) -> None:
    former = World(tmp_path, [(30, 100, 0)] * 20)
    with pytest.raises(WindowToleranceError):
        former.breaker().check(results(10, 11))
    world = World(tmp_path, [(20, 100, 10)])
    with pytest.raises(WindowToleranceError, match="11 of 110 records"):
        world.breaker(uuid="second").check(results(10, 1))
    world.breaker(uuid="second").check(results(10, 1))


def test_a_note_that_names_no_table_forgives_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, [(30, 100, 10)])
    (tmp_path / "window-stop.json").write_text('{"sequence": 1, "generation": "g1"}')
    with pytest.raises(WindowToleranceError):
        world.breaker().check(results(10, 1))


def test_a_drain_goes_on_under_another_configuration_or_when_time_has_passed(tmp_path: Path) -> None:
    world = World(tmp_path, [(30, 100, 10)], trigger="available_now")
    for _ in range(2):
        with pytest.raises(WindowToleranceError) as stop:
            world.breaker().check(results(10, 5))
        assert "frazil run payments" in str(stop.value)
    world.breaker(generation="g2").check(results(10, 5))
    world.snapshots[0].timestamp_ms -= 31 * MINUTE_MS
    world.breaker().check(results(10, 5))


def test_a_damaged_note_counts_all(tmp_path: Path) -> None:
    world = World(tmp_path, [(30, 100, 10)])
    (tmp_path / "window-stop.json").write_text("{")
    with pytest.raises(WindowToleranceError):
        world.breaker().check(results(10, 1))


def test_a_batch_s_own_limit_notes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, [], errors={"stop_above": {"count": 1, "window": {"of": "1h", "count": 1}}})
    with pytest.raises(ToleranceError, match="of a batch"):
        world.breaker().check(results(10, 2))
    assert not list(tmp_path.iterdir())


def test_the_first_records_of_a_stream_are_judged_more_strictly_until_one_has_landed(tmp_path: Path) -> None:
    world = World(tmp_path, [], errors={})
    for _ in range(2):
        with pytest.raises(ToleranceError, match="30 of 40 records of a batch failed, and the stream has landed none"):
            world.breaker().check(results(40, 30))
    world.commit(5, 10, 10)
    world.commit(4, 0, 0, kind="claim")
    with pytest.raises(ToleranceError, match="landed none before"):
        world.breaker().check(results(40, 30))
    world.commit(3, 10, 9)
    world.breaker().check(results(40, 30))
    with pytest.raises(ToleranceError, match="700 of 1000 records of a batch failed, more than"):
        world.breaker().check(results(1000, 700))
