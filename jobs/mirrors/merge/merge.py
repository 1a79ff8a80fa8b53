"""Merge of new changes into a branch of a mirror, by Spark."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.config.settings.settings import Settings
from jobs.mirrors.fold.change_frame import OFFSET, PARTITION, TOPIC, change_frame, log_scans, session_cores
from jobs.mirrors.fold.fold import DELETE, FOLD_COLUMN, UPSERT
from jobs.mirrors.fold.fold_tasks import FoldTask, OrderTask
from jobs.mirrors.fold.merge_sql import (
    MergeFacts,
    branch_path,
    floor_sql,
    merge_facts,
    merge_sql,
    table_path,
    where_changes_are,
)
from jobs.mirrors.fold.merging_session import (
    folded_kinds,
    interruptible_jobs,
    kept_frame,
    merging_session,
    ordered_kinds,
    sorted_by_key,
)
from jobs.mirrors.fold.order import increment_order
from jobs.mirrors.fold.refold import History, memory_begins
from jobs.mirrors.fold.row_filter import RowFilter
from jobs.mirrors.merge.merge_source import SourceRows
from jobs.mirrors.merge.mirror_table import refuse_unread
from jobs.mirrors.model.merge_plan import MergePlan, MergeResult, MirrorState
from jobs.quality.incremental_scan.offset_ranges import quoted_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_ROWS_IN_A_TASK = 100_000


def merge_increment(
    session: SparkSession,
    settings: Settings,
    changelog: Table,
    files: Sequence[DataFile],
    mirror: Table,
    branch: str,
    plan: MergePlan,
) -> MergeResult:
    """Merge the changes in data files into a branch of the mirror.

    If the same files are merged again into the branch's former head, the result is the same. If they are merged again
    into the result, no value changes; if the source sent a change twice, its `_change_order` may become that of the
    other copy.

    Args:
        session: Spark session; merges run in a session beside it, which has the catalog.
        changelog: Changelog with the schema to read its rows with.
        files: Data files with the new changes.
        mirror: Mirror with the plan's columns, `_change_order`, and `_change_deleted` if deletes are soft.
        branch: Branch of the mirror; nobody else writes it.

    Raises:
        MirrorStopped: The mirror has to stop.
        FrazilError: Spark cannot read or write such a table, or the filter cannot be evaluated for a row.
    """
    refuse_unread(plan.stream, changelog, mirror)
    if not files:
        return MergeResult(plan.state)

    def merge() -> MergeResult:
        own = merging_session(session, settings)
        return _Merge(own, settings, changelog, mirror, branch, plan).run(files)

    return interruptible_jobs(session, "merge", merge)


@dataclass(frozen=True, slots=True)
class _Merge:
    """One merge."""

    session: SparkSession
    settings: Settings
    changelog: Table
    mirror: Table
    branch: str
    plan: MergePlan

    @property
    def target(self) -> str:
        return branch_path(table_path(self.settings, self.mirror), self.branch)

    def run(self, files: Sequence[DataFile]) -> MergeResult:
        plan = self.plan
        before = _head(self.mirror, self.branch)
        with contextlib.ExitStack() as until:
            changes = change_frame(self.session, self.settings, self.changelog, files, plan, until)
            count = sum(file.record_count for file in files)
            scans = log_scans(changes, count, plan)
            order, counts = increment_order(plan, scans)
            self._truncate(order.state)
            row_filter = RowFilter.of(plan.where, self.mirror.schema(), plan.columns)
            history = History(self.session, self.settings, self.changelog, plan, order, until)
            tasks = OrderTask(order, plan.columns), FoldTask(plan.key, plan.columns, row_filter)
            counts = replace(counts, too_late=_too_late(changes, plan) if counts.late else 0)
            folded = kept_frame(self._folded(changes, *tasks, count), until)
            columns = self.changelog.schema()
            rows = SourceRows(
                history, self.target, row_filter, lambda: memory_begins(columns, plan.timestamp, files, time.time())
            )
            again = None
            if counts.late > counts.too_late:
                late = OrderTask(order, plan.key, kept="late")
                again = changes.mapInArrow(late, ordered_kinds(changes, plan.key))
            facts = self._facts(folded)
            source = rows.of(folded, facts, again)
            if source.changed:
                facts = self._facts(source.frame)
            if facts.unjudged:
                raise self._unanswered("it reads values that were not sent, and that no change has")
            self._merge(source.frame, facts)
            counts = replace(
                counts,
                upserts=facts.rows - facts.deletes,
                deletes=facts.deletes,
                filtered=facts.filtered,
                refolded=source.refolded,
                unresolved=source.unresolved,
            )
        removed = max(order.state.removed, facts.removed)
        state = replace(order.state, removed=removed)
        return MergeResult(state, counts, _snapshots(self.mirror, self.branch, before))

    def _truncate(self, state: MirrorState) -> None:
        fresh = [floor for topic, floor in sorted(state.floors.items()) if floor != self.plan.state.floors.get(topic)]
        if fresh:
            self.session.sql(floor_sql(self.target, fresh, self.plan.deletes))

    def _folded(self, changes: DataFrame, order: OrderTask, fold: FoldTask, rows: int) -> DataFrame:
        plan = self.plan
        ordered = changes.mapInArrow(order, ordered_kinds(changes, plan.columns))
        tasks = min(session_cores(changes), 1 + rows // _ROWS_IN_A_TASK)
        return sorted_by_key(ordered, plan.key, tasks).mapInArrow(fold, folded_kinds(changes, plan.columns))

    def _facts(self, rows: DataFrame) -> MergeFacts:
        facts = merge_facts(rows, self.plan.key, self.mirror, self.settings.catalog.name)
        if facts.problem is not None:
            raise self._unanswered(facts.problem)
        return facts

    def _unanswered(self, why: str) -> FrazilError:
        return FrazilError(
            f"stream {self.plan.stream}: the filter of mirror {'.'.join(self.mirror.name())} has no answer for a row: "
            f"{why}.",
            fix=f"change mirrors.where of streams/{self.plan.stream}.yaml; or, where values were not sent, let the "
            "connector take a snapshot of the rows (an incremental one, by a signal), then frazil mirror run "
            f"{self.plan.stream}",
        )

    def _merge(self, source: DataFrame, facts: MergeFacts) -> None:
        from pyspark.sql import functions as sql

        plan = self.plan
        if not facts.rows:
            return
        view = f"frazil_folded_{uuid.uuid4().hex}"
        # Spark builds a Bloom filter only from a side that has a condition, which it takes to be selective.
        source.where(sql.col(FOLD_COLUMN).isin(UPSERT, DELETE)).createOrReplaceTempView(view)
        narrowed = where_changes_are("t", facts.ranges, facts.buckets)
        text = merge_sql(
            self.target, view, plan.key, plan.columns, deletes=plan.deletes, kept=facts.kept, narrowed=narrowed
        )
        named = self.settings.spark.conf
        may_filter = self.mirror.properties.get("write.merge.mode") == "merge-on-read"
        may_filter = may_filter and not any(key.startswith(FILTER) or key == BROADCAST for key in named)
        conf = join_conf(_rows(self.mirror), facts.rows, session_cores(source), may_filter=may_filter)
        with _conf(self.session, {key: conf[key] for key in conf if key not in named}):
            try:
                self.session.sql(text)
            finally:
                self.session.catalog.dropTempView(view)


@contextlib.contextmanager
def _conf(session: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Set configuration keys of a session within the block."""
    former = {key: session.conf.get(key, None) for key in conf}
    for key, value in conf.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in former.items():
            if value is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, value)


