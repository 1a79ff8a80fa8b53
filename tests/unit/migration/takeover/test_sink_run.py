"""Takeover and hand-back as a whole, on real tables; Kafka's logs and groups are in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.migration.sink_protocol.control_events import Announcement, ControlEvent, Progress
from jobs.migration.sink_protocol.sink_floor import floor_text, sink_floor
from jobs.migration.takeover.sink import sink_of
from jobs.migration.takeover.sink_kafka import ControlLog
from jobs.migration.takeover.takeover_plan import TakeoverRequest, plan_takeover
from jobs.migration.takeover.takeover_refusal import TakeoverRefusedError
from jobs.tables.commit.history.sink_record import takeover_record
from jobs.tables.commit.stamp.errors import GapError
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.memory_sink import SinkAndStream
from tests.helpers.routed_stream import SINK as TABLE

P0, P1 = TopicPartition("payments", 0), TopicPartition("payments", 1)
SINK = sink_of("sink", "apache", group=None, control_topic="control")


def test_a_routed_stream_takes_over_whose_own_table_does_not_exist(world: SinkAndStream) -> None:
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {P0: 4}
    world.stream.catalog.drop_table(TABLE)
    assert world.take_over().start == {P0: 4}
    assert takeover_record(world.stream.catalog.load_table(TABLE).metadata, "payments") is not None


def test_tasks_in_connects_own_group_are_seen(world: SinkAndStream) -> None:
    world.stream.produce(4)
    world.kafka.groups["my-control"] = {P0: 4}
    world.kafka.running["connect-sink"] = 2
    request = TakeoverRequest(sink_of("sink", "apache", group="my-control", control_topic="control"))
    obstacle = plan_takeover(world.stream.spec, world.stream.settings, request).obstacle
    assert obstacle is not None
    assert "group connect-sink has 2 members" in obstacle.message


def test_a_group_that_has_expired_comes_before_any_advice_to_start_the_sink(world: SinkAndStream) -> None:
    world.stream.produce(4)
    world.kafka.log = ControlLog({0: 5}, {0: 12}, 0)
    with pytest.raises(TakeoverRefusedError, match="group connect-sink has no offsets") as refused:
        world.take_over()
    assert "do not start the connector" in (refused.value.fix or "")


def test_a_table_of_format_version_1_is_refused_before_anything_is_committed(world: SinkAndStream) -> None:
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {P0: 4}
    schema = world.stream.catalog.load_table(TABLE).schema()
    world.stream.catalog.drop_table(TABLE)
    table = world.stream.catalog.create_table(TABLE, schema, properties={"format-version": "1"})
    with pytest.raises(FrazilError, match=f"table {TABLE} is of Iceberg's format version 1") as refused:
        world.take_over()
    assert refused.value.fix == f"in Spark: ALTER TABLE {TABLE} SET TBLPROPERTIES ('format-version' = '2')"
    with table.transaction() as change:
        change.upgrade_table_version(2)
    assert world.take_over().start == {P0: 4}


def test_a_misspelt_group_gets_no_offsets(taken: SinkAndStream) -> None:
    with pytest.raises(TakeoverRefusedError, match="group connect-snik has no offsets, and connector sink") as refused:
        taken.hand_back("connect-snik")
    assert (refused.value.fix or "").startswith("--commit-to-group connect-sink;")
    assert "connect-snik" not in taken.kafka.groups
    # A consumer that exists gets them.
    taken.kafka.groups["reports"] = {P0: 1}
    taken.hand_back("reports")
    assert taken.offsets("reports") == {P0: 10}


def test_a_control_topic_without_a_trace_of_the_sink_is_refused(world: SinkAndStream) -> None:
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {P0: 4}
    events, world.kafka.written = world.kafka.written, [ControlEvent(0, 0, "connect-other", None)]
    with pytest.raises(TakeoverRefusedError, match="control topic control holds no event of group connect-sink"):
        world.take_over()
    world.kafka.written = events
    assert world.take_over().start == {P0: 4}


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_control_topic_is_refused(world: SinkAndStream, policy: str) -> None:
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {P0: 4}
    world.kafka.policy = policy
    with pytest.raises(TakeoverRefusedError, match=f"control topic control has cleanup.policy={policy}") as refused:
        world.take_over()
    assert "--add-config cleanup.policy=delete; then start the connector" in (refused.value.fix or "")


def test_a_control_topic_on_other_brokers_is_refused(world: SinkAndStream) -> None:
    world.stream.produce(4)
    world.kafka.written.clear()
    sink = sink_of("sink", "apache", group=None, control_topic="control", control_brokers=frozenset({"other:9092"}))
    with pytest.raises(TakeoverRefusedError, match=r"keeps control topic control on other:9092") as refused:
        world.take_over(sink)
    assert "--group connect-sink --bootstrap-server other:9092" in (refused.value.fix or "")


OVERRIDE = frozenset({"elsewhere:9092"})


def test_a_connector_that_reads_from_other_brokers_is_refused(world: SinkAndStream) -> None:
    world.stream.produce(4)
    # A group of that name with offsets proves nothing: it may be of other topics of these names.
    world.kafka.groups["connect-sink"] = {P0: 4}
    sink = replace(SINK, source_brokers=OVERRIDE)
    with pytest.raises(TakeoverRefusedError, match=r"reads its topics from elsewhere:9092 \(consumer\.over") as refused:
        world.take_over(sink)
    assert (refused.value.fix or "").endswith("if both addresses are of the same brokers, name both there")


@pytest.mark.parametrize("known", ["settings", "reported"])
def test_brokers_of_the_stream_under_any_address_are_no_other_ones(world: SinkAndStream, known: str) -> None:
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {P0: 4}
    world.kafka.written.append(ControlEvent(0, 3, "connect-sink", Progress({P0: 4})))
    if known == "settings":
        world.kafka.brokers |= OVERRIDE
    else:
        world.kafka.reported = OVERRIDE
    assert world.take_over(replace(SINK, source_brokers=OVERRIDE)).start == {P0: 4}


def test_a_control_topic_on_the_workers_own_brokers_is_refused(world: SinkAndStream) -> None:
    world.stream.produce(4)
    world.kafka.written.clear()
    world.kafka.brokers = OVERRIDE
    with pytest.raises(TakeoverRefusedError, match="keeps control topic control on the worker's brokers") as refused:
        world.take_over(replace(SINK, source_brokers=OVERRIDE))
    assert "--group connect-sink --bootstrap-server WORKERS_BROKERS" in (refused.value.fix or "")


def test_an_event_of_the_sink_shows_that_other_addresses_are_of_the_same_brokers(world: SinkAndStream) -> None:
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {P0: 4}
    world.kafka.written.append(ControlEvent(0, 3, "connect-sink", Progress({P0: 4})))
    sink = sink_of("sink", "apache", group=None, control_topic="control", control_brokers=frozenset({"other:9092"}))
    assert world.take_over(sink).start == {P0: 4}


def test_a_cleanup_policy_that_cannot_be_read_is_noted(world: SinkAndStream) -> None:
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {P0: 4}
    assert not any("cleanup.policy" in note for note in world.take_over().notes)
    world.kafka.policy = None
    assert any("see that its cleanup.policy is delete" in note for note in world.take_over().notes)


def test_records_that_a_running_sink_has_just_read_are_no_recreated_topic(
    world: SinkAndStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.stream.produce(4)
    world.kafka.running["connect-sink"] = 1

    def committed(group: str, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        world.stream.produce(2)
        return {P0: len(world.stream.log)} if partitions[0] == P0 else {}

    monkeypatch.setattr(world.kafka, "committed", committed)
    request = TakeoverRequest(sink_of("sink", "apache", group=None, control_topic="control"))
    assert plan_takeover(world.stream.spec, world.stream.settings, request).start == {P0: 6}


def test_topics_that_only_the_sink_reads_are_named(world: SinkAndStream) -> None:
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {P0: 4}
    read = Progress({P0: 4, TopicPartition("refunds", 0): 7})
    world.kafka.written.append(ControlEvent(0, 3, "connect-sink", read))
    (note,) = [note for note in world.take_over().notes if "also reads refunds" in note]
    assert "give it another iceberg.control.topic first" in note


def second_stream(world: SinkAndStream, home: Path, **settings: Any) -> StreamSpec:
    """A copy of the stream's file under another name."""
    document = yaml.safe_load((home / "streams" / "payments.yaml").read_text())
    return StreamSpec.model_validate(document | {"stream": "copy"} | settings)


