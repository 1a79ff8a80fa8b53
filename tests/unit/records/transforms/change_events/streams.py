"""Streams of changes for tests: records through a stream's whole pipeline, and what becomes of each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.config.stream.models import StreamSpec
from jobs.records.transforms.frame import HEADERS
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.pipeline import stream_pipeline
from jobs.streaming.pipeline.row_steps import row_steps_of

DATA = Path(__file__).parent / "data"


def stream(schema: str, changes: Any, key: Any = None, *, value: Any = "json", **more: Any) -> StreamSpec:
    """A stream of changes whose file declares what is decoded."""
    decode = {"value": value, "schema": schema, **({} if key is None else {"key": key})}
    file = {"stream": "s", "source": {"topics": ["t"]}, "decode": decode, "changes": changes}
    return StreamSpec.model_validate({**file, "table": {"name": "n.s"}, **more})


def key_of(columns: str, form: str = "json") -> dict[str, Any]:
    """Keys with these columns, where a changelog has them."""
    return {"format": form, "schema": columns, "into": "_change_key"}


def encoded(value: Any) -> bytes | None:
    """A value as a converter of Connect writes it: bytes as they are, all else as JSON."""
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


def records_of(records: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Records of Kafka: of each `value`, and if it has them `key`, `headers` and `timestamp` in milliseconds."""
    count = len(records)
    headers = [[{"key": k, "value": encoded(v)} for k, v in each.get("headers", {}).items()] for each in records]
    times = pa.array([each.get("timestamp", 0) for each in records], pa.timestamp("ms", "UTC"))
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array([encoded(each["value"]) for each in records], pa.binary()),
            "key": pa.array([encoded(each.get("key")) for each in records], pa.binary()),
            "headers": pa.array(headers, HEADERS),
            "topic": pa.array(["t"] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": times.cast(pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
        }
    )


def landed(spec: StreamSpec, records: Sequence[Mapping[str, Any]], *, reference: bool = False) -> Block:
    """The records behind all stages but the table's; no row has another type than the file says."""
    steps = row_steps_of(spec, columns=spec.record_columns)
    assert steps is not None
    made: list[pa.Schema] = []

    def fit(rows: pa.RecordBatch) -> pa.RecordBatch:
        own = rows.select([each.name for each in steps.columns])
        own.validate(full=True)
        made.append(own.schema)
        return own

    pipeline = stream_pipeline(
        spec.resolved.decoder, "n.s", fit, columns=spec.record_columns, steps=steps, reference=reference
    )
    block = pipeline.run(records_of(records))
    assert all(each.equals(steps.columns.arrow) for each in made)
    gone = [*block.positions, *(each.row for each in block.failures), *block.dropped, *block.filtered]
    assert sorted(map(int, gone)) == list(range(len(records)))
    return block


def fates(block: Block) -> list[Any]:
    """What became of each record: its row, the sentence of its failure, or what it counts as."""
    found: list[Any] = [None] * block.records.num_rows
    if block.rows.num_rows:
        for at, row in zip(block.positions.tolist(), block.rows.to_pylist(), strict=True):
            found[at] = row
    for each in block.failures:
        found[each.row] = f"{each.stage}: {each.message}"
    for name, rows in (("tombstone", block.dropped), ("filtered", block.filtered)):
        for at in rows.tolist():
            found[at] = name
    return found
