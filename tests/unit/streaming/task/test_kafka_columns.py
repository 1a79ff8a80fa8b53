"""Kafka's columns in rows: under the names that a stream's file gives them, in tasks and in replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.helpers.dead_letters import BROKEN, GOOD, DeadLetterWorld
from tests.helpers.tasks import TIMESTAMP, TaskWorld, records, stream_spec

NAMES = {"topic": "src", "partition": "_kafka_partition", "key": "k", "headers": "h", "timestamp_type": True}


def test_rows_have_what_the_file_asks_for(tmp_path: Path) -> None:
    world = TaskWorld(tmp_path, stream_spec("id long", kafka_columns=NAMES))
    made = world.run(records([b'{"id":1}', None, b'{"id":2}'], headers=[("a", b"1"), ("a", None)]))
    headers = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert made.rows == [
        {
            "id": id_,
            "src": "payments",
            "_kafka_partition": 0,
            "_kafka_offset": offset,
            "_kafka_timestamp": TIMESTAMP,
            "_kafka_timestamp_type": "CreateTime",
            "k": f"k{offset}".encode(),
            "h": headers,
        }
        for id_, offset in ((1, 0), (2, 2))
    ]
    world.close()


def test_what_is_left_out_is_not_written(tmp_path: Path) -> None:
    world = TaskWorld(tmp_path, stream_spec("id long", kafka_columns={"topic": False, "partition": False}))
    assert set(world.run(records([b'{"id":1}'])).rows[0]) == {"id", "_kafka_offset", "_kafka_timestamp"}
    world.close()


def test_rows_without_a_time_in_kafka_are_counted(tmp_path: Path) -> None:
    world = TaskWorld(tmp_path, stream_spec("id long"))
    block = records([b'{"id":1}', b'{"id":"x"}', b'{"id":2}', None])
    at = pa.array([None, None, TIMESTAMP, None], block.schema.field("timestamp").type)
    made = world.run(block.set_column(block.schema.get_field_index("timestamp"), "timestamp", at))
    assert [row["_kafka_timestamp"] for row in made.rows] == [None, TIMESTAMP]
    assert [tally.warned for tally in made.tallies] == [{"_kafka_timestamp": 1}]
    world.close()


def test_a_replay_finds_rows_by_the_chosen_names_and_fills_them(tmp_path: Path) -> None:
    names: Any = "{topic: src, partition: p, offset: o, timestamp: at, key: k, headers: h, timestamp_type: t}"
    world = DeadLetterWorld(tmp_path, kafka_columns=names)
    assert "topic: src" in world.spec_file.read_text()
    world.add([GOOD, BROKEN])
    assert world.replay().replayed == 1
    (row,) = world.sink().scan().to_arrow().to_pylist()
    assert (row["src"], row["o"], row["k"], row["h"], row["t"]) == ("payments.v1", 0, b"k", [], "CreateTime")
    # A second letter of the record, and a state that was lost: the row says that it has landed.
    world.offsets = 0
    world.add([GOOD])
    again = world.replay()
    assert (again.replayed, again.standing) == (0, 1)
    assert world.landed() == {"p-0": 1}
    world.close()
