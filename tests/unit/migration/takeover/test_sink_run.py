"""Takeover and hand-back as a whole, on real tables; Kafka's logs and groups are in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from jobs.base.errors import FrazilError
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.source import Source, StartOffsets
from jobs.migration.sink_protocol.control_events import ControlEvent, Progress
from jobs.migration.takeover import hand_back as hand_back_module
from jobs.migration.takeover import start_stamp, takeover, takeover_plan
from jobs.migration.takeover.hand_back import HandBack, hand_back
from jobs.migration.takeover.sink import Sink, sink_of
from jobs.migration.takeover.sink_kafka import ControlLog
from jobs.migration.takeover.takeover import take_over_from_sink
from jobs.migration.takeover.takeover_plan import TakeoverPlan, TakeoverRequest, plan_takeover
from jobs.migration.takeover.takeover_record import takeover_record
from jobs.migration.takeover.takeover_refusal import TakeoverRefusedError
from jobs.streaming.supervision.documents import control_request
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition
from tests.helpers.opened_stream import MemoryKafka, OpenedStream
from tests.helpers.routed_stream import SINK as TABLE

P0, P1 = TopicPartition("payments", 0), TopicPartition("payments", 1)


class MemorySink:
    """Groups of a sink, and its control topic, as `SinkKafka` gives them.

    Attributes:
        groups: Committed offsets by group.
        running: Members by group.
        policy: Setting `cleanup.policy` of the control topic.
    """

    def __init__(self) -> None:
        self.groups: dict[str, dict[TopicPartition, int]] = {}
        self.running: dict[str, int] = {}
        self.log: ControlLog = ControlLog({0: 0}, {0: 12}, 0)
        self.written: list[ControlEvent] = []
        self.policy: str | None = "delete"
        self.brokers: frozenset[str] = frozenset({"kafka:9092"})

    def members(self, group: str) -> int:
        return self.running.get(group, 0)

    def committed(self, group: str, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {p: at for p, at in self.groups.get(group, {}).items() if p in partitions}

    def commit(self, group: str, positions: Positions) -> None:
        self.groups.setdefault(group, {}).update(positions)

    def topics_of(self, group: str) -> set[str]:
        return {partition.topic for partition in self.groups.get(group, {})}

    def control_log(self, topic: str) -> ControlLog:
        return self.log

    def cleanup_policy(self, topic: str) -> str | None:
        return self.policy

    def events(self, topic: str, ranges: Mapping[int, Any], on_read: Any = None) -> list[ControlEvent]:
        return [event for event in self.written if ranges[event.partition].start <= event.offset]


class World:
    """A stream, and a sink of its topic."""

    def __init__(self, home: Path) -> None:
        self.stream = OpenedStream(home)
        self.kafka: MemorySink = MemorySink()
        self.stop()

    def take_over(self, sink: Sink | None = None) -> TakeoverPlan:
        request = TakeoverRequest(sink or sink_of("sink", "apache", group=None, control_topic="control"))
        return take_over_from_sink(self.stream.spec, self.stream.settings, request, "ada", "trying it")

    def stop(self) -> None:
        store = stream_folder(self.stream.settings, "payments").store
        store.put(control_request.KEY, msgspec.json.encode(control_request.ControlRequest("stopped")))

    def offsets(self, group: str = "connect-sink") -> dict[TopicPartition, int]:
        return self.kafka.groups.get(group, {})

    def hand_back(self, group: str = "connect-sink", topic: str | None = None) -> HandBack:
        return hand_back(self.stream.spec, self.stream.settings, group, topic, "ada: back")


def first_start(kafka: MemoryKafka, source: Source, log: object) -> dict[TopicPartition, int]:
    """The offsets of the stream's file."""
    assert isinstance(source.start, StartOffsets)
    return {
        TopicPartition(topic, number): offset
        for topic, offsets in source.start.offsets.items()
        for number, offset in offsets.items()
    }


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    created = World(tmp_path)
    for module in (takeover, takeover_plan, hand_back_module):
        monkeypatch.setattr(module, "SinkKafka", lambda settings: created.kafka)
    for module in (takeover_plan, start_stamp, hand_back_module):
        monkeypatch.setattr(module, "KafkaLog", lambda settings: created.stream.kafka)
    monkeypatch.setattr(MemoryKafka, "first_start", first_start)
    return created


