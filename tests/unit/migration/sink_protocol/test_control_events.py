from __future__ import annotations

import base64
import io
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.migration.sink_protocol.avro_values import AvroError, AvroReader
from jobs.migration.sink_protocol.control_events import (
    Announcement,
    Progress,
    UnreadableEventError,
    decode_event,
)
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.sink_events import FILE, PLACE, encoded, event_schema, written_payload

UUID = uuid.UUID("9f6e3b4e-0d7c-4df9-9f30-5b6c6c1f2a10")


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


ROW = {
    "type": "record",
    "name": "Row",
    "namespace": "a.b",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "number", "type": "long"},
        {"name": "small", "type": "int"},
        {"name": "half", "type": "float"},
        {"name": "whole", "type": "double"},
        {"name": "text", "type": "string"},
        {"name": "bytes", "type": ["null", "bytes"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": ["null", "Kind"]},
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 4}},
        {"name": "other", "type": "a.b.Id"},
        {"name": "list", "type": {"type": "array", "items": ["null", "long"]}},
        {"name": "map", "type": {"type": "map", "values": "double"}},
        {
            "name": "pairs",
            "type": {
                "type": "array",
                "logicalType": "map",
                "items": {
                    "type": "record",
                    "name": "pair",
                    "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "bytes"}],
                },
            },
        },
    ],
}
LONGS = st.integers(-(2**63), 2**63 - 1)
ROWS = st.fixed_dictionaries(
    {
        "flag": st.booleans(),
        "number": LONGS,
        "small": st.integers(-(2**31), 2**31 - 1),
        "half": st.floats(width=32, allow_nan=False),
        "whole": st.floats(allow_nan=False),
        "text": st.text(),
        "bytes": st.none() | st.binary(),
        "kind": st.sampled_from(["A", "B"]),
        "again": st.none() | st.sampled_from(["A", "B"]),
        "id": st.binary(min_size=4, max_size=4),
        "other": st.binary(min_size=4, max_size=4),
        "list": st.lists(st.none() | LONGS),
        "map": st.dictionaries(st.text(), st.floats(allow_nan=False)),
        "pairs": st.dictionaries(st.integers(0, 99), st.binary()),
    }
)


@given(ROWS)
def test_values_are_read_as_fastavro_writes_them(row: dict[str, Any]) -> None:
    pairs = [{"key": key, "value": value} for key, value in row["pairs"].items()]
    assert AvroReader(written(ROW, row | {"pairs": pairs})).read_whole(ROW) == row


@given(st.binary(max_size=40))
def test_other_bytes_are_an_avro_error_or_a_value(data: bytes) -> None:
    try:
        AvroReader(data).read_whole({"type": "array", "items": ["null", "string", ROW]})
    except (AvroError, UnicodeDecodeError, IndexError):
        return


def test_decimals_and_blocks_with_sizes() -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    assert AvroReader(written(schema, Decimal("-12.34"))).read_whole(schema) == Decimal("-12.34")
    # A block of two with its length in bytes, as writers may make it: -2, 2 bytes, 1, 2, end.
    assert AvroReader(bytes([3, 4, 2, 4, 0])).read_whole({"type": "array", "items": "long"}) == [1, 2]


def test_data_written() -> None:
    payload = written_payload([FILE, FILE | {"file_path": "s3://b/2.parquet"}], table_uuid=UUID)
    event = decode_event(encoded(event_schema("DataWritten"), 1, payload), 2, 7)
    said = event.payload
    assert (event.partition, event.offset, event.group) == (2, 7, "connect-sink")
    assert isinstance(said, Announcement)
    assert (said.table, said.table_uuid, said.delete_files) == ("tests.orders", str(UUID), 0)
    assert [file["file_path"] for file in said.data_files] == ["s3://b/1.parquet", "s3://b/2.parquet"]
    assert said.data_files[0]["partition"] == {"day": 20_000}
    assert said.data_files[0]["lower_bounds"] == {1: b"\x01"}


def test_data_complete_leaves_out_idle_partitions() -> None:
    assignments = [PLACE | {"partition": 0, "offset": 12}, PLACE | {"partition": 1, "offset": None}]
    event = decode_event(
        encoded(event_schema("DataComplete"), 2, {"commit_id": UUID, "assignments": assignments}), 0, 0
    )
    assert event.payload == Progress({TopicPartition("orders", 0): 12})


def test_events_of_tabulars_releases_have_other_names() -> None:
    payload = {
        "commitId": UUID,
        "tableName": {"namespace": ["tests"], "name": "orders"},
        "dataFiles": [FILE],
        "deleteFiles": [FILE | {"content": 2}],
    }
    event = decode_event(encoded(event_schema("CommitResponsePayload"), 1, payload, group="groupId"), 0, 3)
    said = event.payload
    assert isinstance(said, Announcement)
    assert (said.table, said.table_uuid, said.delete_files) == ("tests.orders", None, 1)


@pytest.mark.parametrize("number", [0, 3, 4, 9])
def test_other_events_say_nothing(number: int) -> None:
    schema = event_schema("DataComplete")
    value = encoded(schema, number, {"commit_id": UUID, "assignments": None})
    assert decode_event(value, 0, 0).payload is None


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b"\xc2\x01",
        b"\xc2\x01\x00\x02{}",
        encoded(event_schema("DataComplete"), 2, {"commit_id": UUID, "assignments": None})[:-1],
        encoded(event_schema("DataComplete"), 2, {"commit_id": UUID, "assignments": None}) + b"\0",
        # An announcement by its number, and no announcement by its fields.
        encoded(event_schema("DataComplete"), 1, {"commit_id": UUID, "assignments": None}),
    ],
)
def test_what_is_no_event_is_named_with_its_place(value: bytes) -> None:
    with pytest.raises(UnreadableEventError, match="control topic, partition 3, offset 8"):
        decode_event(value, 3, 8)


def test_the_schema_may_be_longer_than_its_sign() -> None:
    schema = event_schema("DataComplete")
    schema["doc"] = "x" * 40_000
    value = encoded(schema, 2, {"commit_id": UUID, "assignments": None})
    assert len(json.dumps(schema)) > 2**15
    assert decode_event(value, 0, 0).payload == Progress({})


def test_events_of_apaches_sink_1_12_0() -> None:
    """What a first commit told, as the released sink wrote it."""
    recorded = json.loads((Path(__file__).parent / "events_1_12_0.json").read_text())
    events = [decode_event(base64.b64decode(each["value"]), 0, each["offset"]) for each in recorded]
    assert {event.group for event in events} == {"connect-payments-sink"}
    start, written, progress, *others = (event.payload for event in events)
    assert (start, others) == (None, [None] * 3)
    assert progress == Progress({TopicPartition("payments", 0): 100})
    assert isinstance(written, Announcement)
    assert (written.table, written.table_uuid) == ("tests.payments", "006ee076-17df-4253-a49e-10e22249a16a")
    assert sum(file["record_count"] for file in written.data_files) == 100
    assert {file["partition"]["id_bucket"] for file in written.data_files} == {0, 1, 2, 3}
    for file in written.data_files:
        assert file["partition"]["created_at_day"] == 20_758
        assert f"/created_at_day=2026-11-01/id_bucket={file['partition']['id_bucket']}/" in file["file_path"]
        assert file["value_counts"].keys() == file["column_sizes"].keys()
        assert isinstance(file["lower_bounds"][1], bytes)
