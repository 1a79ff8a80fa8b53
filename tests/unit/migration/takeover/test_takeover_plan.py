from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from jobs.migration.sink_protocol.control_events import Announcement, ControlEvent, Progress
from jobs.migration.sink_protocol.sink_floor import SinkFloor
from jobs.migration.takeover.completion_plan import PassedOver, TableFacts, plan_tables
from jobs.migration.takeover.control_topic import (
    LOOK_BACK,
    ControlFacts,
    check_control_log,
    control_facts,
    ranges_to_read,
)
from jobs.migration.takeover.sink import sink_of
from jobs.migration.takeover.sink_kafka import ControlLog
from jobs.migration.takeover.stream_start import check_group, plan_partitions
from jobs.migration.takeover.takeover_refusal import TakeoverRefusedError
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition

SINK = sink_of("orders", "apache", group=None, control_topic="control")
GROUP = "connect-orders"
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
LOG = ControlLog({0: 0}, {0: 100}, 0)
TABLE = "tests.orders"
UUID = "u-1"


def file(path: str, rows: int = 5) -> dict[str, Any]:
    return {"file_path": path, "record_count": rows}


def announced(offset: int, *paths: str, table: str = TABLE, uuid: str | None = UUID, deletes: int = 0) -> ControlEvent:
    return ControlEvent(0, offset, GROUP, Announcement(table, uuid, tuple(map(file, paths)), deletes))


def facts(*events: ControlEvent, coordinator: int | None = 0) -> ControlFacts:
    return control_facts(SINK, LOG, {} if coordinator is None else {0: coordinator}, events)


def table(floor: int | None = 10, **options: Any) -> TableFacts:
    known = SinkFloor({0: floor}, 1, 1) if floor is not None else SinkFloor(None)
    return TableFacts(TABLE, True, UUID, options.pop("of", known), **options)


def planned(control: ControlFacts, *tables: TableFacts, passed_over: PassedOver | None = None) -> dict[str, list[str]]:
    completions = plan_tables(SINK, control, {table.name: table for table in tables}, passed_over)
    return {completion.table: [file.path for file in completion.files] for completion in completions}


# Files


@pytest.mark.parametrize(("floor", "at", "live"), list(itertools.product([None, 10], [9, 10, 11], [False, True])))
def test_a_file_is_committed_if_it_is_at_or_above_the_floor_and_in_no_snapshot(
    floor: int | None, at: int, live: bool
) -> None:
    found = planned(facts(announced(at, "a")), table(floor, live=frozenset({"a"} if live else ())))
    assert found == {TABLE: ["a"] if at >= (floor or 0) and not live else []}


def test_a_path_counts_once_and_empty_files_not_at_all() -> None:
    empty = ControlEvent(0, 13, GROUP, Announcement(TABLE, UUID, (file("empty", 0),)))
    assert planned(facts(announced(11, "a", "b"), announced(12, "b"), empty), table()) == {TABLE: ["a", "b"]}


def test_each_table_has_its_own_floor() -> None:
    other = TableFacts("tests.other", True, UUID, SinkFloor({0: 30}, 1, 1))
    found = facts(announced(20, "a"), announced(20, "b", table="tests.other"), announced(30, "c", table="tests.other"))
    assert planned(found, table(), other) == {TABLE: ["a"], "tests.other": ["c"]}


def test_events_of_other_sinks_are_left_alone() -> None:
    foreign = replace(announced(20, "a"), group="connect-another")
    assert planned(facts(foreign), table()) == {TABLE: []}


def doubtful(**options: Any) -> dict[str, tuple[ControlFacts, TableFacts, str, bool]]:
    one = facts(announced(20, "a"))
    expired = table(of=SinkFloor(None, whole=False))
    other_partition = table(of=SinkFloor({1: 10}, 1, 1, whole=False))
    back = table(of=SinkFloor({0: 10}, 1, 1, elsewhere=(7,)))
    return {
        "gone": (one, TableFacts(TABLE, exists=False), "have no table any more", False),
        "recreated": (facts(announced(20, "a", uuid="u-0")), table(), "that was dropped since", False),
        "misfit": (one, table(misfits={"a": "are missing in the store"}), "are missing in the store", False),
        "expired": (one, expired, "the snapshots that would show it have expired", False),
        "expired in one partition": (one, other_partition, "the snapshots that would show it have expired", False),
        "rolled back": (one, back, "were taken out by a rollback", True),
        "passed over": (facts(announced(20, "a"), coordinator=21), table(), "were passed over by the sink's", True),
    }


