"""Collapse of keys from all their changes in the changelog, for keys whose new changes alone do not give the row.

Rows to insert that a later change may have removed already are looked up in the changelog, too.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false
# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import conversions
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    In,
    IsNull,
    Or,
    Reference,
)
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import IntegerType, LongType, StringType

from jobs.config.settings.settings import Settings
from jobs.config.stream.changes import DELETION_MEMORY
from jobs.mirrors.fold.change_frame import OFFSET, PARTITION, POSITION, TOPIC, as_changes, session_cores
from jobs.mirrors.fold.fold import FOLD_COLUMN, OP_COLUMN, UNAVAILABLE_COLUMN, UPSERT, sorted_rows
from jobs.mirrors.fold.fold_tasks import FoldTask, OrderTask
from jobs.mirrors.fold.log_scan import carried_positions
from jobs.mirrors.fold.merging_session import folded_kinds, ordered_kinds, sorted_by_key
from jobs.mirrors.fold.order import Order, refuse_older
from jobs.mirrors.fold.row_filter import RowFilter
from jobs.mirrors.model.merge_plan import ORDER_COLUMN, MergePlan
from jobs.mirrors.model.order_token import NO_POSITION, least_position, order_positions
from jobs.quality.incremental_scan.offset_ranges import quoted_name, quoted_text
from jobs.quality.incremental_scan.row_selection import EVERY_ROW, RowSelection
from jobs.quality.incremental_scan.spark_rows import rows_to_read_again

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


PLACE = (TOPIC, PARTITION, OFFSET, POSITION)
_FEW_KEYS = 1_000_000
"""Limit of keys that are broadcast to each task."""
# Limit of keys in the condition that finds files which may have them.
_LISTED = 200


@dataclass(frozen=True, slots=True)
class History:
    """All changes of a changelog up to a merge, without expired ones.

    Attributes:
        session: Session of the merge.
        order: Order of the new changes.
        until: The frames can be read until this stack closes.
    """

    session: SparkSession
    settings: Settings
    changelog: Table
    plan: MergePlan
    order: Order
    until: contextlib.ExitStack

    def folded(self, keys: DataFrame, count: int, row_filter: RowFilter) -> DataFrame:
        """Return the collapsed row of each key that still has a change.

        Args:
            keys: Distinct keys, in the key's columns.
            count: Number of keys.
        """
        few = count <= _FEW_KEYS
        return self._folded(self.changes(keys, few=few), row_filter)

    def ordered(self, keys: DataFrame, count: int, extra: tuple[str, ...]) -> DataFrame:
        """Return the changes of keys with their order, in any sequence.

        Args:
            keys, count: See `folded`.
            extra: More columns to keep, beside `PLACE`.
        """
        few = count <= _FEW_KEYS
        changes = self.changes(keys, few=few)
        extra = (*PLACE, *(name for name in extra if name in changes.columns))
        return self._ordered(changes, extra)

    def folded_where(self, condition: Column | None, row_filter: RowFilter) -> DataFrame:
        """Return the collapsed row of each key that fulfils a condition and has a change.

        Args:
            condition: Condition over the key's columns; None for every key.
        """
        from pyspark.sql import functions as sql

        changes = self._read(AlwaysTrue())
        for name in self.plan.key:
            # Only truncates have no key.
            changes = changes.where(sql.col(quoted_name(name)).isNotNull())
        return self._folded(changes if condition is None else changes.where(condition), row_filter)

    def _folded(self, changes: DataFrame, row_filter: RowFilter) -> DataFrame:
        plan = self.plan
        ordered = self._ordered(changes, PLACE)
        task = FoldTask(plan.key, plan.columns, row_filter, CarriedPositions(plan.key, plan.scope == "source"))
        by_key = sorted_by_key(ordered, plan.key, session_cores(changes))
        return by_key.mapInArrow(task, folded_kinds(changes, plan.columns))

    def _ordered(self, changes: DataFrame, extra: tuple[str, ...]) -> DataFrame:
        """Return the changes with their order.

        Raises:
            UnknownGenerationError: Changes are older than the source timelines in the mirror's stamp.
        """
        plan = self.plan
        refuse_older(plan.stream, plan.state, self.order.begins)
        kinds = ordered_kinds(changes, plan.columns, extra)
        return changes.mapInArrow(OrderTask(self.order, plan.columns, kept="all", extra=extra), kinds)

    def changes(self, keys: DataFrame, may_have: BooleanExpression = EVERY_ROW, *, few: bool = True) -> DataFrame:
        """Return the changes of keys, as they landed.

        Args:
            keys: Keys, in the key's columns.
            may_have: Condition by which files are pruned.
            few: Whether the keys are few enough to be broadcast.
        """
        return self._of_keys(self._read(And(may_have, self._may_have(keys))), keys, few=few)

    def _of_keys(self, rows: DataFrame, keys: DataFrame, *, few: bool = True) -> DataFrame:
        return rows.join(_spread(keys, few=few), list(self.plan.key), "left_semi")

    def _read(self, may_have: BooleanExpression) -> DataFrame:
        """Return all changes of the files that may have a row which fulfils a condition."""
        plan, names = self.plan, {field.name for field in self.changelog.schema().fields}
        return as_changes(self.rows(self.tasks(may_have), names), plan, old_key=True)

    def tasks(self, may_have: BooleanExpression) -> list[FileScanTask]:
        """Return the changelog's files that may have a row which fulfils a condition."""
        return list(self.changelog.scan(may_have, snapshot_id=self.plan.snapshot_id).plan_files())

    def rows(self, tasks: Sequence[FileScanTask], names: set[str]) -> DataFrame:
        """Return columns of the changelog's rows in files; possibly of rows in other files, too."""
        # A changelog normally has no deletes. If it has some, Iceberg reads the whole snapshot without deleted rows.
        whole = all(not task.delete_files for task in tasks)
        files = tuple(task.file for task in tasks) if whole else ()
        selection = RowSelection(self.changelog, None, files, snapshot_id=None if whole else self.plan.snapshot_id)
        return rows_to_read_again(selection, names, self.session, self.settings, self.until)

    def _may_have(self, keys: DataFrame) -> BooleanExpression:
        """Return a condition that prunes files without a change of the keys; it does not select rows."""
        name = self.plan.key[0]
        if not isinstance(self.changelog.schema().find_type(name), (IntegerType, LongType, StringType)):
            return AlwaysTrue()
        few = keys.select(quoted_name(name)).distinct().limit(_LISTED + 1).toArrow()[name].to_pylist()
        return In(term=Reference(name), values=set(few)) if 0 < len(few) <= _LISTED else AlwaysTrue()


