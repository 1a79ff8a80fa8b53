"""A connector that is started again after a takeover: its commits stop the stream, and the ways to go on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from jobs.migration.sink_protocol.sink_floor import floor_text
from jobs.migration.takeover.sink import sink_of
from jobs.migration.takeover.sink_kafka import ControlLog
from jobs.migration.takeover.table_completion import COMPLETED_KEY
from jobs.migration.takeover.takeover_plan import TakeoverRequest, plan_takeover
from jobs.migration.takeover.takeover_refusal import TakeoverRefusedError
from jobs.migration.takeover.takeover_seam import seam_of
from jobs.streaming.driver.tables.former_sink import TableHead, refuse_restarted_sink
from jobs.tables.commit.history.sink_record import (
    TakeoverRecord,
    is_commit_since_takeover,
    tagged_floor,
    takeover_record,
)
from jobs.tables.commit.stamp.errors import RolledBackError, SinkRestartedError
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.memory_sink import SinkAndStream
from tests.helpers.routed_stream import SINK as TABLE

P0 = TopicPartition("payments", 0)
SINK = sink_of("sink", "apache", group=None, control_topic="control")
ANOTHER = sink_of("another", "apache", group=None, control_topic="control")
OTHER_TABLE = "orders.changes"


def sink_commits(world: SinkAndStream, name: str = TABLE, key: str = SINK.floor_key, floor: int = 20) -> Table:
    """A commit as the sink makes it, of the rows that the table has."""
    table = world.stream.catalog.load_table(name)
    table.append(table.scan().to_arrow(), snapshot_properties={key: floor_text({0: floor})})
    return table


def test_a_commit_of_the_sink_beside_a_running_stream_stops_it(taken: SinkAndStream) -> None:
    with taken.stream.opened():
        taken.stream.land_next(5)
        snapshot = sink_commits(taken).metadata.current_snapshot()
        assert snapshot is not None
        head, rows = snapshot.snapshot_id, taken.stream.offsets(TABLE)
        with pytest.raises(SinkRestartedError, match=rf"connector sink .* snapshot {head} of .* UTC") as stopped:
            taken.stream.land_next(5)
    assert (stopped.value.table, taken.stream.offsets(TABLE)) == (TABLE, rows)
    assert f"rollback_to_snapshot('{TABLE}', {snapshot.parent_snapshot_id})" in (stopped.value.fix or "")
    assert "frazil takeover payments --from-connect sink" in (stopped.value.fix or "")
    with pytest.raises(SinkRestartedError, match=f"snapshot {head} of"):
        taken.stream.open_and_close()
    (problem,) = [problem for problem in taken.stream.audited().problems if problem.kind == "stopped"]
    assert f"snapshot {head} of" in problem.sentence


def test_other_tables_get_the_batch_and_are_named_by_themselves(taken: SinkAndStream) -> None:
    with taken.stream.opened():
        taken.stream.land_next(5)
        sink_commits(taken, OTHER_TABLE)
        with pytest.raises(SinkRestartedError, match=f"table {OTHER_TABLE}"):
            taken.stream.land_next(5)
    # The batch is half committed. Once the sink's rows are taken out, it is completed.
    before = taken.stream.catalog.load_table(OTHER_TABLE).metadata.current_snapshot()
    assert before is not None
    taken.stream.roll_back(OTHER_TABLE, before.parent_snapshot_id)
    taken.stream.open_and_close()
    expected = {name: [at for at in offsets if at >= 4] for name, offsets in taken.stream.expected().items()}
    assert taken.stream.placed() == expected
    assert not taken.stream.audited().problems


@pytest.mark.parametrize("running", [True, False])
def test_one_stop_names_the_commands_of_all_tables(taken: SinkAndStream, running: bool) -> None:
    names, befores = (TABLE, OTHER_TABLE), list[int]()

    def restart() -> None:
        for name in names:
            snapshot = sink_commits(taken, name).metadata.current_snapshot()
            assert snapshot is not None and snapshot.parent_snapshot_id is not None
            befores.append(snapshot.parent_snapshot_id)

    if running:
        with taken.stream.opened():
            taken.stream.land_next(5)
            restart()
            with pytest.raises(SinkRestartedError) as stopped:
                taken.stream.land_next(5)
    else:
        taken.stream.land_elsewhere(5)
        restart()
        with pytest.raises(SinkRestartedError) as stopped:
            taken.stream.open_and_close()
    commands = [
        f"CALL system.rollback_to_snapshot('{name}', {before})" for name, before in zip(names, befores, strict=True)
    ]
    assert f"in Spark: {'; '.join(commands)}, then frazil start payments; or keep" in (stopped.value.fix or "")
    assert all(f"table {name}: snapshot" in stopped.value.message for name in names)
    for name, before in zip(names, befores, strict=True):
        taken.stream.roll_back(name, before)
    taken.stream.land_elsewhere(5)
    expected = {name: [at for at in offsets if at >= 4] for name, offsets in taken.stream.expected().items()}
    assert taken.stream.placed() == expected


def test_no_rollback_is_named_if_the_rows_of_one_table_have_to_stay(taken: SinkAndStream) -> None:
    sink_commits(taken)
    sink_commits(taken, OTHER_TABLE)
    tables = [taken.stream.catalog.load_table(name).metadata for name in (TABLE, OTHER_TABLE)]
    cut = tables[1].model_copy(update={"snapshots": tables[1].snapshots[-1:]})
    heads = [TableHead(TABLE, "main", tables[0]), TableHead(OTHER_TABLE, "main", cut)]
    with pytest.raises(SinkRestartedError) as stopped:
        refuse_restarted_sink("payments", tables[0], heads)
    assert (stopped.value.fix or "").startswith("stop the connector; then keep its rows: frazil takeover payments")


def test_a_rollback_of_the_sinks_rows_lets_the_stream_go_on(taken: SinkAndStream) -> None:
    snapshot = sink_commits(taken).metadata.current_snapshot()
    assert snapshot is not None
    sink_commits(taken, floor=22)
    with pytest.raises(SinkRestartedError, match=f"snapshot {snapshot.snapshot_id} of .* and 1 later") as stopped:
        taken.stream.open_and_close()
    assert f", {snapshot.parent_snapshot_id})" in (stopped.value.fix or "")
    taken.stream.roll_back(TABLE, snapshot.parent_snapshot_id)
    taken.stream.land_elsewhere(5)
    expected = {name: [at for at in offsets if at >= 4] for name, offsets in taken.stream.expected().items()}
    assert taken.stream.placed() == expected


def test_a_rollback_to_before_the_streams_first_batch_lands_no_row_of_the_sink_again(world: SinkAndStream) -> None:
    world.stream.produce(4)
    sink_commits(world, OTHER_TABLE, floor=10)
    world.kafka.groups["connect-sink"] = {P0: 4}
    world.take_over()
    before = world.stream.head(OTHER_TABLE)
    world.stream.land_elsewhere()
    world.stream.land_elsewhere()
    world.stream.roll_back(OTHER_TABLE, before)
    with pytest.raises(RolledBackError, match=r"records payments-0 \[4, 14\) are no longer in it"):
        world.stream.open_and_close()
    world.stream.answer(rollback="reland")
    world.stream.land_elsewhere()
    assert world.stream.offsets(OTHER_TABLE) == [5, 6, 10, 11, 15, 16]
    assert not world.stream.audited().problems


@pytest.mark.parametrize(("sink_ended", "start"), [(7, 10), (10, 10), (13, 13)])
def test_a_second_takeover_goes_on_behind_both(taken: SinkAndStream, sink_ended: int, start: int) -> None:
    taken.stream.produce(5)
    sink_commits(taken)
    taken.kafka.groups["connect-sink"] = {P0: sink_ended}
    taken.kafka.log = ControlLog({0: 0}, {0: 25}, 0)
    plan = taken.take_over()
    assert plan.start == {P0: start}
    (note,) = [note for note in plan.notes if "exist twice" in note]
    assert f"former end up to payments-0 at {min(sink_ended, 10)} exist twice" in note
    taken.stream.land_elsewhere(5)
    assert max(taken.stream.offsets(TABLE)) == 18
    result = taken.stream.audited()
    assert result.doubled > 0
    assert not [problem for problem in result.problems if problem.kind == "stopped"]


def test_a_second_takeover_completes_a_half_committed_batch(taken: SinkAndStream) -> None:
    with taken.stream.opened():
        taken.stream.land_next(5)
        sink_commits(taken, OTHER_TABLE)
        with pytest.raises(SinkRestartedError):
            taken.stream.land_next(5)
    taken.kafka.groups["connect-sink"] = {P0: 7}
    taken.kafka.log = ControlLog({0: 0}, {0: 25}, 0)
    assert taken.take_over().start == {P0: 20}
    taken.stream.land_elsewhere(5)
    assert [at for at in taken.stream.offsets(TABLE) if at >= 4] == [
        at for at in taken.stream.expected()[TABLE] if at >= 4
    ]


@pytest.mark.parametrize(("sink_ended", "start"), [(7, 20), (17, 20), (22, 22)])
def test_a_second_takeover_goes_on_behind_a_batch_that_no_table_had(
    taken: SinkAndStream, sink_ended: int, start: int
) -> None:
    with taken.stream.opened():
        taken.stream.land_next(5)
        sink_commits(taken)
        with pytest.raises(SinkRestartedError):
            taken.stream.land_next(5)
    taken.stream.produce(5)
    taken.kafka.groups["connect-sink"] = {P0: sink_ended}
    taken.kafka.log = ControlLog({0: 0}, {0: 25}, 0)
    request = TakeoverRequest(SINK)
    planned = plan_takeover(taken.stream.spec, taken.stream.settings, request)
    assert any("The takeover commits it first" in note for note in planned.notes)
    plan = taken.take_over()
    assert plan.start == {P0: start}
    assert not any("commits it first" in note for note in plan.notes)
    taken.stream.land_elsewhere(5)
    for name, offsets in taken.stream.expected().items():
        since = [at for at in taken.stream.offsets(name) if at >= 15]
        assert since == [at for at in offsets if 15 <= at < 20 or at >= start]


def test_a_hand_back_does_not_pass_over_commits_since_the_takeover(taken: SinkAndStream) -> None:
    sink_commits(taken, OTHER_TABLE)
    taken.kafka.groups["connect-sink"] = {P0: 7}
    taken.kafka.log = ControlLog({0: 0}, {0: 25}, 0)
    with pytest.raises(SinkRestartedError, match=f"table {OTHER_TABLE}"):
        taken.hand_back()
    assert taken.offsets() == {P0: 7}
    taken.take_over()
    taken.hand_back()
    assert taken.offsets() == {P0: 10}


def test_the_seam_is_not_sound_beside_a_sink_that_commits(world: SinkAndStream) -> None:
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {P0: 4}
    plan = world.take_over()
    world.stream.land_elsewhere(6)
    given = (world.stream.spec, world.stream.settings, world.stream.catalog, plan)
    assert (seam_of(*given).sound, seam_of(*given).stops) == (True, ())
    sink_commits(world)
    seam = seam_of(*given)
    assert not seam.sound
    assert "connector sink" in seam.stops[0]


def test_another_connector_and_copies_of_the_key_do_not_stop_the_stream(taken: SinkAndStream) -> None:
    sink_commits(taken, key=ANOTHER.floor_key)
    # Somebody copies the summary of the sink's last snapshot.
    sink_commits(taken, floor=12)
    taken.stream.land_elsewhere(5)


def test_a_hand_back_is_not_watched(taken: SinkAndStream) -> None:
    taken.hand_back()
    sink_commits(taken, floor=30)
    assert not [problem for problem in taken.stream.audited().problems if problem.kind == "stopped"]


@pytest.mark.parametrize("tagged", [True, False])
def test_a_takeover_of_an_earlier_version_is_watched_from_the_tag_of_the_sink(
    taken: SinkAndStream, tagged: bool
) -> None:
    taken.hand_back()
    sink_commits(taken, floor=14)
    taken.kafka.log = ControlLog({0: 0}, {0: 16}, 0)
    taken.take_over()
    table = taken.stream.catalog.load_table(TABLE)
    record = takeover_record(table.metadata, "payments")
    assert record is not None and tagged_floor(table.metadata, record) == {0: 14}
    with table.transaction() as change:
        change.set_properties(msgspec.structs.replace(record, floor={}).properties("payments"))
    if not tagged:
        table.manage_snapshots().remove_tag("connect-sink").commit()
    # A copy of an earlier summary, then a commit of the sink.
    sink_commits(taken, floor=14)
    taken.stream.open_and_close()
    after = sink_commits(taken, floor=20).metadata.current_snapshot()
    assert after is not None
    if tagged:
        with pytest.raises(SinkRestartedError, match=f"snapshot {after.snapshot_id} of"):
            taken.stream.open_and_close()
    else:
        taken.stream.open_and_close()


@pytest.mark.parametrize("restarted", [False, True])
def test_the_same_takeover_again_names_no_offset_that_lands_records_twice(
    taken: SinkAndStream, restarted: bool
) -> None:
    if restarted:
        sink_commits(taken)
        taken.kafka.groups["connect-sink"] = {P0: 7}
        taken.kafka.log = ControlLog({0: 0}, {0: 25}, 0)
        taken.take_over()
    with pytest.raises(TakeoverRefusedError, match=r"has taken over .* already\..* is at payments-0 at 10\.") as ended:
        taken.take_over()
    assert (ended.value.fix or "").startswith("frazil start payments")
    assert "reset-offsets" not in (ended.value.fix or "")
    taken.stream.land_elsewhere(5)


def test_a_takeover_after_a_rollback_of_the_sinks_rows_does_not_pass_them_over(taken: SinkAndStream) -> None:
    taken.stream.produce(5)
    snapshot = sink_commits(taken).metadata.current_snapshot()
    assert snapshot is not None
    taken.kafka.groups["connect-sink"] = {P0: 13}
    taken.stream.roll_back(TABLE, snapshot.parent_snapshot_id)
    with pytest.raises(TakeoverRefusedError, match="Group connect-sink is further on") as refused:
        taken.take_over()
    assert (refused.value.fix or "").startswith("frazil start payments, which goes on there")
    assert "only if the tables have what lies below" in (refused.value.fix or "")
    assert (refused.value.fix or "").endswith("frazil reset-offsets payments --to payments:0=13")


def test_a_second_takeover_finds_commits_in_tables_that_values_have_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = SinkAndStream(tmp_path, monkeypatch, {"by": "type", "to": "events.{value}"})
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {P0: 4}
    world.take_over()
    world.stream.land_elsewhere(6)
    # The sink has committed all that it announced, so its control topic names no table any more.
    sink_commits(world, "events.INS")
    with pytest.raises(SinkRestartedError, match=r"table events\.INS"):
        world.stream.open_and_close()
    world.kafka.groups["connect-sink"] = {P0: 7}
    world.kafka.log = ControlLog({0: 0}, {0: 25}, 0)
    assert world.take_over().start == {P0: 10}
    world.stream.open_and_close()


def test_a_second_takeover_from_a_sink_that_got_another_control_topic(taken: SinkAndStream) -> None:
    taken.stream.produce(5)
    sink_commits(taken)
    taken.kafka.groups["connect-sink"] = {P0: 13}
    assert taken.take_over(sink_of("sink", "apache", group=None, control_topic="control-2")).start == {P0: 13}
    taken.stream.open_and_close()


def test_no_rollback_is_named_to_a_snapshot_that_may_hold_rows_of_the_sink(taken: SinkAndStream) -> None:
    first = sink_commits(taken).metadata.current_snapshot()
    assert first is not None
    table = taken.stream.catalog.load_table(TABLE)
    table.append(table.scan().to_arrow())
    sink_commits(taken, floor=22)
    metadata = taken.stream.catalog.load_table(TABLE).metadata
    left = metadata.snapshots[[each.snapshot_id for each in metadata.snapshots].index(first.snapshot_id) + 1 :]
    assert len(left) == 2
    for known, named in ((metadata, True), (metadata.model_copy(update={"snapshots": left}), False)):
        with pytest.raises(SinkRestartedError) as stopped:
            refuse_restarted_sink("payments", metadata, [TableHead(TABLE, "main", known)])
        assert ("rollback_to_snapshot" in (stopped.value.fix or "")) == named
        assert "frazil takeover payments --from-connect sink --connect URL" in (stopped.value.fix or "")


def test_the_rollback_quotes_names_that_spark_does_not_take_as_they_are(taken: SinkAndStream) -> None:
    metadata = sink_commits(taken).metadata
    for branch, statement in (
        ("main", "CALL system.rollback_to_snapshot('raw.`pay-ments`', "),
        ("audit-1", "ALTER TABLE raw.`pay-ments` REPLACE BRANCH `audit-1` AS OF VERSION "),
    ):
        with pytest.raises(SinkRestartedError) as stopped:
            refuse_restarted_sink("payments", metadata, [TableHead("raw.pay-ments", branch, metadata)])
        assert statement in (stopped.value.fix or "")


RECORD = TakeoverRecord(
    "sink", "apache", "connect-sink", "connect-sink", "connect-sink", "control", 0.0, "ada", floor={0: 12, 1: 5}
)
APPEND, OVERWRITE, REPLACE, DELETE = Operation.APPEND, Operation.OVERWRITE, Operation.REPLACE, Operation.DELETE


@pytest.mark.parametrize(
    ("operation", "offsets", "more", "counts"),
    [
        (APPEND, {0: 13}, {}, True),
        (OVERWRITE, {0: 13}, {}, True),
        (DELETE, {0: 13}, {}, True),
        (REPLACE, {0: 13}, {}, False),
        (APPEND, {0: 12}, {}, False),
        (APPEND, {0: 3, 1: 6}, {}, True),
        (APPEND, {0: 12, 1: 5}, {}, False),
        (APPEND, {2: 1}, {}, True),
        (APPEND, {0: 13}, {COMPLETED_KEY: "sink"}, False),
    ],
)
def test_a_commit_since_the_takeover(
    operation: Operation, offsets: dict[int, int], more: dict[str, str], counts: bool
) -> None:
    for key, known in ((SINK.floor_key, counts), (ANOTHER.floor_key, False)):
        summary = Summary(operation, **{key: floor_text(offsets)}, **more)
        snapshot = Snapshot.model_validate(
            {"snapshot-id": 1, "timestamp-ms": 0, "manifest-list": "", "summary": summary.model_dump()}
        )
        assert is_commit_since_takeover(snapshot, RECORD) == known
