"""Merge source: the folded rows of an increment, with those folded again that the increment alone does not tell.

A key is folded again from all its changes in the changelog if a change of it came late, if a value that the source
left out is read by the filter, or stands in no row of the mirror (the row had another key, or did not fulfil the filter
so far), or if it is no row of the mirror because of a later change. So is a row that has moved, if values may have come
to a key that it had before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING

from jobs.mirrors.fold.fold import FOLD_COLUMN, FROM_TARGET_COLUMN, REFOLD_COLUMN, UPSERT
from jobs.mirrors.fold.merge_sql import SET_COLUMN, MergeFacts, where_changes_are
from jobs.mirrors.fold.merging_session import kept_frame
from jobs.mirrors.fold.moved_rows import MOVED_COLUMN, UNKNOWN_COLUMN, moved_from, moved_rows
from jobs.mirrors.fold.refold import History, may_be_behind, removed_later, without_keys
from jobs.mirrors.fold.row_filter import UNJUDGED_COLUMN, RowFilter
from jobs.mirrors.model.errors import MovedValuesError
from jobs.mirrors.model.merge_plan import DELETED_COLUMN, MergePlan
from jobs.quality.incremental_scan.offset_ranges import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MergeSource:
    """What is merged.

    Attributes:
        frame: One row for each key, with `_set` (`merge_sql.SET_COLUMN`).
        refolded: How many keys were folded again.
        unresolved: How many values no change has.
        changed: Whether it is more than the folded rows of the increment.
    """

    frame: DataFrame
    refolded: int = 0
    unresolved: int = 0
    changed: bool = False


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Makes the source of a merge.

    Attributes:
        target: The branch of the mirror, in the SQL of Spark.
        remembered: Tells since when deletions that came to Kafka are looked for; None: all are.
    """

    history: History
    target: str
    row_filter: RowFilter
    remembered: Callable[[], datetime | None] = lambda: None

    @property
    def plan(self) -> MergePlan:
        """Of the merge."""
        return self.history.plan

    def of(self, folded: DataFrame, facts: MergeFacts, late: DataFrame | None) -> MergeSource:
        """The source.

        Args:
            folded: The rows of the increment, without late changes.
            facts: What they are.
            late: The changes that came late; None if there are none.
        """
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as sql

        parts = [] if late is None else [self._keys(late)]
        # What comes late to a key may say values of the rows that had it before.
        if parts and (moved := moved_from(self.history, parts[0])) is not None:
            parts.append(moved)
        if facts.refold or facts.unjudged:
            # The filter may read values that were not sent.
            parts.append(self._keys(folded.where(f"{REFOLD_COLUMN} OR {UNJUDGED_COLUMN}")))
        if facts.from_target:
            parts.append(self._without_row(folded, facts))
        if (removed := self._removed_later(folded, facts)) is not None:
            parts.append(removed)
        count, again = 0, None
        if parts:
            again = self._kept(reduce(DataFrame.union, parts).distinct())
            count = again.count()
        if again is None or not count:
            rows = folded.withColumn(SET_COLUMN, sql.lit(False))
            return MergeSource(rows)
        log.info("%d keys are folded again from the changelog", count)
        rows, unresolved = self._refolded(again, count)
        rest = without_keys(folded, again, count)
        # A version says nothing of one that has expired, which may be greater.
        whole = None if self.plan.begins and self.plan.scope == "key" else True
        again = rows.withColumn(SET_COLUMN, sql.lit(whole).cast("boolean"))
        source = rest.withColumn(SET_COLUMN, sql.lit(False)).unionByName(again)
        return MergeSource(self._kept(source), count, unresolved, changed=True)

    def _refolded(self, keys: DataFrame, count: int) -> tuple[DataFrame, int]:
        """One row for each of the keys with a change that counts, and how many of their values no change has.

        A key without one has no row in the mirror either: only a truncate leaves none.

        Raises:
            MovedValuesError: Values of a former key are not there.
        """
        rows = self._kept(self.history.folded(keys, count, self.row_filter))
        columns = rows.columns
        elsewhere = rows.where(f"{REFOLD_COLUMN} OR (size({FROM_TARGET_COLUMN}) > 0 AND {FOLD_COLUMN} = '{UPSERT}')")
        lost = self._kept(self._keys(rows.where(REFOLD_COLUMN)).union(self._without_row(elsewhere, None)).distinct())
        unresolved = 0
        if many := lost.count():
            moved = moved_rows(self.history, lost, self.row_filter)
            unresolved = self._unresolved(moved)
            rows = without_keys(rows, lost, many).unionByName(moved.select(*columns))
        return rows.select(*map(quoted_name, columns)), unresolved

    def _unresolved(self, moved: DataFrame) -> int:
        """How many values no change has.

        Raises:
            MovedValuesError: Changes of a former key may have some of them, and the mirror is not made of what is left.
        """
        from pyspark.sql import functions as sql

        totals = moved.agg(sql.sum(UNKNOWN_COLUMN).alias("unknown"), sql.sum(MOVED_COLUMN).alias("moved"))
        found = totals.toArrow().to_pylist()[0]
        if found["moved"] and not self.plan.incomplete:
            example = self._keys(moved.where(f"{MOVED_COLUMN} > 0")).limit(1).toArrow().to_pylist()[0]
            raise MovedValuesError(self.plan.stream, found["moved"], example)
        return found["unknown"] or 0

    def _without_row(self, folded: DataFrame, facts: MergeFacts | None) -> DataFrame:
        """Keys of the rows that need a value of the mirror's row, where the mirror has none."""
        needing = self._keys(folded.where(f"size({FROM_TARGET_COLUMN}) > 0 AND {FOLD_COLUMN} = '{UPSERT}'"))
        names = list(self.plan.key)
        there = self._rows_there(facts).select(*map(quoted_name, names)).join(needing, names, "left_semi")
        return needing.join(there, names, "left_anti")

    def _removed_later(self, folded: DataFrame, facts: MergeFacts) -> DataFrame | None:
        """Keys of rows that are to be inserted, and that a later change has removed before; None if there are none.

        A row that stays in the mirror as deleted says by itself what removed it, so it is there.
        """
        newest = self.plan.state.removed
        if not newest:
            return None
        behind = self._kept(folded.where(may_be_behind(newest)))
        if not behind.count():
            return None
        names = list(self.plan.key)
        fresh = self._kept(behind.join(self._keys(self._rows_there(facts, deleted=True)), names, "left_anti"))
        count = fresh.count()
        if not count:
            return None
        log.info("%d keys are looked up in the changelog for a later change that has removed their rows", count)
        return removed_later(self.history, fresh, count, self.remembered())

    def _rows_there(self, facts: MergeFacts | None, *, deleted: bool = False) -> DataFrame:
        """The mirror's rows where the changes are.

        Args:
            deleted: Also those that stay there as deleted.
        """
        narrowed = "true" if facts is None else where_changes_are("t", facts.ranges, facts.buckets)
        alive = f" AND NOT coalesce(t.{DELETED_COLUMN}, false)" if self.plan.deletes == "soft" and not deleted else ""
        return self.history.session.sql(f"SELECT t.* FROM {self.target} t WHERE {narrowed}{alive}")

    def _keys(self, rows: DataFrame) -> DataFrame:
        return rows.select(*map(quoted_name, self.plan.key))

    def _kept(self, frame: DataFrame) -> DataFrame:
        return kept_frame(frame, self.history.until)
