"""Transform benchmark: what a chain of steps costs a task, `python -m bench.transform [--records N] [--rounds N]`.

Decodes, shapes and writes small records in one process, as a task does behind its reading, by turns with and without
the steps: flatten, rename, parse_timestamp, cast, mask and filter; and a `compute` of three expressions with a `where`.
Prints microseconds of CPU for a record, and the share of the throughput that is left. The records come from memory, so
the share in a stream, whose tasks read from Kafka as well, is higher.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from jobs.clients.kafka.records import FetchedBlock
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.streaming.pipeline.row_steps import row_steps_of
from jobs.streaming.task.plan import TargetPlan, TaskPlan, task_metadata
from jobs.streaming.task.run import run_split
from jobs.tables.commit.stamp.offsets import TopicPartition

_SCHEMA = "id long not null, p struct<card string, at string, amount string>, kind string"
_BLOCK = 10_000
_CHAIN: list[Any] = [
    "flatten",
    {"rename": {"p_at": "at", "p_amount": "amount"}},
    {"parse_timestamp": {"column": "at", "format": "yyyy/MM/dd HH:mm:ss", "zone": "Asia/Tokyo"}},
    {"cast": {"amount": "decimal(12,2)"}},
    {"mask": {"columns": "p_card", "replacement": "***"}},
    {"filter": {"drop": {"topic": "test.*"}}},
]
_SQL: list[Any] = [
    {"compute": {"twice": "id * 2", "kind_upper": "upper(kind)", "even": "id % 2 = 0"}},
    {"where": "kind <> 'ignored'"},
]
_HASHED = [*_CHAIN[:4], {"mask": {"columns": "p_card", "hash": "${env:BENCH_KEY}"}}, _CHAIN[5]]
_LISTS: dict[str, list[Any]] = {
    "without": [],
    "flatten, rename, parse_timestamp, cast, mask, filter": _CHAIN,
    "the same, with mask as a keyed hash": _HASHED,
    "compute of three expressions, where": _SQL,
}


def main() -> None:
    """Measure every list of steps, by turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    os.environ["BENCH_KEY"] = "k" * 32
    blocks = _blocks(options.records)
    found: dict[str, list[float]] = {name: [] for name in _LISTS}
    with tempfile.TemporaryDirectory() as folder:
        plans = {name: _plan(Path(folder), number, steps) for number, (name, steps) in enumerate(_LISTS.items())}
        for _ in range(options.rounds + 1):
            for name, plan in plans.items():
                began = time.process_time()
                run_split(plan, blocks)
                found[name].append((time.process_time() - began) / options.records * 1e6)
    without = statistics.median(found["without"][1:])
    for name, each in found.items():
        # The first round warms up.
        middle = statistics.median(each[1:])
        print(f"{name}: {min(each[1:]):.2f}, {middle:.2f}, {max(each[1:]):.2f} µs a record; {without / middle:.0%}")


def _blocks(count: int) -> Sequence[FetchedBlock]:
    source = TopicPartition("payments", 0)
    blocks: list[FetchedBlock] = []
    for start in range(0, count, _BLOCK):
        numbers = range(start, min(start + _BLOCK, count))
        values = [
            json.dumps(
                {
                    "id": n,
                    "p": {
                        "card": f"4111-{n:012}",
                        "at": f"2026/01/{n % 28 + 1:02} {n % 24:02}:00:{n % 60:02}",
                        "amount": f"{n % 9999}.{n % 100:02}",
                    },
                    "kind": "sale",
                }
            ).encode()
            for n in numbers
        ]
        records = pa.RecordBatch.from_pydict(
            {
                "value": pa.array(values, pa.binary()),
                "topic": pa.array(["payments"] * len(values)),
                "partition": pa.array(np.zeros(len(values), np.int32)),
                "offset": pa.array(np.arange(start, start + len(values))),
                "timestamp": pa.array(np.arange(start, start + len(values)) * 1000).cast(pa.timestamp("us", "UTC")),
            }
        )
        blocks.append(FetchedBlock(source, records, records.take))
    return blocks


def _plan(folder: Path, number: int, steps: list[Any]) -> TaskPlan:
    spec = StreamSpec.model_validate(
        {
            "stream": f"transform{number}",
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": _SCHEMA},
            "transform": steps,
            "table": {"name": f"bench.transform{number}"},
        }
    )
    home = folder / str(number)
    home.mkdir()
    catalog = SqlCatalog("bench", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/warehouse")
    ensure_tables(spec, catalog)
    tables = {name: catalog.load_table(name).metadata for name in spec.target_names}
    plan = TaskPlan(
        stream=spec.stream,
        config=spec.config_hash,
        batch=0,
        epoch=1,
        first_seen=datetime.now(UTC),
        resolved=spec.resolved,
        columns=spec.record_columns,
        targets=tuple(TargetPlan(target, task_metadata(tables[target.name])) for target in spec.targets),
        file_prefix="bench",
    )
    return replace(plan, steps=row_steps_of(spec))


if __name__ == "__main__":
    main()
