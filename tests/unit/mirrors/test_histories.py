"""Random histories of a source, ordered, folded and applied without Spark: the mirror is what the source was."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from jobs.mirrors.fold.change_frame import (
    OFFSET,
    PARTITION,
    TOPIC,
    scanned,
)
from jobs.mirrors.fold.fold_tasks import FoldTask, OrderTask
from jobs.mirrors.fold.log_scan import LogScan
from jobs.mirrors.fold.moved_rows import Histories
from jobs.mirrors.fold.order import Order
from jobs.mirrors.fold.row_filter import RowFilter
from jobs.mirrors.model.merge_plan import MirrorState
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.mirror_world import Row
from tests.helpers.source_table import KEY, LARGE, SourceTable, state_after

COLUMNS = ("id", "part", "name", *LARGE)
KINDS = pa.schema(
    {
        "id": pa.int64(),
        "part": pa.string(),
        "name": pa.string(),
        "note": pa.string(),
        "tags": pa.list_(pa.string()),
        "place": pa.struct({"city": pa.string(), "at": pa.int64()}),
        "_change_op": pa.string(),
        "_change_position": pa.string(),
        "_change_lineage": pa.string(),
        "_change_unavailable": pa.list_(pa.string()),
        "_change_old_key": pa.struct({"id": pa.int64(), "part": pa.string()}),
        TOPIC: pa.string(),
        PARTITION: pa.int32(),
        OFFSET: pa.int64(),
    }
)
EPOCH = datetime.fromtimestamp(0, UTC)


def changes_of(rows: Sequence[Row]) -> pa.Table:
    places = zip((TOPIC, PARTITION, OFFSET), ("_kafka_topic", "_kafka_partition", "_kafka_offset"), strict=True)
    renamed = dict(places)
    return pa.Table.from_pylist([row | {name: row[kafka] for name, kafka in renamed.items()} for row in rows], KINDS)


def scans_of(rows: Sequence[Row], state: MirrorState) -> dict[TopicPartition, LogScan]:
    told = sorted(rows, key=lambda row: (row["_kafka_partition"], row["_kafka_offset"]))
    kinds = {TOPIC: pa.string(), PARTITION: pa.int32(), "offset": pa.int64(), "op": pa.string(), "at": pa.int64(),
             "position": pa.string(), "lineage": pa.string(), "null_key": pa.bool_()}  # fmt: skip
    narrow = [
        {
            TOPIC: row["_kafka_topic"], PARTITION: row["_kafka_partition"], "offset": row["_kafka_offset"],
            "op": row["_change_op"], "at": (row["_change_at"] - EPOCH).total_seconds() * 1e6, "null_key": False,
            "position": row["_change_position"], "lineage": row["_change_lineage"],
        }
        for row in told
    ]  # fmt: skip
    batches = pa.Table.from_pylist(narrow, pa.schema(kinds)).to_batches(max_chunksize=7)
    return scanned(batches, {p: LogScan.after(each) for p, each in state.partitions.items()}, LogScan())


class Mirror:
    """What merging does, row by row."""

    def __init__(self) -> None:
        self.state: MirrorState = MirrorState()
        self.rows: dict[Any, Row] = {}
        self.changelog: list[Row] = []

    def merge(self, rows: Sequence[Row]) -> None:
        self.changelog += rows
        order = Order.of("shop", KEY, self.state, scans_of(rows, self.state), "source")
        batches = changes_of(rows).to_batches(max_chunksize=11)
        late = {
            (row["id"], row["part"]) for each in OrderTask(order, KEY, kept="late")(batches) for row in each.to_pylist()
        }
        ordered = pa.Table.from_batches(list(OrderTask(order, COLUMNS)(batches)))
        by_key = ordered.sort_by([(name, "ascending") for name in (*KEY, "_change_order")])
        for floor in order.state.floors.values():
            self.rows = {key: row for key, row in self.rows.items() if row["_change_order"] >= floor.token}
        for batch in FoldTask(KEY, COLUMNS, RowFilter())(by_key.to_batches(max_chunksize=13)):
            for folded in batch.to_pylist():
                key = (folded["id"], folded["part"])
                there = self.rows.get(key)
                if key in late or folded["_refold"] or (folded["_from_target"] and there is None):
                    late.add(key)
                elif there is None or folded["_change_order"] > there["_change_order"]:
                    self._set(key, folded)
        self._fold_again(late, order)
        self.state = MirrorState.from_json(order.state.to_json())

    def _fold_again(self, keys: set[Any], order: Order) -> None:
        if not keys:
            return
        extra = ("_change_old_key",)
        task = OrderTask(order, COLUMNS, kept="all", extra=extra)
        told = [row for batch in task(changes_of(self.changelog).to_batches()) for row in batch.to_pylist()]
        histories = Histories.of(KEY, COLUMNS, told)
        for key in keys:
            self.rows.pop(key, None)
            if key in histories.changes:
                self._set(key, histories.folded(key)[0])

    def _set(self, key: Any, folded: Row) -> None:
        before = self.rows.pop(key, {})
        if folded["_fold_op"] == "upsert":
            asked = folded["_from_target"]
            values = {name: before[name] if name in asked else folded[name] for name in COLUMNS}
            self.rows[key] = values | {"_change_order": folded["_change_order"]}


@pytest.mark.parametrize("seed", range(12))
def test_a_mirror_is_what_the_changes_so_far_make(seed: int) -> None:
    chosen, source, mirror = random.Random(seed), SourceTable(seed), Mirror()
    source.run(300)
    late = source.late()
    bounds = [0, *sorted(chosen.sample(range(5, len(source.log)), 6)), len(source.log)]
    landed, waiting = list[Row](), list[Row]()
    for start, end in pairwise(bounds):
        part = [each for each in source.log[start:end] if each not in late] + waiting
        waiting = [each for each in source.log[start:end] if each in late]
        chosen.shuffle(part)
        landed += part
        mirror.merge(part)
        found = {key: {name: row[name] for name in COLUMNS} for key, row in mirror.rows.items()}
        assert found == state_after(landed)
