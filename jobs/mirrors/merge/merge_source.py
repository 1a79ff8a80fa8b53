"""Source rows of a merge: new changes collapsed by key, some of them from all changes in the changelog.

A key is collapsed from all its changes if

- a change of it came late,
- the filter reads a value that the source left out,
- the mirror has no row with a value that the source left out: the row had another key, or did not fulfil the filter,
- a later change may have removed its row, or
- its row had another key before, and values may have come late to that key.
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
    """Source of a MERGE.

    Attributes:
        frame: One row for each key, with `_set` (`merge_sql.SET_COLUMN`).
        refolded: Number of keys collapsed from all their changes.
        unresolved: Number of values that no change has.
        changed: Whether some rows differ from the collapsed new changes.
    """

    frame: DataFrame
    refolded: int = 0
    unresolved: int = 0
    changed: bool = False


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Maker of a merge's source.

    Attributes:
        history: Changes of the changelog.
        target: Branch of the mirror, in Spark's SQL.
        row_filter: Condition that the mirror's rows fulfil.
        remembered: Returns the Kafka timestamp since which deletions are looked for; None for all.
    """

    history: History
    target: str
    row_filter: RowFilter
    remembered: Callable[[], datetime | None] = lambda: None

    @property
    def plan(self) -> MergePlan:
        """Plan of the merge."""
        return self.history.plan

    def of(self, folded: DataFrame, facts: MergeFacts, late: DataFrame | None) -> MergeSource:
        """Return the source.

        Args:
            folded: Collapsed new changes, without late ones.
            facts: Counts and bounds of these rows.
            late: Late changes; None if there are none.
        """
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as sql

        parts = [] if late is None else [self._keys(late)]
        # A late change of a key may have values of rows that had the key before.
        if parts and (moved := moved_from(self.history, parts[0])) is not None:
            parts.append(moved)
        if facts.refold or facts.unjudged:
            # The filter may read values that the source left out.
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
        log.info("%d keys are collapsed again from the changelog", count)
        rows, unresolved = self._refolded(again, count)
        rest = without_keys(folded, again, count)
        # An expired change may have a greater version than all remaining ones.
        whole = None if self.plan.begins and self.plan.scope == "key" else True
        again = rows.withColumn(SET_COLUMN, sql.lit(whole).cast("boolean"))
        source = rest.withColumn(SET_COLUMN, sql.lit(False)).unionByName(again)
        return MergeSource(self._kept(source), count, unresolved, changed=True)

    def _refolded(self, keys: DataFrame, count: int) -> tuple[DataFrame, int]:
        """Return the row of each key with a change that counts, and the number of values that no change has.

        A key without such a change has no row in the mirror either: a truncate removed it.

        Raises:
            MovedValuesError: Changes of a former key, which have values of a row, are missing.
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
        """Return the number of values that no change has.

        Raises:
            MovedValuesError: Missing changes of a former key may have some of them, and `incomplete` was not asked for.
        """
        from pyspark.sql import functions as sql

        totals = moved.agg(sql.sum(UNKNOWN_COLUMN).alias("unknown"), sql.sum(MOVED_COLUMN).alias("moved"))
        found = totals.toArrow().to_pylist()[0]
        if found["moved"] and not self.plan.incomplete:
            example = self._keys(moved.where(f"{MOVED_COLUMN} > 0")).limit(1).toArrow().to_pylist()[0]
            raise MovedValuesError(self.plan.stream, found["moved"], example)
        return found["unknown"] or 0

    def _without_row(self, folded: DataFrame, facts: MergeFacts | None) -> DataFrame:
        """Return the keys of rows that need a value of the mirror's row although the mirror has no such row."""
        needing = self._keys(folded.where(f"size({FROM_TARGET_COLUMN}) > 0 AND {FOLD_COLUMN} = '{UPSERT}'"))
        names = list(self.plan.key)
        there = self._rows_there(facts).select(*map(quoted_name, names)).join(needing, names, "left_semi")
        return needing.join(there, names, "left_anti")

    def _removed_later(self, folded: DataFrame, facts: MergeFacts) -> DataFrame | None:
        """Return the keys of rows to insert that a later change has removed already; None if there are none.

        A row that stays in the mirror as deleted has the order of its deletion, so it needs no look-up.
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
        """Return the mirror's rows in the range of the changes.

        Args:
            deleted: Whether to include rows that stay as deleted.
        """
        narrowed = "true" if facts is None else where_changes_are("t", facts.ranges, facts.buckets)
        alive = f" AND NOT coalesce(t.{DELETED_COLUMN}, false)" if self.plan.deletes == "soft" and not deleted else ""
        return self.history.session.sql(f"SELECT t.* FROM {self.target} t WHERE {narrowed}{alive}")

    def _keys(self, rows: DataFrame) -> DataFrame:
        return rows.select(*map(quoted_name, self.plan.key))

    def _kept(self, frame: DataFrame) -> DataFrame:
        return kept_frame(frame, self.history.until)