@pytest.fixture
def taken(world: World) -> World:
    """A stream that has taken over at offset 4, and has landed up to 10."""
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {P0: 4}
    world.take_over()
    world.stream.land_elsewhere(6)
    return world


def test_a_routed_stream_takes_over_whose_own_table_does_not_exist(world: World) -> None:
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {P0: 4}
    world.stream.catalog.drop_table(TABLE)
    assert world.take_over().start == {P0: 4}
    assert takeover_record(world.stream.catalog.load_table(TABLE).metadata, "payments") is not None


def test_tasks_in_connects_own_group_are_seen(world: World) -> None:
    world.stream.produce(4)
    world.kafka.groups["my-control"] = {P0: 4}
    world.kafka.running["connect-sink"] = 2
    request = TakeoverRequest(sink_of("sink", "apache", group="my-control", control_topic="control"))
    obstacle = plan_takeover(world.stream.spec, world.stream.settings, request).obstacle
    assert obstacle is not None
    assert "group connect-sink has 2 members" in obstacle.message


def test_a_group_that_has_expired_comes_before_any_advice_to_start_the_sink(world: World) -> None:
    world.stream.produce(4)
    world.kafka.log = ControlLog({0: 5}, {0: 12}, 0)
    with pytest.raises(TakeoverRefusedError, match="group connect-sink has no offsets") as refused:
        world.take_over()
    assert "do not start the connector" in (refused.value.fix or "")


def test_a_table_of_format_version_1_is_refused_before_anything_is_committed(world: World) -> None:
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


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_control_topic_is_refused(world: World, policy: str) -> None:
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {P0: 4}
    world.kafka.policy = policy
    with pytest.raises(TakeoverRefusedError, match=f"control topic control has cleanup.policy={policy}") as refused:
        world.take_over()
    assert "--add-config cleanup.policy=delete; then start the connector" in (refused.value.fix or "")


def test_a_control_topic_on_other_brokers_is_refused(world: World) -> None:
    world.stream.produce(4)
    sink = sink_of("sink", "apache", group=None, control_topic="control", control_brokers=frozenset({"other:9092"}))
    with pytest.raises(TakeoverRefusedError, match=r"keeps control topic control on other:9092") as refused:
        world.take_over(sink)
    assert "--group connect-sink --bootstrap-server other:9092" in (refused.value.fix or "")


def test_an_event_of_the_sink_shows_that_other_addresses_are_of_the_same_brokers(world: World) -> None:
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {P0: 4}
    world.kafka.written.append(ControlEvent(0, 3, "connect-sink", Progress({P0: 4})))
    sink = sink_of("sink", "apache", group=None, control_topic="control", control_brokers=frozenset({"other:9092"}))
    assert world.take_over(sink).start == {P0: 4}


def test_a_cleanup_policy_that_cannot_be_read_is_noted(world: World) -> None:
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {P0: 4}
    assert not any("cleanup.policy" in note for note in world.take_over().notes)
    world.kafka.policy = None
    assert any("see that its cleanup.policy is delete" in note for note in world.take_over().notes)


