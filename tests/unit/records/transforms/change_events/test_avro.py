"""Events in Avro, with the former key in a header as keys are written."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from typing import Any

import fastavro

from jobs.records.formats.interface.problems import UNKNOWN_SCHEMA, ValueProblem
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId, WriterSchema
from jobs.streaming.pipeline.pipeline import stream_pipeline
from jobs.streaming.pipeline.row_steps import row_steps_of
from tests.unit.records.transforms.change_events.streams import (
    fates,
    key_of,
    records_of,
    stream,
)

ROW = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": "string"}]}
SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [
        *({"name": name, "type": "string"} for name in ("connector", "name", "db")),
        {"name": "ts_ms", "type": "long"},
        {"name": "sequence", "type": ["null", "string"]},
    ],
}
EVENT = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
HEARTBEAT = {"type": "record", "name": "Heartbeat", "fields": [{"name": "ts_ms", "type": "long"}]}
SCHEMAS: Mapping[int, Any] = {1: EVENT, 2: KEY, 3: HEARTBEAT}


class Registry:
    """Knows the schemas of the ids 1 to 3."""

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        if (schema := SCHEMAS.get(schema_id.number or 0)) is None:
            raise ValueProblem(UNKNOWN_SCHEMA, f"needs a schema that the registry knows, found {schema_id}")
        return RegistrySchema("AVRO", WriterSchema(json.dumps(schema)))

    @property
    def unmet(self) -> frozenset[SchemaId]:
        return frozenset()

    def learned(self) -> Mapping[SchemaId, RegistrySchema]:
        return {}


def written(number: int, record: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(SCHEMAS[number]))), record)
    return b"\x00" + struct.pack(">i", number) + out.getvalue()


def event(op: str, row: Any) -> bytes:
    source = {"connector": "postgresql", "name": "n", "db": "d", "ts_ms": 1000, "sequence": '["1","2"]'}
    return written(1, {"before": None, "after": row, "source": source, "op": op})


def test_former_keys_in_headers_are_read_as_keys_are() -> None:
    row = "struct<id: int not null, note: string not null>"
    source = "struct<connector: string, name: string, db: string, ts_ms: long, sequence: string>"
    schema = f"before {row}, after {row}, source {source}, op string, ts_ms long"
    spec = stream(schema, "debezium", key_of("id int", "avro"), value="avro")
    columns = spec.record_columns.with_schemas(Registry())
    steps = row_steps_of(spec, spec.resolved.schema, columns)
    decoder = spec.resolved.with_schemas(Registry()).decoder
    pipeline = stream_pipeline(decoder, "n.s", lambda rows: rows, columns=columns, steps=steps)
    created = [{"key": written(2, {"id": n}), "value": event("c", {"id": n, "note": "a"})} for n in (2, 3, 4)]
    former: list[Any] = [written(2, {"id": 1}), b"\x00\x00\x00\x00\x09x", {"id": 2}]
    records = [
        *(each | {"headers": {"__debezium.oldkey": old}} for each, old in zip(created, former, strict=True)),
        {"key": written(3, {"ts_ms": 1}), "value": written(3, {"ts_ms": 1})},
        {"key": written(2, {"id": 5}), "value": event("d", None)},
        {"key": written(2, {"id": 5}), "value": None},
    ]
    found = fates(pipeline.run(records_of(records)))
    assert (found[0]["_change_key"], found[0]["_change_old_key"]) == ({"id": 2}, {"id": 1})
    assert found[1].startswith("changes: needs a key in the header __debezium.oldkey, as JSON or as keys are written")
    assert (found[2]["_change_key"], found[2]["_change_old_key"]) == ({"id": 4}, {"id": 2})
    assert found[3] == "filtered"
    assert (found[4]["id"], found[4]["_change_op"]) == (5, "d")
    assert found[5] == "tombstone"
