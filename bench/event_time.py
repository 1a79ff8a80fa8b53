"""Benchmark of event time: CPU per record for a block's least and greatest event time, and for its late rows.

python -m bench.event_time
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import pyarrow as pa

from jobs.config.stream.event_time import EventTime
from jobs.streaming.pipeline.block import Block
from jobs.streaming.task.event_time import EventTimePlan, judge_block
from jobs.streaming.task.tally import Tally, count_events
from jobs.tables.commit.stamp.offsets import TopicPartition

RECORDS = 20_000
BLOCKS = 200
BEGIN_MS = 1_760_000_000_000


def main() -> None:
    """Print the median over the blocks, without late rows and with one in a hundred."""
    spec = EventTime.model_validate({"column": "at"})
    at = BEGIN_MS * 1000 + np.random.default_rng(7).integers(0, 60_000_000, RECORDS)
    rows = pa.RecordBatch.from_arrays([pa.array(at, pa.timestamp("us", "UTC"))], ["at"])
    records = pa.RecordBatch.from_arrays([pa.array(range(RECORDS), pa.int64())], ["offset"])
    every = np.arange(RECORDS, dtype=np.int64)
    block = Block(records, rows, every, [], np.zeros(0, np.int64), "orders", {})
    wanted, source = np.ones(RECORDS, dtype=bool), TopicPartition("orders", 0)
    for name, mark_ms in (("none late", BEGIN_MS - 10), ("1 % late", BEGIN_MS + 600)):
        plan, tally, spent = EventTimePlan(spec, mark_ms, BEGIN_MS + 10**9), Tally("orders", 0), list[float]()
        for _ in range(BLOCKS):
            began = time.process_time_ns()
            judged = judge_block(plan, source, block, wanted, wanted)
            count_events(tally, judged.counts, judged.greatest_ms)
            spent.append((time.process_time_ns() - began) / RECORDS)
        print(f"{name}: {statistics.median(spent):.2f} ns of processor per record")


if __name__ == "__main__":
    main()
