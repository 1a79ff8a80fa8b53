"""Takeover after a partial commit of the sink: its own events and files, at each point at which it can be killed.

The commit timeout has passed. The coordinator commits the files of one task, and the files of the late task are
announced meanwhile.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files

from jobs.migration.sink_protocol.announced_files import data_file_of
from jobs.migration.sink_protocol.control_events import Announcement, ControlEvent, decode_event
from jobs.migration.sink_protocol.sink_floor import floor_text
from jobs.migration.takeover.sink import sink_of
from jobs.migration.takeover.sink_kafka import ControlLog
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.memory_sink import SinkAndStream
from tests.helpers.sink_events import encoded, event_schema, written_payload

TABLE = "orders.payments"
SINK = sink_of("sink", "apache", group=None, control_topic="control")
DATA_WRITTEN, DATA_COMPLETE = 1, 2
RECORDS = 7


class TwoTaskSink:
    """Sink with a task for each of two source partitions.

    Args:
        control_partitions: Partitions of the control topic; each task writes to its own if there are two.
    """

    def __init__(self, world: SinkAndStream, control_partitions: int) -> None:
        self.world: SinkAndStream = world
        self.ends: dict[int, int] = dict.fromkeys(range(control_partitions), 0)
        world.stream.kafka.partitions = 2
        world.kafka.groups = {SINK.offset_group: {}, SINK.coordinator_group: {}}

    def announce(self, task: int, start: int, end: int) -> list[ControlEvent]:
        """Write the rows of a task's partition, and announce them with its offset in one transaction."""
        written = written_payload(
            self._files(task, start, end), table="payments", table_uuid=self.world.stream.table.metadata.table_uuid
        )
        written["table_reference"]["namespace"] = ["orders"]
        written_schema = event_schema("DataWritten")
        # The table has no partitions.
        written_schema["fields"][2]["type"][1]["items"]["fields"][4]["type"]["fields"] = []
        answer = {
            "commit_id": uuid.uuid4(),
            "assignments": [{"topic": "payments", "partition": task, "offset": end, "timestamp": None}],
        }
        events = [
            self._send(task, encoded(written_schema, DATA_WRITTEN, written, sink=SINK.event_group)),
            self._send(task, encoded(event_schema("DataComplete"), DATA_COMPLETE, answer, sink=SINK.event_group)),
        ]
        # The marker that ends the transaction.
        self.ends[task % len(self.ends)] += 1
        self.world.kafka.groups[SINK.offset_group][TopicPartition("payments", task)] = end
        self.world.kafka.log = ControlLog(dict.fromkeys(self.ends, 0), dict(self.ends), 0)
        return events

    def commit(self, events: Sequence[ControlEvent], consumed: dict[int, int]) -> None:
        """Commit announced files to the table, with the offsets that the coordinator has consumed."""
        table = self.world.stream.table
        with (
            table.transaction() as change,
            change.update_snapshot({SINK.floor_key: floor_text(consumed)}).fast_append() as append,
        ):
            for event in events:
                if isinstance(event.payload, Announcement):
                    for file in event.payload.data_files:
                        append.append_data_file(data_file_of(file, table.metadata))

    def commit_offsets(self, consumed: dict[int, int]) -> None:
        """Commit the coordinator's offsets of the control topic."""
        offsets = {TopicPartition(SINK.control_topic, partition): offset for partition, offset in consumed.items()}
        self.world.kafka.groups[SINK.coordinator_group].update(offsets)

    def _send(self, task: int, value: bytes) -> ControlEvent:
        partition = task % len(self.ends)
        event = decode_event(value, partition, self.ends[partition])
        self.ends[partition] += 1
        self.world.kafka.written.append(event)
        return event

    def _files(self, task: int, start: int, end: int) -> list[dict[str, Any]]:
        table = self.world.stream.table
        at = datetime(2026, 3, 1, tzinfo=UTC)
        columns = {"_kafka_topic": "payments", "_kafka_partition": task, "_kafka_timestamp": at}
        records = [{"id": f"{task}-{offset}", "_kafka_offset": offset, **columns} for offset in range(start, end)]
        rows = pa.Table.from_pylist(records, schema=table.schema().as_arrow())
        return [
            {
                "content": 0,
                "file_path": file.file_path,
                "file_format": "PARQUET",
                "spec_id": 0,
                "partition": {},
                "record_count": file.record_count,
                "file_size_in_bytes": file.file_size_in_bytes,
                "lower_bounds": [{"key": key, "value": bound} for key, bound in file.lower_bounds.items()],
            }
            for file in _dataframe_to_data_files(table.metadata, rows, table.io)
        ]


def rows_by_record(world: SinkAndStream) -> Counter[tuple[str, int, int]]:
    """How often the table has each record, by topic, partition and offset."""
    rows = world.stream.table.scan(selected_fields=("_kafka_topic", "_kafka_partition", "_kafka_offset")).to_arrow()
    return Counter(zip(*(rows.column(name).to_pylist() for name in rows.column_names), strict=True))


@pytest.mark.parametrize("killed", ["before the table commit", "before the coordinator's commit", "after both"])
@pytest.mark.parametrize(
    ("control_partitions", "answered_before"),
    [(1, True), (1, False), (2, True), (2, False)],
)
def test_late_files_of_a_partial_commit_land_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: str, control_partitions: int, answered_before: bool
) -> None:
    world = SinkAndStream(tmp_path, monkeypatch, route=None)
    sink = TwoTaskSink(world, control_partitions)
    first = sink.announce(0, 0, 2) + (sink.announce(1, 0, 2) if answered_before else [])
    consumed = {partition: end for partition, end in sink.ends.items() if end}
    sink.commit(first, consumed)
    sink.commit_offsets(consumed)

    early = sink.announce(0, 2, 4)
    consumed = {partition: end for partition, end in sink.ends.items() if end}
    sink.announce(1, 2 if answered_before else 0, 5)
    if killed != "before the table commit":
        sink.commit(early, consumed)
    if killed == "after both":
        sink.commit_offsets(consumed)

    world.stream.produce(RECORDS)
    plan = world.take_over()
    assert plan.start == {TopicPartition("payments", 0): 4, TopicPartition("payments", 1): 5}
    late_rows = 3 if answered_before else 5
    completed = sum(completion.rows for completion in plan.tables)
    assert completed == late_rows + (2 if killed == "before the table commit" else 0)
    with world.stream.opened():
        frame: Any = None
        world.stream.runner.run(frame, 0, dict.fromkeys(plan.start, RECORDS))
    records = [("payments", partition, offset) for partition in (0, 1) for offset in range(RECORDS)]
    assert rows_by_record(world) == Counter(records), "each record once"