def test_a_second_stream_of_the_same_topics_and_table_is_refused(taken: SinkAndStream, tmp_path: Path) -> None:
    copy = second_stream(taken, tmp_path)
    request = TakeoverRequest(sink_of("sink", "apache", group=None, control_topic="control"))
    with pytest.raises(TakeoverRefusedError, match=rf"stream payments has taken over topic payments .* table {TABLE}"):
        plan_takeover(copy, taken.stream.settings, request)
    taken.hand_back()
    assert plan_takeover(copy, taken.stream.settings, request).start == {P0: 10}


def test_a_second_stream_is_refused_in_a_shared_table(taken: SinkAndStream, tmp_path: Path) -> None:
    copy = second_stream(taken, tmp_path, table={"name": "orders.of_copy"})
    request = TakeoverRequest(sink_of("sink", "apache", group=None, control_topic="control"))
    with pytest.raises(TakeoverRefusedError, match=r"into table orders\.changes"):
        plan_takeover(copy, taken.stream.settings, request)
    routed_elsewhere = {"by": "type", "tables": [{"match": ".*", "table": "orders.elsewhere"}]}
    elsewhere = second_stream(taken, tmp_path, table={"name": "orders.of_copy"}, route=routed_elsewhere)
    assert plan_takeover(elsewhere, taken.stream.settings, request).start == {P0: 4}
    another = TakeoverRequest(sink_of("another", "apache", group=None, control_topic="control"))
    taken.kafka.groups["connect-another"] = {P0: 4}
    assert plan_takeover(copy, taken.stream.settings, another).start == {P0: 4}