def test_records_that_a_running_sink_has_just_read_are_no_recreated_topic(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.stream.produce(4)
    world.kafka.running["connect-sink"] = 1

    def committed(group: str, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        world.stream.produce(2)
        return {P0: len(world.stream.log)} if partitions[0] == P0 else {}

    monkeypatch.setattr(world.kafka, "committed", committed)
    request = TakeoverRequest(sink_of("sink", "apache", group=None, control_topic="control"))
    assert plan_takeover(world.stream.spec, world.stream.settings, request).start == {P0: 6}


def test_topics_that_only_the_sink_reads_are_named(world: World) -> None:
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {P0: 4}
    read = Progress({P0: 4, TopicPartition("refunds", 0): 7})
    world.kafka.written.append(ControlEvent(0, 3, "connect-sink", read))
    assert any("also reads refunds" in note for note in world.take_over().notes)


def second_stream(world: World, home: Path, **settings: Any) -> StreamSpec:
    """A copy of the stream's file under another name."""
    document = yaml.safe_load((home / "streams" / "payments.yaml").read_text())
    return StreamSpec.model_validate(document | {"stream": "copy"} | settings)


def test_a_second_stream_does_not_take_over_the_same_topics_into_the_same_table(taken: World, tmp_path: Path) -> None:
    copy = second_stream(taken, tmp_path)
    request = TakeoverRequest(sink_of("sink", "apache", group=None, control_topic="control"))
    with pytest.raises(TakeoverRefusedError, match=rf"stream payments has taken over topic payments .* table {TABLE}"):
        plan_takeover(copy, taken.stream.settings, request)
    taken.hand_back()
    assert plan_takeover(copy, taken.stream.settings, request).start == {P0: 10}


def test_a_second_stream_with_another_coordinator_is_refused_in_a_shared_table(taken: World, tmp_path: Path) -> None:
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


def test_a_sink_that_has_gone_on_is_not_set_back(taken: World) -> None:
    taken.hand_back()
    assert taken.offsets() == {P0: 10}
    taken.hand_back()
    taken.stream.produce(5)
    taken.kafka.groups["connect-sink"] = {P0: 15}
    with pytest.raises(TakeoverRefusedError, match="would land records twice"):
        taken.hand_back()
    assert taken.offsets() == {P0: 15}
    assert taken.take_over().start == {P0: 15}


def test_answers_from_before_the_hand_back_do_not_count(taken: World) -> None:
    taken.kafka.written.append(ControlEvent(0, 3, "connect-sink", Progress({P0: 4})))
    taken.hand_back()
    assert taken.take_over().start == {P0: 10}, "the sink has read nothing since"
    assert taken.take_over().start == {P0: 10}, "the same command again"


def test_an_answer_since_the_hand_back_counts(taken: World) -> None:
    taken.hand_back()
    taken.stream.produce(5)
    taken.kafka.groups["connect-sink"] = {P0: 15}
    taken.kafka.log = ControlLog({0: 0}, {0: 14}, 0)
    taken.kafka.written.append(ControlEvent(0, 13, "connect-sink", Progress({P0: 14})))
    with pytest.raises(TakeoverRefusedError, match="15 in the group, 14 on the control topic"):
        taken.take_over()


def test_the_record_names_the_sink_of_the_last_takeover(world: World) -> None:
    world.stream.produce(4)
    for name in ("sink", "another"):
        world.kafka.groups[f"connect-{name}"] = {P0: 4}
        world.take_over(sink_of(name, "apache", group=None, control_topic="control"))
        record = takeover_record(world.stream.catalog.load_table(TABLE).metadata, "payments")
        assert record is not None
        assert record.connector == name


def test_only_partitions_that_exist_are_handed_back(taken: World) -> None:
    taken.stream.kafka.partitions = 2
    taken.hand_back()
    assert taken.offsets() == {P0: 10, P1: 0}, "partition 1 has not been read yet"
    taken.stream.land_elsewhere(5)
    taken.kafka.groups.clear()
    taken.stream.kafka.partitions = 1
    taken.hand_back()
    assert taken.offsets() == {P0: 15}


def test_topics_of_the_group_that_stay_are_named(taken: World) -> None:
    taken.kafka.groups["connect-sink"][TopicPartition("refunds", 0)] = 7
    assert taken.hand_back().others == ("refunds",)
    assert taken.offsets() == {P0: 10, TopicPartition("refunds", 0): 7}


def test_a_recreated_topic_is_not_handed_back(taken: World) -> None:
    del taken.stream.log[7:]
    with pytest.raises(TakeoverRefusedError, match="stands at 10 in payments-0, of which Kafka keeps"):
        taken.hand_back()
    assert taken.offsets() == {P0: 4}


def test_the_record_names_the_sink_that_has_the_position(taken: World) -> None:
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