def _too_late(changes: DataFrame, plan: MergePlan) -> int:
    """Return the number of changes below the offsets up to which changes have expired."""
    if not plan.begins:
        return 0
    before = " OR ".join(
        f"({TOPIC} = {quoted_text(each.topic)} AND {PARTITION} = {each.partition} AND {OFFSET} < {since})"
        for each, since in sorted(plan.begins.items())
    )
    return changes.where(before).count()


def _rows(table: Table) -> int:
    """Return a table's number of rows, including deleted ones, from its newest snapshot."""
    newest = table.current_snapshot()
    said = newest.summary.additional_properties.get("total-records") if newest and newest.summary else None
    return int(said) if said and said.isdigit() else 0


def _head(table: Table, branch: str) -> int | None:
    there = table.refresh().metadata.refs.get(branch)
    return there.snapshot_id if there else None


def _snapshots(table: Table, branch: str, before: int | None) -> tuple[int, ...]:
    """Return the snapshots that the branch has got since `before`, oldest first."""
    found: list[int] = []
    current = _head(table, branch)
    while current is not None and current != before:
        found.append(current)
        snapshot = table.metadata.snapshot_by_id(current)
        current = snapshot.parent_snapshot_id if snapshot else None
    return tuple(reversed(found))


ROWS_IN_A_PARTITION = 1_000_000
"""Rows of the mirror and the changes in one task of the join."""
FEW_ROWS = 250_000
"""A mirror with fewer rows is joined without a filter."""
ROWS_TO_A_KEY = 4
"""The mirror's rows for each changed key from which on the keys are used as a filter."""
_MOST_KEYS = 4_000_000
FILTER = "spark.sql.optimizer.runtime.bloomFilter"
BROADCAST = "spark.sql.autoBroadcastJoinThreshold"


def join_conf(there: int, keys: int, cores: int, *, may_filter: bool = True) -> dict[str, str]:
    """Return the configuration of Spark's session for one MERGE, by the number of rows on both sides.

    In a large mirror nearly all rows meet no change. So a Bloom filter of the changed keys is applied before the join.
    A merge that inserts is an outer join, in which Spark can broadcast the mirror's side only: it does so if that is
    small.

    Args:
        there: Approximate number of the mirror's rows.
        keys: Number of rows to merge.
        cores: Number of tasks that run at once.
        may_filter: Whether Spark may filter by the keys; false if the merge rewrites rows that no change meets.
    """
    filtered = may_filter and there >= FEW_ROWS and keys * ROWS_TO_A_KEY <= there and keys <= _MOST_KEYS
    joined = (0 if filtered else there) + keys
    return {
        "spark.sql.shuffle.partitions": str(max(cores, 1 + joined // ROWS_IN_A_PARTITION)),
        f"{FILTER}.enabled": str(filtered).lower(),
        # These thresholds keep Spark from omitting the filter: for a small table, for a source of unknown size, or for
        # a join that might broadcast.
        f"{FILTER}.applicationSideScanSizeThreshold": "0",
        f"{FILTER}.creationSideThreshold": str((1 << 63) - 1),
        f"{FILTER}.expectedNumItems": str(max(10_000, keys)),
        f"{FILTER}.numBits": str(1 << max(17, min(26, (16 * keys).bit_length()))),
        # Pruning would prune no more buckets than the literals in the condition do, and would replace the filter.
        "spark.sql.optimizer.dynamicPartitionPruning.enabled": str(not filtered).lower(),
        BROADCAST: "-1" if filtered else str(10 * 1024**2),
    }
