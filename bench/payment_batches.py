"""Payment batches as a driver lands them: Parquet by frazil's own writer, each batch a stamped commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

import numpy as np
import pyarrow as pa

from bench.checksum import Checksum, checksum
from bench.timed_target import KAFKA_PARTITIONS, TimedTarget
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.write.target_writer import TargetWriter

_DAY_MS = 86_400_000
_PATIENCE_SECONDS = 120.0


class Payments:
    """Driver that lands batches of payments.

    Args:
        target: Target of the table, which the driver has taken over.

    Attributes:
        written: Checksum over all columns of all landed rows.
        landed: Size in bytes of each landed file by its path, in the order of their commits.
        batches: Number of batches that have landed.
    """

    def __init__(self, target: TimedTarget) -> None:
        self.target: TimedTarget = target
        self.written: Checksum = Checksum()
        self.landed: dict[str, int] = {}
        self.batches: int = 0
        self._random: np.random.Generator = np.random.default_rng(7)

    def land(self, days: Sequence[datetime], rows: int) -> None:
        """A batch with so many rows in each of some days, which is a file for each."""
        batch = self._rows(days, rows)
        while True:
            seen = self.target.seen()
            table = self.target.table
            writer = TargetWriter(table.metadata, table.io, file_prefix=f"bench-{self.batches:05d}")
            writer.write(batch)
            files = writer.close()
            if self.target.land_rows(files, batch.num_rows, seen) is ProposalOutcome.LANDED:
                break
        self.written += checksum([batch])
        self.landed |= {file.file_path: file.file_size_in_bytes for file in files}
        self.batches += 1

    def _rows(self, days: Sequence[datetime], rows: int) -> pa.RecordBatch:
        """Rows with all columns of the demo's table. Their numbers are uniformly random, and so compress badly."""
        count = len(days) * rows
        midnights = np.repeat(np.array([int(day.timestamp()) * 10**6 for day in days]), rows)
        times = pa.array(midnights + self._random.integers(0, _DAY_MS, count) * 1000, pa.timestamp("us", "UTC"))
        payers = pa.array([f"payer-{n}" for n in range(1000)])
        columns: dict[str, Any] = {
            "id": _hexadecimal(self._random.bytes(16 * count)),
            "payer": payers.take(pa.array(self._random.integers(0, 1000, count))),
            "amount": _cents(self._random.integers(0, 10_000_000, count)),
            "created_at": times,
            "document": pa.nulls(count, pa.string()),
            "type": pa.array(["card", "transfer", "cash"]).take(pa.array(self._random.integers(0, 3, count))),
            "_kafka_topic": pa.array(["payments"]).take(pa.array(np.zeros(count, np.int64))),
            "_kafka_partition": pa.array(np.arange(count) % KAFKA_PARTITIONS, pa.int32()),
            "_kafka_offset": pa.array(self.written.rows // KAFKA_PARTITIONS + np.arange(count) // KAFKA_PARTITIONS),
            "_kafka_timestamp": times,
        }
        return pa.RecordBatch.from_pydict(columns)


def _hexadecimal(data: bytes) -> pa.StringArray:
    """A text of 32 digits for each 16 bytes."""
    text = data.hex().encode()
    offsets = np.arange(0, len(text) + 1, 32, dtype=np.int32)
    return pa.StringArray.from_buffers(len(data) // 16, pa.py_buffer(offsets), pa.py_buffer(text))


def _cents(cents: np.ndarray[Any, Any]) -> pa.Array:
    # A decimal is its unscaled number in 16 bytes, the low half first.
    return pa.Array.from_buffers(
        pa.decimal128(12, 2), len(cents), [None, pa.py_buffer(np.column_stack([cents, np.zeros_like(cents)]).tobytes())]
    )


class Stream(threading.Thread):
    """Thread that lands batches, like a driver beside maintenance, until the block ends.

    Args:
        payments: The driver.
        days: Days in which each batch has rows.
        rows: Number of rows of each batch.
        every: Seconds between two batches.
    """

    def __init__(self, payments: Payments, days: Sequence[datetime], rows: int, every: float) -> None:
        super().__init__(name="stream", daemon=True)
        self.failed: BaseException | None = None
        self._payments: Payments = payments
        self._days: Sequence[datetime] = days
        self._rows: int = rows
        self._every: float = every
        self._enough: threading.Event = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._enough.set()
        self.join(_PATIENCE_SECONDS)

    def run(self) -> None:
        """Land batches; one that fails is the last."""
        due = time.monotonic()
        try:
            while not self._enough.wait(max(0.0, due - time.monotonic())):
                due = max(due + self._every, time.monotonic())
                self._payments.land(self._days, self._rows)
        except BaseException as problem:
            self.failed = problem

    def wait_for(self, batches: int) -> None:
        """Wait until so many more batches have landed, or one has failed."""
        until, deadline = self._payments.batches + batches, time.monotonic() + _PATIENCE_SECONDS
        while self.failed is None and self._payments.batches < until and time.monotonic() < deadline:
            time.sleep(0.02)
