"""Earlier rows of a table, beside those that are checked: their keys, and rows per hour.

The table is read in batches, only from the files that may have such rows, and only the needed columns. If these are
many, or if the checked rows are in Spark, Spark reads them. Memory grows with the keys and hours in question, not with
the table; keys in Spark use none.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them; of PyIceberg's
# expressions it sees pydantic's keywords only.
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, In, LessThan, LessThanOrEqual
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.types import (
    DateType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from jobs.base.errors import FrazilError
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import TargetSpec
from jobs.quality.contracts.unique_keys import Bounds, EarlierKeys, comparable_keys
from jobs.quality.contracts.usual_volume import Extent
from jobs.quality.incremental_scan.arrow_rows import arrow_batches
from jobs.quality.incremental_scan.increment import Increment
from jobs.quality.incremental_scan.offset_ranges import quoted_name
from jobs.quality.incremental_scan.row_selection import EVERY_ROW, RowSelection, whole_table
from jobs.quality.incremental_scan.spark_rows import spark_frame
from jobs.quality.publishing.publishing import unpublished
from jobs.records.schema.iceberg_schema import unread_problem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MOST_ROWS = 20_000_000
"""Most rows that are read without Spark."""
_MOST_VALUES = 200
_COUNT = "count_of_rows"
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class EarlierRows:
    """The table beside the checked rows.

    Attributes:
        everything: All rows of the table, see `readers_rows`.
        rows: The checked rows, which are among them.
        spark: Starts Spark, or returns the running session.
        most_rows: Most rows that are read without it.
    """

    everything: RowSelection
    rows: pa.Table | DataFrame
    spark: Callable[[], SparkSession]
    settings: Settings
    most_rows: int = MOST_ROWS

    @property
    def keys(self) -> EarlierKeys:
        """Earlier keys for the comparison."""
        return EarlierKeys(self.known_keys, self.table_keys)

    def table_keys(self, columns: tuple[str, ...], bounds: Bounds) -> DataFrame:
        """These columns of all rows of the table, in Spark.

        Args:
            columns: Columns of a key.
            bounds: Rows outside are not needed, and left out if the files' statistics allow it.

        Raises:
            FrazilError: Spark cannot read the table.
        """
        from pyspark.sql import functions as sql

        frame = spark_frame(self._by_spark(), columns, self.spark(), self.settings)
        schema = self.everything.table.schema()
        for name, (least, greatest) in bounds.items():
            # Times would need a zone in the condition, and decimals their digits.
            if least is not None and isinstance(schema.find_type(name), (IntegerType, LongType, StringType, DateType)):
                frame = frame.where(sql.col(quoted_name(name)).between(sql.lit(least), sql.lit(greatest)))
        return frame

    def _by_spark(self) -> RowSelection:
        """All rows, for Spark: by its scan, or by file if it has no type for a column and no row was deleted."""
        everything = self.everything
        if unread_problem(everything.table.schema()) is None:
            return everything
        if everything.snapshot_id is None:
            return everything
        tasks = list(everything.table.scan(snapshot_id=everything.snapshot_id).plan_files())
        if any(task.delete_files for task in tasks):
            return everything
        files = (*everything.files, *(task.file for task in tasks))
        return replace(everything, files=files, snapshot_id=None)

    def known_keys(self, columns: tuple[str, ...], keys: pa.Table) -> pa.Table:
        """Keys that the table has in rows beside the checked ones.

        A key counts as known if more rows of the table have it than checked rows.

        Args:
            columns: Columns of the key.
            keys: Distinct keys with these columns.

        Returns:
            The known keys.
        """
        if not keys.num_rows:
            return keys
        keys = keys.select(list(columns))
        keys = comparable_keys(keys, columns)
        near = _near(keys, self.everything.table.schema(), self.everything.condition)
        there = self._counted(replace(self.everything, condition=near), keys)
        mine = _frame_counts(self.rows, keys) if not isinstance(self.rows, pa.Table) else _counts([self.rows], keys)
        both = there.join(mine.rename_columns([*columns, "mine"]), list(columns), join_type="left outer")
        more = pc.greater(both.column(_COUNT), pc.fill_null(both.column("mine"), 0))
        return both.filter(more).select(list(columns)).cast(keys.schema)

    def _counted(self, selection: RowSelection, keys: pa.Table) -> pa.Table:
        names = keys.column_names
        if selection.rows_at_most() <= self.most_rows:
            return _counts((pa.Table.from_batches([each]) for each in arrow_batches(selection, names)), keys)
        # Spark uses its own syntax for conditions, so it gets none but the table's own.
        return _frame_counts(spark_frame(self.everything, names, self.spark(), self.settings), keys)

    def past_volumes(
        self, column: str | None, first: datetime, last: datetime, time_column: str | None = None
    ) -> Mapping[datetime, int]:
        """Rows of the table per hour, without the checked ones.

        Args:
            column: Column of the time; None: `time_column`.
            first, last: First and last of the wanted hours.
            time_column: Column of Kafka's timestamp.

        Returns:
            Counts by the start of the hour in UTC; hours without rows are missing.

        Raises:
            FrazilError: The table has no such column of times.
        """
        name = column or time_column
        table = self.everything.table
        field = next((each for each in table.schema().fields if each.name == name), None)
        if field is None or not isinstance(field.field_type, (TimestampType, TimestamptzType)):
            raise FrazilError(
                f"table {self.everything.name} has no column {name or 'of Kafka timestamps'} of times",
                fix="name a column of type timestamp or timestamptz",
            )
        begin, end = first.astimezone(UTC), last.astimezone(UTC) + _HOUR
        within = And(
            GreaterThanOrEqual(field.name, _text(begin, field.field_type)),
            LessThan(field.name, _text(end, field.field_type)),
        )
        selection = replace(self.everything, condition=_and(self.everything.condition, within))
        if selection.rows_at_most() <= self.most_rows:
            every = _hours(arrow_batches(selection, {field.name}), field.name)
        else:
            frame = spark_frame(self.everything, {field.name}, self.spark(), self.settings)
            every = _frame_hours(frame, field.name, begin, end)
        if isinstance(self.rows, pa.Table):
            mine = _hours(self.rows.select([field.name]).to_batches(), field.name)
        else:
            mine = _frame_hours(self.rows, field.name, begin, end)
        # Rows of files are read without the condition.
        near = {hour: count - mine.get(hour, 0) for hour, count in every.items() if begin <= hour < end}
        return {hour: count for hour, count in near.items() if count > 0}


def _frame_hours(frame: DataFrame, name: str, begin: datetime, end: datetime) -> dict[datetime, int]:
    from pyspark.sql import functions as sql

    time = sql.col(quoted_name(name)).cast("timestamp")
    near = frame.where((time >= sql.lit(begin)) & (time < sql.lit(end)))
    # The session's zone is UTC.
    hour = sql.unix_timestamp(sql.date_trunc("hour", time)).alias("hour")
    rows = near.groupBy(hour).count().toArrow().to_pylist()
    return {datetime.fromtimestamp(row["hour"], UTC): row["count"] for row in rows}


def _counts(parts: Iterable[pa.Table], keys: pa.Table) -> pa.Table:
    """Number of rows with each key; keys without rows are left out."""
    names = keys.column_names
    found = keys.slice(0, 0).append_column(_COUNT, pa.array([], pa.int64()))
    for part in parts:
        mine = comparable_keys(part.select(names).cast(keys.schema), names).join(keys, names, join_type="left semi")
        counted = mine.group_by(names).aggregate([([], "count_all")]).rename_columns([*names, _COUNT])
        both = pa.concat_tables([found, counted.cast(found.schema)])
        found = both.group_by(names).aggregate([(_COUNT, "sum")]).rename_columns([*names, _COUNT])
    return found


def _frame_counts(frame: DataFrame, keys: pa.Table) -> pa.Table:
    from pyspark.sql import functions as sql

    names = keys.column_names
    wanted = frame.sparkSession.createDataFrame(keys)
    mine = frame.join(sql.broadcast(wanted), names, "left_semi").groupBy(*map(quoted_name, names)).count()
    schema = keys.schema.append(pa.field(_COUNT, pa.int64()))
    return mine.toArrow().rename_columns([*names, _COUNT]).cast(schema)


def _near(keys: pa.Table, schema: Schema, also: BooleanExpression) -> BooleanExpression:
    """Row filter for rows with one of the keys, which the files' statistics can answer."""
    found = also
    for name in keys.column_names:
        values = pc.unique(keys.column(name).combine_chunks()).drop_null()
        # Texts also represent uuids and times of the day, for which no condition exists.
        kind = schema.find_type(name)
        if not len(values) or not _is_ordered(values.type) or isinstance(kind, (UUIDType, TimeType)):
            continue
        if len(values) <= _MOST_VALUES:
            found = _and(found, In(name, [_literal(each) for each in values.to_pylist()]))
        else:
            ends = pc.min_max(values).as_py()
            within = And(GreaterThanOrEqual(name, _literal(ends["min"])), LessThanOrEqual(name, _literal(ends["max"])))
            found = _and(found, within)
    return found


