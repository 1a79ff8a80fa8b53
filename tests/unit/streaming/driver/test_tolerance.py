from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.batch.tolerance import Breaker, WindowToleranceError, check_tolerance
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.results import TaskResults
from jobs.streaming.task.tally import Example, Tally
from jobs.tables.commit.stamp.errors import ToleranceError
from jobs.tables.commit.stamp.event_times import EventCounts, EventTimes
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import SUMMARY_KEY, Stamp
from tests.helpers.tasks import stream_spec


def spec(route: Any = None, **errors: Any) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "payments",
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": "id string not null"},
            "table": {"name": "orders.payments"},
            "errors": errors,
            "route": route,
        }
    )


def tally(partition: int, **reasons: int) -> Tally:
    examples = {
        reason: Example("payments", partition, 40 + number, "decode_value", reason, f"$.{reason}")
        for number, reason in enumerate(reasons)
    }
    return Tally("payments", partition, dead=sum(reasons.values()), reasons=dict(reasons), examples=examples)


@pytest.mark.parametrize("errors", [{"tolerance": "none"}, {"stop_above": {"ratio": 0.001, "min_records": 1}}, {}])
def test_no_failed_record_never_stops(errors: dict[str, Any]) -> None:
    check_tolerance(spec(**errors), Counts(read=5_000, landed=5_000), [tally(0)])


def test_none_stops_at_the_first_and_names_it() -> None:
    with pytest.raises(ToleranceError) as stop:
        check_tolerance(
            spec(tolerance="none"),
            Counts(read=9, landed=7, dead=2),
            [tally(1, wrong_type=1), tally(0, missing_field=1)],
        )
    text = str(stop.value)
    assert "stream payments tolerates no failed record, and 2 of 9 failed" in text
    assert "topic payments, partition 0, offset 40: missing_field in decode_value, field $.missing_field. " in text
    assert "Nothing of the batch is committed" in text and "Next: " in text


@pytest.mark.parametrize(
    ("least", "read", "dead", "stops"),
    [
        (None, 10_000, 501, True),
        (None, 1_000, 51, True),
        (None, 1_000, 50, False),
        # A batch of a small stream, of which nearly all are bad.
        (None, 580, 500, True),
        # What a source with 5 % bad records gives once in a thousand batches at most stops, and no less.
        (None, 999, 72, False),
        (None, 999, 73, True),
        (None, 100, 13, False),
        (None, 100, 14, True),
        (None, 20, 5, False),
        (None, 20, 6, True),
        (None, 2, 2, False),
        (None, 3, 3, True),
        (600, 580, 500, False),
        (500, 580, 30, True),
    ],
)
def test_the_ratio_counts_where_chance_does_not_explain_it(
    least: int | None, read: int, dead: int, stops: bool
) -> None:
    counts = Counts(read=read, landed=read - dead, dead=dead)
    checked = spec(stop_above={"ratio": 0.05, **({"min_records": least} if least else {})})
    if not stops:
        check_tolerance(checked, counts, [tally(0, wrong_type=dead)])
        return
    with pytest.raises(ToleranceError, match=f"{dead} of {read} records of a batch failed") as stop:
        check_tolerance(checked, counts, [tally(0, wrong_type=dead)])
    assert (stop.value.failed, stop.value.read) == (dead, read)


def test_the_three_most_frequent_reasons_are_named_with_an_example() -> None:
    tallies = [tally(0, wrong_type=5, missing_field=2, bad_date=1), tally(1, wrong_type=1, malformed_json=3)]
    with pytest.raises(ToleranceError) as stop:
        check_tolerance(spec(stop_above={"ratio": 0.5, "min_records": 1}), Counts(read=13, landed=1, dead=12), tallies)
    lines = str(stop.value).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:4]] == [
        "6 × wrong_type",
        "3 × malformed_json",
        "2 × missing_field",
    ]
    assert "bad_date" not in str(stop.value)
    assert "partition 1, offset 41" in lines[2]
    assert stop.value.fix is not None
    assert stop.value.fix.endswith("raise errors.stop_above.ratio there; then frazil start payments")


@pytest.mark.parametrize(("dead", "stops"), [(5, False), (6, True)])
def test_a_count_of_a_batch(dead: int, stops: bool) -> None:
    checked, counts = spec(stop_above={"count": 5}), Counts(read=1_000_000, landed=1_000_000 - dead, dead=dead)
    if not stops:
        check_tolerance(checked, counts, [tally(0, wrong_type=dead)])
        return
    with pytest.raises(ToleranceError, match=r"6 of 1000000 records of a batch failed, .*stop_above\.count = 5"):
        check_tolerance(checked, counts, [tally(0, wrong_type=dead)])