def without_keys(rows: DataFrame, keys: DataFrame, count: int) -> DataFrame:
    """Return the rows that have none of the keys.

    Args:
        keys: Distinct keys, in the key's columns.
        count: Number of keys.
    """
    return rows.join(_spread(keys, few=count <= _FEW_KEYS), keys.columns, "left_anti").select(*rows.columns)


def _spread(keys: DataFrame, *, few: bool) -> DataFrame:
    from pyspark.sql import functions as sql

    return sql.broadcast(keys) if few else keys


@dataclass(frozen=True, slots=True)
class CarriedPositions:
    """Gives changes without a position the position of the same key's change before them; can be pickled.

    Attributes:
        key: Names of the key's columns.
        needed: False to return rows unchanged.
    """

    key: tuple[str, ...]
    needed: bool

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Return rows with their final order; rows before and after are sorted by key and order."""
        if not self.needed or not rows[POSITION].null_count or rows[POSITION].null_count == rows.num_rows:
            return rows
        number = pc.utf8_slice_codeunits(rows[ORDER_COLUMN], 0, 4)
        by_log = rows.append_column("_generation", number)
        groups = (*self.key, "_generation", TOPIC, PARTITION)
        by_log = sorted_rows(by_log, (*groups, OFFSET)).combine_chunks()
        begins = np.zeros(rows.num_rows, bool)
        for name in groups:
            values = by_log[name]
            differ = pc.not_equal(values.slice(1), values.slice(0, rows.num_rows - 1))
            begins[1:] |= differ.to_numpy(zero_copy_only=False).astype(bool)
        positions = order_positions(by_log[POSITION].combine_chunks())
        carried = carried_positions(positions, np.cumsum(begins).astype(np.int64))
        rest = pc.utf8_slice_codeunits(by_log[ORDER_COLUMN], 7)
        made = pc.binary_join_element_wise(by_log["_generation"], carried, rest, ".")
        # New changes have the position of the change before them in the log already.
        unplaced = pc.equal(pc.utf8_slice_codeunits(by_log[ORDER_COLUMN], 5, 7), f"{NO_POSITION}.")
        tokens = pc.if_else(pc.and_(unplaced, pc.is_valid(carried)), made, by_log[ORDER_COLUMN])
        placed = by_log.set_column(by_log.schema.get_field_index(ORDER_COLUMN), ORDER_COLUMN, tokens)
        return sorted_rows(placed.select(rows.column_names), (*self.key, ORDER_COLUMN))


_DAY_MICROSECONDS = 86_400_000_000
# A function with one implementation for each type, whose signature a type checker does not see.
_from_bytes: Any = conversions.from_bytes


def memory_begins(changelog: Schema, timestamp: str, files: Iterable[DataFile], now: float) -> datetime | None:
    """Return the time since which deletions are looked for; None if Kafka's timestamps are unknown.

    Args:
        changelog: Schema of the changelog.
        timestamp: Name of the column with Kafka's timestamp.
        files: Files with the new changes.
        now: Present time in seconds since 1970.
    """
    if timestamp not in {field.name for field in changelog.fields}:
        return None
    field = changelog.find_field(timestamp)
    bounds = [(file.upper_bounds or {}).get(field.field_id) for file in files]
    known: list[int] = [_from_bytes(field.field_type, bound) for bound in bounds if bound]
    if not known:
        return None
    # Producers set these timestamps: one may be far ahead, or in another unit.
    newest = min(max(known), int(now * 1e6))
    return datetime.fromtimestamp(max(newest, _DAY_MICROSECONDS * DELETION_MEMORY.days) / 1e6, UTC) - DELETION_MEMORY


def may_be_behind(newest: str) -> str:
    """Return a condition in Spark's SQL for collapsed rows that a known removal may follow in the source's order.

    Args:
        newest: Greatest order token of a removal. Only rows with a position in the same source timeline can fulfil the
            condition, because positions before and after a restore cannot be compared.
    """
    return (
        f"{FOLD_COLUMN} = '{UPSERT}' AND {ORDER_COLUMN} < {quoted_text(newest)} AND "
        f"substring({ORDER_COLUMN}, 1, 5) = {quoted_text(newest[:5])} AND "
        f"substring({ORDER_COLUMN}, 6, 2) <> '{NO_POSITION}.'"
    )


def rows_behind(orders: pa.Array, newest: str) -> pa.Array:
    """Mask of the orders that fulfil `may_be_behind`, for rows to set.

    Args:
        newest: See `may_be_behind`; empty if no removal is known.
    """
    if not newest:
        return pa.repeat(pa.scalar(False), len(orders))
    same = pc.equal(pc.utf8_slice_codeunits(orders, 0, 5), newest[:5])
    placed = pc.not_equal(pc.utf8_slice_codeunits(orders, 5, 7), f"{NO_POSITION}.")
    return pc.and_(pc.and_(same, placed), pc.less(orders, newest))


def removed_later(history: History, rows: DataFrame, count: int, since: datetime | None) -> DataFrame:
    """Return the keys of collapsed rows that a later change in the changelog removes.

    A deleted row leaves nothing in the mirror, so an older change that comes after the deletion is not recognised
    there. That happens if a version orders the changes, or if they are in different partitions. If only offsets order
    them, a key stays in its partition, and late changes are collapsed again anyway.

    Args:
        rows: Rows that the mirror does not have, with positions in their order, all of one source timeline.
        count: Number of rows.
        since: Kafka timestamp before which deletions are not looked for; None to look for all.
    """
    from pyspark.sql import functions as sql

    plan = history.plan
    key = [sql.col(quoted_name(name)) for name in plan.key]
    may_have: BooleanExpression = AlwaysTrue()
    if since is not None:
        may_have = GreaterThanOrEqual(plan.timestamp, since.isoformat())
    least = rows.agg(sql.min(sql.split_part(sql.col(ORDER_COLUMN), sql.lit("."), sql.lit(2)))).toArrow()[0][0].as_py()
    # A later change has no lower position, so few files may have one, unless positions are row versions.
    may_have = And(may_have, Or(IsNull(POSITION), GreaterThanOrEqual(POSITION, least_position(least))))
    if plan.where is None:
        may_have = And(may_have, EqualTo(OP_COLUMN, "d"))
    place = (TOPIC, PARTITION, OFFSET, POSITION)
    found = history.changes(rows.select(*key), may_have, few=count <= _FEW_KEYS)
    changes = found.select(*key, OP_COLUMN, UNAVAILABLE_COLUMN, *place)
    if plan.where is None:
        # With a filter, any change may remove a row; without one, only a deletion does.
        changes = changes.where(sql.col(OP_COLUMN) == "d")
    # With the timelines in the stamp alone, no change gets a lower order than with all timelines: at worst a key is
    # collapsed again without need.
    ordered = changes.mapInArrow(OrderTask(history.order, plan.key, kept="all"), ordered_kinds(changes, plan.key))
    mine = rows.select(*key, sql.col(ORDER_COLUMN).alias("_mine"))
    later = ordered.join(mine, list(plan.key)).where(sql.col(ORDER_COLUMN) > sql.col("_mine"))
    return later.select(*key).distinct()