def _is_ordered(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_integer(kind) or types.is_string(kind) or types.is_date32(kind) or types.is_timestamp(kind)


def _literal(value: object) -> object:
    return value.isoformat() if hasattr(value, "isoformat") else value  # type: ignore[union-attr]


def _and(one: BooleanExpression, other: BooleanExpression) -> BooleanExpression:
    return other if one is EVERY_ROW else And(one, other)


def _text(at: datetime, kind: object) -> str:
    return at.isoformat() if isinstance(kind, TimestamptzType) else at.replace(tzinfo=None).isoformat()


def _hours(batches: Iterable[pa.RecordBatch], name: str) -> dict[datetime, int]:
    found: Counter[datetime] = Counter()
    for batch in batches:
        hours = pc.value_counts(pc.floor_temporal(batch.column(name).drop_null(), unit="hour"))
        for each in hours.to_pylist():
            at: datetime = each["values"]
            found[at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)] += each["counts"]
    return dict(found)


@dataclass(frozen=True, slots=True)
class Beside:
    """Rows beside the checked ones.

    Attributes:
        everything: All rows of the table, the checked ones included.
        counted: Rows that count for rows per hour; None: all.
        alone: Whether the checked rows are the whole table.
        now: Time by which hours are over; None: only later rows end an hour.
        hours: Hours to judge.
    """

    everything: RowSelection
    counted: RowSelection | None = None
    alone: bool = False
    now: datetime | None = None
    hours: Extent = "new"

    def context(
        self,
        rows: pa.Table | DataFrame,
        spark: Callable[[], SparkSession],
        settings: Settings,
        time_column: str | None,
    ) -> Mapping[str, Any]:
        """Arguments of an `EvaluationContext`.

        Args:
            rows: The checked rows.
            spark: Starts Spark, or returns the running session.
            time_column: Column of Kafka's timestamp.
        """
        earlier = EarlierRows(self.everything, rows, spark, settings)
        counted = replace(earlier, everything=self.counted or self.everything)
        past = partial(counted.past_volumes, time_column=time_column)
        return {
            "earlier_keys": None if self.alone else earlier.keys,
            "past_volumes": _none_before if self.alone else past,
            "now": self.now,
            "hours": self.hours,
        }


