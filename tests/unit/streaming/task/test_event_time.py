"""Event times of blocks, against a reference that looks at one row after another; and late records through a task."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.config.stream.event_time import EventTime
from jobs.records.formats.interface.problems import LATE
from jobs.streaming.pipeline.block import Block
from jobs.streaming.task.event_time import EventTimePlan, judge_block
from jobs.tables.commit.stamp.event_times import NO_EVENTS, EventCounts
from jobs.tables.commit.stamp.lateness import LATENESS_MS
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from tests.helpers.tasks import TaskWorld, records, stream_spec

P = TopicPartition("payments", 0)
DAY = 86_400_000
BASE = datetime(2026, 3, 1, 12, tzinfo=UTC)
BASE_MS = round(BASE.timestamp() * 1000)
ALWAYS = EventTime.model_validate({"column": "at"})


def block_of(times: pa.Array, gaps: int = 0, name: str = "at") -> Block:
    """Records at the offsets from 100, of which the first `gaps` gave no row."""
    count = len(times) + gaps
    offsets = pa.RecordBatch.from_arrays([pa.array(range(100, 100 + count), pa.int64())], ["offset"])
    rows = pa.RecordBatch.from_arrays([times], [name])
    positions = np.arange(gaps, count, dtype=np.int64)
    return Block(offsets, rows, positions, [], np.arange(gaps, dtype=np.int64), "orders.payments", {})


def utc(at_ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)


rows = st.lists(
    st.tuples(
        st.none() | st.integers(-2 * DAY, 2 * DAY).map(lambda off: BASE_MS + off) | st.just(BASE_MS),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)
bounds = st.none() | st.integers(-DAY, DAY).map(lambda off: BASE_MS + off)


@settings(max_examples=300, deadline=None)
@given(
    rows, bounds, bounds, bounds, st.integers(0, 30), st.sampled_from(["land", "dead_letter"]), st.booleans(), st.data()
)
def test_a_block_is_judged_as_its_rows_are(
    found: list[tuple[int | None, bool, bool]],
    bound: int | None,
    first: int | None,
    second: int | None,
    step: int,
    late: str,
    passes: bool,
    data: st.DataObject,
) -> None:
    gaps, unit = data.draw(st.integers(0, 2)), data.draw(st.sampled_from(["us", "ns"]))
    scale = 1_000 if unit == "us" else 1_000_000
    column = pa.array([None if at is None else at * scale for at, _, _ in found], pa.timestamp(unit, "UTC"))
    spec = EventTime.model_validate({"column": "at", "late": late})
    ahead = BASE_MS + DAY // 2
    steps = {P: ((100, first), (100 + step, second))} if passes else {}
    plan = EventTimePlan(spec, bound, ahead, steps)
    wanted = np.array([True] * gaps + [each for _, each, _ in found])
    letters = np.array([True] * gaps + [each for _, _, each in found])
    block = block_of(column, gaps)
    judged = judge_block(plan, P, block, wanted, letters)

    landed: list[int] = []
    dead: list[int] = []
    lateness: list[int] = []
    late_landed: list[int] = []
    believed: list[int] = []
    nulls = beyond = 0
    counted_dead = 0
    for index, (at, want, letter) in enumerate(found):
        if at is None:
            nulls += want
            continue
        limit = bound
        if not want and passes:
            limit = second if 100 + gaps + index >= 100 + step else first
        is_late = limit is not None and at < limit
        is_dead = is_late and late == "dead_letter" and (letter or not want)
        dead += [index + gaps] if is_dead else []
        if want:
            counted_dead += is_dead
            landed += [] if is_dead else [at]
            lateness += [limit - at] if is_late and limit is not None else []
            late_landed += [at] if is_late and not is_dead else []
            believed += [at] if at <= ahead else []
            beyond += at > ahead
    histogram = [0] * 5
    for by in lateness:
        histogram[next((n for n, most in enumerate(LATENESS_MS) if by <= most), 4)] += 1
    assert list(judged.counts.late) == histogram
    assert judged.counts.latest_ms == max(lateness, default=0)
    assert judged.counts.dead == counted_dead
    assert sum(judged.counts.periods.values()) == len(late_landed)
    assert all(judged.counts.periods.get(at - at % 3_600_000) for at in late_landed)
    assert (judged.counts.least_ms, judged.counts.greatest_ms) == (min(landed, default=None), max(landed, default=None))
    assert (judged.counts.nulls, judged.counts.ahead) == (nulls, beyond)
    assert judged.greatest_ms == max(believed, default=None)
    assert [failure.row for failure in judged.block.failures] == dead
    # A record is a row, a failure, or was dropped before: never two of them, never none.
    assert sorted([*judged.block.positions, *dead, *judged.block.dropped]) == list(range(len(found) + gaps))
    kept = [at for index, (at, _, _) in enumerate(found) if index + gaps not in dead]
    assert judged.block.rows.column("at").cast(pa.int64()).to_pylist() == [
        None if at is None else at * scale for at in kept
    ]


def test_a_date_is_late_once_its_whole_day_is() -> None:
    days = pa.array([date(2026, 2, 27), date(2026, 2, 28), None, date(2026, 3, 1)], pa.date32())
    bound = round(datetime(2026, 2, 28, 23, 59, tzinfo=UTC).timestamp() * 1000)
    every = np.ones(4, bool)
    judged = judge_block(EventTimePlan(ALWAYS, bound, BASE_MS), P, block_of(days), every, every)
    assert judged.counts.late_records == 1
    assert judged.counts.latest_ms == DAY - 60_000 + 1
    assert (judged.greatest_ms, judged.counts.nulls) == (BASE_MS - DAY // 2, 1)
    assert judged.counts.least_ms == round(datetime(2026, 2, 27, tzinfo=UTC).timestamp() * 1000)


def test_a_column_within_structs_is_null_where_they_are() -> None:
    spec = EventTime.model_validate({"column": "payload.meta.at"})
    kind = pa.struct([("meta", pa.struct([("at", pa.timestamp("us"))]))])
    values = [
        {"meta": {"at": datetime(2026, 3, 1, 12)}},
        {"meta": None},
        None,
        {"meta": {"at": datetime(2026, 3, 1, 13)}},
    ]
    every = np.ones(4, bool)
    block = block_of(pa.array(values, kind), name="payload")
    judged = judge_block(EventTimePlan(spec, None, BASE_MS + DAY), P, block, every, every)
    assert judged.counts == EventCounts(BASE_MS, BASE_MS + 3_600_000, 2)


@pytest.mark.parametrize("name", ["made at", "made_x20at"])
def test_a_column_has_its_own_name_or_that_in_files(name: str) -> None:
    """Rows that a table takes as they are have the names that its files give them."""
    plan = EventTimePlan(EventTime.model_validate({"column": "`made at`"}), None, BASE_MS)
    times = pa.array([BASE_MS * 1000], pa.timestamp("us", "UTC"))
    every = np.ones(1, np.bool_)
    assert judge_block(plan, P, block_of(times, name=name), every, every).greatest_ms == BASE_MS


def test_rows_without_any_event_time_are_counted_and_move_nothing() -> None:
    every = np.ones(3, bool)
    judged = judge_block(
        EventTimePlan(ALWAYS, BASE_MS, BASE_MS), P, block_of(pa.nulls(3, pa.timestamp("us"))), every, every
    )
    assert (judged.counts, judged.greatest_ms) == (EventCounts(nulls=3), None)
    nothing = block_of(pa.nulls(0, pa.timestamp("us")), gaps=3)
    assert judge_block(EventTimePlan(ALWAYS, BASE_MS, BASE_MS), P, nothing, every, every).counts == NO_EVENTS


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TaskWorld]:
    """A stream with an event time; `request.param`: what becomes of late records, and further keys of `errors`."""
    late, errors = request.param
    spec = stream_spec("id long, at timestamptz as iso", errors=errors)
    spec = spec.model_copy(update={"event_time": EventTime.model_validate({"column": "at", "late": late})})
    made = TaskWorld(tmp_path, spec)
    assert spec.event_time
    made.event_time = EventTimePlan(spec.event_time, BASE_MS, BASE_MS + DAY)
    yield made
    made.close()


def value(number: int, minutes: int | None) -> bytes:
    at = None if minutes is None else (BASE + timedelta(minutes=minutes)).isoformat()
    return json.dumps({"id": number, "at": at}).encode()


VALUES = [value(0, 5), value(1, -2), b"{", value(3, None), None, value(5, -150), value(6, 60)]


@pytest.mark.parametrize("world", [("land", None)], indirect=True)
def test_late_records_land_and_are_counted(world: TaskWorld) -> None:
    made = world.run(records(VALUES))
    assert made.offsets == [0, 1, 3, 5, 6]
    (tally,) = made.tallies
    assert made.counts == Counts(7, 5, 1, 1)
    hour = 3_600_000
    assert tally.events == EventCounts(
        BASE_MS - 150 * 60_000,
        BASE_MS + hour,
        nulls=1,
        late=(0, 1, 0, 1, 0),
        latest_ms=150 * 60_000,
        periods={BASE_MS - hour: 1, BASE_MS - 3 * hour: 1},
    )
    assert tally.greatest_event_ms == BASE_MS + hour


@pytest.mark.parametrize("world", [("dead_letter", None)], indirect=True)
def test_late_records_become_letters_that_say_when_they_are_of(world: TaskWorld) -> None:
    made = world.run(records(VALUES))
    assert made.offsets == [0, 3, 6]
    assert sorted(made.letters) == [1, 2, 5]
    letter = made.letters[5]
    assert (letter["error_class"], letter["stage"], letter["field"]) == (LATE, "event_time", "$.at")
    assert letter["value"] == VALUES[5]
    assert letter["message"] == (
        "needs an event time within the grace, found 2026-03-01T09:30:00.000Z: "
        "2:30:00 before the watermark 2026-03-01T12:00:00.000Z"
    )
    (tally,) = made.tallies
    assert made.counts == Counts(7, 3, 3, 1)
    assert tally.reasons == {LATE: 2, "malformed_json": 1}
    assert (tally.events.dead, tally.events.periods, tally.events.least_ms) == (2, {}, BASE_MS + 5 * 60_000)
    # All letters of this kind have one cause, whenever they are of.
    assert [cause.count for key, cause in tally.causes.items() if key.startswith(LATE)] == [2]


@pytest.mark.parametrize("world", [("dead_letter", {"dead_letters": {"mask": {"columns": ["at"]}}})], indirect=True)
def test_a_masked_event_time_is_not_told(world: TaskWorld) -> None:
    letter = world.run(records(VALUES)).letters[5]
    assert letter["message"] == "what was found is masked"
    assert b"2026" not in letter["value"]


def test_without_an_event_time_nothing_is_counted(tmp_path: Path) -> None:
    plain = TaskWorld(tmp_path, stream_spec("id long, at timestamptz as iso"))
    (tally,) = plain.run(records(VALUES)).tallies
    plain.close()
    assert (tally.events, tally.greatest_event_ms) == (NO_EVENTS, None)


def test_the_hours_of_late_rows_are_those_of_the_zone() -> None:
    spec: Any = EventTime.model_validate({"column": "at", "closes": "day", "zone": "Asia/Kolkata"})
    at = [datetime(2026, 2, 27, 18, 29, tzinfo=UTC), datetime(2026, 2, 27, 18, 30, tzinfo=UTC)]
    every = np.ones(2, bool)
    judged = judge_block(
        EventTimePlan(spec, BASE_MS, BASE_MS), P, block_of(pa.array(at, pa.timestamp("us", "UTC"))), every, every
    )
    assert {utc(start): rows for start, rows in judged.counts.periods.items()} == {
        datetime(2026, 2, 26, 18, 30, tzinfo=UTC): 1,
        datetime(2026, 2, 27, 18, 30, tzinfo=UTC): 1,
    }
