"""Spark frame of a changelog's changes, in some files or a snapshot, and the log scans of its partitions."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.config.settings.settings import Settings
from jobs.mirrors.fold.fold import OP_COLUMN, UNAVAILABLE_COLUMN, sorted_rows, whole_numbers
from jobs.mirrors.fold.log_scan import SCANNED, LogScan
from jobs.mirrors.model.merge_plan import MergePlan
from jobs.quality.incremental_scan.offset_ranges import quoted_name
from jobs.quality.incremental_scan.row_selection import RowSelection
from jobs.quality.incremental_scan.spark_rows import rows_to_read_again
from jobs.tables.commit.stamp.offsets import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TOPIC, PARTITION, OFFSET = "_change_topic", "_change_partition", "_change_offset"
POSITION, LINEAGE, AT = "_change_position", "_change_lineage", "_change_at"
OLD_KEY = "_change_old_key"
_OPTIONAL = {POSITION: "string", LINEAGE: "string", AT: "timestamp", UNAVAILABLE_COLUMN: "array<string>"}
_LOG_ORDER = (TOPIC, PARTITION, "offset")
_SCAN_HERE = 300_000
"""Limit of changes that this process scans; Spark's tasks scan more, each task whole partitions."""


def change_frame(
    session: SparkSession,
    settings: Settings,
    changelog: Table,
    files: Sequence[DataFile],
    plan: MergePlan,
    until: contextlib.ExitStack,
) -> DataFrame:
    """Return the changes in data files, as they landed.

    Args:
        files: At least one.
        until: The frame can be read until this stack closes.

    Raises:
        FrazilError: Spark cannot read a table with such columns.
    """
    names = [field.name for field in changelog.schema().fields]
    wanted = {*plan.columns, *plan.coordinates, OP_COLUMN, *_OPTIONAL} & {*names}
    selection = RowSelection(changelog, None, tuple(files))
    return as_changes(rows_to_read_again(selection, wanted, session, settings, until), plan)


def as_changes(frame: DataFrame, plan: MergePlan, *, old_key: bool = False) -> DataFrame:
    """Return rows of a changelog with the columns that ordering and collapsing need.

    Args:
        old_key: Whether to include `_change_old_key`.
    """
    from pyspark.sql import functions as sql

    there = {*frame.columns}
    columns = [sql.col(quoted_name(name)) for name in (*plan.columns, OP_COLUMN)]
    for name, kind in _OPTIONAL.items():
        column = sql.col(quoted_name(name)) if name in there else sql.lit(None).cast(kind)
        columns.append(column.alias(name))
    for name, given in zip((TOPIC, PARTITION, OFFSET), plan.coordinates, strict=True):
        columns.append(sql.col(quoted_name(given)).alias(name))
    if old_key and OLD_KEY in there:
        columns.append(sql.col(OLD_KEY))
    return frame.select(*columns)


def log_scans(frame: DataFrame, rows: int, plan: MergePlan) -> dict[TopicPartition, LogScan]:
    """Scan each partition that has changes in a frame.

    Args:
        frame: Result of `as_changes`.
        rows: Approximate number of its rows.
    """
    from pyspark.sql import functions as sql

    nulls: Column = sql.lit(False)
    for name in plan.key:
        nulls = nulls | sql.col(quoted_name(name)).isNull()
    narrow = frame.select(
        TOPIC,
        PARTITION,
        sql.col(OFFSET).alias("offset"),
        sql.col(OP_COLUMN).alias("op"),
        sql.unix_micros(AT).alias("at"),
        sql.col(POSITION).alias("position"),
        sql.col(LINEAGE).alias("lineage"),
        nulls.alias("null_key"),
    )
    if rows <= _SCAN_HERE:
        return _scanned_here(narrow.toArrow(), plan)
    before, fresh = _scans_before(plan)

    def scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = scanned(batches, before, fresh)
        yield pa.record_batch({"found": pa.array([pickle.dumps(found)], pa.binary())})

    tasks = session_cores(narrow)
    by_partition = narrow.repartition(tasks, TOPIC, PARTITION).sortWithinPartitions(*_LOG_ORDER)
    parts = by_partition.mapInArrow(scan, "found binary").toArrow()["found"].to_pylist()
    return {partition: each for part in parts for partition, each in pickle.loads(part).items()}


def log_scans_here(changes: pa.Table, plan: MergePlan) -> dict[TopicPartition, LogScan]:
    """Scan each partition of changes in this process.

    Args:
        changes: Changes with the columns of `as_changes`.
    """
    nulls = np.zeros(changes.num_rows, bool)
    for name in plan.key:
        nulls |= changes[name].is_null().to_numpy()
    narrow = {
        TOPIC: changes[TOPIC],
        PARTITION: changes[PARTITION],
        "offset": changes[OFFSET],
        "op": changes[OP_COLUMN],
        "at": changes[AT].cast(pa.int64()),
        "position": changes[POSITION],
        "lineage": changes[LINEAGE],
        "null_key": pa.array(nulls),
    }
    return _scanned_here(pa.table(narrow), plan)


def _scanned_here(narrow: pa.Table, plan: MergePlan) -> dict[TopicPartition, LogScan]:
    table = sorted_rows(narrow, _LOG_ORDER)
    return scanned(table.combine_chunks().to_batches(), *_scans_before(plan))


def _scans_before(plan: MergePlan) -> tuple[dict[TopicPartition, LogScan], LogScan]:
    """Return the scans to go on from in the partitions that the mirror knows, and the scan for any other partition."""
    known = plan.state
    before = {
        partition: LogScan.after(
            known.partitions.get(partition),
            plan.scope,
            known.breaks.get(partition, ()),
        )
        for partition in {*known.partitions, *known.breaks}
    }
    return before, LogScan.after(None, plan.scope)


def session_cores(frame: DataFrame) -> int:
    """Return the number of tasks that run at once in the frame's session."""
    return frame.sparkSession.sparkContext.defaultParallelism


def scanned(
    batches: Iterable[pa.RecordBatch], before: Mapping[TopicPartition, LogScan], fresh: LogScan
) -> dict[TopicPartition, LogScan]:
    """Return the scans after batches that are sorted by partition and offset."""
    found: dict[TopicPartition, LogScan] = {}
    for batch in batches:
        for partition, rows in _by_partition(batch):
            scan = found.get(partition) or before.get(partition, fresh)
            found[partition] = scan.scanned(rows.select(SCANNED.names).cast(SCANNED))
    return found


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    if not batch.num_rows:
        return
    topics = whole_numbers(batch[TOPIC].dictionary_encode().indices)
    numbers = whole_numbers(batch[PARTITION])
    edges = np.flatnonzero((topics[1:] != topics[:-1]) | (numbers[1:] != numbers[:-1])) + 1
    bounds = [0, *edges.tolist(), batch.num_rows]
    for start, end in pairwise(bounds):
        partition = TopicPartition(batch[TOPIC][start].as_py(), batch[PARTITION][start].as_py())
        yield partition, batch.slice(start, end - start)