def beside(
    spec: StreamSpec,
    target: TargetSpec,
    table: Table,
    found: Increment,
    *,
    alone: bool = False,
    now: datetime | None,
    hours: Extent = "new",
) -> Beside:
    """Rows beside those of a branch.

    Args:
        table: The whole table, not seen from a branch.
        found: The branch, and the last snapshot of the check.
    """
    head = found.head.snapshot_id if found.head else None
    everything = readers_rows(spec, target, table, found.branch, head)
    counted = None
    if target.role == "dead_letters" and head is not None:
        # Other streams may have rows there, too.
        counted = whole_table(table, target.coordinates, spec.stream, snapshot_id=head)
    return Beside(everything, counted, alone=alone, now=now, hours=hours)


def _none_before(_: str | None, first: datetime, last: datetime) -> Mapping[datetime, int]:
    return {}


def readers_rows(spec: StreamSpec, target: TargetSpec, table: Table, branch: str, head: int | None) -> RowSelection:
    """All rows of a table that a check sees beside its own.

    Args:
        table: The whole table, not seen from a branch.
        branch: Checked branch.
        head: Its last snapshot in the check; None: it has none.
    """
    gated = spec.publish is not None and target.name == spec.table.name
    if gated and branch == target.branch != MAIN_BRANCH:
        try:
            waiting = unpublished(spec, table, unfinished=True)
        except FrazilError:
            # It is unknown now what main lacks. The branch has all of it, and discarded rows, too.
            waiting = None
        if waiting is not None:
            return with_main(table, target, waiting.files)
    if head is None:
        return RowSelection(table, None)
    return whole_table(table, target.coordinates, None, snapshot_id=head)


def with_main(table: Table, target: TargetSpec, files: Sequence[DataFile]) -> RowSelection:
    """The rows of `main`, and those of files that are to become part of it."""
    return replace(whole_table(table, target.coordinates, None), files=tuple(files))
