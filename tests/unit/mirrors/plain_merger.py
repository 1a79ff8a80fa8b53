"""A stand-in for what merges: the last change of each key by Kafka's offset, written to the branch by PyIceberg."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.mirrors.model.merge_plan import (
    Generation,
    MergeCounts,
    MergePlan,
    MergeResult,
    MirrorState,
    PartitionState,
)
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.stamp.offsets import TopicPartition

P0 = TopicPartition("customers", 0)


@contextlib.contextmanager
def copy_on_write() -> Iterator[None]:
    """PyIceberg writes no delete files, and warns of a table that asks for them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Merge on read is not yet supported")
        warnings.filterwarnings("ignore", "Delete operation did not match any records")
        yield


def partition_of(row: Mapping[str, Any]) -> TopicPartition:
    """Of a row of the changelog."""
    return TopicPartition(row["_kafka_topic"] or P0.topic, row["_kafka_partition"] or P0.partition)


class PlainMerger:
    """Merges by reading all of the branch, and writing it anew."""

    def merge(
        self, changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
    ) -> MergeResult:
        changes = sorted(
            (row for file in files for row in pq.read_table(file.file_path.removeprefix("file://")).to_pylist()),
            key=lambda row: row["_kafka_offset"],
        )
        head = mirror.metadata.refs[branch].snapshot_id
        changes = [each for each in changes if each["_kafka_offset"] >= plan.begins.get(partition_of(each), 0)]
        before = {row["id"]: row for row in mirror.scan(snapshot_id=head).to_arrow().to_pylist()}
        rows = dict(before)
        for change in changes:
            order = f"{change['_kafka_offset']:016x}"
            if order <= ((rows.get(change["id"]) or {}).get("_change_order") or ""):
                continue
            rows.pop(change["id"], None)
            if change["_change_op"] != "d":
                rows[change["id"]] = {
                    **{name: change.get(name) for name in plan.columns},
                    "_change_order": order,
                }
        ends = {P0: 0, **plan.state.next_offsets}
        for change in changes:
            ends[partition_of(change)] = max(change["_kafka_offset"] + 1, ends.get(partition_of(change), 0))
        one = (Generation(0, 0, "db"),)
        state = MirrorState({p: PartitionState(at, f"{at:016x}", None, one) for p, at in ends.items()}, {"db": 0})
        state = replace(state, breaks=plan.state.breaks)
        counts = MergeCounts(read=len(changes))
        if rows == before:
            return MergeResult(state, counts)
        frame = pa.Table.from_pylist(list(rows.values()), schema=mirror.schema().as_arrow())
        with copy_on_write():
            mirror.overwrite(frame, AlwaysTrue(), branch=branch)
        ids = [each.snapshot_id for each in ancestors(mirror.metadata, mirror.metadata.refs[branch].snapshot_id)]
        return MergeResult(state, counts, tuple(reversed(ids[: ids.index(head)])))

    def clear(self, mirror: Table, branch: str) -> None:
        with copy_on_write():
            mirror.delete(AlwaysTrue(), branch=branch)
