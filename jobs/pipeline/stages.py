"""The stages that a record passes in a task, from bytes to a row that the table holds: the first that fails counts.

A stage works on blocks. When one raises for a block, the block is halved until the records at fault stand alone, so
that one record never fails the others. Files, catalogs and memory that fail are no record's fault and pass through.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import PurePath
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.formats.json.reference import STAGE as DECODE_VALUE
from jobs.formats.outcome import Decoded, Failure
from jobs.write.projection import ProjectionError, UnfitValueError

WRITE = "write"
UNEXPECTED = "unexpected_error"

Indices = npt.NDArray[np.int64]


class Decoder(Protocol):
    """What turns values into rows, one outcome per record."""

    def decode(self, values: pa.BinaryArray) -> Decoded: ...


class Stages:
    """Takes blocks of records through decoding and into the table's columns.

    Args:
        decoder: Of the values.
        fit: Rows in the table's columns and types; raises `ProjectionError`.
        kafka_columns: Whether rows say where they came from.
    """

    def __init__(
        self, decoder: Decoder, fit: Callable[[], Callable[[pa.RecordBatch], pa.RecordBatch]], *, kafka_columns: bool
    ) -> None:
        self._decoder: Decoder = decoder
        self._fit: Callable[[], Callable[[pa.RecordBatch], pa.RecordBatch]] = fit
        self._kafka_columns: bool = kafka_columns

    def run(self, records: pa.RecordBatch) -> Decoded:
        """What becomes of each record of a block: exactly one of row, failure and tombstone.

        Raises:
            OSError, MemoryError: The machine or the network failed.
            ProjectionError: The table cannot hold rows of this stream at all.
        """
        decoded = self._decode(records.column("value"))
        rows, positions = decoded.rows, decoded.positions
        if not rows.num_rows:
            return decoded
        if self._kafka_columns:
            rows = _with_kafka_columns(rows, records, positions)
        fitted, kept, refused = self._fitted(rows, np.arange(rows.num_rows, dtype=np.int64), positions)
        whole = fitted[0] if len(fitted) == 1 else _concatenated(fitted, self._fit()(rows.slice(0, 0)))
        failures = sorted([*decoded.failures, *refused], key=lambda failure: failure.row) if refused else None
        return Decoded(
            rows=whole,
            positions=positions if failures is None else positions[kept],
            failures=decoded.failures if failures is None else failures,
            tombstones=decoded.tombstones,
            unknown_fields=decoded.unknown_fields,
        )

    def _decode(self, values: pa.BinaryArray) -> Decoded:
        try:
            return self._decoder.decode(values)
        except (OSError, MemoryError):
            raise
        except Exception as problem:
            failure = _unexpected(0, DECODE_VALUE, problem)
        if len(values) > 1:
            half = len(values) // 2
            return _joined(self._decode(values.slice(0, half)), self._decode(values.slice(half)), half)
        # A decoder that can decode nothing at all is not this record's fault. What is raised here is about no record,
        # and has none of the exceptions above, which may quote one, as its context.
        empty = self._decoder.decode(values.slice(0, 0))
        self._decoder.decode(pa.array([b"{}"], values.type))
        return Decoded(empty.rows, empty.positions, [failure], empty.tombstones, {})

    def _fitted(
        self, rows: pa.RecordBatch, indices: Indices, positions: Indices
    ) -> tuple[list[pa.RecordBatch], Indices, list[Failure]]:
        """The rows that fit, their indices among all, and the failures of the others."""
        try:
            return [self._fit()(rows)], indices, []
        except UnfitValueError as problem:
            failure = Failure(0, WRITE, problem.error_class, problem.message, f"$.{problem.path}")
        except (OSError, MemoryError, ProjectionError):
            raise
        except Exception as problem:
            failure = _unexpected(0, WRITE, problem)
        if len(indices) == 1:
            # Rows that never fit, not even none of them, are not this record's fault.
            none = self._fit()(rows.slice(0, 0))
            where = int(positions[indices[0]])
            single = Failure(where, failure.stage, failure.error_class, failure.message, failure.field)
            return [none], indices[:0], [single]
        half = len(indices) // 2
        first = self._fitted(rows.slice(0, half), indices[:half], positions)
        second = self._fitted(rows.slice(half), indices[half:], positions)
        return first[0] + second[0], np.concatenate([first[1], second[1]]), first[2] + second[2]


def _unexpected(row: int, stage: str, problem: Exception) -> Failure:
    """A fault of frazil's own that one record brings out. What the exception says may quote the record: left out."""
    frames = traceback.extract_tb(problem.__traceback__)
    place = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return Failure(row, stage, UNEXPECTED, f"{type(problem).__name__}{place}", None)


def _joined(first: Decoded, second: Decoded, half: int) -> Decoded:
    moved = [Failure(f.row + half, f.stage, f.error_class, f.message, f.field) for f in second.failures]
    unknown = dict(first.unknown_fields)
    for path, count in second.unknown_fields.items():
        unknown[path] = unknown.get(path, 0) + count
    return Decoded(
        rows=_concatenated([first.rows, second.rows], first.rows.slice(0, 0)),
        positions=np.concatenate([first.positions, second.positions + half]),
        failures=first.failures + moved,
        tombstones=np.concatenate([first.tombstones, second.tombstones + half]),
        unknown_fields=unknown,
    )


def _concatenated(parts: list[pa.RecordBatch], empty: pa.RecordBatch) -> pa.RecordBatch:
    filled = [part for part in parts if part.num_rows]
    return pa.concat_batches(filled) if filled else empty


def _with_kafka_columns(rows: pa.RecordBatch, records: pa.RecordBatch, positions: np.ndarray) -> pa.RecordBatch:
    whole = len(positions) == records.num_rows
    indices = None if whole else pa.array(positions)
    columns = list(rows.columns)
    fields = list(rows.schema)
    for name, source in (
        ("_kafka_topic", "topic"),
        ("_kafka_partition", "partition"),
        ("_kafka_offset", "offset"),
        ("_kafka_timestamp", "timestamp"),
    ):
        column = records.column(source)
        column = column if indices is None else column.take(indices)
        columns.append(column)
        fields.append(pa.field(name, column.type))
    return pa.record_batch(columns, schema=pa.schema(fields))
