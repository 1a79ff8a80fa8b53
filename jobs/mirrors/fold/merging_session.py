"""Spark session that merges run in, and helpers for its frames."""

from __future__ import annotations

import contextlib
import hashlib
import uuid
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from jobs.base.system.signals import deferred_signals
from jobs.clients.spark.catalog_conf import use_catalog
from jobs.clients.spark.jvm_calls import interruptible
from jobs.config.settings.settings import Settings
from jobs.mirrors.fold.fold import FOLD_COLUMN, FROM_TARGET_COLUMN, OP_COLUMN, REFOLD_COLUMN, UNAVAILABLE_COLUMN
from jobs.mirrors.fold.row_filter import FILTERED_COLUMN, PROBLEM_COLUMN, UNJUDGED_COLUMN
from jobs.mirrors.model.merge_plan import ORDER_COLUMN
from jobs.quality.incremental_scan.offset_ranges import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


T = TypeVar("T")

_CONF = {
    # Iceberg's column names are case-sensitive.
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
}
_known: weakref.WeakKeyDictionary[SparkSession, tuple[str, SparkSession]] = weakref.WeakKeyDictionary()


def merging_session(session: SparkSession, settings: Settings) -> SparkSession:
    """Return the session for merges, beside `session`, with the catalog configured.

    All merges share it, because a new session connects to the catalog again. Changed settings or secrets of the catalog
    need a new session.
    """
    given = [sorted(settings.catalog.revealed().items()), sorted(settings.spark.revealed_conf().items())]
    mark = hashlib.sha256(repr([settings.catalog.name, *given]).encode()).hexdigest()
    with deferred_signals():
        known = _known.get(session)
        if known is not None and known[0] == mark:
            return known[1]
        own = session.newSession()
        for key, value in _CONF.items():
            own.conf.set(key, value)
        use_catalog(own, settings)
        _known[session] = mark, own
    return own


def interruptible_jobs(session: SparkSession, name: str, call: Callable[[], T]) -> T:
    """Return the result of a call. If a signal ends the wait for it, its jobs are cancelled.

    Args:
        name: Name for the tag of its jobs.
    """
    context, tag = session.sparkContext, f"frazil-{name}-{uuid.uuid4()}"

    def tagged() -> T:
        context.addJobTag(tag)
        try:
            return call()
        finally:
            context.removeJobTag(tag)

    return interruptible(tagged, lambda: context.cancelJobsWithTag(tag))


def ordered_kinds(changes: DataFrame, columns: Sequence[str], extra: Sequence[str] = ()) -> StructType:
    """Return the schema of `OrderTask`'s result for changes."""
    from pyspark.sql.types import StringType, StructField, StructType

    kinds = {field.name: field for field in changes.schema.fields}
    names = (*columns, OP_COLUMN, UNAVAILABLE_COLUMN, *extra)
    return StructType([*(kinds[name] for name in names), StructField(ORDER_COLUMN, StringType())])


def folded_kinds(changes: DataFrame, columns: Sequence[str]) -> StructType:
    """Return the schema of `FoldTask`'s result for changes."""
    from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

    kinds = {field.name: field for field in changes.schema.fields}
    return StructType(
        [
            StructField(FOLD_COLUMN, StringType()),
            StructField(ORDER_COLUMN, StringType()),
            *(StructField(name, kinds[name].dataType) for name in columns),
            StructField(FROM_TARGET_COLUMN, ArrayType(StringType())),
            StructField(REFOLD_COLUMN, BooleanType()),
            StructField(FILTERED_COLUMN, BooleanType()),
            StructField(UNJUDGED_COLUMN, BooleanType()),
            StructField(PROBLEM_COLUMN, StringType()),
        ]
    )


def sorted_by_key(rows: DataFrame, key: Sequence[str], tasks: int) -> DataFrame:
    """Partition rows by key, and sort each partition by key and order."""
    names = [quoted_name(name) for name in key]
    return rows.repartition(tasks, *names).sortWithinPartitions(*names, ORDER_COLUMN)


def kept_frame(frame: DataFrame, until: contextlib.ExitStack) -> DataFrame:
    """Compute rows now and keep them until `until` closes.

    Spark uses persisted rows in queries, but not in a MERGE, which would read and collapse the changes again. So the
    rows are checkpointed locally. If an executor is lost meanwhile, the merge fails.
    """
    kept = frame.localCheckpoint(eager=True)
    until.callback(_given_back, kept)
    return kept


def _given_back(kept: Any) -> None:
    # If the JVM has ended, the space is free already, and an earlier error reports its end.
    with contextlib.suppress(Exception):
        # RDD.unpersist does the same, but warns that the RDD is checkpointed.
        checkpointed = kept._jdf.queryExecution().analyzed().rdd().id()
        kept.sparkSession.sparkContext._jsc.sc().unpersistRDD(checkpointed, False)
