"""Consistency of a mirror: the changelog, collapsed by key again, compared with the mirror's rows.

A hash spreads keys over buckets. A check compares all buckets, or another part each day. It compares the expected
number of rows with the number found, and each row by a checksum of its columns. Rows that disagree are named by their
keys. Rows without a change in the changelog are only counted: they are older than the mirror, or their changes have
expired, so nothing says what they should be. If columns order the changes of a key, rows of a later version than all
remaining changes are only counted, too.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any

from pyiceberg import types as ice
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import find_table
from jobs.config.settings.settings import Settings
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from jobs.mirrors.fold.fold import FOLD_COLUMN, FROM_TARGET_COLUMN, REFOLD_COLUMN, UPSERT
from jobs.mirrors.fold.merge_sql import table_path
from jobs.mirrors.fold.merging_session import interruptible_jobs, merging_session
from jobs.mirrors.fold.order import Order
from jobs.mirrors.fold.refold import History
from jobs.mirrors.fold.row_filter import UNJUDGED_COLUMN, RowFilter
from jobs.mirrors.model.changed_topics import expired_offsets, refuse_recreated_topics
from jobs.mirrors.model.merge_plan import DELETED_COLUMN, ORDER_COLUMN, MergePlan
from jobs.mirrors.model.mirror_stamp import MirrorStamp, mirror_id, mirrored
from jobs.mirrors.model.session import mirror_rolled_back
from jobs.mirrors.run.merging import load_changelog, merge_plan
from jobs.quality.incremental_scan.offset_ranges import quoted_name
from jobs.tables.commit.history.stamp_history import history_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


BUCKETS = 64
DAYS = 8
"""Days after which a check of another part each day has compared every key."""
EXAMPLES = 10
KINDS = ("missing", "extra", "different")
_WANTED, _FOUND, _UNKNOWN, _GONE = "_wanted", "_found", "_unknown", "_gone"
_WANTED_ORDER, _FOUND_ORDER = "_wanted_order", "_found_order"


@dataclass(frozen=True, slots=True)
class Consistency:
    """Result of a check of a mirror.

    Attributes:
        table: The mirror.
        snapshot_id: Compared snapshot of the mirror.
        changelog_snapshot: Compared snapshot of the changelog.
        looked_at: Number of compared buckets, of `BUCKETS`.
        rows: Number of expected rows.
        found: Number of rows in the mirror.
        counts: Number of wrong keys by `KINDS`.
        adopted: Number of rows that were not compared, because they are older than the mirror, or their changes have
            expired; no other count includes them.
        examples: Wrong keys, each as `(kind, {column: value})`.
        letters: Dead letters that had not been replayed at the newest merge: both sides lack their changes.
        undecided: Number of keys without a row in the mirror whose changes do not say whether there should be one.
    """

    table: str
    snapshot_id: int
    changelog_snapshot: int
    looked_at: int
    rows: int
    found: int
    counts: Mapping[str, int]
    adopted: int
    examples: tuple[tuple[str, dict[str, Any]], ...]
    letters: int
    undecided: int = 0

    @property
    def wrong(self) -> int:
        """Number of wrong keys."""
        return sum(self.counts.values())

    @property
    def consistent(self) -> bool:
        """Whether every key agrees, and no dead letter holds a change that both sides lack."""
        return not self.wrong and not self.letters


def buckets_of_day(day: date) -> range:
    """Return the buckets that a partial check compares on a day."""
    width = BUCKETS // DAYS
    first = day.toordinal() % DAYS * width
    return range(first, first + width)


def stamped_mirror(spec: StreamSpec, mirror: Mirror, catalog: Catalog) -> tuple[Table, MirrorStamp] | None:
    """Load a mirror and its newest stamp; None before its first merge.

    Raises:
        RolledBackError: The mirror was rolled back to before its newest merge.
    """
    table = find_table(catalog, mirror.table)
    if table is None:
        return None
    past = history_of(table, mirror_id(spec.stream, mirror.table))
    if past.rolled_back:
        raise mirror_rolled_back(spec, mirror)
    stamp = mirrored(past.newest, spec.stream, mirror.table)
    return None if stamp is None or table.current_snapshot() is None else (table, stamp)


def check_consistency(
    spec: StreamSpec,
    mirror: Mirror,
    settings: Settings,
    catalog: Catalog,
    spark: Callable[[], SparkSession],
    buckets: Collection[int] | None = None,
) -> Consistency | None:
    """Compare a mirror with its changelog; None before its first merge.

    Args:
        spark: Returns a session for SQL; called only if there is something to compare.
        buckets: Buckets to compare; None for all.

    Raises:
        RolledBackError: The mirror was rolled back to before its newest merge.
        AnotherLogError: A topic of the changelog was recreated or cut.
        FrazilError: The changelog was dropped, or its merged snapshot has expired.
    """
    changelog, found = load_changelog(catalog, spec), stamped_mirror(spec, mirror, catalog)
    if found is None:
        return None
    (table, stamp), head = found, found[0].current_snapshot()
    assert head is not None, "it has a merge"
    refuse_recreated_topics(spec, mirror, changelog, stamp)
    if changelog.metadata.snapshot_by_id(stamp.snapshot_id) is None:
        raise FrazilError(
            f"stream {spec.stream}: snapshot {stamp.snapshot_id} of changelog {spec.table.name}, which mirror "
            f"{mirror.table} was made from, has expired.",
            fix=f"frazil mirror run {spec.stream}",
        )
    session = spark()

    def compare() -> Consistency:
        own = merging_session(session, settings)
        with contextlib.ExitStack() as until:
            work = _Comparison(spec, mirror, settings, changelog, table, stamp, own, until)
            return work.run(head.snapshot_id, None if buckets is None else sorted(buckets))

    return interruptible_jobs(session, "consistency", compare)


def consistency_sentence(found: Consistency) -> str:
    """Describe the comparison and its result."""
    part = "All keys" if found.looked_at == BUCKETS else f"{found.looked_at} of {BUCKETS} buckets of keys"
    compared = f"{part} of {found.table} were compared with its changelog ({found.rows:,} rows)"
    result = "they are the same"
    if found.wrong:
        what, key = found.examples[0]
        named = ", ".join(f"{name} = {value}" for name, value in key.items())
        result = f"of its rows {counts_sentence(found.counts)}; for instance {named} is {what}"
    more = {
        "rows have no change in the changelog, and are not compared: they were there before it was a mirror, or their "
        "changes have expired.": found.adopted,
        "keys without a row are not compared: their changes do not say whether there should be one.": found.undecided,
        "dead letters had not come back at its newest merge: the changes in them are on neither side.": found.letters,
    }
    return " ".join([f"{compared}: {result}.", *(f"{count:,} {said}" for said, count in more.items() if count)])


def counts_sentence(counts: Mapping[str, int]) -> str:
    """Describe the number of wrong keys of each kind."""
    words = {"missing": "missing", "extra": "there too much", "different": "different"}
    return ", ".join(f"{counts[kind]:,} {words[kind]}" for kind in KINDS if counts.get(kind))


def consistency_fix(spec: StreamSpec, found: Consistency) -> str | None:
    """The next command; None if nothing is to be done."""
    if found.wrong:
        return f"frazil mirror rebuild {spec.stream} --table {found.table}"
    return f"frazil replay {spec.stream} --dry-run" if found.letters else None


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One comparison."""

    spec: StreamSpec
    mirror: Mirror
    settings: Settings
    changelog: Table
    table: Table
    stamp: MirrorStamp
    session: SparkSession
    until: contextlib.ExitStack

    def run(self, snapshot_id: int, buckets: Sequence[int] | None) -> Consistency:
        from pyspark.sql import functions as sql

        rows = self.session.sql(f"SELECT * FROM {table_path(self.settings, self.table)} VERSION AS OF {snapshot_id}")
        expected, found = self._expected(rows.schema, buckets), self._found(rows, buckets)
        joined = expected.join(found, list(self.stamp.key), "full_outer")
        begins, no = expired_offsets(self.spec, self.changelog), sql.lit(False)
        missing, gone = sql.col(_FOUND).isNull(), sql.coalesce(_GONE, no)
        joined = joined.where(~(missing & gone))
        # If the filter reads values that only changes of other keys have, a missing row cannot be judged.
        undecided, later = sql.coalesce(UNJUDGED_COLUMN, no), no
        if begins and self._plan(rows.schema).scope == "key":
            # An expired change may have a greater version than all remaining ones, and may be a deletion.
            later = sql.coalesce(sql.col(_FOUND_ORDER) > sql.col(_WANTED_ORDER), no)
            undecided = undecided | sql.coalesce(sql.col(_WANTED_ORDER) < sql.lit(self.stamp.state.removed), no)
        # If changes have expired, a row without a change may still be right.
        unjudged = sql.lit(True) if begins else sql.col(_FOUND_ORDER).isNull()
        extra = sql.col(_WANTED).isNull() | gone
        both = ~missing & ~extra
        different = both & ~sql.col(_UNKNOWN) & ~later & (sql.col(_WANTED) != sql.col(_FOUND))
        judged = joined.select(
            *[quoted_name(name) for name in self.stamp.key],
            sql.when(missing & undecided, "undecided")
            .when(missing, "missing")
            .when(extra & ((unjudged & ~gone) | later), "adopted")
            .when(extra, "extra")
            .when(different, "different")
            .otherwise("same")
            .alias("what"),
        )
        judged.persist()
        self.until.callback(judged.unpersist)
        counts = Counter({row["what"]: row["count"] for row in judged.groupBy("what").count().toArrow().to_pylist()})
        wrong = judged.where(sql.col("what").isin(*KINDS)).limit(EXAMPLES).toArrow().to_pylist()
        both = counts["same"] + counts["different"]
        return Consistency(
            self.mirror.table,
            snapshot_id,
            self.stamp.snapshot_id,
            BUCKETS if buckets is None else len(buckets),
            both + counts["missing"],
            both + counts["extra"],
            {kind: counts[kind] for kind in KINDS},
            counts["adopted"],
            tuple((row["what"], {name: row[name] for name in self.stamp.key}) for row in wrong),
            self.stamp.letters,
            counts["undecided"],
        )

    def _expected(self, kinds: StructType, buckets: Sequence[int] | None) -> DataFrame:
        """Return the expected checksum of each key's row, in the mirror's types, and its order."""
        from pyspark.sql import functions as sql

        plan = self._plan(kinds)
        order = Order(plan.state, {}, plan.scope, plan.begins)
        history = History(self.session, self.settings, self.changelog, plan, order, self.until)
        row_filter = RowFilter.of(plan.where, self.table.schema(), plan.columns)
        part = None if buckets is None else self._bucket(kinds).isin(*buckets)
        folded = history.folded_where(part, row_filter)
        folded = folded.withColumn(_GONE, sql.col(FOLD_COLUMN) != UPSERT)
        folded = folded.withColumn(_UNKNOWN, sql.col(REFOLD_COLUMN) | (sql.size(FROM_TARGET_COLUMN) > 0))
        folded = folded.withColumn(_WANTED_ORDER, sql.col(ORDER_COLUMN))
        more = (_WANTED_ORDER, _UNKNOWN, _GONE, UNJUDGED_COLUMN)
        there = _in_types_of(folded, plan.columns, kinds, more)
        names = [quoted_name(name) for name in plan.key]
        return there.select(*names, self._checksum(plan.columns).alias(_WANTED), *more)

    def _found(self, rows: DataFrame, buckets: Sequence[int] | None) -> DataFrame:
        """Return the checksum of each key's row in the mirror, and its order."""
        from pyspark.sql import functions as sql

        if self.stamp.deletes == "soft":
            rows = rows.where(f"NOT coalesce({quoted_name(DELETED_COLUMN)}, false)")
        if buckets is not None:
            rows = rows.where(self._bucket(rows.schema).isin(*buckets))
        names = [quoted_name(name) for name in self.stamp.key]
        values = self._checksum(self._plan(rows.schema).columns).alias(_FOUND)
        return rows.select(*names, values, sql.col(ORDER_COLUMN).alias(_FOUND_ORDER))

    def _plan(self, kinds: StructType) -> MergePlan:
        stamp = self.stamp
        plan = merge_plan(self.spec, self.mirror, self.changelog, stamp.key, stamp.state, stamp.snapshot_id)
        # The mirror may lack columns that the changelog has got since the newest merge.
        return replace(plan, columns=tuple(name for name in plan.columns if name in kinds.names), where=stamp.where)

    def _bucket(self, kinds: StructType) -> Column:
        """Return a key's bucket by its values in the mirror's types: a number hashes differently in a wider type."""
        from pyspark.sql import functions as sql

        hashed = sql.xxhash64(*[sql.col(quoted_name(name)).cast(kinds[name].dataType) for name in self.stamp.key])
        return sql.pmod(hashed, sql.lit(BUCKETS)).cast("int")

    def _checksum(self, columns: Sequence[str]) -> Column:
        from pyspark.sql import functions as sql

        schema = self.table.schema()
        values: list[Column] = []
        for name in columns:
            value = sql.col(quoted_name(name))
            # Spark cannot hash maps. It skips nulls, so they are hashed apart, or a value could move to another column.
            values += [sql.to_json(value) if _has_map(schema.find_type(name)) else value, value.isNull()]
        return sql.xxhash64(*values)


