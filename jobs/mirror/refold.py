"""Refold: keys are folded again from all their changes in the changelog, where an increment alone does not tell."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, In, Reference
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, StringType

from jobs.errors import FrazilError
from jobs.increment.offset_ranges import quoted_name
from jobs.increment.row_selection import EVERY_ROW, RowSelection
from jobs.increment.spark_rows import rows_to_read_again
from jobs.mirror.base_frame import base_frame, with_base
from jobs.mirror.base_rows import AmongBaseRows
from jobs.mirror.change_frame import OFFSET, OLD_KEY, PARTITION, POSITION, TOPIC, as_changes, session_cores
from jobs.mirror.fold import folded_schema
from jobs.mirror.fold_tasks import FoldTask, KeptTables, OrderTask
from jobs.mirror.log_scan import carried_positions
from jobs.mirror.merge_plan import ORDER_COLUMN, MergePlan
from jobs.mirror.merge_sql import table_path
from jobs.mirror.merging_session import folded_kinds, ordered_kinds, sorted_by_key
from jobs.mirror.moved_keys import Histories, Key, rows_with_key
from jobs.mirror.order import Order
from jobs.mirror.row_filter import RowFilter
from jobs.mirror.sorted_rows import sorted_rows
from jobs.spec.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

Part: TypeAlias = "Callable[[DataFrame], DataFrame]"
MOST_KEYS = 1_000_000
"""So many keys are folded again in one merge; to rebuild the mirror is quicker then."""
MOST_MOVED = 50_000
"""So many keys with values of a former key are followed in one merge."""
_PLACE = (TOPIC, PARTITION, OFFSET, POSITION)
_ROUNDS = 50
# So many keys are named to find the files that may have them.
_LISTED = 200


@dataclass(frozen=True, slots=True)
class History:
    """All changes of a changelog up to a merge.

    Where changes have expired, those that are left, and the rows of the mirror's base.

    Attributes:
        session: Of the merge.
        mirror: With its base.
        order: Of the increment.
        until: At its end the frames cannot be read any more.
    """

    session: SparkSession
    settings: Settings
    changelog: Table
    mirror: Table
    plan: MergePlan
    order: Order
    until: contextlib.ExitStack

    def folded(self, keys: DataFrame, row_filter: RowFilter) -> DataFrame:
        """The folded row of each of the keys that still has a change.

        Args:
            keys: Distinct, in the key's columns.
        """
        return self._folded(self.changes(keys), lambda rows: self._of_keys(rows, keys), row_filter)

    def folded_where(self, condition: Column | None, row_filter: RowFilter) -> DataFrame:
        """The folded row of each key that fulfils a condition and has a change.

        Args:
            condition: Over the key's columns; None: every key.
        """
        from pyspark.sql import functions as sql

        def part(rows: DataFrame) -> DataFrame:
            return rows if condition is None else rows.where(condition)

        changes = self._read(AlwaysTrue())
        for name in self.plan.key:
            # Only a truncate has none.
            changes = changes.where(sql.col(quoted_name(name)).isNotNull())
        return self._folded(part(changes), part, row_filter)

    def _folded(self, changes: DataFrame, part: Part, row_filter: RowFilter) -> DataFrame:
        plan = self.plan
        ordered = self._ordered(changes, _PLACE, part)
        prepared = self._prepared(ordered_kinds(changes, plan.columns))
        task = FoldTask(plan.key, plan.columns, row_filter, prepared)
        by_key = sorted_by_key(ordered, plan.key, session_cores(changes))
        return by_key.mapInArrow(task, folded_kinds(changes, plan.columns))

    def moved(self, keys: DataFrame, row_filter: RowFilter) -> tuple[pa.Table, int]:
        """The folded rows of keys with values of a former key, and how many values no change has.

        Raises:
            FrazilError: There are more such keys than a merge follows.
        """
        plan = self.plan
        named = keys.toArrow()
        wanted = {tuple(row[name] for name in plan.key) for row in named.to_pylist()}
        asked, read = wanted, list[pa.Table]()
        histories = Histories(plan.key, plan.columns, {})
        for _ in range(_ROUNDS):
            if not asked:
                break
            if len(histories.changes) + len(asked) > MOST_MOVED:
                raise FrazilError(
                    f"stream {plan.stream}: more than {MOST_MOVED:,} rows have values of a former key.",
                    fix=f"frazil mirror rebuild {plan.stream}",
                )
            rows = pa.Table.from_pylist(list(rows_with_key(asked, plan.key)), named.schema)
            read.append(self._arrow(self.session.createDataFrame(rows, keys.schema)))
            changes = [row for table in read for row in table.to_pylist()]
            there = Histories.of(plan.key, plan.columns, changes)
            # A former key without any change is known to have none.
            none = dict.fromkeys({*histories.changes, *asked}, ())
            histories = Histories(plan.key, plan.columns, {**none, **there.changes})
            asked = histories.former_keys()
        return self._table(histories, wanted, read[0].schema, row_filter) if read else (pa.table({}), 0)

    def _table(
        self, histories: Histories, wanted: set[Key], kinds: pa.Schema, row_filter: RowFilter
    ) -> tuple[pa.Table, int]:
        rows, unresolved = list[dict[str, Any]](), 0
        for key in sorted(wanted, key=repr):
            if histories.changes.get(key):
                row, unknown = histories.folded(key)
                rows.append(row)
                unresolved += unknown
        folded = pa.Table.from_pylist(rows, folded_schema(kinds, self.plan.columns))
        return row_filter.judged(folded), unresolved

    def _arrow(self, keys: DataFrame) -> pa.Table:
        plan = self.plan
        changes = self.changes(keys)
        extra = [name for name in (*_PLACE, OLD_KEY) if name in changes.columns]
        ordered = self._ordered(changes, tuple(extra), lambda rows: self._of_keys(rows, keys), to_arrow=True).toArrow()
        prepared = self._prepared(ordered_kinds(changes, plan.columns, to_arrow=True))
        return prepared(sorted_rows(ordered, (*plan.key, ORDER_COLUMN)))

    def _ordered(self, changes: DataFrame, extra: tuple[str, ...], part: Part, *, to_arrow: bool = False) -> DataFrame:
        """The changes with their order; where some have expired, with the rows of the base.

        Args:
            part: Takes what is wanted of the base.
            to_arrow: Whether this process gets them.
        """
        plan = self.plan
        kinds = ordered_kinds(changes, plan.columns, extra, to_arrow=to_arrow)
        ordered = changes.mapInArrow(OrderTask(self.order, plan.columns, late=True, extra=extra), kinds)
        if plan.start is None:
            return ordered
        floors = [floor for _, floor in sorted(self.order.state.floors.items())]
        path = table_path(self.settings, self.mirror)
        return with_base(ordered, part(base_frame(self.session, path, self.mirror, plan, floors, kinds)))

    def _prepared(self, kinds: StructType) -> KeptTables:
        """What is done with the changes of whole keys before they are folded.

        Args:
            kinds: The columns of ordered changes.
        """
        from pyspark.sql.pandas.types import to_arrow_schema

        plan = self.plan
        carried = CarriedPositions(plan.key, plan.scope == "source")
        if plan.start is None:
            return carried
        types = {each.name: each.type for each in to_arrow_schema(kinds) if each.name in plan.columns}
        nested = {name: kind for name, kind in types.items() if pa.types.is_nested(kind)}
        return AmongBaseRows(plan.key, plan.columns, carried, nested)

    def changes(self, keys: DataFrame, may_have: BooleanExpression = EVERY_ROW, *, few: bool = True) -> DataFrame:
        """The changes of keys, as they landed.

        Args:
            keys: In the key's columns.
            may_have: Only of files that may have a row which fulfils this.
            few: Whether they are few enough to go to each task whole.
        """
        return self._of_keys(self._read(And(may_have, self._may_have(keys))), keys, few=few)

    def _of_keys(self, rows: DataFrame, keys: DataFrame, *, few: bool = True) -> DataFrame:
        from pyspark.sql import functions as sql

        return rows.join(sql.broadcast(keys) if few else keys, list(self.plan.key), "left_semi")

    def _read(self, may_have: BooleanExpression) -> DataFrame:
        """All changes of files that fulfil a condition, by what is known of their values."""
        plan, names = self.plan, [field.name for field in self.changelog.schema().fields]
        # A changelog is only added to; where rows were taken out of it all the same, Iceberg tells which are left.
        tasks = list(self.changelog.scan(may_have, snapshot_id=plan.snapshot_id).plan_files())
        whole = all(not task.delete_files for task in tasks)
        files = tuple(task.file for task in tasks) if whole else ()
        selection = RowSelection(self.changelog, None, files, snapshot_id=None if whole else plan.snapshot_id)
        frame = rows_to_read_again(selection, {*names}, self.session, self.settings, self.until)
        return as_changes(frame, plan, old_key=True)

    def _may_have(self, keys: DataFrame) -> BooleanExpression:
        """What a file must fulfil to have a change of one of the keys; rows are not told by it."""
        name = self.plan.key[0]
        if not isinstance(self.changelog.schema().find_type(name), (IntegerType, LongType, StringType)):
            return AlwaysTrue()
        few = keys.select(quoted_name(name)).distinct().limit(_LISTED + 1).toArrow()[name].to_pylist()
        return In(term=Reference(name), values=set(few)) if 0 < len(few) <= _LISTED else AlwaysTrue()


@dataclass(frozen=True, slots=True)
class CarriedPositions:
    """Gives changes without a position that of the change before them, of the same key; can be pickled.

    Attributes:
        key: Names of its columns.
        needed: Whether there is anything to do.
    """

    key: tuple[str, ...]
    needed: bool

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The rows, which are sorted by key and order, with their order."""
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
        positions = by_log[POSITION].combine_chunks()
        carried = carried_positions(positions, np.cumsum(begins).astype(np.int64))
        rest = pc.utf8_slice_codeunits(by_log[ORDER_COLUMN], 7)
        made = pc.binary_join_element_wise(by_log["_generation"], carried, rest, ".")
        tokens = pc.if_else(pc.and_(pc.is_null(positions), pc.is_valid(carried)), made, by_log[ORDER_COLUMN])
        placed = by_log.set_column(by_log.schema.get_field_index(ORDER_COLUMN), ORDER_COLUMN, tokens)
        return sorted_rows(placed.select(rows.column_names), (*self.key, ORDER_COLUMN))
