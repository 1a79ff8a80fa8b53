"""Rows for tests of steps: of schema text and Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.parser import parse_schema
from jobs.records.transforms.columns import Columns
from jobs.records.transforms.frame import HEADERS, Frame
from jobs.records.transforms.transform import Applied, Rows, Transform


def columns_of(text: str) -> Columns:
    return Columns.of(iceberg_schema(parse_schema(text)))


def records_of(count: int, **parts: Sequence[Any]) -> pa.RecordBatch:
    """Records of a block: with a topic each, and what else is given."""
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(parts.get("topic", ["orders"] * count), pa.string()),
            "partition": pa.array(parts.get("partition", [0] * count), pa.int32()),
            "offset": pa.array(parts.get("offset", list(range(count))), pa.int64()),
            "timestamp": pa.array(parts.get("timestamp", [0] * count), pa.timestamp("us", "UTC")),
            "key": pa.array(parts.get("key", [None] * count), pa.binary()),
            "headers": pa.array(
                [
                    None if each is None else [{"key": name, "value": value} for name, value in each]
                    for each in parts.get("headers", [[]] * count)
                ],
                HEADERS,
            ),
            "timestampType": pa.array(parts.get("timestampType", [0] * count), pa.int32()),
        }
    )


def rows_of(text: str, values: Sequence[Mapping[str, Any]], **parts: Sequence[Any]) -> Rows:
    """Rows with columns of schema text, one for each mapping; a column that one lacks is null.

    They are made as parts of longer arrays, as rows of a block are.
    """
    columns = columns_of(text)
    more = [values[0] if values else {}, *values]
    arrays = [pa.array([each.get(field.name) for each in more], field.type)[1:] for field in columns.arrow]
    batch = pa.RecordBatch.from_arrays(arrays, schema=columns.arrow)
    return Rows(columns, batch, Frame(records_of(len(values), **parts)))


def applied(step: Transform, rows: Rows) -> Applied:
    """The step on the rows; what it gives is what it says."""
    made = step.apply(rows)
    expected = step.output(rows.columns)
    assert made.rows.columns.text == expected.text
    made.rows.batch.validate(full=True)
    assert made.rows.batch.schema.equals(expected.arrow), f"{made.rows.batch.schema}\n{expected.arrow}"
    kept = np.arange(rows.count) if made.kept is None else made.kept
    failed = [each.row for each in made.failures]
    assert sorted([*kept.tolist(), *failed, *made.filtered.tolist()]) == list(range(rows.count))
    assert len(kept) == made.rows.count == len(made.rows.frame.part("offset"))
    assert failed == sorted(failed)
    offsets = rows.frame.part("offset").to_pylist()
    assert made.rows.frame.part("offset").to_pylist() == [offsets[row] for row in kept]
    return made


def left(step: Transform, rows: Rows) -> list[dict[str, Any]]:
    """The rows that a step leaves, of which none failed."""
    made = applied(step, rows)
    assert not made.failures
    return made.rows.batch.to_pylist()


def refused(step: Transform, rows: Rows) -> list[tuple[int, str, str | None]]:
    """The rows that a step refuses, with class and path."""
    return [(each.row, each.error_class, each.path) for each in applied(step, rows).failures]