def _in_types_of(rows: DataFrame, columns: Sequence[str], mirror: StructType, also: Sequence[str]) -> DataFrame:
    """Cast collapsed rows to the mirror's types: an adopted mirror may have wider ones, and fields in another order.

    Args:
        columns: Columns of the mirror.
        also: Further columns of the rows, which keep their types.
    """
    from pyspark.sql.types import StructType

    fields = {field.name: field for field in mirror.fields}
    fields |= {field.name: field for field in rows.schema.fields if field.name in also}
    wanted = StructType([fields[name] for name in (*columns, *also)])
    # Spark refuses to cast an optional column to a required one, and only values are compared.
    return rows.to(StructType.fromJson(_optional(wanted.jsonValue())))


def _optional(described: Any) -> Any:
    """Make all parts of a type optional, in Spark's JSON of types."""
    if isinstance(described, list):
        return [_optional(each) for each in described]
    if not isinstance(described, dict):
        return described
    return {
        key: True if key in ("nullable", "containsNull", "valueContainsNull") else _optional(value)
        for key, value in described.items()
    }


def _has_map(column_type: ice.IcebergType) -> bool:
    """Whether a type contains a map, which Spark cannot hash."""
    match column_type:
        case ice.MapType():
            return True
        case ice.ListType():
            return _has_map(column_type.element_type)
        case ice.StructType():
            return any(_has_map(field.field_type) for field in column_type.fields)
        case _:
            return False