def test_a_second_stream_is_refused_that_may_route_into_the_same_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    route = {"by": "type", "to": "events.{value}"}
    world = SinkAndStream(tmp_path, monkeypatch, route)
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {P0: 4}
    world.take_over()
    copy = second_stream(world, tmp_path, table={"name": "orders.of_copy"}, route={**route, "to": "events.{value}_x"})
    sink = sink_of("sink", "apache", group=None, control_topic="control")
    beside = TakeoverRequest(sink, others=(world.stream.spec,))
    with pytest.raises(
        TakeoverRefusedError, match=r"topic payments .*, and route\.to of both streams can name"
    ) as refused:
        plan_takeover(copy, world.stream.settings, beside)
    assert "frazil offsets payments --commit-to-group connect-sink" in (refused.value.fix or "")
    world.kafka.groups["connect-another"] = {P0: 4}
    another = TakeoverRequest(sink_of("another", "apache", group=None, control_topic="control"), others=beside.others)
    assert plan_takeover(copy, world.stream.settings, another).start == {P0: 4}
    world.hand_back()
    assert plan_takeover(copy, world.stream.settings, beside).start == {P0: 4}


def test_a_sink_that_has_gone_on_is_not_set_back(taken: SinkAndStream) -> None:
    taken.hand_back()
    assert taken.offsets() == {P0: 10}
    taken.hand_back()
    taken.stream.produce(5)
    taken.kafka.groups["connect-sink"] = {P0: 15}
    with pytest.raises(TakeoverRefusedError, match="would land records twice"):
        taken.hand_back()
    assert taken.offsets() == {P0: 15}
    assert taken.take_over().start == {P0: 15}


def test_a_stream_that_gave_its_position_back_lands_nothing_until_it_takes_over(taken: SinkAndStream) -> None:
    taken.hand_back()
    with pytest.raises(GapError, match="stream payments gave its position back to connector sink") as refused:
        taken.stream.land_elsewhere(5)
    assert (refused.value.fix or "").startswith("frazil takeover payments --from-connect sink")
    taken.stream.produce(2)
    taken.kafka.groups["connect-sink"] = {P0: 12}
    assert taken.take_over().start == {P0: 12}
    taken.stream.land_elsewhere(5)


def test_a_group_that_was_deleted_after_the_hand_back_gets_its_offsets_first(taken: SinkAndStream) -> None:
    taken.hand_back()
    taken.kafka.groups.clear()
    command = "kafka-consumer-groups.sh --reset-offsets --group connect-sink --topic TOPIC:PARTITION"
    with pytest.raises(GapError) as stopped:
        taken.stream.open_and_close()
    assert command in (stopped.value.fix or "")
    with pytest.raises(TakeoverRefusedError, match="group connect-sink has no offsets of payments") as refused:
        taken.take_over()
    assert command in (refused.value.fix or "")
    taken.kafka.groups["connect-sink"] = {P0: 10}
    assert taken.take_over().start == {P0: 10}
    taken.stream.open_and_close()


