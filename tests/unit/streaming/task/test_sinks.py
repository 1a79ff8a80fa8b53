"""The sinks of a task: many tables within one budget of memory and open files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from jobs.config.stream.models import StreamSpec
from jobs.streaming.task import run as task_run
from jobs.streaming.task.run import run_split
from jobs.streaming.task.sinks import Sink, keep_within_budget
from tests.helpers.tasks import TaskWorld, as_block, records

TABLES = 12


def routed_world(folder: Path) -> TaskWorld:
    tables = [{"match": f"t{number}", "table": f"orders.t{number}"} for number in range(TABLES)]
    return TaskWorld(
        folder,
        StreamSpec.model_validate(
            {
                "stream": "payments",
                "source": {"topics": ["payments"]},
                "decode": {"value": "json", "schema": "type string, text string"},
                "table": {"name": "orders.payments"},
                "route": {"by": "type", "tables": tables},
            }
        ),
    )


@pytest.mark.parametrize(("budget", "most"), [(20_000, 64), (10**9, 64), (10**9, 3)])
def test_many_tables_are_written_whole_within_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: int, most: int
) -> None:
    world = routed_world(tmp_path)
    kept: list[tuple[int, int]] = []

    def within(sinks: Any) -> None:
        sinks = list(sinks)
        keep_within_budget(sinks, budget, most)
        kept.append((sum(each.buffered_bytes for each in sinks), sum(each.open_files for each in sinks)))

    monkeypatch.setattr(task_run, "keep_within_budget", within)
    values = [json.dumps({"type": f"t{n % TABLES}", "text": f"{n:>90}"}).encode() for n in range(2_400)]
    blocks = [records(values[first : first + 200], first=first) for first in range(0, len(values), 200)]
    found: Counter[tuple[str, int]] = Counter()
    files: Counter[str] = Counter()
    for kind, target, payload in run_split(world.plan(), [as_block(each) for each in blocks]):
        if kind == "file":
            files[target] += 1
            path = msgspec.json.decode(payload)["path"]
            rows = pq.ParquetFile(path.removeprefix("file://")).read()
            found.update((target, offset) for offset in rows.column("_kafka_offset").to_pylist())
    assert found == Counter((f"orders.t{n % TABLES}", n) for n in range(2_400))
    assert all(size <= budget and open_files <= most for size, open_files in kept)
    assert max(files.values()) > 1 if budget < 10**9 else set(files.values()) == {1}
    world.close()


def test_the_sink_that_keeps_most_is_flushed_first() -> None:
    flushed: list[int] = []

    class Kept(Sink):
        def __init__(self, size: int) -> None:
            self.size = size

        @property
        def buffered_bytes(self) -> int:
            return self.size

        @property
        def open_files(self) -> int:
            return 1

        def flush(self) -> None:
            flushed.append(self.size)

    keep_within_budget([Kept(size) for size in (1, 9, 5, 7)], budget=10)
    assert flushed == [9, 7]
    flushed.clear()
    keep_within_budget([Kept(size) for size in (1, 9, 5, 7)], budget=22, open_files=4)
    assert flushed == []
    keep_within_budget([Kept(size) for size in (1, 9, 5, 7)], budget=22, open_files=2)
    assert flushed == [9, 7]
