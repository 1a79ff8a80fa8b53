"""Records as a pipeline takes them, and stages that fail as a test says."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from jobs.records.formats.interface.decoder import DECODE_VALUE, Decoded, Failure
from jobs.records.formats.interface.problems import ValueProblem
from jobs.streaming.pipeline.block import Block

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
TABLE = "orders.payments"


def records_of(values: Sequence[bytes | None]) -> pa.RecordBatch:
    """Records of one partition, from offset 100 on."""
    count = len(values)
    return pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["payments"] * count, pa.string()),
            "partition": pa.array([3] * count, pa.int32()),
            "offset": pa.array(range(100, 100 + count), pa.int64()),
            "timestamp": pa.array([AT] * count, pa.timestamp("us", "UTC")),
        }
    )


def numbers(count: int) -> Block:
    """A block whose values are its records' indices, which no stage has seen."""
    return Block.of(records_of([str(number).encode() for number in range(count)]), TABLE)


def numbers_in(block: Block) -> list[int]:
    """The values of a block's rows."""
    return [int(value) for value in block.rows.column("value").to_pylist()]


class Picky:
    """A stage that passes rows on, raises for some, and counts how often it is asked.

    Args:
        bad: Numbers that are refused with a reason.
        breaking: Numbers that it fails for.
        dropped: Numbers that it drops.
        broken: Raised whatever it is asked.
    """

    name: str = "picky"

    def __init__(
        self,
        bad: Collection[int] = (),
        breaking: Collection[int] = (),
        dropped: Collection[int] = (),
        broken: Exception | None = None,
    ) -> None:
        self.bad, self.breaking, self.dropped, self.broken = bad, breaking, dropped, broken
        self.asked = 0

    def apply(self, block: Block) -> Block:
        self.asked += 1
        if self.broken:
            raise self.broken
        found = numbers_in(block)
        if any(number in self.bad for number in found):
            raise ValueProblem("bad_number", "needs another number", "$.n")
        if any(number in self.breaking for number in found):
            raise KeyError("a secret that the exception quotes")
        gone = np.isin(found, list(self.dropped)) if found else np.zeros(0, dtype=bool)
        return block.with_rows(block.rows.filter(pa.array(~gone)), np.flatnonzero(~gone), dropped=np.flatnonzero(gone))

    def probe(self, block: Block) -> Block:
        return block.part(0, 0)


class TellingDecoder:
    """A decoder of numbers that refuses some by itself, drops null values, and breaks at the value BREAK."""

    def __init__(self, bad: Collection[bytes] = (), problem: Exception | None = None) -> None:
        self.bad = bad
        self.problem = problem

    def decode(self, values: pa.BinaryArray) -> Decoded:
        each = values.to_pylist()
        if self.problem is not None or b"BREAK" in each:
            raise self.problem or KeyError("a secret that the exception quotes")
        good = [row for row, value in enumerate(each) if value is not None and value not in self.bad]
        return Decoded(
            pa.record_batch({"n": pa.array([int(each[row]) for row in good], pa.int64())}),
            np.array(good, np.int64),
            [Failure(row, DECODE_VALUE, "bad", "is bad", "$.n") for row, value in enumerate(each) if value in self.bad],
            np.array([row for row, value in enumerate(each) if value is None], np.int64),
            {"$.x": len(good)} if good else {},
        )