def test_answers_from_before_the_hand_back_do_not_count(taken: SinkAndStream) -> None:
    taken.kafka.written.append(ControlEvent(0, 3, "connect-sink", Progress({P0: 4})))
    taken.hand_back()
    assert taken.take_over().start == {P0: 10}, "the sink has read nothing since"
    assert taken.take_over().start == {P0: 10}, "the same command again"


def test_an_answer_since_the_hand_back_counts(taken: SinkAndStream) -> None:
    taken.hand_back()
    taken.stream.produce(5)
    taken.kafka.groups["connect-sink"] = {P0: 15}
    taken.kafka.log = ControlLog({0: 0}, {0: 14}, 0)
    taken.kafka.written.append(ControlEvent(0, 13, "connect-sink", Progress({P0: 14})))
    with pytest.raises(TakeoverRefusedError, match="15 in the group, 14 on the control topic"):
        taken.take_over()


def test_the_record_names_the_sink_of_the_last_takeover(world: SinkAndStream) -> None:
    world.stream.produce(4)
    for name in ("sink", "another"):
        world.kafka.groups[f"connect-{name}"] = {P0: 4}
        world.take_over(sink_of(name, "apache", group=None, control_topic="control"))
        record = takeover_record(world.stream.catalog.load_table(TABLE).metadata, "payments")
        assert record is not None
        assert record.connector == name


def announcement(world: SinkAndStream, path: str = "s3://b/open.parquet", **more: Any) -> ControlEvent:
    """An announcement of a file for the stream's table, at offset 5 of the control topic."""
    uuid = str(world.stream.catalog.load_table(TABLE).metadata.table_uuid)
    given = {"table_uuid": uuid, "data_files": ({"file_path": path, "record_count": 3},), **more}
    return ControlEvent(0, 5, "connect-sink", Announcement(TABLE, **given))


def test_a_hand_back_does_not_pass_over_files_that_the_sink_has_announced(world: SinkAndStream) -> None:
    world.stream.land_elsewhere(6)
    world.kafka.written.append(announcement(world))
    with pytest.raises(TakeoverRefusedError, match=rf"table {TABLE} that no snapshot has .* at 0:5") as refused:
        world.hand_back(topic="control")
    assert "without --control-topic" in (refused.value.fix or "")
    assert sink_floor(world.stream.catalog.load_table(TABLE).metadata, SINK.floor_key).offsets is None
    assert world.offsets() == {}
    # The positions alone: the sink commits the files itself.
    world.hand_back()
    assert world.offsets() == {P0: 6}
    assert sink_floor(world.stream.catalog.load_table(TABLE).metadata, SINK.floor_key).offsets is None


@pytest.mark.parametrize("case", ["in the table", "below the floor", "of a former table", "of no table", "empty"])
def test_files_that_are_committed_or_have_no_table_are_not_in_the_way(world: SinkAndStream, case: str) -> None:
    world.stream.land_elsewhere(6)
    table = world.stream.catalog.load_table(TABLE)
    event = announcement(world)
    assert isinstance(event.payload, Announcement)
    if case == "in the table":
        event = announcement(world, path=table.inspect.files()["file_path"][0].as_py())
    elif case == "below the floor":
        table.append(table.scan().to_arrow(), snapshot_properties={SINK.floor_key: floor_text({0: 6})})
    elif case == "of a former table":
        event = announcement(world, table_uuid="another")
    elif case == "of no table":
        event = ControlEvent(0, 5, "connect-sink", Announcement("orders.gone", None, event.payload.data_files))
    else:
        event = announcement(world, data_files=({"file_path": "s3://b/e.parquet", "record_count": 0},))
    world.kafka.written.append(event)
    world.hand_back(topic="control")
    assert sink_floor(world.stream.catalog.load_table(TABLE).metadata, SINK.floor_key).offsets == {0: 12}


