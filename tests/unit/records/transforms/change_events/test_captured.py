"""Records that Debezium has really sent, through a stream's whole pipeline: with schemas, without, and unwrapped."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import first_decoded
from jobs.records.formats.connect_json.inference import SeenEnvelopes
from jobs.records.formats.json.inference import first_columns
from jobs.records.formats.json.seen_values import Place, SeenValues, parsed
from jobs.records.schema.decoded_columns import decoded_properties
from jobs.records.schema.iceberg_schema import fresh_schema, iceberg_schema
from jobs.records.transforms.frame import HEADERS
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.pipeline import stream_pipeline
from jobs.streaming.pipeline.row_steps import row_steps_of
from tests.debezium.samples import Name, Sample, samples
from tests.unit.records.transforms.change_events.streams import fates, key_of

KEYS = {"customers": "id int", "large": "id int", "orders": "region string, id long", "visits": None}


def of_table(name: Name, table: str) -> list[Sample]:
    return [each for each in samples(name) if each.topic.endswith(f".public.{table}")]


def records_of(found: list[Sample]) -> pa.RecordBatch:
    headers = [[{"key": k, "value": v} for k, v in each.headers] for each in found]
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array([each.value for each in found], pa.binary()),
            "key": pa.array([each.key for each in found], pa.binary()),
            "headers": pa.array(headers, HEADERS),
            "topic": pa.array([each.topic for each in found], pa.string()),
            "partition": pa.array([each.partition for each in found], pa.int32()),
            "offset": pa.array([each.offset for each in found], pa.int64()),
            "timestamp": pa.array([each.timestamp * 1000 for each in found], pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * len(found), pa.int32()),
        }
    )


def first_rows(form: str, found: list[Sample]) -> Schema:
    """The columns that a stream begins with that infers them."""
    placed = [(Place(each.topic, each.partition, each.offset), each.value) for each in found if each.value is not None]
    if form == "connect_json":
        seen = SeenEnvelopes()
        seen.add(placed)
        return fresh_schema([each.field for each, _ in seen.merged()])
    values = SeenValues()
    for place, value in placed:
        values.add(parsed(value), place)
    columns = first_columns(values)
    assert columns is not None
    return iceberg_schema(columns)


def landed(name: Name, table: str, changes: Any, more: list[Sample] | None = None) -> Block:
    form = "json" if name == "schemaless" else "connect_json"
    found = of_table(name, table)
    key = KEYS[table]
    decode = {"value": form, "schema": "infer", **({"key": key_of(key, form)} if key else {})}
    file = {"stream": "s", "source": {"topics": ["t"]}, "decode": decode, "changes": changes, "table": {"name": "n.s"}}
    # Spark reads no table with times of day.
    spec = StreamSpec.model_validate(file | {"maintenance": {"enabled": False}})
    decoded = first_decoded(spec, first_rows(form, found), None)
    schema, properties = spec.table_schema_of(decoded.rows), decoded_properties({}, "s", decoded, None)
    assert not spec.problems_with(schema, properties)
    resolved, columns = spec.resolved_for(schema, properties), spec.record_columns_for(schema, properties)
    steps = row_steps_of(spec, resolved.schema, columns)
    assert steps is not None

    def fit(rows: pa.RecordBatch) -> pa.RecordBatch:
        own = rows.select([each.name for each in steps.columns])
        own.validate(full=True)
        assert own.schema.equals(steps.columns.arrow)
        return own

    return stream_pipeline(resolved.decoder, "n.s", fit, columns=columns, steps=steps).run(
        records_of([*found, *(more or [])])
    )


def rows(block: Block) -> list[dict[str, Any]]:
    # A double that is no number is a text in JSON.
    assert {each.field for each in block.failures} <= {"$.after.rate", "$.rate"}
    return [each for each in fates(block) if isinstance(each, dict)]


@pytest.mark.parametrize("name", ["postgresql", "schemaless"])
@pytest.mark.parametrize("table", list(KEYS))
def test_every_event_is_a_row_and_every_tombstone_is_counted(name: Name, table: str) -> None:
    block = landed(name, table, {"envelope": "debezium", "before": True})
    found = of_table(name, table)
    assert len(rows(block)) + len(block.failures) == sum(each.value is not None for each in found)
    assert len(block.dropped) == sum(each.value is None for each in found)
    assert {each["_change_lineage"] for each in rows(block)} == {f"postgresql/{name}/postgres"}
    positions = [each["_change_position"] for each in rows(block)]
    assert positions == sorted(positions)
    assert all(each["_change_at"] is not None for each in rows(block))
    assert all(each["_change_transaction"] for each in rows(block) if each["_change_op"] != "r")


@pytest.mark.parametrize("name", ["postgresql", "schemaless"])
def test_a_key_that_changes_names_the_former_one(name: Name) -> None:
    changed = [each for each in rows(landed(name, "orders", "debezium")) if each["_change_old_key"] is not None]
    assert [(each["_change_op"], each["_change_key"], each["_change_old_key"]) for each in changed] == [
        ("c", {"region": "us", "id": 2}, {"region": "eu", "id": 2})
    ]
    changed = [each for each in rows(landed(name, "customers", "debezium")) if each["_change_old_key"] is not None]
    assert [(each["id"], each["_change_old_key"], each["_change_unavailable"]) for each in changed] == [
        (30, {"id": 3}, ["notes"])
    ]


@pytest.mark.parametrize("name", ["postgresql", "schemaless"])
def test_what_was_not_sent_is_null_and_named(name: Name) -> None:
    created, updated = rows(landed(name, "large", "debezium"))
    sent = {each: value for each, value in created.items() if not each.startswith("_change_") and value is not None}
    unavailable = updated["_change_unavailable"]
    assert {*unavailable} <= {*sent}
    assert all(updated[each] is None for each in unavailable)
    # Of other types Debezium sends null, which nobody can tell from one that was sent.
    null = {each for each in sent if updated[each] is None} - {*unavailable}
    assert null <= {"flags", "rates", "shorts", "reals", "exacts", "times", "zoned", "number"}
    assert {"notes", "label", "doc", "plain", "raw", "tags", "numbers", "bigs", "days", "uids"} <= {*unavailable}


def test_a_truncated_table_is_a_row_without_values() -> None:
    (row,) = [each for each in rows(landed("postgresql", "customers", "debezium")) if each["_change_op"] == "t"]
    assert not [name for name, each in row.items() if not name.startswith("_change_") and each is not None]
    assert row["_change_key"] is None


def test_heartbeats_and_messages_beside_them_are_filtered() -> None:
    others = [each for each in samples("postgresql") if ".public." not in each.topic]
    assert {each.topic for each in others} >= {"__debezium-heartbeat.postgresql", "postgresql.message"}
    block = landed("postgresql", "customers", "debezium", others)
    assert rows(block)
    assert len(block.filtered) == len(others)


@pytest.mark.parametrize("table", ["customers", "orders"])
def test_unwrapped_rows_hold_the_same(table: str) -> None:
    changes = {"envelope": "columns", "op": "__op"}
    block = landed("unwrapped", table, changes)
    assert rows(block)


def test_types_of_debezium_are_what_they_mean() -> None:
    block = landed("postgresql", "customers", "debezium")
    kinds = {name: str(kind) for name, kind in zip(block.rows.schema.names, block.rows.schema.types, strict=True)}
    expected = {
        "balance": "decimal128(38, 2)",
        "born": "date32[day]",
        "made": "timestamp[us]",
        "made_ms": "timestamp[us]",
        "seen": "timestamp[us, tz=UTC]",
        "woke": "time64[us]",
        "uid": "fixed_size_binary[16]",
        "anything": "struct<scale: int32 not null, value: binary not null>",
    }
    assert {name: kinds[name] for name in expected} == expected
    full = next(each for each in rows(block) if each["id"] == 3 and each["small"] is not None)
    assert str(full["balance"]) == "-1234567890.12"
    assert full["anything"]["scale"] == 9
    assert full["made"].isoformat() == "2026-03-01T12:00:00.123456"


def test_a_struct_of_columns_keeps_what_its_fields_refuse() -> None:
    kind = first_rows("connect_json", of_table("postgresql", "customers")).find_type("after.anything")
    assert isinstance(kind, ice.StructType)
    assert all(each.required for each in kind.fields)