@pytest.mark.parametrize("case", sorted(doubtful()))
def test_an_operator_decides_on_a_file_that_may_not_belong_to_the_table(case: str) -> None:
    found, each, why, completable = doubtful()[case]
    with pytest.raises(TakeoverRefusedError, match=why) as refused:
        planned(found, each)
    assert "1 announced files of table tests.orders with 5 rows (control topic at 0:20)" in refused.value.message
    fix = refused.value.fix or ""
    assert ("--passed-over leave" in fix, "--passed-over complete" in fix) == (True, completable)
    (left,) = plan_tables(SINK, found, {TABLE: each}, "leave")
    assert (left.files, [one.path for one in left.left_out]) == ((), ["a"])
    if completable:
        assert planned(found, each, passed_over="complete") == {TABLE: ["a"]}
    else:
        with pytest.raises(TakeoverRefusedError, match=why):
            planned(found, each, passed_over="complete")


def test_an_expired_floor_is_no_question_where_the_coordinator_has_committed_all() -> None:
    expired = table(of=SinkFloor(None, whole=False))
    assert planned(facts(announced(20, "a"), coordinator=21), expired) == {TABLE: []}


@pytest.mark.parametrize("deletes", [0, 1])
@pytest.mark.parametrize("now", [TableFacts(TABLE, exists=False), TableFacts(TABLE, True, "u-2")])
def test_what_a_dropped_table_had_is_no_question(now: TableFacts, deletes: int) -> None:
    found = facts(announced(20, "a", deletes=deletes), coordinator=21)
    assert planned(found, now) == {TABLE: []}
    with pytest.raises(TakeoverRefusedError):
        planned(facts(announced(21, "a", deletes=deletes), coordinator=21), now)


def test_files_announced_without_a_table_uuid_belong_to_the_table() -> None:
    assert planned(facts(announced(20, "a", uuid=None)), table()) == {TABLE: ["a"]}


@pytest.mark.parametrize("passed_over", [None, "leave", "complete"])
def test_delete_files_are_never_committed(passed_over: PassedOver | None) -> None:
    with pytest.raises(TakeoverRefusedError, match="it upserts"):
        planned(facts(announced(20, "a", deletes=1)), table(), passed_over=passed_over)
    assert planned(facts(announced(9, "a", deletes=1)), table()) == {TABLE: []}


# The control topic


def check(log: ControlLog, coordinator: int | None, floors: Mapping[str, int | None], *, dynamic: bool = False) -> None:
    known = {name: SinkFloor({0: at}, 1, 1) if at is not None else SinkFloor(None) for name, at in floors.items()}
    sink = replace(SINK, dynamic=dynamic)
    check_control_log(sink, log, {} if coordinator is None else {0: coordinator}, known)


@pytest.mark.parametrize(("coordinator", "floor"), [(101, 10), (None, 101), (5, 101)])
def test_a_control_topic_that_ends_before_what_is_applied_is_another_one(coordinator: int | None, floor: int) -> None:
    with pytest.raises(TakeoverRefusedError, match="deleted and created again"):
        check(LOG, coordinator, {"t": floor})


@pytest.mark.parametrize(
    ("earliest", "coordinator", "floors", "dynamic", "refused"),
    [
        (0, None, {"t": None}, True, False),
        (50, 50, {"t": 10}, True, False),
        (50, 49, {"t": 50}, False, False),
        (50, None, {"t": 50}, False, False),
        # Records may name tables that the stream does not list.
        (50, 49, {"t": 50}, True, True),
        (50, 49, {"t": 49}, False, True),
        (50, None, {"t": 50, "u": 49}, False, True),
        (50, None, {"t": None}, False, True),
    ],
)
def test_removed_announcements_have_to_be_known_as_committed(
    earliest: int, coordinator: int | None, floors: Mapping[str, int | None], dynamic: bool, refused: bool
) -> None:
    log = ControlLog({0: earliest}, {0: 100}, 0)
    if not refused:
        check(log, coordinator, floors, dynamic=dynamic)
        return
    with pytest.raises(TakeoverRefusedError, match="keeps partition 0 from offset 50 on"):
        check(log, coordinator, floors, dynamic=dynamic)