def test_announced_delete_files_are_not_passed_over_either(world: SinkAndStream) -> None:
    world.stream.land_elsewhere(6)
    world.kafka.written.append(announcement(world, data_files=(), delete_files=2))
    with pytest.raises(TakeoverRefusedError, match=f"announced files for table {TABLE}"):
        world.hand_back(topic="control")


def test_what_a_sink_announces_after_a_hand_back_is_not_passed_over_by_the_next(taken: SinkAndStream) -> None:
    taken.kafka.written.append(announcement(taken))
    taken.hand_back()
    taken.hand_back()
    taken.kafka.log = ControlLog({0: 0}, {0: 20}, 0)
    taken.kafka.written.append(replace(announcement(taken), offset=15))
    with pytest.raises(TakeoverRefusedError, match=r"control topic at 0:15\)") as refused:
        taken.hand_back()
    assert (refused.value.fix or "").startswith("start the connector, wait until it has committed once")


def test_files_for_tables_of_topics_that_only_the_sink_reads_are_not_passed_over(taken: SinkAndStream) -> None:
    schema = taken.stream.catalog.load_table(TABLE).schema()
    uuid = str(taken.stream.catalog.create_table("orders.refunds", schema).metadata.table_uuid)
    announced = Announcement("orders.refunds", uuid, ({"file_path": "s3://b/refunds.parquet", "record_count": 3},))
    taken.kafka.log = ControlLog({0: 0}, {0: 20}, 0)
    taken.kafka.written.append(ControlEvent(0, 15, "connect-sink", announced))
    with pytest.raises(TakeoverRefusedError, match=r"files for table orders\.refunds .* at 0:15\)"):
        taken.hand_back()
    # The takeover has decided on what was announced before it. The stream has landed the records of its own tables.
    taken.kafka.written = [
        ControlEvent(0, 5, "connect-sink", announced),
        replace(announcement(taken), offset=14),
    ]
    taken.hand_back()
    assert taken.offsets() == {P0: 10}


def test_a_group_that_was_set_back_after_the_hand_back_is_set_to_the_stream(taken: SinkAndStream) -> None:
    taken.hand_back()
    taken.kafka.groups["connect-sink"] = {P0: 6}
    with pytest.raises(TakeoverRefusedError, match="was set back since, to payments-0 at 6:") as refused:
        taken.take_over()
    assert "--group connect-sink --topic payments:0 --to-offset 10 --execute" in (refused.value.fix or "")
    taken.kafka.groups["connect-sink"] = {P0: 10}
    assert taken.take_over().start == {P0: 10}


def test_only_partitions_that_exist_are_handed_back(taken: SinkAndStream) -> None:
    taken.stream.kafka.partitions = 2
    taken.hand_back()
    assert taken.offsets() == {P0: 10, P1: 0}, "partition 1 has not been read yet"
    taken.take_over()
    taken.stream.land_elsewhere(5)
    taken.kafka.groups.clear()
    taken.stream.kafka.partitions = 1
    taken.hand_back()
    assert taken.offsets() == {P0: 15}


def test_topics_of_the_group_that_stay_are_named(taken: SinkAndStream) -> None:
    taken.kafka.groups["connect-sink"][TopicPartition("refunds", 0)] = 7
    assert taken.hand_back().others == ("refunds",)
    assert taken.offsets() == {P0: 10, TopicPartition("refunds", 0): 7}


def test_a_recreated_topic_is_not_handed_back(taken: SinkAndStream) -> None:
    del taken.stream.log[7:]
    with pytest.raises(TakeoverRefusedError, match="is at 10 in payments-0, of which Kafka keeps"):
        taken.hand_back()
    assert taken.offsets() == {P0: 4}


def test_the_record_names_the_sink_that_has_the_position(taken: SinkAndStream) -> None:
    taken.hand_back("connect-another", "control")
    record = takeover_record(taken.stream.catalog.load_table(TABLE).metadata, "payments")
    assert record is not None
    assert (record.connector, record.handed_back is not None) == ("another", True)
    taken.stream.produce(3)
    taken.kafka.groups["connect-sink"] = {P0: 12}
    with pytest.raises(TakeoverRefusedError, match="has landed records itself"):
        taken.take_over()
    taken.kafka.groups["connect-another"] = {P0: 13}
    another = sink_of("another", "apache", group=None, control_topic="control")
    assert taken.take_over(another).start == {P0: 13}