@pytest.mark.parametrize(
    ("window", "earlier", "stops"),
    [
        ({"count": 10}, Counts(read=50, dead=9), False),
        ({"count": 10}, Counts(read=50, dead=10), True),
        ({"ratio": 0.1}, Counts(read=98, dead=19), False),
        ({"ratio": 0.1}, Counts(read=98, dead=20), True),
        ({"ratio": 0.1}, Counts(read=999, dead=99), False),
        ({"ratio": 0.1}, Counts(read=999, dead=100), True),
        ({"ratio": 0.1}, None, False),
    ],
)
def test_a_window_counts_the_batches_before(window: dict[str, Any], earlier: Counts | None, stops: bool) -> None:
    checked = spec(stop_above={"window": {"of": "90m", **window}})
    if not stops:
        check_tolerance(checked, Counts(read=1, dead=1), [tally(0, wrong_type=1)], earlier)
        return
    with pytest.raises(WindowToleranceError, match="records within 90m failed") as stop:
        check_tolerance(checked, Counts(read=1, dead=1), [tally(0, wrong_type=1)], earlier)
    assert "1 × wrong_type: topic payments, partition 0, offset 40" in str(stop.value)


def test_a_fault_of_frazil_s_own_needs_tolerance_all() -> None:
    unexpected = Example("payments", 2, 7, "decode_value", "unexpected_error", None, "KeyError at leaves.py:5")
    broken = Tally(
        "payments", 2, dead=1, reasons={"unexpected_error": 1}, examples={"unexpected_error": unexpected},
        unexpected=unexpected,
    )  # fmt: skip
    check_tolerance(spec(tolerance="all"), Counts(read=5, dead=1), [broken])
    with pytest.raises(ToleranceError) as stop:
        check_tolerance(spec(), Counts(read=5, dead=1), [tally(0, wrong_type=1), broken])
    text = str(stop.value)
    assert "frazil itself fails at a record; topic payments, partition 2, offset 7" in text
    assert "unexpected_error in decode_value (KeyError at leaves.py:5)" in text
    assert "tolerance: all" in text


@pytest.mark.parametrize("off", ["off", False, None])
def test_without_a_breaker_any_number_is_kept_as_dead_letters(off: object) -> None:
    for proved in (True, False):
        check_tolerance(
            spec(stop_above=off), Counts(read=10_000, dead=10_000), [tally(0, wrong_type=10_000)], proved=proved
        )


@pytest.mark.parametrize(
    ("proved", "read", "dead", "stops"),
    [
        (True, 9, 9, False),
        (True, 10, 10, True),
        (True, 100, 65, False),
        (True, 100, 66, True),
        (True, 1_000, 500, False),
        (True, 1_000, 501, True),
        (True, 1_000_000, 50_000, False),
        (False, 9, 9, False),
        (False, 19, 19, True),
        (False, 20, 10, False),
        (False, 20, 11, True),
        (False, 3_201, 3_201, True),
    ],
)
def test_without_a_word_in_the_file_more_bad_than_good_records_stop(
    proved: bool, read: int, dead: int, stops: bool
) -> None:
    counts = Counts(read=read, landed=read - dead, dead=dead)
    if not stops:
        check_tolerance(spec(), counts, [tally(0, wrong_type=dead)], proved=proved)
        return
    with pytest.raises(ToleranceError) as stop:
        check_tolerance(spec(), counts, [tally(0, wrong_type=dead)], proved=proved)
    assert f"{dead} of {read} records of a batch failed" in stop.value.message
    assert ("the stream has landed none before" in stop.value.message) is not proved
    assert stop.value.fix is not None
    assert "stop_above: off for no limit" in stop.value.fix


@pytest.mark.parametrize("limit", [{"count": 5_000}, {"ratio": 0.9}, {"window": {"of": "1h", "count": 5_000}}])
def test_a_limit_that_the_file_sets_is_the_only_one(limit: dict[str, Any]) -> None:
    counts = Counts(read=1_000, landed=200, dead=800)
    for proved in (True, False):
        check_tolerance(spec(stop_above=limit), counts, [tally(0, wrong_type=800)], Counts(), proved=proved)


def test_a_stop_says_what_was_needed() -> None:
    example = Example("payments", 0, 0, "decode_value", "wrong_type", "$.n", needs="needs int, found a string")
    failed = Tally("payments", 0, dead=30, reasons={"wrong_type": 30}, examples={"wrong_type": example})
    with pytest.raises(ToleranceError, match=r"wrong_type in decode_value, field \$\.n: needs int, found a string"):
        check_tolerance(spec(), Counts(read=30, dead=30), [failed], proved=False)


def test_a_record_that_no_table_takes_stops_a_stream_whose_route_says_so() -> None:
    route = {"by": "id", "tables": [{"match": "a", "table": "orders.a"}]}
    counts = Counts(read=9, landed=7, dead=2)
    letters = [tally(1, wrong_type=1), tally(0, unrouted=1)]
    for unmatched in ("dead_letter", "drop"):
        check_tolerance(spec(route={**route, "unmatched": unmatched}), counts, letters)
    stopping = spec(route={**route, "unmatched": "fail"})
    check_tolerance(stopping, counts, letters[:1])
    with pytest.raises(ToleranceError) as stop:
        check_tolerance(stopping, counts, letters)
    text = str(stop.value)
    assert "route.unmatched is fail, and no table of the route takes 1 of 9 records" in text
    assert "topic payments, partition 0, offset 40: unrouted" in text and "route.tables" in text


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