def test_all_that_may_be_in_no_table_is_read() -> None:
    end = 10 * LOOK_BACK
    log = ControlLog({0: 3, 1: 0}, {0: end, 1: 5}, 0)
    floors = [SinkFloor({0: end, 1: 5}), SinkFloor({0: 5 * LOOK_BACK}), SinkFloor(None, whole=False)]
    assert ranges_to_read(log, {0: 6 * LOOK_BACK, 1: 5}, floors) == {
        0: OffsetRange(4 * LOOK_BACK, end),
        1: OffsetRange(0, 5),
    }
    assert ranges_to_read(log, {}, floors[:1])[0] == OffsetRange(3, end), "without a coordinator from the beginning"


def test_a_partition_that_changed_its_task_counts_by_its_furthest_answer() -> None:
    events = [
        ControlEvent(0, 1, GROUP, Progress({P0: 10, P1: 4})),
        ControlEvent(0, 2, GROUP, Progress({P0: 7})),
        ControlEvent(1, 0, GROUP, Progress({P1: 9})),
        ControlEvent(1, 1, "connect-another", Progress({P1: 99})),
    ]
    assert control_facts(SINK, LOG, {}, events).progress == {P0: 7, P1: 9}


# Offsets


def log(latest: Mapping[TopicPartition, int], earliest: Mapping[TopicPartition, int] | None = None) -> LogState:
    return LogState({"orders": "id"}, earliest or dict.fromkeys(latest, 0), latest, latest)


def starts(kept: LogState, committed: Any, progress: Any = None, *, trust: bool = False) -> dict[TopicPartition, int]:
    check_group(SINK, kept, committed)
    found = plan_partitions(SINK, kept, committed, progress or {}, trust_group=trust)
    return {each.partition: each.start for each in found}


def test_the_stream_starts_at_the_groups_offsets() -> None:
    assert starts(log({P0: 20, P1: 9}), {P0: 12, P1: 9}, {P0: 12}) == {P0: 12, P1: 9}


def test_an_empty_partition_without_an_offset_starts_where_it_begins() -> None:
    assert starts(log({P0: 20, P1: 7}, {P0: 0, P1: 7}), {P0: 12}) == {P0: 12, P1: 7}


@pytest.mark.parametrize(
    ("committed", "progress", "kept", "why"),
    [
        ({}, {}, log({P0: 20}), "has no offsets of orders"),
        ({P0: 3}, {}, log({P0: 20, P1: 1}), "has no offset of orders-1"),
        ({P0: 3}, {P1: 5}, log({P0: 20, P1: 7}, {P0: 0, P1: 7}), "read up to 5"),
        ({P0: 21}, {}, log({P0: 20}), "the topic was recreated"),
        ({P0: 3}, {}, log({P0: 20}, {P0: 4}), "records were removed before"),
        ({P0: 12}, {P0: 13}, log({P0: 20}), "12 in the group, 13 on the control topic"),
        ({P0: 13}, {P0: 12}, log({P0: 20}), "13 in the group, 12 on the control topic"),
    ],
)
def test_offsets_that_are_not_certain_are_refused(committed: Any, progress: Any, kept: LogState, why: str) -> None:
    with pytest.raises(TakeoverRefusedError, match=why):
        starts(kept, committed, progress)


@pytest.mark.parametrize(("committed", "progress"), [({}, {}), ({P0: 3}, {P1: 5}), ({P0: 3}, {})])
def test_a_sink_without_an_offset_is_not_to_be_started(committed: Any, progress: Any) -> None:
    with pytest.raises(TakeoverRefusedError) as refused:
        starts(log({P0: 20, P1: 7}), committed, progress)
    fix = refused.value.fix or ""
    assert "--reset-offsets" in fix
    assert not fix.startswith("start the connector"), "it would land again what the tables have"
    assert ("--to-offset 5" in fix) == bool(progress)


def test_an_operator_may_trust_the_group() -> None:
    assert starts(log({P0: 20}), {P0: 12}, {P0: 13}, trust=True) == {P0: 12}
    with pytest.raises(TakeoverRefusedError, match="records were removed before"):
        starts(log({P0: 20}, {P0: 13}), {P0: 12}, {P0: 13}, trust=True)


def test_records_of_an_open_transaction_wait() -> None:
    kept = LogState({"orders": "id"}, {P0: 0}, {P0: 10}, {P0: 20})
    with pytest.raises(TakeoverRefusedError, match="a transaction is open from 10 on"):
        starts(kept, {P0: 12})
    assert starts(kept, {P0: 10}) == {P0: 10}
